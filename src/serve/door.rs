//! What a thread serves clients with, and what a reload changes of it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::caps::Caps;
use super::io::{Deadlines, Watched};
use super::stream::Stream;
use crate::proxy::WorkerContext;
use crate::proxy::connection::client::Client;
use crate::telemetry::metrics::Sheet;

/// The settings of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Its deadlines.
    pub deadlines: Deadlines,
    /// The largest request head, in bytes.
    pub request_head: usize,
}

/// What a thread needs to serve clients.
#[derive(Debug)]
pub struct Door {
    /// Caps, shared by all threads.
    pub caps: Arc<Caps>,
    /// This thread's counters.
    pub sheet: Arc<Sheet>,
    /// Ends accepting, and lets open connections finish.
    pub drain: CancellationToken,
    /// The connections that are open.
    pub connections: TaskTracker,
    /// What is behind it.
    pub inside: Inside,
}

/// What is behind the door, until a reload puts something else there.
#[derive(Debug)]
pub struct Inside {
    room: RefCell<Rc<WorkerContext>>,
    settings: Cell<Settings>,
}

impl Inside {
    /// This room, and these settings of each connection.
    #[must_use]
    pub fn new(room: Rc<WorkerContext>, settings: Settings) -> Self {
        Self { room: RefCell::new(room), settings: Cell::new(settings) }
    }

    /// Puts another room there: the next request of each connection is answered in it.
    pub fn change(&self, room: Rc<WorkerContext>, settings: Settings) {
        self.room.replace(room);
        self.settings.set(settings);
    }

    /// Where requests are answered now.
    #[must_use]
    pub fn room(&self) -> Rc<WorkerContext> {
        Rc::clone(&self.room.borrow())
    }

    /// The settings of a connection that begins now.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.settings.get()
    }
}

/// A connection whose client and version are known.
pub(super) struct Line<'d> {
    pub(super) io: Watched<Stream>,
    pub(super) client: Rc<Client>,
    pub(super) settings: Settings,
    pub(super) door: &'d Rc<Door>,
}
