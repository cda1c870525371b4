//! What was learned, shared by all threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::http::HeaderMap;
use ahash::RandomState;
use anteroom_cache::entry::Entry;
use anteroom_cache::purge::PurgeSnapshot;
use anteroom_cache::rules::key::variant_key;
use anteroom_http::clock::unix_now;
use anteroom_http::ident::PageKey;
use anteroom_telemetry::reason::Reason;

use crate::causes::{Causes, CookieSet, CookieValue};
use crate::cookies::LearnedCookies;
use crate::pieces::AnswerPieces;
use crate::query_values::QueryValues;
use crate::routes::LearnedRoutes;
use crate::sample::AnswerSeen;
use crate::simulated::{FetchStep, SimulatedPage};
use crate::variants::ComparedVariants;

/// The most pages that are followed.
const PAGES_MAX: usize = 8_192;
/// The most that is kept of the answers of all pages, in words of four bytes.
const SIZE_MAX: usize = 16 << 20;

/// The most bodies that are read along at a time, of 1 MiB each. Others are not compared.
const BODIES_MAX: usize = 64;

/// What the cache would have done with a request for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PredictedOutcome {
    /// It would have answered.
    Hit,
    /// It would have answered, and fetched the page again in the background. `is_seen`: as for a fetch.
    StaleHit {
        /// See there.
        is_seen: bool,
    },
    /// It would have fetched the page. `is_seen`: the visitor's own answer is what the fetch would get.
    Fetch {
        /// See there.
        is_seen: bool,
    },
    /// It would have forwarded the request, for this reason.
    Forward(Reason),
}

/// A page as the report names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageName {
    /// The site.
    pub host: String,
    /// The path as it may be shown.
    pub path: String,
    /// Names of query parameters.
    pub parameters: Vec<String>,
    /// Their values, by keyed hashes.
    pub values: QueryValues,
}

/// A request for a page.
#[derive(Clone, Debug)]
pub struct PageRequest<'r> {
    /// The page's key, without variants.
    pub key: PageKey,
    /// Its route.
    pub route: &'r Arc<str>,
    /// Whether its page is shared with visitors who have a login, too.
    pub is_for_all: bool,
    /// Whose request it is: a keyed hash.
    pub visitor: u64,
    /// What its answer may depend on; `None`: it is not compared.
    pub causes: Option<&'r Causes>,
    /// Unix time in seconds.
    pub now: u64,
}

/// What is wanted of the answer to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerNeeds {
    /// Whether it tells what a fetch would get.
    pub verdict: bool,
    /// Whether it is compared with others.
    pub comparison: bool,
}

/// An answer that is compared with others.
#[derive(Clone, Debug)]
pub struct ComparedAnswer<'a> {
    /// What is known of it besides its text.
    pub answer: AnswerSeen,
    /// Its text.
    pub pieces: &'a AnswerPieces,
    /// The key of its variant; `None`: it has no `Vary`.
    pub variant: Option<PageKey>,
    /// Which purges outdate it.
    pub marks: &'a PurgeSnapshot,
}

/// A page that is followed.
#[derive(Clone, Debug)]
pub(crate) struct LearnedPage {
    pub(crate) name: PageName,
    pub(crate) route: Arc<str>,
    /// Whether it is shared with visitors who have a login, too.
    pub(crate) is_for_all: bool,
    /// When it was asked for: the first and the last time, in Unix seconds.
    pub(crate) asked: (u64, u64),
    pub(crate) simulated: SimulatedPage,
    pub(crate) compared: ComparedVariants,
    /// How often it was asked for.
    pub(crate) requests: u64,
}

/// Everything that was learned since a moment.
#[derive(Clone, Debug)]
pub(crate) struct LearnedState {
    /// Since when, in Unix time.
    pub(crate) since: f64,
    pub(crate) pages: HashMap<PageKey, LearnedPage>,
    /// What is kept of the answers of all pages, in words of four bytes.
    size: usize,
    /// Pages are followed whose key hashes to at most this.
    follows: u64,
    pub(crate) routes: LearnedRoutes,
    pub(crate) cookies: LearnedCookies,
    /// The key of all hashes.
    key: RandomState,
}

impl LearnedState {
    fn new() -> Self {
        Self {
            since: unix_now(),
            pages: HashMap::new(),
            size: 0,
            follows: u64::MAX,
            routes: LearnedRoutes::default(),
            cookies: LearnedCookies::default(),
            key: RandomState::new(),
        }
    }

