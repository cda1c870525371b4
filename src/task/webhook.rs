//! The deliverer: sends abandoned carts to a webhook, one after the other.
//!
//! Events wait in the store, and are removed when the receiver has answered 2xx. So a crash, or a
//! receiver that is away, loses nothing; an event whose answer was lost is sent again under the
//! same id.
//!
//! A receiver that is away, or temporarily unavailable, gets nothing for a while. If it refuses one
//! event, or always fails with it, it gets the others meanwhile, and in the end that event is
//! dropped. While it takes no other, it may be away, and nothing is dropped.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::http::{HeaderName, HeaderValue, Request, StatusCode};
use anteroom_http::clock::unix_now;
use anteroom_http::signature::{self, OF_EVENT};
use anteroom_origin::UploadBody;
use anteroom_store::{
    AnyStore, DeliveryFailure, EventStore as _, ExpiredSession, LeaseStore as _, StoreError,
    TaskLease, WaitingEvent,
};
use anteroom_telemetry::message_log::EACH;
use anteroom_telemetry::metrics::{Count, ThreadMetrics};
use bytes::Bytes;

use super::receiver::{Receiver, ReceiverError, TIMEOUT, back_off};
use super::{NextStep, Task};

/// `Anteroom-Event`: the id of an event.
const EVENT: HeaderName = HeaderName::from_static("anteroom-event");
/// How long a process that delivers holds the lease; it renews it three times as often.
const TURN: Duration = Duration::from_secs(5);
/// How long the rest of an answer may take. Its content is ignored.
const BODY_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest pause after an event was not taken.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The longest pause that a receiver may request.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);
/// How many events in a row may be refused without a pause.
const ROUND_MAX: u64 = 1_000;
/// How long the receiver may refuse an event, or fail with it alone, until it is dropped, in
/// seconds.
const REFUSED_MAX: f64 = 3.0 * 86_400.0;
/// How often it must have failed with it after it took another: a few times are chance.
const BEHIND_MIN: u32 = 10;
/// How often the queue is checked for an event.
const EVERY: Duration = Duration::from_millis(500);

/// Sends abandoned carts to a webhook.
#[derive(Debug)]
pub struct Deliver {
    /// The store.
    pub store: AnyStore,
    /// The receiver.
    pub webhook: Webhook,
    /// The id of this process in the lease.
    pub process_id: u64,
    /// How many events wait, as last seen.
    pub waiting: Arc<AtomicU64>,
    /// Counters.
    pub thread_metrics: Arc<ThreadMetrics>,
    /// Recent failures.
    pub refusals: Cell<WebhookPause>,
    /// The Unix time at which the receiver last took an event, as far as this process knows.
    pub taken: Cell<Option<f64>>,
    /// The event to remove from the store: it is finished, delivered or dropped.
    pub done: RefCell<Option<WaitingEvent>>,
}

/// The receiver of abandoned carts.
#[derive(Debug)]
pub struct Webhook {
    /// How to reach it.
    pub receiver: Receiver,
    /// The keys of the signatures.
    pub keys: WebhookKeys,
}

/// The keys of the signatures: each event is signed with each key.
pub struct WebhookKeys(pub Vec<Vec<u8>>);

impl std::fmt::Debug for WebhookKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookKeys(…)")
    }
}

/// Since when events are not taken, and until when nothing is tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct WebhookPause {
    /// Pauses since an event was taken.
    in_a_row: u32,
    /// Events that were refused for good since the last pause.
    in_a_round: u64,
    until: Option<Instant>,
}

/// Whether the receiver answered, and the same answer is to be expected at another time.
fn is_for_good(refusal: &ReceiverError) -> bool {
    let ReceiverError::Status(status, _) = refusal else { return false };
    let is_temporary = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
    !status.is_server_error() && !is_temporary.contains(status)
}

