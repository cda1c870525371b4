//! The life of a request, from its head to the line in the access log.
//!
//! The steps are told in [`respond`] and `answer`; each file below carries out one of them. What
//! may be shared is decided in `cache::rules::verdict`, never here.

pub mod connection;
mod cookie_report;
mod deliver;
mod error;
mod explain;
mod record;
mod settle;
mod source;
mod stage;

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;

use ::http::{Method, Request, Response, Version};
use hyper::body::Incoming;

use crate::cache::fill::Filler;
use crate::cache::purge::scope::{Digest, url_scopes};
use crate::cache::rules::group;
use crate::cache::rules::key::{KeyParts, ShareClass, hash_request};
use crate::cache::rules::request_directives::Wish;
use crate::cache::rules::verdict;
use crate::cache::rules::verdict::{Access, can_cache};
use crate::cache::{Look, Pages};
use crate::clock::unix_now;
use crate::http::client_cert::ClientCertificate;
use crate::http::cookie::{self, rebuild};
use crate::http::harden::Hardening;
use crate::http::pattern::Pattern;
use crate::http::peer::{Guests, Peers};
use crate::http::{hop, media, query};
use crate::ident::{Item, PageKey};
use crate::origin::{Upstream, Upstreams};
use crate::policy::route;
use crate::policy::route::Routes;
use crate::row::{self, Names};
use crate::session::visit::{Ranks, VisitQueue, VisitorVisits};
use crate::session::{Sessions, Verified};
use crate::store::AnyStore;
use crate::telemetry::access_log::Pen;
use crate::telemetry::metrics::{Count, Crumb, Sheet};
use crate::telemetry::reason::Reason;

use connection::client::Client;
use connection::counter::Crowd;
pub use connection::detached::Left;
use connection::detached::{Outliving, Tie};
pub use connection::tunnel::{Tunnel, TunnelSlot};
pub use cookie_report::{CookieKinds, CookieReport, SeenCookie, cookie_hints, cookie_report};
pub use deliver::body::{Body, BodyError};
pub use deliver::content_coding::Coder;
pub use deliver::fragments::{Limits as HoleLimits, Waiting as WaitingHoles};
use error::Error;
pub use explain::{Explanation, Question, Unclear, explain};
use record::Trail;
use settle::app_login::Heard;
pub use settle::app_login::{LoginRule, LoginUser, LogoutRule, Matching, Success, Watched};
pub use settle::login::Minted;
pub use settle::visitor_token::VisitorTokens;
use settle::visitor_token::{Around, Held};
pub use source::endpoint::Endpoint;
pub use source::origin_request::{OriginRules, StatusDetail};
pub use source::purge_method::{PurgeMethod, PurgeToken};
pub use stage::identify::{CookieRules, TokenFrom};
pub use stage::limit::Rates;
use stage::verify::Asking;
pub use stage::verify::Verify;

/// Stands for the address of all who have none, where views are counted.
const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// What all threads share for answering requests.
#[derive(Debug)]
pub struct Settings {
    /// Who is served.
    pub guests: Guests,
    /// How many requests are taken, of whom.
    pub rates: Rates,
    /// Whose forwarding fields are believed.
    pub trusted_proxies: Vec<Peers>,
    /// Sites that are served, lower-case; empty: any.
    pub hosts: Vec<String>,
    /// Whether visitors may come by https without a proxy that says so.
    pub has_tls: bool,
    /// The longest target, in bytes.
    pub uri_max: usize,
    /// The largest request body, in bytes.
    pub body_max: Option<u64>,
    /// How long a request body may pause.
    pub stall: std::time::Duration,
    /// How many tunnels may be open.
    pub tunnels: usize,
    /// How many of them one address may have.
    pub tunnels_per_address: usize,
    /// How long a tunnel may rest.
    pub tunnel_idle: std::time::Duration,
    /// Which cookies mean what.
    pub cookies: CookieRules,
    /// What is added to cookies on their way out.
    pub hardening: Vec<Hardening>,
    /// How the app is asked who a visitor is, if it is.
    pub verify: Option<Arc<Verify>>,
    /// Which of the app's own requests log in and out.
    pub watched: Watched,
    /// The log-ins that we make sessions of, when we do (`mint`).
    pub minted: Option<Minted>,
    /// The tokens of visitors without a login; `None`: a cookie of that name is none of ours.
    pub visitor_tokens: Option<VisitorTokens>,
    /// What is answered under `/_anteroom/`.
    pub endpoints: Vec<Endpoint>,
    /// Query parameters that are removed from shared pages' requests.
    pub ignore_query: Vec<Pattern>,
    /// What each origin is sent, in the places by which routes name them.
    pub origins: Vec<OriginRules>,
    /// How much `Cache-Status` says.
    pub status: StatusDetail,
    /// Whether the access log names users.
    pub log_user: bool,
    /// Who may purge by the method `PURGE`; `None`: it is a method like others.
    pub purge: Option<PurgeMethod>,
    /// The names of rows that routes are answered from.
    pub rows: Names,
    /// What may be filled in a page for one visitor.
    pub holes: HoleLimits,
    /// Routes.
    pub routes: Routes,
}

