//! Media types: the kind of a response by `Content-Type` (RFC 9110 §8.3), the kind that a path suggests, and
//! the kinds that a request accepts (`Accept`, §12.5.1).
//!
//! Bodies are not inspected.

use std::borrow::Cow;

use ::http::HeaderMap;
use ::http::header::{ACCEPT, CONTENT_TYPE};
use percent_encoding::percent_decode_str;

use super::list::{divide, members, split, trim};

/// The kinds of media that the cache treats differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MediaKind {
    /// `text/html`, `application/xhtml+xml`
    Html,
    /// `text/css`
    Css,
    /// The JavaScript types (RFC 9239 §6).
    JavaScript,
    /// `application/json` and types that end with `+json`
    Json,
    /// `application/xml` and types that end with `+xml`, except images and pages
    Xml,
    /// `image/*`
    Image,
    /// `font/*` and the older names of font types
    Font,
    /// `audio/*`
    Audio,
    /// `video/*`
    Video,
    /// Any other type, no type, or several types.
    Other,
}

impl MediaKind {
    /// Whether the response counts as static: after proof that it is public, anonymous visitors' copies may
    /// be shared with everyone.
    #[must_use]
    pub fn is_static(self) -> bool {
        match self {
            Self::Css | Self::JavaScript | Self::Image | Self::Font | Self::Audio | Self::Video => {
                true
            }
            Self::Html | Self::Json | Self::Xml | Self::Other => false,
        }
    }
}

/// The kind of a response.
#[must_use]
pub fn kind(headers: &HeaderMap) -> MediaKind {
    let mut lines = headers.get_all(CONTENT_TYPE).iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) => kind_of(line.as_bytes()),
        _ => MediaKind::Other,
    }
}

/// Whether a browser could render the response as a page: HTML, or a response without a usable type, which
/// the browser guesses from the bytes (WHATWG MIME Sniffing §7).
#[must_use]
pub fn may_be_page(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(CONTENT_TYPE).iter().map(|line| essence(line.as_bytes()));
    let (Some(essence), None) = (lines.next(), lines.next()) else {
        return true;
    };
    let unusable: [&[u8]; 4] = [b"", b"*/*", b"unknown/unknown", b"application/unknown"];
    kind_of(essence) == MediaKind::Html
        || !essence.contains(&b'/')
        || unusable.iter().any(|known| essence.eq_ignore_ascii_case(known))
}

/// The `charset` parameter of the response's type, without quotes.
#[must_use]
pub fn charset(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let line = headers.get(CONTENT_TYPE)?.as_bytes();
    let value = split(line, b';').skip(1).find_map(|parameter| {
        let (name, value) = divide(parameter, b'=');
        value.filter(|_| trim(name).eq_ignore_ascii_case(b"charset"))
    })?;
    let value = match trim(value) {
        [b'"', inner @ .., b'"'] => inner,
        plain => plain,
    };
    Some(String::from_utf8_lossy(value))
}

/// Whether the response is text, which compresses well: HTML, style sheets, scripts, JSON, XML, SVG and plain
/// text. Event streams (`text/event-stream`) are excluded, as they arrive in small pieces over time.
#[must_use]
pub fn is_compressible(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(CONTENT_TYPE).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return false;
    };
    let essence = essence(line.as_bytes());
    match kind_of(essence) {
        MediaKind::Html
        | MediaKind::Css
        | MediaKind::JavaScript
        | MediaKind::Json
        | MediaKind::Xml => true,
        MediaKind::Image => essence.eq_ignore_ascii_case(b"image/svg+xml"),
        MediaKind::Other => essence.eq_ignore_ascii_case(b"text/plain"),
        MediaKind::Font | MediaKind::Audio | MediaKind::Video => false,
    }
}

/// Whether the response is plain text.
#[must_use]
pub fn is_plain(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(CONTENT_TYPE).iter().map(|line| essence(line.as_bytes()));
    matches!((lines.next(), lines.next()), (Some(one), None) if one.eq_ignore_ascii_case(b"text/plain"))
}

