//! The parts of an explanation: routes, visitors, keys and pages in words.

use ::http::header::{
    CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};
use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use anteroom_cache::entry::{Entry, LifetimeSource};
use anteroom_cache::purge::PurgeStanding;
use anteroom_cache::rules::verdict::{
    FreshnessDirective, RequestView, ResponseView, Sharing, may_store, named_by,
};
use anteroom_cache::url_patterns::network;
use anteroom_http::conditional::validators;
use anteroom_http::cookie::cookies as cookies_of;
use anteroom_http::field_set::FieldSet;
use anteroom_http::freshness::{self, FreshnessSource};
use anteroom_http::host::Scheme;
use anteroom_http::ident::{Item, PageKey};
use anteroom_http::query;
use anteroom_policy::route::{CompiledRoute, Share};
use anteroom_store::StoreError;
use anteroom_telemetry::access_log::VisitorClass;
use anteroom_telemetry::reason::Reason;

use super::explanation::{
    ExplainedClass, ExplainedCookie, ExplainedFill, ExplainedKey, ExplainedPage, ExplainedRoute,
    ExplainedTier, ExplainedVariants, ExplainedVisitor, SilentPage,
};
use super::hints::why;
use crate::context::{RequestContext, WorkerContext};
use crate::cookie_rules::CookieClass;
use crate::deliver::content_coding;
use crate::origin_request;
use crate::stage::classify::Standing;
use crate::stage::wanted_page::WantedPage;

/// The class of cookies that are missing from the configuration.
pub(super) const UNKNOWN: &str = "unknown";

/// Bytes as text to show.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A URL in the form that may be shown.
pub(super) fn url(scheme: Scheme, site: &str, uri: &Uri) -> String {
    format!("{}://{site}{}", scheme.as_str(), target(uri))
}

/// A target in the form that may be shown: without session ids and query values.
pub(super) fn target(uri: &Uri) -> String {
    let path = query::path_without_session_id(uri.path());
    match uri.query() {
        Some(query) => format!("{path}?{}", query::without_values(query)),
        None => path.into_owned(),
    }
}

pub(super) fn route(cx: &RequestContext<'_>, item: Option<&Item>) -> ExplainedRoute {
    // An item from the query is hidden like the other values of the query.
    let item = item.filter(|item| is_in_path(cx, item)).map(|item| item.as_str().to_owned());
    ExplainedRoute { item, ..route_alone(cx.worker, cx.route) }
}

/// The route of a request that goes no further.
pub(super) fn route_alone(worker: &WorkerContext, route: &CompiledRoute) -> ExplainedRoute {
    let upstreams = &worker.upstreams;
    let origin = upstreams[route.origin_place].name().to_owned();
    ExplainedRoute {
        name: route.name.to_string(),
        origin: Some(origin).filter(|_| upstreams.len() > 1),
        share: match route.share {
            Share::Anonymous => "anonymous",
            Share::Everyone => "everyone",
            Share::Segment => "segment",
            Share::User => "user",
            Share::None => "none",
        }
        .to_owned(),
        item: None,
        settings: route.keys_set().into_iter().map(str::to_owned).collect(),
    }
}

fn is_in_path(cx: &RequestContext<'_>, item: &Item) -> bool {
    cx.admitted.path.split('/').any(|segment| segment.contains(item.as_str()))
}

