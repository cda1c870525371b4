//! A fill: one fetch from the origin for the cache, carried out for a flight.
//!
//! The fetch belongs to the flight and not to the request that began it. What the response may be
//! used for is `page::verdict`'s word; what is done about it is done here.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{AGE, CONTENT_TYPE, IF_MODIFIED_SINCE, IF_NONE_MATCH, SET_COOKIE};
use ::http::{HeaderMap, Request, StatusCode, Uri};
use bytes::Bytes;
use tokio::sync::oneshot;

use crate::clock::unix_now;
use crate::http::conditional::{Validators, fits, update, validators};
use crate::http::freshness::initial_age;
use crate::http::tags::{strip_tags, tags};
use crate::http::{forwarded, hop};
use crate::ident::PageKey;
use crate::metrics::{Count, Sheet};
use crate::origin::{Keep, Origin, OriginBody, OriginError, OriginResponse, Outgoing};
use crate::page::coded::DECODED_FACTOR;
use crate::page::entry::{Entry, compact};
use crate::page::flight::{EndGuard, Flight, Pushed, Seat, Verdict};
use crate::page::guard::{self, Finding};
use crate::page::key::ShareClass;
use crate::page::purge::{Marks, tag_slots};
use crate::page::verdict::{Answered, Asked, Policy, Storing, Who, may_store};
use crate::page::{Lookup, Pages, ToStore, TooManyVariants};
use crate::reason::Reason;
use crate::route::Route;
use crate::store::{AnyStore, Lease, PageStore, StoreError};

/// For how long a page is fetched by everyone alone whose origin failed, or for which there was no
/// room, in seconds.
const ERROR_TTL: u64 = 1;
/// For how long a proxy of a fleet has the fetch of a page to itself. A slower origin is asked by
/// others, too.
const LEASE: Duration = Duration::from_secs(5);
/// How often a proxy looks whether another has fetched the page.
const LOOK_AGAIN: Duration = Duration::from_millis(25);
/// How long others wait for the whole of a page that the guard has to read.
const GUARD_PATIENCE: Duration = Duration::from_secs(5);

/// How the fetch differs from the visitor's own request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Not at all, as far as a response can depend on it.
    None,
    /// It names another client address.
    Address,
    /// Something of the visitor's was left out.
    Visitor,
}

impl Loss {
    /// Whether an unshareable response is still the right one for the visitor whose request it was.
    fn spares(self, head: &::http::response::Parts) -> bool {
        match self {
            Self::None => true,
            // A session or a refusal may hang on the address.
            Self::Address => {
                !head.headers.contains_key(SET_COOKIE)
                    && !matches!(head.status.as_u16(), 401 | 403 | 407 | 429 | 451)
            }
            Self::Visitor => false,
        }
    }
}

/// What to fetch, and as what to keep it.
#[derive(Debug)]
pub struct Order {
    /// The key without variants.
    pub primary: PageKey,
    /// With whom the page is shared.
    pub class: ShareClass,
    /// The request to the origin, without what is not in the key.
    pub request: Request<Outgoing>,
    /// The route.
    pub route: Arc<Route>,
    /// How the fetch differs from the visitor's own request.
    pub loss: Loss,
    /// The stale page that is fetched anew: the origin may say that it is right still.
    pub held: Option<Arc<Entry>>,
    /// Whether that page may be served should the origin fail: what comes is held back until it is
    /// whole then, as long as the first to ask cares to wait.
    pub withhold: bool,
}

/// What the request that began the flight gets.
#[derive(Debug)]
pub enum Led {
    /// The response, unshared.
    Own(OriginResponse, Reason),
    /// The shared response.
    Shared {
        /// Its head.
        head: Arc<Entry>,
        /// Its body.
        seat: Seat,
        /// The body's length, where it is known.
        length: Option<u64>,
        /// Whether it is kept, as far as can be told: the guard may still have to read the body.
        stored: bool,
    },
    /// The origin says that the page is right still, and it is as fresh as this says.
    Validated(Arc<Entry>),
    /// The page that another proxy of the fleet has fetched meanwhile.
    Elsewhere(Arc<Entry>),
    /// Nothing: the request is to be forwarded as it came.
    Again(Reason),
    /// No response.
    Failed(OriginError),
}

