//! Answering from the page cache: look up, join the one fetch, or begin it.

use std::cell::OnceCell;
use std::sync::Arc;

use ::http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, COOKIE, HOST};
use ::http::{HeaderMap, HeaderName, Method, Response};
use hyper::body::Incoming;

use super::error::Error;
use super::trail::Trail;
use super::{Body, Case, deliver, forward, outgoing};
use crate::fill::{Led, Order};
use crate::http::cache_status::{CacheStatus, Forward};
use crate::http::cookie::cookies;
use crate::http::forwarded::{X_FORWARDED_HOST, X_FORWARDED_PROTO};
use crate::http::media::accept_names_pages;
use crate::ident::PageKey;
use crate::metrics::{Count, Outcome};
use crate::page::entry::{Entry, LifetimeSource};
use crate::page::flight::{Flight, Join, Seat, Verdict};
use crate::page::key::{ShareClass, variant_key};
use crate::page::verdict::Access;
use crate::page::{From, Lookup};
use crate::reason::Reason;

/// A request that the cache may serve.
struct Want<'c> {
    case: &'c Case<'c>,
    /// With whom the page would be shared: part of the key, and of what may fill it.
    class: ShareClass,
    key: PageKey,
    /// What a fill would send. PERF: a hit on a page without variants never needs it.
    sent: OnceCell<HeaderMap>,
}

impl Want<'_> {
    fn sent(&self) -> &HeaderMap {
        self.sent.get_or_init(|| outgoing::fill_fields(self.case))
    }

    fn now(&self) -> u64 {
        self.case.now as u64
    }

    /// Whether this visitor may be given that page, or why he is forwarded.
    fn suits(&self, entry: &Entry) -> Result<(), Reason> {
        let headers = &self.case.head.headers;
        if entry.source == LifetimeSource::Default && !accept_names_pages(headers) {
            return Err(Reason::Accept);
        }
        let unsent = |name: &HeaderName| match *name {
            COOKIE => cookies(headers).any(|(cookie, _)| {
                !self.case.route.keys_cookie(cookie)
                    && !self.case.room.settings.cookies.is_harmless(cookie)
            }),
            AUTHORIZATION => headers.contains_key(AUTHORIZATION),
            // In the key, as are the two that say the same of the visitor's side.
            HOST => false,
            _ if *name == X_FORWARDED_PROTO || *name == X_FORWARDED_HOST => false,
            // Who takes no coding that a fill asks for may have what is in none.
            ACCEPT_ENCODING => {
                headers.contains_key(name)
                    && !self.sent().contains_key(name)
                    && entry.headers.contains_key(CONTENT_ENCODING)
            }
            _ => headers.contains_key(name) && !self.sent().contains_key(name),
        };
        if entry.vary.iter().any(unsent) { Err(Reason::Vary) } else { Ok(()) }
    }
}

/// Answers from the cache where that may be, else forwards.
pub(super) async fn answer(
    case: &Case<'_>,
    body: Incoming,
    access: Access,
    trail: &mut Trail,
) -> Result<Response<Body>, Error> {
    let (class, forwarded_for) = match access {
        Access::Shared(class) => (class, None),
        Access::StaticOnly(reason) => (ShareClass::Anonymous, Some(reason)),
        Access::Bypass(reason) => return forward::forward(case, body, reason, trail).await,
    };
    let target = case.head.uri.path_and_query().map_or("/", |target| target.as_str());
    let want =
        Want { case, class, key: case.page_key(target, case.route, class), sent: OnceCell::new() };
    let absent = match find(&want).await {
        Found::Page(entry, from) => {
            let suits = want.suits(&entry);
            return match (suits, forwarded_for) {
                (Err(reason), _) => forward::forward(case, body, reason, trail).await,
                (Ok(()), Some(reason)) if !entry.static_proof => {
                    forward::forward(case, body, reason, trail).await
                }
                (Ok(()), _) => Ok(hit(&want, &entry, from, trail)),
            };
        }
        Found::Absent(key) => key,
    };
    if let Some(reason) = forwarded_for {
        return forward::forward(case, body, reason, trail).await;
    }
    if case.head.method == Method::HEAD {
        return forward::forward(case, body, Reason::Head, trail).await;
    }
    if let Some(reason) = case.room.pages.memory().uncacheable(&want.key, want.now()) {
        return forward::forward(case, body, reason, trail).await;
    }
    match case.room.pages.flights.join(want.key, absent, want.sent()) {
        Join::Lead(flight) => lead(&want, flight, body, trail).await,
        Join::Wait(seat) => wait(&want, seat, body, trail).await,
        Join::Full => forward::forward(case, body, Reason::Crowded, trail).await,
    }
}

