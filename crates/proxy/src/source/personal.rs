//! Describes the user that a page is fetched for, and the personal data in the request that a shared
//! page must not contain.
//!
//! A fill is sent without this data; the leak guard looks for it all the same.
//! `cache::rules::personal_data` searches the page.

use ::http::HeaderMap;
use ::http::header::AUTHORIZATION;
use anteroom_cache::fill::SessionOwner;
use anteroom_cache::rules::key::ShareClass;
use anteroom_cache::rules::personal_data::PersonalData;
use anteroom_cache::segment_proof::Witness;
use anteroom_http::cookie::cookies;
use anteroom_policy::route::LeakGuard;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::context::RequestContext;
use crate::cookie_rules::CookieClass;
use crate::origin_request;

/// The most cookies whose values are looked for.
const COOKIES_MAX: usize = 16;

/// The personal data to look for in a page that this request fetches for `class`. There is none if the
/// route's leak guard is less than `full`, or if the page is the visitor's alone.
pub(crate) fn personal_data(cx: &RequestContext<'_>, class: ShareClass) -> PersonalData {
    let mut personal_data = PersonalData::default();
    if cx.route.leak_guard != LeakGuard::Full || class == ShareClass::User {
        return personal_data;
    }
    // Secrets come first, because the number of texts is limited.
    let rules = &cx.worker.settings.cookies;
    let is_session = |name| matches!(rules.class(name, cx.route), CookieClass::Session(_));
    let sessions = cookies(&cx.head.headers).filter(|(name, _)| is_session(name));
    sessions.for_each(|(_, value)| personal_data.token(value));
    credentials(&cx.head.headers, &mut personal_data);
    if let Some(user) = cx.visitor.user() {
        personal_data.user(user.as_bytes());
        // An attribute that selects the segment is shared by the segment, so it is not personal.
        let keyed = &cx.route.segment.attributes;
        let is_keyed = |name: &str| class == ShareClass::Segment && keyed.iter().any(|n| n == name);
        let own = user.attributes().filter(|(name, _)| !is_keyed(name));
        own.for_each(|(_, value)| personal_data.attribute(value.as_bytes()));
    }
    personal_data
}

/// The words of a visitor's own request and login, for learn mode: unlike in [`personal_data`], the values of all
/// cookies are among them, because the app may know a visitor by a cookie that no rule names.
pub(super) fn own_words(cx: &RequestContext<'_>) -> PersonalData {
    let mut words = PersonalData::default();
    credentials(&cx.head.headers, &mut words);
    if let Some(user) = cx.visitor.user() {
        words.user(user.as_bytes());
        user.attributes().for_each(|(_, value)| words.attribute(value.as_bytes()));
    }
    for (_, value) in cookies(&cx.head.headers).take(COOKIES_MAX) {
        words.token(value);
        if value.iter().any(u8::is_ascii_alphabetic) {
            words.user(value);
        }
    }
    words
}

/// The user that a fill names to the origin.
pub(crate) fn person(cx: &RequestContext<'_>) -> Option<SessionOwner> {
    let (session, user) = cx.visitor.known()?;
    let identity = origin_request::identity(cx).clone();
    let witness = Witness::new(user, cx.admitted.address);
    Some(SessionOwner { witness, identity, session: session.clone() })
}

/// Adds the content of `Authorization`: a user and a password (RFC 7617), or a token.
fn credentials(headers: &HeaderMap, personal_data: &mut PersonalData) {
    for line in headers.get_all(AUTHORIZATION) {
        let mut words = line.as_bytes().splitn(2, |byte| *byte == b' ').map(<[u8]>::trim_ascii);
        let scheme = words.next().unwrap_or_default();
        let Some(secret) = words.next() else { continue };
        personal_data.token(secret);
        if scheme.eq_ignore_ascii_case(b"basic")
            && let Ok(pair) = STANDARD.decode(secret)
        {
            let mut parts = pair.splitn(2, |byte| *byte == b':');
            personal_data.user(parts.next().unwrap_or_default());
            personal_data.token(parts.next().unwrap_or_default());
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
            let mut personal_data = PersonalData::default();
            credentials(&headers, &mut personal_data);
            assert_eq!(!personal_data.is_empty(), is_known, "{line:?}");
        }
    }
}
