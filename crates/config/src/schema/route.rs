//! The keys of `[[route]]` and `[[cookies]]`.

use anteroom_http::harden::Hardening;
use anteroom_http::path::PurgePath;
use anteroom_http::pattern::Pattern;
use anteroom_policy::cookie::SameSite;
use anteroom_policy::priority::RequestClass;
use anteroom_policy::route::{FieldTemplate, LeakGuard, Route, SetCookie, TemplateVariable};

use super::fields::{
    FieldsForm, RedirectStatusForm, redirect_target, removable_field, settable_field,
};
use super::fragment::{EsiForm, FragmentForm, SHARES};
use super::learn::CACHE_MODES;
use super::network::{AllowedNetworks, networks};
use super::route_match::{FieldConditionsForm, QueryForm};
use super::segment::SegmentForm;
use super::shared::{AUDIT, METHOD, RATE, TTL, count, hosts, named, shared};
use super::ttl::TtlForm;
use crate::form::{Either, Flag, List, Optional, Text, Words};
use crate::text;
use crate::walk::Walk;

pub(super) fn route(at: &mut impl Walk, route: &mut Route) {
    at.key("name", &mut route.name, &shared(text::route_name));
    at.section("match", |at| {
        let paths = Text { parse: text::route_path, show: ToString::to_string };
        at.key("path", &mut route.paths, &List::of(paths));
        at.key("host", &mut route.hosts, &List::of(hosts()));
        at.key("method", &mut route.methods, &List::of(METHOD));
        at.key("query", &mut route.query, &QueryForm);
        at.key("headers", &mut route.headers, &FieldConditionsForm);
    });
    caching(at, route);
    at.key("fragments", &mut route.fragments, &List::of(FragmentForm));
    at.key("esi", &mut route.esi, &EsiForm);
    at.key("visitor_token", &mut route.visitor_token, &Flag);
    at.key("rows", &mut route.rows, &Optional(shared(text::rows_name)));
    at.key("origin", &mut route.origin, &Optional(shared(text::origin_reference)));
    at.key("deny", &mut route.deny, &Flag);
    at.key("allow_from", &mut route.allow_from, &AllowedNetworks(networks()));
    at.key("requests_per_address", &mut route.requests_per_address, &Optional(RATE));
    at.key("requests_per_session", &mut route.requests_per_session, &Optional(RATE));
    let expected = TemplateVariable::OF_RESPONSE;
    at.key("set_headers", &mut route.set_headers, &FieldsForm { field: settable_field, expected });
    let fields = FieldsForm { field: text::send_header, expected: TemplateVariable::KEYED };
    at.key("set_request_headers", &mut route.set_request_headers, &fields);
    let fields = List::of(Text { parse: text::send_header, show: ToString::to_string });
    at.key("remove_request_headers", &mut route.remove_request_headers, &fields);
    let prefix = || Optional(named(text::path_prefix));
    at.key("strip_prefix", &mut route.rewrite.strip_prefix, &prefix());
    at.key("add_prefix", &mut route.rewrite.add_prefix, &prefix());
    let target = || Text { parse: redirect_target, show: FieldTemplate::to_string };
    at.key("redirect", &mut route.redirect, &Optional(target()));
    at.key("redirect_status", &mut route.redirect_status, &RedirectStatusForm);
    at.key(
        "require",
        &mut route.requires_login,
        &Words(&[("none", Some(false)), ("login", Some(true))]),
    );
    at.key("login_page", &mut route.login_page, &Optional(target()));
    let named = |class: RequestClass| (class.as_str(), Some(class));
    let classes = [
        ("auto", None),
        named(RequestClass::Known),
        named(RequestClass::LogIn),
        named(RequestClass::Seen),
        named(RequestClass::New),
    ];
    at.key("class", &mut route.class, &Words(&classes));
    at.key("max_strangers", &mut route.max_strangers, &Either("none", count(1, 1_000_000)));
    at.key("maintenance", &mut route.maintenance, &Flag);
    at.key("access_log", &mut route.access_log, &Flag);
}

/// The keys that say what is stored, for how long and for which visitors.
fn caching(at: &mut impl Walk, route: &mut Route) {
    at.key("mode", &mut route.mode, &Words(&CACHE_MODES));
    at.key("share", &mut route.share, &Words(&SHARES));
    at.key("segment", &mut route.segment, &SegmentForm);
    let proofs = [("second_user", false), ("none", true)];
    at.key("segment_proof", &mut route.segment.is_promised, &Words(&proofs));
    let parameters = || List::of(Text { parse: text::any_query, show: Pattern::to_string });
    at.key("ignore_query", &mut route.query_rule.ignore, &parameters());
    at.key("keep_query", &mut route.query_rule.keep, &Optional(parameters()));
    at.key("ttl", &mut route.ttl, &TtlForm);
    at.key("override_ttl", &mut route.override_ttl, &Optional(TTL));
    at.key("override_private", &mut route.override_private, &Flag);
    at.key("stale_while_revalidate", &mut route.stale_while_revalidate, &Optional(TTL));
    at.key("stale_if_error", &mut route.stale_if_error, &Optional(TTL));
    at.key("refresh_ahead", &mut route.refresh_ahead, &Flag);
    at.key("audit", &mut route.audit, &AUDIT);
    at.key("only_top", &mut route.only_top, &Optional(count(1, 1_000_000)));
    at.key("min_uses", &mut route.min_uses, &count(1, 1_000));
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
