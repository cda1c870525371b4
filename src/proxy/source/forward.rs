//! Forwarding: the visitor's own request to the origin, and the origin's answer to it.

use std::time::Duration;

use ::http::{HeaderMap, Method, Response, StatusCode};
use hyper::body::Incoming;

use super::rows;
use crate::cache::fill;
use crate::cache::purge::scope::{Aim, Scope};
use crate::cache::rules::key::ShareClass;
use crate::clock::unix_now;
use crate::http::reference::resolve;
use crate::http::{cookie, path, query, set_cookie};
use crate::ident::{Item, PageKey, Row, StoredToken};
use crate::origin::{Keep, OriginError, OriginResponse, end_of_nothing};
use crate::policy::route;
use crate::policy::route::Route;
use crate::proxy::connection::interim;
use crate::proxy::context::Admitted;
use crate::proxy::context::{RequestContext, WorkerContext};
use crate::proxy::cookie_rules::CookieClass;
use crate::proxy::deliver;
use crate::proxy::deliver::body::{Body, BodyError};
use crate::proxy::error::Error;
use crate::proxy::origin_request;
use crate::proxy::record::RequestRecord;
use crate::proxy::settle::{app_login, item_and_cart_headers, login, user_purge};
use crate::proxy::stage::{admit, verify};
use crate::telemetry::metrics::{Crumb, Outcome};
use crate::telemetry::reason::Reason;

/// How long an answer waits until the pages that its request changed are gone from the store.
const DELETE_PATIENCE: Duration = Duration::from_millis(250);

/// Forwards a request as it came, for `reason`.
pub(in crate::proxy) async fn forward(
    case: &RequestContext<'_>,
    mut body: Option<Incoming>,
    reason: Reason,
    trail: &mut RequestRecord,
) -> Result<Response<Body>, Error> {
    if let Some(body) = &mut body {
        let ended = end_of_nothing(body, case.room.settings.stall).await;
        ended.map_err(OriginError::ClientBody)?;
    }
    let keep = which_connection(case);
    let mut request = origin_request::forwarded(case, body);
    let unanswered = Unanswered::of(case);
    let sheet = &case.room.sheet;
    let early = interim::pass_on(&mut request, &case.client.pulse, case.head.version, sheet);
    let session = case.visitor.token.as_ref().map(StoredToken::as_str);
    let sent = case.upstream().send(request, keep, session).await;
    drop(early);
    let came = match sent {
        Ok(came) => came,
        Err(error) if error.may_have_reached() => return Err(error.into()),
        Err(error) => {
            unanswered.over();
            return Err(error.into());
        }
    };
    trail.origin_answered();
    trail.outcome(Outcome::Bypass, Some(reason));
    fill::count_page(&case.room.sheet, came.response.status(), came.response.headers());
    count_blocking(case, came.response.headers(), reason);
    if came.bound {
        case.client.bind();
    }
    let answer = own(case, came, reason).await;
    unanswered.over();
    answer
}

/// Counts the cookies that kept a request from the cache: it came with them, or its page sets them.
pub(in crate::proxy) fn count_blocking(
    case: &RequestContext<'_>,
    headers: &HeaderMap,
    reason: Reason,
) {
    let (sheet, rules) = (&case.room.sheet, &case.room.settings.cookies);
    let class = |name: &&[u8]| rules.class(name, case.route);
    let came = cookie::named(&case.head.headers);
    match reason {
        Reason::UnknownCookie => {
            sheet.cookies(Crumb::Blocked, came.filter(|name| class(name) == CookieClass::Unknown));
        }
        Reason::Login
        | Reason::UnknownToken
        | Reason::Unverified
        | Reason::StoreAway
        | Reason::BadSessionCookie => {
            let is_session = |name: &&[u8]| matches!(class(name), CookieClass::Session(_));
            sheet.cookies(Crumb::Blocked, came.filter(is_session));
        }
        Reason::SetCookie => sheet.cookies(Crumb::Blocked, set_cookie::named(headers)),
        _ => {}
    }
}

/// A change that the origin was asked for, and may have made: it has not lived to say so, or nobody was
/// left to hear it. Its page is stale then, and so is what its route names. No more than that, for it may
/// not have been a change at all.
pub(in crate::proxy) struct Unanswered<'c> {
    case: &'c RequestContext<'c>,
    is_over: bool,
}

impl<'c> Unanswered<'c> {
    pub(in crate::proxy) fn of(case: &'c RequestContext<'c>) -> Self {
        Self { case, is_over: case.head.method.is_safe() }
    }

