//! A request's body on its way to the origin: none, one made by the proxy, or the client's as it arrives.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::http::HeaderMap;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use super::error::BodyFault;
use super::progress::UploadProgress;

/// A request's body as it arrives from the client; `None`: there is none.
pub type RequestBody = Option<Incoming>;

/// hyper's body, unless it has ended already.
#[must_use]
pub fn unless_ended(body: Incoming) -> RequestBody {
    Some(body).filter(|body| !body.is_end_stream())
}

/// A body towards the origin.
#[derive(Debug)]
pub enum UploadBody {
    /// No body.
    Empty,
    /// A body made by the proxy, sent at once.
    Ours(Bytes),
    /// The client's body, as it arrives. PERF: boxed, because most requests have none, and each moves through
    /// several layers.
    Upload(Box<Upload>),
}

/// Observes the parts of a body as they pass.
pub type BodyTap = Box<dyn Fn(&Bytes)>;

/// A client's body with its limits. It reports its state through `UploadProgress`.
pub struct Upload {
    body: Incoming,
    stall: Duration,
    left: u64,
    timer: Option<Pin<Box<Sleep>>>,
    progress: Rc<UploadProgress>,
    filter: Box<dyn Fn(&mut HeaderMap)>,
    /// Observes the body as it passes.
    tap: Option<BodyTap>,
    /// Where the upload records how far it was read.
    read: Option<Rc<Cell<BodyReadState>>>,
    /// Its hold on a shared connection.
    hold: Option<UploadHold>,
    /// Whether the body is an HTTP/2 stream, which marks its own end.
    is_stream: bool,
    /// The bytes that complete it, held back until the end arrives.
    last: Option<Bytes>,
    /// Trailers that arrived after them.
    trailers: Option<Box<Frame<Bytes>>>,
}

/// A connection that an upload shares with others, as the upload sees it. Dropping it frees its place on the
/// connection.
pub(super) trait SharedConnection: std::fmt::Debug {
    /// hyper polls the upload for the first time.
    fn begins(&self, upload: &Rc<UploadProgress>);

    /// The upload is over.
    fn ends(&self, upload: &Rc<UploadProgress>);
}

/// An upload's hold on the connection that carries it.
#[derive(Debug)]
pub(super) struct UploadHold {
    connection: Rc<dyn SharedConnection>,
    progress: Rc<UploadProgress>,
}

impl UploadHold {
    pub(super) fn new(connection: Rc<dyn SharedConnection>, progress: Rc<UploadProgress>) -> Self {
        Self { connection, progress }
    }
}

impl Drop for UploadHold {
    fn drop(&mut self) {
        self.connection.ends(&self.progress);
    }
}

/// What was read from a body; `None`: its end.
type FrameRead = Option<Result<Frame<Bytes>, BodyFault>>;

/// Waits for the end of a body that announced no bytes. A stream may continue nevertheless, and is then
/// malformed (RFC 9113 §8.1.1).
///
/// # Errors
/// If the body continues, breaks off, or does not end within `stall`.
pub async fn expect_empty_body(body: &mut Incoming, stall: Duration) -> Result<(), BodyFault> {
    if body.is_end_stream() || body.size_hint().exact() != Some(0) {
        return Ok(());
    }
    let ending = async {
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
            let is_more =
                |frame: &Frame<Bytes>| frame.data_ref().is_some_and(|part| !part.is_empty());
            if frame.map_or(true, |frame| is_more(&frame)) {
                return Err(BodyFault::Broken);
            }
        }
        if body.is_end_stream() { Ok(()) } else { Err(BodyFault::Broken) }
    };
    tokio::time::timeout(stall, ending).await.unwrap_or(Err(BodyFault::Stalled))
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload").field("left", &self.left).finish_non_exhaustive()
    }
}

/// How far the body of an HTTP/1.1 request was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyReadState {
    /// Not to its end.
    #[default]
    Part,
    /// To its end.
    Whole,
    /// To its end, which trailers followed.
    Trailers,
}

impl Upload {
    /// A body of at most `max` bytes that may pause for `stall`; `filter` cleans its trailers.
    #[must_use]
    pub fn new(
        body: Incoming,
        max: u64,
        stall: Duration,
        filter: impl Fn(&mut HeaderMap) + 'static,
    ) -> Self {
        let filter = Box::new(filter);
        let progress = UploadProgress::new(stall);
        Self {
            body,
            stall,
            left: max,
            timer: None,
            progress,
            filter,
            tap: None,
            read: None,
            hold: None,
            is_stream: false,
            last: None,
            trailers: None,
        }
    }

    /// Passes the parts of the body to `tap` as well.
    #[must_use]
    pub fn with_tap(mut self, tap: Option<BodyTap>) -> Self {
        self.tap = tap;
        self
    }

    /// Records in `read` how far the body was read, if it came over HTTP/1.1; otherwise it is an HTTP/2
    /// stream.
    #[must_use]
    pub fn telling(mut self, read: Option<Rc<Cell<BodyReadState>>>) -> Self {
        self.is_stream = read.is_none();
        self.read = read;
        self
    }