/// The room: all that a thread needs to answer requests.
#[derive(Clone, Debug)]
pub struct Room {
    /// Settings, shared by all threads.
    pub settings: Arc<Settings>,
    /// Pages, shared by all threads.
    pub pages: Arc<Pages>,
    /// What makes their other forms, shared by all threads.
    pub coder: Arc<Coder>,
    /// Sessions, shared by all threads.
    pub sessions: Arc<Sessions>,
    /// What apps said of visitors, shared by all threads.
    pub verified: Arc<Verified>,
    /// Visits to be recorded, shared by all threads.
    pub visits: Arc<VisitQueue>,
    /// The same of those who hold a visitor's token.
    pub visitor_visits: Arc<VisitorVisits>,
    /// Which items are popular, shared by all threads.
    pub ranks: Arc<Ranks>,
    /// Rows, as this thread reads them.
    pub rows: Rc<row::Reader>,
    /// The store, as this thread reaches it.
    pub store: AnyStore,
    /// The origins, as this thread reaches them.
    pub upstreams: Upstreams,
    /// Fetches for the cache.
    pub filler: Rc<Filler>,
    /// This thread's counters.
    pub sheet: Arc<Sheet>,
    /// This thread's part of the access log, if there is one.
    pub pen: Option<Arc<Pen>>,
    /// What waits on this thread to be filled in pages.
    pub holes: Rc<WaitingHoles>,
    /// Requests that go on without their clients.
    pub left: Rc<Left>,
    /// The tunnels that are open, shared by all threads.
    pub tunnels: Arc<Crowd>,
}

/// Answers a request. Never fails: an error is a response, too. One that may change something goes on
/// when this is dropped, for its client has left.
pub async fn respond(
    room: Rc<Room>,
    client: Rc<Client>,
    request: Request<Incoming>,
) -> Response<Body> {
    let tie = Tie::default();
    // CONNECT asks for a WebSocket, as GET does over HTTP/1.1.
    if request.method().is_safe() || *request.method() == Method::CONNECT {
        return carry_out(room, client, request, &tie).await;
    }
    let (left, bond) = (Rc::clone(&room.left), tie.clone());
    let work = async move { carry_out(room, client, request, &bond).await };
    Outliving::begin(&left, tie, work).await
}

async fn carry_out(
    room: Rc<Room>,
    client: Rc<Client>,
    request: Request<Incoming>,
    tie: &Tie,
) -> Response<Body> {
    let mut trail = Trail::begin(&room, &client, &request);
    let asks_for_connection = source::upgrade::asks_for_connection(&request);
    let is_head = *request.method() == Method::HEAD;
    let knows_chunks = request.version() > Version::HTTP_10;
    let held = Held::default();
    let mut response = match answer(&room, &client, request, (tie, &held), &mut trail).await {
        Ok(response) => response,
        Err(error) => error.into_response(&room, &mut trail),
    };
    held.show(response.headers_mut());
    if is_head {
        response = deliver::without_body(response);
    }
    stage::redirect::insist(&client, response.headers_mut());
    if asks_for_connection {
        source::upgrade::end_unless_switched(&mut response);
    }
    if !knows_chunks {
        deliver::end_where_length_is_unknown(&mut response);
    }
    trail.attach(response, &room)
}

