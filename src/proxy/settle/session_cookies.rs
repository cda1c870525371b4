//! What a response does to the visitor's session cookies, and what the app has said of them before.

use std::rc::Rc;

use ::http::HeaderMap;

use crate::http::apply_set_cookie::{self, Changed};
use crate::http::set_cookie;
use crate::ident::CookieHash;
use crate::proxy::context::RequestContext;

/// Under what it is remembered what the app said of a visitor whose session the response may have changed:
/// to an unsafe request, or one that sets a session cookie, for that as well.
pub(super) fn voided(case: &RequestContext<'_>, headers: &HeaderMap) -> Vec<CookieHash> {
    if case.room.settings.verify.is_none() || !case.rules().sessions {
        return Vec::new();
    }
    let changes = !changes(case, headers).is_empty();
    if case.head.method.is_safe() && !changes && !set_cookie::clears_logins(headers) {
        return Vec::new();
    }
    let mut voided: Vec<CookieHash> = case.visitor.carried.into_iter().collect();
    if changes {
        let has = session_cookies_after(case, headers);
        voided.extend((!has.is_empty()).then(|| hash_of(case, &has)));
    }
    voided
}

/// Forgets what the app said.
pub(super) async fn void(case: &RequestContext<'_>, voided: &[CookieHash]) {
    let room = case.room;
    if let (Some(verify), false) = (&room.settings.verify, voided.is_empty()) {
        room.verified.void(&room.store, voided, verify.mark_time(), case.now).await;
    }
}

/// Under what it is remembered what the app said of a visitor with these session cookies.
pub(in crate::proxy) fn hash_of(
    case: &RequestContext<'_>,
    cookies: &[(&[u8], &[u8])],
) -> CookieHash {
    let token = &case.room.settings.cookies.token;
    token.hash((&case.route.site, &case.admitted.site), cookies)
}

/// The same behind a change of which nobody knows whether it was made.
pub(in crate::proxy) fn void_later(case: &RequestContext<'_>) {
    let room = Rc::clone(case.room);
    let (Some(verify), Some(carried)) = (room.settings.verify.clone(), case.visitor.carried) else {
        return;
    };
    let now = case.now;
    case.room.left.carry_on_while_open(async move {
        room.verified.void(&room.store, &[carried], verify.mark_time(), now).await;
    });
}

/// What a response does to the visitor's session cookies.
pub(in crate::proxy) fn changes<'c>(
    case: &'c RequestContext<'_>,
    headers: &'c HeaderMap,
) -> Vec<Changed<'c>> {
    let is_session = |name: &[u8]| case.room.settings.cookies.is_session(name);
    let (came, path) = (&case.head.headers, case.head.uri.path());
    apply_set_cookie::changes((came, headers), path, is_session, case.now as u64)
}

/// The session cookies that the visitor will have when he has followed a response.
pub(in crate::proxy) fn session_cookies_after<'c>(
    case: &'c RequestContext<'_>,
    headers: &'c HeaderMap,
) -> Vec<(&'c [u8], &'c [u8])> {
    let is_session = |name: &[u8]| case.room.settings.cookies.is_session(name);
    let (came, path) = (&case.head.headers, case.head.uri.path());
    apply_set_cookie::left((came, headers), path, is_session, case.now as u64)
}