/// Fetches for the cache. One a thread.
#[derive(Debug)]
pub struct Filler {
    /// The pages to fill.
    pub pages: Arc<Pages>,
    /// Where from.
    pub origin: Rc<Origin>,
    /// The store behind the pages.
    pub store: AnyStore,
    /// The cache's settings.
    pub policy: Policy,
    /// Counters of this thread.
    pub sheet: Arc<Sheet>,
}

impl Filler {
    /// Begins the fetch in a task of its own. The first to ask hears from it once.
    pub fn begin(self: &Rc<Self>, flight: Arc<Flight>, order: Order) -> oneshot::Receiver<Led> {
        let (tell, told) = oneshot::channel();
        let this = Rc::clone(self);
        let end = EndGuard(flight);
        tokio::task::spawn_local(async move { this.fly(&end.0, order, tell).await });
        told
    }

    /// Fetches the page, unless another proxy of the fleet does.
    async fn fly(&self, flight: &Arc<Flight>, order: Order, tell: oneshot::Sender<Led>) {
        let who = fastrand::u64(..);
        match self.lease(flight, &order, who).await {
            Leased::Landed(entry) => {
                flight.answer(&entry);
                say(tell, Led::Elsewhere(entry));
            }
            Leased::Unshareable => {
                let (memory, now) = (self.pages.memory(), unix_now() as u64);
                memory.mark_uncacheable_for(order.primary, Reason::Elsewhere, now, ERROR_TTL);
                flight.decide(Verdict::Refused(Reason::Elsewhere));
                say(tell, Led::Again(Reason::Elsewhere));
            }
            Leased::No => drop(self.fetch(flight, order, tell).await),
            Leased::Ours => {
                let is_shareable = self.fetch(flight, order, tell).await;
                let ended = self.store.end_lease(flight.key(), who, is_shareable).await;
                if let Err(error) = ended {
                    tracing::debug!(%error, "a lease lasts for its time");
                }
            }
        }
    }

