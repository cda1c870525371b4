//! HTTP/2 connections, each shared by many requests of one thread.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::time::Duration;

use ::http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http2};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

use super::link::OriginLink;
use super::progress::UploadProgress;
use super::protocol::OriginProtocol;
use super::settings::BUFFER;
use super::upload::{SharedConnection, UploadHold};
use super::{OriginError, UploadBody};

/// The most streams opened on one connection, even if the origin allows more.
const STREAMS: usize = 100;
/// Stands for the origin's stream limit until its SETTINGS arrive: a number that no origin sends.
const UNANNOUNCED: usize = 3_999_999_979;
/// How long other requests wait for the origin's SETTINGS, the first frame that it sends (RFC 9113 §3.4),
/// before they are sent without a known stream limit.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(1);
/// The most streams opened in that case.
const STREAMS_UNANNOUNCED: usize = 32;
/// How many bytes an origin may send ahead on a stream whose client is slow.
const STREAM_WINDOW: u32 = 128 * 1024;
/// The same for the connection. As large as all its streams together; otherwise clients that read slowly
/// would hold up the others.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS as u32;
/// How much of an upload is buffered.
const SEND_BUFFER: usize = 64 * 1024;
/// How long the answer to a PING may take.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// After this many cancelled requests, a connection gets no more. An origin takes many cancellations for an
/// attack, and closes the connection that all share.
const CALLED_OFF_MAX: usize = 30;
/// How long HTTP/1.1 is used with an origin that asked for it.
const HTTP1_FOR: Duration = Duration::from_secs(60);

/// The upload that has just begun on a connection.
type LatestUpload = Rc<RefCell<Option<Rc<UploadProgress>>>>;

/// Runs hyper's tasks on the thread of the connection.
#[derive(Clone, Debug, Default)]
pub(super) struct LocalExecutor {
    /// hyper polls a body once, and then spawns a task for the rest.
    begun: LatestUpload,
    /// Notified whenever hyper has read or written: the origin's stream limit may have arrived.
    moved: Rc<Notify>,
}

impl<F: Future + 'static> Executor<F> for LocalExecutor
where
    F::Output: 'static,
{
    fn execute(&self, task: F) {
        let Some(upload) = self.begun.take() else {
            let moved = Rc::clone(&self.moved);
            tokio::task::spawn_local(async move {
                let mut task = std::pin::pin!(task);
                let moving = std::future::poll_fn(|cx| {
                    let polled = task.as_mut().poll(cx);
                    moved.notify_waiters();
                    polled
                });
                moving.await;
            });
            return;
        };
        // Dropping the task resets its stream: hyper itself waits for as long as the origin takes nothing.
        tokio::task::spawn_local(async move {
            tokio::select! {
                _ = task => {}
                true = upload.overdue() => {}
            }
        });
    }
}

type Connection = http2::Connection<TokioIo<OriginLink>, UploadBody, LocalExecutor>;

/// An HTTP/2 connection.
pub(super) struct Http2Connection {
    requests: http2::SendRequest<UploadBody>,
    /// Gone when the connection is over: requests that still wait to be sent are then returned.
    connection: Weak<RefCell<Connection>>,
    /// The number of requests on it.
    streams: Cell<usize>,
    /// Since when it has had no requests.
    resting: Cell<Instant>,
    /// Whether it gets no further request.
    doubted: Cell<bool>,
    /// How many requests were cancelled on it.
    called_off: Cell<usize>,
    begun: LatestUpload,
    opened: Instant,
    moved: Rc<Notify>,
    /// Nothing more is begun on it. hyper itself waits, with what it holds, for as long as the origin accepts
    /// no stream.
    over: Rc<Notify>,
}

impl Drop for Http2Connection {
    fn drop(&mut self) {
        self.over.notify_one();
    }
}

impl std::fmt::Debug for Http2Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http2Connection").field("streams", &self.streams).finish_non_exhaustive()
    }
}

