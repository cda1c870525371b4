//! A fill: one fetch from the origin for the cache, carried out for a flight.
//!
//! The fetch belongs to the flight, and not to the request that began it. `cache::rules::verdict` decides how
//! the response may be used; this folder acts on the decision. `lease` determines which proxy of a fleet
//! fetches, `not_modified` handles a 304, `refuse` a response that cannot be shared, and `share` one that
//! can. For the latter, `read` reads the body, `prove_segment` compares it with what other users were given,
//! and `keep` keeps it. `trial` says what would become of a response, for learn mode.

mod fetched;
mod filler;
mod keep;
mod lead;
mod lease;
mod not_modified;
mod order;
mod prove_segment;
mod read;
mod refuse;
mod share;
mod trial;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::COOKIE;
use ::http::{HeaderMap, Request, StatusCode};
use anteroom_http::clock::unix_now;
use anteroom_http::field_set::FieldSet;
use anteroom_http::media::{self, MediaKind};
use anteroom_http::set_cookie;
use anteroom_http::tags::tags;
use anteroom_origin::{
    BackgroundSlot, ConnectionReuse, OriginError, OriginResponse, Requester, ReservedPlace,
    UploadBody,
};
use anteroom_policy::route::CompiledRoute;
use anteroom_store::PageStore;
use anteroom_telemetry::metrics::{CookieEvent, ThreadMetrics};
use anteroom_telemetry::reason::Reason;
use tokio::sync::oneshot;

use crate::flight::{EndGuard, Flight, FlightFailure, FlightVerdict};
use crate::rules::key::ShareClass;
use crate::rules::verdict::{RequestView, ResponseView, Sharing, Storing, may_store};
use crate::segment_proof::ResponseFingerprint;

use fetched::Fetch;
use lead::send_answer;
use lease::LeaseResult;
use not_modified::add_conditions;
use refuse::is_leak;

pub use filler::Filler;
pub use lead::{LeaderAnswer, SharedAnswer};
pub use order::{FillLoss, FillOrder, SessionOwner, changes_session};
pub use refuse::passes;
pub use trial::{TrialOrder, TrialPage};

/// How often a fetch that waits looks whether it is still waited for, once the request that began it has left.
const LOOKS_FOR_PARTICIPANTS: Duration = Duration::from_millis(250);

impl Filler {
    /// Begins the fetch in its own task. The request that began the flight gets its answer through the
    /// receiver.
    pub fn begin(
        self: &Rc<Self>,
        flight: Arc<Flight>,
        order: FillOrder,
    ) -> oneshot::Receiver<LeaderAnswer> {
        let (sender, receiver) = oneshot::channel();
        let this = Rc::clone(self);
        let end = EndGuard(flight);
        // PERF: boxed, because a task moves its future several times.
        let work = Box::pin(async move { this.fetch_unless_leased(&end.0, order, sender).await });
        tokio::task::spawn_local(work);
        receiver
    }

    /// Fetches the page, unless another proxy of the fleet does.
    async fn fetch_unless_leased(
        &self,
        flight: &Arc<Flight>,
        order: FillOrder,
        mut sender: oneshot::Sender<LeaderAnswer>,
    ) {
        let holder = fastrand::u64(..);
        // First the place and then the lease: what waits here keeps no other proxy from fetching the page.
        let mut place = match self.place(flight, &order, &mut sender).await {
            Ok(place) => place,
            Err(why) => return refuse_place(flight, why, sender),
        };
        let leased = self.lease(flight, &order, holder, &mut place).await;
        if place.is_none() && matches!(leased, LeaseResult::No | LeaseResult::Ours) {
            place = match self.place(flight, &order, &mut sender).await {
                Ok(place) => place,
                Err(why) => return refuse_place(flight, why, sender),
            };
        }
        match leased {
            LeaseResult::Landed(entry) => {
                flight.answer(&entry);
                send_answer(sender, LeaderAnswer::Elsewhere(entry));
            }
            LeaseResult::Unshareable => {
                let (memory, now) = (self.pages.memory(), unix_now() as u64);
                memory.mark_briefly(order.primary, Reason::Elsewhere, self.mark_time(now));
                flight.decide(FlightVerdict::Refused(Reason::Elsewhere));
                send_answer(sender, LeaderAnswer::NotAsked(Reason::Elsewhere));
            }
            // PERF: boxed, because the state of a fetch is large and would otherwise be moved.
            LeaseResult::No => drop(Box::pin(self.fetch(flight, order, place, sender)).await),
            LeaseResult::Ours => {
                let fetch = Box::pin(self.fetch(flight, order, place, sender));
                let is_shareable = self.leased(flight, holder, fetch).await;
                let ended = self.store.end_lease(flight.key(), holder, is_shareable).await;
                if let Err(error) = ended {
                    tracing::debug!(%error, "a lease lasts for its time");
                }
            }
        }
    }