/// Whether a message belongs to a gRPC call, which reports its status in trailers.
#[must_use]
pub fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_TYPE).iter().any(|line| names_grpc(essence(line.as_bytes())))
}

/// Whether the body is a stream (events or gRPC messages) that can pause for a long time.
#[must_use]
pub fn is_live(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_TYPE).iter().any(|line| {
        let essence = essence(line.as_bytes());
        essence.eq_ignore_ascii_case(b"text/event-stream") || names_grpc(essence)
    })
}

/// `application/grpc`, or with a suffix.
fn names_grpc(essence: &[u8]) -> bool {
    let prefix = b"application/grpc";
    essence.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        && matches!(essence.get(prefix.len()), None | Some(b'+' | b'-'))
}

/// Whether the path has a static file's extension while the response is a page or JSON. This is the sign of
/// web cache deception (`/account/x.css` answered with the account page). A `.php` path that returns a style
/// sheet is fine.
#[must_use]
pub fn contradicts(path: &str, kind: MediaKind) -> bool {
    matches!(kind, MediaKind::Html | MediaKind::Json) && has_static_extension(path)
}

/// Whether the last segment of `path`, decoded, has a static file's extension, before or after any
/// `;parameters`.
#[must_use]
pub fn has_static_extension(path: &str) -> bool {
    let path: Cow<'_, [u8]> = percent_decode_str(path).into();
    let segment = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
    segment.split(|&b| b == b';').any(|part| {
        // Some servers end a file name at a NUL; the parts before and after it are both checked.
        part.split(|&b| b == 0).any(ends_static)
    })
}

/// Whether a browser could make the request for a page or a part of one: `Accept` is absent, or lists HTML,
/// an image, a style sheet, a script, a font, audio, video, or `*/*`. A client that accepts only JSON may get
/// another response under the same URL.
#[must_use]
pub fn accept_names_pages(headers: &HeaderMap) -> bool {
    if !headers.contains_key(ACCEPT) {
        return true;
    }
    members(headers, &ACCEPT).any(|range| {
        let range_only = essence(range);
        let wildcards: [&[u8]; 2] = [b"*/*", b"text/*"];
        let page = wildcards.iter().any(|known| range_only.eq_ignore_ascii_case(known))
            || matches!(kind_of(range_only), MediaKind::Html)
            || kind_of(range_only).is_static();
        page && !is_refused(range)
    })
}

/// Whether the request may be for a page itself rather than for a subresource: `Accept` is absent, lists
/// HTML, or lists only `*/*`.
#[must_use]
pub fn asks_for_page(headers: &HeaderMap) -> bool {
    let ranges: Vec<&[u8]> = members(headers, &ACCEPT).map(essence).collect();
    ranges.iter().any(|range| kind_of(range) == MediaKind::Html)
        || ranges.iter().all(|range| *range == b"*/*")
}

/// Whether the request is for a static subresource, by the browser's fetch metadata or by its path.
#[must_use]
pub fn asks_for_static(headers: &HeaderMap, path: &str) -> bool {
    let dest = headers.get("sec-fetch-dest").map_or(&b""[..], |dest| dest.as_bytes());
    STATIC_DESTS.contains(&dest) || has_static_extension(path)
}

/// The `Sec-Fetch-Dest` values of static subresources (Fetch Metadata §2.1).
const STATIC_DESTS: [&[u8]; 8] =
    [b"audio", b"font", b"image", b"manifest", b"script", b"style", b"track", b"video"];

/// Whether a list member has `q=0`: "not acceptable" (RFC 9110 §12.4.2).
pub(crate) fn is_refused(member: &[u8]) -> bool {
    split(member, b';').skip(1).any(|parameter| {
        let (name, value) = divide(parameter, b'=');
        let zero = || {
            let digits = trim(value.unwrap_or_default());
            digits.starts_with(b"0") && digits.iter().all(|b| matches!(b, b'0' | b'.'))
        };
        trim(name).eq_ignore_ascii_case(b"q") && zero()
    })
}

