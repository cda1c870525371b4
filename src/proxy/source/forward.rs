//! Forwarding: the visitor's own request to the origin, and the origin's answer to it.

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

/// Forwards a request as it came, for `reason`.
pub(in crate::proxy) async fn forward(
    case: &RequestContext<'_>,
    mut body: Option<Incoming>,
    reason: Reason,
    trail: &mut RequestRecord,
) -> Result<Answer, Error> {
    if let Some(body) = &mut body {
        let ended = end_of_nothing(body, case.room.settings.stall).await;
        ended.map_err(OriginError::ClientBody)?;
    }
    let keep = which_connection(case);
    let mut request = origin_request::forwarded(case, body);
    case.set_reached(true);
    let sheet = &case.room.sheet;
    let early = interim::pass_on(&mut request, &case.client.pulse, case.head.version, sheet);
    let session = case.visitor.token.as_ref().map(StoredToken::as_str);
    let sent = case.upstream().send(request, keep, session).await;
    drop(early);
    let came = sent.inspect_err(|error| case.set_reached(error.may_have_reached()))?;
    trail.origin_answered();
    trail.outcome(Outcome::Bypass, Some(reason));
    fill::count_page(&case.room.sheet, came.response.status(), came.response.headers());
    count_blocking(case, came.response.headers(), reason);
    if came.bound {
        case.client.bind();
    }
    Ok(Answer::Own(came, reason))
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

/// The origin connection for a request. One that a log-in binds goes with the client's connection,
/// unless that is a trusted proxy's, which carries many visitors, or carries many requests at a time: then
/// with this request alone.
fn which_connection(case: &RequestContext<'_>) -> Keep {
    let logs_in = logs_connection_in(&case.head.headers);
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
