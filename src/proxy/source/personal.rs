//! Whom a page is fetched for, and what of the visitor's own must not stand in a page that others are given, as far as his request says.
//!
//! A fill is sent without it; the guard looks for it all the same. Where it is found is told in
//! `cache::rules::personal_data`.

use ::http::HeaderMap;
use ::http::header::AUTHORIZATION;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::cache::fill::Person;
use crate::cache::rules::key::ShareClass;
use crate::cache::rules::personal_data::Traces;
use crate::cache::segment_proof::Witness;
use crate::http::cookie::cookies;
use crate::policy::route::LeakGuard;
use crate::proxy::context::RequestContext;
use crate::proxy::cookie_rules::CookieClass;
use crate::proxy::origin_request;

/// What is looked for in the page that a request fetches to be kept for `class`; nothing where its route
/// says so, or where the page is the visitor's alone.
pub(in crate::proxy) fn traces(cx: &RequestContext<'_>, class: ShareClass) -> Traces {
    let mut traces = Traces::default();
    if cx.route.leak_guard != LeakGuard::Full || class == ShareClass::User {
        return traces;
    }
    // Secrets first: there is room for so many texts.
    let rules = &cx.worker.settings.cookies;
    let is_session = |name| matches!(rules.class(name, cx.route), CookieClass::Session(_));
    let sessions = cookies(&cx.head.headers).filter(|(name, _)| is_session(name));
    sessions.for_each(|(_, value)| traces.token(value));
    credentials(&cx.head.headers, &mut traces);
    if let Some(user) = cx.visitor.user() {
        traces.user(user.as_bytes());
        // What a whole segment has in common is nobody's own.
        let keyed = &cx.route.segment.attributes;
        let is_keyed = |name: &str| class == ShareClass::Segment && keyed.iter().any(|n| n == name);
        let own = user.attributes().filter(|(name, _)| !is_keyed(name));
        own.for_each(|(_, value)| traces.attribute(value.as_bytes()));
    }
    traces
}

/// Whom a fill tells the origin of.
pub(in crate::proxy) fn person(cx: &RequestContext<'_>) -> Option<Person> {
    let (session, user) = cx.visitor.known()?;
    let identity = origin_request::identity(cx).clone();
    let witness = Witness::new(user, cx.admitted.address);
    Some(Person { witness, identity, session: session.clone() })
}

/// What `Authorization` says: a user and his password (RFC 7617), or a token.
fn credentials(headers: &HeaderMap, traces: &mut Traces) {
    for line in headers.get_all(AUTHORIZATION) {
        let mut words = line.as_bytes().splitn(2, |byte| *byte == b' ').map(<[u8]>::trim_ascii);
        let scheme = words.next().unwrap_or_default();
        let Some(secret) = words.next() else { continue };
        traces.token(secret);
        if scheme.eq_ignore_ascii_case(b"basic")
            && let Ok(pair) = STANDARD.decode(secret)
        {
            let mut parts = pair.splitn(2, |byte| *byte == b':');
            traces.user(parts.next().unwrap_or_default());
            traces.token(parts.next().unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;

    use super::*;

    #[test]
    fn credentials_of_any_shape_are_read() {
        for (line, is_known) in [
            ("Basic YWxpY2U6c2VjcmV0", true),
            ("basic  YWxpY2U6c2VjcmV0", true),
            ("Bearer 0a1b2c3d4e5f", true),
            ("Basic ???", false),
            ("Basic", false),
            ("", false),
        ] {
            let value = HeaderValue::from_static(line);
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
            let mut traces = Traces::default();
            credentials(&headers, &mut traces);
            assert_eq!(!traces.is_empty(), is_known, "{line:?}");
        }
    }
}
