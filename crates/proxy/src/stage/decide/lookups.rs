//! Answers the look-ups that a decision needs: live, peeking, or by the simulated cache of learn mode.

use std::sync::Arc;

use anteroom_cache::memory::{MarkTime, Memory};
use anteroom_cache::purge::{PurgeStanding, PurgeTable};
use anteroom_cache::rules::key::ShareClass;
use anteroom_cache::{self as cache, CacheTier};
use anteroom_http::ident::PageKey;
use anteroom_rows::{KeptRow, RowSoon};
use anteroom_telemetry::metrics::Count;
use anteroom_telemetry::reason::Reason;

use crate::context::{RequestContext, RequestKind};
use crate::plan::{Facts, Lookup, LookupAnswers, LookupResult, PageClass};
use crate::stage::url_pattern;
use crate::stage::wanted_page::WantedPage;

/// The cache that is asked for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cache {
    /// Memory and the store.
    Real,
    /// The simulated cache of learn mode, in which no page is marked.
    Simulated,
}

/// How look-ups are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LookupRules {
    cache: Cache,
    /// Whether a look-up counts as a use, and its result is remembered. What is remembered of pages that are not
    /// stored may be kept longer by either.
    counts: bool,
}

impl LookupRules {
    /// For a request that is served.
    pub(crate) const LIVE: Self = Self { cache: Cache::Real, counts: true };
    /// For a request that is explained, or whose page is warmed: no page, row, rank or session counts as used.
    pub(crate) const PEEK: Self = Self { cache: Cache::Real, counts: false };
    /// For a request that is forwarded, and teaches what the cache would do.
    pub(crate) const LEARN: Self = Self { cache: Cache::Simulated, counts: true };
    /// For a request on a route that learns, which is explained or was sent to another proxy.
    pub(crate) const PEEK_LEARN: Self = Self { cache: Cache::Simulated, counts: false };
}

/// A search for the mark of a page.
type FindMark = fn(&Memory, &PageKey, MarkTime, &PurgeTable) -> Option<Reason>;

/// Answers the look-ups of one request.
pub(super) struct Lookups<'c> {
    cx: &'c RequestContext<'c>,
    rules: LookupRules,
    /// The page that the request wants, from the first look-up of a page on.
    pub(super) want: Option<WantedPage<'c>>,
    /// What was found with the look-up in memory, if that is no fresh page in memory.
    further: Option<cache::Lookup>,
}

impl<'c> Lookups<'c> {
    pub(super) fn new(cx: &'c RequestContext<'c>, rules: LookupRules) -> Self {
        Self { cx, rules, want: None, further: None }
    }

    /// Whether [`Self::in_memory`] may be asked.
    pub(super) fn are_live(&self) -> bool {
        self.rules == LookupRules::LIVE
    }

    /// Asks memory for a fresh page. PERF: apart from the others, because it is all that a hit needs, and
    /// waits for nothing.
    pub(super) fn in_memory(&mut self, pages: PageClass) -> Option<LookupResult> {
        let want = self.want.insert(WantedPage::new(self.cx, pages));
        let entry = want.in_memory()?;
        Some(judged(want, cache::Lookup::Fresh(entry, CacheTier::Memory)))
    }

    /// Answers a look-up.
    pub(super) async fn answer(
        &mut self,
        lookup: Lookup,
        facts: &Facts<'_>,
        known: &mut LookupAnswers,
    ) {
        match lookup {
            Lookup::Row => known.row = Some(self.row(facts).await),
            Lookup::Rank => known.is_ranked = Some(self.is_ranked(facts).await),
            Lookup::Static => known.is_static = Some(self.is_static().await),
            Lookup::Memory(pages) if self.are_live() => known.memory = Some(self.in_memory(pages)),
            Lookup::Memory(pages) => known.memory = Some(self.peek(pages).await),
            Lookup::Store => known.store = Some(self.in_store().await),
            Lookup::Public => known.public = Some(self.public().await),
            Lookup::MarkForAll => {
                known.marked_for_all = Some(self.mark(Memory::uncacheable_in_all));
            }
            Lookup::Mark => known.marked = Some(self.mark(Memory::uncacheable)),
            Lookup::Failing(key) => known.is_failing = Some(self.is_failing(&key)),
            Lookup::Rare => known.is_rare = Some(self.wanted().is_rare()),
            Lookup::LostFields => known.loses_fields = Some(self.wanted().loses_visitor_fields()),
            Lookup::AsItCame => known.as_it_came = Some(self.as_it_came()),
        }
    }

