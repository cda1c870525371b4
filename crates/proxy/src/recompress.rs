//! Makes stored pages available in other content codings. Each form is made once for all clients and
//! kept in memory.
//!
//! `cache::recoded` decides what may be recoded, and how. `deliver::content_coding` decides which form a
//! client gets.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::http::HeaderMap;
use anteroom_http::coding::{AcceptedCodings, Coding};
use anteroom_http::recoding_terms::RecodingTerms;
use anteroom_telemetry::reason::Reason;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use anteroom_cache::Pages;
use anteroom_cache::entry::Entry;
use anteroom_cache::flight::FlightReader;
use anteroom_cache::memory::RecodedPage;
use anteroom_cache::page_fields::PageFields;
use anteroom_cache::recoded::{self, DECODED_FACTOR, Delivery};
use anteroom_cache::rules::key::ShareClass;

/// Bodies up to this size, in bytes, are compressed inline, which takes a few milliseconds. Larger
/// bodies are compressed on a blocking thread, and so are bodies that must be decoded first.
pub(crate) const SMALL: usize = 64 * 1024;

/// The number of forms that are made on blocking threads at the same time.
const TURNS: usize = 2;

/// How long a client that cannot read the stored form waits: for the page to arrive, and for a permit to
/// recode it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Makes the forms of pages, for all threads.
#[derive(Debug)]
pub struct Recompressor {
    /// The codings that the proxy makes, in order of preference.
    ours: Vec<Coding>,
    /// The largest stored body, in bytes.
    max_object: usize,
    turns: Arc<Semaphore>,
    /// The forms being made in the background, by the page's address in memory; at most as many as there
    /// are permits.
    making: Mutex<HashSet<(usize, Coding)>>,
}

/// How a client is sent a page that is still arriving from the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArrivingPage {
    /// As it arrives.
    AsItComes,
    /// Recoded, after it has arrived.
    Whole,
    /// Not at all: the client cannot read it.
    Never,
}

impl Recompressor {
    /// A recompressor that makes the codings `ours`, in order of preference, of bodies of up to
    /// `max_object` bytes. Without codings, it leaves pages as they came.
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
    pub(crate) fn is_on(&self) -> bool {
        !self.ours.is_empty()
    }

    /// Whether pages are recoded to `coding`.
    pub(crate) fn makes(&self, coding: Coding) -> bool {
        self.ours.contains(&coding)
    }

    /// The codings for pages of a class. Pages of one user are not compressed, because user input and
    /// secrets stand side by side in them.
    pub(crate) fn ours(&self, class: ShareClass) -> &[Coding] {
        if class == ShareClass::User { &[] } else { &self.ours }
    }

    /// How the client of `request` is sent a page of a class with the fields `page`, while it is
    /// arriving.
    pub(crate) fn live(
        &self,
        class: ShareClass,
        request: &HeaderMap,
        page: &PageFields,
    ) -> ArrivingPage {
        if !self.is_on() {
            return ArrivingPage::AsItComes;
        }
        match recoded::delivery(request, page, self.max_object, self.ours(class)) {
            Delivery::AsStored => ArrivingPage::AsItComes,
            Delivery::Recoded(_) if takes_stored(request, page.recodable) => {
                ArrivingPage::AsItComes
            }
            Delivery::Recoded(_) => ArrivingPage::Whole,
            Delivery::Unreadable => ArrivingPage::Never,
        }
    }

    /// Waits until an arriving page is complete; true if it is and may be stored. A page that takes too
    /// long, or is too large to be stored, ends the wait.
    pub(crate) async fn arrival(&self, mut reader: FlightReader) -> bool {
        let arriving = async {
            let mut length = 0;
            while let Some(part) =
                std::future::poll_fn(|cx| Pin::new(&mut reader).poll_part(cx)).await
            {
                length += part.map_or(usize::MAX, |part| part.len());
                if length > self.max_object {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(TIMEOUT, arriving).await.unwrap_or(false)
    }

    /// Makes a form. A form that does not fit into memory is dropped: it would be made for each request
    /// again.
    pub(crate) fn make(&self, pages: &Pages, page: &Entry, coding: Coding) -> RecodedPage {
        let max_decoded = self.max_object.saturating_mul(DECODED_FACTOR);
        match recoded::form(page, coding, max_decoded) {
            Some(made) if pages.memory().has_room_for(&made) => RecodedPage::Made(Arc::new(made)),
            Some(_) | None => RecodedPage::Useless,
        }
    }

    fn making(&self) -> MutexGuard<'_, HashSet<(usize, Coding)>> {
        // A poisoned set holds complete values.
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to make a form in the background, unless all permits are in use or the form is being made
    /// already. The work is short because the page's size is bounded, and the runtime waits for its
    /// thread.
    pub(crate) fn begin(self: &Arc<Self>, pages: &Arc<Pages>, page: &Arc<Entry>, coding: Coding) {
        if !pages.memory().has_room_for(page) {
            return;
        }
        let Ok(turn) = Arc::clone(&self.turns).try_acquire_owned() else { return };
        let name = (Arc::as_ptr(page).addr(), coding);
        if !self.making().insert(name) {
            return;
        }
        let begun = RecompressionJob { recompressor: Arc::clone(self), name, _turn: turn };
        let (pages, page) = (Arc::clone(pages), Arc::clone(page));
        tokio::task::spawn_blocking(move || {
            let form = begun.recompressor.make(&pages, &page, coding);
            pages.memory().put_form(&page, coding, form);
        });
    }

    /// Makes a form while the client waits.
    pub(crate) async fn wait_for(
        self: &Arc<Self>,
        pages: &Arc<Pages>,
        page: &Arc<Entry>,
        coding: Coding,
        keep: bool,
    ) -> Result<RecodedPage, Reason> {
        let turn = Arc::clone(&self.turns).acquire_owned();
        let Ok(Ok(turn)) = tokio::time::timeout(TIMEOUT, turn).await else {
            return Err(Reason::Crowded);
        };
        // Another request may have made it in the meantime.
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

/// A form that is being made in the background.
struct RecompressionJob {
    recompressor: Arc<Recompressor>,
    name: (usize, Coding),
    _turn: OwnedSemaphorePermit,
}

impl Drop for RecompressionJob {
    fn drop(&mut self) {
        self.recompressor.making().remove(&self.name);
    }
}

/// Whether the client can read the page as it is stored. Most clients that are sent another form could.
pub(crate) fn takes_stored(request: &HeaderMap, page: RecodingTerms) -> bool {
    page.from.is_some_and(|stored| AcceptedCodings::parse(request).takes(stored))
}
