//! Builds requests to the origin: a forwarded request, which stays nearly unchanged, or a fill from an
//! allow-list of fields.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use ::http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE,
    EXPECT, HOST, ORIGIN, REFERER, TE, TRAILER, TRANSFER_ENCODING, USER_AGENT,
};
use ::http::uri::PathAndQuery;
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use anteroom_cache::fill::FillLoss;
use anteroom_cache::rules::fragments::esi::SURROGATE_CAPABILITY;
use anteroom_cache::rules::key::ShareClass;
use anteroom_fault::fault;
use anteroom_http::cdn_loop::CDN_LOOP;
use anteroom_http::coding::{READABLE, readable_for};
use anteroom_http::cookie::{cookies, rebuild};
use anteroom_http::field_set::FieldSet;
use anteroom_http::forwarded::ForwardingFields;
use anteroom_http::host::Host;
use anteroom_http::ident::User;
use anteroom_http::signature::{self, SIGNATURE};
use anteroom_http::trace_context::set_traceparent;
use anteroom_http::vary::normalised_accept_encoding;
use anteroom_http::{cdn_loop, forwarded as fwd, hop, language, request_fields};
use anteroom_origin::{BodyTap, GrpcCall, RequestBody, Upload, UploadBody, unless_ended};
use anteroom_policy::login::LoginUser;
use anteroom_policy::route::Esi;
use anteroom_telemetry::access_log::VisitorClass;
use anteroom_telemetry::traces::{OriginSpan, TraceIds};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use crate::context::{RequestContext, RequestKind, template_values};
use crate::request_id::may_be_shared;
use crate::settings::OriginRules;

/// The largest part of a body that is kept for inspection, in bytes.
const HEARD_MAX: usize = 64 << 10;

/// `X-Anteroom-Session: known|none|unknown`.
static SESSION: HeaderName = HeaderName::from_static("x-anteroom-session");

/// The bytes that are percent-encoded in a field value. `%` is one of them: otherwise the user `a%20b`
/// would be indistinguishable from the user `a b`.
const IN_FIELD: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// Fields that a fill may send, and that `Vary` may name.
static SENT: [HeaderName; 6] = [ACCEPT, ACCEPT_LANGUAGE, USER_AGENT, ORIGIN, SAVE_DATA, DPR];
const SAVE_DATA: HeaderName = HeaderName::from_static("save-data");
const DPR: HeaderName = HeaderName::from_static("dpr");

/// Client hints: user agent, user preferences, responsive images and networks
/// (<https://wicg.github.io/client-hints-infrastructure/#policy-controlled-client-hints-features>).
static CLIENT_HINTS: [&str; 28] = [
    "device-memory",
    "downlink",
    "ect",
    "rtt",
    "sec-ch-device-memory",
    "sec-ch-dpr",
    "sec-ch-forced-colors",
    "sec-ch-prefers-color-scheme",
    "sec-ch-prefers-contrast",
    "sec-ch-prefers-reduced-data",
    "sec-ch-prefers-reduced-motion",
    "sec-ch-prefers-reduced-transparency",
    "sec-ch-ua",
    "sec-ch-ua-arch",
    "sec-ch-ua-bitness",
    "sec-ch-ua-form-factors",
    "sec-ch-ua-full-version",
    "sec-ch-ua-full-version-list",
    "sec-ch-ua-mobile",
    "sec-ch-ua-model",
    "sec-ch-ua-platform",
    "sec-ch-ua-platform-version",
    "sec-ch-ua-wow64",
    "sec-ch-viewport-height",
    "sec-ch-viewport-width",
    "sec-ch-width",
    "viewport-width",
    "width",
];