impl Webhook {
    /// The request that reports an event. `None`: what was queued is not one.
    fn request(&self, event: &WaitingEvent, now: u64) -> Option<Request<UploadBody>> {
        let expired = event.expired.as_ref()?;
        let body = Bytes::from(expired.to_json().to_string());
        let signature = signature::of_body(&self.keys.0, &body, now)?;
        let event = HeaderValue::try_from(expired.event()).ok()?;
        let mut request = self.receiver.request("anteroom-webhook", body);
        let headers = request.headers_mut();
        headers.insert(&OF_EVENT, signature);
        headers.insert(EVENT, event);
        Some(request)
    }

    async fn deliver(&self, request: Request<UploadBody>) -> Result<(), ReceiverError> {
        // Connecting has a shorter timeout of its own: a timeout here is of a receiver that was
        // reached.
        let answer = tokio::time::timeout(TIMEOUT, self.receiver.send(request));
        let answer = answer.await.map_err(|_elapsed| ReceiverError::TooLate)??;
        let (status, retry_after) = (answer.status, answer.retry_after);
        // The head is enough. An answer that does not end costs its connection, and nothing else.
        if tokio::time::timeout(BODY_TIMEOUT, answer.read()).await.is_err() {
            tracing::debug!("the webhook's answer is too long or too slow: closing its connection");
        }
        if status.is_success() {
            return Ok(());
        }
        // A redirection, too: the cart is for the configured receiver only.
        Err(ReceiverError::Status(status, retry_after))
    }
}

impl Deliver {
    /// Sends an event, and keeps the lease meanwhile.
    async fn deliver(&self, request: Request<UploadBody>) -> Result<(), ReceiverError> {
        tokio::select! {
            sent = self.webhook.deliver(request) => sent,
            never = self.keep_turn() => match never { },
        }
    }

    async fn keep_turn(&self) -> Infallible {
        loop {
            tokio::time::sleep(TURN / 3).await;
            if let Err(error) =
                self.store.take_lease(TaskLease::Deliverer, self.process_id, TURN).await
            {
                tracing::debug!(%error, "the lease cannot be renewed");
            }
        }
    }

    fn rests(&self, now: Instant) -> bool {
        self.refusals.get().until.is_some_and(|until| now < until)
    }

    /// An event was not taken. Returns whether the next may be tried at once: if the failure
    /// concerns this event, until as many as wait were refused.
    fn refuse(&self, refusal: &ReceiverError, waiting: u64) -> bool {
        self.thread_metrics.count(Count::CartEventsFailed);
        let mut refusals = self.refusals.get();
        if is_for_good(refusal) {
            refusals.in_a_round += 1;
            self.refusals.set(refusals);
            if refusals.in_a_round < waiting.min(ROUND_MAX) {
                return true;
            }
        }
        self.pause(refusal, refusal.requested_pause(RETRY_AFTER_MAX));
        false
    }

    /// Pauses for a while, and at least for this long. Logged when it begins.
    fn pause(&self, why: &dyn std::fmt::Display, least: Duration) {
        let WebhookPause { in_a_row, .. } = self.refusals.get();
        let receiver = self.webhook.receiver.name();
        if in_a_row == 0 {
            tracing::warn!(receiver, %why, "abandoned carts wait: the webhook does not accept them");
        } else {
            tracing::debug!(receiver, %why, "abandoned carts still wait: the webhook does not accept them");
        }
        let pause = back_off(in_a_row, PAUSE_MAX).max(least);
        let until = Some(Instant::now() + pause);
        let in_a_row = in_a_row.saturating_add(1);
        self.refusals.set(WebhookPause { in_a_row, in_a_round: 0, until });
    }

    /// Removes the event from the store. If that fails, nothing else is done until it works: so a
    /// delivered event is not sent again and again.
    async fn be_done_with(&self, event: WaitingEvent) -> Result<(), StoreError> {
        let removed = self.store.remove_event(&event).await;
        if let Err(error) = &removed {
            self.pause(error, Duration::ZERO);
            self.done.replace(Some(event));
        }
        removed
    }

