//! Updates a held page from a 304 (RFC 9111 §4.3.4).

use std::sync::Arc;

use ::http::header::{CONTENT_TYPE, IF_MODIFIED_SINCE, IF_NONE_MATCH};
use ::http::{HeaderMap, StatusCode};
use tokio::sync::oneshot;

use super::fetched::{Fetch, shown};
use super::filler::Filler;
use super::lead::{Led, say};
use super::refuse::reason_of;
use crate::cache::entry::{Entry, compact};
use crate::cache::flight::{Flight, Verdict};
use crate::cache::rules::leak::Forms;
use crate::cache::rules::leak_guard;
use crate::cache::rules::leak_guard::Watch;
use crate::cache::rules::verdict::{Answered, Lost};
use crate::http::conditional::{Validators, fits, update, validators};
use crate::http::tags::{strip_tags, tags};
use crate::ident::PageKey;
use crate::store::PageStore;
use crate::telemetry::reason::Reason;

impl Filler {
    /// Handles a 304: the held page is still valid and gets the new fields (RFC 9111 §4.3.4). If it may no
    /// longer be shared, or the 304 applies to another page, it is removed. Returns whether it may be shared.
    pub(super) async fn refresh(
        &self,
        fetch: &Fetch,
        flight: &Arc<Flight>,
        held: &Entry,
        said: &HeaderMap,
        tell: oneshot::Sender<Led>,
    ) -> bool {
        let judged =
            fits(&held.headers, said).then(|| update(&held.headers, said)).map(|headers| {
                let answer = Answered {
                    status: StatusCode::from_u16(held.status).unwrap_or(StatusCode::OK),
                    headers: &headers,
                    length: Some(held.body.len() as u64),
                    unframed: false,
                    age: fetch.age(said),
                    now: fetch.came_at as u64,
                };
                self.may_store(fetch, flight, &answer).map(|storing| (headers.clone(), storing))
            });
        let (headers, storing) = match judged {
            Some(Ok(judged)) => judged,
            Some(Err(reason)) => return self.outdated(fetch, flight, reason, tell).await,
            None => return self.outdated(fetch, flight, Reason::Stale, tell).await,
        };
        // A page whose type or charset changes was not inspected by the leak guard as what it is now. The
        // same goes for a page that now loses a cookie.
        let is_as_before = headers.get(CONTENT_TYPE) == held.headers.get(CONTENT_TYPE);
        let forms = if storing.lost == Lost::All { Forms::Posted } else { Forms::None };
        let traces = fetch.traces_with(&headers);
        let watch = Watch { forms, traces: &traces, max_decoded: self.decoded_max() };
        if storing.guarded
            && (!is_as_before || forms != Forms::None)
            && let Err(finding) =
                leak_guard::inspect(&headers, std::slice::from_ref(&held.body), &watch)
        {
            return self.outdated(fetch, flight, reason_of(finding), tell).await;
        }
        let is_fresh = storing.is_fresh;
        // The tags of the 304 replace those of the page, if it has any.
        let told = tags(said).ok().filter(|told| !told.is_empty());
        let marks = match told {
            Some(told) => self.pages.purged.tagged(&fetch.marks, &told),
            None => fetch.marks.clone().with(&held.marks.slots),
        };
        let mut headers = headers;
        strip_tags(&mut headers);
        let refreshed = Entry {
            status: held.status,
            reason: held.reason.clone(),
            headers: compact(&shown(headers)),
            body: held.body.clone(),
            stored_at: fetch.came_at as u64,
            initial_age: fetch.age(said),
            lifetime: storing.lifetime,
            source: storing.source,
            stale: storing.stale,
            static_proof: storing.static_proof && held.static_proof,
            own_tag: false,
            vary: storing.vary,
            marks: Arc::new(marks),
        };
        let to_store = self.keep(fetch, flight, refreshed.clone());
        let refreshed = Arc::new(refreshed);
        if is_fresh {
            flight.answer(&refreshed);
        } else {
            flight.decide(Verdict::Refused(Reason::Stale));
            flight.end_whole();
        }
        // The visitor does not wait for the store.
        say(tell, Led::Validated(refreshed));
        self.put(&to_store, |_| flight.is_invalidated()).await;
        true
    }

    /// Removes the held page, which must not be used any more.
    async fn outdated(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        reason: Reason,
        tell: oneshot::Sender<Led>,
    ) -> bool {
        self.sheet.refused(reason);
        // Before the waiting requests are released, because they could still find it.
        let gone = self.pages.invalidate(&fetch.primary, fetch.came_at as u64);
        flight.decide(Verdict::Refused(reason));
        self.delete(&gone).await;
        say(tell, Led::Again(reason));
        false
    }

    /// Removes a held page that is not the origin's answer any more (RFC 9111 §4.3.3).
    pub(super) async fn forget(&self, fetch: &Fetch) {
        let gone = self.pages.invalidate(&fetch.primary, fetch.came_at as u64);
        self.delete(&gone).await;
    }

    async fn delete(&self, gone: &[PageKey]) {
        if let Err(error) = self.store.delete_pages(gone).await {
            tracing::debug!(%error, "an outdated page stays in the store for its time");
        }
    }
}

/// Makes the request conditional: the origin may answer that `held` is still valid (RFC 9111 §4.3.1).
pub(super) fn ask_whether(held: &HeaderMap, request: &mut HeaderMap) {
    let Validators { if_none_match, if_modified_since } = validators(held);
    for (name, value) in [(IF_NONE_MATCH, if_none_match), (IF_MODIFIED_SINCE, if_modified_since)] {
        if let Some(value) = value {
            request.insert(name, value);
        }
    }
}
