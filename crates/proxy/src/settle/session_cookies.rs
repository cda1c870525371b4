//! What a response does to the visitor's session cookies, and to the app's remembered answers about
//! them.

use std::rc::Rc;

use ::http::HeaderMap;
use anteroom_http::apply_set_cookie::{self, CookieChange};
use anteroom_http::ident::CookieHash;
use anteroom_http::set_cookie;

use crate::context::RequestContext;

/// The keys of the app's remembered answers that a response may have made wrong. These are the request's
/// cookies if the method is unsafe or the response sets a session cookie, and in the second case also
/// the cookies after the response.
pub(super) fn voided(cx: &RequestContext<'_>, headers: &HeaderMap) -> Vec<CookieHash> {
    if cx.worker.settings.verify.is_none() || !cx.rules().sessions {
        return Vec::new();
    }
    let changes = !changes(cx, headers).is_empty();
    if cx.head.method.is_safe() && !changes && !set_cookie::clears_logins(headers) {
        return Vec::new();
    }
    let mut voided: Vec<CookieHash> = cx.visitor.cookie_hash.into_iter().collect();
    if changes {
        let has = session_cookies_after(cx, headers);
        voided.extend((!has.is_empty()).then(|| hash_of(cx, &has)));
    }
    voided
}

/// Removes the app's remembered answers.
pub(super) async fn void(cx: &RequestContext<'_>, voided: &[CookieHash]) {
    let worker = cx.worker;
    if let (Some(verify), false) = (&worker.settings.verify, voided.is_empty()) {
        let voiding = worker.verified.void(&worker.store, voided, verify.mark_time(), cx.now);
        Box::pin(voiding).await;
    }
}

/// The key of the app's remembered answer about a visitor with these session cookies.
pub(crate) fn hash_of(cx: &RequestContext<'_>, cookies: &[(&[u8], &[u8])]) -> CookieHash {
    let token = &cx.worker.settings.cookies.token;
    token.hash(cx.route.site(), &cx.admitted.site, cookies)
}

/// Removes the remembered answer later, after a change that may or may not have been made.
pub(crate) fn void_later(cx: &RequestContext<'_>) {
    let worker = Rc::clone(cx.worker);
    let (Some(verify), Some(carried)) = (worker.settings.verify.clone(), cx.visitor.cookie_hash)
    else {
        return;
    };
    let now = cx.now;
    cx.worker.detached.carry_on_while_open(async move {
        worker.verified.void(&worker.store, &[carried], verify.mark_time(), now).await;
    });
}

/// What a response does to the visitor's session cookies.
pub(crate) fn changes<'c>(
    cx: &'c RequestContext<'_>,
    headers: &'c HeaderMap,
) -> Vec<CookieChange<'c>> {
    let is_session = |name: &[u8]| cx.worker.settings.cookies.is_session(name);
    let (came, path) = (&cx.head.headers, cx.head.uri.path());
    apply_set_cookie::changes(came, headers, path, is_session, cx.now as u64)
}

/// The session cookies that the browser has after it has processed a response.
pub(crate) fn session_cookies_after<'c>(
    cx: &'c RequestContext<'_>,
    headers: &'c HeaderMap,
) -> Vec<(&'c [u8], &'c [u8])> {
    let is_session = |name: &[u8]| cx.worker.settings.cookies.is_session(name);
    let (came, path) = (&cx.head.headers, cx.head.uri.path());
    apply_set_cookie::left(came, headers, path, is_session, cx.now as u64)
}