    /// Moves a refused event behind all others, or drops it when it was refused for too long. Even
    /// if that fails it is not tried again at once.
    async fn put_off(
        &self,
        event: WaitingEvent,
        refusal: &ReceiverError,
    ) -> Result<(), StoreError> {
        let now = unix_now();
        let noted = if is_for_good(refusal) {
            DeliveryFailure::Refused { now }
        } else {
            DeliveryFailure::Failed { now, is_behind: self.is_behind_another(&event) }
        };
        if is_given_up(&event, noted) {
            self.thread_metrics.count(Count::CartEventsGivenUp);
            let name = event.expired.as_ref().map(ExpiredSession::event);
            tracing::warn!(target: EACH, event = name, %refusal, "an abandoned cart is dropped: the webhook did not accept it for days");
            return self.be_done_with(event).await;
        }
        let put_back = self.store.put_back_event(&event, Some(noted)).await;
        if let Err(error) = &put_back {
            self.pause(error, Duration::ZERO);
        }
        put_back
    }

    /// Whether the receiver has taken another event since the last failure with this one, so that
    /// it is not away.
    fn is_behind_another(&self, event: &WaitingEvent) -> bool {
        event.failed.zip(self.taken.get()).is_some_and(|(failed, taken)| taken > failed.last)
    }

    /// An event was taken. Logged after failures.
    fn resume(&self) {
        self.taken.set(Some(unix_now()));
        self.thread_metrics.count(Count::CartEventsDelivered);
        if self.refusals.take().in_a_row > 0 {
            tracing::info!("abandoned carts reach their webhook again");
        }
    }
}

/// Whether a refused event is dropped: if the receiver has refused it for too long; or has failed
/// with it for as long and repeatedly, and takes others.
fn is_given_up(event: &WaitingEvent, noted: DeliveryFailure) -> bool {
    match noted {
        DeliveryFailure::Refused { now } => {
            event.refused.is_some_and(|first| now - first > REFUSED_MAX)
        }
        DeliveryFailure::Failed { now, is_behind } => event.failed.is_some_and(|failed| {
            is_behind && failed.behind >= BEHIND_MIN && now - failed.first > REFUSED_MAX
        }),
    }
}

impl Drop for Deliver {
    /// A process that no longer delivers does not know how many wait.
    fn drop(&mut self) {
        self.waiting.store(0, Ordering::Relaxed);
    }
}

impl Task for Deliver {
    const NAME: &'static str = "deliver";
    /// An unfinished delivery is repeated.
    const DROPPED_AT_STOP: bool = true;

    async fn step(&self) -> Result<NextStep, StoreError> {
        let waiting = self.store.events_waiting().await?;
        self.waiting.store(waiting, Ordering::Relaxed);
        let is_free = waiting > 0 && !self.rests(Instant::now());
        if !is_free || !self.store.take_lease(TaskLease::Deliverer, self.process_id, TURN).await? {
            return Ok(NextStep::Idle);
        }
        let done = self.done.take();
        if let Some(event) = done {
            self.be_done_with(event).await?;
            return Ok(NextStep::Again);
        }
        // Only under the lease: another process may have just delivered it.
        let Some(event) = self.store.first_event().await? else { return Ok(NextStep::Idle) };
        let Some(request) = self.webhook.request(&event, unix_now() as u64) else {
            self.thread_metrics.count(Count::CartEventsDropped);
            tracing::warn!("an invalid record is removed from the queue");
            self.be_done_with(event).await?;
            return Ok(NextStep::Again);
        };
        match self.deliver(request).await {
            Ok(()) => {
                self.resume();
                self.be_done_with(event).await?;
                Ok(NextStep::Again)
            }
            Err(refused) => {
                let goes_on = self.refuse(&refused, waiting);
                // An event that its receiver cannot take does not delay the others.
                if refused.may_have_reached() {
                    self.put_off(event, &refused).await?;
                }
                Ok(if goes_on { NextStep::Again } else { NextStep::Idle })
            }
        }
    }

    async fn rest(&self) {
        tokio::time::sleep(EVERY).await;
    }
}