/// The `type/subtype` of a field value, without parameters.
fn essence(line: &[u8]) -> &[u8] {
    trim(divide(line, b';').0)
}

fn kind_of(line: &[u8]) -> MediaKind {
    let essence = essence(line);
    let is =
        |names: &[&str]| names.iter().any(|name| essence.eq_ignore_ascii_case(name.as_bytes()));
    let (top, subtype) = divide(essence, b'/');
    let Some(subtype) = subtype.filter(|subtype| !subtype.is_empty()) else {
        return MediaKind::Other;
    };
    let top_is = |name: &str| top.eq_ignore_ascii_case(name.as_bytes());
    let ends = |suffix: &[u8]| {
        subtype.len() >= suffix.len()
            && subtype[subtype.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
    };
    match () {
        () if is(&["text/html", "application/xhtml+xml"]) => MediaKind::Html,
        () if is(&["text/css"]) => MediaKind::Css,
        () if is(JAVASCRIPT) => MediaKind::JavaScript,
        () if top_is("image") => MediaKind::Image,
        () if top_is("font") || is(OLD_FONTS) => MediaKind::Font,
        () if top_is("audio") => MediaKind::Audio,
        () if top_is("video") => MediaKind::Video,
        () if is(&["application/json", "text/json"]) || ends(b"+json") => MediaKind::Json,
        () if is(&["application/xml", "text/xml"]) || ends(b"+xml") => MediaKind::Xml,
        () => MediaKind::Other,
    }
}

fn ends_static(name: &[u8]) -> bool {
    let Some(dot) = name.iter().rposition(|&b| b == b'.') else {
        return false;
    };
    let extension = &name[dot + 1..];
    STATIC_EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known.as_bytes()))
}

/// RFC 9239 §6, and further names that browsers accept.
const JAVASCRIPT: &[&str] = &[
    "text/javascript",
    "application/javascript",
    "application/x-javascript",
    "text/x-javascript",
    "application/ecmascript",
    "application/x-ecmascript",
    "text/ecmascript",
    "text/x-ecmascript",
];

const OLD_FONTS: &[&str] = &[
    "application/font-woff",
    "application/font-woff2",
    "application/font-sfnt",
    "application/x-font-woff",
    "application/x-font-woff2",
    "application/x-font-ttf",
    "application/x-font-truetype",
    "application/x-font-opentype",
    "application/x-font-otf",
    "application/vnd.ms-fontobject",
    "application/vnd.ms-opentype",
];

/// Extensions that caches treat as static. `.map` and `.webmanifest` are left out, because they are JSON.
const STATIC_EXTENSIONS: &[&str] = &[
    "css",
    "js",
    "mjs",
    "png",
    "jpg",
    "jpeg",
    "jpe",
    "gif",
    "webp",
    "avif",
    "svg",
    "svgz",
    "ico",
    "bmp",
    "tif",
    "tiff",
    "jxl",
    "heic",
    "woff",
    "woff2",
    "ttf",
    "otf",
    "eot",
    "mp3",
    "m4a",
    "aac",
    "flac",
    "ogg",
    "oga",
    "ogv",
    "opus",
    "wav",
    "mid",
    "midi",
    "mp4",
    "m4v",
    "webm",
    "mov",
    "avi",
    "mkv",
    "pdf",
    "zip",
    "gz",
    "bz2",
    "zst",
    "7z",
    "rar",
    "tar",
    "swf",
    "wasm",
    "csv",
    "doc",
    "docx",
    "ppt",
    "pptx",
    "xls",
    "xlsx",
    "ps",
    "eps",
    "ejs",
    "pict",
    "pls",
    "cookie_counts",
    "class",
    "exe",
    "dmg",
    "iso",
    "apk",
    "bin",
];

#[cfg(test)]
mod tests {
    use ::http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn with(name: &HeaderName, lines: &[&str]) -> HeaderMap {
        lines.iter().map(|line| (name.clone(), HeaderValue::from_str(line).unwrap())).collect()
    }