    /// Waits for a place at the origin, as long as some request waits for the page.
    async fn place(
        &self,
        flight: &Flight,
        order: &FillOrder,
        sender: &mut oneshot::Sender<LeaderAnswer>,
    ) -> Result<Option<ReservedPlace>, NoPlace> {
        if order.route.maintenance {
            return Ok(None);
        }
        let session = order.person.as_ref().map(|person| person.session.as_str());
        let requester = Requester { session, priority: order.priority, origin_use: None };
        flight.priority.raise(order.priority);
        let upstream = &self.upstreams[order.route.origin_place];
        let reserving = upstream.reserve(requester, &flight.priority, true);
        // What is fetched for no request in particular is waited for by none.
        if order.background.is_some() || order.stored.is_some() {
            return reserving.await.map_err(NoPlace::Refused);
        }
        tokio::select! {
            biased;
            place = reserving => place.map_err(NoPlace::Refused),
            () = abandoned(flight, sender) => Err(NoPlace::Abandoned),
        }
    }

    /// Asks the route's origin. A failure counts against the place of a fetch without a visitor.
    async fn send(
        &self,
        route: &CompiledRoute,
        place: Option<ReservedPlace>,
        request: Request<UploadBody>,
        requester: Requester<'_>,
        background: Option<&mut BackgroundSlot>,
    ) -> Result<OriginResponse, OriginError> {
        if route.maintenance {
            return Err(OriginError::Maintenance);
        }
        let upstream = &self.upstreams[route.origin_place];
        let sent = upstream.send_at(place, request, ConnectionReuse::Pool(None), requester).await;
        let has_failed = match &sent {
            Ok(received) => is_server_error(received.response.status()),
            Err(_) => true,
        };
        if let Some(slot) = background.filter(|_| has_failed) {
            slot.fail();
        }
        sent
    }

    /// Fetches the page. Returns whether it may be shared.
    async fn fetch(
        &self,
        flight: &Arc<Flight>,
        order: FillOrder,
        place: Option<ReservedPlace>,
        sender: oneshot::Sender<LeaderAnswer>,
    ) -> bool {
        let reader = flight.leader_reader();
        let FillOrder {
            primary,
            class,
            mut request,
            route,
            loss,
            person,
            pattern,
            network,
            priority,
            origin_use,
            personal_data,
            stored,
            withhold,
            recipe,
            mut background,
        } = order;
        let (target, replaces) = (request.uri().clone(), stored.is_some());
        let (purge_snapshot, asked_at) = (flight.purge_snapshot.clone(), unix_now());
        // A 304 to one user's session does not describe what other users would get.
        let stored = stored.filter(|page| page.has_validator() && !class.is_personal());
        if let Some(page) = &stored {
            add_conditions(&page.fields.map(), request.headers_mut());
        }
        // A fetch without a session may go to any server of the origin.
        let session = person.as_ref().map(|person| person.session.as_str());
        let requester = Requester { session, priority, origin_use: Some(&origin_use.lend()) };
        let sent = self.send(&route, place, request, requester, background.as_mut()).await;
        let mut received = match sent {
            Ok(received) => received,
            Err(error) => return fail(flight, error, sender),
        };
        // A field that no client gets cannot keep the page from being shared.
        let cut = route.cut_fields(received.response.headers_mut());
        let fetch = Fetch {
            primary,
            target,
            route,
            class,
            loss,
            person,
            pattern,
            network,
            personal_data,
            // The response to a visitor's own session belongs to this visitor, even if it breaks off.
            withhold: withhold && !class.is_personal(),
            recipe,
            replaces,
            asked_at,
            received_at: unix_now(),
            purge_snapshot,
        };
        count_page(&self.thread_metrics, received.response.status(), received.response.headers());
        let status = received.response.status();
        if let Some(page) = stored.filter(|_| status == StatusCode::NOT_MODIFIED) {
            return self.refresh(&fetch, flight, &page, received.response.headers(), sender).await;
        }
        if withhold && is_server_error(status) {
            self.refuse(&fetch, flight, received, cut, Reason::ServerError, sender);
            return true;
        }
        match self.judge(&fetch, flight, &received) {
            Ok(storing) => {
                let leader = fetch.leader(&received.response, reader, sender);
                self.share(fetch, flight, received, storing, leader).await
            }
            Err(reason) => {
                self.return_to_visitor(&fetch, flight, received, cut, reason, sender).await;
                false
            }
        }
    }