/// The steps of a request's life.
async fn answer(
    room: &Rc<Room>,
    client: &Rc<Client>,
    request: Request<Incoming>,
    (tie, held): (&Tie, &Held),
    trail: &mut Trail,
) -> Result<Response<Body>, Error> {
    let (mut head, body) = request.into_parts();
    let now = unix_now();
    if client.pulse.is_over() {
        return Err(Error::BadRequest("a request stands behind trailers"));
    }
    if client.has_lapsed() {
        return Err(Error::Lapsed);
    }
    source::upgrade::even_out(&mut head);
    stage::admit::even_out(&room.settings, client, &mut head)?;
    held.take(&room.settings, &mut head.headers);
    let length = http_body::Body::size_hint(&body).exact();
    let address = stage::admit::address(&room.settings, client, &head.headers);
    trail.came_from(address);
    stage::limit::admit_guest(&room.settings, address)?;
    let admitted = stage::admit::admit(&room.settings, client, &head, (address, length))?;
    trail.admitted(&admitted);
    stage::limit::admit_to_route(room, &head, &admitted)?;
    let has_body = !http_body::Body::is_end_stream(&body);
    let turn = stage::limit::Turn { room, address, has_body };
    let purge = source::purge_method::method(room, &head);
    if !purge.is_some_and(|method| method.is_for(client)) {
        turn.count(&room.settings.rates.all)?;
    }
    if let Some(method) = purge {
        return source::purge_method::answer(method, room, client, (&head, &admitted), trail).await;
    }
    if let Some(redirect) = stage::redirect::wanted(client, &head, &admitted) {
        return stage::redirect::answer(redirect, &head, &admitted, trail);
    }
    if source::endpoint::is_ours(head.uri.path()) {
        let call = source::endpoint::Call { room, client, head: &head, admitted, turn, held, now };
        return source::endpoint::answer(&call, body, trail).await;
    }
    let (route, item) = route_of(room, &head, &admitted);
    trail.route(&route.name);
    room.sheet.cookies(Crumb::Came, cookie::named(&head.headers));
    let limits = room.settings.routes.limits(&asked(&head, &admitted), head.uri.path());
    limits.iter().try_for_each(|limits| turn.count(limits))?;
    let asking = Asking::Of(client, &admitted);
    let visitor =
        stage::identify::recognise(room, (&head, &admitted.site), route, now, asking).await;
    let visitor = visitor.over(admitted.certificate(client));
    trail.visitor(&visitor, room.settings.log_user);
    turn.count_visitor(&room.settings.rates.all, &visitor)?;
    limits.iter().try_for_each(|limits| turn.count_visitor(limits, &visitor))?;
    let wanted = deliver::fragments::wanted(route, &mut head, has_body);
    let heard = Heard::default();
    let is_hole = false;
    let case =
        Case { room, client, head: &head, admitted, route, visitor, held, now, heard, is_hole };
    held.settle(&Around::of(&case), &case.visitor).await;
    if case.is_call() {
        // Who calls, and leaves, calls it off.
        tie.bind();
    }
    let response = reply(&case, item.as_ref(), Some(body), trail).await?;
    let viewed = viewed(&case, item, &response);
    note_visit(&case, viewed.clone());
    held.remember(&case, viewed).await;
    Ok(match wanted {
        Some(wanted) => deliver::fragments::fill(&wanted, &case, response).await,
        None => response,
    })
}

