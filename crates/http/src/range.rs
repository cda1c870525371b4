//! Range requests for a stored 200 (RFC 9110 §14): which bytes a GET asks for, and the framing of several
//! parts (§14.6).
//!
//! The caller cuts the body and sends `Accept-Ranges`.

use std::ops::Range;

use ::http::header::{IF_RANGE, LAST_MODIFIED, RANGE};
use ::http::{HeaderMap, HeaderValue};
use bytes::Bytes;

use super::date;
use super::etag::ETag;
use super::freshness::date_of;
use super::list::{divide, only_line, saturating_digits, trim};

/// The most ranges that a request may name. A request with more gets the whole body.
pub const RANGES_MAX: usize = 16;

/// Ranges with fewer bytes between them are merged: this is about the size of a part's own head (RFC 9110
/// §15.3.7.2).
pub const GAP_MIN: usize = 80;

/// The bytes of a body to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of it, as 200: there is no `Range`, or it is ignored.
    Whole,
    /// One part, as 206 with its [`content_range`].
    One(Range<usize>),
    /// At least two parts, as 206, framed by [`Multipart`]. They neither overlap nor touch.
    Several(Vec<Range<usize>>),
    /// None of the requested bytes exist: 416 with [`unsatisfied_range`].
    Unsatisfiable,
}

/// Selects the bytes that `request`, a GET, asks for of a stored 200 with a body of `length` bytes. `now` is
/// in seconds since 1970.
///
/// Evaluate the other conditions first (RFC 9110 §13.2.2).
#[must_use]
pub fn select(request: &HeaderMap, stored: &HeaderMap, length: usize, now: u64) -> Selection {
    // §14.2: several lines cannot be combined into a list, because each has a unit.
    let Some(line) = only_line(request, &RANGE) else {
        return Selection::Whole;
    };
    let Some(specs) = parse(line) else {
        return Selection::Whole;
    };
    if request.contains_key(IF_RANGE) && !if_range_holds(request, stored, now) {
        return Selection::Whole;
    }
    cut(&specs, length)
}

/// Whether `If-Range` names the stored representation (§13.1.5): by a strong comparison of tags, or by an
/// identical `Last-Modified`.
fn if_range_holds(request: &HeaderMap, stored: &HeaderMap, now: u64) -> bool {
    let Some(line) = only_line(request, &IF_RANGE).map(trim) else {
        return false;
    };
    if let Some(theirs) = ETag::parse(line) {
        return ETag::of(stored).is_some_and(|ours| ours.is_strongly(&theirs));
    }
    only_line(stored, &LAST_MODIFIED).is_some_and(|changed| trim(changed) == line)
        && is_strong_date(line, stored, now)
}

/// Whether a `Last-Modified` is a strong validator (§8.8.2.2). Two changes can fall into one second, so the
/// response must have been made in a later second.
fn is_strong_date(changed: &[u8], stored: &HeaderMap, now: u64) -> bool {
    match (date::parse(changed, now), date_of(stored, now)) {
        (Some(changed), Some(made)) => changed < made,
        _ => false,
    }
}

/// One range of the request (§14.1.1). Numbers saturate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spec {
    /// `first-last`, both inclusive
    FromTo(u64, u64),
    /// `first-`
    From(u64),
    /// `-length`, counted from the end
    Last(u64),
}

impl Spec {
    fn parse(text: &[u8]) -> Option<Self> {
        let (first, last) = divide(text, b'-');
        match (first, last?) {
            (b"", length) => number(length).map(Self::Last),
            (first, b"") => number(first).map(Self::From),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                // §14.1.1: an end before the start makes the whole set invalid.
                (first <= last).then_some(Self::FromTo(first, last))
            }
        }
    }

    /// The requested bytes that exist (§14.1.2); `None` if there are none.
    fn within(self, length: usize) -> Option<Range<usize>> {
        let clamped = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(length);
        let range = match self {
            Self::FromTo(first, last) => clamped(first)..clamped(last.saturating_add(1)),
            Self::From(first) => clamped(first)..length,
            Self::Last(count) => length - clamped(count)..length,
        };
        (!range.is_empty()).then_some(range)
    }
}