    #[test]
    fn requests_for_pages_are_told_from_requests_for_their_parts() {
        let asked = |name: &'static str, value: &'static str| {
            let value = HeaderValue::from_static(value);
            HeaderMap::from_iter([(HeaderName::from_static(name), value)])
        };
        for (accept, expected) in [
            ("text/html,application/xhtml+xml,image/avif,*/*;q=0.8", true),
            ("*/*", true),
            ("", true),
            ("text/css,*/*;q=0.1", false),
            ("image/avif,image/webp,*/*;q=0.8", false),
            ("application/json", false),
        ] {
            assert_eq!(asks_for_page(&asked("accept", accept)), expected, "{accept}");
        }
        for (dest, path, expected) in [
            ("document", "/p/1", false),
            ("empty", "/p/1", false),
            ("style", "/p/1", true),
            ("document", "/p/1.css", true),
        ] {
            let headers = asked("sec-fetch-dest", dest);
            assert_eq!(asks_for_static(&headers, path), expected, "{dest} {path}");
        }
        assert!(asks_for_page(&HeaderMap::new()) && !asks_for_static(&HeaderMap::new(), "/"));
    }

    #[test]
    fn types_are_sorted_into_kinds() {
        for (line, expected) in [
            ("text/html", MediaKind::Html),
            ("Text/HTML; charset=utf-8", MediaKind::Html),
            (" text/html ;x", MediaKind::Html),
            ("application/xhtml+xml", MediaKind::Html),
            ("text/css", MediaKind::Css),
            ("text/javascript", MediaKind::JavaScript),
            ("application/javascript", MediaKind::JavaScript),
            ("application/json", MediaKind::Json),
            ("application/ld+json", MediaKind::Json),
            ("application/problem+JSON", MediaKind::Json),
            ("application/xml", MediaKind::Xml),
            ("application/rss+xml", MediaKind::Xml),
            ("image/png", MediaKind::Image),
            ("image/svg+xml", MediaKind::Image),
            ("font/woff2", MediaKind::Font),
            ("application/font-woff", MediaKind::Font),
            ("audio/mpeg", MediaKind::Audio),
            ("video/mp4", MediaKind::Video),
            ("text/plain", MediaKind::Other),
            ("application/octet-stream", MediaKind::Other),
            ("text/htmlx", MediaKind::Other),
            ("html", MediaKind::Other),
            ("image", MediaKind::Other),
            ("image/", MediaKind::Other),
            ("", MediaKind::Other),
            ("text/html, text/css", MediaKind::Other),
        ] {
            assert_eq!(kind(&with(&CONTENT_TYPE, &[line])), expected, "{line}");
        }
        assert_eq!(kind(&HeaderMap::new()), MediaKind::Other);
        assert_eq!(kind(&with(&CONTENT_TYPE, &["image/png", "text/html"])), MediaKind::Other);
    }

    #[test]
    fn a_type_that_browsers_guess_may_be_a_page() {
        for lines in [
            &[][..],
            &[""],
            &["*/*"],
            &["text/html"],
            &["html"],
            &["unknown/unknown"],
            &["; charset=utf-8"],
            &["image/png", "text/html"],
        ] {
            assert!(may_be_page(&with(&CONTENT_TYPE, lines)), "{lines:?}");
        }
        for lines in [&["text/plain"][..], &["image/png"], &["application/json"]] {
            assert!(!may_be_page(&with(&CONTENT_TYPE, lines)), "{lines:?}");
        }
    }

