//! The forms of stored pages in other content codings: made once for all clients, and kept in memory.
//!
//! What may be recoded, and how, is decided in `cache::recoded`. Which form a client is sent is decided in
//! `deliver::content_coding`.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::http::HeaderMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::cache::Pages;
use crate::cache::entry::Entry;
use crate::cache::flight::Seat;
use crate::cache::memory::Form;
use crate::cache::recoded::{self, DECODED_FACTOR, Delivery};
use crate::cache::rules::key::ShareClass;
use crate::http::coding::{Accepted, Coding};
use crate::telemetry::reason::Reason;

/// A body up to this size is compressed on the spot, in bytes: that takes a few milliseconds. What is
/// larger is compressed on a thread beside, and so is what has to be decoded.
pub(in crate::proxy) const SMALL: usize = 64 * 1024;

/// Forms that are made beside at the same time.
const TURNS: usize = 2;

/// How long a visitor waits who cannot read the page as it is stored: for its coming, and for the turn
/// of his form.
const PATIENCE: Duration = Duration::from_secs(5);

/// What makes the forms of pages, for all threads.
#[derive(Debug)]
pub struct Recompressor {
    /// The codings that we make, the most liked first.
    ours: Vec<Coding>,
    /// The largest stored body, in bytes.
    max_object: usize,
    turns: Arc<Semaphore>,
    /// What is being made behind answers, by the page's address; as many as there are turns.
    making: Mutex<HashSet<(usize, Coding)>>,
}

/// How a visitor is sent a page that is still on its way from the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) enum Live {
    /// As it comes.
    AsItComes,
    /// Recoded, when it has come.
    Whole,
    /// He cannot read it.
    Never,
}

impl Recompressor {
    /// One that makes `ours`, the most liked first, of bodies of up to `max_object` bytes; none: one
    /// that leaves everything as it came.
    #[must_use]
    pub fn new(ours: Vec<Coding>, max_object: u64) -> Arc<Self> {
        Arc::new(Self {
            ours,
            max_object: usize::try_from(max_object).unwrap_or(usize::MAX),
            turns: Arc::new(Semaphore::new(TURNS)),
            making: Mutex::default(),
        })
    }

    /// Whether pages are recoded at all.
    pub(in crate::proxy) fn is_on(&self) -> bool {
        !self.ours.is_empty()
    }

    /// Whether pages are brought into a coding.
    pub(in crate::proxy) fn makes(&self, coding: Coding) -> bool {
        self.ours.contains(&coding)
    }

    /// The codings into which pages of a class are brought: one user's own into none, for what he wrote and
    /// what nobody else may read stand in them side by side.
    pub(in crate::proxy) fn ours(&self, class: ShareClass) -> &[Coding] {
        if class == ShareClass::User { &[] } else { &self.ours }
    }

    /// How the sender of `request` is sent the page of a class with the fields `page`, which is on its way.
    pub(in crate::proxy) fn live(
        &self,
        class: ShareClass,
        request: &HeaderMap,
        page: &HeaderMap,
    ) -> Live {
        if !self.is_on() {
            return Live::AsItComes;
        }
        match recoded::delivery(request, page, self.max_object, self.ours(class)) {
            Delivery::AsStored => Live::AsItComes,
            Delivery::Recoded(_) if takes_stored(request, page) => Live::AsItComes,
            Delivery::Recoded(_) => Live::Whole,
            Delivery::Unreadable => Live::Never,
        }
    }

    /// Waits until a page that is on its way has come: whether it has, and may be where pages are kept.
    /// Nobody waits for one that takes too long or is too large to be kept.
    pub(in crate::proxy) async fn arrival(&self, mut seat: Seat) -> bool {
        let arriving = async {
            let mut length = 0;
            while let Some(part) =
                std::future::poll_fn(|cx| Pin::new(&mut seat).poll_part(cx)).await
            {
                length += part.map_or(usize::MAX, |part| part.len());
                if length > self.max_object {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(PATIENCE, arriving).await.unwrap_or(false)
    }

    /// Makes a form. One that memory could not hold would be made for each visitor anew, and held for
    /// each: there is none then.
    pub(in crate::proxy) fn make(&self, pages: &Pages, page: &Entry, coding: Coding) -> Form {
        let max_decoded = self.max_object.saturating_mul(DECODED_FACTOR);
        match recoded::form(page, coding, max_decoded) {
            Some(made) if pages.memory().has_room_for(&made) => Form::Made(Arc::new(made)),
            Some(_) | None => Form::Useless,
        }
    }

    fn making(&self) -> MutexGuard<'_, HashSet<(usize, Coding)>> {
        // A set that was poisoned holds whole values.
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a form behind the answer, unless all turns are taken or it is begun already. It ends by
    /// itself, soon: its page is bounded, and the runtime waits for its thread.
    pub(in crate::proxy) fn begin(
        self: &Arc<Self>,
        pages: &Arc<Pages>,
        page: &Arc<Entry>,
        coding: Coding,
    ) {
        if !pages.memory().has_room_for(page) {
            return;
        }
        let Ok(turn) = Arc::clone(&self.turns).try_acquire_owned() else { return };
        let name = (Arc::as_ptr(page).addr(), coding);
        if !self.making().insert(name) {
            return;
        }
        let begun = Begun { coder: Arc::clone(self), name, _turn: turn };
        let (pages, page) = (Arc::clone(pages), Arc::clone(page));
        tokio::task::spawn_blocking(move || {
            let form = begun.coder.make(&pages, &page, coding);
            pages.memory().put_form(&page, coding, form);
        });
    }

    /// Makes a form for a visitor who waits for it.
    pub(in crate::proxy) async fn wait_for(
        self: &Arc<Self>,
        pages: &Arc<Pages>,
        page: &Arc<Entry>,
        coding: Coding,
        keep: bool,
    ) -> Result<Form, Reason> {
        let turn = Arc::clone(&self.turns).acquire_owned();
        let Ok(Ok(turn)) = tokio::time::timeout(PATIENCE, turn).await else {
            return Err(Reason::Crowded);
        };
        // Another may have made it while this one waited.
        if let Some(form) = pages.memory().form(page, coding) {
            return Ok(form);
        }
        let (this, pages, page) = (Arc::clone(self), Arc::clone(pages), Arc::clone(page));
        let making = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let form = this.make(&pages, &page, coding);
            if keep {
                pages.memory().put_form(&page, coding, form.clone());
            }
            form
        });
        making.await.map_err(|_| Reason::Undecodable)
    }
}

/// A form that is being made behind an answer.
struct Begun {
    coder: Arc<Recompressor>,
    name: (usize, Coding),
    _turn: OwnedSemaphorePermit,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.coder.making().remove(&self.name);
    }
}

/// Whether the client can read the page as it is stored. He who is sent another form could, mostly.
pub(in crate::proxy) fn takes_stored(request: &HeaderMap, page: &HeaderMap) -> bool {
    recoded::recodable(page).is_some_and(|stored| Accepted::parse(request).takes(stored))
}
