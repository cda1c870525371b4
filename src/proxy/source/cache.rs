//! Answers from the page cache: looks the page up, and joins or starts the one fetch of it.

use std::sync::Arc;
use std::time::Duration;

use ::http::Response;
use hyper::body::Incoming;
use tokio::sync::oneshot;

use super::{forward, personal};
use crate::cache::entry::Entry;
use crate::cache::fill::{Led, Order};
use crate::cache::flight::{EndGuard, Failure, Flight, Join, Seat, Verdict};
use crate::cache::purge::Standing;
use crate::cache::rules::key::{ShareClass, variant_key};
use crate::cache::rules::verdict::Access;
use crate::cache::{From, Look};
use crate::clock::unix_now;
use crate::http::cache_status::{CacheStatus, Forward};
use crate::http::coding::takes_as_it_is;
use crate::ident::PageKey;
use crate::origin::OriginResponse;
use crate::proxy::answer::Answer;
use crate::proxy::context::RequestContext;
use crate::proxy::deliver::body::Body;
use crate::proxy::deliver::{content_coding, headers, stored};
use crate::proxy::error::Error;
use crate::proxy::origin_request;
use crate::proxy::recompress::Live;
use crate::proxy::record::RequestRecord;
use crate::proxy::stage::cache_lookup::{
    self, StaleCandidate, Step, Want, hit_status, stale_status,
};
use crate::telemetry::metrics::Outcome;
use crate::telemetry::reason::Reason;

impl Want<'_> {
    /// Joins the one fetch of the page under `key`, or starts it.
    fn join(&self, key: PageKey) -> Join {
        let pages = &self.cx.worker.pages;
        let scopes = || {
            let mut scopes = self.cx.purge_scopes();
            if self.class == ShareClass::User {
                scopes.extend(self.cx.own_scopes());
            }
            scopes
        };
        pages.flights.join(self.key, key, self.sent(), &pages.purged, scopes, self.now())
    }
}

/// How long a request waits for a fetch that carries the session of another user of the segment.
const WAITS_FOR_ANOTHER: Duration = Duration::from_secs(2);
/// How long a request waits for the origin when a stale page is available.
const RESCUE_AFTER: Duration = Duration::from_secs(2);
/// After a failure, the origin is not asked for the same page for this long, in seconds, while a stale
/// page may be served.
const FAILING_TTL: u64 = 1;

/// Answers from the cache if possible, otherwise forwards the request.
pub(in crate::proxy) async fn answer(
    cx: &RequestContext<'_>,
    body: Option<Incoming>,
    access: Access,
    record: &mut RequestRecord,
) -> Result<Answer, Error> {
    let (class, forwarded_for) = match access {
        Access::Shared(class) => (class, None),
        Access::StaticOnly(reason) => (ShareClass::Anonymous, Some(reason)),
        Access::Bypass(reason) => return forward::forward(cx, body, reason, record).await,
    };
    let want = Want::new(cx, class);
    let fetched = match cache_lookup::decide(&want, forwarded_for, Look::Use).await {
        Step::Hit(entry, from) => Fetched::from(hit(&want, &entry, from, record).await),
        Step::Forward(reason) => Fetched::Forward(reason),
        Step::Head(_) => Fetched::Forward(Reason::Head),
        Step::NotStored => Fetched::Failed(Error::NotStored),
        Step::Stale { held, renews } => {
            if renews {
                renew(&want, &held);
            }
            Fetched::from(stale(&want, &held, record).await)
        }
        Step::Fetch { held, key } => fetch(&want, held.as_ref(), key, record).await,
    };
    match fetched {
        Fetched::Answer(mut response) => {
            if class.is_personal() {
                headers::keep_for_one(response.headers_mut());
            }
            Ok(Answer::Stored(response))
        }
        // The fetch asked for codings that this client does not accept.
        Fetched::Own(came, reason)
            if cx.worker.recompressor.is_on()
                && !class.is_personal()
                && !takes_as_it_is(&cx.head.headers, came.response.headers()) =>
        {
            drop(came);
            forward::forward(cx, body, reason, record).await
        }
        Fetched::Own(came, reason) => {
            record.outcome(Outcome::Bypass, Some(reason));
            forward::count_blocking(cx, came.response.headers(), reason);
            Ok(Answer::Own(came, reason))
        }
        Fetched::Forward(reason) => forward::forward(cx, body, reason, record).await,
        Fetched::Failed(error) => Err(error),
    }
}

