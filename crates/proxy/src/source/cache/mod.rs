//! Carries out what was decided about a page: answers with it, or joins or starts the one fetch of it. `stale` has what
//! concerns stale pages, `ahead` fetches popular pages again before they expire.

mod ahead;
mod as_it_came;
mod stale;
mod warm;

use std::sync::Arc;
use std::time::Duration;

use anteroom_cache::entry::Entry;
use anteroom_cache::fill::{FillOrder, LeaderAnswer, SharedAnswer};
use anteroom_cache::flight::{
    EndGuard, Flight, FlightFailure, FlightReader, FlightVerdict, JoinResult,
};
use anteroom_fault::fault;
use tokio::sync::oneshot;

use self::ahead::refresh_ahead;
use self::stale::{FAILING_TTL, RESCUE_AFTER, is_gone, may_serve_on_error, renew, stale};
pub(crate) use self::warm::{WarmOutcome, warm};
use super::audit::Audit;
use super::{forward, personal};

use anteroom_cache::CacheTier;
use anteroom_cache::rules::key::{ShareClass, variant_key};
use anteroom_cache::url_patterns::network;
use anteroom_http::cache_status::{CacheStatus, Forward};
use anteroom_http::clock::unix_now;
use anteroom_http::ident::PageKey;
use anteroom_origin::{BackgroundSlot, RequestBody};
use anteroom_policy::priority::Priority;
use anteroom_telemetry::metrics::{AskedAgain, Outcome};
use anteroom_telemetry::reason::Reason;
use anteroom_telemetry::traces::Asking;

use crate::answer::Answer;
use crate::connection::interim;
use crate::deliver::body::Body;
use crate::deliver::client_response::ClientResponse;
use crate::deliver::{content_coding, headers, stored};
use crate::error::Error;
use crate::origin_request;
use crate::plan::{PageDecision, StaleCandidate};
use crate::recompress::ArrivingPage;
use crate::record::RequestRecord;
use crate::stage::classify::{origin_use, priority};
use crate::stage::url_pattern;
use crate::stage::wanted_page::{WantedPage, hit_status};