    /// Records that something was read: the end, or possibly the end.
    fn tell(&self, is_over: bool) {
        if let Some(read) = &self.read
            && read.get() == BodyReadState::Part
            && (is_over || self.body.is_end_stream())
        {
            read.set(BodyReadState::Whole);
        }
    }

    /// It is about to be sent, for the first time or again: the state of an earlier attempt is discarded.
    pub(super) fn sets_out(&mut self) -> Rc<UploadProgress> {
        self.hold = None;
        self.progress = UploadProgress::new(self.stall);
        self.progress()
    }

    /// It is sent on a shared connection.
    pub(super) fn goes_on(&mut self, hold: UploadHold) {
        self.hold = Some(hold);
    }

    pub(super) fn progress(&self) -> Rc<UploadProgress> {
        Rc::clone(&self.progress)
    }

    /// Sorts what was read; `None`: more must arrive first. The last bytes of a stream of known length are
    /// held back until its end arrives. Otherwise the origin would have the whole of a request that may turn
    /// out to be malformed: more bytes or a reset may follow (RFC 9113 §8.1.1).
    fn sort(&mut self, came: Option<Result<Frame<Bytes>, hyper::Error>>) -> Option<FrameRead> {
        let came = match came {
            Some(Err(_)) => return Some(Some(Err(BodyFault::Broken))),
            // hyper takes a stream that was reset without an error for one that has ended.
            None if self.is_stream && !self.body.is_end_stream() => {
                return Some(Some(Err(BodyFault::Broken)));
            }
            None => None,
            Some(Ok(frame)) if self.is_stream && self.body.size_hint().exact() == Some(0) => {
                match frame.into_data() {
                    // What follows the last bytes is empty: hyper ensures that.
                    Ok(part) => {
                        self.last.get_or_insert(part);
                        if !self.body.is_end_stream() {
                            return None;
                        }
                        None
                    }
                    Err(trailers) => Some(trailers),
                }
            }
            Some(Ok(frame)) => Some(frame),
        };
        let Some(last) = self.last.take() else { return Some(came.map(Ok)) };
        self.trailers = came.map(Box::new);
        Some(Some(Ok(Frame::data(last))))
    }

    fn fail(&self, fault: BodyFault) -> Poll<FrameRead> {
        self.progress.fault.set(Some(fault));
        Poll::Ready(Some(Err(fault)))
    }

    fn take(&mut self, frame: Frame<Bytes>) -> Poll<FrameRead> {
        if let Some(part) = frame.data_ref() {
            let Some(left) = self.left.checked_sub(part.len() as u64) else {
                return self.fail(BodyFault::TooLarge);
            };
            self.left = left;
            if let Some(tap) = &self.tap {
                tap(part);
            }
            return Poll::Ready(Some(Ok(frame)));
        }
        let Ok(mut trailers) = frame.into_trailers() else { return Poll::Ready(None) };
        if let Some(read) = &self.read {
            read.set(BodyReadState::Trailers);
            if is_malformed(&trailers) {
                return self.fail(BodyFault::Broken);
            }
        }
        (self.filter)(&mut trailers);
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.progress.end();
    }
}

/// Whether trailers that came over HTTP/1.1 began with a line feed: hyper has read past it, to what it takes
/// for their end, and found no field.
pub(super) fn is_malformed(trailers: &HeaderMap) -> bool {
    trailers.is_empty()
}

/// Ready when nothing arrived for `limit`; the timer is created at the first wait.
pub(super) fn waited_too_long(
    timer: &mut Option<Pin<Box<Sleep>>>,
    limit: Duration,
    cx: &mut Context<'_>,
) -> Poll<()> {
    timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit))).as_mut().poll(cx)
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let this = &mut *self;
        if !this.progress.begun.replace(true)
            && let Some(hold) = &this.hold
        {
            hold.connection.begins(&hold.progress);
        }
        if let Some(trailers) = this.trailers.take() {
            return this.take(*trailers);
        }
        let came = loop {
            let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
                this.progress.awaits_client.set(true);
                ready!(waited_too_long(&mut this.timer, this.stall, cx));
                return this.fail(BodyFault::Stalled);
            };
            this.timer = None;
            this.progress.awaits_client.set(false);
            this.progress.last.set(Instant::now());
            if let Some(came) = this.sort(frame) {
                break came;
            }
        };
        match came {
            None => {
                this.tell(true);
                Poll::Ready(None)
            }
            Some(Ok(frame)) => {
                this.tell(false);
                this.take(frame)
            }
            Some(Err(fault)) => this.fail(fault),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.last.is_none() && self.trailers.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.last {
            Some(last) => SizeHint::with_exact(last.len() as u64),
            None => self.body.size_hint(),
        }
    }
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Ours(body) if body.is_empty() => Poll::Ready(None),
            Self::Ours(body) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(body))))),
            Self::Upload(upload) => Pin::new(&mut **upload).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Ours(body) => body.is_empty(),
            Self::Upload(upload) => upload.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Ours(body) => SizeHint::with_exact(body.len() as u64),
            Self::Upload(upload) => upload.size_hint(),
        }
    }
}
