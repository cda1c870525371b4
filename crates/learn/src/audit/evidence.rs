//! What speaks for it that pages must not be shared any more: what was seen of a page, and of all pages of its pattern.
//!
//! A page is stopped by what visitors of two networks see in it. Its pattern is stopped with several such pages, unless a
//! page of it that many asked for is the same for all: then the pages differ, and not the pattern.

use std::sync::Arc;

use super::cause::{AuditCause, AuditedRequest, causes};
use super::difference::AuditResult;
use super::page::{AuditedPage, PatternVerdict};

/// The most networks that are told apart.
pub(super) const NETWORKS_MAX: usize = 8;
/// From how many networks visitors must see something else than a stored page before it is not shared any more.
const NETWORKS_MIN: usize = 2;
/// Of so many answers that differed, noise or not, more than one must do so for a visitor: where what differs changes by
/// itself, chance makes some look so.
const DIFFERED_PART: u64 = 10;
/// Of so many comparisons, more than one must show it, unless it was seen from many networks: else a few clients could stop
/// pages by what the app refuses them alone.
const SEEN_PART: u64 = 100;
/// The same where the app refuses visitors what others get. Robots are refused everywhere: only where many visitors are, of
/// as many networks as are told apart, the page is not shared.
const REFUSED_PART: u64 = 25;
/// How long evidence counts, in seconds.
const LASTS: f64 = 7.0 * 86_400.0;
/// How many pages of a pattern must differ before all of them are stopped.
const PAGES_MIN: usize = 3;
/// How often a page that is the same for all must have been compared to speak against that.
const SAME_MIN: u64 = 20;
/// From how many networks.
const SAME_NETWORKS_MIN: usize = 3;
/// The most pages of a pattern that are told apart.
const PAGES_MAX: usize = 32;
/// The most requests of each kind that are kept to find the cause.
const REQUESTS_MAX: usize = 16;
/// The same of a pattern in which nothing differs.
const REQUESTS_BEFORE_MAX: usize = 4;

/// What a comparison says of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComparisonResult {
    Same,
    Noise,
    /// A visitor sees something else; `is_refused`: the app refuses the page.
    Differs {
        is_refused: bool,
    },
}

impl ComparisonResult {
    /// What is evidence for or against the page; `None`: this is neither.
    pub(super) fn of(result: &AuditResult) -> Option<Self> {
        match result {
            AuditResult::Same => Some(Self::Same),
            AuditResult::Noise => Some(Self::Noise),
            AuditResult::Differs(_) => Some(Self::Differs { is_refused: false }),
            AuditResult::Refused => Some(Self::Differs { is_refused: true }),
            AuditResult::Edited | AuditResult::Leak | AuditResult::Unknown => None,
        }
    }
}

/// The comparisons of a page, or of all pages of a pattern, by their results.
#[derive(Clone, Debug, Default)]
struct ComparisonCounts {
    same: u64,
    noise: u64,
    differed: u64,
    /// Of those that differed, answers by which the app refused the page.
    refused: u64,
    /// Networks that saw something else than the stored page, and some that did not.
    networks: Vec<u32>,
    same_networks: Vec<u32>,
}

/// A page, by the hash of its path.
#[derive(Clone, Debug, Default)]
struct PageEvidence {
    digest: String,
    counts: ComparisonCounts,
}

/// The evidence of a pattern: all of it was seen under the same rules.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    rules: Option<Arc<str>>,
    page_changes: u64,
    /// Since when it counts, in Unix time.
    since: f64,
    all: ComparisonCounts,
    pages: Vec<PageEvidence>,
    /// Requests whose answers differed, and such whose answers did not.
    differing: Vec<AuditedRequest>,
    agreeing: Vec<AuditedRequest>,
}

impl ComparisonCounts {
    fn add(&mut self, result: ComparisonResult, network: u32) {
        match result {
            ComparisonResult::Same => {
                self.same += 1;
                let is_new = !self.same_networks.contains(&network);
                if is_new && self.same_networks.len() < SAME_NETWORKS_MIN {
                    self.same_networks.push(network);
                }
            }
            ComparisonResult::Noise => self.noise += 1,
            ComparisonResult::Differs { is_refused } => {
                self.differed += 1;
                self.refused += u64::from(is_refused);
                if !self.networks.contains(&network) && self.networks.len() < NETWORKS_MAX {
                    self.networks.push(network);
                }
            }
        }
    }