/// Parses `bytes=…`; `None` if the field is ignored (§14.2): another unit, an invalid member, no members, or
/// too many.
fn parse(line: &[u8]) -> Option<Vec<Spec>> {
    let (unit, set) = divide(trim(line), b'=');
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut specs = Vec::new();
    // Members contain no quotes, so every comma separates; empty members are ignored (§5.6.1.2).
    for member in set?.split(|&byte| byte == b',').map(trim).filter(|member| !member.is_empty()) {
        if specs.len() == RANGES_MAX {
            return None;
        }
        specs.push(Spec::parse(member)?);
    }
    (!specs.is_empty()).then_some(specs)
}

fn number(digits: &[u8]) -> Option<u64> {
    saturating_digits(digits, u64::MAX)
}

fn cut(specs: &[Spec], length: usize) -> Selection {
    if length == 0 && specs.iter().any(|spec| matches!(spec, Spec::Last(1..))) {
        // §14.1.2: a suffix range of an empty body is satisfiable, but no `Content-Range` can express it.
        return Selection::Whole;
    }
    let ranges: Vec<_> = specs.iter().filter_map(|spec| spec.within(length)).collect();
    // SECURITY: ranges that together exceed the body overlap, and serve only to cause work (§14.2, §17.15;
    // CVE-2011-3192).
    let asked = ranges.iter().fold(0, |sum: usize, range| sum.saturating_add(range.len()));
    if asked > length {
        return Selection::Whole;
    }
    let mut parts = coalesced(ranges);
    match parts.len() {
        0 => Selection::Unsatisfiable,
        // §15.3.7.2: a single part needs no multipart framing.
        1 => Selection::One(parts.remove(0)),
        _ => Selection::Several(parts),
    }
}

/// Merges ranges that overlap or nearly touch, and keeps the requested order (§15.3.7.2). A merged range
/// takes the place of the first of its members.
fn coalesced(ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for mut range in ranges {
        let mut place = parts.len();
        // A merged range may reach a further one; the loop runs at most once per part.
        while let Some(at) = parts.iter().position(|part| is_near(part, &range)) {
            let part = parts.remove(at);
            range = part.start.min(range.start)..part.end.max(range.end);
            place = place.min(at);
        }
        parts.insert(place.min(parts.len()), range);
    }
    parts
}

fn is_near(one: &Range<usize>, other: &Range<usize>) -> bool {
    let gap = one.start.max(other.start).saturating_sub(one.end.min(other.end));
    gap < GAP_MIN
}

/// The `Content-Range` of a 206 with one non-empty part (§14.4).
#[must_use]
pub fn content_range(part: &Range<usize>, length: usize) -> HeaderValue {
    value(format!("bytes {}-{}/{length}", part.start, part.end.saturating_sub(1)))
}

/// The `Content-Range` of a 416 (§14.4): the length of the body.
#[must_use]
pub fn unsatisfied_range(length: usize) -> HeaderValue {
    value(format!("bytes */{length}"))
}

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("words and digits are visible ASCII")
}

/// Several parts as one `multipart/byteranges` body (§14.6): a head before each part, and a closing line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipart {
    /// The head of each part, and the bytes that follow it.
    pub parts: Vec<(Bytes, Range<usize>)>,
    /// The closing line after the last part.
    pub end: Bytes,
    /// The `Content-Type` of the response, which has no `Content-Range` (§15.3.7.2).
    pub content_type: HeaderValue,
}