    /// Asks for the lease on the page. While another has it, waits for what that brings. A store that
    /// cannot say grants everything.
    async fn lease(&self, flight: &Flight, order: &Order, who: u64) -> Leased {
        let patience = tokio::time::Instant::now() + LEASE;
        let mut has_waited = false;
        loop {
            match self.store.lease(flight.key(), who, LEASE).await {
                Ok(Lease::Ours) if has_waited => break,
                Ok(Lease::Ours) => return Leased::Ours,
                Ok(Lease::Unshareable) => return Leased::Unshareable,
                Ok(Lease::Theirs) if tokio::time::Instant::now() < patience => {}
                Ok(Lease::Theirs) => return Leased::No,
                Err(error) => {
                    tracing::debug!(%error, "there is no lease on a page");
                    return Leased::No;
                }
            }
            has_waited = true;
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        // The other has done with it: the page is there, or has failed.
        let (primary, now) = (&order.primary, unix_now() as u64);
        let found = self.pages.look_up(&self.store, primary, &flight.sent, now).await;
        let Ok(Lookup::Fresh(entry, _)) = found else { return Leased::Ours };
        if let Err(error) = self.store.end_lease(flight.key(), who, true).await {
            tracing::debug!(%error, "a lease lasts for its time");
        }
        Leased::Landed(entry)
    }

    /// Fetches the page. Returns whether others may have it.
    async fn fetch(&self, flight: &Arc<Flight>, order: Order, tell: oneshot::Sender<Led>) -> bool {
        let seat = flight.lead_seat();
        let Order { primary, class, mut request, route, loss, held, withhold } = order;
        let target = request.uri().clone();
        let marks = flight.marks.clone();
        let replaces = held.is_some();
        let held = held.filter(|held| held.has_validator());
        if let Some(held) = &held {
            ask_whether(&held.headers, request.headers_mut());
        }
        let asked_at = unix_now();
        let came = match self.origin.send(request, Keep::Pool(None)).await {
            Ok(came) => came,
            Err(error) => {
                flight.decide(Verdict::Failed { timed_out: error.timed_out() });
                say(tell, Led::Failed(error));
                return true;
            }
        };
        let fetch = Fetch {
            primary,
            target,
            route,
            class,
            loss,
            withhold,
            replaces,
            asked_at,
            came_at: unix_now(),
            marks,
        };
        if let Some(held) = held.filter(|_| came.response.status() == StatusCode::NOT_MODIFIED) {
            return self.refresh(&fetch, flight, &held, came.response.headers(), tell).await;
        }
        if withhold && is_server_error(came.response.status()) {
            self.refuse(&fetch, flight, came, Reason::ServerError, tell);
            return true;
        }
        match self.judge(&fetch, flight, &came) {
            Ok(storing) => self.share(fetch, flight, came, storing, Lead { seat, tell }).await,
            Err(reason) => {
                let outdates = fetch.replaces && !passes(came.response.status());
                self.refuse(&fetch, flight, came, reason, tell);
                if outdates {
                    self.forget(&fetch).await;
                }
                false
            }
        }
    }

    fn judge(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        came: &OriginResponse,
    ) -> Result<Storing, Reason> {
        let headers = came.response.headers();
        let answer = Answered {
            status: came.response.status(),
            headers,
            length: came.length,
            unframed: came.unframed,
            age: fetch.age(headers),
            now: fetch.came_at as u64,
        };
        self.may_store(fetch, flight, &answer)
    }

    fn may_store(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        answer: &Answered<'_>,
    ) -> Result<Storing, Reason> {
        let asked = Asked {
            method: &::http::Method::GET,
            path: fetch.target.path(),
            query: fetch.target.query().unwrap_or_default(),
            headers: &flight.sent,
            has_body: false,
            bound: false,
            who: Who::Anonymous,
            ranks: true,
        };
        // What could not be purged by all its tags is not kept.
        tags(answer.headers).map_err(|_| Reason::Tags)?;
        may_store(&asked, fetch.class, answer, &fetch.route, &self.policy)
    }

    /// The origin said 304: the page that we hold is right, and what the 304 says of it is new
    /// (RFC 9111 §4.3.4). Where it may no longer be shared, or the 304 speaks of another page, it is
    /// forgotten. Returns whether others may have it.
    async fn refresh(
        &self,
        fetch: &Fetch,
        flight: &Arc<Flight>,
        held: &Entry,
        said: &HeaderMap,
        tell: oneshot::Sender<Led>,
    ) -> bool {
        let judged =
            fits(&held.headers, said).then(|| update(&held.headers, said)).map(|headers| {
                let answer = Answered {
                    status: StatusCode::from_u16(held.status).unwrap_or(StatusCode::OK),
                    headers: &headers,
                    length: Some(held.body.len() as u64),
                    unframed: false,
                    age: fetch.age(said),
                    now: fetch.came_at as u64,
                };
                self.may_store(fetch, flight, &answer).map(|storing| (headers.clone(), storing))
            });
        let (headers, storing) = match judged {
            Some(Ok(judged)) => judged,
            Some(Err(reason)) => return self.outdated(fetch, flight, reason, tell).await,
            None => return self.outdated(fetch, flight, Reason::Stale, tell).await,
        };
        // What was no html, or in another charset, was read by no guard as what it is now.
        let is_as_before = headers.get(CONTENT_TYPE) == held.headers.get(CONTENT_TYPE);
        if storing.guarded
            && !is_as_before
            && let Err(finding) =
                guard::inspect(&headers, std::slice::from_ref(&held.body), self.decoded_max())
        {
            return self.outdated(fetch, flight, reason_of(finding), tell).await;
        }
        let is_fresh = storing.is_fresh;
        // Its tags are those that the 304 says, else the page's.
        let told = tags(said).ok().filter(|told| !told.is_empty());
        let slots = told.map_or_else(|| held.marks.slots.clone(), |told| tag_slots(&told));
        let mut headers = headers;
        strip_tags(&mut headers);
        let refreshed = Entry {
            status: held.status,
            reason: held.reason.clone(),
            headers: compact(&shown(headers)),
            body: held.body.clone(),
            stored_at: fetch.came_at as u64,
            initial_age: fetch.age(said),
            lifetime: storing.lifetime,
            source: storing.source,
            stale: storing.stale,
            static_proof: storing.static_proof && held.static_proof,
            own_tag: false,
            vary: storing.vary,
            marks: Arc::new(fetch.marks.clone().with(&slots)),
        };
        let to_store = self.keep(fetch, flight, refreshed.clone());
        let refreshed = Arc::new(refreshed);
        if is_fresh {
            flight.answer(&refreshed);
        } else {
            flight.decide(Verdict::Refused(Reason::Stale));
            flight.end_whole();
        }
        // The visitor does not wait for the store.
        say(tell, Led::Validated(refreshed));
        for one in to_store {
            self.put(&one, flight).await;
        }
        true
    }

    /// What we hold is not to be used any more.
    async fn outdated(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        reason: Reason,
        tell: oneshot::Sender<Led>,
    ) -> bool {
        self.sheet.refused(reason);
        flight.decide(Verdict::Refused(reason));
        self.forget(fetch).await;
        say(tell, Led::Again(reason));
        false
    }

    /// What we hold is not what the origin answers any more (RFC 9111 §4.3.3).
    async fn forget(&self, fetch: &Fetch) {
        let gone = self.pages.invalidate(&fetch.primary, fetch.came_at as u64);
        if let Err(error) = self.store.delete_pages(&gone).await {
            tracing::debug!(%error, "an outdated page stays in the store for its time");
        }
    }

    /// The response is for nobody else.
    fn refuse(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        came: OriginResponse,
        reason: Reason,
        tell: oneshot::Sender<Led>,
    ) {
        // What a cache before the origin was about to drop comes anew the next time.
        let aged = reason == Reason::Stale && fetch.age(came.response.headers()) > 0;
        if reason == Reason::ServerError {
            // Who has a stale page is to find that, and not be forwarded.
            self.sheet.refused(reason);
        } else {
            self.mark(fetch, reason, aged || passes(came.response.status()));
        }
        flight.decide(Verdict::Refused(reason));
        let (head, body) = came.response.into_parts();
        if reason != Reason::Anteroom && fetch.loss.spares(&head) {
            let response = ::http::Response::from_parts(head, body);
            say(tell, Led::Own(OriginResponse { response, ..came }, reason));
        } else {
            say(tell, Led::Again(reason));
        }
    }

    /// Counts a refusal and remembers that the key is uncacheable: not for long where that passes,
    /// and not at all where it lies with the request.
    fn mark(&self, fetch: &Fetch, reason: Reason, passing: bool) {
        self.sheet.refused(reason);
        let path = fetch.target.path();
        tracing::debug!(path, reason = reason.as_str(), "a page is not shared");
        let now = fetch.came_at as u64;
        let memory = self.pages.memory();
        if reason == Reason::Accept {
            return;
        }
        if passing || reason == Reason::Crowded {
            memory.mark_uncacheable_for(fetch.primary, reason, now, ERROR_TTL);
        } else {
            memory.mark_uncacheable(fetch.primary, reason, now);
        }
    }

    /// The response may be shared, unless the guard finds something in its body.
    async fn share(
        &self,
        fetch: Fetch,
        flight: &Arc<Flight>,
        came: OriginResponse,
        storing: Storing,
        lead: Lead,
    ) -> bool {
        let length = came.length;
        let guarded = storing.guarded;
        let is_fresh = storing.is_fresh;
        let (head, body) = came.response.into_parts();
        let head = Arc::new(fetch.entry(head, storing));
        if !is_fresh {
            flight.turn_away(Reason::Stale);
        } else if !guarded && !fetch.withhold {
            flight.decide(Verdict::Shared(Arc::clone(&head), length));
        }
        // Where it is the right response for its visitor whatever the guard says, he has it now;
        // unless he may have a stale page should this one break off.
        let mut waiting = Some(lead);
        if !(fetch.withhold || guarded && fetch.loss == Loss::Visitor)
            && let Some(lead) = waiting.take()
        {
            lead.shared(&head, length, !guarded);
        }
        let read = match (guarded, waiting.is_some()) {
            (true, withheld) => self.read_guarded(&fetch, flight, body, withheld).await,
            (false, false) => self.read(flight, body).await,
            (false, true) => {
                let (head, is_fresh) = (&head, is_fresh);
                self.read_withheld(flight, body, || {
                    if is_fresh {
                        flight.decide(Verdict::Shared(Arc::clone(head), length));
                    }
                    if let Some(lead) = waiting.take() {
                        lead.shared(head, length, true);
                    }
                })
                .await
            }
        };
        match read.and_then(|body| self.inspect(&head, body, guarded)) {
            Ok(Some(body)) => self.land(&fetch, flight, &head, body, waiting).await,
            Ok(None) => {
                flight.end_whole();
                return false;
            }
            Err(Stop::Refused(reason)) => {
                self.mark(&fetch, reason, false);
                flight.decide(Verdict::Refused(reason));
                flight.end_whole();
                if let Some(lead) = waiting {
                    say(lead.tell, Led::Again(reason));
                }
                if fetch.replaces {
                    self.forget(&fetch).await;
                }
                return false;
            }
            Err(Stop::Failed(error)) => {
                tracing::info!(%error, path = fetch.target.path(), "a page broke off at the origin");
                if let Some(lead) = waiting {
                    say(lead.tell, Led::Failed(error));
                }
            }
            Err(Stop::Abandoned) => return false,
        }
        true
    }

    /// Reads the body into the flight. `None`: it went to its readers, but is not kept whole.
    async fn read(&self, flight: &Flight, mut body: OriginBody) -> Result<Option<Bytes>, Stop> {
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let Ok(part) = frame.map_err(Stop::Failed)?.into_data() else { continue };
            length += part.len() as u64;
            if flight.push(part, self.policy.max_object) == Pushed::NoRoom {
                self.sheet.refused(self.no_room(length));
            }
            if !std::future::poll_fn(|cx| flight.poll_room(cx)).await {
                return Err(Stop::Abandoned);
            }
        }
        Ok(flight.body())
    }