    /// What the answer says of it is carried out, or it has not reached the origin.
    pub(in crate::proxy) fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            verify::void_later(self.case);
            let target = self.case.head.uri.path_and_query().map_or("/", |target| target.as_str());
            let (route, _) = route_of(self.case, &self.case.head.method, target);
            let mut aims = named(self.case, route);
            aims.push(aim(self.case, target, false));
            aims.extend(user_purge::aims(self.case));
            self.case.room.pages.purged.purge_later(&aims);
        }
    }
}

/// The origin connection for a request. One that a log-in binds goes with the client's connection,
/// unless that is a trusted proxy's, which carries many visitors, or carries many requests at a time: then
/// with this request alone.
fn which_connection(case: &RequestContext<'_>) -> Keep {
    let logs_in = admit::logs_connection_in(&case.head.headers);
    let slot = case.client.bound.clone();
    let carries_many = case.admitted.by_proxy || case.client.is_multiplexed();
    match (carries_many, case.client.is_bound() || logs_in) {
        (true, true) => Keep::Alone,
        (true, false) => Keep::Pool(None),
        (false, false) => Keep::Pool(Some(slot)),
        (false, true) => {
            case.client.bind();
            Keep::Bound(slot)
        }
    }
}

/// Hands the visitor the response to his own request, after what it says of his session.
pub(in crate::proxy) async fn own(
    case: &RequestContext<'_>,
    came: OriginResponse,
    reason: Reason,
) -> Result<Response<Body>, Error> {
    let change = heed(case, came.response.status(), came.response.headers()).await;
    verify::void_after(case, came.response.headers()).await;
    let item = item_and_cart_headers::item(case, came.response.headers());
    let status = came.response.status();
    let mut owned = match &change {
        Ok((change, _)) => user_purge::aims_of(case, change, came.response.headers()),
        Err(_) => Vec::new(),
    };
    if matches!(change, Ok((_, true))) {
        owned.extend(user_purge::aims(case));
    }
    let mut response = deliver::own(case, came.response, &deliver::bypassed(reason));
    // The origin has changed its pages, whatever became of the session.
    if !case.head.method.is_safe() && (status.is_success() || status.is_redirection()) {
        invalidate(case, status, response.headers(), owned).await;
    } else if !owned.is_empty() {
        forget(case.room, &[], &owned, &[]).await;
    }
    let (change, has_filled_cart) = change?;
    // What is sent behind the answer to a HEAD, or a 304, nobody reads.
    let has_body = case.head.method != Method::HEAD
        && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if has_body && let Err(BodyError::Origin(source)) = response.body_mut().begin().await {
        return Err(Error::BrokenOff { source, cookie: change.cookie() });
    }
    change.show(response.headers_mut());
    app_login::clear_barred(case, response.headers_mut());
    if has_filled_cart {
        // Kept by a cache, it would fill no cart the next time.
        deliver::keep_from_caches(response.headers_mut());
    }
    if let Some(item) = item {
        response.extensions_mut().insert(item);
    }
    Ok(response)
}

/// Carries out what the response says of the visitor's session, and then of his cart.
async fn heed(
    case: &RequestContext<'_>,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<(login::Change, bool), Error> {
    // The head in which the visitor would be told of it is the page's, and has left already.
    if case.is_hole {
        return Ok((login::Change::Nothing, false));
    }
    let change = login::carry_out(case, status, headers).await?;
    match item_and_cart_headers::fill_cart(case, headers, &change).await {
        Ok(has_filled_cart) => Ok((change, has_filled_cart)),
        Err(error) => Err(Error::Cart { source: error.into(), cookie: change.cookie() }),
    }
}

