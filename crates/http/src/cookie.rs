//! The `Cookie` request field (RFC 6265 §4.2, §5.4): parses it, recognises harmless cookies, and rebuilds it
//! for the origin.
//!
//! Which cookie holds the session is decided elsewhere; `Set-Cookie` is in `set_cookie.rs`.

use ::http::header::COOKIE;
use ::http::{HeaderMap, HeaderValue};

use super::list::{divide, trim};

/// The cookies of a request as (name, value), over all `Cookie` lines: HTTP/2 may divide the field (RFC 9113
/// §8.2.3), and clients send several lines. One pair of double quotes around a value is removed. A piece
/// without `=` counts as a name with an empty value, so that a lookup by that name finds it.
pub fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    pairs(headers).map(|pair| {
        let (name, value) = divide(pair, b'=');
        (trim(name), unquoted(trim(value.unwrap_or_default())))
    })
}

/// The names of the cookies that have one. A piece without `=` is left out: it may be a secret value.
pub fn named(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let name = |pair| {
        let (name, value) = divide(pair, b'=');
        value.map(|_| trim(name)).filter(|name| !name.is_empty())
    };
    pairs(headers).filter_map(name)
}

/// A `Cookie` value with only the cookies whose name `keep` accepts, unchanged and in their order; `None` if
/// none is left.
#[must_use]
pub fn rebuild(headers: &HeaderMap, keep: impl Fn(&[u8]) -> bool) -> Option<HeaderValue> {
    let mut line = Vec::new();
    for pair in pairs(headers).filter(|pair| keep(trim(divide(pair, b'=').0))) {
        if !line.is_empty() {
            line.extend_from_slice(b"; ");
        }
        line.extend_from_slice(pair);
    }
    if line.is_empty() {
        return None;
    }
    // Valid values joined by `; ` are a valid value.
    HeaderValue::from_maybe_shared(bytes::Bytes::from(line)).ok()
}

/// Removes the cookie `name`, and says whether it was there. The others stay unchanged and in their order; `sensitive`
/// values are not shown by `Debug`.
///
/// PERF: without such a cookie, each `Cookie` line is only searched for the name.
pub fn remove(headers: &mut HeaderMap, name: &'static Name) -> bool {
    let mut may_have = false;
    for line in headers.get_all(&COOKIE) {
        may_have |= name.is_within(line.as_bytes());
    }
    if !may_have || !cookies(headers).any(|(own, _)| own == name.text) {
        return false;
    }
    let rest = rebuild(headers, |own| own != name.text);
    headers.remove(COOKIE);
    if let Some(mut line) = rest {
        line.set_sensitive(true);
        headers.insert(COOKIE, line);
    }
    true
}

/// The name of a cookie, prepared for a fast search.
#[derive(Debug)]
pub struct Name {
    text: &'static [u8],
    /// By how many bytes the search may go on behind a byte that stands at the end of the name's place.
    steps: [usize; 256],
}

impl Name {
    /// A name of one byte or more.
    #[must_use]
    pub const fn new(text: &'static str) -> Self {
        let text = text.as_bytes();
        assert!(!text.is_empty(), "an empty name would be everywhere");
        let mut steps = [text.len(); 256];
        let mut at = 0;
        while at + 1 < text.len() {
            steps[text[at] as usize] = text.len() - 1 - at;
            at += 1;
        }
        Self { text, steps }
    }

    /// Whether the name is anywhere in a line: the search of Boyer, Moore and Horspool, which looks at every 14th
    /// byte or so of a line.
    fn is_within(&self, line: &[u8]) -> bool {
        let length = self.text.len();
        let last = self.text[length - 1];
        let mut end = length;
        while end <= line.len() {
            let byte = line[end - 1];
            if byte == last && &line[end - length..end] == self.text {
                return true;
            }
            end += self.steps[byte as usize];
        }
        false
    }
}

/// Whether the cookie `name` is known to be written and read only by scripts in the browser, so that pages do
/// not depend on it.
///
/// The shapes are as narrow as the scripts' documentation allows. Rails names its session cookie
/// `_<app>_session`: the `_garage_session` of an app called "garage" must not match `_ga*`.
#[must_use]
pub fn is_harmless(name: &[u8]) -> bool {
    // Every name in the list begins like this, so this check settles most cookies.
    (name.starts_with(b"_") || name.starts_with(b"sbjs_"))
        && HARMLESS.iter().any(|(_, shape)| shape.matches(name))
}

/// The shapes of the built-in list as an operator would write them, for documentation and `explain`.
pub fn harmless_names() -> impl Iterator<Item = &'static str> {
    HARMLESS.iter().map(|(text, _)| *text)
}