/// Starts to revalidate a page in the background, unless a fetch of it is under way.
fn renew(want: &Want<'_>, held: &StaleCandidate) {
    let Join::Lead(flight) = want.join(held.key) else { return };
    // The page may have been stored between the lookup and the join.
    match want.cx.worker.pages.in_memory(&want.key, || want.sent(), want.now()) {
        Some(landed) => EndGuard(flight).0.answer(&landed),
        // The client has its answer; the receiver is not needed.
        None => drop(begin(want, flight, Some(held))),
    }
}

/// The result of the one fetch, or of waiting for it.
enum Fetched {
    Answer(Response<Body>),
    /// The response belongs to this visitor and is not shared.
    Own(OriginResponse, Reason),
    /// This visitor cannot use the result: the request is forwarded.
    Forward(Reason),
    Failed(Error),
}

impl Fetched {
    fn from(answer: Result<Response<Body>, Reason>) -> Self {
        answer.map_or_else(Self::Forward, Self::Answer)
    }

    /// The same for an answer whose body is still arriving. The transfer may fail before the first byte.
    async fn begun(answer: Result<Response<Body>, Reason>) -> Self {
        let mut response = match answer {
            Ok(response) => response,
            Err(reason) => return Self::Forward(reason),
        };
        match response.body_mut().begin().await {
            Ok(()) => Self::Answer(response),
            Err(_) => Self::Failed(Error::OriginShared(Failure::Unusable)),
        }
    }
}

/// Starts the one fetch of a page, or waits for it. If it fails or takes too long, a stale page is the
/// answer where one may be served.
async fn fetch(
    want: &Want<'_>,
    held: Option<&StaleCandidate>,
    key: PageKey,
    record: &mut RequestRecord,
) -> Fetched {
    let rescue = held.filter(|held| held.rescues);
    if want.loses_own() {
        return Fetched::Forward(Reason::Miss);
    }
    let joined = want.join(key);
    let fetching = async {
        let seat = match joined {
            Join::Lead(flight) => return lead(want, flight, held, record).await,
            Join::Wait(seat) => seat,
            Join::Full => return Fetched::Forward(Reason::Crowded),
        };
        let fetched = wait(want, seat, record).await;
        if !matches!(fetched, Fetched::Forward(Reason::Twin)) {
            return fetched;
        }
        // The page belongs to another user. One of the waiting requests now asks the origin, too. If it
        // gets the same page, the page is shared with the whole segment.
        match want.join(key) {
            Join::Lead(flight) => lead(want, flight, held, record).await,
            Join::Wait(seat) => wait(want, seat, record).await,
            Join::Full => Fetched::Forward(Reason::Crowded),
        }
    };
    let Some(held) = rescue else { return fetching.await };
    let fetched = {
        let mut fetching = std::pin::pin!(fetching);
        match tokio::time::timeout(RESCUE_AFTER, &mut fetching).await {
            Ok(fetched) => Some(fetched),
            // The response to a request with the visitor's session belongs to the visitor, however late
            // it arrives.
            Err(_) if !want.class.is_personal() && rescues(want, held) => None,
            Err(_) => Some(fetching.await),
        }
    };
    let has_failed = match &fetched {
        None | Some(Fetched::Failed(_) | Fetched::Own(_, Reason::ServerError)) => true,
        Some(Fetched::Forward(reason)) => matches!(reason, Reason::Origin | Reason::ServerError),
        Some(Fetched::Answer(_) | Fetched::Own(..)) => false,
    };
    match fetched {
        Some(fetched) if !has_failed || !rescues(want, held) => fetched,
        Some(_) | None => {
            let until = unix_now() as u64 + FAILING_TTL;
            want.cx.worker.pages.memory().mark_failing(key, until);
            Fetched::from(stale(want, held, record).await)
        }
    }
}

