//! Conditional requests (RFC 9110 §13): what a client's conditions mean for a stored response (RFC 9111
//! §4.3.2), how this cache revalidates with the origin (§4.3.1), and how a 304 updates the stored response
//! (§4.3.4).
//!
//! Whether a stored response may be used at all is decided elsewhere.

use ::http::header::{
    self, AGE, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, LAST_MODIFIED, TRANSFER_ENCODING,
};
use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::date;
use super::etag::{ETag, tags};
use super::freshness::date_of;
use super::hop;
use super::list::{only_line, trim};

/// The result of evaluating a request's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// There is no condition, or none that applies: the stored response is sent.
    None,
    /// The client has the stored representation: send 304.
    NotModified,
    /// The client has another representation, or the condition does not apply to this response: the stored
    /// response is sent.
    Modified,
    /// Only the origin can evaluate the condition: forward the request.
    NotOurs,
}

/// The fields of a stored response that [`judge`] looks at.
pub static OF_STORED: [HeaderName; 3] = [ETAG, LAST_MODIFIED, DATE];

/// Evaluates the conditions of `request`, a GET or HEAD, against a stored response (RFC 9111 §4.3.2). `now`
/// is in seconds since 1970.
///
/// Evaluate `Range` after this: a 304 takes precedence over it (RFC 9110 §13.2.2).
#[must_use]
pub fn judge(request: &HeaderMap, status: StatusCode, stored: &HeaderMap, now: u64) -> Condition {
    // RFC 9110 §13.1.1, §13.1.4: these conditions guard a change of state on the origin. They come first in
    // the order of evaluation (§13.2.2), so the other conditions wait for the origin as well.
    if request.contains_key(IF_MATCH) || request.contains_key(IF_UNMODIFIED_SINCE) {
        return Condition::NotOurs;
    }
    // §13.1.3: if `If-None-Match` is present, even malformed, `If-Modified-Since` is ignored.
    let is_same = if request.contains_key(IF_NONE_MATCH) {
        none_match_finds(request, stored)
    } else if let Some(since) =
        only_line(request, &IF_MODIFIED_SINCE).and_then(|at| at_date(at, now))
    {
        changed_at(stored, now).is_some_and(|changed| changed <= since)
    } else {
        return Condition::None;
    };
    // §13.2.1: conditions apply only if the response without them would be a success, and RFC 9111 §4.3.2 has
    // a cache evaluate them for a 200. A 206 is never stored.
    if is_same && status == StatusCode::OK { Condition::NotModified } else { Condition::Modified }
}

/// Whether `If-None-Match` matches the stored response (RFC 9110 §13.1.2). `*` matches any response and must
/// be the only member: a list that also contains `*` has no defined meaning, and sending the page is then the
/// safe answer.
fn none_match_finds(request: &HeaderMap, stored: &HeaderMap) -> bool {
    if only_line(request, &IF_NONE_MATCH).is_some_and(|line| trim(line) == b"*") {
        return true;
    }
    let Some(ours) = ETag::of(stored) else {
        return false;
    };
    tags(request, &IF_NONE_MATCH).any(|theirs| theirs.is_weakly(&ours))
}

/// When the stored response was last modified. Without `Last-Modified`, `Date` stands in (RFC 9111 §4.3.2).
/// With a `Last-Modified` that is not a date the time is unknown, and `Date` is not used.
fn changed_at(stored: &HeaderMap, now: u64) -> Option<u64> {
    if stored.contains_key(LAST_MODIFIED) {
        only_line(stored, &LAST_MODIFIED).and_then(|line| at_date(line, now))
    } else {
        date_of(stored, now)
    }
}

/// The conditions with which this cache revalidates a stored response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    /// The value of `If-None-Match`.
    pub if_none_match: Option<HeaderValue>,
    /// The value of `If-Modified-Since`.
    pub if_modified_since: Option<HeaderValue>,
}