/// Cookies by which load balancers between this proxy and the app keep a visitor to one server: AWS, Azure, Google Cloud,
/// HAProxy, F5, Citrix, ingress-nginx, Apache.
static AFFINITY: [&[u8]; 14] = [
    b"AWSALB",
    b"AWSELB",
    b"ARRAffinity",
    b"ApplicationGatewayAffinity",
    b"GCLB",
    b"GCILB",
    b"SERVERID",
    b"SRVNAME",
    b"SRVID",
    b"BIGipServer",
    b"NSC_",
    b"citrix_ns_id",
    b"INGRESSCOOKIE",
    b"ROUTEID",
];

/// Whether the cookie names a server of the app, and not a visitor.
#[must_use]
pub fn is_affinity(name: &[u8]) -> bool {
    AFFINITY.iter().any(|start| name.starts_with(start))
}

fn pairs(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    // Not `list::split`: browsers split at every `;`, even inside quotes (RFC 6265 §5.4).
    headers
        .get_all(COOKIE)
        .iter()
        .flat_map(|line| line.as_bytes().split(|&byte| byte == b';'))
        .map(trim)
        .filter(|pair| !pair.is_empty())
}

fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        _ => value,
    }
}

/// A shape of names of a harmless cookie.
enum Shape {
    /// Exactly this name.
    Exact(&'static [u8]),
    /// Any name with this prefix.
    Begins(&'static [u8]),
    /// This prefix, and at least one more byte; the function accepts each of them.
    Behind(&'static [u8], fn(u8) -> bool),
    /// This prefix, and exactly this many more bytes; the function accepts each of them.
    Tail(&'static [u8], usize, fn(u8) -> bool),
    /// This prefix, a capital letter, and anything after it.
    Capital(&'static [u8]),
}

impl Shape {
    fn matches(&self, name: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => name == *exact,
            Self::Begins(start) => name.starts_with(start),
            Self::Behind(start, fits) => name
                .strip_prefix(*start)
                .is_some_and(|rest| !rest.is_empty() && rest.iter().all(|&b| fits(b))),
            Self::Tail(start, length, fits) => name
                .strip_prefix(*start)
                .is_some_and(|rest| rest.len() == *length && rest.iter().all(|&b| fits(b))),
            Self::Capital(start) => name
                .strip_prefix(*start)
                .is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_uppercase)),
        }
    }
}

fn container_id(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn utm_letter(byte: u8) -> bool {
    b"abctzvx".contains(&byte)
}

fn short_code(byte: u8) -> bool {
    byte.is_ascii_lowercase()
}

/// The pattern as an operator would write it, and the exact shape. Each has a link to the documentation.
const HARMLESS: &[(&str, Shape)] = &[
    // Google Analytics, gtag.js and analytics.js:
    // https://developers.google.com/analytics/devguides/collection/ga4/cookie-usage
    // https://developers.google.com/analytics/devguides/collection/analyticsjs/cookie-usage
    ("_ga", Shape::Exact(b"_ga")),
    ("_ga_<CONTAINER>", Shape::Behind(b"_ga_", container_id)),
    ("_gid", Shape::Exact(b"_gid")),
    ("_gat", Shape::Exact(b"_gat")),
    ("_gat_UA-*", Shape::Begins(b"_gat_UA-")),
    ("_gat_gtag_*", Shape::Begins(b"_gat_gtag_")),
    // Google Ads, gtag.js conversion linker:
    // https://support.google.com/analytics/answer/7519794, https://business.safety.google/adscookies/
    ("_gac_UA-*", Shape::Begins(b"_gac_UA-")),
    ("_gac_gb_*", Shape::Begins(b"_gac_gb_")),
    ("_gcl_??", Shape::Tail(b"_gcl_", 2, short_code)),
    ("_gcl_GB-*", Shape::Begins(b"_gcl_GB-")),
    // Meta Pixel, fbevents.js:
    // https://developers.facebook.com/docs/marketing-api/conversions-api/parameters/fbp-and-fbc
    ("_fbp", Shape::Exact(b"_fbp")),
    ("_fbc", Shape::Exact(b"_fbc")),
    // Google Analytics, ga.js and urchin.js:
    // https://developers.google.com/analytics/devguides/collection/gajs/cookie-usage
    ("__utm?", Shape::Tail(b"__utm", 1, utm_letter)),
    // Hotjar, hotjar.js: https://help.hotjar.com/hc/en-us/articles/115011789248
    ("_hj<Name>", Shape::Capital(b"_hj")),
    ("_hjid", Shape::Exact(b"_hjid")),
    ("_hjptid", Shape::Exact(b"_hjptid")),
    // Matomo, matomo.js: https://matomo.org/faq/general/faq_146/
    ("_pk_id.*", Shape::Begins(b"_pk_id.")),
    ("_pk_ses.*", Shape::Begins(b"_pk_ses.")),
    ("_pk_ref.*", Shape::Begins(b"_pk_ref.")),
    ("_pk_cvar.*", Shape::Begins(b"_pk_cvar.")),
    ("_pk_hsr.*", Shape::Begins(b"_pk_hsr.")),
    ("_pk_testcookie*", Shape::Begins(b"_pk_testcookie")),
    // Microsoft Clarity, clarity.js:
    // https://learn.microsoft.com/en-us/clarity/setup-and-installation/cookie-list
    ("_clck", Shape::Exact(b"_clck")),
    ("_clsk", Shape::Exact(b"_clsk")),
    // Microsoft Advertising, bat.js: https://help.ads.microsoft.com/apex/index/3/en/53056
    ("_uetsid", Shape::Exact(b"_uetsid")),
    ("_uetsid_exp", Shape::Exact(b"_uetsid_exp")),
    ("_uetvid", Shape::Exact(b"_uetvid")),
    ("_uetvid_exp", Shape::Exact(b"_uetvid_exp")),
    ("_uetmsclkid", Shape::Exact(b"_uetmsclkid")),
    ("_uetmsclkid_exp", Shape::Exact(b"_uetmsclkid_exp")),
    // Order attribution of WooCommerce, sourcebuster.js. The app reads it from the order, which is forwarded:
    // https://woocommerce.com/document/order-attribution-tracking/
    ("sbjs_current", Shape::Exact(b"sbjs_current")),
    ("sbjs_current_add", Shape::Exact(b"sbjs_current_add")),
    ("sbjs_first", Shape::Exact(b"sbjs_first")),
    ("sbjs_first_add", Shape::Exact(b"sbjs_first_add")),
    ("sbjs_session", Shape::Exact(b"sbjs_session")),
    ("sbjs_udata", Shape::Exact(b"sbjs_udata")),
    ("sbjs_migrations", Shape::Exact(b"sbjs_migrations")),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(lines: &[&[u8]]) -> HeaderMap {
        lines.iter().map(|line| (COOKIE, HeaderValue::from_bytes(line).unwrap())).collect()
    }

    fn read(lines: &[&[u8]]) -> Vec<(Vec<u8>, Vec<u8>)> {
        cookies(&request(lines)).map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
    }

    #[test]
    fn a_cookie_is_removed_wherever_it_stands_and_no_other_is_touched() {
        static NAME: Name = Name::new("anteroom_admin");
        for (lines, rest, was_there) in [
            (&["anteroom_admin=a"][..], None, true),
            (&["a=1; anteroom_admin=\"b\"; c=3"], Some("a=1; c=3"), true),
            (&["a=1;anteroom_admin=b", "anteroom_admin=c", "d=4"], Some("a=1; d=4"), true),
            (&["a=1; anteroom_admin"], Some("a=1"), true),
            (
                &["anteroom_admins=1; xanteroom_admin=2"],
                Some("anteroom_admins=1; xanteroom_admin=2"),
                false,
            ),
            (&["a=anteroom_admin"], Some("a=anteroom_admin"), false),
            (&["anteroom_admi=n"], Some("anteroom_admi=n"), false),
            (&["short"], Some("short"), false),
            (&[""], Some(""), false),
            (&[], None, false),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(COOKIE, HeaderValue::from_static(line));
            }
            assert_eq!(remove(&mut headers, &NAME), was_there, "{lines:?}");
            let left = headers.get(COOKIE).map(|line| line.to_str().unwrap());
            assert_eq!(left, rest, "{lines:?}");
        }
    }

    proptest! {
        #[test]
        fn the_search_finds_what_the_bytes_hold(line in "[anterom_di=;]{0,60}(anteroom_admin)?[anterom_di=;]{0,40}") {
            static NAME: Name = Name::new("anteroom_admin");
            prop_assert_eq!(NAME.is_within(line.as_bytes()), line.contains("anteroom_admin"));
        }
    }

    #[test]
    fn cookies_are_read_in_every_form_in_which_clients_send_them() {
        type LetterCase<'a> = (&'a [&'a [u8]], &'a [(&'a [u8], &'a [u8])]);
        let cases: &[LetterCase<'_>] = &[
            (&[], &[]),
            (&[b""], &[]),
            (&[b" ; ;; "], &[]),
            (&[b"a=1"], &[(b"a", b"1")]),
            (&[b"a=1; b=2"], &[(b"a", b"1"), (b"b", b"2")]),
            (&[b"a=1;b=2"], &[(b"a", b"1"), (b"b", b"2")]),
            (&[b"a=1 ;\tb=2 "], &[(b"a", b"1"), (b"b", b"2")]),
            (&[b"a=1", b"b=2"], &[(b"a", b"1"), (b"b", b"2")]),
            (&[b"a=\"1\""], &[(b"a", b"1")]),
            (&[b"a=\"\""], &[(b"a", b"")]),
            (&[b"a=\""], &[(b"a", b"\"")]),
            (&[b"a=\"\"1\"\""], &[(b"a", b"\"1\"")]),
            (&[b"a=1=2="], &[(b"a", b"1=2=")]),
            (&[b"a="], &[(b"a", b"")]),
            (&[b"a"], &[(b"a", b"")]),
            (&[b"=1"], &[(b"", b"1")]),
            (&[b"a = 1"], &[(b"a", b"1")]),
            (&[b"a=1; a=2"], &[(b"a", b"1"), (b"a", b"2")]),
            (&[b"a=\"1; login=2\""], &[(b"a", b"\"1"), (b"login", b"2\"")]),
            (&[b"a=\xff\xfe; b=\xc3\xbc"], &[(b"a", b"\xff\xfe"), (b"b", b"\xc3\xbc")]),
        ];
        for (lines, expected) in cases {
            let expected: Vec<_> =
                expected.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            assert_eq!(read(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn only_the_kept_cookies_are_sent_on() {
        for (lines, expected) in [
            (&["a=1; login=x; b=2"][..], Some("a=1; b=2")),
            (&["login=x"], None),
            (&["login"], None),
            (&["login = x"], None),
            (&[], None),
            (&["a=1", "login=x", "b=\"2\""], Some("a=1; b=\"2\"")),
            (&[";;a=1;;"], Some("a=1")),
            (&["Login=1"], Some("Login=1")),
        ] {
            let lines: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
            let kept = rebuild(&request(&lines), |name| name != b"login");
            assert_eq!(kept.as_ref().map(|v| v.to_str().unwrap()), expected, "{lines:?}");
        }
    }

    #[test]
    fn cookies_of_scripts_are_harmless() {
        for name in [
            "_ga",
            "_ga_1A2B3C4D5E",
            "_gid",
            "_gat",
            "_gat_UA-12-1",
            "_gat_gtag_UA_12_1",
            "_gac_UA-12-1",
            "_gac_gb_1A2B",
            "_gcl_au",
            "_gcl_aw",
            "_gcl_GB-12-1",
            "_fbp",
            "_fbc",
            "__utma",
            "__utmb",
            "__utmc",
            "__utmt",
            "__utmz",
            "__utmv",
            "__utmx",
            "_hjSession_123",
            "_hjSessionUser_123",
            "_hjid",
            "_hjAbsoluteSessionInProgress",
            "_pk_id.1.1fff",
            "_pk_ses.1.1fff",
            "_pk_ref.1.1fff",
            "_clck",
            "_clsk",
            "_uetsid",
            "_uetvid",
            "_uetmsclkid",
            "sbjs_current",
            "sbjs_migrations",
        ] {
            assert!(is_harmless(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_session_cookie_is_never_taken_for_a_script_s() {
        for name in [
            "",
            "_",
            "login",
            "session",
            "PHPSESSID",
            "JSESSIONID",
            "sessionid",
            "_session_id",
            "_garage_session",
            "sbjs_session_id",
            "sbjs_",
            "_ga_session",
            "_gallery_session",
            "_gateway_session",
            "_gat_session",
            "_gid_session",
            "_gcl_session",
            "_fbp_session",
            "_fbc2",
            "__utm",
            "__utm_session",
            "_hj_session",
            "_hjelp_session",
            "_pk_session",
            "_pk_id",
            "_uet",
            "_uet_session",
            "_clck_session",
            "_GA",
            "ga",
            "_ga_",
            "_hj",
            "xid",
            "_gac_session",
        ] {
            assert!(!is_harmless(name.as_bytes()), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(line in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(value) = HeaderValue::from_bytes(&line) {
                let headers: HeaderMap = [(COOKIE, value)].into_iter().collect();
                let names: Vec<_> = cookies(&headers).map(|(name, _)| name.to_vec()).collect();
                let kept = rebuild(&headers, |_| true);
                prop_assert_eq!(kept.is_none(), names.is_empty());
            }
        }

        #[test]
        fn kept_cookies_read_back_unchanged(
            cookies_sent in proptest::collection::vec(("[a-z]{1,4}", "[a-z0-9]{0,4}"), 0..6),
        ) {
            let line = cookies_sent.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join("; ");
            let kept = rebuild(&request(&[line.as_bytes()]), |name| name.len() > 2);
            let again: HeaderMap = kept.into_iter().map(|value| (COOKIE, value)).collect();
            let expected: Vec<_> = cookies_sent.iter().filter(|(n, _)| n.len() > 2)
                .map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
            prop_assert_eq!(cookies(&again).collect::<Vec<_>>(), expected);
        }
    }
}
