//! Connections to the origin: each thread keeps its own, newest first.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::meter::{Allowance, Metered};
use super::{OriginError, Outgoing};
use crate::metrics::{Count, Sheet};

/// hyper's buffer for an origin connection, and so the bound of a response's head. At 16 KiB
/// bodies 64 KiB cost a third less than hyper's first guess.
pub(super) const BUFFER: usize = 64 * 1024;
/// A kept connection that idled longer than this does not carry a request with effects: should
/// the origin close it in that instant, the request could not be sent again.
const UNSAFE_IDLE: Duration = Duration::from_secs(1);
/// How often idle connections are looked through.
const SWEEP: Duration = Duration::from_secs(1);

/// How to reach the origin and how long to wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Host name or address literal (IPv6 without brackets).
    pub host: String,
    /// Port.
    pub port: u16,
    /// For a connection.
    pub connect_timeout: Duration,
    /// For the head of a response, from the last byte sent.
    pub first_byte_timeout: Duration,
    /// Between two parts of a body.
    pub between_bytes_timeout: Duration,
    /// Idle connections that are kept.
    pub keep_idle: usize,
    /// How long an idle one is kept.
    pub idle_timeout: Duration,
    /// Whether a connection that carried a HEAD is used again.
    pub head_reuse: bool,
}

/// A connection to the origin that is free for a request.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) requests: SendRequest<Outgoing>,
    /// Whether it rests in the pool: then whatever comes on it is unasked.
    resting: Rc<Cell<bool>>,
    /// What may be read of it.
    pub(super) allowance: Allowance,
}

/// A connection that belongs to one client's connection (NTLM, Negotiate).
#[derive(Debug)]
pub struct Bound(pub(super) Sender);

/// Where a client's connection holds the origin connection that is bound to it.
pub type BoundSlot = Rc<RefCell<Option<Bound>>>;

/// One thread's connections to the origin.
#[derive(Debug)]
pub struct Origin {
    pub(super) settings: Settings,
    pub(super) sheet: Arc<Sheet>,
    /// Newest last.
    idle: RefCell<Vec<(Sender, Instant)>>,
}

impl Origin {
    /// For one thread; the sweep of idle connections runs on the current runtime for as long as
    /// the origin is held.
    #[must_use]
    pub fn new(settings: Settings, sheet: Arc<Sheet>) -> Rc<Self> {
        let origin = Rc::new(Self { settings, sheet, idle: RefCell::default() });
        let weak = Rc::downgrade(&origin);
        tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                let Some(origin) = weak.upgrade() else { return };
                origin.sweep();
            }
        });
        origin
    }

    fn sweep(&self) {
        let limit = self.settings.idle_timeout;
        self.idle
            .borrow_mut()
            .retain(|(sender, since)| !sender.requests.is_closed() && since.elapsed() < limit);
    }

    /// A kept connection that is alive as far as can be told; the one used last first.
    pub(super) async fn kept(&self, with_effects: bool) -> Option<Sender> {
        let limit =
            self.settings.idle_timeout.min(if with_effects { UNSAFE_IDLE } else { Duration::MAX });
        loop {
            let (mut sender, since) = self.idle.borrow_mut().pop()?;
            if since.elapsed() >= limit {
                // The others are older still; the sweep ends those that are too old for all.
                self.idle.borrow_mut().push((sender, since));
                return None;
            }
            let ready = std::future::poll_fn(|cx| Poll::Ready(sender.requests.poll_ready(cx)));
            if matches!(ready.await, Poll::Ready(Ok(()))) {
                sender.resting.set(false);
                return Some(sender);
            }
        }
    }

    pub(super) fn keep(&self, sender: Sender) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < self.settings.keep_idle && !sender.requests.is_closed() {
            sender.resting.set(true);
            idle.push((sender, Instant::now()));
        }
    }

    /// A fresh connection.
    pub(super) async fn connect(&self) -> Result<Sender, OriginError> {
        self.sheet.count(Count::OriginConnections);
        let settings = &self.settings;
        let connecting = TcpStream::connect((settings.host.as_str(), settings.port));
        let socket = tokio::time::timeout(settings.connect_timeout, connecting)
            .await
            .map_err(|_| OriginError::ConnectTimedOut)?
            .map_err(OriginError::Connect)?;
        socket.set_nodelay(true).map_err(OriginError::Connect)?;
        let allowance = Allowance::new();
        let socket = Metered::new(socket, allowance.clone());
        let (requests, connection) = Builder::new()
            .max_buf_size(BUFFER)
            .handshake(TokioIo::new(socket))
            .await
            .map_err(OriginError::Broken)?;
        let sheet = Arc::clone(&self.sheet);
        let resting = Rc::new(Cell::new(false));
        let rests = Rc::clone(&resting);
        tokio::task::spawn_local(async move {
            if let Err(error) = connection.await {
                // A request in work gets an error of its own.
                if rests.get() {
                    sheet.count(Count::OriginIdleErrors);
                }
                tracing::debug!(%error, "an origin connection ended");
            }
        });
        Ok(Sender { requests, resting, allowance })
    }
}

/// Gives a connection back once its response has been read to the end.
pub(super) struct Return {
    origin: Rc<Origin>,
    sender: Sender,
    to: To,
}

/// Where a connection goes.
pub(super) enum To {
    /// To whoever asks next.
    Pool,
    /// Back to the client's connection to which it is bound.
    Slot(BoundSlot),
    /// It ends.
    Nowhere,
}

impl Return {
    pub(super) fn new(origin: &Rc<Origin>, sender: Sender, to: To) -> Self {
        Self { origin: Rc::clone(origin), sender, to }
    }

    pub(super) fn now(self) {
        match self.to {
            To::Pool => self.origin.keep(self.sender),
            To::Slot(slot) => {
                slot.replace(Some(Bound(self.sender)));
            }
            To::Nowhere => {}
        }
    }
}
