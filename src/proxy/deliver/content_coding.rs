//! Stored pages in the coding that each visitor takes: found in memory, or made once for all.
//!
//! What may be recoded, and how, is `cache::recoded`'s word. Only stored pages come here, and of those that
//! are one user's own none is compressed: the length of what is compressed tells nobody a secret.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::http::header::{IF_RANGE, RANGE};
use ::http::{HeaderMap, HeaderValue, Method};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::cache::Pages;
use crate::cache::entry::Entry;
use crate::cache::flight::Seat;
use crate::cache::memory::Form;
use crate::cache::recoded;
use crate::cache::recoded::{DECODED_FACTOR, Delivery};
use crate::cache::rules::key::ShareClass;
use crate::http::coding::{Accepted, Coding};
use crate::http::etag::ETag;
use crate::proxy::{Case, deliver};
use crate::telemetry::reason::Reason;

/// A body up to this size is compressed on the spot, in bytes: that takes a few milliseconds. What is
/// larger is compressed on a thread beside, and so is what has to be decoded.
const SMALL: usize = 64 * 1024;
/// Forms that are made beside at the same time.
const TURNS: usize = 2;
/// How long a visitor waits who cannot read the page as it is stored: for its coming, and for the turn
/// of his form.
const PATIENCE: Duration = Duration::from_secs(5);

/// What makes the forms of pages, for all threads.
#[derive(Debug)]
pub struct Coder {
    /// The codings that we make, the most liked first.
    ours: Vec<Coding>,
    /// The largest stored body, in bytes.
    max_object: usize,
    turns: Arc<Semaphore>,
    /// What is being made behind answers, by the page's address; as many as there are turns.
    making: Mutex<HashSet<(usize, Coding)>>,
}

/// A page, ready to be sent to one visitor.
pub(in crate::proxy) struct Ready {
    pub(in crate::proxy) page: Arc<Entry>,
    /// Whether he may be sent parts of it.
    pub(in crate::proxy) in_parts: bool,
}

impl Ready {
    fn stored(page: &Arc<Entry>, in_parts: bool) -> Self {
        Self { page: Arc::clone(page), in_parts }
    }
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

impl Coder {
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
    fn ours(&self, class: ShareClass) -> &[Coding] {
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
    fn make(&self, pages: &Pages, page: &Entry, coding: Coding) -> Form {
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
    fn begin(self: &Arc<Self>, pages: &Arc<Pages>, page: &Arc<Entry>, coding: Coding) {
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
    async fn wait_for(
        self: &Arc<Self>,
        case: &Case<'_>,
        page: &Arc<Entry>,
        coding: Coding,
        keep: bool,
    ) -> Result<Form, Reason> {
        let turn = Arc::clone(&self.turns).acquire_owned();
        let Ok(Ok(turn)) = tokio::time::timeout(PATIENCE, turn).await else {
            return Err(Reason::Crowded);
        };
        // Another may have made it while this one waited.
        if let Some(form) = case.room.pages.memory().form(page, coding) {
            return Ok(form);
        }
        let (this, pages, page) =
            (Arc::clone(self), Arc::clone(&case.room.pages), Arc::clone(page));
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
    coder: Arc<Coder>,
    name: (usize, Coding),
    _turn: OwnedSemaphorePermit,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.coder.making().remove(&self.name);
    }
}

/// The coding into which a stored page is brought for this visitor; `None`: he is sent it as it is.
pub(in crate::proxy) fn recoding(
    case: &Case<'_>,
    class: ShareClass,
    page: &Entry,
) -> Result<Option<Coding>, Reason> {
    let (coder, request) = (&case.room.coder, &case.head.headers);
    if !coder.is_on() {
        return Ok(None);
    }
    match recoded::delivery(request, &page.headers, page.body.len(), coder.ours(class)) {
        Delivery::AsStored => Ok(None),
        Delivery::Recoded(coding) => Ok(Some(coding)),
        Delivery::Unreadable => Err(Reason::Vary),
    }
}

/// The form of a stored page that this visitor is sent, or why there is none. `keep`: whether memory
/// holds the very page, and so may hold its forms.
pub(in crate::proxy) async fn ready(
    case: &Case<'_>,
    class: ShareClass,
    page: &Arc<Entry>,
    keep: bool,
) -> Result<Ready, Reason> {
    let (coder, request) = (&case.room.coder, &case.head.headers);
    if !coder.is_on() {
        return Ok(Ready::stored(page, true));
    }
    let Some(coding) = recoding(case, class, page)? else {
        // He may have the start of a form that we made.
        let is_one_of_many = recoded::recodable(&page.headers).is_some();
        return Ok(Ready::stored(page, !is_one_of_many || wants_parts(case)));
    };
    let takes_stored = || takes_stored(request, &page.headers);
    if wants_parts(case) && takes_stored() {
        return Ok(Ready::stored(page, true));
    }
    let made = match case.room.pages.memory().form(page, coding) {
        Some(form) => form,
        // He has it already: there is no need to make it.
        None if deliver::is_not_modified(case, page) => {
            let headers = recoded::fields(&page.headers, coding);
            let bare = Entry { headers, body: Bytes::new(), ..Entry::clone(page) };
            return Ok(Ready { page: Arc::new(bare), in_parts: false });
        }
        None if takes_stored() && page.body.len() <= SMALL => {
            let form = coder.make(&case.room.pages, page, coding);
            if keep {
                case.room.pages.memory().put_form(page, coding, form.clone());
            }
            form
        }
        None if takes_stored() => {
            if keep {
                coder.begin(&case.room.pages, page, coding);
            }
            return Ok(Ready::stored(page, false));
        }
        None => coder.wait_for(case, page, coding, keep).await?,
    };
    match made {
        Form::Made(page) => Ok(Ready { page, in_parts: false }),
        // Whoever refuses what is in no coding, which would be smaller in none, gets it all the same.
        Form::Useless if recoded::recodable(&page.headers) == Some(Coding::Identity) => {
            Ok(Ready::stored(page, takes_stored()))
        }
        Form::Useless => Err(Reason::Undecodable),
    }
}

/// Whether the client can read the page as it is stored. He who is sent another form could, mostly.
fn takes_stored(request: &HeaderMap, page: &HeaderMap) -> bool {
    recoded::recodable(page).is_some_and(|stored| Accepted::parse(request).takes(stored))
}

/// Whether parts of the stored bytes are asked for, which are cut from no other form. A date in
/// `If-Range` is the same for all forms, and cannot tell which of them the client has the start of: he
/// gets the whole then (RFC 9110 §13.1.5).
fn wants_parts(case: &Case<'_>) -> bool {
    let request = &case.head.headers;
    let is_tag = |value: &HeaderValue| ETag::parse(value.as_bytes()).is_some();
    case.head.method == Method::GET
        && request.contains_key(RANGE)
        && request.get_all(IF_RANGE).iter().all(is_tag)
}