    /// The same for a body that the guard has to see whole before anybody shares it. Nobody waits
    /// for one that grows too large or takes too long: it is the first visitor's alone then, and
    /// not even his where it was `withheld` from him.
    async fn read_guarded(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        mut body: OriginBody,
        withheld: bool,
    ) -> Result<Option<Bytes>, Stop> {
        let patience = tokio::time::Instant::now() + GUARD_PATIENCE;
        let mut length = 0;
        let reason = loop {
            let Ok(frame) = tokio::time::timeout_at(patience, body.frame()).await else {
                break Reason::Slow;
            };
            let Some(frame) = frame else { return Ok(flight.body()) };
            let Ok(part) = frame.map_err(Stop::Failed)?.into_data() else { continue };
            length += part.len() as u64;
            if flight.push(part, self.policy.max_object) == Pushed::NoRoom {
                break self.no_room(length);
            }
        };
        if withheld {
            return Err(Stop::Refused(reason));
        }
        self.mark(fetch, reason, false);
        flight.decide(Verdict::Refused(reason));
        self.read(flight, body).await.map(|_| None)
    }

    /// The same for a body that is held back until it is whole, for a page that is there could be
    /// served should it break off. What is too large for that is let go by `release`.
    async fn read_withheld(
        &self,
        flight: &Flight,
        mut body: OriginBody,
        release: impl FnOnce(),
    ) -> Result<Option<Bytes>, Stop> {
        let patience = tokio::time::Instant::now() + GUARD_PATIENCE;
        loop {
            let Ok(frame) = tokio::time::timeout_at(patience, body.frame()).await else { break };
            let Some(frame) = frame else { return Ok(flight.body()) };
            let Ok(part) = frame.map_err(Stop::Failed)?.into_data() else { continue };
            if flight.push(part, self.policy.max_object) == Pushed::NoRoom {
                break;
            }
        }
        release();
        self.read(flight, body).await
    }