impl Multipart {
    /// Frames `ranges` of a body of `length` bytes; `content_type` is the body's type, if it has one.
    ///
    /// `boundary` must be 1 to 70 letters and digits (RFC 2046 §5.1.1); otherwise the result is `None`. The
    /// caller chooses it at random, because the body must not contain it.
    #[must_use]
    pub fn new(
        ranges: Vec<Range<usize>>,
        length: usize,
        content_type: Option<&HeaderValue>,
        boundary: &str,
    ) -> Option<Self> {
        let fits = (1..=70).contains(&boundary.len());
        if !fits || !boundary.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return None;
        }
        let with_head = |(at, range): (usize, Range<usize>)| {
            let before = if at == 0 { "" } else { "\r\n" };
            let mut head = format!("{before}--{boundary}\r\n").into_bytes();
            if let Some(content_type) = content_type {
                head.extend_from_slice(b"Content-Type: ");
                head.extend_from_slice(content_type.as_bytes());
                head.extend_from_slice(b"\r\n");
            }
            head.extend_from_slice(b"Content-Range: ");
            head.extend_from_slice(content_range(&range, length).as_bytes());
            head.extend_from_slice(b"\r\n\r\n");
            (Bytes::from(head), range)
        };
        Some(Self {
            parts: ranges.into_iter().enumerate().map(with_head).collect(),
            end: Bytes::from(format!("\r\n--{boundary}--\r\n")),
            content_type: value(format!("multipart/byteranges; boundary={boundary}")),
        })
    }

    /// The `Content-Length` of the response, part heads included.
    #[must_use]
    pub fn length(&self) -> usize {
        let parts = self.parts.iter().map(|(head, range)| head.len() + range.len());
        parts.sum::<usize>() + self.end.len()
    }
}

#[cfg(test)]
mod tests {
    use ::http::HeaderName;
    use proptest::prelude::*;

    use super::Selection::{One, Several, Unsatisfiable, Whole};
    use super::*;