impl Http2Connection {
    /// Starts HTTP/2 on a socket.
    pub(super) async fn open(link: OriginLink, ping: Duration) -> Result<Self, OriginError> {
        let here = LocalExecutor::default();
        let (begun, moved) = (Rc::clone(&here.begun), Rc::clone(&here.moved));
        let (requests, connection) = http2::Builder::new(here)
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_max_send_streams(UNANNOUNCED)
            .max_header_list_size(BUFFER as u32)
            .max_send_buf_size(SEND_BUFFER)
            .keep_alive_interval(ping)
            .keep_alive_timeout(ping.min(PING_TIMEOUT))
            .handshake(TokioIo::new(link))
            .await
            .map_err(OriginError::broken)?;
        let driven = Rc::new(RefCell::new(connection));
        let connection = Rc::downgrade(&driven);
        let over = Rc::new(Notify::new());
        let (is_over, ends) = (Rc::clone(&over), Rc::clone(&moved));
        tokio::task::spawn_local(async move {
            // Borrowed for one poll at a time: the stream limit is read in between.
            let driving = std::future::poll_fn(|cx| Pin::new(&mut *driven.borrow_mut()).poll(cx));
            let end = tokio::select! {
                end = driving => end,
                // Requests that have begun continue in tasks of their own.
                () = is_over.notified() => Ok(()),
            };
            ends.notify_waiters();
            if let Err(error) = end {
                tracing::debug!(%error, "an origin connection of HTTP/2 ended");
            }
        });
        Ok(Self {
            requests,
            connection,
            streams: Cell::new(0),
            resting: Cell::new(Instant::now()),
            doubted: Cell::new(false),
            called_off: Cell::new(0),
            begun,
            opened: Instant::now(),
            moved,
            over,
        })
    }

    fn is_open(&self) -> bool {
        let is_trusted = !self.doubted.get() && self.called_off.get() < CALLED_OFF_MAX;
        is_trusted && !self.requests.is_closed()
    }

    /// The origin's stream limit, or `UNANNOUNCED`.
    fn streams_announced(&self) -> usize {
        let connection = self.connection.upgrade();
        connection.map_or(0, |connection| connection.borrow().current_max_send_streams())
    }

    /// Whether the origin's stream limit may still arrive.
    fn is_unannounced(&self) -> bool {
        self.streams_announced() == UNANNOUNCED && self.opened.elapsed() < SETTINGS_TIMEOUT
    }

    /// How many streams the origin accepts. Until its limit is known, that is the one stream for which the
    /// connection was opened: the origin refuses streams over its limit, and may refuse them again.
    fn takes(&self) -> usize {
        match self.streams_announced() {
            UNANNOUNCED if self.is_unannounced() => 1,
            UNANNOUNCED => STREAMS_UNANNOUNCED,
            told => told,
        }
    }

    /// Waits until the origin's stream limit has arrived, or the wait has timed out.
    async fn telling(&self) {
        let deadline = self.opened + SETTINGS_TIMEOUT;
        while self.is_open() && self.is_unannounced() {
            let moved = self.moved.notified();
            if tokio::time::timeout_at(deadline, moved).await.is_err() {
                return;
            }
        }
    }

    /// Whether the origin accepts one more stream now.
    fn has_room(&self) -> bool {
        self.streams.get() < self.takes().min(STREAMS)
    }

    /// No further request follows; requests not yet begun are returned, and those in progress continue.
    fn doubt(&self) {
        self.doubted.set(true);
        self.over.notify_one();
    }

    fn is_idle_since(&self, limit: Duration) -> bool {
        self.streams.get() == 0 && self.resting.get().elapsed() >= limit
    }
}

/// A place on a shared connection; dropping it frees the place.
#[derive(Debug)]
struct StreamSlot {
    connection: Rc<Http2Connection>,
    upload: RefCell<Option<Rc<UploadProgress>>>,
    /// Whether a request was sent, and the origin has not ended its side.
    is_open: Cell<bool>,
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.streams.set(connection.streams.get().saturating_sub(1));
        connection.resting.set(Instant::now());
    }
}

impl SharedConnection for StreamSlot {
    fn begins(&self, upload: &Rc<UploadProgress>) {
        self.connection.begun.replace(Some(Rc::clone(upload)));
    }

    fn ends(&self, upload: &Rc<UploadProgress>) {
        // It was sent in one go, and has no task.
        self.connection.begun.borrow_mut().take_if(|begun| Rc::ptr_eq(begun, upload));
    }
}

/// A request on a shared connection. Dropping it frees its place and ends its upload.
#[derive(Debug)]
pub(super) struct OriginStream(Rc<StreamSlot>);

