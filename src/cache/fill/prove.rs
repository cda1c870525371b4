//! Whether what one user of a segment was answered is the segment's page (`cache::segment_proof`).

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
    /// Why the page of which this is the head is nobody else's yet, as far as that is known before its body.
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

    /// Whether others may have the page: other users were given the very same. Else this one is remembered.
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
        // Of whom the origin was not told, no answer proves anything.
        let Some(person) = &fetch.person else { return Proof::Waits };
        let seen = Seen::of(head, body, self.decoded_max());
        let (key, now) = (page(fetch, flight, &head.vary), unix_now() as u64);
        let of = (&head.marks, &*self.pages.purged);
        let proof = self.pages.twins.note(key, (person.witness, seen), of, now);
        match proof {
            Proof::Given => {}
            Proof::Waits => self.sheet.refused(Reason::Twin),
            // Nobody waits for what is another page for each.
            Proof::Personal | Proof::StillPersonal => {
                self.mark(fetch, Reason::Twin, proof == Proof::StillPersonal);
            }
        }
        proof
    }

    /// What was answered, `seen`, holds something of its user's own. Unless others were given the very same, that
    /// says of the page, which varies by `vary`, that it is not the segment's.
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

    /// What has come is its visitor's alone. What was there before stays, as stale as it is; unless it is
    /// `Personal` by now what each is given.
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

/// The page of which the answers are compared: the variant, where it has some.
fn page(fetch: &Fetch, flight: &Flight, vary: &[HeaderName]) -> PageKey {
    match vary {
        [] => fetch.primary,
        fields => variant_key(&fetch.primary, fields, &flight.sent),
    }
}
