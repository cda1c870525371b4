//! Fields: lists of directives, of codings, of tags, of cookies.

use anteroom_http::cache_control::{CacheControl, DELTA_MAX};
use anteroom_http::coding::{AcceptedCodings, Coding, choose, takes_as_it_is};
use anteroom_http::media::{self, MediaKind};
use anteroom_http::tags::{TAG_MAX, TAGS_MAX, strip_tags};
use anteroom_http::targeted::{CDN_CACHE_CONTROL, cdn_cache_control as targeted};
use anteroom_http::vary::{FIELDS_MAX, Vary, normalised_accept_encoding, selecting_value};
use anteroom_http::{cookie, set_cookie, tags as page_tags};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE,
    COOKIE, SET_COOKIE, VARY,
};
use http::{HeaderMap, HeaderValue};

use crate::input::{Input, fields, in_capitals, joined, lines_of, values, with};

fn assert_bounded(control: &CacheControl) {
    let numbers = [
        control.max_age,
        control.s_maxage,
        control.max_stale,
        control.min_fresh,
        control.stale_while_revalidate,
        control.stale_if_error,
    ];
    assert!(numbers.into_iter().flatten().all(|seconds| seconds <= DELTA_MAX), "{control:?}");
}

/// `Cache-Control`: neither the order of lines nor the case of letters matters, and what is added is
/// obeyed.
pub(crate) fn cache_control(data: &[u8]) {
    let headers = values(&CACHE_CONTROL, data);
    let read = |headers: &HeaderMap| CacheControl::parse(headers, &CACHE_CONTROL);
    let parsed = read(&headers);
    assert_bounded(&parsed);
    let mut turned = HeaderMap::new();
    for line in lines_of(&headers, CACHE_CONTROL).into_iter().rev() {
        turned.append(CACHE_CONTROL, HeaderValue::from_bytes(line).unwrap());
    }
    assert_eq!(read(&turned), parsed);
    assert_eq!(read(&in_capitals(&headers)), parsed);
    let max_age = Some(parsed.max_age.map_or(5, |seconds| seconds.min(5)));
    let stricter = CacheControl { private: true, no_store: true, max_age, ..parsed };
    let more = with(&headers, &CACHE_CONTROL, "Private, ,NO-STORE ,max-age=\"5\"");
    assert_eq!(read(&more), stricter);
    // Whatever stands before it, be it a string that is never closed.
    for line in lines_of(&headers, CACHE_CONTROL) {
        let line = [line, b", private, no-store"].concat();
        let forbidden = read(&values(&CACHE_CONTROL, &line));
        assert!(forbidden.private && forbidden.no_store);
    }
}

/// `CDN-Cache-Control`: lines are one dictionary, and the last of a directive counts. A value that is ignored as a
/// whole stays ignored, whatever other directive follows; a directive of the wrong type is replaced by a later one
/// of its name.
pub(crate) fn cdn_cache_control(data: &[u8]) {
    let headers = values(&CDN_CACHE_CONTROL, data);
    let parsed = targeted(&headers);
    let one = joined(&headers, &CDN_CACHE_CONTROL);
    assert_eq!(targeted(&one), parsed);
    let more = targeted(&with(&headers, &CDN_CACHE_CONTROL, "max-age=7"));
    match parsed {
        Some(parsed) => {
            assert_bounded(&parsed);
            assert_eq!(more, Some(CacheControl { max_age: Some(7), ..parsed }));
        }
        None => {
            let is_empty = |line: &[u8]| line.iter().all(|byte| *byte == b' ');
            let is_absent = lines_of(&one, &CDN_CACHE_CONTROL).into_iter().all(is_empty);
            let other = targeted(&with(&headers, &CDN_CACHE_CONTROL, "ext=7"));
            assert!(is_absent || other.is_none());
            assert!(is_absent || more.is_none_or(|more| more.max_age == Some(7)));
        }
    }
}

/// `Accept-Encoding` beside `Content-Encoding`: no client is sent a coding it does not accept.
pub(crate) fn accept_encoding(data: &[u8]) {
    let mut input = Input(data);
    let request = values(&ACCEPT_ENCODING, input.block());
    let response = values(&CONTENT_ENCODING, input.block());
    let accepted = AcceptedCodings::parse(&request);
    for coding in Coding::ALL {
        assert!(accepted.quality(coding) <= 1_000);
        assert_eq!(accepted.takes(coding), accepted.quality(coding) > 0);
    }
    let ours = [Coding::Zstd, Coding::Brotli, Coding::Gzip];
    for stored in Coding::ALL {
        match choose(&accepted, stored, &ours) {
            Some(chosen) => assert!(accepted.takes(chosen)),
            None => assert!(Coding::ALL.into_iter().all(|coding| !accepted.takes(coding))),
        }
        let without_any = choose(&accepted, stored, &[]);
        assert!(without_any.is_none_or(|chosen| [stored, Coding::Identity].contains(&chosen)));
    }
    if let Some(coding) = Coding::of(&response) {
        let takes = coding == Coding::Identity || accepted.takes(coding);
        assert_eq!(takes_as_it_is(&request, &response), takes);
    }
    let nothing = AcceptedCodings::parse(&with(&request, &ACCEPT_ENCODING, "identity;q=0"));
    assert!(!nothing.takes(Coding::Identity));

    let normalised = normalised_accept_encoding(&request);
    let again = normalised.map(|line| values(&ACCEPT_ENCODING, line.as_bytes()));
    assert_eq!(again.as_ref().and_then(normalised_accept_encoding), normalised);
}