    #[test]
    fn charsets_are_read() {
        for (line, expected) in [
            ("text/html", None),
            ("text/html; charset=utf-8", Some("utf-8")),
            ("text/html;Charset=\"UTF-16\"", Some("UTF-16")),
            ("text/html; a=\"; charset=x\"; charset=latin1", Some("latin1")),
            ("text/html; charset=", Some("")),
        ] {
            assert_eq!(charset(&with(&CONTENT_TYPE, &[line])).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn a_page_under_a_static_name_is_deception() {
        for path in [
            "/a.css",
            "/account/x.js",
            "/account;x.css",
            "/account%3bx.css",
            "/x.css;v=1",
            "/a%2fx.PNG",
            "/account%00.css",
            "/x.css%00y",
            "/%2ecss",
            "/a%2ecss",
            "/account.php/x.woff2",
        ] {
            assert!(contradicts(path, MediaKind::Html), "{path}");
            assert!(contradicts(path, MediaKind::Json), "{path}");
            assert!(!contradicts(path, MediaKind::Css), "{path}");
            assert!(!contradicts(path, MediaKind::Other), "{path}");
        }
        for path in [
            "/",
            "",
            "/a",
            "/a.html",
            "/a.php",
            "/a.json",
            "/a.css/",
            "/a.css/b",
            "/css",
            "/a.css.map",
        ] {
            assert!(!contradicts(path, MediaKind::Html), "{path}");
        }
    }

    #[test]
    fn browsers_ask_for_pages_and_programs_for_json() {
        for lines in [
            &[][..],
            &["*/*"],
            &["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"],
            &["TEXT/HTML"],
            &["text/css,*/*;q=0.1"],
            &["image/avif,image/webp"],
            &["image/*"],
            &["application/json", "text/html"],
            &["application/json, text/plain, */*"],
            &["text/javascript"],
            &["font/woff2;q=1.0"],
        ] {
            assert!(accept_names_pages(&with(&ACCEPT, lines)), "{lines:?}");
        }
        for lines in [
            &["application/json"][..],
            &["application/xml"],
            &["text/plain"],
            &[""],
            &["text/html;q=0"],
            &["application/json, */*;q=0.0"],
            &["text/html; Q=0.000, application/json"],
            &["application/vnd.api+json"],
            &["text/event-stream"],
        ] {
            assert!(!accept_names_pages(&with(&ACCEPT, lines)), "{lines:?}");
        }
    }

    #[test]
    fn text_is_compressible() {
        for (line, expected) in [
            ("text/html; charset=utf-8", true),
            ("application/xhtml+xml", true),
            ("Text/CSS", true),
            ("text/javascript", true),
            ("application/json", true),
            ("application/problem+json", true),
            ("application/rss+xml", true),
            ("image/svg+xml", true),
            ("text/plain;charset=ascii", true),
            ("text/event-stream", false),
            ("image/png", false),
            ("font/woff2", false),
            ("video/mp4", false),
            ("application/octet-stream", false),
            ("application/gzip", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, line.parse().unwrap())]);
            assert_eq!(is_compressible(&headers), expected, "{line}");
        }
        assert!(!is_compressible(&HeaderMap::new()));
        let twice = ["text/html", "text/css"].map(|line| (CONTENT_TYPE, line.parse().unwrap()));
        assert!(!is_compressible(&HeaderMap::from_iter(twice)));
    }

    #[test]
    fn live_types_are_recognised() {
        for (line, live, grpc) in [
            ("text/event-stream; charset=utf-8", true, false),
            ("application/grpc", true, true),
            ("Application/gRPC+proto", true, true),
            ("application/grpc-web+json; x=y", true, true),
            ("application/grpcs", false, false),
            ("application/json", false, false),
            ("", false, false),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, line.parse().unwrap())]);
            assert_eq!((is_live(&headers), is_grpc(&headers)), (live, grpc), "{line}");
        }
        assert!(!is_live(&HeaderMap::new()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(line in proptest::collection::vec(any::<u8>(), 0..32), path in "\\PC{0,24}") {
            if let Ok(value) = HeaderValue::from_bytes(&line) {
                let headers: HeaderMap =
                    [(CONTENT_TYPE, value.clone()), (ACCEPT, value)].into_iter().collect();
                let _ = (may_be_page(&headers), accept_names_pages(&headers), charset(&headers));
                let _ = contradicts(&path, kind(&headers));
            }
        }
    }
}
