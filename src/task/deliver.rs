//! The messenger: tells a webhook of abandoned carts, one after the other.
//!
//! What is told waits in the store, and is removed when the receiver has answered 2xx. So a crash, or a
//! receiver that is away, loses nothing; an event whose answer was lost is told again under the same id.
//!
//! A receiver that is away, or says that it cannot just now, is left alone for a while. One that does not
//! want an event, or always fails with it, is told of the others meanwhile, and is spared that event in the
//! end. While it takes no other, it may be away, and is spared nothing.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::http::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use bytes::Bytes;

use super::{Next, Task};
use crate::clock::unix_now;
use crate::http::date;
use crate::http::signature::{self, OF_EVENT};
use crate::origin::{Keep, Origin, OriginError, OriginResponse, Outgoing};
use crate::store::{
    AnyStore, EventStore as _, Expired, LeaseStore as _, Noted, StoreError, TaskLease, WaitingEvent,
};
use crate::telemetry::metrics::{Count, Sheet};

/// `Anteroom-Event`: what tells an event from all others.
const EVENT: HeaderName = HeaderName::from_static("anteroom-event");
/// For how long a process that delivers keeps others from it; it asks again thrice as often.
const TURN: Duration = Duration::from_secs(5);
/// How long a receiver may take for an event, from connecting to the head of its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the rest of an answer may take. What it says interests nobody.
const BODY_PATIENCE: Duration = Duration::from_secs(1);
/// What of an answer is read, so that its connection can carry the next event. More ends it.
const ANSWER_MAX: usize = 16 << 10;
/// The first and the longest pause after an event was not taken.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The longest pause that a receiver may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);
/// How many events in a row may be refused without a pause.
const ROUND_MAX: u64 = 1_000;
/// For how long the receiver may refuse an event, or fail with it alone, until it is given up, in seconds.
const REFUSED_MAX: f64 = 3.0 * 86_400.0;
/// How often it must have failed with it behind another that it took: a few times are chance.
const BEHIND_MIN: u32 = 10;
/// How often it is looked whether an event waits.
const EVERY: Duration = Duration::from_millis(500);

/// Tells a webhook of abandoned carts.
#[derive(Debug)]
pub struct Deliver {
    /// The store.
    pub store: AnyStore,
    /// Who is told.
    pub webhook: Webhook,
    /// This process, as the turns know it.
    pub who: u64,
    /// How many events wait, as it was last seen.
    pub waiting: Arc<AtomicU64>,
    /// Counters.
    pub sheet: Arc<Sheet>,
    /// What went wrong lately.
    pub refusals: Cell<Refusals>,
    /// The Unix time at which the receiver took an event last, as far as this process knows.
    pub taken: Cell<Option<f64>>,
    /// The event that the store has to be rid of: done with, whatever became of it.
    pub done: RefCell<Option<WaitingEvent>>,
}

/// Who is told of abandoned carts.
#[derive(Debug)]
pub struct Webhook {
    /// As this thread reaches it.
    pub receiver: Rc<Origin>,
    /// The Host that it gets, by which the log calls it, too.
    pub host: HeaderValue,
    /// Path and query.
    pub target: Uri,
    /// The keys of the signatures.
    pub keys: WebhookKeys,
}

/// The keys with which events are signed, with each of them.
pub struct WebhookKeys(pub Vec<Vec<u8>>);

impl std::fmt::Debug for WebhookKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookKeys(…)")
    }
}

/// Since when events are not taken, and until when nothing is tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Refusals {
    /// Pauses since an event was taken.
    in_a_row: u32,
    /// Events that were refused since the last pause, each with no hope for a better time.
    in_a_round: u64,
    until: Option<Instant>,
}

/// Why an event was not taken.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the answer was {0}")]
    Status(StatusCode, Option<Duration>),
    #[error("no answer within {PATIENCE:?}")]
    TooLate,
    #[error("no connection in time")]
    Unconnected,
    #[error("no connection: {0}")]
    Unreached(std::io::Error),
    #[error("no TLS: {0}")]
    NoTls(std::io::Error),
    #[error("it broke off, or its answer is malformed")]
    Broken,
    #[error("what waits is no event of ours")]
    NoEvent,
}

impl From<OriginError> for Refused {
    fn from(error: OriginError) -> Self {
        match error {
            OriginError::Connect(error) => Self::Unreached(error),
            OriginError::ConnectTimedOut => Self::Unconnected,
            OriginError::Tls(error) => Self::NoTls(error),
            error if error.timed_out() => Self::TooLate,
            _ => Self::Broken,
        }
    }
}

impl Refused {
    /// Whether it may be this event that is not taken, so that another may be.
    fn may_be_of_the_event(&self) -> bool {
        match self {
            Self::Unconnected | Self::Unreached(_) | Self::NoTls(_) => false,
            Self::Status(..) | Self::TooLate | Self::Broken | Self::NoEvent => true,
        }
    }

    /// Whether it was answered, and the same answer is to be expected at another time.
    fn is_for_good(&self) -> bool {
        let Self::Status(status, _) = self else { return false };
        let asks_for_patience = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
        !status.is_server_error() && !asks_for_patience.contains(status)
    }

