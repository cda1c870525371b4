//! The life of a request, from its head to the line in the access log.
//!
//! The steps are told in [`respond`] and `answer`; each file below carries out one of them. What
//! may be shared is decided in `cache::rules::verdict`, never here.

pub mod connection;
mod context;
mod cookie_report;
mod cookie_rules;
mod deliver;
mod error;
mod explain;
mod login_rules;
mod origin_request;
mod recompress;
mod record;
mod settings;
mod settle;
mod source;
mod stage;
mod visitor;
mod visitor_token;

use crate::proxy::context::NOWHERE;
use std::rc::Rc;

use ::http::{Method, Request, Response, Version};
use hyper::body::Incoming;

use self::connection::client::Client;
use self::connection::detached::{CancelOnDisconnect, Detached};
use self::context::{RequestContext, asked, route_of};
use self::error::Error;
use self::login_rules::LoginBody;
use self::record::RequestRecord;
use self::settle::visitor_token::Around;
use self::stage::verify::Asking;
use self::visitor_token::VisitorTokenState;
use crate::cache::Look;
use crate::cache::rules::key::ShareClass;
use crate::cache::rules::request_directives::Wish;
use crate::cache::rules::verdict::{self, Access, can_cache};
use crate::clock::unix_now;
use crate::http::cookie;
use crate::ident::Item;
use crate::telemetry::metrics::{Count, Crumb};
use crate::telemetry::reason::Reason;

pub use self::connection::detached::DetachedTasks;
pub use self::connection::tunnel::{Tunnel, TunnelSlot};
pub use self::context::{WaitingFragments, WorkerContext};
pub use self::cookie_report::{CookieKinds, CookieReport, SeenCookie, cookie_hints, cookie_report};
pub use self::cookie_rules::{CookieRules, TokenFrom};
pub use self::deliver::body::{Body, BodyError};
pub use self::explain::{Explanation, Question, Unclear, explain};
pub use self::login_rules::{LoginRule, LoginUser, LogoutRule, Matching, Success, Watched};
pub use self::recompress::Recompressor;
pub use self::settings::{
    Endpoint, FragmentLimits, Minted, OriginRules, PurgeMethod, PurgeToken, Rates, Settings,
    StatusDetail, Verify,
};
pub use self::visitor_token::VisitorTokens;

/// Answers a request. Never fails: an error is a response, too. One that may change something goes on
/// when this is dropped, for its client has left.
pub async fn respond(
    room: Rc<WorkerContext>,
    client: Rc<Client>,
    request: Request<Incoming>,
) -> Response<Body> {
    let tie = CancelOnDisconnect::default();
    // CONNECT asks for a WebSocket, as GET does over HTTP/1.1.
    if request.method().is_safe() || *request.method() == Method::CONNECT {
        return carry_out(room, client, request, &tie).await;
    }
    let (left, bond) = (Rc::clone(&room.left), tie.clone());
    let work = async move { carry_out(room, client, request, &bond).await };
    Detached::begin(&left, tie, work).await
}

async fn carry_out(
    room: Rc<WorkerContext>,
    client: Rc<Client>,
    request: Request<Incoming>,
    tie: &CancelOnDisconnect,
) -> Response<Body> {
    let mut trail = RequestRecord::begin(&room, &client, &request);
    let asks_for_connection = source::upgrade::asks_for_connection(&request);
    let is_head = *request.method() == Method::HEAD;
    let knows_chunks = request.version() > Version::HTTP_10;
    let held = VisitorTokenState::default();
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
    room: &Rc<WorkerContext>,
    client: &Rc<Client>,
    request: Request<Incoming>,
    (tie, held): (&CancelOnDisconnect, &VisitorTokenState),
    trail: &mut RequestRecord,
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
    held.take(room.settings.visitor_tokens.as_ref(), &mut head.headers);
    let length = http_body::Body::size_hint(&body).exact();
    let address = stage::admit::address(&room.settings, client, &head.headers);
    trail.came_from(address);
    stage::limit::admit_guest(&room.settings, address)?;
    let admitted = stage::admit::admit(&room.settings, client, &head, (address, length))?;
    trail.admitted(&admitted);
    stage::limit::admit_to_route(room, &head, &admitted)?;
    let has_body = !http_body::Body::is_end_stream(&body);
    let turn = stage::limit::Turn { room, address, has_body };
    let purge = room.settings.purge_method(&head.method);
    if !purge.is_some_and(|method| method.is_for(client.peer)) {
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
    let heard = LoginBody::default();
    let is_hole = false;
    let case = RequestContext {
        room,
        client,
        head: &head,
        admitted,
        route,
        visitor,
        held,
        now,
        heard,
        is_hole,
    };
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
    case: &RequestContext<'_>,
    item: Option<&Item>,
    body: Option<Incoming>,
    trail: &mut RequestRecord,
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

/// How far the cache may serve a request.
async fn access(
    case: &RequestContext<'_>,
    item: Option<&Item>,
    has_body: bool,
    look: Look,
) -> Access {
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
async fn ranks(case: &RequestContext<'_>, item: Option<&Item>, look: Look) -> bool {
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

/// The item that was viewed. It counts as viewed when a GET of it was answered 200 or 304, but not by a
/// prefetch, not by a WebSocket, and not where `{item}` names a row.
fn viewed(
    case: &RequestContext<'_>,
    item: Option<Item>,
    response: &Response<Body>,
) -> Option<Item> {
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
fn note_visit(case: &RequestContext<'_>, item: Option<Item>) {
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