    /// Whether it is enough to stop what was seen.
    fn is_enough(&self) -> bool {
        let Self { same, noise, differed, refused, networks, .. } = self;
        let (networks, all) = (networks.len(), differed + same);
        let is_chance = differed * DIFFERED_PART <= differed + noise;
        let is_seen = match 2 * refused > *differed {
            true => networks == NETWORKS_MAX && differed * REFUSED_PART > all,
            false => {
                let is_seldom = differed * SEEN_PART <= all;
                networks >= NETWORKS_MIN && (!is_seldom || networks == NETWORKS_MAX)
            }
        };
        is_seen && !is_chance
    }
}

impl Evidence {
    /// Under other rules, after an order to share pages again, and after a while, all must be seen anew; after a stop, new
    /// witnesses must come. Whether the page is of now: a comparison that began before says nothing any more.
    pub(super) fn begin(&mut self, page: &AuditedPage, now: f64) -> bool {
        if page.page_changes < self.page_changes {
            return false;
        }
        let is_shared_again = page.page_changes >> 32 != self.page_changes >> 32;
        let is_of_now = self.rules.as_ref() == Some(&page.rules) && !is_shared_again;
        if !is_of_now || now - self.since > LASTS {
            *self = Self { rules: Some(Arc::clone(&page.rules)), since: now, ..Self::default() };
        }
        if self.page_changes != page.page_changes {
            self.page_changes = page.page_changes;
            self.all.networks.clear();
            self.pages.iter_mut().for_each(|page| page.counts.networks.clear());
        }
        true
    }

    /// Whether requests are kept because something differs.
    pub(super) fn is_kept(&self) -> bool {
        !self.differing.is_empty()
    }

    /// From how many networks visitors see something else.
    pub(super) fn networks(&self) -> usize {
        self.all.networks.len()
    }

    /// What explains the difference, as far as it is known.
    pub(super) fn causes(&self) -> Vec<AuditCause> {
        causes(&self.differing, &self.agreeing)
    }

    /// Adds what a comparison says, and says what follows. `has_room`: whether requests of another pattern may be kept.
    pub(super) fn add(
        &mut self,
        page: &AuditedPage,
        result: ComparisonResult,
        has_room: bool,
    ) -> PatternVerdict {
        let known = self.networks();
        self.all.add(result, page.network);
        let own = self.page(&page.digest);
        own.counts.add(result, page.network);
        let (is_enough, networks) = (own.counts.is_enough(), own.counts.networks.len());
        match result {
            ComparisonResult::Noise => return PatternVerdict::Nothing,
            ComparisonResult::Same => {
                let most = if self.is_kept() { REQUESTS_MAX } else { REQUESTS_BEFORE_MAX };
                keep(&mut self.agreeing, &page.request, most);
                return PatternVerdict::Nothing;
            }
            ComparisonResult::Differs { .. } => {}
        }
        if self.is_kept() || has_room {
            keep(&mut self.differing, &page.request, REQUESTS_MAX);
        }
        match (self.speaks_for_all(), is_enough, self.networks() > known) {
            (true, ..) => PatternVerdict::PatternDiffers(self.networks()),
            (false, true, _) => PatternVerdict::PageDiffers(networks),
            (false, false, true) => PatternVerdict::Doubtful(self.networks()),
            (false, false, false) => PatternVerdict::Nothing,
        }
    }

    /// In how many pages visitors see something else.
    pub(super) fn differing_pages(&self) -> usize {
        self.pages.iter().filter(|page| page.counts.differed > 0).count()
    }

    /// Whether all pages of the pattern are to be stopped.
    fn speaks_for_all(&self) -> bool {
        let differing = self.differing_pages();
        let is_same = |page: &PageEvidence| {
            let PageEvidence { counts, .. } = page;
            counts.differed == 0
                && counts.same >= SAME_MIN
                && counts.same_networks.len() >= SAME_NETWORKS_MIN
        };
        differing >= PAGES_MIN && self.all.is_enough() && !self.pages.iter().any(is_same)
    }

    /// What was seen of a page. Where there is no place left, one goes that was seldom compared and does not differ.
    fn page(&mut self, digest: &str) -> &mut PageEvidence {
        let place = self.pages.iter().position(|page| page.digest == digest);
        let place = place.unwrap_or_else(|| {
            if self.pages.len() >= PAGES_MAX {
                let rank = |page: &PageEvidence| (page.counts.differed > 0, page.counts.same);
                let least = (0..self.pages.len()).min_by_key(|place| rank(&self.pages[*place]));
                self.pages.remove(least.unwrap_or_default());
            }
            self.pages.push(PageEvidence {
                digest: digest.to_owned(),
                counts: ComparisonCounts::default(),
            });
            self.pages.len() - 1
        });
        &mut self.pages[place]
    }
}

/// The latest requests are kept.
fn keep(requests: &mut Vec<AuditedRequest>, request: &AuditedRequest, most: usize) {
    if requests.len() >= most {
        requests.remove(0);
    }
    requests.push(request.clone());
}