pub(super) fn visitor(cx: &RequestContext<'_>) -> ExplainedVisitor {
    let visitor = &cx.visitor;
    let rules = &cx.worker.settings.cookies;
    let mut why_so = match visitor.sharing {
        Sharing::Known => "the session token is known".to_owned(),
        Sharing::Apart(reason) => {
            format!("the session token is known, but belongs to no segment: {}", why(reason))
        }
        Sharing::Unknown(Reason::Unverified) => unverified(cx).to_owned(),
        Sharing::Unknown(reason) => why(reason).to_owned(),
        Sharing::Anonymous if visitor.is_revoked => {
            "this session was revoked, and its cookie is not passed on".to_owned()
        }
        Sharing::Anonymous if visitor.cookie_hash.is_some() => {
            "the app says that this session belongs to no user".to_owned()
        }
        Sharing::Anonymous if visitor.token.is_some() => {
            "the session token is unknown, and only Anteroom sets such cookies".to_owned()
        }
        Sharing::Anonymous if rules.session.is_empty() => {
            "no session cookie is configured ([session] cookie)".to_owned()
        }
        Sharing::Anonymous => "the request has no session cookie".to_owned(),
    };
    let has_unknown =
        [Sharing::Unknown, Sharing::Apart].map(|sharing| sharing(Reason::UnknownCookie));
    if has_unknown.contains(&visitor.sharing) {
        let mut names: Vec<_> = of_class(cx, CookieClass::Unknown).collect();
        names.sort_unstable();
        names.dedup();
        why_so = format!("{why_so}: {}", names.join(", "));
    }
    ExplainedVisitor {
        class: visitor.class.as_str().to_owned(),
        why: why_so,
        user: visitor
            .user()
            .filter(|_| cx.worker.settings.log_user && visitor.class == VisitorClass::Known)
            .map(|user| text(user.as_bytes())),
    }
}

/// When the request is served where others wait for the app. `page`: its key, if it is fetched for the cache.
pub(super) fn class(cx: &RequestContext<'_>, page: Option<&PageKey>) -> ExplainedClass {
    let standing = Standing::of(cx, network(cx.admitted.address), page);
    ExplainedClass { class: standing.class().as_str().to_owned(), why: standing.why().to_owned() }
}

/// What is known of a session that the app has not named a user for.
fn unverified(cx: &RequestContext<'_>) -> &'static str {
    match was_unclear(cx) {
        true => {
            "the app was asked about this session a moment ago, and its answer matched neither user nor nobody"
        }
        false => {
            "the app has not been asked about this session yet ([session.verify]), and explain does not ask it: \
             the visitor's next request does"
        }
    }
}

/// Whether the app's answer about the visitor was unclear a moment ago.
pub(super) fn was_unclear(cx: &RequestContext<'_>) -> bool {
    let cookies = cx.visitor.cookie_hash.as_ref();
    cookies.is_some_and(|cookies| cx.worker.verified.was_unclear(cookies, cx.now))
}

fn of_class<'c>(
    cx: &'c RequestContext<'_>,
    class: CookieClass,
) -> impl Iterator<Item = String> + 'c {
    let rules = &cx.worker.settings.cookies;
    let names = cookies_of(&cx.head.headers).map(|(name, _)| name);
    names.filter(move |name| rules.class(name, cx.route) == class).map(text)
}

pub(super) fn cookies(cx: &RequestContext<'_>) -> Vec<ExplainedCookie> {
    let rules = &cx.worker.settings.cookies;
    let names = cookies_of(&cx.head.headers).map(|(name, _)| name);
    names
        .map(|name| ExplainedCookie {
            name: text(name),
            class: match rules.class(name, cx.route) {
                CookieClass::Session(_) => "session",
                CookieClass::Harmless => "harmless",
                CookieClass::Keyed => "keyed",
                CookieClass::Unknown => UNKNOWN,
            }
            .to_owned(),
        })
        .collect()
}

pub(super) fn key(want: &WantedPage<'_>) -> ExplainedKey {
    let cx = want.cx;
    let uri = &cx.head.uri;
    let came = uri.query().unwrap_or_default();
    let rule = &cx.route.query_rule;
    ExplainedKey {
        key: format!("cache:{}", want.key.hex()),
        class: want.class.as_str().to_owned(),
        scheme: cx.admitted.scheme.as_str().to_owned(),
        site: cx.admitted.site.clone(),
        path: query::path_without_session_id(uri.path()).into_owned(),
        query: query::without_values(&rule.kept(came)),
        ignored: query::names(came).filter(|name| !rule.is_kept(name)).map(|n| text(&n)).collect(),
        cookies: cx.route.key_cookies.clone(),
        fields: keyed_fields(cx.route),
    }
}

