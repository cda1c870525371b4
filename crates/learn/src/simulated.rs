//! The cache as it would be: which pages it would hold, without their bodies.

use std::sync::Arc;

use anteroom_cache::entry::Entry;
use anteroom_http::ident::PageKey;
use anteroom_telemetry::reason::Reason;

/// The most variants of a page.
const VARIANTS_MAX: usize = 8;
/// How long a fetch whose answer is not seen counts as one, in seconds.
const UNSEEN_FOR: u64 = 300;

/// What would become of a page that is fetched.
#[derive(Clone, Debug, PartialEq)]
enum PageVerdict {
    Stored,
    Refused(Reason),
}

/// A fetch whose result is not known yet.
#[derive(Clone, Copy, Debug)]
struct PendingFetch {
    /// When it began, in Unix seconds.
    since: u64,
    /// How many requests would have waited for it, or found its page.
    waiting: u64,
}

/// A page of the simulated cache.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimulatedPage {
    /// The page by variant, without bodies.
    entries: Vec<(PageKey, Arc<Entry>)>,
    verdict: Option<PageVerdict>,
    /// Whether it was ever stored.
    was_stored: bool,
    pending: Option<PendingFetch>,
    /// The first user of a segment who was given the page, and a hash of it.
    first_copy: Option<(u64, u64)>,
    /// When the origin was last asked for it without a visitor, in Unix seconds.
    probed: Option<u64>,
}

/// What follows from a request that finds no fresh page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchStep {
    /// It would be a fetch.
    Begun,
    /// It would wait for a fetch, or find its page, if that can be shared. Counted when this is known.
    Waits,
    /// The page is fetched for this visitor alone, for this reason.
    Refused(Reason),
}

/// What a verdict settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VerdictEffect {
    /// So many requests would have been hits.
    Hits(u64),
    /// So many requests would have been forwarded for this reason; the one that fetched is the first of them.
    Refused(u64, Reason),
    /// So many requests would have been answered with a stale page; the one that fetched is the first of them.
    Rescued(u64),
}

impl SimulatedPage {
    /// The entries, for choosing a variant.
    pub(crate) fn entries(&self) -> &[(PageKey, Arc<Entry>)] {
        &self.entries
    }

    /// A request that finds no fresh page. `is_seen`: its own answer is the one that the fetch would get.
    /// `renewed`: makes an entry as if it were fetched now.
    pub(crate) fn fetch(
        &mut self,
        now: u64,
        is_seen: bool,
        renewed: impl Fn(&Entry) -> Entry,
    ) -> FetchStep {
        if !is_seen {
            match self.verdict {
                Some(PageVerdict::Refused(reason)) => return FetchStep::Refused(reason),
                Some(PageVerdict::Stored) if !self.entries.is_empty() => {
                    self.renew(renewed);
                    return FetchStep::Begun;
                }
                Some(PageVerdict::Stored) | None => {}
            }
        }
        match &mut self.pending {
            Some(pending) if now.saturating_sub(pending.since) < UNSEEN_FOR => {
                pending.waiting += 1;
                FetchStep::Waits
            }
            pending => {
                // What waited for a fetch without an answer is not settled any more.
                let waiting = pending.map_or(0, |pending| pending.waiting);
                *pending = Some(PendingFetch { since: now, waiting });
                FetchStep::Begun
            }
        }
    }

    /// All entries as if they were fetched now.
    pub(crate) fn renew(&mut self, renewed: impl Fn(&Entry) -> Entry) {
        for (_, entry) in &mut self.entries {
            *entry = Arc::new(renewed(entry));
        }
    }

    /// The answer was seen, and the page would be stored.
    pub(crate) fn store(&mut self, key: PageKey, entry: Arc<Entry>) -> VerdictEffect {
        self.entries.retain(|(known, _)| *known != key);
        if self.entries.len() == VARIANTS_MAX {
            self.entries.remove(0);
        }
        self.entries.push((key, entry));
        self.verdict = Some(PageVerdict::Stored);
        self.was_stored = true;
        VerdictEffect::Hits(self.pending.take().map_or(0, |pending| pending.waiting))
    }

    /// Whether a second user was given the same page.
    pub(crate) fn prove(&mut self, user: u64, page: u64) -> bool {
        match self.first_copy {
            Some((first, same)) if same == page => first != user,
            _ => {
                self.first_copy = Some((user, page));
                false
            }
        }
    }

    /// The answer was seen, and cannot be shared.
    pub(crate) fn refuse(&mut self, reason: Reason) -> VerdictEffect {
        self.entries.clear();
        self.verdict = Some(PageVerdict::Refused(reason));
        // Without a fetch under way, an earlier answer has settled it.
        let asked = self.pending.take().map_or(0, |pending| pending.waiting + 1);
        VerdictEffect::Refused(asked, reason)
    }

    /// The origin has failed: what is stored stays, and nothing is known of the page that was not known before.
    /// `is_rescued`: a stale page would have been served instead.
    pub(crate) fn fail(&mut self, reason: Reason, is_rescued: bool) -> VerdictEffect {
        let asked = self.pending.take().map_or(0, |pending| pending.waiting + 1);
        if is_rescued {
            VerdictEffect::Rescued(asked)
        } else {
            VerdictEffect::Refused(asked, reason)
        }
    }

    /// An answer came that does not show what the fetch would get, such as a 304.
    pub(crate) fn unseen(&mut self, renewed: impl Fn(&Entry) -> Entry) -> VerdictEffect {
        match self.verdict {
            Some(PageVerdict::Stored) if !self.entries.is_empty() => {
                self.renew(renewed);
                VerdictEffect::Hits(self.pending.take().map_or(0, |pending| pending.waiting))
            }
            _ => VerdictEffect::Hits(0),
        }
    }

    /// Whether the page would be stored, as far as is known.
    pub(crate) fn is_stored(&self) -> bool {
        self.verdict == Some(PageVerdict::Stored)
    }

    /// Whether the page cannot be shared, as far as is known.
    pub(crate) fn is_refused(&self) -> bool {
        !self.was_stored && matches!(self.verdict, Some(PageVerdict::Refused(_)))
    }

    /// Whether the page would be stored or would have been, or it is not known yet.
    pub(crate) fn may_be_stored(&self) -> bool {
        !self.is_refused()
    }

    /// Whether the origin may be asked for the page at `now`, in Unix seconds: nothing is known of it, and it was not
    /// asked a moment ago.
    pub(crate) fn begin_probe(&mut self, now: u64) -> bool {
        let was_asked = self.probed.is_some_and(|at| now.saturating_sub(at) < UNSEEN_FOR);
        let may = !self.is_judged() && !was_asked;
        if may {
            self.probed = Some(now);
        }
        may
    }

    /// Whether it is known what would become of the page.
    pub(crate) fn is_judged(&self) -> bool {
        self.verdict.is_some()
    }

    /// Requests whose result is not known.
    pub(crate) fn waiting(&self) -> u64 {
        self.pending.map_or(0, |pending| pending.waiting)
    }
}
