//! Handles a response that may be shared: when each request gets it, and that it is kept once it is whole.

use std::sync::Arc;

use ::http::header::SET_COOKIE;
use bytes::Bytes;

use super::fetched::Fetch;
use super::filler::Filler;
use super::lead::{Lead, Led, say};
use super::order::Loss;
use super::refuse::{is_leak, reason_of};
use crate::cache::entry::Entry;
use crate::cache::flight::{Flight, Verdict};
use crate::cache::rules::fragments;
use crate::cache::rules::key::ShareClass;
use crate::cache::rules::leak::Forms;
use crate::cache::rules::leak_guard;
use crate::cache::rules::leak_guard::Watch;
use crate::cache::rules::verdict::{Lost, Storing};
use crate::cache::segment_proof::{Proof, Seen};
use crate::origin::{OriginError, OriginResponse};
use crate::telemetry::metrics::Count;
use crate::telemetry::reason::Reason;

impl Filler {
    /// Shares the response, unless the leak guard finds personal data in its body.
    pub(super) async fn share(
        &self,
        fetch: Fetch,
        flight: &Arc<Flight>,
        came: OriginResponse,
        storing: Storing,
        mut lead: Lead,
    ) -> bool {
        let length = came.length;
        let guarded = storing.guarded;
        // Other requests get nothing of it before it is whole and inspected.
        let whole_first = guarded || fetch.needs_twin();
        let is_fresh = storing.is_fresh;
        let lost = storing.lost;
        let (head, body) = came.response.into_parts();
        if fetch.class.is_personal() {
            // A response to the visitor's own session goes to this visitor unchanged.
            lead.cookies = head.headers.get_all(SET_COOKIE).iter().cloned().collect();
        }
        let keeps_cookies = !lead.cookies.is_empty();
        let traces = fetch.traces_with(&head.headers);
        let head = Arc::new(fetch.entry(head, storing, &self.pages.purged));
        if !is_fresh {
            flight.turn_away(Reason::Stale);
        } else if !whole_first && !fetch.withhold {
            flight.decide(Verdict::Shared(Arc::clone(&head), length));
        }
        // If the response is right for its visitor whatever the leak guard finds, the visitor gets it now.
        // The exceptions: a stale page may be served if this response breaks off, or the visitor needs the
        // cookie that the page has lost.
        let mut waiting = Some(lead);
        let is_his = fetch.loss != Loss::Visitor && (lost == Lost::Nothing || keeps_cookies);
        if !(fetch.withhold || whole_first && !is_his)
            && let Some(lead) = waiting.take()
        {
            match whole_first {
                true => lead.alone(&head, length, self.waits_for_twin(&fetch, flight, &head)),
                false => lead.shared(&head, length, true),
            }
        }
        let read = match (whole_first, waiting.is_some()) {
            (true, withheld) => self.read_guarded(&fetch, flight, body, withheld).await,
            (false, false) => self.read(flight, body).await,
            (false, true) => {
                let (head, is_fresh) = (&head, is_fresh);
                self.read_withheld(flight, body, |may_be_kept| {
                    if is_fresh {
                        flight.decide(Verdict::Shared(Arc::clone(head), length));
                    }
                    if let Some(lead) = waiting.take() {
                        lead.shared(head, length, may_be_kept);
                    }
                })
                .await
            }
        };
        let forms = forms_of(&fetch, lost);
        let watch = Watch { forms, traces: &traces, max_decoded: self.decoded_max() };
        match read.and_then(|body| inspect(&fetch, &head, body, guarded.then_some(&watch))) {
            Ok(Some(body)) => self.land_if_proved(&fetch, flight, &head, body, waiting).await,
            Ok(None) => {
                flight.end_whole();
                return false;
            }
            Err(Stop::Refused(reason)) => {
                self.keep_from_all(&fetch, flight, (reason, &head), waiting).await;
                return false;
            }
            Err(Stop::InHoles(entry, reason)) => {
                self.land_emptied(&fetch, flight, (*entry, lost), (reason, waiting)).await;
            }
            Err(Stop::Failed(error)) => {
                tracing::info!(%error, path = fetch.target.path(), "a page broke off at the origin");
                if let Some(lead) = waiting {
                    say(lead.tell, Led::Failed(error));
                }
            }
            Err(Stop::Abandoned) => return false,
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
        waiting: Option<Lead>,
    ) {
        match self.prove(fetch, flight, head, &body) {
            Proof::Given => self.land(fetch, flight, head, body, waiting).await,
            Proof::Waits => self.keep_from_others(flight, head, &body, waiting),
            Proof::Personal | Proof::StillPersonal => {
                self.keep_from_others(flight, head, &body, waiting);
                // It was taken for the segment's page, and may be one user's.
                self.forget(fetch).await;
            }
        }
    }

    /// The page is not kept, and each waiting request asks the origin on its own.
    async fn keep_from_all(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        (reason, head): (Reason, &Entry),
        waiting: Option<Lead>,
    ) {
        let own = (is_leak(reason) && fetch.needs_twin()).then(|| match flight.body() {
            Some(body) => Seen::of(head, &body, self.decoded_max()).with_own(),
            None => Seen::of_own_fields(head.status, &head.headers, head.stored_at),
        });
        // The app may know the session of the next request.
        let is_ones = fetch.class == ShareClass::Segment && reason == Reason::PasswordField;
        self.mark(fetch, reason, is_ones);
        flight.decide(Verdict::Refused(reason));
        flight.end_whole();
        if let Some(lead) = waiting {
            say(lead.tell, Led::Again(reason));
        }
        let is_one_visitors = is_leak(reason) || fetch.class == ShareClass::Segment;
        if fetch.replaces && !is_one_visitors {
            self.forget(fetch).await;
        }
        if let Some(own) = own {
            self.speak_against(fetch, flight, own, &head.vary).await;
        }
    }

    /// Keeps the page without the contents of its fragments: personal data was found only there. The flight
    /// holds the original response, of which the waiting requests have seen nothing, so they and later
    /// requests get the kept page. The first request gets it too, unless it needs the cookie that the page
    /// has lost.
    async fn land_emptied(
        &self,
        fetch: &Fetch,
        flight: &Arc<Flight>,
        (mut entry, lost): (Entry, Lost),
        (reason, waiting): (Reason, Option<Lead>),
    ) {
        entry.tag();
        let page = Arc::new(entry.clone());
        let to_store = self.keep(fetch, flight, entry);
        flight.decide_landed(Verdict::Landed(Arc::clone(&page)));
        flight.end_whole();
        if let Some(lead) = waiting {
            let led = match lost {
                Lost::Nothing => Led::Landed(page),
                Lost::Named | Lost::All => Led::Again(reason),
            };
            say(lead.tell, led);
        }
        if !to_store.is_empty() {
            self.sheet.count(Count::Stored);
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
        waiting: Option<Lead>,
    ) {
        let length = Some(body.len() as u64);
        let mut entry = Entry { body, ..Entry::clone(head) };
        entry.tag();
        let to_store = self.keep(fetch, flight, entry);
        flight.decide_landed(Verdict::Shared(Arc::clone(head), length));
        if let Some(lead) = waiting {
            lead.shared(head, length, true);
        }
        flight.end_whole();
        if !to_store.is_empty() {
            self.sheet.count(Count::Stored);
        }
        self.put(&to_store, |_| flight.is_invalidated()).await;
    }
}

/// Which forms keep a page from being shared. An app that has forgotten a session answers as to an anonymous
/// visitor.
fn forms_of(fetch: &Fetch, lost: Lost) -> Forms {
    match lost {
        Lost::All => Forms::Posted,
        Lost::Nothing | Lost::Named if fetch.class == ShareClass::Segment => Forms::LogIns,
        Lost::Nothing | Lost::Named => Forms::None,
    }
}

/// Runs the leak guard on a whole body.
fn inspect(
    fetch: &Fetch,
    head: &Entry,
    body: Option<Bytes>,
    watch: Option<&Watch<'_>>,
) -> Result<Option<Bytes>, Stop> {
    let (Some(watch), Some(body)) = (watch, &body) else { return Ok(body) };
    let Err(finding) = leak_guard::inspect(&head.headers, std::slice::from_ref(body), watch) else {
        return Ok(Some(body.clone()));
    };
    let reason = reason_of(finding);
    let fragments = &fetch.route.fragments;
    // Visitors' own data must not choose what other visitors are shown, and other visitors must not find an
    // empty place where a fragment is filled for sessions only. A page without its fragments' contents also
    // has no second user's copy to be compared with.
    let is_kept = fragments.iter().any(|fragment| fragment.only_sessions) || fetch.needs_twin();
    if fragments.is_empty() || is_leak(reason) || is_kept {
        return Err(Stop::Refused(reason));
    }
    // The content of a fragment is never shown to visitors who get the kept page, so it need not be kept.
    let page = Entry { body: body.clone(), ..Entry::clone(head) };
    let selectors = fragments.iter().map(|fragment| &fragment.selector);
    let emptied = fragments::emptied(&page, selectors, watch.max_decoded).filter(|emptied| {
        let body = std::slice::from_ref(&emptied.body);
        leak_guard::inspect(&emptied.headers, body, watch).is_ok()
    });
    Err(emptied.map_or(Stop::Refused(reason), |page| Stop::InHoles(Box::new(page), reason)))
}

/// Why a body was not kept and shared.
pub(super) enum Stop {
    Refused(Reason),
    /// The leak guard found personal data in the page's fragments only; here is the page without their
    /// contents.
    InHoles(Box<Entry>, Reason),
    Failed(OriginError),
    /// The body is not kept, and has no readers left.
    Abandoned,
}