/// The fields in the key of a route's pages: the keyed ones, and those by which the route is chosen.
fn keyed_fields(route: &CompiledRoute) -> Vec<String> {
    let conditions = route.headers.iter().map(|condition| &condition.name);
    let conditions = conditions.filter(|name| !route.key_headers.contains(name));
    words(route.key_headers.iter().chain(conditions))
}

fn words<'n>(names: impl Iterator<Item = &'n HeaderName>) -> Vec<String> {
    names.map(ToString::to_string).collect()
}

/// The request that would fill the cache, if `page` is stored.
pub(super) fn fill(want: &WantedPage<'_>, page: Option<&Entry>) -> ExplainedFill {
    let cx = want.cx;
    let (request, loss) = (origin_request::fill(cx, want.class, want.sent()), want.loss());
    let is_own = |name: &&HeaderName| !want.sent().contains_key(*name);
    let mut own_fields = words(request.headers().keys().filter(is_own));
    let is_asked = |page: &&Entry| page.has_validator() && !want.class.is_personal();
    let held = page.filter(is_asked).filter(|page| standing(want, page) != PURGED);
    if let Some(held) = held {
        let asked = validators(&held.fields.map());
        let is_there = [asked.if_none_match.is_some(), asked.if_modified_since.is_some()];
        let conditions = [IF_NONE_MATCH, IF_MODIFIED_SINCE].into_iter().zip(is_there);
        own_fields.extend(conditions.filter(|(_, there)| *there).map(|(name, _)| name.to_string()));
    }
    ExplainedFill {
        target: target(request.uri()),
        fields: words(want.sent().keys()),
        own_fields,
        lost_fields: words(origin_request::lost_fields(cx, want.class, want.sent())),
        lost_cookies: origin_request::lost_cookies(cx, want.class).map(text).collect(),
        own_address: !cx.rules().fill_client_address && !want.class.is_personal(),
        validates: held.is_some(),
        spares: !loss.field && !loss.identity,
    }
}

const PURGED: &str = "purged";