    /// Returns a response that may not be shared to the visitor whose request it answers.
    async fn return_to_visitor(
        &self,
        fetch: &Fetch,
        flight: &Arc<Flight>,
        received: OriginResponse,
        cut: HeaderMap,
        reason: Reason,
        sender: oneshot::Sender<LeaderAnswer>,
    ) {
        // A response to one user of a segment may be for that user alone, and one that shows a field of its request
        // is for that request alone.
        let is_for_all_visitors = fetch.class != ShareClass::Segment && reason != Reason::Reflected;
        let outdates = fetch.replaces && is_for_all_visitors && !passes(received.response.status());
        let status = received.response.status().as_u16();
        let own = is_leak(reason).then(|| received.response.headers().clone());
        self.refuse(fetch, flight, received, cut, reason, sender);
        if outdates {
            self.forget(fetch).await;
        }
        if let Some(own) = own {
            let fields = fetch.shown(own);
            let seen =
                ResponseFingerprint::of_own_fields(status, &fields, fetch.received_at as u64);
            self.record_personal_evidence(fetch, flight, seen, &[]).await;
        }
    }

    fn judge(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        received: &OriginResponse,
    ) -> Result<Storing, Reason> {
        let headers = received.response.headers();
        let answer = ResponseView {
            status: received.response.status(),
            headers,
            length: received.length,
            unframed: received.unframed,
            age: fetch.age(headers),
            now: fetch.received_at as u64,
        };
        self.may_store(fetch, &flight.sent, &answer)
    }

    /// `sent`: the fields of the request.
    fn may_store(
        &self,
        fetch: &Fetch,
        sent: &HeaderMap,
        answer: &ResponseView<'_>,
    ) -> Result<Storing, Reason> {
        let asked = RequestView {
            method: &::http::Method::GET,
            path: fetch.target.path(),
            query: fetch.target.query().unwrap_or_default(),
            headers: sent,
            fields: FieldSet::of(sent),
            has_body: false,
            bound: false,
            who: Sharing::Anonymous,
        };
        let mut storing = may_store(&asked, fetch.class, answer, &fetch.route, &self.policy)?;
        if let Some(person) = &fetch.person {
            match fetch.class {
                // Every field that the fetch sent is part of the key.
                ShareClass::User => {
                    storing.vary.retain(|name| *name != COOKIE && *name != person.identity);
                }
                _ if storing.vary.contains(&person.identity) => return Err(Reason::Vary),
                _ => {}
            }
        }
        // A page that could not be purged by all its tags is not kept.
        tags(answer.headers).map_err(|_| Reason::Tags)?;
        let personal_data = fetch.personal_data_with(answer.headers, sent, &storing.vary);
        personal_data.search_fields(answer.headers).map_err(refuse::reason_of)?;
        storing.guarded |= fetch.is_searched(answer.headers, storing.lost_cookies, &personal_data);
        Ok(storing)
    }
}

/// Counts a page that the app has sent, and the cookies that it sets.
pub fn count_page(thread_metrics: &ThreadMetrics, status: StatusCode, headers: &HeaderMap) {
    if status == StatusCode::OK && media::kind(headers) == MediaKind::Html {
        thread_metrics.cookies(CookieEvent::Set, set_cookie::named(headers));
    }
}

/// Why a fetch gets no place at the origin.
enum NoPlace {
    Refused(OriginError),
    /// No request waits for the page any more.
    Abandoned,
}

fn refuse_place(flight: &Flight, why: NoPlace, sender: oneshot::Sender<LeaderAnswer>) {
    match why {
        NoPlace::Refused(error) => drop(fail(flight, error, sender)),
        // A request that joined just now asks for itself.
        NoPlace::Abandoned => flight.decide(FlightVerdict::Refused(Reason::Crowded)),
    }
}

/// Returns when no request waits for the page any more.
async fn abandoned(flight: &Flight, sender: &mut oneshot::Sender<LeaderAnswer>) {
    sender.closed().await;
    while flight.has_participants() {
        tokio::time::sleep(LOOKS_FOR_PARTICIPANTS).await;
    }
}

/// Ends a flight without a response. It may be tried again at once.
fn fail(flight: &Flight, error: OriginError, sender: oneshot::Sender<LeaderAnswer>) -> bool {
    flight.decide(FlightVerdict::Failed(failure(&error)));
    send_answer(sender, LeaderAnswer::Failed(error));
    true
}

fn failure(error: &OriginError) -> FlightFailure {
    if matches!(error, OriginError::Crowded) {
        FlightFailure::Crowded
    } else if error.unavailable() {
        FlightFailure::Unavailable
    } else if error.timed_out() {
        FlightFailure::TimedOut
    } else {
        FlightFailure::Unusable
    }
}

/// RFC 5861 §4: the statuses that count as an origin error.
#[must_use]
pub fn is_server_error(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}