    /// The share of URLs that are followed, in percent.
    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    pub(crate) fn followed_percent(&self) -> f64 {
        self.follows as f64 * 100.0 / u64::MAX as f64
    }

    /// Whether all URLs are followed.
    pub(crate) fn follows_all(&self) -> bool {
        self.follows == u64::MAX
    }

    fn follows(&self, key: &PageKey) -> bool {
        self.key.hash_one(key.0) <= self.follows
    }

    /// Makes the bounds hold. First those pages go that were asked for once and cannot be shared: a second request for
    /// them counts as the first one did, and URLs that do not exist are made up at no cost. Where these are few, half of
    /// the URLs are followed, and their hash decides which, so that shares stay right.
    fn make_room(&mut self) {
        if self.pages.len() > PAGES_MAX {
            self.pages.retain(|_, page| page.requests > 1 || !page.simulated.is_refused());
            self.count_size();
            // Soon there would be no room again.
            if self.pages.len() > PAGES_MAX - PAGES_MAX / 8 {
                self.follow_half();
            }
        }
        while self.size > SIZE_MAX {
            self.follow_half();
        }
    }

    fn follow_half(&mut self) {
        self.follows /= 2;
        let (follows, key) = (self.follows, &self.key);
        let routes = &mut self.routes;
        self.pages.retain(|name, page| {
            let stays = key.hash_one(name.0) <= follows;
            if !stays {
                routes.of(&page.route).lost += page.simulated.waiting();
            }
            stays
        });
        self.count_size();
    }

    /// Takes the answers with these cookies out.
    fn forget(&mut self, cookies: CookieSet) {
        if cookies != 0 {
            self.pages.values_mut().for_each(|page| page.compared.forget(cookies));
            self.count_size();
        }
    }

    fn count_size(&mut self) {
        self.size = self.pages.values().map(|page| page.compared.size()).sum();
    }
}

/// What was learned, shared by all threads. PERF: one lock, because only learn mode takes it, a few times a request.
#[derive(Debug)]
pub struct Learning {
    learned: Mutex<LearnedState>,
    /// The bodies that are read along.
    bodies: Arc<AtomicUsize>,
}

impl Default for Learning {
    fn default() -> Self {
        Self { learned: Mutex::new(LearnedState::new()), bodies: Arc::default() }
    }
}

/// The place of a body that is read along.
#[derive(Debug)]
pub struct BodyPlace(Arc<AtomicUsize>);

impl BodyPlace {
    fn of(bodies: &Arc<AtomicUsize>) -> Option<Self> {
        let taken = bodies.fetch_add(1, Ordering::Relaxed);
        let place = Self(Arc::clone(bodies));
        (taken < BODIES_MAX).then_some(place)
    }
}

impl Drop for BodyPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Learning {
    pub(crate) fn learned(&self) -> MutexGuard<'_, LearnedState> {
        // No code that can panic runs under this lock.
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything.
    pub fn restart(&self) {
        *self.learned() = LearnedState::new();
    }

    /// The key of all hashes. A restart changes it.
    #[must_use]
    pub fn hash_key(&self) -> RandomState {
        self.learned().key.clone()
    }

    /// Counts a request that the cache has no part in.
    pub fn forwarded(&self, route: &Arc<str>, reason: Reason) {
        let mut learned = self.learned();
        let route = learned.routes.of(route);
        route.requests += 1;
        route.refuse(reason, 1);
    }

    /// Counts a request that the cache would have answered, and whose page is known already.
    pub fn counted(&self, route: &Arc<str>) {
        let mut learned = self.learned();
        let route = learned.routes.of(route);
        route.requests += 1;
        route.hits += 1;
    }

    /// A place for a body that is read along; `None`: there are enough.
    #[must_use]
    pub fn body_place(&self) -> Option<BodyPlace> {
        BodyPlace::of(&self.bodies)
    }

    /// Notes the cookies of a request: the names and keyed hashes of the values. `from`: a keyed hash of the address and
    /// the browser. `None`: there is no place for one.
    pub fn cookies<'c>(
        &self,
        from: u64,
        cookies: impl Iterator<Item = (&'c str, u32)>,
    ) -> Option<Vec<CookieValue>> {
        let mut learned = self.learned();
        let noted = learned.cookies.note(from, cookies);
        learned.forget(noted.gone);
        noted.values
    }