    /// 1994-11-06 08:49:37
    const NOW: u64 = 784_111_777;
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| {
                (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
            })
            .collect()
    }

    fn selected(range: &str, length: usize) -> Selection {
        select(&headers(&[("range", range)]), &HeaderMap::new(), length, NOW)
    }

    #[test]
    fn one_range_is_one_part() {
        for (range, length, expected) in [
            ("bytes=0-0", 10, One(0..1)),
            ("bytes=0-4", 10, One(0..5)),
            ("bytes=2-4", 10, One(2..5)),
            ("bytes=0-9", 10, One(0..10)),
            ("bytes=0-10", 10, One(0..10)),
            ("bytes=9-9", 10, One(9..10)),
            ("bytes=9-99999999999999999999999999", 10, One(9..10)),
            ("bytes=0-18446744073709551615", 10, One(0..10)),
            ("bytes=0-", 10, One(0..10)),
            ("bytes=4-", 10, One(4..10)),
            ("bytes=9-", 10, One(9..10)),
            ("bytes=-1", 10, One(9..10)),
            ("bytes=-10", 10, One(0..10)),
            ("bytes=-11", 10, One(0..10)),
            ("bytes=-99999999999999999999999999", 10, One(0..10)),
            ("bytes=000-0004", 10, One(0..5)),
            ("Bytes=0-4", 10, One(0..5)),
            ("BYTES=0-4", 10, One(0..5)),
            (" bytes=0-4\t", 10, One(0..5)),
            ("bytes= 0-4", 10, One(0..5)),
            ("bytes=,, 0-4 ,", 10, One(0..5)),
            ("bytes=0-4,99-", 10, One(0..5)),
            ("bytes=99-,-0,0-4", 10, One(0..5)),
            ("bytes=0-0", 1, One(0..1)),
        ] {
            assert_eq!(selected(range, length), expected, "{range} of {length}");
        }
    }

    #[test]
    fn an_invalid_byte_range_is_ignored() {
        for range in [
            "",
            "bytes",
            "bytes=",
            "bytes= , ",
            "bytes=-",
            "bytes=--1",
            "bytes=a-b",
            "bytes=0",
            "bytes=1-0",
            "bytes=5-4,0-1",
            "bytes=0-1,x",
            "bytes=0-1;2-3",
            "bytes=0-1-2",
            "bytes=+0-1",
            "bytes=0 -1",
            "bytes=0- 1",
            "bytes=0x0-0x1",
            "bytes=0.0-1",
            "bytes=\"0-1\"",
            "bytes=*",
            "bytes=0-1 2-3",
            "bytes =0-1",
            "bytes 0-1",
            "bytes:0-1",
            "bytes==0-1",
            "byte=0-1",
            "xbytes=0-1",
            "items=0-1",
            "none",
            "=0-1",
            "0-1",
        ] {
            assert_eq!(selected(range, 10), Whole, "{range}");
        }
        let twice = headers(&[("range", "bytes=0-1"), ("range", "bytes=0-1")]);
        assert_eq!(select(&twice, &HeaderMap::new(), 10, NOW), Whole);
        assert_eq!(select(&HeaderMap::new(), &HeaderMap::new(), 10, NOW), Whole);
    }

    #[test]
    fn a_range_past_the_end_is_unsatisfiable() {
        for (range, length) in [
            ("bytes=10-", 10),
            ("bytes=10-10", 10),
            ("bytes=10-20", 10),
            ("bytes=-0", 10),
            ("bytes=-0,10-", 10),
            ("bytes=99999999999999999999999999-", 10),
            ("bytes=18446744073709551615-18446744073709551615", 10),
            ("bytes=0-", 0),
            ("bytes=0-0", 0),
            ("bytes=-0", 0),
        ] {
            assert_eq!(selected(range, length), Unsatisfiable, "{range} of {length}");
        }
        for range in ["bytes=-1", "bytes=-99", "bytes=0-,-1"] {
            assert_eq!(selected(range, 0), Whole, "{range} of nothing");
        }
    }

    #[test]
    fn several_ranges_keep_their_order_and_become_one_where_they_are_near() {
        for (range, expected) in [
            ("bytes=0-9,100-109", Several(vec![0..10, 100..110])),
            ("bytes=100-109,0-9", Several(vec![100..110, 0..10])),
            ("bytes=0-9, 500-509 ,-10", Several(vec![0..10, 500..510, 990..1000])),
            ("bytes=0-9,2000-,100-109", Several(vec![0..10, 100..110])),
            // 79 bytes between the ranges, and 80.
            ("bytes=0-9,89-99", One(0..100)),
            ("bytes=0-9,90-99", Several(vec![0..10, 90..100])),
            ("bytes=90-99,0-9", Several(vec![90..100, 0..10])),
            ("bytes=89-99,0-9", One(0..100)),
            ("bytes=0-9,10-19", One(0..20)),
            ("bytes=0-9,5-14", One(0..15)),
            ("bytes=0-99,10-19", One(0..100)),
            ("bytes=10-19,0-99", One(0..100)),
            ("bytes=0-9,0-9", One(0..10)),
            ("bytes=500-509,0-9,510-519", Several(vec![500..520, 0..10])),
            ("bytes=0-9,500-509,10-19", Several(vec![0..20, 500..510])),
            // The last range joins the others at the place of the first of them.
            ("bytes=800-809,0-9,150-159,50-109", Several(vec![800..810, 0..160])),
            ("bytes=150-159,800-809,0-9,50-109", Several(vec![0..160, 800..810])),
        ] {
            assert_eq!(selected(range, 1000), expected, "{range}");
        }
    }

    #[test]
    fn too_many_ranges_get_the_whole_body() {
        let set = |count: usize| {
            let ranges: Vec<_> =
                (0..count).map(|at| format!("{}-{}", at * 200, at * 200)).collect();
            format!("bytes={}", ranges.join(","))
        };
        assert!(
            matches!(selected(&set(RANGES_MAX), 10_000), Several(parts) if parts.len() == RANGES_MAX)
        );
        assert_eq!(selected(&set(RANGES_MAX + 1), 10_000), Whole);
        assert_eq!(selected(&set(1000), 10_000), Whole);
        // Empty members do not count towards the limit; unsatisfiable ones do.
        assert!(matches!(selected(&set(RANGES_MAX).replace(',', ",,,"), 10_000), Several(_)));
        assert_eq!(selected(&format!("bytes=0-1{}", ",99999-".repeat(RANGES_MAX)), 100), Whole);
        for range in [
            "bytes=0-,0-",
            "bytes=0-,-1",
            "bytes=0-9,0-9,0-9,0-9,0-9,0-9,0-9,0-9,0-9,0-9,0-9",
            "bytes=1-,0-,2-",
            "bytes=0-60,40-99",
        ] {
            assert_eq!(selected(range, 100), Whole, "{range}");
        }
        // As many bytes as the body has, and no more.
        assert_eq!(selected("bytes=0-49,50-99", 100), One(0..100));
    }

    #[test]
    fn if_range_must_name_this_very_representation() {
        for (if_range, stored, expected) in [
            (&["\"a\""][..], &[("etag", "\"a\"")][..], true),
            (&[" \"a\" "], &[("etag", "\"a\"")], true),
            (&["\"b\""], &[("etag", "\"a\"")], false),
            (&["W/\"a\""], &[("etag", "\"a\"")], false),
            (&["\"a\""], &[("etag", "W/\"a\"")], false),
            (&["W/\"a\""], &[("etag", "W/\"a\"")], false),
            (&["a"], &[("etag", "a")], false),
            (&["*"], &[("etag", "\"a\"")], false),
            (&[""], &[("etag", "\"a\"")], false),
            (&["\"a\", \"b\""], &[("etag", "\"a\"")], false),
            (&["\"a\"", "\"a\""], &[("etag", "\"a\"")], false),
            (&["\"a\""], &[], false),
            (&["\"a\""], &[("last-modified", EARLIER), ("date", THEN)], false),
            (&[EARLIER], &[("last-modified", EARLIER), ("date", THEN)], true),
            (&[EARLIER], &[("last-modified", EARLIER), ("date", THEN), ("etag", "\"a\"")], true),
            // Weak: made in the same second, or at an unknown time.
            (&[THEN], &[("last-modified", THEN), ("date", THEN)], false),
            (&[THEN], &[("last-modified", THEN), ("date", EARLIER)], false),
            (&[EARLIER], &[("last-modified", EARLIER)], false),
            (&[EARLIER], &[("last-modified", EARLIER), ("date", "garbage")], false),
            // Another date, later lines as well, or none.
            (&[THEN], &[("last-modified", EARLIER), ("date", THEN)], false),
            (&["Sun Nov  6 08:49:36 1994"], &[("last-modified", EARLIER), ("date", THEN)], false),
            (&["garbage"], &[("last-modified", "garbage"), ("date", THEN)], false),
            (&[EARLIER], &[("date", THEN)], false),
        ] {
            let mut lines = vec![("range", "bytes=0-1")];
            lines.extend(if_range.iter().map(|line| ("if-range", *line)));
            let expected = if expected { One(0..2) } else { Whole };
            let selection = select(&headers(&lines), &headers(stored), 10, NOW);
            assert_eq!(selection, expected, "{if_range:?} of {stored:?}");
        }
    }

    #[test]
    fn if_range_counts_beside_a_range_only() {
        let stored = headers(&[("etag", "\"a\"")]);
        for (lines, expected) in [
            (&[("if-range", "\"a\"")][..], Whole),
            (&[("if-range", "\"a\""), ("range", "items=0-1")], Whole),
            (&[("if-range", "\"a\""), ("range", "bytes=99-")], Unsatisfiable),
            (&[("if-range", "\"b\""), ("range", "bytes=99-")], Whole),
        ] {
            assert_eq!(select(&headers(lines), &stored, 10, NOW), expected, "{lines:?}");
        }
    }

    #[test]
    fn parts_say_where_they_are() {
        assert_eq!(content_range(&(0..1), 10), "bytes 0-0/10");
        assert_eq!(content_range(&(2..5), 10), "bytes 2-4/10");
        assert_eq!(content_range(&(0..10), 10), "bytes 0-9/10");
        assert_eq!(unsatisfied_range(10), "bytes */10");
        assert_eq!(unsatisfied_range(0), "bytes */0");
    }

    /// The body as a caller sends it.
    fn sent(multipart: &Multipart, body: &[u8]) -> Vec<u8> {
        let mut sent = Vec::new();
        for (head, range) in &multipart.parts {
            sent.extend_from_slice(head);
            sent.extend_from_slice(&body[range.clone()]);
        }
        sent.extend_from_slice(&multipart.end);
        sent
    }

    #[test]
    fn several_parts_are_framed() {
        let body = b"abcdefghij";
        let html = HeaderValue::from_static("text/html");
        let framed = Multipart::new(vec![0..2, 8..10], 10, Some(&html), "B0").unwrap();
        assert_eq!(framed.content_type, "multipart/byteranges; boundary=B0");
        let expected = "--B0\r\nContent-Type: text/html\r\nContent-Range: bytes 0-1/10\r\n\r\nab\
            \r\n--B0\r\nContent-Type: text/html\r\nContent-Range: bytes 8-9/10\r\n\r\nij\
            \r\n--B0--\r\n";
        assert_eq!(String::from_utf8(sent(&framed, body)).unwrap(), expected);
        assert_eq!(framed.length(), expected.len());

        let framed = Multipart::new(vec![4..5, 0..1], 10, None, "B0").unwrap();
        let expected = "--B0\r\nContent-Range: bytes 4-4/10\r\n\r\ne\
            \r\n--B0\r\nContent-Range: bytes 0-0/10\r\n\r\na\r\n--B0--\r\n";
        assert_eq!(String::from_utf8(sent(&framed, body)).unwrap(), expected);
        assert_eq!(framed.length(), expected.len());
    }

    #[test]
    fn a_boundary_is_of_letters_and_digits() {
        for (boundary, expected) in [
            ("a", true),
            ("0123456789abcdefABCDEF", true),
            (&"a".repeat(70)[..], true),
            (&"a".repeat(71), false),
            ("", false),
            ("a b", false),
            ("a\r\nb", false),
            ("a\"", false),
            ("ä", false),
        ] {
            assert_eq!(
                Multipart::new(vec![], 0, None, boundary).is_some(),
                expected,
                "{boundary:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(line in proptest::collection::vec(any::<u8>(), 0..32), length: usize) {
            for line in [line.clone(), [b"bytes=", &line[..]].concat()] {
                if let Ok(value) = HeaderValue::from_bytes(&line) {
                    let request: HeaderMap =
                        [RANGE, IF_RANGE].map(|name| (name, value.clone())).into_iter().collect();
                    let stored: HeaderMap = [(LAST_MODIFIED, value)].into_iter().collect();
                    let _ = select(&request, &stored, length, NOW);
                }
            }
        }

        #[test]
        fn parts_lie_within_the_body_and_apart(set in "([0-9]{0,4}-[0-9]{0,4},){0,6}[0-9]{1,3}-", length in 0_usize..4096) {
            let parts = match selected(&format!("bytes={set}"), length) {
                Whole | Unsatisfiable => vec![],
                One(part) => vec![part],
                Several(parts) => {
                    prop_assert!(parts.len() > 1);
                    parts
                }
            };
            for (at, part) in parts.iter().enumerate() {
                prop_assert!(part.start < part.end && part.end <= length);
                prop_assert!(parts[..at].iter().all(|other| !is_near(part, other)));
            }
        }

        #[test]
        fn every_byte_that_was_asked_for_is_sent(ranges in proptest::collection::vec((0_usize..2000, 1_usize..60), 1..=8)) {
            let body: Vec<u8> = (0..3000_u32).map(|at| at.to_le_bytes()[0]).collect();
            let set: Vec<_> = ranges.iter().map(|(at, count)| format!("{at}-{}", at + count - 1)).collect();
            let parts = match selected(&format!("bytes={}", set.join(",")), body.len()) {
                One(part) => vec![part],
                Several(parts) => parts,
                other => return Err(TestCaseError::fail(format!("{other:?}"))),
            };
            for (at, count) in ranges {
                prop_assert!(parts.iter().any(|part| part.start <= at && at + count <= part.end));
            }
            let framed = Multipart::new(parts, body.len(), None, "x").unwrap();
            prop_assert_eq!(sent(&framed, &body).len(), framed.length());
        }
    }
}
