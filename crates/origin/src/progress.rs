//! The progress of uploads, for code that waits for the response.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::error::BodyFault;

/// The progress of an upload, for code that waits for the response.
#[derive(Debug)]
pub(super) struct UploadProgress {
    /// When the last part was passed on, or the end arrived.
    pub(super) last: Cell<Instant>,
    /// What ended it.
    pub(super) fault: Cell<Option<BodyFault>>,
    /// Whether any part of it was taken.
    pub(super) begun: Cell<bool>,
    /// Whether the upload waits for the client rather than the origin.
    pub(super) awaits_client: Cell<bool>,
    /// How long it may pause.
    stall: Duration,
    /// Whether no more of it is sent, because it is complete or was dropped.
    ended: Cell<bool>,
    answer_over: Notify,
}

impl UploadProgress {
    /// For a body that may pause for `stall`.
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

    /// No more of it is sent.
    pub(super) fn end(&self) {
        self.ended.set(true);
    }

    /// The response is over or no longer needed.
    pub(super) fn answer_is_over(&self) {
        self.answer_over.notify_one();
    }

    /// Whether the upload pauses for too long after the response, which no longer needs it. Returns then, or
    /// when the upload has ended.
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

/// The uploads of an HTTP/1.1 connection, one after the other.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    newest: RefCell<Option<Rc<UploadProgress>>>,
    begun: Notify,
}

impl Uploads {
    /// An upload is about to be sent.
    pub(super) fn begin(&self, progress: Rc<UploadProgress>) {
        self.newest.replace(Some(progress));
        self.begun.notify_one();
    }

    /// The response is over or no longer needed.
    pub(super) fn answer_is_over(&self) {
        // It stays, because `overdue` may still be waiting on the previous one.
        if let Some(newest) = &*self.newest.borrow() {
            newest.answer_is_over();
        }
    }

    /// Returns when an upload pauses for too long after its response: hyper itself waits for as long as the
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
