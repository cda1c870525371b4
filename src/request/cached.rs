//! Answering from the page cache: look up, join the one fetch, or begin it.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, COOKIE, HOST};
use ::http::{HeaderMap, HeaderName, Method, Response};
use hyper::body::Incoming;
use tokio::sync::oneshot;

use super::error::Error;
use super::trail::Trail;
use super::{Body, Case, deliver, forward, outgoing};
use crate::clock::unix_now;
use crate::fill::{Led, Order};
use crate::http::cache_status::{CacheStatus, Forward};
use crate::http::cookie::cookies;
use crate::http::forwarded::{X_FORWARDED_HOST, X_FORWARDED_PROTO};
use crate::http::media::accept_names_pages;
use crate::ident::PageKey;
use crate::metrics::{Count, Outcome};
use crate::origin::OriginResponse;
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

impl<'c> Want<'c> {
    fn new(case: &'c Case<'c>, target: &str, class: ShareClass) -> Self {
        let key = case.page_key(target, case.route, class);
        Self { case, class, key, sent: OnceCell::new() }
    }

    fn sent(&self) -> &HeaderMap {
        self.sent.get_or_init(|| outgoing::fill_fields(self.case, self.class))
    }

    /// Joins the one fetch of the page under `key`, or begins it.
    fn join(&self, key: PageKey) -> Join {
        let pages = &self.case.room.pages;
        let slots = || self.case.purge_slots();
        pages.flights.join(self.key, key, self.sent(), &pages.purged, slots)
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

/// How long a visitor waits for the origin who could be given a stale page.
const RESCUE_AFTER: Duration = Duration::from_secs(2);
/// For how long the origin is not asked for a page at which it failed, in seconds, while that may be
/// served stale.
const FAILING_TTL: u64 = 1;

/// A page that is fresh no more, and suits the visitor.
struct Held {
    entry: Arc<Entry>,
    /// The key under which it is fetched anew.
    key: PageKey,
    /// Whether it may be served where the origin fails.
    rescues: bool,
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
    let want = Want::new(case, target, class);
    let found = match find(&want).await {
        // What the origin calls public when it answers a login is for strangers, too.
        absent @ Lookup::Absent(_) if class == ShareClass::Anonymous && case.route.trust_public => {
            match find(&Want::new(case, target, ShareClass::Public)).await {
                fresh @ Lookup::Fresh(..) => fresh,
                Lookup::Stale(..) | Lookup::Absent(_) => absent,
            }
        }
        found => found,
    };
    let (held, key) = match found {
        Lookup::Fresh(entry, from) => {
            let suits = want.suits(&entry);
            return match (suits, forwarded_for) {
                (Err(reason), _) => forward::forward(case, body, reason, trail).await,
                (Ok(()), Some(reason)) if !entry.static_proof => {
                    forward::forward(case, body, reason, trail).await
                }
                (Ok(()), _) => Ok(hit(&want, &entry, from, trail)),
            };
        }
        Lookup::Stale(entry, _, key) => {
            let rescues = entry.serves_on_error(want.now());
            let suits = want.suits(&entry).is_ok();
            (suits.then_some(Held { entry, key, rescues }), key)
        }
        Lookup::Absent(key) => (None, key),
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
    if let Some(held) = &held
        && is_answer_meanwhile(&want, held)
    {
        return Ok(stale(&want, held, trail));
    }
    match fetch(&want, held.as_ref(), key, trail).await {
        Fetched::Answer(response) => Ok(response),
        Fetched::Own(came, reason) => {
            trail.outcome(Outcome::Bypass, Some(reason));
            forward::own(case, came, reason).await
        }
        Fetched::Forward(reason) => forward::forward(case, body, reason, trail).await,
        Fetched::Failed(error) => Err(error),
    }
}

/// Whether a page that is stale is the answer before the origin has said anything: while it is
/// fetched anew behind the answer (RFC 5861 §3), which begins here, and right after the origin failed
/// at it (§4).
fn is_answer_meanwhile(want: &Want<'_>, held: &Held) -> bool {
    let room = want.case.room;
    if held.rescues && room.pages.memory().is_failing(&held.key, want.now()) {
        return true;
    }
    if !held.entry.serves_while_revalidating(want.now()) {
        return false;
    }
    if let Join::Lead(flight) = want.join(held.key) {
        // Nobody listens.
        drop(begin(want, flight, Some(held)));
    }
    true
}

/// What the one fetch, or waiting for it, has led to.
enum Fetched {
    Answer(Response<Body>),
    /// The visitor's own response, unshared.
    Own(OriginResponse, Reason),
    /// Nothing that this visitor may have: he asks for himself.
    Forward(Reason),
    Failed(Error),
}

/// Begins the one fetch of a page, or waits for it. Where it fails, or takes too long, a page that is
/// held is the answer if it may be.
async fn fetch(want: &Want<'_>, held: Option<&Held>, key: PageKey, trail: &mut Trail) -> Fetched {
    let rescue = held.filter(|held| held.rescues);
    let joined = want.join(key);
    let fetching = async {
        match joined {
            Join::Lead(flight) => lead(want, flight, held, trail).await,
            Join::Wait(seat) => wait(want, seat, trail).await,
            Join::Full => Fetched::Forward(Reason::Crowded),
        }
    };
    let Some(held) = rescue else { return fetching.await };
    let fetched = tokio::time::timeout(RESCUE_AFTER, fetching).await;
    match fetched {
        Ok(Fetched::Failed(_) | Fetched::Own(_, Reason::ServerError)) | Err(_) => {}
        Ok(Fetched::Forward(Reason::Origin | Reason::ServerError)) => {}
        Ok(fetched) => return fetched,
    }
    let until = unix_now() as u64 + FAILING_TTL;
    want.case.room.pages.memory().mark_failing(key, until);
    Fetched::Answer(stale(want, held, trail))
}

/// Looks in memory and in the store; a store that fails has nothing.
async fn find(want: &Want<'_>) -> Lookup {
    let room = want.case.room;
    let pages = &room.pages;
    if let Some(entry) = pages.in_memory(&want.key, || want.sent(), want.now()) {
        return Lookup::Fresh(entry, From::Memory);
    }
    let looked_up = pages.look_up(&room.store, &want.key, want.sent(), want.now()).await;
    looked_up.unwrap_or_else(|error| {
        tracing::debug!(%error, "a page could not be looked up");
        room.sheet.count(Count::StoreReadErrors);
        Lookup::Absent(want.key)
    })
}

fn hit(want: &Want<'_>, entry: &Entry, from: From, trail: &mut Trail) -> Response<Body> {
    let (outcome, detail) = match from {
        From::Memory => (Outcome::HitMemory, "memory"),
        From::Store => (Outcome::HitStore, "store"),
    };
    trail.outcome(outcome, None);
    let status = CacheStatus::hit(entry.ttl(want.now()), detail);
    deliver::whole(want.case, entry, &status)
}

/// A page that is fresh no more, as the answer all the same.
fn stale(want: &Want<'_>, held: &Held, trail: &mut Trail) -> Response<Body> {
    let entry = &held.entry;
    trail.outcome(Outcome::HitStale, None);
    let status = CacheStatus::hit(entry.ttl(want.now()), "stale");
    deliver::whole(want.case, entry, &status)
}

fn begin(want: &Want<'_>, flight: Arc<Flight>, held: Option<&Held>) -> oneshot::Receiver<Led> {
    let case = want.case;
    let (request, loss) = outgoing::fill(case, &flight.sent);
    let order = Order {
        primary: want.key,
        class: want.class,
        request,
        route: Arc::clone(case.route),
        loss,
        held: held.map(|held| Arc::clone(&held.entry)),
        withhold: held.is_some_and(|held| held.rescues),
    };
    case.room.filler.begin(flight, order)
}

/// Begins the fetch, and answers from it.
async fn lead(
    want: &Want<'_>,
    flight: Arc<Flight>,
    held: Option<&Held>,
    trail: &mut Trail,
) -> Fetched {
    let case = want.case;
    // The page may have landed between the look-up and the joining.
    if let Some(entry) = case.room.pages.in_memory(&want.key, || want.sent(), want.now())
        && want.suits(&entry).is_ok()
    {
        flight.answer(&entry);
        return Fetched::Answer(hit(want, &entry, From::Memory, trail));
    }
    let led = begin(want, flight, held).await;
    trail.origin_answered();
    match led {
        Ok(Led::Shared { head: entry, seat, length, stored }) => match want.suits(&entry) {
            Ok(()) => {
                trail.outcome(Outcome::Miss, Some(Reason::Miss));
                let why = if held.is_some() { Forward::Stale } else { Forward::UriMiss };
                let mut status = CacheStatus::forwarded(why, None);
                status.stored = stored;
                status.ttl = Some(entry.ttl(want.now()));
                let body = Body::flight(seat, length);
                Fetched::Answer(deliver::stored(case, &entry, &status, body))
            }
            Err(reason) => {
                // A seat that is not read would hold up those that are.
                drop(seat);
                Fetched::Forward(reason)
            }
        },
        Ok(Led::Validated(entry)) => match want.suits(&entry) {
            Ok(()) => Fetched::Answer(validated(want, &entry, trail)),
            Err(reason) => Fetched::Forward(reason),
        },
        Ok(Led::Own(came, reason)) => Fetched::Own(came, reason),
        Ok(Led::Again(reason)) => Fetched::Forward(reason),
        Ok(Led::Failed(error)) => Fetched::Failed(error.into()),
        Err(_) => Fetched::Forward(Reason::Origin),
    }
}

/// A page that the origin has just called right.
fn validated(want: &Want<'_>, entry: &Entry, trail: &mut Trail) -> Response<Body> {
    trail.outcome(Outcome::Revalidated, None);
    let mut status = CacheStatus::forwarded(Forward::Stale, None);
    status.forwarded_status = Some(304);
    status.stored = true;
    status.ttl = Some(entry.ttl(want.now()));
    deliver::whole(want.case, entry, &status)
}

/// Waits for another request's fetch.
async fn wait(want: &Want<'_>, mut seat: Seat, trail: &mut Trail) -> Fetched {
    let case = want.case;
    let reason = match seat.verdict().await {
        Verdict::Shared(entry, length) => {
            let same = variant_key(&want.key, &entry.vary, want.sent())
                == variant_key(&want.key, &entry.vary, seat.sent());
            // A purge by a tag of which nobody knew yet that the page has it.
            let is_old = seat.is_later() && !case.room.pages.purged.is_current(&entry.marks);
            let suits = match (same, is_old) {
                (true, false) => want.suits(&entry),
                (true, true) => Err(Reason::Invalidated),
                (false, _) => Err(Reason::Vary),
            };
            match suits {
                Ok(()) => {
                    trail.outcome(Outcome::HitFlight, None);
                    let mut status = CacheStatus::forwarded(Forward::UriMiss, None);
                    status.collapsed = true;
                    status.ttl = Some(entry.ttl(want.now()));
                    let body = Body::flight(seat, length);
                    return Fetched::Answer(deliver::stored(case, &entry, &status, body));
                }
                Err(reason) => reason,
            }
        }
        Verdict::Refused(reason) => reason,
        Verdict::Failed { timed_out } => return Fetched::Failed(Error::OriginShared { timed_out }),
        Verdict::Pending => Reason::Origin,
    };
    // A seat that is not read would hold up those that are.
    drop(seat);
    Fetched::Forward(reason)
}
