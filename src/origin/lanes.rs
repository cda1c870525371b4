//! Connections of HTTP/2, each shared by many requests of one thread.

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

use super::link::Link;
use super::progress::Progress;
use super::protocol::Protocol;
use super::settings::BUFFER;
use super::upload::{Hold, SharedConnection};
use super::{OriginError, Outgoing};

/// The most streams that are opened on one connection, whatever the origin would take.
const STREAMS: usize = 100;
/// Stands for how many the origin takes until it has said so: a number that none says.
const UNTOLD: usize = 3_999_999_979;
/// How long others wait for the origin to say how many streams it takes (RFC 9113 §3.4: that is the first
/// that it sends) before they are sent all the same.
const TELLING_PATIENCE: Duration = Duration::from_secs(1);
/// So many are then opened at most.
const STREAMS_UNTOLD: usize = 32;
/// What an origin may send ahead on a stream whose client is slow.
const STREAM_WINDOW: u32 = 128 * 1024;
/// The same for the connection. As large as all its streams together: else clients that read slowly
/// would hold up the others.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS as u32;
/// What is buffered of an upload.
const SEND_BUFFER: usize = 64 * 1024;
/// How long an answer to a PING may take.
const PING_PATIENCE: Duration = Duration::from_secs(10);

/// So many requests of a connection may be called off before it gets no others: an origin takes who calls
/// off many for an attacker, and ends what all share.
const CALLED_OFF_MAX: usize = 30;
/// How long HTTP/1.1 is spoken with an origin that has asked for it.
const HTTP1_FOR: Duration = Duration::from_secs(60);

/// The upload that was just begun on a connection.
type JustBegun = Rc<RefCell<Option<Rc<Progress>>>>;

/// Runs hyper's tasks on the thread of the connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Here {
    /// hyper looks at a body once, and then makes a task of what is left of it.
    begun: JustBegun,
    /// Told of whenever hyper has read or written: the origin may have said how many streams it takes.
    moved: Rc<Notify>,
}

impl<F: Future + 'static> Executor<F> for Here
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
        // Dropped, it resets its stream: hyper itself waits for as long as the origin takes nothing.
        tokio::task::spawn_local(async move {
            tokio::select! {
                _ = task => {}
                true = upload.overdue() => {}
            }
        });
    }
}

type Connection = http2::Connection<TokioIo<Link>, Outgoing, Here>;

/// A connection of HTTP/2.
pub(super) struct Lane {
    requests: http2::SendRequest<Outgoing>,
    /// Gone when the connection is over: what still waits to be sent comes back then.
    connection: Weak<RefCell<Connection>>,
    /// Requests on it.
    streams: Cell<usize>,
    /// Since when it has had none.
    resting: Cell<Instant>,
    /// Whether no further request is given to it.
    doubted: Cell<bool>,
    /// How many requests were called off on it.
    called_off: Cell<usize>,
    begun: JustBegun,
    opened: Instant,
    moved: Rc<Notify>,
    /// Nothing more is begun on it. hyper itself waits, with what it holds, for as long as the origin takes
    /// no stream.
    over: Rc<Notify>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.over.notify_one();
    }
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").field("streams", &self.streams).finish_non_exhaustive()
    }
}