impl OriginStream {
    fn on(connection: &Rc<Http2Connection>) -> Self {
        connection.streams.set(connection.streams.get() + 1);
        Self(Rc::new(StreamSlot {
            connection: Rc::clone(connection),
            upload: RefCell::default(),
            is_open: Cell::new(false),
        }))
    }

    pub(super) fn send(
        &self,
        mut request: Request<UploadBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<UploadBody>>>> + use<>
    {
        if let UploadBody::Upload(upload) = request.body_mut() {
            let progress = upload.progress();
            self.0.upload.replace(Some(Rc::clone(&progress)));
            let seat = Rc::<StreamSlot>::clone(&self.0);
            upload.goes_on(UploadHold::new(seat, progress));
        }
        self.0.is_open.set(true);
        self.0.connection.requests.clone().try_send_request(request)
    }

    /// The origin has ended its side.
    pub(super) fn over(&self) {
        self.0.is_open.set(false);
    }

    /// No further request follows on this connection; those in progress continue.
    pub(super) fn doubt(&self) {
        self.0.connection.doubt();
    }
}

impl Drop for OriginStream {
    fn drop(&mut self) {
        if self.0.is_open.get() {
            self.0.connection.called_off.update(|count| count + 1);
        }
        if let Some(upload) = self.0.upload.take() {
            // It waits for a stream that the origin does not allow.
            if !upload.begun.get() && self.0.connection.takes() == 0 {
                self.0.connection.doubt();
            }
            upload.answer_is_over();
        }
    }
}

/// One thread's HTTP/2 connections to an origin.
#[derive(Debug, Default)]
pub(super) struct Http2Pool {
    open: RefCell<Vec<Rc<Http2Connection>>>,
    /// The protocol that the origin used last, where the configuration leaves the choice open.
    speaks: Cell<Option<OriginProtocol>>,
    /// When the origin asked for HTTP/1.1 (RFC 9113 §7).
    http1_wanted: Cell<Option<Instant>>,
    /// Held while a connection is opened; other requests wait to see whether they can share it.
    pub(super) turn: Mutex<()>,
}

impl Http2Pool {
    /// A place on an open connection. The oldest are filled first, so that others become idle.
    pub(super) fn free(&self) -> Option<OriginStream> {
        let mut open = self.open.borrow_mut();
        open.retain(|connection| connection.is_open());
        open.iter().find(|connection| connection.has_room()).map(OriginStream::on)
    }

    /// The same, after the stream limits of newly opened connections are known.
    pub(super) async fn free_once_announced(&self) -> Option<OriginStream> {
        loop {
            if let Some(stream) = self.free() {
                return Some(stream);
            }
            let untold =
                self.open.borrow().iter().find(|connection| connection.is_unannounced()).cloned();
            untold?.telling().await;
        }
    }

    /// Shares a new connection and returns the first place on it. Idle connections that accept no stream are
    /// removed; otherwise each request to an origin that accepts none would add one.
    pub(super) fn add(&self, connection: Http2Connection) -> OriginStream {
        let connection = Rc::new(connection);
        let mut open = self.open.borrow_mut();
        open.retain(|connection| connection.streams.get() > 0 || connection.has_room());
        open.push(Rc::clone(&connection));
        OriginStream::on(&connection)
    }

    /// Records the protocol that the origin uses.
    pub(super) fn speaks(&self, protocol: OriginProtocol) {
        self.speaks.set(Some(protocol));
    }

    /// Whether, as far as is known, a connection cannot be shared.
    pub(super) fn speaks_http1(&self) -> bool {
        self.speaks.get() == Some(OriginProtocol::Http1)
    }

    /// The origin asks for HTTP/1.1.
    pub(super) fn want_http1(&self) {
        self.http1_wanted.set(Some(Instant::now()));
    }

    /// Whether the origin has asked for HTTP/1.1 recently.
    pub(super) fn wants_http1(&self) -> bool {
        self.http1_wanted.get().is_some_and(|since| since.elapsed() < HTTP1_FOR)
    }

    /// Removes connections that are over, or were idle for `limit`. A connection with requests ends with
    /// them.
    pub(super) fn sweep(&self, limit: Duration) {
        self.open
            .borrow_mut()
            .retain(|connection| connection.is_open() && !connection.is_idle_since(limit));
    }
}