/// `Vary`: names in order and each once, a star above all; and values that are compared.
pub(crate) fn vary(data: &[u8]) {
    let mut input = Input(data);
    let headers = values(&VARY, input.block());
    let parsed = Vary::parse(&headers);
    if let Vary::Fields(fields) = &parsed {
        assert!((1..=FIELDS_MAX).contains(&fields.len()));
        assert!(fields.is_sorted_by(|one, other| one.as_str() < other.as_str()));
        assert!(fields.iter().all(|name| parsed.names(name) && name != "*"));
    }
    assert_eq!(Vary::parse(&in_capitals(&headers)), parsed);
    assert_eq!(Vary::parse(&with(&headers, &VARY, "*")), Vary::Any);

    let chosen = values(&ACCEPT_LANGUAGE, input.line());
    let value = selecting_value(&chosen, &ACCEPT_LANGUAGE);
    assert_eq!(value.is_some(), !chosen.is_empty());
    if let Some(value) = value {
        let again = values(&ACCEPT_LANGUAGE, &value);
        assert_eq!(selecting_value(&again, &ACCEPT_LANGUAGE), Some(value));
    }
}

/// `Surrogate-Key`, `Cache-Tag`, `xkey` and `X-Cache-Tags`: all tags or none, each as it stands there.
pub(crate) fn tags(data: &[u8]) {
    let mut headers = fields(data);
    if let Ok(found) = page_tags::tags(&headers) {
        assert!(found.len() <= TAGS_MAX);
        for (at, tag) in found.iter().enumerate() {
            assert!((1..=TAG_MAX).contains(&tag.len()) && !found[..at].contains(tag));
            assert_eq!(tag.trim_ascii(), *tag);
            let stands_in =
                |value: &HeaderValue| value.as_bytes().windows(tag.len()).any(|w| w == *tag);
            assert!(headers.values().any(stands_in));
        }
        let more = with(&headers, &http::HeaderName::from_static("xkey"), "one-more");
        assert!(
            page_tags::tags(&more).is_ok_and(|more| more.contains(&b"one-more".as_slice()))
                || found.len() == TAGS_MAX
        );
    }
    strip_tags(&mut headers);
    assert_eq!(page_tags::tags(&headers), Ok(Vec::new()));
}

/// `Content-Type`, `Accept` and the path's extension: what could be a page is guarded, what is static
/// could not.
pub(crate) fn content_type(data: &[u8]) {
    let mut input = Input(data);
    let response = values(&CONTENT_TYPE, input.block());
    let accept = values(&ACCEPT, input.block());
    let path = String::from_utf8_lossy(input.line());
    let kind = media::kind(&response);
    let capitals = in_capitals(&response);
    assert_eq!(media::kind(&capitals), kind);
    assert_eq!(media::may_be_page(&capitals), media::may_be_page(&response));
    assert!(kind != MediaKind::Html || media::may_be_page(&response));
    assert!(!(kind.is_static() && media::may_be_page(&response)));
    assert_eq!(
        media::contradicts(&path, kind),
        matches!(kind, MediaKind::Html | MediaKind::Json) && media::has_static_extension(&path)
    );
    if let Some(charset) = media::charset(&response) {
        assert!(charset.len() <= 3 * lines_of(&response, CONTENT_TYPE)[0].len());
    }
    assert!(media::accept_names_pages(&with(&accept, &ACCEPT, "text/html")));
}

/// `Cookie` and `Set-Cookie`: nothing is lost that was to be kept, and nothing kept that was not.
pub(crate) fn cookies(data: &[u8]) {
    let mut input = Input(data);
    let request = values(&COOKIE, input.block());
    let pairs: Vec<_> = cookie::cookies(&request).collect();
    let rebuilt = |keep: &dyn Fn(&[u8]) -> bool| {
        let mut headers = HeaderMap::new();
        headers.extend(cookie::rebuild(&request, keep).map(|line| (COOKIE, line)));
        headers
    };
    assert_eq!(cookie::cookies(&rebuilt(&|_| true)).collect::<Vec<_>>(), pairs);
    assert!(rebuilt(&|_| false).is_empty());
    for (name, _) in &pairs {
        // No name on the list begins otherwise: a new beginning needs a look at what frameworks name their
        // session cookie.
        let of_analytics = name.starts_with(b"_") || name.starts_with(b"sbjs_");
        assert!(!cookie::is_harmless(name) || of_analytics);
        let others = rebuilt(&|other| other != *name);
        let wanted: Vec<_> = pairs.iter().copied().filter(|(other, _)| other != name).collect();
        assert_eq!(cookie::cookies(&others).collect::<Vec<_>>(), wanted);
    }

    let now = input.number(1 << 40);
    let mut response = values(&SET_COOKIE, input.block());
    let names: Vec<_> = set_cookie::names(&response).map(<[u8]>::to_vec).collect();
    assert_eq!(names.len(), lines_of(&response, SET_COOKIE).len());
    for line in lines_of(&response, SET_COOKIE) {
        assert!(set_cookie::clears(&[line, b"; max-age=0"].concat(), now));
        let lives = [line, b"; Max-Age=1"].concat();
        let value_alone = [line.split(|b| *b == b';').next().unwrap(), b"; Max-Age=1"].concat();
        assert_eq!(set_cookie::clears(&lives, now), set_cookie::clears(&value_alone, now));
    }
    if let Some(unwanted) = names.first() {
        set_cookie::remove_named(&mut response, |name| name == unwanted);
        let left: Vec<_> = set_cookie::names(&response).collect();
        let wanted: Vec<_> = names.iter().filter(|name| *name != unwanted).collect();
        assert_eq!(left, wanted);
    }
}
