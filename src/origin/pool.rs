//! Connections to the origin: each thread keeps its own, newest first.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::lanes::Lanes;
use super::protocol::Http2;
use super::sender::{Http1, Sender};
use super::{OriginError, Settings};
use crate::telemetry::metrics::Sheet;

/// A kept connection that idled longer than this does not carry a request with effects: should
/// the origin close it in that instant, the request could not be sent again.
const UNSAFE_IDLE: Duration = Duration::from_secs(1);
/// How often idle connections are looked through.
const SWEEP: Duration = Duration::from_secs(1);

/// A connection that belongs to one client's connection (NTLM, Negotiate).
#[derive(Debug)]
pub struct Bound {
    pub(super) sender: Http1,
    /// The server that it goes to: no other is sent anything on it.
    server: Weak<Origin>,
}

impl Bound {
    pub(super) fn is_of(&self, server: &Rc<Origin>) -> bool {
        std::ptr::eq(self.server.as_ptr(), Rc::as_ptr(server))
    }
}

/// Where a client's connection holds the origin connection that is bound to it.
pub type BoundSlot = Rc<RefCell<Option<Bound>>>;

/// One thread's connections to one server of an origin.
#[derive(Debug)]
pub struct Origin {
    pub(super) settings: Settings,
    pub(super) sheet: Arc<Sheet>,
    /// Newest last.
    idle: RefCell<Vec<(Http1, Instant)>>,
    pub(super) lanes: Lanes,
}

impl Origin {
    /// For one thread; the sweep of idle connections runs on the current runtime for as long as
    /// the origin is held.
    #[must_use]
    pub fn new(settings: Settings, sheet: Arc<Sheet>) -> Rc<Self> {
        let origin =
            Rc::new(Self { settings, sheet, idle: RefCell::default(), lanes: Lanes::default() });
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
        self.lanes.sweep(limit);
    }

    /// What carries a request, and whether it was there already.
    pub(super) async fn sender(&self, with_effects: bool) -> Result<(Sender, bool), OriginError> {
        if !self.may_share() {
            return match self.kept(with_effects).await {
                Some(kept) => Ok((Sender::Http1(kept), true)),
                None => Ok((self.connect().await?, false)),
            };
        }
        if let Some(stream) = self.lanes.free() {
            return Ok((Sender::Http2(stream), true));
        }
        if let Some(kept) = self.kept(with_effects).await {
            return Ok((Sender::Http1(kept), true));
        }
        self.open_or_share().await
    }

    /// One connects, for all who come meanwhile; each for himself where connections are not shared. Whose
    /// turn it is has all of the time, however long he has waited for it: else each of a line would try for
    /// a moment, and nobody get through.
    async fn open_or_share(&self) -> Result<(Sender, bool), OriginError> {
        if self.lanes.speaks_http1() {
            return Ok((self.connect().await?, false));
        }
        let turn = tokio::time::timeout(self.settings.connect_timeout, self.lanes.turn.lock())
            .await
            .map_err(|_| OriginError::ConnectTimedOut)?;
        if let Some(stream) = self.lanes.free_once_told().await {
            return Ok((Sender::Http2(stream), true));
        }
        if self.lanes.speaks_http1() {
            drop(turn);
        }
        Ok((self.connect().await?, false))
    }

    /// Whether connections to the origin may be of HTTP/2 now.
    pub(super) fn may_share(&self) -> bool {
        self.may_speak_http2() && !self.lanes.wants_http1()
    }

    /// Whether HTTP/2 may be spoken with the origin at all.
    pub(super) fn may_speak_http2(&self) -> bool {
        match self.settings.http2 {
            Http2::Never => false,
            Http2::Auto => self.settings.tls.is_some(),
            Http2::Always => true,
        }
    }

    /// A kept connection that is alive as far as can be told; the one used last first.
    pub(super) async fn kept(&self, with_effects: bool) -> Option<Http1> {
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

    pub(super) fn keep(&self, sender: Http1) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < self.settings.keep_idle && !sender.requests.is_closed() {
            sender.resting.set(true);
            idle.push((sender, Instant::now()));
        }
    }
}

/// Gives a connection back once its response has been read to the end. A place on a shared one is free
/// when this is dropped.
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
        self.sender.over();
        match (self.sender, self.to) {
            (Sender::Http1(sender), To::Pool) => self.origin.keep(sender),
            (Sender::Http1(sender), To::Slot(slot)) => {
                let server = Rc::downgrade(&self.origin);
                slot.replace(Some(Bound { sender, server }));
            }
            (Sender::Http1(_), To::Nowhere) | (Sender::Http2(_), _) => {}
        }
    }

    /// The origin has ended its side, or has nothing more to say: who leaves now calls nothing off.
    pub(super) fn over(&self) {
        self.sender.over();
    }

    /// The response stopped.
    pub(super) fn timed_out(self) {
        self.sender.doubt();
    }
}
