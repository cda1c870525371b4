//! The messenger: tells a webhook of abandoned carts, one after the other.
//!
//! What is told waits in the store, and is removed when the receiver has answered 2xx. So a crash, or a
//! receiver that is away, loses nothing; an event whose answer was lost is told again under the same id.

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use ::http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use bytes::Bytes;

use super::{Next, Task};
use crate::clock::unix_now;
use crate::http::signature::{self, OF_EVENT};
use crate::metrics::{Count, Sheet};
use crate::origin::{Keep, Origin, OriginError, OriginResponse, Outgoing};
use crate::store::{AnyStore, EventStore as _, Expired, StoreError, WaitingEvent};

/// `Anteroom-Event`: what tells an event from all others.
const EVENT: HeaderName = HeaderName::from_static("anteroom-event");
/// For how long a process that delivers keeps others from it; it asks again thrice as often.
const TURN: Duration = Duration::from_secs(5);
/// How long a receiver may take for an event, from connecting to its whole answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// What of an answer is read, so that its connection can carry the next event. More ends it.
const ANSWER_MAX: usize = 16 << 10;
/// The first and the longest pause after an event was not taken.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
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
    /// The key of the signature.
    pub secret: WebhookSecret,
}

/// The key with which events are signed.
pub struct WebhookSecret(pub Vec<u8>);

impl std::fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookSecret(…)")
    }
}

/// Since when events are not taken, and until when nothing is tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Refusals {
    in_a_row: u32,
    until: Option<Instant>,
}

/// Why an event was not taken.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the answer was {0}")]
    Status(StatusCode),
    #[error("no answer within {PATIENCE:?}")]
    TooLate,
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
            OriginError::Tls(error) => Self::NoTls(error),
            error if error.timed_out() => Self::TooLate,
            _ => Self::Broken,
        }
    }
}

impl Webhook {
    fn request(&self, expired: &Expired, now: u64) -> Option<Request<Outgoing>> {
        let body = Bytes::from(expired.to_json().to_string());
        let signature = signature::of_body(&self.secret.0, &body, now)?;
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
        let telling = async {
            let came = self.receiver.send(request, Keep::Pool(None)).await?;
            let status = came.response.status();
            pass_over(came).await;
            Ok(status)
        };
        match tokio::time::timeout(PATIENCE, telling).await {
            Ok(Ok(status)) if status.is_success() => Ok(()),
            // A redirection, too: the cart is for the receiver that was named, and for nobody else.
            Ok(Ok(status)) => Err(Refused::Status(status)),
            Ok(Err(error)) => Err(error),
            Err(_elapsed) => Err(Refused::TooLate),
        }
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
            if let Err(error) = self.store.take_delivery(self.who, TURN).await {
                tracing::debug!(%error, "the turn may end");
            }
        }
    }

    fn rests(&self, now: Instant) -> bool {
        self.refusals.get().until.is_some_and(|until| now < until)
    }

    /// An event was not taken: nothing is tried for a while. Said when it begins.
    fn refuse(&self, refusal: &Refused, now: Instant) {
        self.sheet.count(Count::CartEventsFailed);
        let Refusals { in_a_row, .. } = self.refusals.get();
        let receiver = self.webhook.host.to_str().unwrap_or_default();
        if in_a_row == 0 {
            tracing::warn!(receiver, %refusal, "abandoned carts wait for their webhook");
        } else {
            tracing::debug!(receiver, %refusal, "abandoned carts still wait for their webhook");
        }
        let (first, longest) = BACK_OFF;
        let pause = (first * (1 << in_a_row.min(8))).min(longest);
        // Of several proxies not all at one time.
        let until = Some(now + pause.mul_f64(0.5 + fastrand::f64() / 2.0));
        self.refusals.set(Refusals { in_a_row: in_a_row.saturating_add(1), until });
    }

    /// An event was taken. Said when that had not gone for a while.
    fn resume(&self) {
        self.sheet.count(Count::CartEventsDelivered);
        if self.refusals.take().in_a_row > 0 {
            tracing::info!("abandoned carts reach their webhook again");
        }
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
        if !is_free || !self.store.take_delivery(self.who, TURN).await? {
            return Ok(Next::Idle);
        }
        // Not before: another process may have told it just now.
        let Some(event) = self.store.first_event().await? else { return Ok(Next::Idle) };
        match self.tell(&event).await {
            Ok(()) => {
                self.store.remove_event(&event).await?;
                self.resume();
                return Ok(Next::Again);
            }
            Err(refused @ Refused::NoEvent) => {
                self.sheet.count(Count::CartEventsDropped);
                tracing::warn!(%refused, "it is removed");
                self.store.remove_event(&event).await?;
                return Ok(Next::Again);
            }
            Err(refused) => {
                self.refuse(&refused, Instant::now());
                // One that its receiver cannot take does not hold up the others.
                if matches!(refused, Refused::Status(_)) {
                    self.store.put_back_event(&event).await?;
                }
            }
        }
        Ok(Next::Idle)
    }

    async fn rest(&self) {
        tokio::time::sleep(EVERY).await;
    }
}
