//! Updates a stored page from a 304 (RFC 9111 §4.3.4).

use std::sync::Arc;

use ::http::header::{CONTENT_TYPE, IF_MODIFIED_SINCE, IF_NONE_MATCH};
use ::http::{HeaderMap, HeaderValue, StatusCode};
use anteroom_fault::fault;
use anteroom_http::conditional::{Validators, fits, update, validators};
use anteroom_http::ident::PageKey;
use anteroom_http::tags::{strip_tags, tags};
use anteroom_store::PageStore;
use anteroom_telemetry::metrics::AskedAgain;
use anteroom_telemetry::reason::Reason;
use tokio::sync::oneshot;

use super::fetched::{Fetch, shown};
use super::filler::Filler;
use super::lead::{LeaderAnswer, send_answer};
use super::refuse::reason_of;
use crate::entry::Entry;
use crate::flight::{Flight, FlightVerdict};
use crate::hit_count::HitCount;
use crate::page_fields::PageFields;
use crate::rules::leak_guard;
use crate::rules::leak_guard::LeakChecks;
use crate::rules::leak_kind::{LeakKind, PersonalForms};
use crate::rules::verdict::{LostCookies, ResponseView, Storing};

impl Filler {
    /// Handles a 304: the stored page is still valid and gets the new fields (RFC 9111 §4.3.4). If it may no
    /// longer be shared, or the 304 applies to another page, it is removed. Returns whether it may be shared.
    pub(super) async fn refresh(
        &self,
        fetch: &Fetch,
        flight: &Arc<Flight>,
        stored: &Arc<Entry>,
        said: &HeaderMap,
        sender: oneshot::Sender<LeaderAnswer>,
    ) -> bool {
        let before = stored.fields.map();
        let updated = || if fault!("validated") { before.clone() } else { update(&before, said) };
        let judged = fits(&before, said).then(updated).map(|headers| {
            let answer = ResponseView {
                status: StatusCode::from_u16(stored.status).unwrap_or(StatusCode::OK),
                headers: &headers,
                length: Some(stored.body.len() as u64),
                unframed: false,
                age: fetch.age(said),
                now: fetch.received_at as u64,
            };
            self.may_store(fetch, &flight.sent, &answer).map(|storing| (headers.clone(), storing))
        });
        let (headers, storing) = match judged {
            Some(Ok(judged)) => judged,
            Some(Err(Reason::Reflected)) => return self.unchanged(flight, stored, sender),
            Some(Err(reason)) => return self.outdated(fetch, flight, reason, sender).await,
            None => return self.outdated(fetch, flight, Reason::Stale, sender).await,
        };
        match self.inspect_changed(fetch, stored, &flight.sent, &headers, &storing) {
            Ok(()) => {}
            Err(LeakKind::Reflected) => return self.unchanged(flight, stored, sender),
            Err(leak) => return self.outdated(fetch, flight, reason_of(leak), sender).await,
        }
        let is_fresh = storing.is_fresh;
        // The tags of the 304 replace those of the page, if it has any.
        let new_tags = tags(said).ok().filter(|new_tags| !new_tags.is_empty());
        let snapshot = match new_tags {
            Some(new_tags) => self.pages.purged.tagged(&fetch.purge_snapshot, &new_tags),
            None => fetch.purge_snapshot.clone().with(&stored.purge_snapshot.slots),
        };
        let mut headers = headers;
        strip_tags(&mut headers);
        let refreshed = Entry {
            status: stored.status,
            reason: stored.reason.clone(),
            fields: PageFields::of(&shown(headers)),
            body: stored.body.clone(),
            stored_at: fetch.received_at as u64,
            initial_age: fetch.age(said),
            lifetime: storing.lifetime,
            source: storing.source,
            stale: storing.stale,
            static_proof: storing.static_proof && stored.static_proof,
            has_own_etag: false,
            vary: storing.vary,
            purge_snapshot: Arc::new(snapshot),
            recipe: fetch.recipe.clone(),
            hits: HitCount::default(),
        };
        let to_store = self.keep(fetch, flight, refreshed.clone());
        let refreshed = Arc::new(refreshed);
        if is_fresh {
            flight.answer(&refreshed);
        } else {
            flight.decide(FlightVerdict::Refused(Reason::Stale));
            flight.end_whole();
        }
        // The visitor does not wait for the store.
        send_answer(sender, LeaderAnswer::Validated(refreshed));
        self.put(&to_store, |_| flight.is_invalidated()).await;
        true
    }

    /// Inspects the stored page again if its type or charset changes, because the leak guard has read it as
    /// another type. The same applies to a page that now loses a cookie.
    fn inspect_changed(
        &self,
        fetch: &Fetch,
        stored: &Entry,
        sent: &HeaderMap,
        headers: &HeaderMap,
        storing: &Storing,
    ) -> Result<(), LeakKind> {
        let before = stored.fields.get(&CONTENT_TYPE);
        let is_as_before = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes) == before;
        let forms = match storing.lost_cookies {
            LostCookies::All => PersonalForms::Posted,
            LostCookies::Nothing | LostCookies::Named => PersonalForms::None,
        };
        if !storing.guarded || is_as_before && forms == PersonalForms::None {
            return Ok(());
        }
        let personal_data = fetch.personal_data_with(headers, sent, &storing.vary);
        let checks =
            LeakChecks { forms, personal_data: &personal_data, max_decoded: self.decoded_max() };
        leak_guard::inspect(headers, std::slice::from_ref(&stored.body), &checks)
    }

    /// Answers with the stored page, which is valid, and stays as it is: the fields of the 304 are for one request.
    fn unchanged(
        &self,
        flight: &Flight,
        stored: &Arc<Entry>,
        sender: oneshot::Sender<LeaderAnswer>,
    ) -> bool {
        self.thread_metrics.refused(Reason::Reflected);
        flight.decide(FlightVerdict::Refused(Reason::Reflected));
        flight.end_whole();
        send_answer(sender, LeaderAnswer::Validated(Arc::clone(stored)));
        false
    }

    /// Removes the stored page, which must not be used any more.
    async fn outdated(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        reason: Reason,
        sender: oneshot::Sender<LeaderAnswer>,
    ) -> bool {
        self.thread_metrics.refused(reason);
        // Before the waiting requests are released, because they could still find it.
        let gone = self.pages.invalidate(&fetch.primary, fetch.received_at as u64);
        flight.decide(FlightVerdict::Refused(reason));
        self.delete(&gone).await;
        send_answer(sender, LeaderAnswer::Again(reason, AskedAgain::NotModified));
        false
    }

    /// Removes a stored page that is not the origin's answer any more (RFC 9111 §4.3.3).
    pub(super) async fn forget(&self, fetch: &Fetch) {
        let gone = self.pages.invalidate(&fetch.primary, fetch.received_at as u64);
        self.delete(&gone).await;
    }

    async fn delete(&self, gone: &[PageKey]) {
        if let Err(error) = self.store.delete_pages(gone).await {
            tracing::debug!(%error, "an outdated page stays in the store for its time");
        }
    }
}

/// Makes the request conditional: the origin may answer that `stored` is still valid (RFC 9111 §4.3.1).
pub(super) fn add_conditions(stored: &HeaderMap, request: &mut HeaderMap) {
    let Validators { if_none_match, if_modified_since } = validators(stored);
    for (name, value) in [(IF_NONE_MATCH, if_none_match), (IF_MODIFIED_SINCE, if_modified_since)] {
        if let Some(value) = value {
            request.insert(name, value);
        }
    }
}
