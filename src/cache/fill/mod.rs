//! A fill: one fetch from the origin for the cache, carried out for a flight.
//!
//! The fetch belongs to the flight, and not to the request that began it. `cache::rules::verdict` decides how
//! the response may be used; this folder acts on the decision. `lease` determines which proxy of a fleet
//! fetches, `refresh` handles a 304, `refuse` a response that cannot be shared, and `share` one that can. For
//! the latter, `read` reads the body, `prove` compares it with what other users were given, and `keep` keeps
//! it.

mod fetched;
mod filler;
mod keep;
mod lead;
mod lease;
mod order;
mod prove;
mod read;
mod refresh;
mod refuse;
mod share;

use std::rc::Rc;
use std::sync::Arc;

use ::http::header::COOKIE;
use ::http::{HeaderMap, StatusCode};
use tokio::sync::oneshot;

use crate::cache::flight::{EndGuard, Failure, Flight, Verdict};
use crate::cache::rules::key::ShareClass;
use crate::cache::rules::verdict::{Answered, Asked, Storing, Who, may_store};
use crate::cache::segment_proof::Seen;
use crate::clock::unix_now;
use crate::http::media::{self, Kind};
use crate::http::set_cookie;
use crate::http::tags::tags;
use crate::origin::{Keep, OriginError, OriginResponse};
use crate::store::PageStore;
use crate::telemetry::metrics::{Crumb, Sheet};
use crate::telemetry::reason::Reason;

use fetched::Fetch;
use filler::ERROR_TTL;
use lead::{Lead, say};
use lease::Leased;
use refresh::ask_whether;
use refuse::{is_leak, passes};

pub use filler::Filler;
pub use lead::Led;
pub use order::{Loss, Order, Person};

impl Filler {
    /// Begins the fetch in its own task. The request that began the flight gets its answer through the
    /// receiver.
    pub fn begin(self: &Rc<Self>, flight: Arc<Flight>, order: Order) -> oneshot::Receiver<Led> {
        let (tell, told) = oneshot::channel();
        let this = Rc::clone(self);
        let end = EndGuard(flight);
        tokio::task::spawn_local(async move { this.fly(&end.0, order, tell).await });
        told
    }

    /// Fetches the page, unless another proxy of the fleet does.
    async fn fly(&self, flight: &Arc<Flight>, order: Order, tell: oneshot::Sender<Led>) {
        let who = fastrand::u64(..);
        match self.lease(flight, &order, who).await {
            Leased::Landed(entry) => {
                flight.answer(&entry);
                say(tell, Led::Elsewhere(entry));
            }
            Leased::Unshareable => {
                let (memory, now) = (self.pages.memory(), unix_now() as u64);
                memory.mark_uncacheable_for(order.primary, Reason::Elsewhere, now, ERROR_TTL);
                flight.decide(Verdict::Refused(Reason::Elsewhere));
                say(tell, Led::Again(Reason::Elsewhere));
            }
            // PERF: boxed, for the state of a fetch is large, and is moved otherwise.
            Leased::No => drop(Box::pin(self.fetch(flight, order, tell)).await),
            Leased::Ours => {
                let fetch = Box::pin(self.fetch(flight, order, tell));
                let is_shareable = self.leased(flight, who, fetch).await;
                let ended = self.store.end_lease(flight.key(), who, is_shareable).await;
                if let Err(error) = ended {
                    tracing::debug!(%error, "a lease lasts for its time");
                }
            }
        }
    }