    /// The page that the request wants. Memory is asked for it before anything else about it.
    fn wanted(&self) -> &WantedPage<'c> {
        self.want.as_ref().expect("`plan` asks memory first, which names the page")
    }

    /// The content of the row that the request names; `None`: the row does not exist, or the store is away.
    async fn row(&self, facts: &Facts<'_>) -> Option<Arc<KeptRow>> {
        let (cx, worker) = (self.cx, self.cx.worker);
        let row = facts.row.as_ref()?;
        let found = match (self.rules.counts, worker.is_on_demand(row)) {
            (false, _) => worker.rows.peek(&worker.store, row).await,
            (true, false) => worker.rows.row(&worker.store, row).await,
            // A part of a page does not hold the page up: the app is asked for it.
            (true, true) if cx.kind == RequestKind::Fragment => {
                worker.rows.row_soon(&worker.store, row).await.map(RowSoon::found)
            }
            (true, true) => worker.rows.row_on_demand(&worker.store, row).await,
        };
        found.unwrap_or_else(|error| {
            tracing::debug!(%error, "looking up a row failed");
            worker.thread_metrics.count(Count::StoreReadErrors);
            None
        })
    }

    /// Whether the item is among the most viewed. If the store is away, the item counts as such.
    async fn is_ranked(&self, facts: &Facts<'_>) -> bool {
        let cx = self.cx;
        let Some(top) = cx.route.only_top else { return true };
        let Some(item) = facts.item else { return false };
        let worker = cx.worker;
        let is_in_top = match self.rules.counts {
            true => worker.ranks.is_in_top(&worker.store, item, top, cx.now).await,
            false => worker.ranks.peek(&worker.store, item, top, cx.now).await,
        };
        is_in_top.unwrap_or_else(|error| {
            tracing::debug!(%error, "an item's rank could not be looked up");
            worker.thread_metrics.count(Count::StoreReadErrors);
            true
        })
    }

    /// Whether the page that is stored for anonymous visitors is static by proof, and suits the request.
    async fn is_static(&self) -> bool {
        let want = WantedPage::new(self.cx, PageClass::of(ShareClass::Anonymous));
        let found = find(&want, LookupRules { cache: Cache::Real, ..self.rules }).await;
        match judged(&want, found) {
            LookupResult::Fresh { entry, suits, .. } => entry.static_proof && suits.is_ok(),
            LookupResult::TooOld { .. }
            | LookupResult::Stale { .. }
            | LookupResult::Absent { .. } => false,
        }
    }

    /// Looks for a fresh page in memory without using it, and keeps what else is found until the store is asked
    /// for.
    async fn peek(&mut self, pages: PageClass) -> Option<LookupResult> {
        let want = self.want.insert(WantedPage::new(self.cx, pages));
        let found = find(want, self.rules).await;
        if let cache::Lookup::Fresh(_, CacheTier::Memory) = found {
            return Some(judged(want, found));
        }
        self.further = Some(found);
        None
    }

    /// Looks in the store, and in memory for stale pages.
    async fn in_store(&mut self) -> LookupResult {
        let further = self.further.take();
        let want = self.wanted();
        let found = match further {
            Some(found) => found,
            // A peek has kept what else was found.
            None => want.look_up().await,
        };
        judged(want, found)
    }

    /// Looks for the page that the origin marked `public`.
    async fn public(&self) -> LookupResult {
        let public = WantedPage::new(self.cx, PageClass::of(ShareClass::Public));
        judged(self.wanted(), find(&public, self.rules).await)
    }

    fn mark(&self, find: FindMark) -> Option<Reason> {
        let (want, pages) = (self.wanted(), &self.cx.worker.pages);
        let find = || find(pages.memory(), &want.key, want.mark_time(), &pages.purged);
        (self.rules.cache == Cache::Real).then(find).flatten()
    }

    fn is_failing(&self, key: &PageKey) -> bool {
        let memory = self.cx.worker.pages.memory();
        self.rules.cache == Cache::Real && memory.is_failing(key, self.cx.now as u64)
    }

    fn as_it_came(&self) -> Option<Reason> {
        let find = || url_pattern::as_it_came(self.wanted(), self.rules.counts);
        (self.rules.cache == Cache::Real).then(find).flatten()
    }
}

/// Looks in memory and in the store, or in the simulated cache.
async fn find(want: &WantedPage<'_>, rules: LookupRules) -> cache::Lookup {
    match (rules.cache, rules.counts) {
        (Cache::Simulated, _) => simulated(want),
        (Cache::Real, true) => match want.in_memory() {
            Some(entry) => cache::Lookup::Fresh(entry, CacheTier::Memory),
            None => want.look_up().await,
        },
        (Cache::Real, false) => want.peek().await,
    }
}

fn simulated(want: &WantedPage<'_>) -> cache::Lookup {
    let worker = want.cx.worker;
    let Some((key, entry)) = worker.learning.find(&want.key, || want.sent()) else {
        return cache::Lookup::Absent(want.key);
    };
    match worker.pages.standing(&entry, want.now()) {
        PurgeStanding::Current => cache::Lookup::Fresh(entry, CacheTier::Memory),
        PurgeStanding::Stale => cache::Lookup::Stale(entry, CacheTier::Memory, key),
        PurgeStanding::Gone => cache::Lookup::Absent(key),
    }
}

/// What the request makes of a page that was found.
fn judged(want: &WantedPage<'_>, found: cache::Lookup) -> LookupResult {
    match found {
        cache::Lookup::Fresh(entry, _) if !want.directives.is_met_by(&entry, want.now()) => {
            LookupResult::TooOld {
                key: want.key_of(&entry),
                suits: want.suits(&entry).is_ok(),
                entry,
            }
        }
        cache::Lookup::Fresh(entry, tier) => {
            let suits = want.suits(&entry);
            LookupResult::Fresh { entry, tier, suits }
        }
        cache::Lookup::Stale(entry, _, key) => LookupResult::Stale {
            key,
            suits: want.suits(&entry).is_ok(),
            serves_on_error: entry.serves_on_error(want.now()),
            serves_meanwhile: want.is_answered_meanwhile(&entry),
            entry,
        },
        cache::Lookup::Absent(key) => LookupResult::Absent { key },
    }
}
