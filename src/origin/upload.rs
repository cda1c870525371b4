//! A request's body on its way to the origin: none, one of ours, or the client's as it comes.

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
use super::progress::Progress;

/// A body towards the origin.
#[derive(Debug)]
pub enum Outgoing {
    /// None.
    Empty,
    /// One of ours, which is sent at once.
    Ours(Bytes),
    /// The client's, as it comes.
    Upload(Upload),
}

/// Hears the parts of a body as they go by.
pub type Ear = Box<dyn Fn(&Bytes)>;

/// A client's body with its limits; says through `Progress` how it goes.
pub struct Upload {
    body: Incoming,
    stall: Duration,
    left: u64,
    timer: Option<Pin<Box<Sleep>>>,
    progress: Rc<Progress>,
    filter: Box<dyn Fn(&mut HeaderMap)>,
    /// Who hears it as it goes by.
    ear: Option<Ear>,
    /// Where it is told that it was read whole.
    read: Option<Rc<Cell<Read>>>,
    /// Where it goes on a shared connection.
    hold: Option<Hold>,
    /// Whether it is a stream, whose end stands for itself.
    is_stream: bool,
    /// What makes it whole, while its end has not come.
    last: Option<Bytes>,
    /// What came behind that.
    trailers: Option<Box<Frame<Bytes>>>,
}

/// A connection that an upload shares with others, as far as the upload knows it. Its place there is
/// free when this is dropped.
pub(super) trait SharedConnection: std::fmt::Debug {
    /// hyper looks at the upload for the first time.
    fn begins(&self, upload: &Rc<Progress>);

    /// The upload is over.
    fn ends(&self, upload: &Rc<Progress>);
}

/// What an upload holds of the connection on which it goes.
#[derive(Debug)]
pub(super) struct Hold {
    connection: Rc<dyn SharedConnection>,
    progress: Rc<Progress>,
}

impl Hold {
    pub(super) fn new(connection: Rc<dyn SharedConnection>, progress: Rc<Progress>) -> Self {
        Self { connection, progress }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.connection.ends(&self.progress);
    }
}

/// What comes of a body; `None`: its end.
type Came = Option<Result<Frame<Bytes>, BodyFault>>;

/// Waits for the end of a body that says it has no bytes: a stream may go on all the same, and is
/// malformed then (RFC 9113 §8.1.1).
///
/// # Errors
/// When it goes on, breaks off, or does not end within `stall`.
pub async fn end_of_nothing(body: &mut Incoming, stall: Duration) -> Result<(), BodyFault> {
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

/// How far the body of a request over HTTP/1.1 was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Read {
    /// Not to its end.
    #[default]
    Part,
    /// To its end.
    Whole,
    /// To its end, behind which came trailers.
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
        let progress = Progress::new(stall);
        Self {
            body,
            stall,
            left: max,
            timer: None,
            progress,
            filter,
            ear: None,
            read: None,
            hold: None,
            is_stream: false,
            last: None,
            trailers: None,
        }
    }

    /// What goes by of it is heard there.
    #[must_use]
    pub fn heard_by(mut self, ear: Option<Ear>) -> Self {
        self.ear = ear;
        self
    }

    /// It tells there how far it was read, where it came over HTTP/1.1; else it comes by a stream of HTTP/2.
    #[must_use]
    pub fn telling(mut self, read: Option<Rc<Cell<Read>>>) -> Self {
        self.is_stream = read.is_none();
        self.read = read;
        self
    }

    /// What came of it was its end, or may have been.
    fn tell(&self, is_over: bool) {
        if let Some(read) = &self.read
            && read.get() == Read::Part
            && (is_over || self.body.is_end_stream())
        {
            read.set(Read::Whole);
        }
    }

    /// It is about to be sent, for the first time or again: what became of it before is of no account.
    pub(super) fn sets_out(&mut self) -> Rc<Progress> {
        self.hold = None;
        self.progress = Progress::new(self.stall);
        self.progress()
    }

    /// It goes on a shared connection.
    pub(super) fn goes_on(&mut self, hold: Hold) {
        self.hold = Some(hold);
    }

    pub(super) fn progress(&self) -> Rc<Progress> {
        Rc::clone(&self.progress)
    }

    /// Sorts what came; `None`: more has to come first. The last bytes of a stream of known length are held
    /// back until its end is there: with them the origin would have the whole of what may be malformed, for
    /// more may come, or be called off (RFC 9113 §8.1.1).
    fn sort(&mut self, came: Option<Result<Frame<Bytes>, hyper::Error>>) -> Option<Came> {
        let came = match came {
            Some(Err(_)) => return Some(Some(Err(BodyFault::Broken))),
            // hyper takes a stream that was reset without an error for one that has ended.
            None if self.is_stream && !self.body.is_end_stream() => {
                return Some(Some(Err(BodyFault::Broken)));
            }
            None => None,
            Some(Ok(frame)) if self.is_stream && self.body.size_hint().exact() == Some(0) => {
                match frame.into_data() {
                    // What comes behind the last bytes is empty: the library sees to that.
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

    fn fail(&self, fault: BodyFault) -> Poll<Came> {
        self.progress.fault.set(Some(fault));
        Poll::Ready(Some(Err(fault)))
    }

    fn take(&mut self, frame: Frame<Bytes>) -> Poll<Came> {
        if let Some(part) = frame.data_ref() {
            let Some(left) = self.left.checked_sub(part.len() as u64) else {
                return self.fail(BodyFault::TooLarge);
            };
            self.left = left;
            if let Some(ear) = &self.ear {
                ear(part);
            }
            return Poll::Ready(Some(Ok(frame)));
        }
        let Ok(mut trailers) = frame.into_trailers() else { return Poll::Ready(None) };
        if let Some(read) = &self.read {
            read.set(Read::Trailers);
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

/// Whether trailers that came over HTTP/1.1 began with a line feed: hyper has read on behind it, to where
/// it thinks that they end, and found no field.
pub(super) fn is_malformed(trailers: &HeaderMap) -> bool {
    trailers.is_empty()
}

/// Ready when nothing came for `limit`; the timer is made at the first wait.
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

impl Body for Outgoing {
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
            Self::Upload(upload) => Pin::new(upload).poll_frame(cx),
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