enum Found {
    Page(Arc<Entry>, From),
    Absent(PageKey),
}

/// Looks in memory and in the store; a store that fails has nothing.
async fn find(want: &Want<'_>) -> Found {
    let room = want.case.room;
    let pages = &room.pages;
    if let Some(entry) = pages.in_memory(&want.key, || want.sent(), want.now()) {
        return Found::Page(entry, From::Memory);
    }
    match pages.look_up(&room.store, &want.key, want.sent(), want.now()).await {
        Ok(Lookup::Fresh(entry, from)) => Found::Page(entry, from),
        Ok(Lookup::Absent(key)) => Found::Absent(key),
        Err(error) => {
            tracing::debug!(%error, "a page could not be looked up");
            room.sheet.count(Count::StoreReadErrors);
            Found::Absent(want.key)
        }
    }
}

fn hit(want: &Want<'_>, entry: &Entry, from: From, trail: &mut Trail) -> Response<Body> {
    let (outcome, detail) = match from {
        From::Memory => (Outcome::HitMemory, "memory"),
        From::Store => (Outcome::HitStore, "store"),
    };
    trail.outcome(outcome, None);
    let status = CacheStatus::hit(entry.ttl(want.now()), detail);
    deliver::stored(want.case, entry, &status, Body::full(entry.body.clone()))
}

/// Begins the fetch, and answers from it.
async fn lead(
    want: &Want<'_>,
    flight: Arc<Flight>,
    body: Incoming,
    trail: &mut Trail,
) -> Result<Response<Body>, Error> {
    let case = want.case;
    // The page may have landed between the look-up and the joining.
    if let Some(entry) = case.room.pages.in_memory(&want.key, || want.sent(), want.now())
        && want.suits(&entry).is_ok()
    {
        flight.answer(&entry);
        return Ok(hit(want, &entry, From::Memory, trail));
    }
    let (request, loss) = outgoing::fill(case, &flight.sent);
    let order = Order {
        primary: want.key,
        class: want.class,
        request,
        route: Arc::clone(case.route),
        loss,
    };
    let led = case.room.filler.begin(flight, order).await;
    trail.origin_answered();
    match led {
        Ok(Led::Shared { head: entry, seat, length, stored }) => match want.suits(&entry) {
            Ok(()) => {
                trail.outcome(Outcome::Miss, Some(Reason::Miss));
                let mut status = CacheStatus::forwarded(Forward::UriMiss, None);
                status.stored = stored;
                status.ttl = Some(entry.ttl(want.now()));
                Ok(deliver::stored(case, &entry, &status, Body::flight(seat, length)))
            }
            Err(reason) => {
                // A seat that is not read would hold up those that are.
                drop(seat);
                forward::forward(case, body, reason, trail).await
            }
        },
        Ok(Led::Own(came, reason)) => {
            trail.outcome(Outcome::Bypass, Some(reason));
            forward::own(case, came, reason).await
        }
        Ok(Led::Again(reason)) => forward::forward(case, body, reason, trail).await,
        Ok(Led::Failed(error)) => Err(error.into()),
        Err(_) => forward::forward(case, body, Reason::Origin, trail).await,
    }
}

/// Waits for another request's fetch.
async fn wait(
    want: &Want<'_>,
    mut seat: Seat,
    body: Incoming,
    trail: &mut Trail,
) -> Result<Response<Body>, Error> {
    let case = want.case;
    let reason = match seat.verdict().await {
        Verdict::Shared(entry, length) => {
            let same = variant_key(&want.key, &entry.vary, want.sent())
                == variant_key(&want.key, &entry.vary, seat.sent());
            let suits = if same { want.suits(&entry) } else { Err(Reason::Vary) };
            match suits {
                Ok(()) => {
                    trail.outcome(Outcome::HitFlight, None);
                    let mut status = CacheStatus::forwarded(Forward::UriMiss, None);
                    status.collapsed = true;
                    status.ttl = Some(entry.ttl(want.now()));
                    return Ok(deliver::stored(case, &entry, &status, Body::flight(seat, length)));
                }
                Err(reason) => reason,
            }
        }
        Verdict::Refused(reason) => reason,
        Verdict::Failed { timed_out } => return Err(Error::OriginShared { timed_out }),
        Verdict::Pending => Reason::Origin,
    };
    // A seat that is not read would hold up those that are.
    drop(seat);
    forward::forward(case, body, reason, trail).await
}