    /// Notes the cookies of a request that its answer sets to another value.
    pub fn renewed<'c>(&self, names: impl Iterator<Item = &'c str>) {
        let mut learned = self.learned();
        let gone = names.fold(0, |gone, name| gone | learned.cookies.is_renewed(name));
        learned.forget(gone);
    }

    /// The names of the cookies that came.
    #[must_use]
    pub fn cookie_names(&self) -> Vec<String> {
        self.learned().cookies.all().iter().map(|cookie| cookie.name.clone()).collect()
    }

    /// The cookies whose value most answers change, so that it does not tell visitors apart.
    #[must_use]
    pub fn renewed_cookies(&self) -> Vec<String> {
        self.learned().cookies.renewed().map(str::to_owned).collect()
    }

    /// Notes the cookies that the app sets, with the seconds for which each lives.
    pub fn set_cookies<'c>(&self, cookies: impl Iterator<Item = (&'c str, u64)>) {
        let mut learned = self.learned();
        cookies.for_each(|(name, seconds)| learned.cookies.is_set(name, seconds));
    }

    /// The page as the cache would hold it, with its variant's key.
    #[must_use]
    pub fn find<'h>(
        &self,
        primary: &PageKey,
        sent: impl FnOnce() -> &'h HeaderMap,
    ) -> Option<(PageKey, Arc<Entry>)> {
        let learned = self.learned();
        let entries = learned.pages.get(primary)?.simulated.entries();
        if let [(key, entry)] = entries
            && entry.vary.is_empty()
        {
            return Some((*key, Arc::clone(entry)));
        }
        let sent = sent();
        let is_asked = |(key, entry): &&(PageKey, Arc<Entry>)| match entry.vary.as_slice() {
            [] => true,
            fields => variant_key(primary, fields, sent) == *key,
        };
        entries.iter().rev().find(is_asked).cloned()
    }

    /// Counts a request for a page. Returns what is wanted of its answer.
    pub fn asked(
        &self,
        request: &PageRequest<'_>,
        predicted: PredictedOutcome,
        name: impl FnOnce(&RandomState) -> PageName,
        renewed: impl Fn(&Entry) -> Entry,
    ) -> AnswerNeeds {
        let mut learned = self.learned();
        let learned = &mut *learned;
        let is_followed = learned.follows(&request.key);
        let route = learned.routes.of(request.route);
        route.requests += 1;
        if let PredictedOutcome::Forward(reason) = predicted {
            route.refuse(reason, 1);
        }
        if !is_followed {
            if !matches!(predicted, PredictedOutcome::Forward(_)) {
                route.unfollowed += 1;
            }
            return AnswerNeeds::default();
        }
        let page = learned.pages.entry(request.key).or_insert_with(|| LearnedPage {
            name: name(&learned.key),
            route: Arc::clone(request.route),
            is_for_all: request.is_for_all,
            asked: (request.now, request.now),
            simulated: SimulatedPage::default(),
            compared: ComparedVariants::default(),
            requests: 0,
        });
        page.asked.1 = request.now.max(page.asked.1);
        page.requests += 1;
        match predicted {
            PredictedOutcome::Hit => route.hits += 1,
            PredictedOutcome::StaleHit { is_seen } => {
                route.hits += 1;
                if !is_seen {
                    page.simulated.renew(&renewed);
                }
            }
            PredictedOutcome::Fetch { is_seen } => {
                match page.simulated.fetch(request.now, is_seen, &renewed) {
                    FetchStep::Begun => route.fetches += 1,
                    FetchStep::Waits => {}
                    FetchStep::Refused(reason) => route.refuse(reason, 1),
                }
            }
            PredictedOutcome::Forward(_) => {}
        }
        let wanted = AnswerNeeds {
            verdict: matches!(
                predicted,
                PredictedOutcome::Fetch { is_seen: true }
                    | PredictedOutcome::StaleHit { is_seen: true }
            ),
            comparison: request
                .causes
                .is_some_and(|causes| page.compared.wants(request.visitor, causes)),
        };
        learned.make_room();
        wanted
    }

    /// What a fetch of the page would have become, as its answer shows.
    pub fn judged(&self, primary: &PageKey, verdict: Result<(PageKey, Arc<Entry>), Reason>) {
        let mut learned = self.learned();
        let learned = &mut *learned;
        let Some(page) = learned.pages.get_mut(primary) else { return };
        let settled = match verdict {
            Ok((key, entry)) => page.simulated.store(key, entry),
            Err(reason) => page.simulated.refuse(reason),
        };
        learned.routes.of(&page.route).settle(settled);
    }

    /// The origin has failed, which says nothing of the page. `is_rescued`: a stale page would have been served instead.
    pub fn failed(&self, primary: &PageKey, reason: Reason, is_rescued: bool) {
        let mut learned = self.learned();
        let learned = &mut *learned;
        let Some(page) = learned.pages.get_mut(primary) else { return };
        let settled = page.simulated.fail(reason, is_rescued);
        learned.routes.of(&page.route).settle(settled);
    }

    /// As [`Self::judged`], for a page that is shared once two users were given the same `pieces`.
    pub fn proved(
        &self,
        primary: &PageKey,
        visitor: u64,
        verdict: Result<(PageKey, Arc<Entry>), Reason>,
        pieces: Option<&AnswerPieces>,
    ) {
        let is_proved = || {
            let mut learned = self.learned();
            let page = learned.pages.get_mut(primary);
            page.zip(pieces)
                .is_some_and(|(page, pieces)| page.simulated.prove(visitor, pieces.digest()))
        };
        let verdict = match verdict {
            Ok(_) if !is_proved() => Err(Reason::AwaitingSecondUser),
            verdict => verdict,
        };
        self.judged(primary, verdict);
    }

    /// The answer does not show what a fetch would have got.
    pub fn unseen(&self, primary: &PageKey, renewed: impl Fn(&Entry) -> Entry) {
        let mut learned = self.learned();
        let learned = &mut *learned;
        let Some(page) = learned.pages.get_mut(primary) else { return };
        let settled = page.simulated.unseen(renewed);
        learned.routes.of(&page.route).settle(settled);
    }

    /// Compares an answer with the others of its page. `is_current`: whether no purge has outdated it.
    pub fn compare(
        &self,
        primary: &PageKey,
        compared: ComparedAnswer<'_>,
        is_current: impl Fn(&PurgeSnapshot) -> bool,
    ) {
        let mut learned = self.learned();
        let learned = &mut *learned;
        let is_known_alike =
            learned.cookies.renewed().count() == compared.answer.renewed_known as usize;
        let page = learned.pages.get_mut(primary).filter(|_| is_known_alike);
        let Some(page) = page else { return };
        let before = page.compared.size();
        let ComparedAnswer { answer, pieces, variant, marks } = compared;
        page.compared.add(variant, answer, pieces, marks, is_current);
        learned.size = learned.size + page.compared.size() - before;
        learned.make_room();
    }

    /// Counts what a hit would have saved.
    pub fn saved(&self, route: &Arc<str>, took: Duration, bytes: u64) {
        let mut learned = self.learned();
        let route = learned.routes.of(route);
        route.saved += took;
        route.saved_bytes += bytes;
    }

    /// Whether no answer has shown yet what a fetch of the page would get.
    #[must_use]
    pub fn wants_probe(&self, primary: &PageKey) -> bool {
        let learned = self.learned();
        let page = learned.pages.get(primary);
        learned.follows(primary) && page.is_none_or(|page| !page.simulated.is_judged())
    }

    /// Notes that the origin is asked for the page; whether it was not asked before.
    #[must_use]
    pub fn begin_probe(&self, primary: &PageKey, now: u64) -> bool {
        let mut learned = self.learned();
        let page = learned.pages.get_mut(primary);
        page.is_some_and(|page| page.simulated.begin_probe(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(learning: &Learning, url: u64) -> PageKey {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&url.to_be_bytes());
        let (key, route) = (PageKey(key), Arc::from("default"));
        let request =
            PageRequest { key, route: &route, is_for_all: false, visitor: 1, causes: None, now: 1 };
        let predicted = PredictedOutcome::Fetch { is_seen: true };
        learning.asked(&request, predicted, |_| PageName::default(), Entry::clone);
        key
    }

    #[test]
    fn urls_that_do_not_exist_push_no_page_out() {
        let learning = Learning::default();
        for _ in 0..2 {
            (0..1_000).for_each(|url| {
                ask(&learning, url);
            });
        }
        for url in 1_000..100_000 {
            let key = ask(&learning, url);
            learning.judged(&key, Err(Reason::Status));
        }
        let learned = learning.learned();
        assert!(learned.pages.len() <= PAGES_MAX);
        assert!((learned.followed_percent() - 100.0).abs() < 0.1);
        assert_eq!(learned.pages.values().filter(|page| page.requests == 2).count(), 1_000);
    }

    #[test]
    fn of_many_pages_a_part_is_followed() {
        let learning = Learning::default();
        (0..20_000).for_each(|url| {
            ask(&learning, url);
        });
        let learned = learning.learned();
        assert!(learned.pages.len() <= PAGES_MAX);
        assert!(learned.followed_percent() <= 50.1);
    }
}