    /// Fetches the page. Returns whether it may be shared.
    async fn fetch(&self, flight: &Arc<Flight>, order: Order, tell: oneshot::Sender<Led>) -> bool {
        let seat = flight.lead_seat();
        let Order { primary, class, mut request, route, loss, person, traces, held, withhold } =
            order;
        let target = request.uri().clone();
        let marks = flight.marks.clone();
        let replaces = held.is_some();
        // A 304 to one user's session does not describe what other users would get.
        let held = held.filter(|held| held.has_validator() && !class.is_personal());
        if let Some(held) = &held {
            ask_whether(&held.headers, request.headers_mut());
        }
        let asked_at = unix_now();
        let upstream = &self.upstreams[route.origin];
        // A fetch without a session may go to any server of the origin.
        let session = person.as_ref().map(|person| person.session.as_str());
        let came = match upstream.send(request, Keep::Pool(None), session).await {
            Ok(came) => came,
            Err(error) => {
                flight.decide(Verdict::Failed(failure(&error)));
                say(tell, Led::Failed(error));
                return true;
            }
        };
        let fetch = Fetch {
            primary,
            target,
            route,
            class,
            loss,
            person,
            traces,
            // The response to a visitor's own session belongs to this visitor, even if it breaks off.
            withhold: withhold && !class.is_personal(),
            replaces,
            asked_at,
            came_at: unix_now(),
            marks,
        };
        count_page(&self.sheet, came.response.status(), came.response.headers());
        if let Some(held) = held.filter(|_| came.response.status() == StatusCode::NOT_MODIFIED) {
            return self.refresh(&fetch, flight, &held, came.response.headers(), tell).await;
        }
        if withhold && is_server_error(came.response.status()) {
            self.refuse(&fetch, flight, came, Reason::ServerError, tell);
            return true;
        }
        match self.judge(&fetch, flight, &came) {
            Ok(storing) => {
                self.share(fetch, flight, came, storing, Lead { seat, tell, cookies: Vec::new() })
                    .await
            }
            Err(reason) => {
                self.hand_to_its_own(&fetch, flight, came, reason, tell).await;
                false
            }
        }
    }

    /// Does what follows where the response may not be shared.
    async fn hand_to_its_own(
        &self,
        fetch: &Fetch,
        flight: &Arc<Flight>,
        came: OriginResponse,
        reason: Reason,
        tell: oneshot::Sender<Led>,
    ) {
        // A response to one user of a segment may be for that user alone.
        let is_said_to_all = fetch.class != ShareClass::Segment;
        let outdates = fetch.replaces && is_said_to_all && !passes(came.response.status());
        let status = came.response.status().as_u16();
        let own = is_leak(reason).then(|| came.response.headers().clone());
        self.refuse(fetch, flight, came, reason, tell);
        if outdates {
            self.forget(fetch).await;
        }
        if let Some(own) = own {
            let fields = fetch.shown(own);
            let seen = Seen::of_own_fields(status, &fields, fetch.came_at as u64);
            self.speak_against(fetch, flight, seen, &[]).await;
        }
    }

    fn judge(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        came: &OriginResponse,
    ) -> Result<Storing, Reason> {
        let headers = came.response.headers();
        let answer = Answered {
            status: came.response.status(),
            headers,
            length: came.length,
            unframed: came.unframed,
            age: fetch.age(headers),
            now: fetch.came_at as u64,
        };
        self.may_store(fetch, flight, &answer)
    }

    fn may_store(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        answer: &Answered<'_>,
    ) -> Result<Storing, Reason> {
        let asked = Asked {
            method: &::http::Method::GET,
            path: fetch.target.path(),
            query: fetch.target.query().unwrap_or_default(),
            headers: &flight.sent,
            has_body: false,
            bound: false,
            who: Who::Anonymous,
            ranks: true,
        };
        let mut storing = may_store(&asked, fetch.class, answer, &fetch.route, &self.policy)?;
        if let Some(person) = &fetch.person {
            match fetch.class {
                // All that the fetch sent is part of the key.
                ShareClass::User => {
                    storing.vary.retain(|name| *name != COOKIE && *name != person.identity);
                }
                _ if storing.vary.contains(&person.identity) => return Err(Reason::Vary),
                _ => {}
            }
        }
        // A page that could not be purged by all its tags is not kept.
        tags(answer.headers).map_err(|_| Reason::Tags)?;
        let traces = fetch.traces_with(answer.headers);
        traces.search_fields(answer.headers).map_err(refuse::reason_of)?;
        storing.guarded |= fetch.is_searched(answer.headers, storing.lost);
        Ok(storing)
    }
}

/// Counts a page that the app has sent, and the cookies that it sets.
pub fn count_page(sheet: &Sheet, status: StatusCode, headers: &HeaderMap) {
    if status == StatusCode::OK && media::kind(headers) == Kind::Html {
        sheet.cookies(Crumb::Set, set_cookie::named(headers));
    }
}

fn failure(error: &OriginError) -> Failure {
    if error.unavailable() {
        Failure::Unavailable
    } else if error.timed_out() {
        Failure::TimedOut
    } else {
        Failure::Unusable
    }
}

/// RFC 5861 §4: the statuses that count as an origin error.
fn is_server_error(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}
