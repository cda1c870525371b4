//! Proves that a response to one user of a segment is the page of the segment (`cache::segment_proof`).

use std::sync::Arc;

use ::http::HeaderName;
use anteroom_http::clock::unix_now;
use anteroom_http::ident::PageKey;
use anteroom_telemetry::reason::Reason;
use bytes::Bytes;

use super::fetched::Fetch;
use super::filler::Filler;
use super::lead::Leader;
use super::refuse::MarkScope;
use crate::entry::Entry;
use crate::flight::{Flight, FlightVerdict};
use crate::rules::key::variant_key;
use crate::segment_proof::{Proof, ResponseFingerprint};

impl Filler {
    /// The reason why the page with this head cannot be shared yet, as far as that is known before its body.
    pub(super) fn awaits_second_user(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        head: &Entry,
    ) -> Option<Reason> {
        let person = fetch.person.as_ref().filter(|_| fetch.needs_second_user())?;
        let (key, now) = (page(fetch, flight, &head.vary), unix_now() as u64);
        let (segment_proofs, purged) = (&self.pages.segment_proofs, &self.pages.purged);
        let may_prove = segment_proofs.may_prove(&key, person.witness, purged, now);
        (!may_prove).then_some(Reason::AwaitingSecondUser)
    }

    /// Whether the page may be shared: other users were given the same. If not, this response is remembered.
    pub(super) fn prove(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        head: &Entry,
        body: &Bytes,
    ) -> Proof {
        if !fetch.needs_second_user() {
            return Proof::Given;
        }
        // Without a user in the request, a response proves nothing.
        let Some(person) = &fetch.person else { return Proof::Waits };
        let seen = ResponseFingerprint::of(head, body, self.decoded_max());
        let (key, now) = (page(fetch, flight, &head.vary), unix_now() as u64);
        let (proofs, purged) = (&self.pages.segment_proofs, &self.pages.purged);
        let proof = proofs.note(key, person.witness, seen, &head.purge_snapshot, purged, now);
        match proof {
            Proof::Given => {}
            Proof::Waits => self.thread_metrics.refused(Reason::AwaitingSecondUser),
            // Requests do not wait for a page that differs for each user.
            Proof::Personal | Proof::StillPersonal => {
                self.mark(fetch, Reason::AwaitingSecondUser, scope_of(proof));
            }
        }
        proof
    }

    /// Records that the response, `seen`, contains its user's personal data. Unless other users were given
    /// the same, this counts as evidence that the page, which varies by `vary`, is not the segment's.
    pub(super) async fn record_personal_evidence(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        seen: ResponseFingerprint,
        vary: &[HeaderName],
    ) {
        let Some(person) = fetch.person.as_ref().filter(|_| fetch.needs_second_user()) else {
            return;
        };
        let snapshot = Arc::new(fetch.purge_snapshot.clone());
        let (key, now) = (page(fetch, flight, vary), unix_now() as u64);
        let (proofs, purged) = (&self.pages.segment_proofs, &self.pages.purged);
        let proof = proofs.note(key, person.witness, seen, &snapshot, purged, now);
        if matches!(proof, Proof::Personal | Proof::StillPersonal) {
            self.mark(fetch, Reason::AwaitingSecondUser, scope_of(proof));
            self.forget(fetch).await;
        }
    }

    /// Gives the response to its visitor alone. A page that was held before stays, with its staleness. The
    /// exception is a proof of `Personal`: the page then differs for each user.
    pub(super) fn keep_from_others(
        &self,
        flight: &Flight,
        head: &Arc<Entry>,
        body: &Bytes,
        waiting: Option<Leader>,
    ) {
        flight.decide(FlightVerdict::Refused(Reason::AwaitingSecondUser));
        if let Some(lead) = waiting {
            lead.alone(head, Some(body.len() as u64), Some(Reason::AwaitingSecondUser));
        }
        flight.end_whole();
    }
}

/// The key of the page whose responses are compared: the variant's, if there are variants.
fn page(fetch: &Fetch, flight: &Flight, vary: &[HeaderName]) -> PageKey {
    match vary {
        [] => fetch.primary,
        fields => variant_key(&fetch.primary, fields, &flight.sent),
    }
}

/// How long a page is remembered that is not the segment's, or not yet.
fn scope_of(proof: Proof) -> MarkScope {
    match proof {
        Proof::StillPersonal => MarkScope::Brief,
        Proof::Given | Proof::Waits | Proof::Personal => MarkScope::OneVariant,
    }
}