/// A forwarded request: unchanged, except for the fields that clients must not send, and for the proxy's own
/// fields.
pub(crate) fn forwarded(cx: &RequestContext<'_>, body: RequestBody) -> Request<UploadBody> {
    let mut headers = forwarded_fields(cx);
    let body = outgoing_body(cx, body);
    match &body {
        UploadBody::Empty if says_length(cx) => {
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        // Without the field, hyper would send no body with a GET or HEAD.
        UploadBody::Upload(upload) if http_body::Body::size_hint(upload).exact().is_none() => {
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        _ => {}
    }
    let mut request = build(cx, own_target(cx), headers, body);
    if cx.is_call() {
        request.extensions_mut().insert(GrpcCall);
    }
    request
}

/// A request of the proxy on behalf of the visitor, without a body.
pub(crate) fn question(cx: &RequestContext<'_>) -> Request<UploadBody> {
    build(cx, own_target(cx), forwarded_fields(cx), UploadBody::Empty)
}

/// The fields of a forwarded request, except those that frame its body.
fn forwarded_fields(cx: &RequestContext<'_>) -> HeaderMap {
    let (rules, came) = (cx.rules(), &cx.head.headers);
    let options =
        if came.contains_key(CONNECTION) { hop::connection_options(came) } else { Vec::new() };
    let (mut has_te, mut has_trailer) = (false, false);
    let mut headers = HeaderMap::with_capacity(came.len() + 8);
    for (name, value) in came {
        has_te |= *name == TE;
        has_trailer |= *name == TRAILER;
        let is_replaced = [EXPECT, CONTENT_LENGTH, HOST].contains(name);
        if !is_replaced
            && !hop::is_hop_by_hop(name)
            && !options.contains(name)
            && passes(name, rules)
        {
            headers.append(name, value.clone());
        }
    }
    if has_trailer {
        for value in came.get_all(TRAILER) {
            headers.append(TRAILER, value.clone());
        }
    }
    if has_te && hop::te_trailers(came) {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    remove_fields(cx, &mut headers);
    hop::count_down(&cx.head.method, &mut headers);
    introduce(cx, &mut headers, &cx.admitted.host, cx.admitted.address);
    if rules.sessions {
        let target = own_target(cx);
        let path = target.path_and_query().map_or("/", PathAndQuery::as_str);
        identify(cx, &mut headers, path);
    }
    if rules.is_apart || cx.visitor.is_revoked {
        keep_sessions_from(cx, &mut headers);
    }
    headers
}

/// RFC 9110 §8.6: if the method anticipates content, a request without content states that. Some origins
/// answer 411 otherwise.
fn says_length(cx: &RequestContext<'_>) -> bool {
    matches!(cx.head.method, Method::POST | Method::PUT | Method::PATCH)
        || cx.head.headers.contains_key(CONTENT_LENGTH)
}

fn outgoing_body(cx: &RequestContext<'_>, body: RequestBody) -> UploadBody {
    let Some(body) = body.and_then(unless_ended) else {
        return UploadBody::Empty;
    };
    let settings = &cx.worker.settings;
    let max = settings.body_max.unwrap_or(u64::MAX);
    let rules = Arc::clone(settings);
    let origin = cx.route.origin_place;
    let filter = move |trailers: &mut HeaderMap| clean_trailers(trailers, &rules.origins[origin]);
    // In a call, the client may be silent for a long time while it listens.
    let stall = if cx.is_call() { cx.rules().call_stall } else { settings.stall };
    let read = cx.client.state.body_is_read();
    let upload = Upload::new(body, max, stall, filter).telling(read);
    UploadBody::Upload(Box::new(upload.with_tap(listener(cx))))
}

/// The listener that copies the body as it passes, if a rule needs the body.
fn listener(cx: &RequestContext<'_>) -> Option<BodyTap> {
    if !may_log_in(cx) && !may_purge_by_form(cx) {
        return None;
    }
    let heard = Rc::clone(&cx.kept_body.0);
    heard.borrow_mut().clear();
    Some(Box::new(move |part| {
        let mut heard = heard.borrow_mut();
        let remaining = HEARD_MAX.saturating_sub(heard.len());
        heard.extend_from_slice(&part[..part.len().min(remaining)]);
    }))
}

/// Whether a login rule looks for the user in the body.
fn may_log_in(cx: &RequestContext<'_>) -> bool {
    let Some(rule) = &cx.worker.settings.watched.login else { return false };
    matches!(rule.user, Some(LoginUser::Form(_) | LoginUser::Json(_)))
        && cx.rules().sessions
        && cx.matches(&rule.matching)
}

/// Whether a purge rule looks for a field in the body.
fn may_purge_by_form(cx: &RequestContext<'_>) -> bool {
    let mut rules = cx.worker.settings.purge_rules.iter();
    !cx.head.method.is_safe()
        && rules.any(|rule| !rule.form.is_empty() && cx.matches(&rule.matching))
}

/// Removes the trailer fields that a head must not carry either. The origin may merge trailers into the
/// head (RFC 9110 §6.5.1).
fn clean_trailers(trailers: &mut HeaderMap, rules: &OriginRules) {
    hop::strip_hop_by_hop(trailers);
    let unwanted: Vec<_> = trailers
        .keys()
        .filter(|name| {
            let text = name.as_str();
            !passes(name, rules)
                || fwd::has_underscore(text)
                || matches!(text, "host" | "content-length" | "authorization" | "cookie")
        })
        .cloned()
        .collect();
    for name in unwanted {
        trailers.remove(name);
    }
}

/// Whether a field of the client may be sent to the origin.
fn passes(name: &HeaderName, rules: &OriginRules) -> bool {
    let text = name.as_str();
    !(fwd::is_reserved(text)
        || fwd::same_name(text, rules.identity.as_str())
        || (rules.no_detours && fwd::is_detour(text))
        || (rules.no_other_method && fwd::is_other_method(text))
        || (fwd::has_underscore(text) && !rules.pass_underscores))
}

/// Adds the proxy's fields about the request: `Host`, where the request came from, and the trace.
fn introduce(
    cx: &RequestContext<'_>,
    headers: &mut HeaderMap,
    host: &Host,
    address: Option<IpAddr>,
) {
    let scheme = cx.admitted.scheme;
    let ForwardingFields { host, x_forwarded_for, forwarded, .. } =
        cx.client.forwarding_fields(address, host, scheme);
    headers.insert(HOST, cx.rules().host.clone().unwrap_or_else(|| host.clone()));
    if let Some(x_forwarded_for) = x_forwarded_for {
        headers.insert(&fwd::X_FORWARDED_FOR, x_forwarded_for);
    }
    headers.insert(&fwd::X_FORWARDED_PROTO, fwd::x_forwarded_proto(scheme));
    headers.insert(&fwd::X_FORWARDED_HOST, host);
    headers.insert(::http::header::FORWARDED, forwarded);
    fwd::append_via(headers, cx.head.version);
    if cx.admitted.fields.has(FieldSet::CDN_LOOP) && !headers.contains_key(&CDN_LOOP) {
        cdn_loop::carry_marks(&cx.head.headers, headers);
    }
    cdn_loop::mark(headers, &cx.admitted.site, cx.head.uri.path());
    if cx.route.esi != Esi::Off {
        // Without this field, an app with ESI support would assemble its pages itself.
        headers.insert(&SURROGATE_CAPABILITY, HeaderValue::from_static("anteroom=\"ESI/1.0\""));
    }
    if let Some(name) = &cx.worker.settings.request_id
        && let Some(id) = cx.head.headers.get(name)
    {
        headers.insert(name, id.clone());
    }
    set_fields(cx, headers);
    // A fill may carry an id of a trusted proxy's trace, too: as with request ids, 32 hex digits say nothing.
    match cx.head.extensions.get::<Arc<TraceIds>>() {
        Some(ids) => ids.set(headers, cx.kind == RequestKind::Question),
        None => set_traceparent(headers, fastrand::u128(..), fastrand::u64(..)),
    }
}

/// Removes the fields of the route's `remove_request_headers`.
fn remove_fields(cx: &RequestContext<'_>, headers: &mut HeaderMap) {
    for name in &cx.route.remove_request_headers {
        headers.remove(name);
    }
}

/// Sets the fields of the route's `set_request_headers`. Their variables are in every page key.
fn set_fields(cx: &RequestContext<'_>, headers: &mut HeaderMap) {
    for (name, template) in &cx.route.set_request_headers {
        let value = template.render(&template_values(cx.head, cx.admitted));
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
}

/// Adds the fields that identify the visitor to the origin, in a request for `path`.
fn identify(cx: &RequestContext<'_>, headers: &mut HeaderMap, path: &str) {
    let rules = cx.rules();
    let class = match cx.visitor.class {
        VisitorClass::Known => "known",
        VisitorClass::Anonymous => "none",
        VisitorClass::Unknown => "unknown",
    };
    headers.insert(&SESSION, HeaderValue::from_static(class));
    for (name, value) in cx.certificate().iter().flat_map(|shown| shown.fields()) {
        headers.insert(name, value.clone());
    }
    let user = identified(cx).map(|user| percent_encode(user.as_bytes(), IN_FIELD).to_string());
    let user = user.unwrap_or_default();
    // Percent-encoded text is visible ASCII.
    if let (false, Ok(value)) = (user.is_empty(), HeaderValue::try_from(user.as_str())) {
        headers.insert(&rules.identity, value);
    }
    sign(rules, headers, &user, cx.head.method.as_str(), path, cx.now as u64);
}

/// The field that names the user to the origin.
pub(crate) fn identity<'c>(cx: &'c RequestContext<'_>) -> &'c HeaderName {
    &cx.rules().identity
}

/// The user that is named to the origin. An unconfirmed name is the visitor's own claim and is left out.
fn identified<'c>(cx: &'c RequestContext<'_>) -> Option<&'c User> {
    cx.visitor.user().filter(|user| user.is_confirmed())
}

/// Whether the field `name` describes this visitor alone, so that a page which depends on it cannot be
/// shared in the class. A fill is sent as for a visitor without a login. A fill for a segment names the
/// visitor, but a page that depends on the name belongs to that visitor only.
pub(crate) fn describes_visitor(
    cx: &RequestContext<'_>,
    class: ShareClass,
    name: &HeaderName,
) -> bool {
    let rules = cx.rules();
    if !rules.sessions || class == ShareClass::User {
        return false;
    }
    if *name == SESSION && class == ShareClass::Segment {
        return false;
    }
    let shown = || cx.certificate().is_some_and(|shown| shown.fields().any(|(f, _)| f == name));
    match name {
        _ if *name == SESSION => cx.visitor.class != VisitorClass::Anonymous,
        _ if *name == rules.identity => identified(cx).is_some(),
        _ => shown(),
    }
}

/// Removes cookies that may be session cookies, for an origin that takes no part in sessions.
fn keep_sessions_from(cx: &RequestContext<'_>, headers: &mut HeaderMap) {
    let rules = &cx.worker.settings.cookies;
    if !cookies(headers).any(|(name, _)| rules.may_be_session(name)) {
        return;
    }
    let line = rebuild(headers, |name| !rules.may_be_session(name));
    headers.remove(COOKIE);
    if let Some(line) = line {
        headers.insert(COOKIE, line);
    }
}

/// Signs the proxy's fields about the visitor, for an origin that can be reached without passing the
/// proxy.
fn sign(
    rules: &OriginRules,
    headers: &mut HeaderMap,
    user: &str,
    method: &str,
    target: &str,
    now: u64,
) {
    let Some(secret) = &rules.secret else { return };
    if let Some(value) = signature::value(secret, user, method, target, now) {
        headers.insert(&SIGNATURE, value);
    }
}

/// The fields of a fill that come from the request: those in the key, and those that `Vary` may name.
/// For pages that the origin marks `public` (`trust_public`), `Authorization` is among them, because the
/// origin may require it. Such a page is stored only where RFC 9111 §3.5 allows it.
pub(crate) fn fill_fields(cx: &RequestContext<'_>, class: ShareClass) -> HeaderMap {
    let from = &cx.head.headers;
    let route = cx.route;
    let mut headers = HeaderMap::with_capacity(12);
    let listed = |name: &HeaderName| {
        SENT.contains(name)
            || (class.is_personal() && *name == REFERER)
            || is_client_hint(name)
            || route.key_headers.contains(name)
            || route.send_headers.contains(name)
            || (class == ShareClass::Public && *name == AUTHORIZATION)
            || (*name == COOKIE && (fault!("carries") || fault!("share") || fault!("nobody")))
    };
    // SECURITY: a field that clients must not send stays out, even if the route lists it.
    let rules = cx.rules();
    for (name, value) in from.iter().filter(|(name, _)| listed(name) && passes(name, rules)) {
        headers.append(name, value.clone());
    }
    remove_fields(cx, &mut headers);
    // If pages are recoded for each client, a fill can ask for any coding that the proxy reads. A
    // response to the visitor's own session must be readable by this client.
    let codings = match cx.worker.recompressor.is_on() && !class.is_personal() {
        true => Some(READABLE),
        false => normalised_accept_encoding(from),
    };
    if let Some(codings) = codings {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(codings));
    }
    if let (true, Some(offered)) = (class != ShareClass::User, &route.segment.language) {
        say_language(from, offered, &mut headers);
    }
    let rules = &cx.worker.settings.cookies;
    let line = match class {
        // All of these are in the key.
        ShareClass::User => rebuild(from, |name| !rules.is_harmless(name)),
        _ if fault!("harmless") => rebuild(from, |name| rules.is_harmless(name)),
        _ if route.key_cookies.is_empty() => None,
        _ => rebuild(from, |name| route.keys_cookie(name)),
    };
    if let Some(mut line) = line {
        line.set_sensitive(true);
        headers.insert(COOKIE, line);
    }
    if cx.rules().is_apart {
        keep_sessions_from(cx, &mut headers);
    }
    headers
}

/// Asks for the language that is in the key only.
fn say_language(from: &HeaderMap, offered: &[String], headers: &mut HeaderMap) {
    headers.remove(ACCEPT_LANGUAGE);
    let chosen = language::chosen(from, offered);
    if let Some(Ok(value)) = chosen.map(|language| HeaderValue::try_from(language.as_str())) {
        headers.insert(ACCEPT_LANGUAGE, value);
    }
}

/// The cookies of a fill for a segment: those in the key, and the visitor's session cookie, by which the
/// app recognises the visitor.
fn show_session(cx: &RequestContext<'_>, headers: &mut HeaderMap) {
    let rules = &cx.worker.settings.cookies;
    let line =
        rebuild(&cx.head.headers, |name| cx.route.keys_cookie(name) || rules.is_session(name));
    if let Some(mut line) = line {
        line.set_sensitive(true);
        headers.insert(COOKIE, line);
    }
}

/// Whether a field is a client hint that browsers send. Other names of that form could carry arbitrary
/// text outside the key.
fn is_client_hint(name: &HeaderName) -> bool {
    CLIENT_HINTS.contains(&name.as_str())
}

/// The request that fills a shared page with `fields`. If it carries the visitor's session, it also carries the
/// client's address: an app may end a session that is used from another address.
pub(crate) fn fill(
    cx: &RequestContext<'_>,
    class: ShareClass,
    fields: &HeaderMap,
) -> Request<UploadBody> {
    let rules = cx.rules();
    let mut headers = fields.clone();
    let is_personal = class.is_personal();
    let address = fill_address(cx, class);
    if class == ShareClass::Segment {
        show_session(cx, &mut headers);
    }
    if rules.is_apart {
        keep_sessions_from(cx, &mut headers);
    }
    // The key holds the normalised site, so the shared page must not contain a default port.
    let admitted = &cx.admitted;
    let site = Host::parse(admitted.site.as_bytes());
    introduce(cx, &mut headers, site.as_ref().unwrap_or(&admitted.host), address);
    if let Some(name) = &cx.worker.settings.request_id
        && !is_personal
        && !headers.get(name).is_some_and(may_be_shared)
    {
        headers.remove(name);
    }
    let uri = &cx.head.uri;
    let query = uri.query().unwrap_or_default();
    let kept = cx.route.query_rule.kept(query);
    let target = if kept.len() == query.len() {
        own_target(cx)
    } else {
        let path = cx.route.rewrite.path(uri.path());
        target(PathAndQuery::try_from(with_query(&path, &kept)).ok())
    };
    if rules.sessions {
        let path = target.path_and_query().map_or("/", PathAndQuery::as_str);
        if is_personal || fault!("identity") {
            identify(cx, &mut headers, path);
        } else {
            headers.insert(&SESSION, HeaderValue::from_static("none"));
            sign(rules, &mut headers, "", "GET", path, cx.now as u64);
        }
    }
    // The response may be this visitor's own, so it comes in a coding that this client reads.
    if cx.worker.recompressor.is_on() && !is_personal {
        match readable_for(&cx.head.headers) {
            Some(codings) => headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(codings)),
            None if cx.head.headers.contains_key(ACCEPT_ENCODING) => {
                headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            }
            None => headers.remove(ACCEPT_ENCODING),
        };
    }
    build(cx, target, headers, UploadBody::Empty)
}

/// The client's address as a fill names it: the proxy's, unless the app is to know the visitor.
fn fill_address(cx: &RequestContext<'_>, class: ShareClass) -> Option<IpAddr> {
    match cx.rules().fill_client_address || class.is_personal() {
        true => cx.admitted.address,
        false => Some(cx.client.local),
    }
}

/// Makes a request ask for a response without content coding.
pub(crate) fn in_no_coding(headers: &mut HeaderMap) {
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

/// Joins path and query. An empty query loses its `?`.
fn with_query(path: &str, query: &str) -> String {
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// What a fill with `fields` lacks of the visitor's own request.
pub(crate) fn loss(cx: &RequestContext<'_>, class: ShareClass, fields: &HeaderMap) -> FillLoss {
    let query = cx.head.uri.query().unwrap_or_default();
    let loses_referer = cx.head.headers.contains_key(REFERER) && !fields.contains_key(REFERER);
    let mut loss = FillLoss {
        address: fill_address(cx, class) != cx.admitted.address,
        field: false,
        detour: loses_referer || cx.route.query_rule.kept(query).len() != query.len(),
        range: cx.admitted.fields.has(FieldSet::RANGE),
        identity: cx.certificate().is_some(),
    };
    for name in lost_fields(cx, class, fields) {
        match *name {
            COOKIE | AUTHORIZATION => loss.identity = true,
            _ => loss.field = true,
        }
    }
    loss
}

/// The fields of the request that a fill with `fields` lacks and that the origin may evaluate.
pub(crate) fn lost_fields<'c>(
    cx: &'c RequestContext<'_>,
    class: ShareClass,
    fields: &'c HeaderMap,
) -> impl Iterator<Item = &'c HeaderName> {
    cx.head.headers.keys().filter(move |name| {
        if **name == COOKIE {
            return lost_cookies(cx, class).next().is_some();
        }
        let neutral = request_fields::is_neutral(name)
            || cx.worker.settings.request_id.as_ref() == Some(*name)
            || cx.route.remove_request_headers.contains(name)
            || !passes(name, cx.rules());
        !neutral && !fields.contains_key(*name)
    })
}

/// The names of the cookies that a fill of the class leaves out and that the origin may evaluate.
pub(crate) fn lost_cookies<'c>(
    cx: &'c RequestContext<'_>,
    class: ShareClass,
) -> impl Iterator<Item = &'c [u8]> {
    let rules = &cx.worker.settings.cookies;
    let is_sent = move |name: &[u8]| match class {
        ShareClass::User => true,
        ShareClass::Segment => cx.route.keys_cookie(name) || rules.is_session(name),
        _ => cx.route.keys_cookie(name),
    };
    cookies(&cx.head.headers)
        .map(|(name, _)| name)
        .filter(move |name| !is_sent(name) && !rules.is_harmless(name))
}

/// The request's own target, as the route has the origin get it.
fn own_target(cx: &RequestContext<'_>) -> Uri {
    let came = cx.head.uri.path_and_query();
    if cx.route.rewrite.is_none() {
        return target(came.cloned());
    }
    let path = cx.route.rewrite.path(cx.head.uri.path());
    let rewritten = match cx.head.uri.query() {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
        None => PathAndQuery::try_from(&*path),
    };
    target(rewritten.ok())
}

fn target(path: Option<PathAndQuery>) -> Uri {
    path.map_or_else(Uri::default, Uri::from)
}

fn build(
    cx: &RequestContext<'_>,
    uri: Uri,
    headers: HeaderMap,
    body: UploadBody,
) -> Request<UploadBody> {
    let mut request = Request::new(body);
    *request.method_mut() = cx.head.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    if cx.kind != RequestKind::Question
        && let Some(ids) = cx.head.extensions.get::<Arc<TraceIds>>()
        && let Some(span) = OriginSpan::latest(ids)
    {
        request.extensions_mut().insert(span);
    }
    request
}