/// The state of a page by time and purges, as a word.
fn standing(want: &WantedPage<'_>, page: &Entry) -> &'static str {
    match want.cx.worker.pages.standing(page, want.now()) {
        PurgeStanding::Current => "fresh",
        PurgeStanding::Stale => "stale",
        PurgeStanding::Gone => PURGED,
    }
}

pub(super) fn tier(want: &WantedPage<'_>, tier: &anteroom_cache::TierContent) -> ExplainedTier {
    let page = tier.page.as_deref();
    ExplainedTier {
        error: None,
        variants: tier.index.as_ref().map(|index| ExplainedVariants {
            fields: words(index.fields.iter()),
            count: index.keys.len(),
        }),
        page: page.map(|page| standing(want, page).to_owned()),
        ttl: page.map(|page| page.ttl(want.now())),
    }
}

pub(super) fn unreadable(error: &StoreError) -> ExplainedTier {
    ExplainedTier { error: Some(error.to_string()), variants: None, page: None, ttl: None }
}

pub(super) fn page(want: &WantedPage<'_>, page: &Entry) -> ExplainedPage {
    let now = want.now();
    let line = |name: HeaderName| page.fields.get(&name).map(text);
    let can_be_validated = page.has_validator();
    let there = [ETAG, LAST_MODIFIED].into_iter().filter(|name| page.fields.has(name));
    let recoded = content_coding::recoding(want.cx, want.class, page);
    ExplainedPage {
        status: page.status,
        kind: line(CONTENT_TYPE),
        coding: line(CONTENT_ENCODING),
        recoded: recoded.ok().flatten().map(|coding| coding.as_str().to_owned()),
        bytes: page.body.len(),
        standing: standing(want, page).to_owned(),
        purged: match want.cx.worker.pages.purged.standing(&page.purge_snapshot) {
            PurgeStanding::Current => "no",
            PurgeStanding::Stale => "soft",
            PurgeStanding::Gone => "hard",
        }
        .to_owned(),
        lifetime: page.lifetime,
        source: source(page.source, &page.fields.map(), page.stored_at),
        age: page.age(now),
        ttl: page.ttl(now),
        stale_while_revalidate: page.stale.while_revalidate,
        stale_if_error: page.stale.if_error.max(page.stale.while_revalidate),
        validators: there.filter(|_| can_be_validated).map(|name| name.to_string()).collect(),
        vary: words(page.vary.iter()),
        static_proof: page.static_proof,
        refused: want
            .suits(page)
            .err()
            .or_else(|| recoded.err())
            .map(|reason| reason.as_str().to_owned()),
    }
}

/// Tells of a `Date` by which the page is never fresh.
pub(super) fn old_date(page: &Entry) -> Option<String> {
    let date = freshness::date_of(&page.fields.map(), page.stored_at)?;
    let behind = page.stored_at.saturating_sub(date);
    (page.lifetime > 0 && behind >= page.lifetime).then(|| {
        format!(
            "the page came with a Date {behind} s in the past, beyond its lifetime, and is fetched again each time: \
             the clock of the app is slow, or a cache in front of it keeps old pages"
        )
    })
}

/// The field or setting that named a lifetime, as the app or the operator would write it.
fn source(source: LifetimeSource, headers: &HeaderMap, now: u64) -> String {
    let said = match source {
        LifetimeSource::Default => return "[cache] default_ttl".to_owned(),
        LifetimeSource::Route => return "[[route]] ttl".to_owned(),
        LifetimeSource::Override => return "[[route]] override_ttl".to_owned(),
        LifetimeSource::Heuristic => return "heuristic from Last-Modified".to_owned(),
        LifetimeSource::Explicit => named_by(headers, now),
    };
    let word = match said.what {
        None => return "none: it is stored for validation only".to_owned(),
        Some(FreshnessDirective::NoCache) => "no-cache",
        Some(FreshnessDirective::By(FreshnessSource::SMaxAge)) => "s-maxage",
        Some(FreshnessDirective::By(FreshnessSource::MaxAge)) => "max-age",
        Some(FreshnessDirective::By(FreshnessSource::Expires)) => return "Expires".to_owned(),
    };
    let field = if said.is_targeted { "CDN-Cache-Control" } else { "Cache-Control" };
    format!("{field}: {word}")
}

/// What would become of an HTML page without caching fields from the app.
pub(super) fn silent(want: &WantedPage<'_>) -> SilentPage {
    let cx = want.cx;
    let request = origin_request::fill(cx, want.class, want.sent());
    let html = HeaderValue::from_static("text/html");
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, html)]);
    let asked = RequestView {
        method: request.method(),
        path: request.uri().path(),
        query: request.uri().query().unwrap_or_default(),
        headers: want.sent(),
        fields: FieldSet::of(want.sent()),
        has_body: false,
        bound: false,
        who: Sharing::Anonymous,
    };
    let answer = ResponseView {
        status: StatusCode::OK,
        headers: &headers,
        length: Some(0),
        unframed: false,
        age: 0,
        now: want.now(),
    };
    let policy = &cx.worker.filler.policy;
    match may_store(&asked, want.class, &answer, cx.route, policy) {
        Ok(storing) => SilentPage {
            lifetime: storing.lifetime,
            source: source(storing.source, &headers, want.now()),
            reason: None,
        },
        Err(reason) => SilentPage {
            lifetime: 0,
            source: String::new(),
            reason: Some(reason.as_str().to_owned()),
        },
    }
}
