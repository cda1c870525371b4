//! The origin's response to a visitor's own request, as the client gets it.

use ::http::header::{SET_COOKIE, TRAILER};
use ::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use anteroom_http::cache_status::CacheStatus;
use anteroom_http::cookie::cookies;
use anteroom_http::ident::Item;
use anteroom_http::tags::strip_tags;
use anteroom_http::{forwarded, hop, set_cookie};
use anteroom_origin::OriginBody;
use anteroom_telemetry::access_log::VisitorClass;
use anteroom_telemetry::reason::Reason;

use super::body::{Body, BodyError};
use super::headers::{
    bypassed, harden_cookies, keep_from_caches, keep_private, put_status, remove_sessions,
};
use crate::context::RequestContext;
use crate::deliver::fragments::cut_method;
use crate::error::Error;

/// The settled changes that the response carries to the client.
#[derive(Debug, Default)]
pub(crate) struct SettledChanges {
    /// The cookie that begins or ends the session.
    pub(crate) cookie: Option<HeaderValue>,
    /// The item that was viewed, as the app states it.
    pub(crate) item: Option<Item>,
    /// Whether the app has changed the cart. A copy of the response in another cache would not change
    /// the cart again.
    pub(crate) has_filled_cart: bool,
}

/// Builds the response with the settled changes.
pub(crate) async fn response(
    cx: &RequestContext<'_>,
    received: Response<OriginBody>,
    reason: Reason,
    settled: SettledChanges,
) -> Result<Response<Body>, Error> {
    let status = received.status();
    let mut response = own(cx, received, &bypassed(reason));
    // Bytes after the response to a HEAD or after a 304 are not read by the client.
    let has_body = cx.head.method != Method::HEAD
        && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if has_body && let Err(BodyError::Origin(source)) = response.body_mut().begin().await {
        return Err(Error::BrokenOff { source, cookie: settled.cookie });
    }
    let SettledChanges { cookie, item, has_filled_cart } = settled;
    if let Some(cookie) = cookie {
        response.headers_mut().append(SET_COOKIE, cookie);
        // The response belongs to one visitor: it is kept out of caches, whatever policy the app states.
        keep_from_caches(response.headers_mut());
    }
    clear_revoked(cx, response.headers_mut());
    if has_filled_cart {
        // A cached copy would not change the cart again.
        keep_from_caches(response.headers_mut());
    }
    if let Some(item) = item {
        response.extensions_mut().insert(item);
    }
    Ok(response)
}

/// The origin's response to a visitor's own request.
fn own(
    cx: &RequestContext<'_>,
    response: Response<OriginBody>,
    status: &CacheStatus<'_>,
) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    let trailers: Vec<HeaderValue> = if hop::te_trailers(&cx.head.headers) {
        head.headers.get_all(TRAILER).iter().cloned().collect()
    } else {
        Vec::new()
    };
    hop::strip_hop_by_hop(&mut head.headers);
    for value in trailers {
        head.headers.append(TRAILER, value);
    }
    cx.route.cut_fields(&mut head.headers);
    forwarded::remove_own(&mut head.headers);
    strip_tags(&mut head.headers);
    remove_sessions(cx, &mut head.headers);
    harden_cookies(cx, &mut head.headers);
    if cx.visitor.class == VisitorClass::Known {
        keep_private(&mut head.headers);
    }
    put_status(cx.worker, &mut head.headers, status);
    let mut response = Response::from_parts(head, Body::origin(body, &cx.route.remove_headers));
    cut_method::note(cx.route, &mut response);
    response
}

/// Deletes cookies of revoked sessions that the browser has sent again.
fn clear_revoked(cx: &RequestContext<'_>, headers: &mut HeaderMap) {
    if !cx.visitor.is_revoked {
        return;
    }
    let rules = &cx.worker.settings.cookies;
    let received = cookies(&cx.head.headers).map(|(name, _)| name);
    let stale: Vec<&[u8]> = received.filter(|name| rules.may_be_session(name)).collect();
    for name in stale {
        if set_cookie::names(headers).any(|set| set == name) {
            continue;
        }
        let line = [name, b"=; Path=/; Max-Age=0"].concat();
        if let Ok(line) = HeaderValue::from_bytes(&line) {
            headers.append(SET_COOKIE, line);
        }
    }
    keep_from_caches(headers);
}
