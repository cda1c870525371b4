//! Dates, ages and lifetimes.

use anteroom_http::cache_control::{CacheControl, DELTA_MAX};
use anteroom_http::date::{format, parse};
use anteroom_http::freshness::{FreshnessSource, date_of, heuristic, initial_age, lifetime};
use http::StatusCode;
use http::header::{AGE, CACHE_CONTROL, EXPIRES, LAST_MODIFIED};

use crate::input::{Input, fields};

/// The last second of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

/// Dates: what is read is written so that it is read the same, and another reader agrees.
pub(crate) fn dates(data: &[u8]) {
    let mut input = Input(data);
    let now = input.number(u64::MAX);
    assert_eq!(parse(format(now).as_bytes(), 0), Some(now.min(LAST_SECOND)));
    let now = now % LAST_SECOND;
    let Some(moment) = parse(input.0, now) else {
        return;
    };
    assert!(moment <= LAST_SECOND);
    assert_eq!(parse(format(moment).as_bytes(), now), Some(moment));
    assert_eq!(parse(&input.0.to_ascii_uppercase(), now), Some(moment));
    let has_full_year = input.0.iter().position(|byte| *byte == b',').is_none_or(|at| at == 3);
    let text = std::str::from_utf8(input.0).unwrap();
    if has_full_year && !text.contains(":60") {
        let theirs = httpdate::parse_http_date(text).ok();
        let theirs = theirs.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        assert!(theirs.is_none_or(|theirs| theirs.as_secs() == moment), "{theirs:?} {moment}");
    }
}

/// Freshness: the first word that counts is the one, nothing lives longer than it, and what took long
/// is older.
pub(crate) fn freshness(data: &[u8]) {
    let mut input = Input(data);
    let (now, took) = (input.number(1 << 40), input.number(1 << 33));
    let status = StatusCode::from_u16(200 + u16::from(input.byte())).unwrap();
    let headers = fields(input.0);
    let control = CacheControl::parse(&headers, &CACHE_CONTROL);

    let found = lifetime(&control, &headers, now);
    let wanted = match (control.s_maxage, control.max_age, headers.contains_key(EXPIRES)) {
        (Some(seconds), ..) => Some((FreshnessSource::SMaxAge, seconds)),
        (None, Some(seconds), _) => Some((FreshnessSource::MaxAge, seconds)),
        (None, None, true) => Some((FreshnessSource::Expires, DELTA_MAX)),
        (None, None, false) => None,
    };
    assert_eq!(found.map(|found| found.source), wanted.map(|(source, _)| source));
    if let (Some(found), Some((_, most))) = (found, wanted) {
        assert!(found.seconds <= most);
        assert!(found.source == FreshnessSource::Expires || found.seconds == most);
    }

    let asked = now.saturating_sub(took);
    let age = initial_age(&headers, asked, now);
    let apparent = date_of(&headers, now).map_or(0, |made| now.saturating_sub(made));
    assert!(age <= DELTA_MAX && age >= apparent.max(now - asked).min(DELTA_MAX));
    assert!(age >= initial_age(&headers, now, now));
    if !headers.contains_key(AGE) {
        assert_eq!(age, apparent.max(now - asked).min(DELTA_MAX));
    }

    if let Some(guessed) = heuristic(status, &control, &headers, now) {
        assert!(found.is_none() && headers.contains_key(LAST_MODIFIED));
        assert!(guessed <= date_of(&headers, now).unwrap_or(now) / 10);
        assert!(status != StatusCode::PARTIAL_CONTENT && status != StatusCode::NOT_MODIFIED);
    }
}