impl Validators {
    /// Whether there is no validator: the response must be fetched in full.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.if_none_match.is_none() && self.if_modified_since.is_none()
    }
}

/// The validators of a stored response (RFC 9111 §4.3.1): both of them where it has both, because an origin
/// without support for tags uses the date. They are copied byte for byte, because many origins compare them
/// that way. A malformed tag, or a field with several lines, is left out: the origin could not match it.
///
/// None of them where the response was made in the second of its last change (RFC 9110 §8.8.2.2): a second change in
/// that second has the same date, and for WordPress's feeds and files of nginx the same tag, too. The origin would
/// answer 304.
#[must_use]
pub fn validators(stored: &HeaderMap) -> Validators {
    let changed = only_line(stored, &LAST_MODIFIED);
    let has_one_date = changed.is_some();
    if has_one_date && changed == only_line(stored, &DATE) {
        return Validators::default();
    }
    Validators {
        if_none_match: ETag::of(stored).and_then(|_| stored.get(ETAG).cloned()),
        if_modified_since: has_one_date.then(|| stored.get(LAST_MODIFIED).cloned()).flatten(),
    }
}

/// Reduces the fields of a stored response to those of a 304 (RFC 9110 §15.4.5). Fields that describe the
/// absent body are removed, and so is `Last-Modified` beside a tag, which is more precise. The fields that
/// matter for caching stay (`Cache-Control`, `Content-Location`, `Date`, `ETag`, `Expires`, `Vary`), and so
/// do all others.
pub fn strip_for_not_modified(headers: &mut HeaderMap) {
    if ETag::of(headers).is_some() {
        headers.remove(LAST_MODIFIED);
    }
    for name in BODY_FIELDS.iter().chain(&BODY_META) {
        headers.remove(name);
    }
}

/// Whether a 304 in answer to the proxy's [`validators`] applies to the stored response (RFC 9111 §4.3.4). A
/// tag in the 304 must match the stored one; otherwise the stored response stays as it is, and the response
/// is fetched in full. A 304 without a tag answers the one condition that was sent, unless its
/// `Last-Modified` differs from the stored one.
///
/// Tags are compared weakly: nginx weakens the tag of a response that it compresses, and answers with the
/// strong one. If the stored response has no tag, a weak tag in the 304 is accepted, and a strong one means
/// other bytes.
#[must_use]
pub fn fits(stored: &HeaderMap, from_304: &HeaderMap) -> bool {
    match (ETag::of(from_304), ETag::of(stored)) {
        (None, _) => {
            let theirs = only_line(from_304, &LAST_MODIFIED);
            let ours = only_line(stored, &LAST_MODIFIED);
            theirs.is_none() || ours.is_none() || theirs == ours
        }
        (Some(theirs), Some(ours)) => theirs.is_weakly(&ours),
        (Some(theirs), None) => theirs.is_weak(),
    }
}

/// The fields of a stored response after a 304 that [`fits`] it (RFC 9111 §3.2, §4.3.4). Each field of the
/// 304 replaces all stored lines of its name; new fields are added. Fields that describe the stored bytes
/// stay, since the bytes are unchanged. Hop-by-hop fields of the 304 are not copied.
///
/// `Age` and `Date` belong to the message: the stored ones are always removed, so that the validated response
/// starts with a new age. The caller adds a missing `Date` as for any response (RFC 9110 §6.6.1) and
/// evaluates the whole result again: a 304 can bring `private`, `Set-Cookie`, another `Vary` or another
/// type.
#[must_use]
pub fn update(stored: &HeaderMap, from_304: &HeaderMap) -> HeaderMap {
    let mut updates = from_304.clone();
    hop::strip_for_storing(&mut updates);
    updates.remove(ETAG);
    for name in &BODY_FIELDS {
        updates.remove(name);
    }
    let mut updated = stored.clone();
    for name in [AGE, DATE].iter().chain(updates.keys()) {
        updated.remove(name);
    }
    for (name, value) in &updates {
        updated.append(name, value.clone());
    }
    updated
}