impl Lane {
    /// Begins HTTP/2 on a socket.
    pub(super) async fn open(link: Link, ping: Duration) -> Result<Self, OriginError> {
        let here = Here::default();
        let (begun, moved) = (Rc::clone(&here.begun), Rc::clone(&here.moved));
        let (requests, connection) = http2::Builder::new(here)
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_max_send_streams(UNTOLD)
            .max_header_list_size(BUFFER as u32)
            .max_send_buf_size(SEND_BUFFER)
            .keep_alive_interval(ping)
            .keep_alive_timeout(ping.min(PING_PATIENCE))
            .handshake(TokioIo::new(link))
            .await
            .map_err(OriginError::Broken)?;
        let driven = Rc::new(RefCell::new(connection));
        let connection = Rc::downgrade(&driven);
        let over = Rc::new(Notify::new());
        let (is_over, ends) = (Rc::clone(&over), Rc::clone(&moved));
        tokio::task::spawn_local(async move {
            // Borrowed for one poll at a time: how many streams it takes is asked in between.
            let driving = std::future::poll_fn(|cx| Pin::new(&mut *driven.borrow_mut()).poll(cx));
            let end = tokio::select! {
                end = driving => end,
                // What was begun goes on in tasks of its own.
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

    /// How many streams the origin takes, or `UNTOLD`.
    fn told(&self) -> usize {
        let connection = self.connection.upgrade();
        connection.map_or(0, |connection| connection.borrow().current_max_send_streams())
    }

    /// Whether the origin may say yet how many streams it takes.
    fn is_untold(&self) -> bool {
        self.told() == UNTOLD && self.opened.elapsed() < TELLING_PATIENCE
    }

    /// How many streams the origin takes. Until it says so that is the one for which the connection was
    /// opened: what is over its bound it refuses, and may refuse again.
    fn takes(&self) -> usize {
        match self.told() {
            UNTOLD if self.is_untold() => 1,
            UNTOLD => STREAMS_UNTOLD,
            told => told,
        }
    }

    /// Waits until the origin has said how many streams it takes, or is not waited for any more.
    async fn telling(&self) {
        let patience = self.opened + TELLING_PATIENCE;
        while self.is_open() && self.is_untold() {
            let moved = self.moved.notified();
            if tokio::time::timeout_at(patience, moved).await.is_err() {
                return;
            }
        }
    }

    /// Whether the origin takes one more stream now.
    fn has_room(&self) -> bool {
        self.streams.get() < self.takes().min(STREAMS)
    }

    /// No further request follows; what is not begun comes back, and what is goes on.
    fn doubt(&self) {
        self.doubted.set(true);
        self.over.notify_one();
    }

    fn is_idle_since(&self, limit: Duration) -> bool {
        self.streams.get() == 0 && self.resting.get().elapsed() >= limit
    }
}

/// A place on a shared connection, until this is dropped.
#[derive(Debug)]
struct Seat {
    lane: Rc<Lane>,
    upload: RefCell<Option<Rc<Progress>>>,
    /// Whether a request was sent, and the origin has not ended its side.
    is_open: Cell<bool>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let lane = &self.lane;
        lane.streams.set(lane.streams.get().saturating_sub(1));
        lane.resting.set(Instant::now());
    }
}

impl SharedConnection for Seat {
    fn begins(&self, upload: &Rc<Progress>) {
        self.lane.begun.replace(Some(Rc::clone(upload)));
    }

    fn ends(&self, upload: &Rc<Progress>) {
        // It went in one go, and there is no task for it.
        self.lane.begun.borrow_mut().take_if(|begun| Rc::ptr_eq(begun, upload));
    }
}

/// A request on a shared connection. Its place is free when this is dropped, and its upload has ended, too.
#[derive(Debug)]
pub(super) struct Stream(Rc<Seat>);

impl Stream {
    fn on(lane: &Rc<Lane>) -> Self {
        lane.streams.set(lane.streams.get() + 1);
        Self(Rc::new(Seat {
            lane: Rc::clone(lane),
            upload: RefCell::default(),
            is_open: Cell::new(false),
        }))
    }

    pub(super) fn send(
        &self,
        mut request: Request<Outgoing>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Outgoing>>>> + use<>
    {
        if let Outgoing::Upload(upload) = request.body_mut() {
            let progress = upload.progress();
            self.0.upload.replace(Some(Rc::clone(&progress)));
            let seat = Rc::<Seat>::clone(&self.0);
            upload.goes_on(Hold::new(seat, progress));
        }
        self.0.is_open.set(true);
        self.0.lane.requests.clone().try_send_request(request)
    }

    /// The origin has ended its side.
    pub(super) fn over(&self) {
        self.0.is_open.set(false);
    }

    /// No further request follows on this connection; those under way go on.
    pub(super) fn doubt(&self) {
        self.0.lane.doubt();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.0.is_open.get() {
            self.0.lane.called_off.update(|count| count + 1);
        }
        if let Some(upload) = self.0.upload.take() {
            // It waits for a stream that the origin does not give.
            if !upload.begun.get() && self.0.lane.takes() == 0 {
                self.0.lane.doubt();
            }
            upload.answer_is_over();
        }
    }
}

/// One thread's connections of HTTP/2 to an origin.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    open: RefCell<Vec<Rc<Lane>>>,
    /// What the origin spoke the last time, where that is not said by the plan.
    speaks: Cell<Option<Protocol>>,
    /// When the origin asked for HTTP/1.1 (RFC 9113 §7).
    http1_wanted: Cell<Option<Instant>>,
    /// Who opens a connection; others wait to see whether they may share it.
    pub(super) turn: Mutex<()>,
}

impl Lanes {
    /// A place on a connection that is open. The oldest are filled first, so that others come to rest.
    pub(super) fn free(&self) -> Option<Stream> {
        let mut open = self.open.borrow_mut();
        open.retain(|lane| lane.is_open());
        open.iter().find(|lane| lane.has_room()).map(Stream::on)
    }

    /// The same, once those that were opened just now say whether they have one.
    pub(super) async fn free_once_told(&self) -> Option<Stream> {
        loop {
            if let Some(stream) = self.free() {
                return Some(stream);
            }
            let untold = self.open.borrow().iter().find(|lane| lane.is_untold()).cloned();
            untold?.telling().await;
        }
    }

    /// Shares a fresh connection; the first place on it. Those that carry nothing and take nothing go: else
    /// there would be one more for each request to an origin that takes no streams.
    pub(super) fn add(&self, lane: Lane) -> Stream {
        let lane = Rc::new(lane);
        let mut open = self.open.borrow_mut();
        open.retain(|lane| lane.streams.get() > 0 || lane.has_room());
        open.push(Rc::clone(&lane));
        Stream::on(&lane)
    }

    /// Notes what the origin speaks.
    pub(super) fn speaks(&self, protocol: Protocol) {
        self.speaks.set(Some(protocol));
    }

    /// Whether a connection cannot be shared, as far as is known.
    pub(super) fn speaks_http1(&self) -> bool {
        self.speaks.get() == Some(Protocol::Http1)
    }

    /// The origin asks for HTTP/1.1.
    pub(super) fn want_http1(&self) {
        self.http1_wanted.set(Some(Instant::now()));
    }

    /// Whether the origin has asked for HTTP/1.1 lately.
    pub(super) fn wants_http1(&self) -> bool {
        self.http1_wanted.get().is_some_and(|since| since.elapsed() < HTTP1_FOR)
    }

    /// Lets go of connections that are over, or rested for `limit`. One with requests ends with these.
    pub(super) fn sweep(&self, limit: Duration) {
        self.open.borrow_mut().retain(|lane| lane.is_open() && !lane.is_idle_since(limit));
    }
}