/// RFC 9111 §4.4: what an unsafe request changed is forgotten before its answer goes out, rows as
/// well. By its key it is deleted, which other forms of the page, and other processes, learn as a purge.
/// Pages of segments and of users are found by no key here, and go by the purge of their URL; and all that
/// is the visitor's `owned` goes with it.
/// A row is read by nobody in particular, so that it is forgotten only where the answer says that the
/// change was made: a redirection to a log-in page does not.
async fn invalidate(
    case: &RequestContext<'_>,
    status: StatusCode,
    headers: &HeaderMap,
    owned: Vec<Aim>,
) {
    let own = case.head.uri.path_and_query().map_or("/", |p| p.as_str());
    let mut targets = vec![own.to_owned()];
    for name in [::http::header::LOCATION, ::http::header::CONTENT_LOCATION] {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        targets.extend(value.and_then(|text| same_site(&case.admitted, own, text)));
    }
    let (mut gone, mut rows, now) = (Vec::new(), Vec::new(), unix_now() as u64);
    // A route for this method alone may name a row, too.
    let (own, item) = route_of(case, &case.head.method, &targets[0]);
    let changes_rows = has_changed_rows(status);
    rows.extend(rows::named(case.room, own, item.as_ref()).filter(|_| changes_rows));
    let mut aims = aims(case, &targets, own);
    aims.extend(owned.into_iter().chain(user_purge::aims(case)));
    aims.dedup();
    for target in &targets {
        let (route, item) = route_of(case, &Method::GET, target);
        let named = rows::named(case.room, route, item.as_ref());
        rows.extend(named.filter(|row| changes_rows && !rows.contains(row)));
        for class in [ShareClass::Anonymous, ShareClass::Public, ShareClass::Everyone] {
            let key = case.page_key(target, route, class);
            gone.extend(case.room.pages.invalidate(&key, now));
        }
    }
    forget(case.room, &gone, &aims, &rows).await;
}

/// Has pages and rows forgotten, here at once, and in the store while the visitor waits a little.
pub(in crate::proxy) async fn forget(
    room: &WorkerContext,
    gone: &[PageKey],
    aims: &[Aim],
    rows: &[Row],
) {
    use crate::store::PageStore;
    let purged = &room.pages.purged;
    let forgetting = async {
        let deleting = room.store.delete_pages(gone);
        let purging = purged.purge(&room.store, aims);
        let outdating = rows::outdate(room, rows);
        let (purged, deleted, outdated) = tokio::join!(purging, deleting, outdating);
        purged.map(drop).and(deleted).and(outdated)
    };
    match tokio::time::timeout(DELETE_PATIENCE, forgetting).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::debug!(%error, "what was changed stays in the store for its time")
        }
        Err(_) => {
            tracing::debug!("the store is slow: what was changed may stay there for its time")
        }
    }
}

/// Whether an unsafe request that was answered so has changed rows.
fn has_changed_rows(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::SEE_OTHER
}

/// The route under which a request for a target on this request's site falls, and its item. Pages' keys
/// hold what the GET's says, and not what the changing request's says.
fn route_of<'c>(
    case: &'c RequestContext<'_>,
    method: &Method,
    target: &str,
) -> (&'c Route, Option<Item>) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let decoded = path::decoded(path);
    let asked = route::Asked {
        method,
        host: &case.admitted.site,
        path: decoded.as_deref().unwrap_or(path),
        query,
    };
    let (route, item) = case.room.settings.routes.find(&asked);
    (route, item)
}

/// The purge of what an unsafe request changed: its targets are gone, and what its route names is stale.
fn aims(case: &RequestContext<'_>, targets: &[String], route: &Route) -> Vec<Aim> {
    let changed = targets.iter().map(|target| aim(case, target, true));
    changed.chain(named(case, route)).collect()
}

/// The purge of what a route names.
fn named(case: &RequestContext<'_>, route: &Route) -> Vec<Aim> {
    let site = &case.admitted.site;
    let named = route.purges.iter().map(|branch| match branch.is_whole {
        true => Scope::Prefix { site, path: &branch.path }.aim(false),
        false => Scope::Url { site, path: &branch.path, query: "" }.aim(false),
    });
    named.collect()
}

/// The purge of all forms of the page at a target on this request's site.
fn aim(case: &RequestContext<'_>, target: &str, is_hard: bool) -> Aim {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = path::decoded(path).unwrap_or_else(|| path.to_owned());
    let query = query::without(query, &case.room.settings.ignore_query);
    Scope::Url { site: &case.admitted.site, path: &path, query: &query }.aim(is_hard)
}

/// The target that a reference means in an answer to a request for `own`, where it is on the same site.
pub(in crate::proxy) fn same_site(
    admitted: &Admitted,
    own: &str,
    location: &str,
) -> Option<String> {
    let (place, target) = resolve(own, location);
    let Some(place) = place else { return Some(target) };
    let scheme = admitted.scheme;
    let authority = match place.split_once("//") {
        Some(("", authority)) => authority,
        Some((named, authority)) => {
            let named = named.strip_suffix(':')?;
            named.eq_ignore_ascii_case(scheme.as_str()).then_some(authority)?
        }
        None => return None,
    };
    let host = crate::http::host::Host::parse(authority.as_bytes()).ok()?;
    (host.normalised(scheme) == admitted.site.as_str()).then_some(target)
}
