//! The keys of `[[route]]` and `[[cookies]]`.

use ::http::HeaderName;
use ::http::header::SET_COOKIE;

use super::fragment::{EsiForm, FragmentForm, SHARES};
use super::segment::SegmentForm;
use super::shared::{
    CONDITION, METHOD, Parameters, RATE, TTL, count, hosts, named, networks, paths, shared,
};
use crate::config::form::{Flag, List, Optional, Text, Words};
use crate::config::text;
use crate::config::walk::Walk;
use crate::http::harden::Hardening;
use crate::http::path::PurgePath;
use crate::http::pattern::Pattern;
use crate::policy::cookie::SameSite;
use crate::policy::route::{LeakGuard, Route, SetCookie};

pub(super) fn route(at: &mut impl Walk, route: &mut Route) {
    at.key("name", &mut route.name, &shared(text::route_name));
    at.section("match", |at| {
        at.key("path", &mut route.paths, &List::of(paths()));
        at.key("host", &mut route.hosts, &List::of(hosts()));
        at.key("method", &mut route.methods, &List::of(METHOD));
        at.key("query", &mut route.query, &Parameters(CONDITION));
    });
    at.key("share", &mut route.share, &Words(&SHARES));
    at.key("segment", &mut route.segment, &SegmentForm);
    let proofs = [("second_user", false), ("none", true)];
    at.key("segment_proof", &mut route.segment.is_promised, &Words(&proofs));
    at.key("ttl", &mut route.ttl, &Optional(TTL));
    at.key("override_ttl", &mut route.override_ttl, &Optional(TTL));
    at.key("override_private", &mut route.override_private, &Flag);
    at.key("stale_while_revalidate", &mut route.stale_while_revalidate, &Optional(TTL));
    at.key("stale_if_error", &mut route.stale_if_error, &Optional(TTL));
    at.key("only_top", &mut route.only_top, &Optional(count(1, 1_000_000)));
    at.key("trust_public", &mut route.trust_public, &Flag);
    let cookies = List::of(named(text::cookie_name));
    let words = [("keep", SetCookie::Keep), ("strip_for_anonymous", SetCookie::StripForAnonymous)];
    at.key("set_cookie", &mut route.set_cookie, &Words(&words));
    at.key("strip_set_cookie", &mut route.strip_set_cookie, &cookies);
    let fields = List::of(Text { parse: removable_field, show: ToString::to_string });
    at.key("remove_headers", &mut route.remove_headers, &fields);
    let words = [("full", LeakGuard::Full), ("marks", LeakGuard::Marks), ("off", LeakGuard::Off)];
    at.key("leak_guard", &mut route.leak_guard, &Words(&words));
    at.key("key_cookies", &mut route.key_cookies, &cookies);
    let fields = List::of(Text { parse: text::key_header, show: ToString::to_string });
    at.key("key_headers", &mut route.key_headers, &fields);
    let fields = List::of(Text { parse: text::send_header, show: ToString::to_string });
    at.key("send_headers", &mut route.send_headers, &fields);
    let branches = List::of(Text { parse: text::branch, show: PurgePath::to_string });
    at.key("purges", &mut route.purges, &branches);
    at.key("fragments", &mut route.fragments, &List::of(FragmentForm));
    at.key("esi", &mut route.esi, &EsiForm);
    at.key("visitor_token", &mut route.visitor_token, &Flag);
    at.key("rows", &mut route.rows, &Optional(shared(text::rows_name)));
    at.key("origin", &mut route.origin, &Optional(shared(text::rows_name)));
    at.key("allow_from", &mut route.allow_from, &networks());
    at.key("requests_per_address", &mut route.requests_per_address, &Optional(RATE));
    at.key("requests_per_session", &mut route.requests_per_session, &Optional(RATE));
}

pub(super) fn cookies(at: &mut impl Walk, cookies: &mut Hardening) {
    let names = List::of(Text { parse: text::any_cookie, show: Pattern::to_string });
    at.required("name", &mut cookies.names, &names, "write name = [\"PHPSESSID\"]");
    at.key("secure", &mut cookies.secure, &Words(&[("keep", false), ("auto", true)]));
    at.key("http_only", &mut cookies.http_only, &Words(&[("keep", false), ("always", true)]));
    let sites = [
        ("keep", None),
        ("Lax", Some(SameSite::Lax.as_str())),
        ("Strict", Some(SameSite::Strict.as_str())),
        ("None", Some(SameSite::None.as_str())),
    ];
    at.key("same_site", &mut cookies.same_site, &Words(&sites));
}

/// The name of a response field that neither the proxy nor HTTP needs.
fn removable_field(text: &str) -> Result<HeaderName, String> {
    const PREFIXES: [&str; 6] =
        ["anteroom-", "content-", "grpc-", "proxy-", "sec-websocket-", "surrogate-"];
    const NAMES: [&str; 28] = [
        "accept-ranges",
        "age",
        "allow",
        "cache-control",
        "cache-status",
        "cache-tag",
        "cdn-cache-control",
        "connection",
        "date",
        "etag",
        "expires",
        "http2-settings",
        "keep-alive",
        "last-modified",
        "location",
        "pragma",
        "retry-after",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "vary",
        "via",
        "warning",
        "www-authenticate",
        "x-cache-tags",
        "xkey",
    ];
    let expected = || r#"the name of a field such as "X-Powered-By""#.to_owned();
    let name = HeaderName::from_bytes(text.as_bytes()).map_err(|_| expected())?;
    if name == SET_COOKIE {
        return Err("another field: cookies are cut by strip_set_cookie".to_owned());
    }
    let is_reserved = |name: &str| {
        NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    if is_reserved(name.as_str()) {
        return Err(format!("another field: {text} is needed by HTTP or by the proxy"));
    }
    Ok(name)
}