    /// The pause that the receiver asked for.
    fn pause(&self) -> Duration {
        match self {
            Self::Status(_, Some(pause)) => (*pause).min(RETRY_AFTER_MAX),
            _ => Duration::ZERO,
        }
    }
}

/// How long a `Retry-After` asks for from `now` on, in Unix time: it is a number of seconds, or a date
/// (RFC 9110 §10.2.3). A date that is over asks for nothing.
fn retry_after(headers: &HeaderMap, now: u64) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.as_bytes();
    let seconds = if !value.is_empty() && value.iter().all(u8::is_ascii_digit) {
        // More than fits is as good as for ever: what is kept of it has a bound.
        std::str::from_utf8(value).ok()?.parse().unwrap_or(u64::MAX)
    } else {
        date::parse(value, now)?.saturating_sub(now)
    };
    Some(Duration::from_secs(seconds))
}

impl Webhook {
    fn request(&self, expired: &Expired, now: u64) -> Option<Request<Outgoing>> {
        let body = Bytes::from(expired.to_json().to_string());
        let signature = signature::of_body(&self.keys.0, &body, now)?;
        let event = HeaderValue::try_from(expired.event()).ok()?;
        let mut request = Request::new(Outgoing::Ours(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.target.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(USER_AGENT, HeaderValue::from_static("anteroom-webhook"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(&OF_EVENT, signature);
        headers.insert(EVENT, event);
        Some(request)
    }

    async fn tell(&self, event: &WaitingEvent) -> Result<(), Refused> {
        let expired = event.expired.as_ref().ok_or(Refused::NoEvent)?;
        let request = self.request(expired, unix_now() as u64).ok_or(Refused::NoEvent)?;
        // Connecting has a shorter limit of its own: who is late here was reached.
        let answer = tokio::time::timeout(PATIENCE, self.receiver.send(request, Keep::Pool(None)));
        let came = answer.await.map_err(|_elapsed| Refused::TooLate)??;
        let status = came.response.status();
        let retry_after = retry_after(came.response.headers(), unix_now() as u64);
        // The head has said all. An answer that does not end costs its connection, and nothing else.
        if tokio::time::timeout(BODY_PATIENCE, pass_over(came)).await.is_err() {
            tracing::debug!("the webhook's answer has no end");
        }
        if status.is_success() {
            return Ok(());
        }
        // A redirection, too: the cart is for the receiver that was named, and for nobody else.
        Err(Refused::Status(status, retry_after))
    }
}

/// Reads what an answer says, which interests nobody, as far as that is little.
async fn pass_over(came: OriginResponse) {
    let (mut body, mut read) = (came.response.into_body(), 0);
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > ANSWER_MAX {
            return;
        }
    }
}

impl Deliver {
    /// Tells of the first event, and keeps the turn meanwhile.
    async fn tell(&self, event: &WaitingEvent) -> Result<(), Refused> {
        tokio::select! {
            told = self.webhook.tell(event) => told,
            never = self.keep_turn() => match never { },
        }
    }

    async fn keep_turn(&self) -> Infallible {
        loop {
            tokio::time::sleep(TURN / 3).await;
            if let Err(error) = self.store.take_lease(TaskLease::Deliverer, self.who, TURN).await {
                tracing::debug!(%error, "the turn may end");
            }
        }
    }

    fn rests(&self, now: Instant) -> bool {
        self.refusals.get().until.is_some_and(|until| now < until)
    }

    /// An event was not taken. Says whether the next may be tried at once: where it is a matter of this
    /// one, until as many as wait were refused.
    fn refuse(&self, refusal: &Refused, waiting: u64) -> bool {
        self.sheet.count(Count::CartEventsFailed);
        let mut refusals = self.refusals.get();
        if refusal.is_for_good() {
            refusals.in_a_round += 1;
            self.refusals.set(refusals);
            if refusals.in_a_round < waiting.min(ROUND_MAX) {
                return true;
            }
        }
        self.pause(refusal, refusal.pause());
        false
    }

    /// Nothing is tried for a while, and for this long at least. Said when it begins.
    fn pause(&self, why: &dyn std::fmt::Display, least: Duration) {
        let Refusals { in_a_row, .. } = self.refusals.get();
        let receiver = self.webhook.host.to_str().unwrap_or_default();
        if in_a_row == 0 {
            tracing::warn!(receiver, %why, "abandoned carts wait for their webhook");
        } else {
            tracing::debug!(receiver, %why, "abandoned carts still wait for their webhook");
        }
        let (first, longest) = BACK_OFF;
        let pause = (first * (1 << in_a_row.min(8))).min(longest);
        // Of several proxies not all at one time.
        let pause = pause.mul_f64(0.5 + fastrand::f64() / 2.0).max(least);
        let until = Some(Instant::now() + pause);
        let in_a_row = in_a_row.saturating_add(1);
        self.refusals.set(Refusals { in_a_row, in_a_round: 0, until });
    }

    /// The store is to be rid of it. Where that fails, nothing else is done until it works: so nothing is told
    /// over and over that the receiver has.
    async fn be_done_with(&self, event: WaitingEvent) -> Result<(), StoreError> {
        let removed = self.store.remove_event(&event).await;
        if let Err(error) = &removed {
            self.pause(error, Duration::ZERO);
            self.done.replace(Some(event));
        }
        removed
    }

    /// Puts a refused event behind all others, or gives it up when that was refused for too long. Not even
    /// where that fails is it tried again at once.
    async fn put_off(&self, event: WaitingEvent, refusal: &Refused) -> Result<(), StoreError> {
        let now = unix_now();
        let noted = if refusal.is_for_good() {
            Noted::Refused { now }
        } else {
            Noted::Failed { now, is_behind: self.is_behind_another(&event) }
        };
        if is_given_up(&event, noted) {
            self.sheet.count(Count::CartEventsGivenUp);
            let name = event.expired.as_ref().map(Expired::event);
            tracing::warn!(event = name, %refusal, "an abandoned cart is given up: it was not taken for days");
            return self.be_done_with(event).await;
        }
        let put_back = self.store.put_back_event(&event, Some(noted)).await;
        if let Err(error) = &put_back {
            self.pause(error, Duration::ZERO);
        }
        put_back
    }

    /// Whether the receiver has taken another event since it failed with this one before, so that it is not
    /// away.
    fn is_behind_another(&self, event: &WaitingEvent) -> bool {
        event.failed.zip(self.taken.get()).is_some_and(|(failed, taken)| taken > failed.last)
    }

    /// An event was taken. Said when that had not gone for a while.
    fn resume(&self) {
        self.taken.set(Some(unix_now()));
        self.sheet.count(Count::CartEventsDelivered);
        if self.refusals.take().in_a_row > 0 {
            tracing::info!("abandoned carts reach their webhook again");
        }
    }
}

/// Whether an event that was not taken again is given up: where the receiver has refused it for too long; or
/// has failed with it for as long and time and again, and takes others.
fn is_given_up(event: &WaitingEvent, noted: Noted) -> bool {
    match noted {
        Noted::Refused { now } => event.refused.is_some_and(|first| now - first > REFUSED_MAX),
        Noted::Failed { now, is_behind } => event.failed.is_some_and(|failed| {
            is_behind && failed.behind >= BEHIND_MIN && now - failed.first > REFUSED_MAX
        }),
    }
}

impl Drop for Deliver {
    /// Who tells nobody any more knows nothing of what waits.
    fn drop(&mut self) {
        self.waiting.store(0, Ordering::Relaxed);
    }
}

impl Task for Deliver {
    const NAME: &'static str = "deliver";
    /// What was not told to the end is told again.
    const DROPPED_AT_STOP: bool = true;

    async fn step(&self) -> Result<Next, StoreError> {
        let waiting = self.store.events_waiting().await?;
        self.waiting.store(waiting, Ordering::Relaxed);
        let is_free = waiting > 0 && !self.rests(Instant::now());
        if !is_free || !self.store.take_lease(TaskLease::Deliverer, self.who, TURN).await? {
            return Ok(Next::Idle);
        }
        let done = self.done.take();
        if let Some(event) = done {
            self.be_done_with(event).await?;
            return Ok(Next::Again);
        }
        // Not before: another process may have told it just now.
        let Some(event) = self.store.first_event().await? else { return Ok(Next::Idle) };
        match self.tell(&event).await {
            Ok(()) => {
                self.resume();
                self.be_done_with(event).await?;
                Ok(Next::Again)
            }
            Err(refused @ Refused::NoEvent) => {
                self.sheet.count(Count::CartEventsDropped);
                tracing::warn!(%refused, "it is removed");
                self.be_done_with(event).await?;
                Ok(Next::Again)
            }
            Err(refused) => {
                let goes_on = self.refuse(&refused, waiting);
                // One that its receiver cannot take does not hold up the others.
                if refused.may_be_of_the_event() {
                    self.put_off(event, &refused).await?;
                }
                Ok(if goes_on { Next::Again } else { Next::Idle })
            }
        }
    }

    async fn rest(&self) {
        tokio::time::sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_asks_for_time_in_seconds_or_until_a_date() {
        // Sun, 06 Nov 1994 08:49:37 GMT
        const NOW: u64 = 784_111_777;
        for (value, asked) in [
            ("0", Some(0)),
            ("120", Some(120)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:51:37 GMT", Some(120)),
            ("Sunday, 06-Nov-94 08:51:37 GMT", Some(120)),
            ("Sun Nov  6 08:51:37 1994", Some(120)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sat, 05 Nov 1994 08:49:37 GMT", Some(0)),
            ("", None),
            ("-1", None),
            ("+5", None),
            ("soon", None),
            ("Sun, 06 Nov 1994 08:51:37", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
            assert_eq!(retry_after(&headers, NOW), asked.map(Duration::from_secs), "{value}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), NOW), None);
        let refused = Refused::Status(StatusCode::TOO_MANY_REQUESTS, Some(Duration::MAX));
        assert_eq!(refused.pause(), RETRY_AFTER_MAX);
    }
}