impl WantedPage<'_> {
    /// Joins the one fetch of the page under `key`, or starts it.
    fn join(&self, key: PageKey) -> JoinResult {
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

/// Carries out what was decided about a page.
pub(crate) async fn answer(
    want: &WantedPage<'_>,
    decision: PageDecision,
    body: RequestBody,
    record: &mut RequestRecord,
) -> Result<Answer, Error> {
    let cx = want.cx;
    let fetched = match decision {
        PageDecision::Hit(entry, from) => {
            if let Some(audit) = Audit::draw(want, &entry) {
                // PERF: boxed, so that the state of a hit stays small.
                if let Some(answer) = Box::pin(audit.answer(cx, record)).await {
                    return Ok(answer);
                }
                // The app has taken its time: the page may have been purged meanwhile.
                let (key, entry) = (want.key_of(&entry), Arc::clone(&entry));
                let candidate = StaleCandidate { entry, key, serves_on_error: true };
                if !may_serve_on_error(want, &candidate) {
                    return forward::forward(cx, body, Reason::Invalidated, record).await;
                }
            }
            if from == CacheTier::Memory && want.fills {
                refresh_ahead(want, &entry);
            }
            or_forward(hit(want, &entry, from, record).await)
        }
        PageDecision::Stale { candidate, renews } => {
            if renews {
                renew(want, &candidate);
            }
            or_forward(stale(want, &candidate, record).await)
        }
        // PERF: boxed, so that the state of a hit stays small.
        PageDecision::Fetch { candidate, key } => {
            Box::pin(fetch(want, candidate.as_ref(), key, record)).await
        }
        PageDecision::AsItCame { reason, .. } => {
            let answer = forward::forward(cx, body, reason, record).await?;
            as_it_came::learn(want, &answer);
            return Ok(answer);
        }
    };
    let mut answer = match fetched {
        Ok(answer) => answer,
        Err(NotFetched::Again(reason, why)) => {
            note_again(want, why);
            return forward::forward(cx, body, reason, record).await;
        }
        Err(NotFetched::Forward(reason)) => {
            return forward::forward(cx, body, reason, record).await;
        }
        Err(NotFetched::Failed(error)) => return Err(error),
    };
    if let Answer::Stored(response) = &mut answer
        && want.class.is_personal()
    {
        headers::keep_for_one(response.headers_mut());
    }
    if let Answer::Uncached(received, reason) = &answer {
        record.outcome(Outcome::Bypass, Some(*reason));
        forward::count_blocking(cx, received.response.headers(), *reason);
    }
    Ok(answer)
}

/// The answer of the one fetch, or of waiting for it.
type FetchResult = Result<Answer, NotFetched>;

/// Why the one fetch, or waiting for it, is no answer.
enum NotFetched {
    /// The result is not for this visitor, whose own request is sent, too.
    Again(Reason, AskedAgain),
    /// The origin was not asked for this visitor: the request is forwarded.
    Forward(Reason),
    Failed(Error),
}

/// A stored page, or the request is forwarded.
fn or_forward(answer: Result<ClientResponse, Reason>) -> FetchResult {
    answer.map(Answer::Stored).map_err(NotFetched::Forward)
}

/// The same after the origin was asked. The page cannot be had in a coding that the client reads.
fn or_again(answer: Result<ClientResponse, Reason>) -> FetchResult {
    answer.map(Answer::Stored).map_err(|reason| NotFetched::Again(reason, AskedAgain::Coding))
}

/// The same for an answer whose body is still arriving. The transfer may fail before the first byte.
async fn begun(answer: Result<ClientResponse, Reason>) -> FetchResult {
    let mut response = answer.map_err(NotFetched::Forward)?;
    match response.body_mut().begin().await {
        Ok(()) => Ok(Answer::Stored(response)),
        Err(_) => Err(NotFetched::Failed(Error::OriginShared(FlightFailure::Unusable))),
    }
}

/// Starts the one fetch of a page, or waits for it. If it fails or takes too long, a stale page is the
/// answer where one may be served.
async fn fetch(
    want: &WantedPage<'_>,
    candidate: Option<&StaleCandidate>,
    key: PageKey,
    record: &mut RequestRecord,
) -> FetchResult {
    record.asks();
    let rescue = candidate.filter(|candidate| candidate.serves_on_error);
    let joined = want.join(key);
    let fetching = async {
        let reader = match joined {
            JoinResult::Lead(flight) => return lead(want, flight, candidate, record).await,
            JoinResult::Wait(reader) => reader,
            JoinResult::Full => return Err(NotFetched::Forward(Reason::Crowded)),
        };
        let fetched = wait(want, reader, record).await;
        if !matches!(fetched, Err(NotFetched::Forward(Reason::AwaitingSecondUser))) {
            return fetched;
        }
        // The page belongs to another user. One of the waiting requests now asks the origin, too. If it
        // gets the same page, the page is shared with the whole segment.
        match want.join(key) {
            JoinResult::Lead(flight) => lead(want, flight, candidate, record).await,
            JoinResult::Wait(reader) => wait(want, reader, record).await,
            JoinResult::Full => Err(NotFetched::Forward(Reason::Crowded)),
        }
    };
    let Some(candidate) = rescue else { return fetching.await };
    let fetched = {
        let mut fetching = std::pin::pin!(fetching);
        match tokio::time::timeout(RESCUE_AFTER, &mut fetching).await {
            Ok(fetched) => Some(fetched),
            // The response to a request with the visitor's session belongs to the visitor, however late
            // it arrives.
            Err(_) if !want.class.is_personal() && may_serve_on_error(want, candidate) => None,
            Err(_) => Some(fetching.await),
        }
    };
    let has_failed = match &fetched {
        None | Some(Ok(Answer::Uncached(_, Reason::ServerError)) | Err(NotFetched::Failed(_))) => {
            true
        }
        Some(Err(NotFetched::Forward(reason) | NotFetched::Again(reason, _))) => {
            matches!(reason, Reason::Origin | Reason::ServerError)
        }
        Some(Ok(_)) => false,
    };
    match fetched {
        Some(fetched) if !has_failed || !may_serve_on_error(want, candidate) => fetched,
        Some(_) | None => {
            let until = unix_now() as u64 + FAILING_TTL;
            want.cx.worker.pages.memory().mark_failing(key, until);
            or_again(stale(want, candidate, record).await)
        }
    }
}

async fn hit(
    want: &WantedPage<'_>,
    entry: &Arc<Entry>,
    from: CacheTier,
    record: &mut RequestRecord,
) -> Result<ClientResponse, Reason> {
    let outcome = match from {
        CacheTier::Memory => Outcome::HitMemory,
        CacheTier::Store => Outcome::HitStore,
    };
    if from == CacheTier::Memory {
        want.cx.worker.filler.found(&want.key, || want.sent(), want.now());
    }
    let ready = content_coding::ready(want.cx, want.class, entry, true).await?;
    record.outcome(outcome, None);
    Ok(stored::ready(want.cx, ready, &hit_status(want, entry, from)))
}

/// Answers with a page that is still arriving: as it arrives or, if this client cannot read that form,
/// when it is complete. If it does not complete, the request is forwarded.
async fn coming(
    want: &WantedPage<'_>,
    head: &Arc<Entry>,
    reader: FlightReader,
    length: Option<u64>,
    status: &CacheStatus<'_>,
) -> Result<ClientResponse, Reason> {
    let (cx, recompressor) = (want.cx, &want.cx.worker.recompressor);
    match recompressor.live(want.class, &cx.head.headers, &head.fields) {
        ArrivingPage::AsItComes => {
            Ok(stored::stored(cx, head, status, Body::flight(reader, length)).into())
        }
        // A reader that is not polled holds up the others of the same fetch.
        ArrivingPage::Never => Err(Reason::Vary),
        ArrivingPage::Whole => {
            if !recompressor.arrival(reader).await {
                return Err(Reason::Vary);
            }
            let landed = want.in_memory();
            let page = landed.ok_or(Reason::Vary)?;
            want.suits(&page)?;
            let ready = content_coding::ready(cx, want.class, &page, true).await?;
            Ok(stored::ready(cx, ready, status))
        }
    }
}

/// Starts the one fetch of a page for no client in particular.
fn begin(
    want: &WantedPage<'_>,
    flight: Arc<Flight>,
    candidate: Option<&StaleCandidate>,
    background: Option<BackgroundSlot>,
) -> oneshot::Receiver<LeaderAnswer> {
    let order = order(want, &flight, candidate, background);
    want.cx.worker.filler.begin(flight, order)
}

fn order(
    want: &WantedPage<'_>,
    flight: &Flight,
    candidate: Option<&StaleCandidate>,
    background: Option<BackgroundSlot>,
) -> FillOrder {
    let cx = want.cx;
    let priority = match background {
        Some(_) => Priority::BACKGROUND,
        None => priority(cx, Some(&want.key)),
    };
    FillOrder {
        primary: want.key,
        class: want.class,
        request: origin_request::fill(cx, want.class, &flight.sent),
        route: Arc::clone(cx.route),
        loss: want.loss(),
        pattern: (!want.class.is_personal()).then(|| url_pattern::pattern(want)),
        network: network(cx.admitted.address),
        priority,
        origin_use: origin_use(cx, priority.class).kept(),
        person: personal::person(cx).filter(|_| want.class.is_personal()),
        personal_data: personal::personal_data(cx, want.class),
        stored: candidate
            .filter(|candidate| !is_gone(want, candidate))
            .map(|candidate| Arc::clone(&candidate.entry)),
        withhold: candidate.is_some_and(|candidate| candidate.serves_on_error),
        recipe: warm::kept_recipe(want),
        background,
    }
}

/// The reason that `Cache-Status` gives for asking the origin although a page may be stored.
fn why(want: &WantedPage<'_>, candidate: Option<&StaleCandidate>) -> Forward {
    match candidate {
        // A purged page is stale, however young it is.
        Some(candidate)
            if candidate.entry.is_fresh(unix_now() as u64)
                && want.cx.worker.pages.purged.is_current(&candidate.entry.purge_snapshot) =>
        {
            Forward::Request
        }
        Some(_) => Forward::Stale,
        None => Forward::UriMiss,
    }
}

/// Starts the fetch, and answers from it.
async fn lead(
    want: &WantedPage<'_>,
    flight: Arc<Flight>,
    candidate: Option<&StaleCandidate>,
    record: &mut RequestRecord,
) -> FetchResult {
    // The page may have been stored between the lookup and the join.
    if let Some(entry) = want.in_memory()
        && want.suits(&entry).is_ok()
        && want.directives.is_met_by(&entry, want.now())
    {
        EndGuard(flight).0.answer(&entry);
        return or_forward(hit(want, &entry, CacheTier::Memory, record).await);
    }
    record.asks_origin(Asking::Fill);
    let (cx, mut order) = (want.cx, order(want, &flight, candidate, None));
    // RFC 9110 §15.2: interim responses are passed on. Those who only wait for the page have asked nothing.
    let (state, thread_metrics) = (&cx.client.state, &cx.worker.thread_metrics);
    let early = interim::pass_on(&mut order.request, state, cx.head.version, thread_metrics);
    let led = cx.worker.filler.begin(flight, order).await;
    drop(early);
    record.origin_answered();
    match &led {
        // The store had the page of another proxy, and the origin was not asked.
        Ok(LeaderAnswer::Elsewhere(_)) => record.asks_origin(Asking::Another),
        Ok(LeaderAnswer::Failed(_)) | Err(_) => record.asks_origin(Asking::FailedFill),
        Ok(_) => {}
    }
    match led {
        Ok(LeaderAnswer::Shared(answer)) => {
            answer_as_it_comes(want, answer, why(want, candidate), record).await
        }
        Ok(LeaderAnswer::Landed(page)) => match want.is_answered_by(&page) {
            Ok(()) => {
                let mut status = CacheStatus::forwarded(why(want, candidate), None);
                status.stored = true;
                let answer = wait_for_visit(want, page, status).await;
                if answer.is_ok() {
                    record.outcome(Outcome::Miss, Some(Reason::Miss));
                }
                or_again(answer)
            }
            Err(again) => Err(NotFetched::Again(Reason::Vary, again)),
        },
        Ok(LeaderAnswer::Validated(entry)) => match want.is_answered_by(&entry) {
            Ok(()) => or_again(validated(want, entry, why(want, candidate), record).await),
            Err(again) => Err(NotFetched::Again(Reason::Vary, again)),
        },
        Ok(LeaderAnswer::Elsewhere(entry)) => match want.suits(&entry) {
            Ok(()) => or_forward(hit(want, &entry, CacheTier::Store, record).await),
            Err(reason) => Err(NotFetched::Forward(reason)),
        },
        Ok(LeaderAnswer::Own(received, reason)) => Ok(Answer::Uncached(*received, reason)),
        Ok(LeaderAnswer::Again(reason, why)) => Err(NotFetched::Again(reason, why)),
        Ok(LeaderAnswer::NotAsked(reason)) => Err(NotFetched::Forward(reason)),
        Ok(LeaderAnswer::Failed(error)) => Err(NotFetched::Failed(error.into())),
        Err(_) => Err(NotFetched::Forward(Reason::Origin)),
    }
}

/// Answers with the response to the request's own fetch, while it is still arriving.
async fn answer_as_it_comes(
    want: &WantedPage<'_>,
    SharedAnswer { head: entry, reader, length, stored, waits, cookies }: SharedAnswer,
    why: Forward,
    record: &mut RequestRecord,
) -> FetchResult {
    let cx = want.cx;
    // The response to a request with the visitor's session answers this request, as it came.
    let is_personal = want.class.is_personal();
    if let (false, Err(again)) = (is_personal, want.is_answered_by(&entry)) {
        // A reader that is not polled holds up the others of the same fetch.
        drop(reader);
        return Err(NotFetched::Again(Reason::Vary, again));
    }
    let mut status = CacheStatus::forwarded(why, waits.map(Reason::as_str));
    status.stored = stored;
    // A page that the leak guard still reads looks like one that it refuses: neither has a lifetime here.
    status.ttl = stored.then(|| entry.ttl(want.now()));
    let answer = match is_personal || waits.is_some() {
        true => {
            let body = Body::flight(reader, length);
            let mut answer = stored::stored(cx, &entry, &status, body);
            headers::give_cookies(cx, answer.headers_mut(), cookies);
            Ok(answer.into())
        }
        false => coming(want, &entry, reader, length, &status).await,
    };
    match answer {
        // The origin did not heed the codings that the client accepts.
        Err(reason) => Err(NotFetched::Again(reason, AskedAgain::Coding)),
        Ok(_) => {
            record.outcome(Outcome::Miss, Some(waits.unwrap_or(Reason::Miss)));
            begun(answer).await
        }
    }
}

/// Notes that the visitor's own request is sent after the fetch, whose response is not for this visitor. This is the only
/// way in which the origin gets a request twice.
fn note_again(want: &WantedPage<'_>, why: AskedAgain) {
    want.cx.worker.thread_metrics.asked_again(why);
    // The part or coding that a client wants, and what became of one stored page, say nothing of similar URLs.
    let is_of_this_request =
        matches!(why, AskedAgain::Range | AskedAgain::Coding | AskedAgain::NotModified);
    if !want.class.is_personal() && !is_of_this_request {
        let patterns = &want.cx.worker.pages.url_patterns;
        patterns.was_asked_again(url_pattern::pattern(want), why, want.now());
    }
}

/// Answers with a page that the origin has just validated.
async fn validated(
    want: &WantedPage<'_>,
    entry: Arc<Entry>,
    why: Forward,
    record: &mut RequestRecord,
) -> Result<ClientResponse, Reason> {
    let mut status = CacheStatus::forwarded(why, None);
    status.forwarded_status = Some(304);
    status.stored = true;
    let response = wait_for_visit(want, entry, status).await?;
    record.outcome(Outcome::Revalidated, None);
    Ok(response)
}

/// Answers with a page that has just been stored.
async fn wait_for_visit(
    want: &WantedPage<'_>,
    entry: Arc<Entry>,
    mut status: CacheStatus<'_>,
) -> Result<ClientResponse, Reason> {
    // Recoded forms belong to the page in memory, which may have been replaced in the meantime.
    let kept = want.in_memory();
    let kept = kept.filter(|kept| want.suits(kept).is_ok());
    let is_kept = kept.is_some();
    let entry = kept.unwrap_or(entry);
    let ready = content_coding::ready(want.cx, want.class, &entry, is_kept).await?;
    status.ttl = Some(entry.ttl(want.now()));
    Ok(stored::ready(want.cx, ready, &status))
}

/// Waits for the verdict on another request's fetch. If the fetch carries another user's session, the
/// wait is short and a failure has no consequence: an app may delay one user's request and answer the
/// others.
async fn verdict(want: &WantedPage<'_>, reader: &mut FlightReader) -> FlightVerdict {
    let verdict = match want.class {
        ShareClass::Segment => tokio::time::timeout(WAITS_FOR_ANOTHER, reader.verdict()).await,
        _ => Ok(reader.verdict().await),
    };
    match verdict {
        Ok(FlightVerdict::Failed(_)) if want.class.is_personal() => {
            FlightVerdict::Refused(Reason::Origin)
        }
        Ok(verdict) => verdict,
        Err(_) => FlightVerdict::Refused(Reason::Slow),
    }
}

/// Another request's fetch is for this one, too, and as urgent as the better of them. Returns the priority of this one, where
/// the origin keeps an order.
fn raise(want: &WantedPage<'_>, reader: &FlightReader) -> Option<Priority> {
    let priority = want.cx.upstream().keeps_order().then(|| priority(want.cx, Some(&want.key)));
    if let Some(priority) = priority {
        reader.raise(priority);
    }
    priority
}

/// Waits for another request's fetch.
async fn wait(
    want: &WantedPage<'_>,
    mut reader: FlightReader,
    record: &mut RequestRecord,
) -> FetchResult {
    let priority = raise(want, &reader);
    let may_ask_alone = priority.is_some_and(|priority| !priority.class.is_stranger());
    let (entry, length) = match verdict(want, &mut reader).await {
        FlightVerdict::Shared(entry, length) => (entry, Some(length)),
        FlightVerdict::Landed(page) => (page, None),
        FlightVerdict::Refused(reason) => return Err(NotFetched::Forward(reason)),
        // The request that began the fetch found no place where this one may.
        FlightVerdict::Failed(FlightFailure::Crowded) if may_ask_alone => {
            return Err(NotFetched::Forward(Reason::Crowded));
        }
        FlightVerdict::Failed(why) => return Err(NotFetched::Failed(Error::OriginShared(why))),
        FlightVerdict::Pending => return Err(NotFetched::Forward(Reason::Origin)),
    };
    if let Err(reason) = may_be_given(want, &reader, &entry) {
        // A reader that is not polled holds up the others of the same fetch.
        drop(reader);
        return Err(NotFetched::Forward(reason));
    }
    let mut status = CacheStatus::forwarded(Forward::UriMiss, None);
    status.collapsed = true;
    status.ttl = Some(entry.ttl(want.now()));
    let answer = match length {
        Some(length) => coming(want, &entry, reader, length, &status).await,
        None => {
            drop(reader);
            wait_for_visit(want, entry, status).await
        }
    };
    if answer.is_ok() {
        record.outcome(Outcome::HitFlight, None);
    }
    match begun(answer).await {
        // The other user's session may be the cause of the failure, and nothing has been sent to the
        // client yet.
        Err(NotFetched::Failed(_)) if want.class.is_personal() => {
            Err(NotFetched::Forward(Reason::Origin))
        }
        fetched => fetched,
    }
}

/// Whether a waiting request may use the page that arrived; the error is the reason to forward the
/// request.
fn may_be_given(want: &WantedPage<'_>, reader: &FlightReader, entry: &Entry) -> Result<(), Reason> {
    let same = variant_key(&want.key, &entry.vary, want.sent())
        == variant_key(&want.key, &entry.vary, reader.sent());
    // The page may have been purged by a tag that was not known to belong to it before.
    let is_old = !fault!("flight")
        && reader.is_later()
        && !want.cx.worker.pages.purged.is_current(&entry.purge_snapshot);
    match (same, is_old) {
        // The leak guard may have taken longer to read the page than the page stays fresh.
        (true, false) if !fault!("late") && !entry.is_fresh(want.now()) => Err(Reason::Stale),
        (true, false) => want.suits(entry),
        (true, true) => Err(Reason::Invalidated),
        (false, _) => Err(Reason::Vary),
    }
}
