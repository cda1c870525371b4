//! Forwards the visitor's own request to the origin, and returns the origin's response.

use ::http::HeaderMap;
use hyper::body::Incoming;

use crate::cache::fill;
use crate::http::{cookie, set_cookie};
use crate::ident::StoredToken;
use crate::origin::{Keep, OriginError, end_of_nothing};
use crate::proxy::answer::Answer;
use crate::proxy::connection::interim;
use crate::proxy::context::{RequestContext, logs_connection_in};
use crate::proxy::cookie_rules::CookieClass;
use crate::proxy::error::Error;
use crate::proxy::origin_request;
use crate::proxy::record::RequestRecord;
use crate::telemetry::metrics::{Crumb, Outcome};
use crate::telemetry::reason::Reason;

/// Forwards a request as it came. `reason` says why.
pub(in crate::proxy) async fn forward(
    cx: &RequestContext<'_>,
    mut body: Option<Incoming>,
    reason: Reason,
    record: &mut RequestRecord,
) -> Result<Answer, Error> {
    if let Some(body) = &mut body {
        let ended = end_of_nothing(body, cx.worker.settings.stall).await;
        ended.map_err(OriginError::ClientBody)?;
    }
    let keep = which_connection(cx);
    let mut request = origin_request::forwarded(cx, body);
    cx.set_reached(true);
    let sheet = &cx.worker.sheet;
    let early = interim::pass_on(&mut request, &cx.client.pulse, cx.head.version, sheet);
    let session = cx.visitor.token.as_ref().map(StoredToken::as_str);
    let sent = cx.upstream().send(request, keep, session).await;
    drop(early);
    let came = sent.inspect_err(|error| cx.set_reached(error.may_have_reached()))?;
    record.origin_answered();
    record.outcome(Outcome::Bypass, Some(reason));
    fill::count_page(&cx.worker.sheet, came.response.status(), came.response.headers());
    count_blocking(cx, came.response.headers(), reason);
    if came.bound {
        cx.client.bind();
    }
    Ok(Answer::Own(came, reason))
}

/// Counts the cookies that kept a request from the cache: cookies of the request, or cookies that the
/// page sets.
pub(in crate::proxy) fn count_blocking(
    cx: &RequestContext<'_>,
    headers: &HeaderMap,
    reason: Reason,
) {
    let (sheet, rules) = (&cx.worker.sheet, &cx.worker.settings.cookies);
    let class = |name: &&[u8]| rules.class(name, cx.route);
    let came = cookie::named(&cx.head.headers);
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

/// Selects the origin connection for a request. A connection that a log-in is bound to is pinned to the
/// client's connection. If the client's connection belongs to a trusted proxy, which carries many
/// visitors, or carries several requests at a time, the origin connection serves this request alone.
fn which_connection(cx: &RequestContext<'_>) -> Keep {
    let logs_in = logs_connection_in(&cx.head.headers);
    let slot = cx.client.bound.clone();
    let carries_many = cx.admitted.by_proxy || cx.client.is_multiplexed();
    match (carries_many, cx.client.is_bound() || logs_in) {
        (true, true) => Keep::Alone,
        (true, false) => Keep::Pool(None),
        (false, false) => Keep::Pool(Some(slot)),
        (false, true) => {
            cx.client.bind();
            Keep::Bound(slot)
        }
    }
}
