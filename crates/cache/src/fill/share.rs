//! Handles a response that may be shared: when each request gets it, and that it is kept once it is whole.

use std::sync::Arc;

use anteroom_fault::fault;
use anteroom_origin::{OriginError, OriginResponse};
use anteroom_telemetry::metrics::Count;
use anteroom_telemetry::reason::Reason;
use bytes::Bytes;

use super::fetched::Fetch;
use super::filler::Filler;
use super::lead::{Leader, LeaderAnswer, send_answer};
use super::refuse::{MarkScope, is_leak, reason_of};
use crate::entry::Entry;
use crate::flight::{Flight, FlightVerdict};
use crate::rules::fragments;
use crate::rules::key::ShareClass;
use crate::rules::leak_guard::{self, LeakChecks, read_fields};
use crate::rules::leak_kind::PersonalForms;
use crate::rules::verdict::{LostCookies, Storing};
use crate::segment_proof::{Proof, ResponseFingerprint};

/// A page without the contents of its fragments: only they held personal data.
struct EmptiedPage {
    entry: Entry,
    /// The cookies that the response has lost.
    lost: LostCookies,
    /// Why the original is not shared.
    reason: Reason,
}

impl Filler {
    /// Shares the response, unless the leak guard finds personal data in its body.
    pub(super) async fn share(
        &self,
        fetch: Fetch,
        flight: &Arc<Flight>,
        received: OriginResponse,
        storing: Storing,
        lead: Leader,
    ) -> bool {
        let length = received.length;
        let guarded = storing.guarded;
        // Other requests get nothing of it before it is whole and inspected.
        let whole_first = guarded || fetch.needs_second_user();
        let is_fresh = storing.is_fresh;
        let lost = storing.lost_cookies;
        let (head, body) = received.response.into_parts();
        let personal_data = fetch.personal_data_with(&head.headers, &flight.sent, &storing.vary);
        let head = Arc::new(fetch.entry(head, storing, &self.pages.purged));
        if !is_fresh {
            flight.turn_away(Reason::Stale);
        } else if (!whole_first || fault!("guard")) && !fetch.withhold {
            flight.decide(FlightVerdict::Shared(Arc::clone(&head), length));
        }
        // If the response is right for its visitor whatever the leak guard finds, the visitor gets it now.
        // The exception: a stale page may be served if this response breaks off.
        let is_for_leader = lead.asks_again.is_none();
        let mut waiting = Some(lead);
        if !(fetch.withhold || whole_first && !is_for_leader)
            && let Some(lead) = waiting.take()
        {
            match whole_first {
                true => lead.alone(&head, length, self.awaits_second_user(&fetch, flight, &head)),
                false => lead.shared(&head, length, true),
            }
        }
        let read = match (whole_first, waiting.is_some()) {
            (true, _) => {
                let release = |reason| release(&mut waiting, &head, length, reason);
                self.read_guarded(&fetch, flight, body, release).await
            }
            (false, false) => self.read(flight, body).await,
            (false, true) => {
                self.read_withheld(flight, body, |may_be_kept| {
                    if is_fresh {
                        flight.decide(FlightVerdict::Shared(Arc::clone(&head), length));
                    }
                    if let Some(lead) = waiting.take() {
                        lead.shared(&head, length, may_be_kept);
                    }
                })
                .await
            }
        };
        let forms = forms_of(&fetch, lost);
        let watch =
            LeakChecks { forms, personal_data: &personal_data, max_decoded: self.decoded_max() };
        match read.and_then(|body| inspect(&fetch, &head, body, guarded.then_some(&watch))) {
            Ok(Some(body)) => self.land_if_proved(&fetch, flight, &head, body, waiting).await,
            Ok(None) => {
                flight.end_whole();
                return false;
            }
            Err(NotShared::Refused(reason)) => {
                self.keep_from_all(&fetch, flight, reason, &head, waiting).await;
                return false;
            }
            Err(NotShared::OnlyInFragments(entry, reason)) => {
                let emptied = EmptiedPage { entry: *entry, lost, reason };
                self.land_emptied(&fetch, flight, &head, emptied, waiting).await;
            }
            Err(NotShared::Failed(error)) => {
                tracing::info!(%error, path = fetch.target.path(), "a page broke off at the origin");
                if let Some(lead) = waiting {
                    send_answer(lead.sender, LeaderAnswer::Failed(error));
                }
            }
            Err(NotShared::Abandoned) => return false,
        }
        true
    }

