//! Refresh ahead: a popular page is fetched again shortly before it expires, so that no visitor waits for it.
//!
//! The fetch is a fill like any other: it carries nothing that is not in the page's key, its response is judged
//! by the same rules, and a change that comes meanwhile outweighs it.

use std::rc::Rc;
use std::sync::Arc;

use ::http::Method;

use super::begin;
use super::stale::FAILING_TTL;
use crate::cache::LookupMode;
use crate::cache::entry::Entry;
use crate::cache::fill::LeaderAnswer;
use crate::cache::flight::JoinResult;
use crate::clock::unix_now;
use crate::proxy::stage::cache_lookup::{StaleCandidate, WantedPage};
use crate::telemetry::metrics::Count;

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
    let is_failing = || pages.memory().is_failing(&want.key_of(entry), want.now(), LookupMode::Use);
    // The page may have been replaced, or have been found under another class.
    let is_held = || {
        let held = pages.in_memory(&want.key, || want.sent(), want.now());
        held.is_some_and(|held| Arc::ptr_eq(&held, entry))
    };
    want.cx.head.method == Method::GET && !want.class.is_personal() && is_held() && !is_failing()
}

fn refresh(want: &WantedPage<'_>, entry: &Arc<Entry>) {
    let worker = want.cx.worker;
    if !entry.hits.begin_refresh() {
        return;
    }
    let Some(slot) = want.cx.upstream().background_slot() else {
        worker.thread_metrics.count(Count::RefreshesSkipped);
        return entry.hits.end_refresh();
    };
    let key = want.key_of(entry);
    let JoinResult::Lead(flight) = want.join(key) else { return entry.hits.end_refresh() };
    // An error of the origin leaves the page as it is.
    let candidate = StaleCandidate { entry: Arc::clone(entry), key, serves_on_error: true };
    let answer = begin(want, flight, Some(&candidate), Some(slot));
    let (worker, entry) = (Rc::clone(worker), candidate.entry);
    tokio::task::spawn_local(async move {
        let is_refreshed = answer.await.is_ok_and(|answer| is_refreshed(&answer));
        if is_refreshed {
            return worker.thread_metrics.count(Count::RefreshesAhead);
        }
        worker.thread_metrics.count(Count::RefreshesFailed);
        // A later hit tries again.
        worker.pages.memory().mark_failing(key, unix_now() as u64 + FAILING_TTL);
        entry.hits.end_refresh();
    });
}

/// Whether a fetch has brought a page that is shared.
pub(super) fn is_refreshed(answer: &LeaderAnswer) -> bool {
    match answer {
        LeaderAnswer::Shared { .. }
        | LeaderAnswer::Landed(_)
        | LeaderAnswer::Validated(_)
        | LeaderAnswer::Elsewhere(_) => true,
        LeaderAnswer::Own(..) | LeaderAnswer::Again(_) | LeaderAnswer::Failed(_) => false,
    }
}
