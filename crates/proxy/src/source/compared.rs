//! What of two answers is compared, for learn mode and the audit.

use ::http::header::{
    ACCEPT_RANGES, AGE, ALT_SVC, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH,
    CONTENT_TYPE, DATE, ETAG, EXPIRES, LAST_MODIFIED, LOCATION, SERVER, SET_COOKIE, VARY, VIA,
};
use ::http::{HeaderMap, HeaderName, StatusCode};
use anteroom_cache::recoded::OF_BYTES;
use anteroom_cache::segment_proof::strip_exchange;
use anteroom_http::hop;
use anteroom_http::media::{self, MediaKind};
use anteroom_http::tags::strip_tags;

/// The fields of an answer as all would get them.
pub(super) fn shown(mut headers: HeaderMap) -> HeaderMap {
    hop::strip_for_storing(&mut headers);
    strip_tags(&mut headers);
    headers.remove(SET_COOKIE);
    headers
}

/// Fields that differ where pages do not: they belong to a form of the body, to a moment, or to a server of several.
static OF_NO_PAGE: [HeaderName; 32] = [
    ACCEPT_RANGES,
    AGE,
    ALT_SVC,
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    DATE,
    ETAG,
    EXPIRES,
    LAST_MODIFIED,
    SERVER,
    VARY,
    VIA,
    HeaderName::from_static("x-backend"),
    HeaderName::from_static("x-backend-server"),
    HeaderName::from_static("cf-cache-status"),
    HeaderName::from_static("x-cache"),
    HeaderName::from_static("x-cache-hits"),
    HeaderName::from_static("x-cache-status"),
    HeaderName::from_static("x-drupal-cache"),
    HeaderName::from_static("x-drupal-dynamic-cache"),
    HeaderName::from_static("x-fastcgi-cache"),
    HeaderName::from_static("x-instance"),
    HeaderName::from_static("x-litespeed-cache"),
    HeaderName::from_static("x-nginx-cache"),
    HeaderName::from_static("x-proxy-cache"),
    HeaderName::from_static("x-node"),
    HeaderName::from_static("x-pod"),
    HeaderName::from_static("x-powered-by"),
    HeaderName::from_static("x-served-by"),
    HeaderName::from_static("x-server"),
    HeaderName::from_static("x-varnish"),
];

/// The fields that are compared one by one.
pub(super) fn compared(mut fields: HeaderMap) -> HeaderMap {
    strip_exchange(&mut fields);
    for name in OF_NO_PAGE.iter().chain(&OF_BYTES).chain(&OF_THE_HEAD) {
        fields.remove(name);
    }
    fields
}

static OF_THE_HEAD: [HeaderName; 3] = [CONTENT_TYPE, CONTENT_LANGUAGE, LOCATION];

/// The status, and the fields without which the body means something else.
pub(super) fn of_the_head(status: StatusCode, headers: &HeaderMap) -> Vec<u8> {
    let mut all = status.as_str().as_bytes().to_vec();
    for name in &OF_THE_HEAD {
        for value in headers.get_all(name) {
            all.push(b'\n');
            all.extend_from_slice(value.as_bytes());
        }
    }
    all
}

pub(super) fn is_text(headers: &HeaderMap) -> bool {
    match media::kind(headers) {
        MediaKind::Html
        | MediaKind::Css
        | MediaKind::JavaScript
        | MediaKind::Json
        | MediaKind::Xml => true,
        MediaKind::Image
        | MediaKind::Font
        | MediaKind::Audio
        | MediaKind::Video
        | MediaKind::Other => false,
    }
}