    /// Why a body of which so much has come is not kept.
    fn no_room(&self, length: u64) -> Reason {
        if length > self.policy.max_object { Reason::TooLarge } else { Reason::Crowded }
    }

    /// How large a page may be that the guard reads decoded, in bytes.
    fn decoded_max(&self) -> usize {
        let most = self.policy.max_object.saturating_mul(DECODED_FACTOR as u64);
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    fn inspect(
        &self,
        head: &Entry,
        body: Option<Bytes>,
        guarded: bool,
    ) -> Result<Option<Bytes>, Stop> {
        let (true, Some(body)) = (guarded, &body) else { return Ok(body) };
        guard::inspect(&head.headers, std::slice::from_ref(body), self.decoded_max())
            .map_err(|finding| Stop::Refused(reason_of(finding)))?;
        Ok(Some(body.clone()))
    }

    /// The body is whole and passed the guard: kept first, so that whoever comes after the flight
    /// finds it; then told; then stored.
    async fn land(
        &self,
        fetch: &Fetch,
        flight: &Arc<Flight>,
        head: &Arc<Entry>,
        body: Bytes,
        waiting: Option<Lead>,
    ) {
        let length = Some(body.len() as u64);
        let mut entry = Entry { body, ..Entry::clone(head) };
        entry.tag();
        let to_store = self.keep(fetch, flight, entry);
        flight.decide_landed(Verdict::Shared(Arc::clone(head), length));
        if let Some(lead) = waiting {
            lead.shared(head, length, true);
        }
        flight.end_whole();
        if !to_store.is_empty() {
            self.sheet.count(Count::Stored);
        }
        for one in to_store {
            self.put(&one, flight).await;
        }
    }

    /// Keeps the page in memory, unless an unsafe request or a purge has changed it meanwhile.
    fn keep(&self, fetch: &Fetch, flight: &Flight, entry: Entry) -> Vec<ToStore> {
        if flight.is_invalidated() || !self.pages.purged.is_current(&entry.marks) {
            return Vec::new();
        }
        let kept = self.pages.keep(fetch.primary, &flight.sent, entry, unix_now() as u64);
        let kept = kept.unwrap_or_else(|TooManyVariants| {
            self.sheet.refused(Reason::Variants);
            Vec::new()
        });
        if !flight.is_invalidated() {
            return kept;
        }
        // A change between the two looks may have come too soon to find the page.
        kept.iter().for_each(|one| self.pages.memory().remove(&one.key));
        Vec::new()
    }

    async fn put(&self, one: &ToStore, flight: &Flight) {
        match self.store.put_page(&one.key, one.encode(), one.ttl).await {
            // It may have been changed by an unsafe request while it was on its way.
            Ok(()) if flight.is_invalidated() => {
                if let Err(error) = self.store.delete_pages(&[one.key]).await {
                    tracing::warn!(%error, "a page that was changed stays in the store for its time");
                }
            }
            Ok(()) | Err(StoreError::Full) => {}
            Err(error) => {
                self.sheet.count(Count::StoreWriteErrors);
                tracing::debug!(%error, "a page was not stored");
            }
        }
    }
}

/// What came of asking for the lease.
enum Leased {
    Ours,
    /// Nobody can say who has it.
    No,
    /// Another has fetched the page.
    Landed(Arc<Entry>),
    /// Another has found that the page is for nobody else.
    Unshareable,
}

/// The request that began a flight, waiting for its answer.
struct Lead {
    seat: Seat,
    tell: oneshot::Sender<Led>,
}

impl Lead {
    fn shared(self, head: &Arc<Entry>, length: Option<u64>, stored: bool) {
        let (head, seat) = (Arc::clone(head), self.seat);
        say(self.tell, Led::Shared { head, seat, length, stored });
    }
}

/// What everyone is shown of a response's fields, and of those that a 304 brings to a page.
fn shown(mut headers: HeaderMap) -> HeaderMap {
    hop::strip_for_storing(&mut headers);
    // What the route lets a fill lose; any other Set-Cookie made the response unshareable.
    headers.remove(SET_COOKIE);
    headers.remove(AGE);
    let own: Vec<_> =
        headers.keys().filter(|name| forwarded::is_own(name.as_str())).cloned().collect();
    for name in own {
        headers.remove(name);
    }
    headers
}

/// Answers the request that began the flight, if its client is still there.
fn say(tell: oneshot::Sender<Led>, what: Led) {
    if tell.send(what).is_err() {
        tracing::debug!("the client that began a fetch has left");
    }
}

/// Makes a request for a page the question whether `held` is right still (RFC 9111 §4.3.1).
fn ask_whether(held: &HeaderMap, request: &mut HeaderMap) {
    let Validators { if_none_match, if_modified_since } = validators(held);
    for (name, value) in [(IF_NONE_MATCH, if_none_match), (IF_MODIFIED_SINCE, if_modified_since)] {
        if let Some(value) = value {
            request.insert(name, value);
        }
    }
}

/// RFC 5861 §4: what counts as an error of the origin.
fn is_server_error(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}

/// Why a body did not land.
enum Stop {
    Refused(Reason),
    Failed(OriginError),
    /// It is not kept, and nobody reads it any more.
    Abandoned,
}

/// Whether a status is of the moment, or of one request: some field that a fill sends may be too
/// much for the origin, and another visitor's not.
fn passes(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status.as_u16(), 400 | 406 | 408 | 409 | 411..=431)
}

