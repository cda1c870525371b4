//! How uploads go, for whoever waits for the response.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::error::BodyFault;

/// How an upload goes, for whoever waits for the response.
#[derive(Debug)]
pub(super) struct Progress {
    /// When the last part went on, or the end came.
    pub(super) last: Cell<Instant>,
    /// What ended it.
    pub(super) fault: Cell<Option<BodyFault>>,
    /// Whether any of it was taken.
    pub(super) begun: Cell<bool>,
    /// Whether the client is waited for, and not the origin.
    pub(super) awaits_client: Cell<bool>,
    /// How long it may stop.
    stall: Duration,
    /// Whether nothing more of it is sent, for it is whole or was dropped.
    ended: Cell<bool>,
    answer_over: Notify,
}

impl Progress {
    /// Of a body that may stop for `stall`.
    pub(super) fn new(stall: Duration) -> Rc<Self> {
        Rc::new(Self {
            last: Cell::new(Instant::now()),
            fault: Cell::new(None),
            begun: Cell::new(false),
            awaits_client: Cell::new(false),
            stall,
            ended: Cell::new(false),
            answer_over: Notify::new(),
        })
    }

    /// Nothing more of it is sent.
    pub(super) fn end(&self) {
        self.ended.set(true);
    }

    /// The response is over, or nobody wants it any more.
    pub(super) fn answer_is_over(&self) {
        self.answer_over.notify_one();
    }

    /// Whether the upload stops for too long behind the response: nobody waits for it any more. Returns
    /// then, or when it has ended.
    pub(super) async fn overdue(&self) -> bool {
        self.answer_over.notified().await;
        let mut since = Instant::now();
        while !self.ended.get() {
            tokio::time::sleep_until(since + self.stall).await;
            match self.last.get() {
                moved if moved > since => since = moved,
                _ => return !self.ended.get(),
            }
        }
        false
    }
}

/// The uploads of a connection of HTTP/1.1, one after the other.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    newest: RefCell<Option<Rc<Progress>>>,
    begun: Notify,
}

impl Uploads {
    /// One is about to be sent.
    pub(super) fn begin(&self, progress: Rc<Progress>) {
        self.newest.replace(Some(progress));
        self.begun.notify_one();
    }

    /// The response is over, or nobody wants it any more.
    pub(super) fn answer_is_over(&self) {
        // It stays, for whoever watches may still be with the one before.
        if let Some(newest) = &*self.newest.borrow() {
            newest.answer_is_over();
        }
    }

    /// Returns when one stops for too long behind its response: hyper itself waits for as long as the
    /// origin takes nothing.
    pub(super) async fn overdue(&self) {
        loop {
            self.begun.notified().await;
            let newest = self.newest.borrow().clone();
            let Some(newest) = newest else { continue };
            if newest.overdue().await {
                return;
            }
        }
    }
}
