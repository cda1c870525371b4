//! The group within a share class for which a page is stored: a segment, or one session.
//!
//! A group is a byte string in the page's key; different groups always have different bytes.

use anteroom_fault::fault;

use ::http::HeaderMap;
use anteroom_http::ident::User;
use anteroom_http::language;

use anteroom_policy::route::Segment;

/// Version of a session's group: another version makes other keys. Pages of version 1 were purged through URL
/// slots, which is no longer done.
const SESSION_FORMAT: u8 = 2;

/// The group for the segment of a visitor, who is `user` if logged in. It never contains the user's identity.
#[must_use]
pub fn segment(segment: &Segment, user: Option<&User>, headers: &HeaderMap) -> Vec<u8> {
    let mut group = Vec::new();
    for name in segment.attributes.iter().filter(|_| !fault!("segment")) {
        part(&mut group, Some(name));
        part(&mut group, user.and_then(|user| user.attribute(name)));
    }
    if let Some(offered) = &segment.language {
        part(&mut group, language::chosen(headers, offered).as_deref());
    }
    group
}

/// The group for one session of a user: what the origin is sent about the user, and the cookies that it gets.
/// Two sessions of one user may differ, for example by a cart or a message that the app keeps with the
/// session. A change of name or attributes also makes another group.
#[must_use]
pub fn session(user: &User, cookies: &[u8]) -> Vec<u8> {
    let mut group = vec![SESSION_FORMAT];
    if !fault!("session") {
        bytes(&mut group, user.as_said());
        bytes(&mut group, cookies);
    }
    group
}

/// Appends a text, or the mark for an absent one.
fn part(group: &mut Vec<u8>, text: Option<&str>) {
    group.push(u8::from(text.is_some()));
    bytes(group, text.unwrap_or_default().as_bytes());
}

/// Appends bytes with a length prefix, so that different lists never have the same encoding.
fn bytes(group: &mut Vec<u8>, bytes: &[u8]) {
    group.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
    group.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;
    use ::http::header::ACCEPT_LANGUAGE;

    use super::*;

    fn user(name: &str, attributes: &[(&str, &str)]) -> User {
        let attributes: Vec<_> =
            attributes.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        User::new(name.as_bytes()).unwrap().with_attributes(&attributes).unwrap()
    }

    fn all_differ<const N: usize>(mut groups: [Vec<u8>; N]) {
        groups.sort_unstable();
        assert!(groups.windows(2).all(|pair| pair[0] != pair[1]), "{groups:?}");
    }

    #[test]
    fn a_segment_holds_attributes_and_language_and_never_the_name() {
        let by = Segment {
            attributes: vec!["group".into(), "tier".into()],
            language: Some(Vec::new()),
            ..Segment::default()
        };
        let said = |text: &'static str| {
            HeaderMap::from_iter([(ACCEPT_LANGUAGE, HeaderValue::from_static(text))])
        };
        let of = |user: &User, text| segment(&by, Some(user), &said(text));
        let trade = |name| user(name, &[("group", "trade"), ("name", name)]);
        assert_eq!(of(&trade("alice"), "de"), of(&trade("bob"), "de-AT, en;q=0.1"));
        all_differ([
            of(&trade("alice"), "de"),
            of(&trade("alice"), "en"),
            of(&user("alice", &[("group", "retail")]), "de"),
            of(&user("alice", &[("group", "")]), "de"),
            of(&user("alice", &[("tier", "trade")]), "de"),
            of(&user("alice", &[]), "de"),
        ]);
        assert_eq!(segment(&by, None, &said("de")), of(&user("alice", &[]), "de"));
        assert!(segment(&Segment::default(), Some(&trade("alice")), &said("de")).is_empty());
    }

    #[test]
    fn a_session_is_the_user_with_all_that_the_app_is_shown() {
        let trade = user("alice", &[("group", "trade")]);
        all_differ([
            session(&user("alice", &[]), b"sid=1"),
            session(&user("alice", &[]), b"sid=2"),
            session(&user("alicesid", &[]), b"=1"),
            session(&user("bob", &[]), b"sid=1"),
            session(&trade, b"sid=1"),
        ]);
    }
}
