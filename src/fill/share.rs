//! A response that may be shared: who gets it when, and that it is kept when it is whole.

use std::sync::Arc;

use bytes::Bytes;

use super::fetched::Fetch;
use super::refuse::reason_of;
use super::{Filler, Lead, Led, Loss, say};
use crate::metrics::Count;
use crate::origin::{OriginError, OriginResponse};
use crate::page::entry::Entry;
use crate::page::flight::{Flight, Verdict};
use crate::page::guard;
use crate::page::key::ShareClass;
use crate::page::verdict::Storing;
use crate::reason::Reason;

impl Filler {
    /// The response may be shared, unless the guard finds something in its body.
    pub(super) async fn share(
        &self,
        fetch: Fetch,
        flight: &Arc<Flight>,
        came: OriginResponse,
        storing: Storing,
        lead: Lead,
    ) -> bool {
        let length = came.length;
        let guarded = storing.guarded;
        // Nobody else gets any of it before it is whole and looked at.
        let whole_first = guarded || fetch.needs_twin();
        let is_fresh = storing.is_fresh;
        let (head, body) = came.response.into_parts();
        let head = Arc::new(fetch.entry(head, storing, &self.pages.purged));
        if !is_fresh {
            flight.turn_away(Reason::Stale);
        } else if !whole_first && !fetch.withhold {
            flight.decide(Verdict::Shared(Arc::clone(&head), length));
        }
        // Where it is the right response for its visitor whatever the guard says, he has it now;
        // unless he may have a stale page should this one break off.
        let mut waiting = Some(lead);
        if !(fetch.withhold || whole_first && fetch.loss == Loss::Visitor)
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
        match read.and_then(|body| self.inspect(&head, body, guarded)) {
            Ok(Some(body)) if !self.is_proved(&fetch, flight, &head, &body) => {
                self.keep_from_others(flight, &head, &body, waiting);
            }
            Ok(Some(body)) => self.land(&fetch, flight, &head, body, waiting).await,
            Ok(None) => {
                flight.end_whole();
                return false;
            }
            Err(Stop::Refused(reason)) => {
                self.mark(&fetch, reason, false);
                flight.decide(Verdict::Refused(reason));
                flight.end_whole();
                if let Some(lead) = waiting {
                    say(lead.tell, Led::Again(reason));
                }
                if fetch.replaces && fetch.class != ShareClass::Segment {
                    self.forget(&fetch).await;
                }
                return false;
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

    fn inspect(
        &self,
        head: &Entry,
        body: Option<Bytes>,
        guarded: bool,
    ) -> Result<Option<Bytes>, Stop> {
        let (true, Some(body)) = (guarded, &body) else { return Ok(body) };
        guard::inspect(&head.headers, std::slice::from_ref(body), self.decoded_max())
            .map_err(|finding| Stop::Refused(reason_of(finding)))?;
        Ok(Some(body.clone()))
    }

    /// The body is whole and passed the guard: kept first, so that whoever comes after the flight
    /// finds it; then told; then stored.
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

/// Why a body did not land.
pub(super) enum Stop {
    Refused(Reason),
    Failed(OriginError),
    /// It is not kept, and nobody reads it any more.
    Abandoned,
}
