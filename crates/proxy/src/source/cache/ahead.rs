//! Refresh ahead: a popular page is fetched again shortly before it expires, so that no visitor waits for it.
//!
//! A hit orders the fetch, and a stranger's request carries it out: a fill like any other, whose response is judged
//! by the same rules, and which a change outweighs that comes meanwhile.

use std::sync::Arc;

use ::http::Method;
use anteroom_cache::entry::Entry;
use anteroom_cache::warm_queue::WarmOccasion;
use anteroom_telemetry::metrics::Count;

use super::warm::recipe;
use crate::stage::wanted_page::WantedPage;

/// How many hits in its present lifetime make a page popular. One visit must not keep a page fresh for ever.
const HITS_MIN: u64 = 5;

/// Counts a hit in memory. If the page is popular and about to expire, begins to fetch it again.
pub(super) fn refresh_ahead(want: &WantedPage<'_>, entry: &Arc<Entry>) {
    let hits = entry.hits.add();
    if want.cx.route.refresh_ahead
        && hits >= HITS_MIN
        && entry.is_due_ahead(want.now(), want.key.0[0])
        && may_be_refreshed(want, entry)
    {
        refresh(want, entry);
    }
}

/// Whether this request can order the fetch. A page that is shared by a few only never is fetched without them.
fn may_be_refreshed(want: &WantedPage<'_>, entry: &Arc<Entry>) -> bool {
    let pages = &want.cx.worker.pages;
    let is_failing = || pages.memory().is_failing(&want.key_of(entry), want.now());
    // The page may have been replaced, or have been found under another class.
    let is_held = || {
        let held = want.in_memory();
        held.is_some_and(|held| Arc::ptr_eq(&held, entry))
    };
    want.cx.head.method == Method::GET && !want.class.is_personal() && is_held() && !is_failing()
}

/// Orders the fetch: as a stranger's, so that nothing of this visitor is in it.
fn refresh(want: &WantedPage<'_>, entry: &Arc<Entry>) {
    if !entry.hits.begin_refresh() {
        return;
    }
    let worker = want.cx.worker;
    // The fetch takes a place of its own: this one only tells whether the origin has any.
    let has_place = want.cx.upstream().background_slot().is_some();
    // A page that came from the store has no recipe yet.
    let recipe = has_place.then(|| entry.recipe.clone().or_else(|| recipe(want))).flatten();
    let is_ordered = recipe
        .is_some_and(|recipe| worker.pages.warm_queue.add([recipe], WarmOccasion::ExpiresSoon));
    if !is_ordered {
        worker.thread_metrics.count(Count::RefreshesSkipped);
        entry.hits.end_refresh();
    }
}
