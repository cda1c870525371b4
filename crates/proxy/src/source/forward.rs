//! Forwards the visitor's own request to the origin, and returns the origin's response.

use ::http::HeaderMap;
use anteroom_cache::fill;
use anteroom_http::{cookie, set_cookie};
use anteroom_origin::{ConnectionReuse, OriginError, RequestBody, expect_empty_body};
use anteroom_telemetry::metrics::{CookieEvent, Outcome};
use anteroom_telemetry::reason::Reason;
use anteroom_telemetry::traces::Asking;

use crate::answer::Answer;
use crate::connection::interim;
use crate::context::{RequestContext, logs_connection_in};
use crate::cookie_rules::CookieClass;
use crate::error::Error;
use crate::origin_request;
use crate::record::RequestRecord;
use crate::stage::classify::{self, OwnRequest};

/// Forwards a request as it came. `reason` says why.
pub(crate) async fn forward(
    cx: &RequestContext<'_>,
    mut body: RequestBody,
    reason: Reason,
    record: &mut RequestRecord,
) -> Result<Answer, Error> {
    if cx.route.maintenance {
        return Err(OriginError::Maintenance.into());
    }
    if let Some(body) = &mut body {
        let ended = expect_empty_body(body, cx.worker.settings.stall).await;
        ended.map_err(OriginError::ClientBody)?;
    }
    let keep = which_connection(cx);
    // Before the request is made, which names the span that begins now.
    record.asks();
    record.asks_origin(Asking::Forward);
    let mut request = origin_request::forwarded(cx, body);
    cx.set_reached(true);
    let thread_metrics = &cx.worker.thread_metrics;
    let early = interim::pass_on(&mut request, &cx.client.state, cx.head.version, thread_metrics);
    // PERF: boxed, so that the state of a hit stays small.
    let sent = Box::pin(async {
        let own = OwnRequest::new(cx);
        cx.upstream().send(request, keep, own.requester()).await
    });
    let sent = sent.await;
    drop(early);
    let received = sent.inspect_err(|error| cx.set_reached(error.may_have_reached()))?;
    record.origin_answered();
    record.outcome(Outcome::Bypass, Some(reason));
    classify::note_answer(cx, received.response.status());
    fill::count_page(
        &cx.worker.thread_metrics,
        received.response.status(),
        received.response.headers(),
    );
    count_blocking(cx, received.response.headers(), reason);
    if received.pinned {
        cx.client.bind();
    }
    Ok(Answer::Uncached(received, reason))
}

/// Counts the cookies that kept a request from the cache: cookies of the request, or cookies that the
/// page sets.
pub(crate) fn count_blocking(cx: &RequestContext<'_>, headers: &HeaderMap, reason: Reason) {
    let (thread_metrics, rules) = (&cx.worker.thread_metrics, &cx.worker.settings.cookies);
    let class = |name: &&[u8]| rules.class(name, cx.route);
    let received = cookie::named(&cx.head.headers);
    match reason {
        Reason::UnknownCookie => {
            thread_metrics.cookies(
                CookieEvent::Blocked,
                received.filter(|name| class(name) == CookieClass::Unknown),
            );
        }
        Reason::Login
        | Reason::UnknownToken
        | Reason::Unverified
        | Reason::StoreAway
        | Reason::BadSessionCookie => {
            let is_session = |name: &&[u8]| matches!(class(name), CookieClass::Session(_));
            thread_metrics.cookies(CookieEvent::Blocked, received.filter(is_session));
        }
        Reason::SetCookie => {
            thread_metrics.cookies(CookieEvent::Blocked, set_cookie::named(headers))
        }
        _ => {}
    }
}

/// Selects the origin connection for a request. A connection that a login is bound to is pinned to the
/// client's connection. If the client's connection belongs to a trusted proxy, which carries many
/// visitors, or carries several requests at a time, the origin connection serves this request alone.
fn which_connection(cx: &RequestContext<'_>) -> ConnectionReuse {
    let logs_in = logs_connection_in(cx.admitted.fields, &cx.head.headers);
    let slot = cx.client.pinned.clone();
    let may_carry_many_clients = cx.admitted.by_proxy || cx.client.is_multiplexed();
    match (may_carry_many_clients, cx.client.is_pinned() || logs_in) {
        (true, true) => ConnectionReuse::Alone,
        (true, false) => ConnectionReuse::Pool(None),
        (false, false) => ConnectionReuse::Pool(Some(slot)),
        (false, true) => {
            cx.client.bind();
            ConnectionReuse::Pinned(slot)
        }
    }
}