/// The steps behind those that find out who asks for what.
async fn reply(
    case: &Case<'_>,
    item: Option<&Item>,
    body: Option<Incoming>,
    trail: &mut Trail,
) -> Result<Response<Body>, Error> {
    let has_body = body.as_ref().is_some_and(|body| !http_body::Body::is_end_stream(body));
    let access = access(case, item, has_body, Look::Use).await;
    if let Some(response) = source::rows::answer(case, item, has_body, trail).await {
        return Ok(response);
    }
    match (access, body) {
        // RFC 9111 §5.2.1.7.
        (Access::Bypass(_), _) if takes_stored_only(case.head) => Err(Error::NotStored),
        (Access::Bypass(Reason::Upgrade), Some(body)) => {
            source::upgrade::answer(case, body, trail).await
        }
        (Access::Bypass(reason), body) => source::forward::forward(case, body, reason, trail).await,
        (Access::Shared(_) | Access::StaticOnly(_), body) => {
            source::cache::answer(case, body, access, trail).await
        }
    }
}

/// The route of a request, and the item that it names there.
fn route_of<'r>(
    room: &'r Room,
    head: &::http::request::Parts,
    admitted: &stage::admit::Admitted,
) -> (&'r Arc<route::Route>, Option<Item>) {
    room.settings.routes.find(&asked(head, admitted))
}

/// A request as routes look at it.
fn asked<'h>(
    head: &'h ::http::request::Parts,
    admitted: &'h stage::admit::Admitted,
) -> route::Asked<'h> {
    route::Asked {
        method: &head.method,
        host: &admitted.site,
        path: &admitted.path,
        query: head.uri.query().unwrap_or_default(),
    }
}

/// How far the cache may serve a request.
async fn access(case: &Case<'_>, item: Option<&Item>, has_body: bool, look: Look) -> Access {
    let head = case.head;
    if source::upgrade::asked(head, has_body).is_some() {
        return Access::Bypass(Reason::Upgrade);
    }
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    let asked = verdict::Asked {
        method: &head.method,
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        headers: &head.headers,
        has_body,
        bound: case.client.is_bound() || stage::admit::logs_connection_in(&head.headers),
        who: case.visitor.sharing,
        ranks: !is_read || ranks(case, item, look).await,
    };
    match can_cache(&asked, case.route, &case.room.filler.policy) {
        // SECURITY: without a user such a page would have no owner.
        Access::Shared(class) if class.is_personal() && case.visitor.known().is_none() => {
            Access::Bypass(Reason::UnknownToken)
        }
        // What is static by proof needs no proof of a segment, unless the route says that attributes choose.
        Access::Shared(ShareClass::Segment)
            if case.route.segment.attributes.is_empty()
                && source::cache::is_kept_for_strangers(case, look).await =>
        {
            Access::StaticOnly(Reason::Login)
        }
        access => access,
    }
}

/// Whether a request takes nothing but a stored page.
fn takes_stored_only(head: &::http::request::Parts) -> bool {
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    is_read && Wish::of(&head.headers, false).only_if_cached
}

/// Whether the item is among the most viewed, where the route asks for that. A store that cannot say
/// costs nobody the cache.
async fn ranks(case: &Case<'_>, item: Option<&Item>, look: Look) -> bool {
    let Some(top) = case.route.only_top else { return true };
    let Some(item) = item else { return false };
    let room = case.room;
    let is_under = match look {
        Look::Use => room.ranks.is_under(&room.store, item, top, case.now).await,
        Look::Peek => room.ranks.peek(&room.store, item, top, case.now).await,
    };
    is_under.unwrap_or_else(|error| {
        tracing::debug!(%error, "an item's rank could not be looked up");
        room.sheet.count(Count::StoreReadErrors);
        true
    })
}

/// A request with all that was found out about it.
struct Case<'a> {
    room: &'a Rc<Room>,
    client: &'a Rc<Client>,
    head: &'a ::http::request::Parts,
    admitted: stage::admit::Admitted,
    route: &'a Arc<route::Route>,
    visitor: stage::identify::Visitor,
    /// What he has without a login.
    held: &'a Held,
    /// Unix time in seconds.
    now: f64,
    /// Whether it is for a hole in a page: of its answer the body counts, and nothing else.
    is_hole: bool,
    /// What was heard of its body, where it may be a log-in.
    heard: Heard,
}

