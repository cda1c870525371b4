//! Bodies: the parts that are cut from them, and the guard that reads them.

use anteroom_cache::rules::leak_guard::{LeakChecks, inspect};
use anteroom_cache::rules::leak_kind::{LeakKind, PersonalForms};
use anteroom_cache::rules::personal_data::PersonalData;
use anteroom_http::etag::ETag;
use anteroom_http::range::{GAP_MIN, Multipart, RANGES_MAX, Selection, content_range, select};
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, DATE, ETAG, IF_RANGE, LAST_MODIFIED, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::input::{Input, fields, lines_of, values};

/// Sun, 06 Nov 1994 08:49:37 GMT
const NOW: u64 = 784_111_777;

fn insert(headers: &mut HeaderMap, name: HeaderName, line: &[u8]) {
    if !line.is_empty() {
        headers.extend(HeaderValue::from_bytes(line).map(|value| (name, value)));
    }
}

/// `Range` and `If-Range`: parts lie inside the body, apart from each other, and are of the
/// representation that the client has.
pub(crate) fn ranges(data: &[u8]) {
    let mut input = Input(data);
    let most = if input.byte().is_multiple_of(2) { 1 << 12 } else { u64::MAX };
    let length = usize::try_from(input.number(most)).unwrap();
    let mut request = values(&RANGE, input.line());
    insert(&mut request, IF_RANGE, input.line());
    let mut stored = HeaderMap::new();
    for name in [ETAG, LAST_MODIFIED, DATE] {
        insert(&mut stored, name, input.line());
    }
    let parts = match select(&request, &stored, length, NOW) {
        Selection::Whole | Selection::Unsatisfiable => return,
        Selection::One(part) => vec![part],
        Selection::Several(parts) => {
            assert!(parts.len() > 1);
            parts
        }
    };
    assert!(parts.len() <= RANGES_MAX);
    for (at, part) in parts.iter().enumerate() {
        assert!(part.start < part.end && part.end <= length);
        for other in &parts[..at] {
            let gap = part.start.max(other.start).checked_sub(part.end.min(other.end));
            assert!(gap.is_some_and(|gap| gap >= GAP_MIN), "{parts:?}");
        }
        let told = content_range(part, length);
        assert_eq!(told, format!("bytes {}-{}/{length}", part.start, part.end - 1));
    }
    if let [line] = lines_of(&request, IF_RANGE)[..] {
        let by_tag = ETag::parse(line).is_some_and(|theirs| {
            ETag::of(&stored).is_some_and(|ours| ours.is_strongly(&theirs) && !theirs.is_weak())
        });
        let by_date = lines_of(&stored, LAST_MODIFIED)
            .first()
            .is_some_and(|changed| changed.trim_ascii() == line.trim_ascii());
        assert!(by_tag || by_date);
    }
    if length <= 1 << 12 {
        let framed = Multipart::new(parts.clone(), length, None, "boundary").unwrap();
        let heads: usize = framed.parts.iter().map(|(head, _)| head.len()).sum();
        let bytes: usize = parts.iter().map(std::ops::Range::len).sum();
        assert!(bytes <= length);
        assert_eq!(framed.length(), heads + bytes + framed.end.len());
    }
}

/// The leak guard: where a body is cut makes no difference, nor does it that tags are read only where
/// something may stand in them, and a form with a token is found whatever stands behind it.
pub(crate) fn guard(data: &[u8]) {
    const DECODED_MAX: usize = 1 << 16;
    let mut input = Input(data);
    let headers = fields(input.block());
    let body = Bytes::copy_from_slice(input.0);
    let mut personal_data = PersonalData::default();
    personal_data.user(b"alice");
    let watch = LeakChecks {
        forms: PersonalForms::Posted,
        personal_data: &personal_data,
        max_decoded: DECODED_MAX,
    };
    // Which of several findings is the first depends on the pieces.
    let verdict = |pieces: &[Bytes]| inspect(&headers, pieces, &watch).is_ok();
    let whole = verdict(std::slice::from_ref(&body));
    for at in [1, body.len() / 2, body.len().saturating_sub(1)] {
        let at = at.min(body.len());
        assert_eq!(verdict(&[body.slice(..at), body.slice(at..)]), whole, "cut at {at}");
    }

    let mut html = HeaderMap::new();
    html.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    assert!(!html.contains_key(CONTENT_ENCODING));
    // With this word somewhere all tags are read. They may not all be readable; beyond that nothing is found
    // for which they were not read without it.
    let body = &input.0[..input.0.len().min(DECODED_MAX / 2)];
    let [page, read] = ["", " srcdoc "].map(|word| Bytes::from([body, word.as_bytes()].concat()));
    // A value that begins with a byte order mark is UTF-16 to the tag reader here, and to no browser.
    let has_mark = body.windows(2).any(|pair| matches!(pair, b"\xfe\xff" | b"\xff\xfe"));
    if !has_mark && inspect(&html, &[page], &watch).is_ok() {
        let found = inspect(&html, &[read], &watch);
        assert!(matches!(found, Ok(()) | Err(LeakKind::Undecodable)), "{found:?}");
    }

    let form = b"<form><input type=hidden name=csrf_token value=3f9a></form>";
    let page = Bytes::from([&form[..], input.0].concat());
    assert!(inspect(&html, &[page], &watch).is_err());
}
