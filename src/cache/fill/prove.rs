//! Proves that a response to one user of a segment is the page of the segment (`cache::segment_proof`).

use std::sync::Arc;

use ::http::HeaderName;
use bytes::Bytes;

use super::fetched::Fetch;
use super::filler::Filler;
use super::lead::Lead;
use crate::cache::entry::Entry;
use crate::cache::flight::{Flight, Verdict};
use crate::cache::rules::key::variant_key;
use crate::cache::segment_proof::{Proof, Seen};
use crate::clock::unix_now;
use crate::ident::PageKey;
use crate::telemetry::reason::Reason;

impl Filler {
    /// The reason why the page with this head cannot be shared yet, as far as that is known before its body.
    pub(super) fn waits_for_twin(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        head: &Entry,
    ) -> Option<Reason> {
        let person = fetch.person.as_ref().filter(|_| fetch.needs_twin())?;
        let (key, now) = (page(fetch, flight, &head.vary), unix_now() as u64);
        let (twins, purged) = (&self.pages.twins, &self.pages.purged);
        let may_prove = twins.may_prove(&key, person.witness, purged, now);
        (!may_prove).then_some(Reason::Twin)
    }

    /// Whether the page may be shared: other users were given the same. If not, this response is remembered.
    pub(super) fn prove(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        head: &Entry,
        body: &Bytes,
    ) -> Proof {
        if !fetch.needs_twin() {
            return Proof::Given;
        }
        // Without a user in the request, a response proves nothing.
        let Some(person) = &fetch.person else { return Proof::Waits };
        let seen = Seen::of(head, body, self.decoded_max());
        let (key, now) = (page(fetch, flight, &head.vary), unix_now() as u64);
        let of = (&head.marks, &*self.pages.purged);
        let proof = self.pages.twins.note(key, (person.witness, seen), of, now);
        match proof {
            Proof::Given => {}
            Proof::Waits => self.sheet.refused(Reason::Twin),
            // Requests do not wait for a page that differs for each user.
            Proof::Personal | Proof::StillPersonal => {
                self.mark(fetch, Reason::Twin, proof == Proof::StillPersonal);
            }
        }
        proof
    }

    /// Records that the response, `seen`, contains its user's personal data. Unless other users were given
    /// the same, this counts as evidence that the page, which varies by `vary`, is not the segment's.
    pub(super) async fn speak_against(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        seen: Seen,
        vary: &[HeaderName],
    ) {
        let Some(person) = fetch.person.as_ref().filter(|_| fetch.needs_twin()) else { return };
        let marks = Arc::new(fetch.marks.clone());
        let (key, now) = (page(fetch, flight, vary), unix_now() as u64);
        let of = (&marks, &*self.pages.purged);
        let proof = self.pages.twins.note(key, (person.witness, seen), of, now);
        if matches!(proof, Proof::Personal | Proof::StillPersonal) {
            self.mark(fetch, Reason::Twin, proof == Proof::StillPersonal);
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
        waiting: Option<Lead>,
    ) {
        flight.decide(Verdict::Refused(Reason::Twin));
        if let Some(lead) = waiting {
            lead.alone(head, Some(body.len() as u64), Some(Reason::Twin));
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