fn reason_of(finding: Finding) -> Reason {
    match finding {
        Finding::CsrfField => Reason::CsrfField,
        Finding::SessionIdInLink => Reason::SessionInLink,
        Finding::Undecodable => Reason::Undecodable,
    }
}

/// A fetch whose response has begun.
struct Fetch {
    primary: PageKey,
    target: Uri,
    route: Arc<Route>,
    class: ShareClass,
    loss: Loss,
    withhold: bool,
    /// Whether a page was there.
    replaces: bool,
    /// Unix times, in seconds.
    asked_at: f64,
    came_at: f64,
    /// Which purges hit it, but for the tags.
    marks: Marks,
}

impl Fetch {
    /// The time that the fetch took counts in whole seconds: were both moments rounded first, a
    /// fetch of a few milliseconds would make some pages a second older.
    fn age(&self, headers: &HeaderMap) -> u64 {
        let (came, took) = (self.came_at as u64, (self.came_at - self.asked_at) as u64);
        initial_age(headers, came.saturating_sub(took), came)
    }

    /// The head of the page as it is kept and shown to everyone.
    fn entry(&self, mut head: ::http::response::Parts, storing: Storing) -> Entry {
        let initial_age = self.age(&head.headers);
        let slots = tags(&head.headers).map(|tags| tag_slots(&tags)).unwrap_or_default();
        strip_tags(&mut head.headers);
        let headers = shown(std::mem::take(&mut head.headers));
        let reason = head.extensions.get::<hyper::ext::ReasonPhrase>();
        Entry {
            status: head.status.as_u16(),
            reason: reason.map(|phrase| Bytes::copy_from_slice(phrase.as_bytes())),
            headers: compact(&headers),
            body: Bytes::new(),
            stored_at: self.came_at as u64,
            initial_age,
            lifetime: storing.lifetime,
            source: storing.source,
            stale: storing.stale,
            static_proof: storing.static_proof,
            own_tag: false,
            vary: storing.vary,
            marks: Arc::new(self.marks.clone().with(&slots)),
        }
    }
}