    /// Shares a page that passed the leak guard, unless its proof as the segment's page is still missing.
    async fn land_if_proved(
        &self,
        fetch: &Fetch,
        flight: &Arc<Flight>,
        head: &Arc<Entry>,
        body: Bytes,
        waiting: Option<Leader>,
    ) {
        match self.prove(fetch, flight, head, &body) {
            Proof::Given => self.land(fetch, flight, head, body, waiting).await,
            Proof::Waits => self.keep_from_others(flight, head, &body, waiting),
            Proof::Personal | Proof::StillPersonal => {
                self.keep_from_others(flight, head, &body, waiting);
                // The stored page was taken for the segment's page, but may belong to one user.
                self.forget(fetch).await;
            }
        }
    }

    /// The page is not kept, and each waiting request asks the origin on its own.
    async fn keep_from_all(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        reason: Reason,
        head: &Arc<Entry>,
        waiting: Option<Leader>,
    ) {
        let own = (is_leak(reason) && fetch.needs_second_user()).then(|| match flight.body() {
            Some(body) => ResponseFingerprint::of(head, &body, self.decoded_max()).with_own(),
            None => {
                ResponseFingerprint::of_own_fields(head.status, &head.fields.map(), head.stored_at)
            }
        });
        // The app may know the session of the next request.
        let is_for_one_user = fetch.class == ShareClass::Segment && reason == Reason::PasswordField;
        let scope = if is_for_one_user { MarkScope::Brief } else { MarkScope::OneVariant };
        self.mark(fetch, reason, scope);
        flight.decide(FlightVerdict::Refused(reason));
        if let Some(lead) = waiting {
            lead.refused(head, flight.whole_length(), reason);
        }
        flight.end_whole();
        let is_one_visitors =
            is_leak(reason) || reason == Reason::Reflected || fetch.class == ShareClass::Segment;
        if fetch.replaces && !is_one_visitors {
            self.forget(fetch).await;
        }
        if let Some(own) = own {
            self.record_personal_evidence(fetch, flight, own, &head.vary).await;
        }
    }

    /// Keeps the page without the contents of its fragments: personal data was found only there. The flight
    /// holds the original response, and the waiting requests have not received any part of it. They and later
    /// requests therefore get the kept page. The first request gets it too, unless it needs the cookie that
    /// the page has lost.
    async fn land_emptied(
        &self,
        fetch: &Fetch,
        flight: &Arc<Flight>,
        head: &Arc<Entry>,
        emptied: EmptiedPage,
        waiting: Option<Leader>,
    ) {
        let EmptiedPage { mut entry, lost, reason } = emptied;
        entry.tag();
        let page = Arc::new(entry.clone());
        let to_store = self.keep(fetch, flight, entry);
        flight.decide_pending(FlightVerdict::Landed(Arc::clone(&page)));
        if let Some(lead) = waiting {
            match lost {
                LostCookies::Nothing => send_answer(lead.sender, LeaderAnswer::Landed(page)),
                LostCookies::Named | LostCookies::All => {
                    lead.refused(head, flight.whole_length(), reason);
                }
            }
        }
        flight.end_whole();
        if !to_store.is_empty() {
            self.thread_metrics.count(Count::Stored);
        }
        self.put(&to_store, |_| flight.is_invalidated()).await;
    }