fn at_date(line: &[u8], now: u64) -> Option<u64> {
    date::parse(trim(line), now)
}

/// Fields that describe the exact bytes of a body.
static BODY_FIELDS: [HeaderName; 8] = [
    CONTENT_LENGTH,
    CONTENT_ENCODING,
    CONTENT_RANGE,
    TRANSFER_ENCODING,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
];

/// Other fields that describe a body, and are removed from a response without one. A 304 from the origin may
/// update them, because it is addressed to a cache.
static BODY_META: [HeaderName; 3] =
    [header::CONTENT_TYPE, header::CONTENT_LANGUAGE, header::TRAILER];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 1994-11-06 08:49:37
    const NOW: u64 = 784_111_777;
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    type ConditionLines<'t> = &'t [(&'t str, &'t str)];

    fn headers(lines: ConditionLines<'_>) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| {
                (
                    name.parse::<HeaderName>().unwrap(),
                    HeaderValue::from_bytes(value.as_bytes()).unwrap(),
                )
            })
            .collect()
    }

    fn listed(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<_> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.as_bytes().escape_ascii()))
            .collect();
        lines.sort();
        lines
    }

    #[track_caller]
    fn judged(request: ConditionLines<'_>, stored: ConditionLines<'_>, expected: Condition) {
        let condition = judge(&headers(request), StatusCode::OK, &headers(stored), NOW);
        assert_eq!(condition, expected, "{request:?} of {stored:?}");
    }

    #[test]
    fn without_conditions_there_is_none() {
        for request in [
            &[][..],
            &[("range", "bytes=0-1")],
            &[("if-range", "\"a\"")],
            &[("cache-control", "no-cache")],
        ] {
            judged(request, &[("etag", "\"a\""), ("last-modified", THEN)], Condition::None);
        }
    }

    #[test]
    fn preconditions_of_changes_are_left_to_the_origin() {
        for request in [
            &[("if-match", "\"a\"")][..],
            &[("if-match", "*")],
            &[("if-match", "")],
            &[("if-unmodified-since", THEN)],
            &[("if-unmodified-since", "garbage")],
            &[("if-match", "\"a\""), ("if-none-match", "\"a\"")],
            &[("if-unmodified-since", THEN), ("if-modified-since", THEN)],
        ] {
            judged(request, &[("etag", "\"a\""), ("last-modified", THEN)], Condition::NotOurs);
        }
        let request = headers(&[("if-match", "\"a\"")]);
        let judged = judge(&request, StatusCode::NOT_FOUND, &HeaderMap::new(), NOW);
        assert_eq!(judged, Condition::NotOurs);
    }

    #[test]
    fn tags_are_compared_weakly_and_by_bytes() {
        use Condition::{Modified, NotModified};
        for (wanted, stored, expected) in [
            (&["\"a\""][..], "\"a\"", NotModified),
            (&["\"a\""], "W/\"a\"", NotModified),
            (&["W/\"a\""], "\"a\"", NotModified),
            (&["W/\"a\""], "W/\"a\"", NotModified),
            (&["\"b\""], "\"a\"", Modified),
            (&["\"A\""], "\"a\"", Modified),
            (&["\"b\", \"a\""], "\"a\"", NotModified),
            (&["\"b\",\"a\",\"c\""], "\"a\"", NotModified),
            (&["\"b\" , W/\"a\""], "\"a\"", NotModified),
            (&[",, \"a\" ,"], "\"a\"", NotModified),
            (&["\"b\"", "\"a\""], "\"a\"", NotModified),
            (&["\"b\"", "\"c\""], "\"a\"", Modified),
            (&["\"a,b\""], "\"a,b\"", NotModified),
            (&["\"a,b\""], "\"a\"", Modified),
            (&["\"a\", \"b\""], "\"a, b\"", Modified),
            (&["\"x\\\", \"a\""], "\"a\"", NotModified),
            (&["\"ä\""], "\"ä\"", NotModified),
            (&["\"ä\""], "\"ö\"", Modified),
            (&["\"\""], "\"\"", NotModified),
            // Without quotes it is not a tag, on either side.
            (&["a"], "\"a\"", Modified),
            (&["\"a\""], "a", Modified),
            (&["a"], "a", Modified),
            (&["W/a"], "W/a", Modified),
            (&["\"a"], "\"a", Modified),
            (&["a, \"a\""], "\"a\"", NotModified),
            (&["w/\"a\""], "\"a\"", Modified),
            (&[""], "\"a\"", Modified),
            // `*` matches any response, and must be alone.
            (&["*"], "\"a\"", NotModified),
            (&[" * "], "\"a\"", NotModified),
            (&["*"], "a", NotModified),
            (&["\"*\""], "\"a\"", Modified),
            (&["*, \"b\""], "\"a\"", Modified),
            (&["*, \"a\""], "\"a\"", NotModified),
            (&["*", "*"], "\"a\"", Modified),
        ] {
            let request: Vec<_> = wanted.iter().map(|tag| ("if-none-match", *tag)).collect();
            judged(&request, &[("etag", stored)], expected);
        }
    }

    #[test]
    fn a_response_without_one_tag_is_found_by_the_star_only() {
        for stored in [&[][..], &[("etag", "\"a\""), ("etag", "\"a\"")]] {
            judged(&[("if-none-match", "\"a\"")], stored, Condition::Modified);
            judged(&[("if-none-match", "*")], stored, Condition::NotModified);
        }
    }

    #[test]
    fn a_tag_outweighs_a_date() {
        use Condition::{Modified, NotModified};
        for (tag, since, expected) in [
            ("\"a\"", EARLIER, NotModified),
            ("\"b\"", LATER, Modified),
            ("", LATER, Modified),
            ("b", LATER, Modified),
            ("\"a\"", "garbage", NotModified),
        ] {
            let request = [("if-none-match", tag), ("if-modified-since", since)];
            judged(&request, &[("etag", "\"a\""), ("last-modified", THEN)], expected);
        }
        judged(
            &[("if-none-match", "\"a\""), ("if-modified-since", LATER)],
            &[("last-modified", THEN)],
            Modified,
        );
    }

    #[test]
    fn dates_are_compared_as_moments() {
        use Condition::{Modified, None, NotModified};
        let changed = ("last-modified", THEN);
        for (since, stored, expected) in [
            (&[THEN][..], &[changed][..], NotModified),
            (&[LATER], &[changed], NotModified),
            (&[EARLIER], &[changed], Modified),
            (&["Fri, 31 Dec 9999 23:59:59 GMT"], &[changed], NotModified),
            (&["Sunday, 06-Nov-94 08:49:37 GMT"], &[changed], NotModified),
            (&["Sun Nov  6 08:49:37 1994"], &[changed], NotModified),
            (&["Sun Nov  6 08:49:36 1994"], &[changed], Modified),
            (&[" Sun, 06 Nov 1994 08:49:37 GMT "], &[changed], NotModified),
            (&[THEN], &[("last-modified", "Sunday, 06-Nov-94 08:49:37 GMT")], NotModified),
            // RFC 9110 §13.1.3: an invalid date, or more than one, is ignored.
            (&["0"], &[changed], None),
            (&[""], &[changed], None),
            (&["Sun, 06 Nov 1994 08:49:37"], &[changed], None),
            (&["Sun, 06 Nov 1994 08:49:37 GMT; length=5"], &[changed], None),
            (&[THEN, THEN], &[changed], None),
            // RFC 9111 §4.3.2: `Date` stands in for a missing `Last-Modified`.
            (&[THEN], &[("date", THEN)], NotModified),
            (&[EARLIER], &[("date", THEN)], Modified),
            (&[THEN], &[changed, ("date", LATER)], NotModified),
            (&[THEN], &[("last-modified", LATER), ("date", EARLIER)], Modified),
            (&[LATER], &[("last-modified", "0"), ("date", EARLIER)], Modified),
            (&[LATER], &[changed, changed, ("date", EARLIER)], Modified),
            (&[LATER], &[("date", "garbage")], Modified),
            (&[LATER], &[("date", THEN), ("date", THEN)], Modified),
            (&[LATER], &[], Modified),
            (&[LATER], &[("etag", "\"a\"")], Modified),
        ] {
            let request: Vec<_> = since.iter().map(|at| ("if-modified-since", *at)).collect();
            judged(&request, stored, expected);
        }
    }

    #[test]
    fn only_a_stored_200_is_not_modified() {
        let stored = headers(&[("etag", "\"a\""), ("last-modified", THEN)]);
        for condition in
            [("if-none-match", "\"a\""), ("if-none-match", "*"), ("if-modified-since", THEN)]
        {
            let request = headers(&[condition]);
            assert_eq!(judge(&request, StatusCode::OK, &stored, NOW), Condition::NotModified);
            for status in [203, 204, 206, 300, 301, 302, 304, 404, 410, 500] {
                let status = StatusCode::from_u16(status).unwrap();
                let judged = judge(&request, status, &stored, NOW);
                assert_eq!(judged, Condition::Modified, "{condition:?} {status}");
            }
        }
    }

    #[test]
    fn we_ask_with_what_the_origin_wrote() {
        for (lines, tag, since) in [
            (&[][..], None, None),
            (&[("etag", "\"a\"")], Some("\"a\""), None),
            (&[("etag", "W/\"a\"")], Some("W/\"a\""), None),
            (&[("etag", "\"ä\"")], Some("\"ä\""), None),
            (&[("etag", "a")], None, None),
            (&[("etag", "w/\"a\"")], None, None),
            (&[("etag", "\"a\", \"b\"")], None, None),
            (&[("etag", "\"a\""), ("etag", "\"b\"")], None, None),
            (&[("last-modified", THEN)], None, Some(THEN)),
            (&[("last-modified", "sun, 6 nov 1994")], None, Some("sun, 6 nov 1994")),
            (&[("last-modified", THEN), ("last-modified", THEN)], None, None),
            (&[("etag", "\"a\""), ("last-modified", THEN)], Some("\"a\""), Some(THEN)),
            (&[("etag", "a"), ("last-modified", THEN)], None, Some(THEN)),
            (&[("date", THEN)], None, None),
            // It was made in the second of the change: a later change in it would have the same validators.
            (&[("last-modified", THEN), ("date", THEN)], None, None),
            (&[("etag", "\"a\""), ("last-modified", THEN), ("date", THEN)], None, None),
            (&[("last-modified", THEN), ("date", LATER)], None, Some(THEN)),
            (&[("etag", "\"a\""), ("date", THEN)], Some("\"a\""), None),
        ] {
            let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).unwrap();
            let expected =
                Validators { if_none_match: tag.map(value), if_modified_since: since.map(value) };
            let validators = validators(&headers(lines));
            assert_eq!(validators, expected, "{lines:?}");
            assert_eq!(validators.is_empty(), tag.is_none() && since.is_none());
        }
    }

    #[test]
    fn a_304_says_what_a_200_would_say_of_caching() {
        let kept = [
            ("cache-control", "max-age=60"),
            ("content-location", "/a"),
            ("date", THEN),
            ("etag", "\"a\""),
            ("expires", LATER),
            ("vary", "accept"),
            ("age", "5"),
            ("link", "</a>; rel=preload"),
            ("link", "</b>; rel=preload"),
            ("x-request-id", "7"),
            ("content-security-policy", "default-src 'self'"),
            ("accept-ranges", "bytes"),
        ];
        let mut all = headers(&kept);
        for name in [
            "content-encoding",
            "content-length",
            "content-range",
            "content-type",
            "content-language",
            "transfer-encoding",
            "trailer",
            "digest",
            "content-digest",
            "repr-digest",
            "content-md5",
            "last-modified",
        ] {
            all.append(HeaderName::from_static(name), HeaderValue::from_static("1"));
            all.append(HeaderName::from_static(name), HeaderValue::from_static("2"));
        }
        strip_for_not_modified(&mut all);
        assert_eq!(listed(&all), listed(&headers(&kept)));
    }

    #[test]
    fn the_date_of_change_goes_out_where_no_tag_does() {
        for (lines, expected) in [
            (&[("last-modified", THEN)][..], true),
            (&[("last-modified", THEN), ("etag", "a")], true),
            (&[("last-modified", THEN), ("etag", "\"a\"")], false),
            (&[("last-modified", THEN), ("etag", "W/\"a\"")], false),
        ] {
            let mut fields = headers(lines);
            strip_for_not_modified(&mut fields);
            assert_eq!(fields.contains_key(LAST_MODIFIED), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_304_speaks_of_what_has_its_tag() {
        for (stored, from_304, expected) in [
            (&[][..], &[][..], true),
            (&[("etag", "\"a\"")], &[], true),
            (&[("etag", "\"a\"")], &[("etag", "\"a\"")], true),
            (&[("etag", "\"a\"")], &[("etag", "\"b\"")], false),
            (&[("etag", "\"a\"")], &[("etag", "W/\"a\"")], true),
            (&[("etag", "\"a\"")], &[("etag", "W/\"b\"")], false),
            (&[("etag", "W/\"a\"")], &[("etag", "\"a\"")], true),
            (&[("etag", "W/\"a\"")], &[("etag", "W/\"a\"")], true),
            (&[("etag", "W/\"a\"")], &[("etag", "\"b\"")], false),
            (&[("etag", "\"a\"")], &[("etag", "a")], true),
            (&[("last-modified", THEN)], &[], true),
            (&[("last-modified", THEN)], &[("last-modified", THEN)], true),
            (&[("last-modified", THEN)], &[("etag", "\"a\"")], false),
            (&[("last-modified", THEN)], &[("etag", "W/\"a\"")], true),
            (&[("etag", "a")], &[("etag", "\"a\"")], false),
        ] {
            let fitted = fits(&headers(stored), &headers(from_304));
            assert_eq!(fitted, expected, "{stored:?} {from_304:?}");
        }
    }

    #[test]
    fn a_304_replaces_lines_by_name() {
        for (stored, from_304, expected) in [
            (&[("x-a", "1")][..], &[][..], &[("x-a", "1")][..]),
            (&[("x-a", "1")], &[("x-a", "2")], &[("x-a", "2")]),
            (&[("x-a", "1"), ("x-a", "2")], &[("x-a", "3")], &[("x-a", "3")]),
            (&[("x-a", "1")], &[("x-a", "2"), ("x-a", "3")], &[("x-a", "2"), ("x-a", "3")]),
            (&[("x-a", "1")], &[("x-b", "2")], &[("x-a", "1"), ("x-b", "2")]),
            (&[("x-a", "1")], &[("x-a", "")], &[("x-a", "")]),
            (
                &[("cache-control", "max-age=1"), ("expires", THEN)],
                &[("cache-control", "max-age=2"), ("expires", LATER)],
                &[("cache-control", "max-age=2"), ("expires", LATER)],
            ),
            (&[("content-type", "a/b")], &[("content-type", "c/d")], &[("content-type", "c/d")]),
            (&[("vary", "accept")], &[("vary", "accept, origin")], &[("vary", "accept, origin")]),
            (&[("last-modified", THEN)], &[("last-modified", LATER)], &[("last-modified", LATER)]),
            (&[("x-a", "1")], &[("set-cookie", "a=b")], &[("x-a", "1"), ("set-cookie", "a=b")]),
            // `Age` and `Date` come from the 304 alone.
            (&[("date", THEN), ("age", "9")], &[("date", LATER)], &[("date", LATER)]),
            (&[("age", "9")], &[("age", "1")], &[("age", "1")]),
            (&[("date", THEN), ("age", "9")], &[], &[]),
        ] {
            let updated = update(&headers(stored), &headers(from_304));
            assert_eq!(listed(&updated), listed(&headers(expected)), "{stored:?} {from_304:?}");
        }
    }

    #[test]
    fn a_304_does_not_change_what_describes_the_stored_bytes() {
        for name in [
            "content-length",
            "content-encoding",
            "content-range",
            "content-md5",
            "content-digest",
            "repr-digest",
            "digest",
            "etag",
            "transfer-encoding",
            "connection",
            "keep-alive",
            "proxy-connection",
            "te",
            "trailer",
            "upgrade",
            "proxy-authenticate",
        ] {
            let (ours, theirs) = (headers(&[(name, "1")]), headers(&[(name, "2")]));
            assert_eq!(listed(&update(&ours, &theirs)), [format!("{name}: 1")]);
            assert!(update(&HeaderMap::new(), &theirs).is_empty(), "{name}");
        }
        let theirs = headers(&[("connection", "x-a"), ("x-a", "2")]);
        assert_eq!(listed(&update(&headers(&[("x-a", "1")]), &theirs)), ["x-a: 1"]);
    }

    proptest! {
        #[test]
        fn no_values_break_it(
            line in proptest::collection::vec(any::<u8>(), 0..32),
            other in "[ -~]{0,24}",
            now: u64,
        ) {
            if let Ok(value) = HeaderValue::from_bytes(&line) {
                let theirs: HeaderMap =
                    [IF_NONE_MATCH, IF_MODIFIED_SINCE].map(|name| (name, value.clone())).into_iter().collect();
                let mut ours: HeaderMap =
                    [ETAG, LAST_MODIFIED, DATE].map(|name| (name, value.clone())).into_iter().collect();
                let _ = judge(&theirs, StatusCode::OK, &ours, now);
                let _ = judge(&theirs, StatusCode::OK, &headers(&[("etag", &other)]), now);
                let _ = (validators(&ours), fits(&ours, &headers(&[("etag", &other)])));
                let _ = update(&ours, &headers(&[("connection", &other), ("date", &other)]));
                strip_for_not_modified(&mut ours);
            }
        }

        #[test]
        fn a_matching_tag_is_found_at_any_position(
            before in "(\"[!#-~]{0,6}\",)?", tag in "(W/)?\"[!#-~]{0,6}\"", after in "(, ?\"[!#-~]{0,6}\")?",
        ) {
            let request = headers(&[("if-none-match", &format!("{before}{tag}{after}"))]);
            let condition = judge(&request, StatusCode::OK, &headers(&[("etag", &tag)]), NOW);
            prop_assert_eq!(condition, Condition::NotModified);
        }

        #[test]
        fn our_validators_match_the_stored_response(tag in "(W/)?\"[!#-~]{0,6}\"", changed in 0..NOW) {
            let changed = date::format(changed);
            let stored = headers(&[("etag", &tag), ("last-modified", changed.to_str().unwrap())]);
            let ours = validators(&stored);
            for (name, value) in [(IF_NONE_MATCH, ours.if_none_match), (IF_MODIFIED_SINCE, ours.if_modified_since)] {
                let request: HeaderMap = [(name, value.unwrap())].into_iter().collect();
                prop_assert_eq!(judge(&request, StatusCode::OK, &stored, NOW), Condition::NotModified);
            }
        }

        #[test]
        fn an_update_with_itself_changes_nothing_but_time(name in "x-[a-z]{1,6}", value in "[!-~]{0,8}") {
            let stored = headers(&[(&name, &value), (&name, "2"), ("etag", "\"a\""), ("date", THEN)]);
            prop_assert_eq!(listed(&update(&stored, &stored)), listed(&stored));
        }
    }
}