impl Case<'_> {
    /// The origin that is asked.
    fn upstream(&self) -> &Rc<Upstream> {
        &self.room.upstreams[self.route.origin]
    }

    /// What it is told, and believed.
    fn rules(&self) -> &OriginRules {
        &self.room.settings.origins[self.route.origin]
    }

    /// Whether it is a call of gRPC from end to end. More than its type is asked for, which any client may
    /// say of anything: a call ends with its client, and may be silent for long.
    fn is_call(&self) -> bool {
        let head = self.head;
        head.version == Version::HTTP_2
            && head.method == Method::POST
            && hop::te_trailers(&head.headers)
            && media::is_grpc(&head.headers)
            && self.upstream().may_speak_http2()
    }

    /// The certificate that the visitor showed.
    fn certificate(&self) -> Option<&ClientCertificate> {
        self.admitted.certificate(self.client)
    }

    /// What the page at this request's URL is purged by.
    fn purge_scopes(&self) -> Vec<Digest> {
        let query = self.head.uri.query().unwrap_or_default();
        let query = query::without(query, &self.room.settings.ignore_query);
        url_scopes(&self.admitted.site, &self.admitted.path, &query)
    }

    /// Among whom a page of a class is shared on a route, where it is not the whole class.
    fn group(&self, route: &route::Route, class: ShareClass) -> Vec<u8> {
        let headers = &self.head.headers;
        match (class, self.visitor.user()) {
            (ShareClass::User, Some(user)) => {
                let cookies = &self.room.settings.cookies;
                let shown = rebuild(headers, |name| !cookies.is_harmless(name));
                group::session(user, shown.as_ref().map_or(b"", |line| line.as_bytes()))
            }
            (ShareClass::Segment, user) => group::segment(&route.segment, user, headers),
            // Nobody's, which may differ by language still.
            _ => group::segment(&route.segment, None, headers),
        }
    }

    /// `hash_request` for a target on this request's site that falls under `route`.
    fn page_key(&self, target: &str, route: &route::Route, class: ShareClass) -> PageKey {
        // An empty query goes to the origin with its `?`, and so is another page than none.
        let parts = target.split_once('?').filter(|(_, query)| !query.is_empty());
        let (path, query) = parts.unwrap_or((target, ""));
        hash_request(&KeyParts {
            site: &route.site,
            scheme: self.admitted.scheme.as_str(),
            host: &self.admitted.site,
            path,
            query: &query::without(query, &self.room.settings.ignore_query),
            class,
            group: &self.group(route, class),
            headers: &self.head.headers,
            key_cookies: &route.key_cookies,
            key_headers: &route.key_headers,
        })
    }
}

/// The item that was viewed. It counts as viewed when a GET of it was answered 200 or 304, but not by a
/// prefetch, not by a WebSocket, and not where `{item}` names a row.
fn viewed(case: &Case<'_>, item: Option<Item>, response: &Response<Body>) -> Option<Item> {
    let prefetch = case.head.headers.contains_key("sec-purpose");
    let seen = case.head.method == Method::GET
        && matches!(response.status().as_u16(), 200 | 304)
        && !prefetch
        && !source::upgrade::is_extended(case.head)
        && case.route.rows.is_none();
    // What the app says of its own page outweighs what the route makes of its address.
    response.extensions().get::<Item>().cloned().or(item).filter(|_| seen)
}

/// Records the visit behind the response: of a known visitor with `update_token`'s guarded form, of others only
/// that an item was viewed.
fn note_visit(case: &Case<'_>, item: Option<Item>) {
    let visits = &case.room.visits;
    let Some((token, user)) = case.visitor.known() else {
        if let Some(item) = item {
            let address = case.admitted.address.unwrap_or(NOWHERE);
            visits.count_anonymous_view(item, address, case.now);
        }
        return;
    };
    if let Some(item) = &item {
        visits.count_view(item.clone());
    }
    visits.note(token.clone(), user.clone(), item, case.now);
    case.room.sheet.count(Count::Visits);
}