    /// Finishes a whole body that passed the leak guard: keeps it first, so that requests after the flight
    /// find it; then answers; then stores it.
    async fn land(
        &self,
        fetch: &Fetch,
        flight: &Arc<Flight>,
        head: &Arc<Entry>,
        body: Bytes,
        waiting: Option<Leader>,
    ) {
        let length = Some(body.len() as u64);
        let mut entry = Entry { body, ..Entry::clone(head) };
        entry.tag();
        let to_store = self.keep(fetch, flight, entry);
        flight.decide_pending(FlightVerdict::Shared(Arc::clone(head), length));
        if let Some(lead) = waiting {
            lead.shared(head, length, true);
        }
        flight.end_whole();
        if !to_store.is_empty() {
            self.thread_metrics.count(Count::Stored);
        }
        self.put(&to_store, |_| flight.is_invalidated()).await;
    }
}

/// Gives a page that is not shared to the request that began the fetch, where it still waits and the page is its
/// visitor's. Returns whether no request waits any more.
fn release(
    waiting: &mut Option<Leader>,
    head: &Arc<Entry>,
    length: Option<u64>,
    reason: Reason,
) -> bool {
    if let Some(lead) = waiting.take_if(|lead| lead.asks_again.is_none()) {
        lead.refused(head, length, reason);
    }
    waiting.is_none()
}

/// Which forms keep a page from being shared. An app that has forgotten a session answers as to an anonymous
/// visitor.
pub(super) fn forms_of(fetch: &Fetch, lost: LostCookies) -> PersonalForms {
    match lost {
        LostCookies::All => PersonalForms::Posted,
        LostCookies::Nothing | LostCookies::Named if fetch.class == ShareClass::Segment => {
            PersonalForms::LogIns
        }
        LostCookies::Nothing | LostCookies::Named => PersonalForms::None,
    }
}

/// Runs the leak guard on a whole body.
fn inspect(
    fetch: &Fetch,
    head: &Entry,
    body: Option<Bytes>,
    watch: Option<&LeakChecks<'_>>,
) -> Result<Option<Bytes>, NotShared> {
    let (Some(watch), Some(body)) = (watch, &body) else { return Ok(body) };
    let Err(leak) = leak_guard::inspect(&read_fields(head), std::slice::from_ref(body), watch)
    else {
        return Ok(Some(body.clone()));
    };
    let reason = reason_of(leak);
    // What is filled from a row is not declared to be personal: data that is found there counts.
    let fragments = || fetch.route.fragments.iter().filter(|fragment| fragment.is_personal());
    // Three cases rule out the emptied page. Data of the visitor was found: it must not decide what other
    // visitors see. A fragment is filled for sessions only: its place would be empty for other visitors. The
    // page needs a second user's copy: an emptied page cannot be compared with one.
    let is_kept = fragments().any(|fragment| fragment.only_sessions) || fetch.needs_second_user();
    let is_one_visitors = is_leak(reason) || reason == Reason::Reflected;
    if fragments().next().is_none() || is_one_visitors || is_kept {
        return Err(NotShared::Refused(reason));
    }
    // Visitors who get the kept page never see the content of a fragment, so it need not be kept.
    let page = Entry { body: body.clone(), ..Entry::clone(head) };
    let selectors = fragments().map(|fragment| &fragment.selector);
    let emptied = fragments::emptied(&page, selectors, watch.max_decoded).filter(|emptied| {
        let body = std::slice::from_ref(&emptied.body);
        leak_guard::inspect(&read_fields(emptied), body, watch).is_ok()
    });
    Err(emptied.map_or(NotShared::Refused(reason), |page| {
        NotShared::OnlyInFragments(Box::new(page), reason)
    }))
}

/// Why a body was not kept and shared.
pub(super) enum NotShared {
    Refused(Reason),
    /// The leak guard found personal data in the page's fragments only; here is the page without their
    /// contents.
    OnlyInFragments(Box<Entry>, Reason),
    Failed(OriginError),
    /// The body is not kept, and has no readers left.
    Abandoned,
}