/// Whether a stale page may still replace the origin's answer. It may have been purged or become too old
/// in the meantime.
fn rescues(want: &Want<'_>, held: &StaleCandidate) -> bool {
    let now = unix_now() as u64;
    match want.cx.worker.pages.standing(&held.entry, now) {
        Standing::Current => true,
        Standing::Stale => held.entry.serves_on_error(now),
        Standing::Gone => false,
    }
}

async fn hit(
    want: &Want<'_>,
    entry: &Arc<Entry>,
    from: From,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Reason> {
    let outcome = match from {
        From::Memory => Outcome::HitMemory,
        From::Store => Outcome::HitStore,
    };
    if from == From::Memory {
        want.cx.worker.filler.found(&want.key, || want.sent(), want.now());
    }
    let ready = content_coding::ready(want.cx, want.class, entry, true).await?;
    record.outcome(outcome, None);
    Ok(stored::ready(want.cx, &ready, &hit_status(want, entry, from)))
}

/// Answers with a stale page.
async fn stale(
    want: &Want<'_>,
    held: &StaleCandidate,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Reason> {
    let entry = &held.entry;
    let ready = content_coding::ready(want.cx, want.class, entry, true).await?;
    record.outcome(Outcome::HitStale, None);
    Ok(stored::ready(want.cx, &ready, &stale_status(want, entry)))
}

/// Answers with a page that is still arriving: as it arrives or, if this client cannot read that form,
/// when it is complete. If it does not complete, the request is forwarded.
async fn coming(
    want: &Want<'_>,
    head: &Arc<Entry>,
    (seat, length): (Seat, Option<u64>),
    status: &CacheStatus<'_>,
) -> Result<Response<Body>, Reason> {
    let (cx, coder) = (want.cx, &want.cx.worker.recompressor);
    match coder.live(want.class, &cx.head.headers, &head.headers) {
        Live::AsItComes => Ok(stored::stored(cx, head, status, Body::flight(seat, length))),
        // An unread seat would hold up the readers of the same fetch.
        Live::Never => Err(Reason::Vary),
        Live::Whole => {
            if !coder.arrival(seat).await {
                return Err(Reason::Vary);
            }
            let landed = cx.worker.pages.in_memory(&want.key, || want.sent(), want.now());
            let page = landed.ok_or(Reason::Vary)?;
            want.suits(&page)?;
            let ready = content_coding::ready(cx, want.class, &page, true).await?;
            Ok(stored::ready(cx, &ready, status))
        }
    }
}

/// Whether a stored page must not be served any more.
fn is_gone(want: &Want<'_>, held: &StaleCandidate) -> bool {
    want.cx.worker.pages.purged.standing(&held.entry.marks) == Standing::Gone
}

fn begin(
    want: &Want<'_>,
    flight: Arc<Flight>,
    held: Option<&StaleCandidate>,
) -> oneshot::Receiver<Led> {
    let cx = want.cx;
    let (request, loss) = origin_request::fill(cx, want.class, &flight.sent);
    let order = Order {
        primary: want.key,
        class: want.class,
        request,
        route: Arc::clone(cx.route),
        loss,
        person: personal::person(cx).filter(|_| want.class.is_personal()),
        traces: personal::traces(cx, want.class),
        held: held.filter(|held| !is_gone(want, held)).map(|held| Arc::clone(&held.entry)),
        withhold: held.is_some_and(|held| held.rescues),
    };
    cx.worker.filler.begin(flight, order)
}

/// The reason that `Cache-Status` gives for asking the origin although a page may be stored.
fn why(want: &Want<'_>, held: Option<&StaleCandidate>) -> Forward {
    match held {
        // A purged page is stale, however young it is.
        Some(held)
            if held.entry.is_fresh(unix_now() as u64)
                && want.cx.worker.pages.purged.is_current(&held.entry.marks) =>
        {
            Forward::Request
        }
        Some(_) => Forward::Stale,
        None => Forward::UriMiss,
    }
}

/// Starts the fetch, and answers from it.
async fn lead(
    want: &Want<'_>,
    flight: Arc<Flight>,
    held: Option<&StaleCandidate>,
    record: &mut RequestRecord,
) -> Fetched {
    let cx = want.cx;
    // The page may have been stored between the lookup and the join.
    if let Some(entry) = cx.worker.pages.in_memory(&want.key, || want.sent(), want.now())
        && want.suits(&entry).is_ok()
        && want.wish.is_met_by(&entry, want.now())
    {
        EndGuard(flight).0.answer(&entry);
        return Fetched::from(hit(want, &entry, From::Memory, record).await);
    }
    let led = begin(want, flight, held).await;
    record.origin_answered();
    match led {
        Ok(Led::Shared { head: entry, seat, length, stored, waits, cookies }) => {
            // The response to a request with the visitor's session answers this request, as it came.
            let is_his = want.class.is_personal();
            if let (false, Err(reason)) = (is_his, want.suits(&entry)) {
                // An unread seat would hold up the readers of the same fetch.
                drop(seat);
                return Fetched::Forward(reason);
            }
            let why = why(want, held);
            let mut status = CacheStatus::forwarded(why, waits.map(Reason::as_str));
            status.stored = stored;
            status.ttl = Some(entry.ttl(want.now()));
            let answer = match is_his {
                true => {
                    let body = Body::flight(seat, length);
                    let mut answer = stored::stored(cx, &entry, &status, body);
                    headers::give_cookies(cx, answer.headers_mut(), cookies);
                    Ok(answer)
                }
                false => coming(want, &entry, (seat, length), &status).await,
            };
            if answer.is_ok() {
                record.outcome(Outcome::Miss, Some(waits.unwrap_or(Reason::Miss)));
            }
            Fetched::begun(answer).await
        }
        Ok(Led::Landed(page)) => match want.suits(&page) {
            Ok(()) => {
                let mut status = CacheStatus::forwarded(why(want, held), None);
                status.stored = true;
                let answer = landed(want, page, status).await;
                if answer.is_ok() {
                    record.outcome(Outcome::Miss, Some(Reason::Miss));
                }
                Fetched::from(answer)
            }
            Err(reason) => Fetched::Forward(reason),
        },
        Ok(Led::Validated(entry)) => match want.suits(&entry) {
            Ok(()) => Fetched::from(validated(want, entry, why(want, held), record).await),
            Err(reason) => Fetched::Forward(reason),
        },
        Ok(Led::Elsewhere(entry)) => match want.suits(&entry) {
            Ok(()) => Fetched::from(hit(want, &entry, From::Store, record).await),
            Err(reason) => Fetched::Forward(reason),
        },
        Ok(Led::Own(came, reason)) => Fetched::Own(*came, reason),
        Ok(Led::Again(reason)) => Fetched::Forward(reason),
        Ok(Led::Failed(error)) => Fetched::Failed(error.into()),
        Err(_) => Fetched::Forward(Reason::Origin),
    }
}

/// Answers with a page that the origin has just validated.
async fn validated(
    want: &Want<'_>,
    entry: Arc<Entry>,
    why: Forward,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Reason> {
    let mut status = CacheStatus::forwarded(why, None);
    status.forwarded_status = Some(304);
    status.stored = true;
    let response = landed(want, entry, status).await?;
    record.outcome(Outcome::Revalidated, None);
    Ok(response)
}

/// Answers with a page that has just been stored.
async fn landed(
    want: &Want<'_>,
    entry: Arc<Entry>,
    mut status: CacheStatus<'_>,
) -> Result<Response<Body>, Reason> {
    // Recoded forms belong to the page in memory, which may have been replaced in the meantime.
    let kept = want.cx.worker.pages.in_memory(&want.key, || want.sent(), want.now());
    let kept = kept.filter(|kept| want.suits(kept).is_ok());
    let is_kept = kept.is_some();
    let entry = kept.unwrap_or(entry);
    let ready = content_coding::ready(want.cx, want.class, &entry, is_kept).await?;
    status.ttl = Some(entry.ttl(want.now()));
    Ok(stored::ready(want.cx, &ready, &status))
}

/// Waits for the verdict on another request's fetch. If the fetch carries another user's session, the
/// wait is short and a failure has no consequence: an app may delay one user's request and answer the
/// others.
async fn verdict(want: &Want<'_>, seat: &mut Seat) -> Verdict {
    let verdict = match want.class {
        ShareClass::Segment => tokio::time::timeout(WAITS_FOR_ANOTHER, seat.verdict()).await,
        _ => Ok(seat.verdict().await),
    };
    match verdict {
        Ok(Verdict::Failed(_)) if want.class.is_personal() => Verdict::Refused(Reason::Origin),
        Ok(verdict) => verdict,
        Err(_) => Verdict::Refused(Reason::Slow),
    }
}

/// Waits for another request's fetch.
async fn wait(want: &Want<'_>, mut seat: Seat, record: &mut RequestRecord) -> Fetched {
    let (entry, length) = match verdict(want, &mut seat).await {
        Verdict::Shared(entry, length) => (entry, Some(length)),
        Verdict::Landed(page) => (page, None),
        Verdict::Refused(reason) => return Fetched::Forward(reason),
        Verdict::Failed(why) => return Fetched::Failed(Error::OriginShared(why)),
        Verdict::Pending => return Fetched::Forward(Reason::Origin),
    };
    if let Err(reason) = may_be_given(want, &seat, &entry) {
        // An unread seat would hold up the readers of the same fetch.
        drop(seat);
        return Fetched::Forward(reason);
    }
    let mut status = CacheStatus::forwarded(Forward::UriMiss, None);
    status.collapsed = true;
    status.ttl = Some(entry.ttl(want.now()));
    let answer = match length {
        Some(length) => coming(want, &entry, (seat, length), &status).await,
        None => {
            drop(seat);
            landed(want, entry, status).await
        }
    };
    if answer.is_ok() {
        record.outcome(Outcome::HitFlight, None);
    }
    match Fetched::begun(answer).await {
        // The other user's session may be the cause of the failure, and nothing has been sent to the
        // client yet.
        Fetched::Failed(_) if want.class.is_personal() => Fetched::Forward(Reason::Origin),
        fetched => fetched,
    }
}

/// Whether a waiting request may use the page that arrived; the error is the reason to forward the
/// request.
fn may_be_given(want: &Want<'_>, seat: &Seat, entry: &Entry) -> Result<(), Reason> {
    let same = variant_key(&want.key, &entry.vary, want.sent())
        == variant_key(&want.key, &entry.vary, seat.sent());
    // The page may have been purged by a tag that was not known to belong to it before.
    let is_old = seat.is_later() && !want.cx.worker.pages.purged.is_current(&entry.marks);
    match (same, is_old) {
        // The leak guard may have taken longer to read the page than the page stays fresh.
        (true, false) if !entry.is_fresh(want.now()) => Err(Reason::Stale),
        (true, false) => want.suits(entry),
        (true, true) => Err(Reason::Invalidated),
        (false, _) => Err(Reason::Vary),
    }
}
