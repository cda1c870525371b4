//! The figures each second, as server-sent events for the dashboard.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use ::http::StatusCode;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval};

use super::reply::{AdminResponse, content, refusal};

/// How often a reader gets the figures.
const EVERY: Duration = Duration::from_secs(1);
/// An event that is older is made again; below [`EVERY`], for readers' seconds do not begin together.
const YOUNG: Duration = Duration::from_millis(900);
/// How long a stream lasts. A browser then asks again, and shows again that it may.
const LASTS: Duration = Duration::from_secs(50);
/// The most streams at once. Each holds one of the listener's connections.
const STREAMS_MAX: usize = 32;
/// Before the first event: how soon a browser asks again, in milliseconds.
const RETRY: &str = "retry: 500\n\n";

/// What all streams share.
#[derive(Debug, Default)]
pub(super) struct EventStreams {
    open: Rc<Cell<usize>>,
    /// The last event, and when it was made.
    last: RefCell<Option<(Instant, Bytes)>>,
}

/// Counts a stream as open.
struct OpenStream(Rc<Cell<usize>>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl EventStreams {
    /// A response that tells each second what `figures` makes, as JSON.
    pub(super) fn stream(self: &Rc<Self>, figures: impl Fn() -> String + 'static) -> AdminResponse {
        if self.open.get() >= STREAMS_MAX {
            let why = "too many dashboards are open: close some, or wait a minute";
            return refusal(StatusCode::SERVICE_UNAVAILABLE, why);
        }
        self.open.set(self.open.get() + 1);
        let place = OpenStream(Rc::clone(&self.open));
        let (events, receiver) = mpsc::channel(1);
        let streams = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let _place = place;
            let sent = tokio::time::timeout(LASTS, streams.send(&figures, &events)).await;
            tracing::trace!(ended = sent.is_ok(), "a stream of figures is over");
        });
        let body = stream::unfold(receiver, |mut receiver: mpsc::Receiver<Bytes>| async move {
            let event = receiver.recv().await?;
            Some((Ok::<_, Infallible>(Frame::data(event)), receiver))
        });
        let mut response = content(StatusCode::OK, "text/event-stream", "");
        *response.body_mut() = StreamBody::new(body).boxed_unsync();
        response
    }

    /// Sends the figures until the reader is gone.
    async fn send(&self, figures: &impl Fn() -> String, events: &mpsc::Sender<Bytes>) {
        let mut ticks = interval(EVERY);
        if events.send(Bytes::from_static(RETRY.as_bytes())).await.is_err() {
            return;
        }
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = events.closed() => return,
            }
            if events.send(self.event(figures)).await.is_err() {
                return;
            }
        }
    }

    /// The event with the figures of this second, made once for all readers.
    fn event(&self, figures: &impl Fn() -> String) -> Bytes {
        let mut last = self.last.borrow_mut();
        if let Some((made, event)) = &*last
            && made.elapsed() < YOUNG
        {
            return event.clone();
        }
        let event = Bytes::from(format!("data: {}\n\n", figures()));
        *last = Some((Instant::now(), event.clone()));
        event
    }
}
