//! The parts of an explanation: routes, visitors, keys and pages in words.

use ::http::header::{
    CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};
use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};

use super::explanation::{Cookie, Fill, Key, Page, Route, Silent, Tier, Variants, Visitor};
use super::words::why;
use crate::cache;
use crate::cache::entry::{Entry, LifetimeSource};
use crate::cache::fill::Loss;
use crate::cache::purge::Standing;
use crate::cache::rules::verdict::{Answered, Asked, Named, Who, may_store, named_by};
use crate::http::conditional::validators;
use crate::http::cookie::cookies as cookies_of;
use crate::http::freshness::Source;
use crate::http::host::Scheme;
use crate::http::query;
use crate::ident::Item;
use crate::policy::route::{Esi, LeakGuard, Segment, SetCookie, Share};
use crate::proxy::context::RequestContext;
use crate::proxy::cookie_rules::CookieClass;
use crate::proxy::deliver::content_coding;
use crate::proxy::origin_request;
use crate::proxy::stage::cache_lookup::Want;
use crate::store::StoreError;
use crate::telemetry::access_log::VisitorClass;
use crate::telemetry::reason::Reason;

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

pub(super) fn route(cx: &RequestContext<'_>, item: Option<&Item>) -> Route {
    let route = cx.route;
    let settings = [
        ("segment", route.segment != Segment::default()),
        ("ttl", route.ttl.is_some()),
        ("override_ttl", route.override_ttl.is_some()),
        ("override_private", route.override_private),
        ("stale_while_revalidate", route.stale_while_revalidate.is_some()),
        ("stale_if_error", route.stale_if_error.is_some()),
        ("only_top", route.only_top.is_some()),
        ("fragments", !route.fragments.is_empty()),
        ("esi", route.esi != Esi::Off),
        ("trust_public", route.trust_public),
        ("set_cookie", route.set_cookie != SetCookie::Keep),
        ("strip_set_cookie", !route.strip_set_cookie.is_empty()),
        ("leak_guard", route.leak_guard != LeakGuard::Full),
        ("key_cookies", !route.key_cookies.is_empty()),
        ("key_headers", !route.key_headers.is_empty()),
        ("send_headers", !route.send_headers.is_empty()),
        ("rows", route.rows.is_some()),
        ("allow_from", !route.allow_from.is_empty()),
        ("requests_per_address", route.limits.address.is_some()),
        ("requests_per_session", route.limits.session.is_some()),
    ];
    let said = settings.into_iter().filter(|(_, is_said)| *is_said);
    Route {
        name: route.name.to_string(),
        origin: Some(cx.upstream().name().to_owned()).filter(|_| cx.worker.upstreams.len() > 1),
        share: match route.share {
            Share::Anonymous => "anonymous",
            Share::Everyone => "everyone",
            Share::Segment => "segment",
            Share::User => "user",
            Share::None => "none",
        }
        .to_owned(),
        // An item from the query is hidden like the other values of the query.
        item: item.filter(|item| is_in_path(cx, item)).map(|item| item.as_str().to_owned()),
        settings: said.map(|(name, _)| name.to_owned()).collect(),
    }
}

fn is_in_path(cx: &RequestContext<'_>, item: &Item) -> bool {
    cx.admitted.path.split('/').any(|segment| segment.contains(item.as_str()))
}

pub(super) fn visitor(cx: &RequestContext<'_>) -> Visitor {
    let visitor = &cx.visitor;
    let rules = &cx.worker.settings.cookies;
    let mut why_so = match visitor.sharing {
        Who::Known => "the session cookie's token is known".to_owned(),
        Who::Apart(reason) => {
            format!("the session cookie's token is known, and yet no segment's: {}", why(reason))
        }
        Who::Unknown(reason) => why(reason).to_owned(),
        Who::Anonymous if visitor.token.is_some() => {
            "the session cookie's token is nobody's, and only Anteroom makes such cookies"
                .to_owned()
        }
        Who::Anonymous if rules.session.is_empty() => {
            "no session cookie is configured ([session] cookie)".to_owned()
        }
        Who::Anonymous => "no session cookie came".to_owned(),
    };
    let has_unknown = [Who::Unknown, Who::Apart].map(|who| who(Reason::UnknownCookie));
    if has_unknown.contains(&visitor.sharing) {
        let mut names: Vec<_> = of_class(cx, CookieClass::Unknown).collect();
        names.sort_unstable();
        names.dedup();
        why_so = format!("{why_so}: {}", names.join(", "));
    }
    Visitor {
        class: visitor.class.as_str().to_owned(),
        why: why_so,
        user: visitor
            .user()
            .filter(|_| cx.worker.settings.log_user && visitor.class == VisitorClass::Known)
            .map(|user| text(user.as_bytes())),
    }
}

fn of_class<'c>(
    cx: &'c RequestContext<'_>,
    class: CookieClass,
) -> impl Iterator<Item = String> + 'c {
    let rules = &cx.worker.settings.cookies;
    let names = cookies_of(&cx.head.headers).map(|(name, _)| name);
    names.filter(move |name| rules.class(name, cx.route) == class).map(text)
}

pub(super) fn cookies(cx: &RequestContext<'_>) -> Vec<Cookie> {
    let rules = &cx.worker.settings.cookies;
    let names = cookies_of(&cx.head.headers).map(|(name, _)| name);
    names
        .map(|name| Cookie {
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

pub(super) fn key(want: &Want<'_>) -> Key {
    let cx = want.cx;
    let uri = &cx.head.uri;
    let came = uri.query().unwrap_or_default();
    let ignored = &cx.worker.settings.ignore_query;
    let is_ignored = |name: &[u8]| ignored.iter().any(|pattern| pattern.matches(name));
    Key {
        key: format!("cache:{}", want.key.hex()),
        class: want.class.as_str().to_owned(),
        scheme: cx.admitted.scheme.as_str().to_owned(),
        site: cx.admitted.site.clone(),
        path: query::path_without_session_id(uri.path()).into_owned(),
        query: query::without_values(&query::without(came, ignored)),
        ignored: query::names(came).filter(|name| is_ignored(name)).map(|n| text(&n)).collect(),
        cookies: cx.route.key_cookies.clone(),
        fields: words(cx.route.key_headers.iter()),
    }
}

fn words<'n>(names: impl Iterator<Item = &'n HeaderName>) -> Vec<String> {
    names.map(ToString::to_string).collect()
}

/// The request that would fill the cache, if `page` is stored.
pub(super) fn fill(want: &Want<'_>, page: Option<&Entry>) -> Fill {
    let cx = want.cx;
    let (request, loss) = origin_request::fill(cx, want.class, want.sent());
    let is_own = |name: &&HeaderName| !want.sent().contains_key(*name);
    let mut own_fields = words(request.headers().keys().filter(is_own));
    let is_asked = |page: &&Entry| page.has_validator() && !want.class.is_personal();
    let held = page.filter(is_asked).filter(|page| standing(want, page) != PURGED);
    if let Some(held) = held {
        let asked = validators(&held.headers);
        let is_there = [asked.if_none_match.is_some(), asked.if_modified_since.is_some()];
        let conditions = [IF_NONE_MATCH, IF_MODIFIED_SINCE].into_iter().zip(is_there);
        own_fields.extend(conditions.filter(|(_, there)| *there).map(|(name, _)| name.to_string()));
    }
    Fill {
        target: target(request.uri()),
        fields: words(want.sent().keys()),
        own_fields,
        lost_fields: words(origin_request::lost_fields(cx, want.class, want.sent())),
        lost_cookies: origin_request::lost_cookies(cx, want.class).map(text).collect(),
        own_address: !cx.rules().fill_client_address && !want.class.is_personal(),
        validates: held.is_some(),
        spares: loss != Loss::Visitor,
    }
}

const PURGED: &str = "purged";

/// The state of a page by time and purges, as a word.
fn standing(want: &Want<'_>, page: &Entry) -> &'static str {
    match want.cx.worker.pages.standing(page, want.now()) {
        Standing::Current => "fresh",
        Standing::Stale => "stale",
        Standing::Gone => PURGED,
    }
}

pub(super) fn tier(want: &Want<'_>, tier: &cache::Tier) -> Tier {
    let page = tier.page.as_deref();
    Tier {
        error: None,
        variants: tier
            .index
            .as_ref()
            .map(|index| Variants { fields: words(index.fields.iter()), count: index.keys.len() }),
        page: page.map(|page| standing(want, page).to_owned()),
        ttl: page.map(|page| page.ttl(want.now())),
    }
}

pub(super) fn unreadable(error: &StoreError) -> Tier {
    Tier { error: Some(error.to_string()), variants: None, page: None, ttl: None }
}

pub(super) fn page(want: &Want<'_>, page: &Entry) -> Page {
    let now = want.now();
    let line = |name: HeaderName| page.headers.get(name).map(|value| text(value.as_bytes()));
    let may_be_asked = page.has_validator();
    let there = [ETAG, LAST_MODIFIED].into_iter().filter(|name| page.headers.contains_key(name));
    let recoded = content_coding::recoding(want.cx, want.class, page);
    Page {
        status: page.status,
        kind: line(CONTENT_TYPE),
        coding: line(CONTENT_ENCODING),
        recoded: recoded.ok().flatten().map(|coding| coding.as_str().to_owned()),
        bytes: page.body.len(),
        standing: standing(want, page).to_owned(),
        purged: match want.cx.worker.pages.purged.standing(&page.marks) {
            Standing::Current => "no",
            Standing::Stale => "soft",
            Standing::Gone => "hard",
        }
        .to_owned(),
        lifetime: page.lifetime,
        source: source(page.source, &page.headers, page.stored_at),
        age: page.age(now),
        ttl: page.ttl(now),
        stale_while_revalidate: page.stale.while_revalidate,
        stale_if_error: page.stale.if_error.max(page.stale.while_revalidate),
        validators: there.filter(|_| may_be_asked).map(|name| name.to_string()).collect(),
        vary: words(page.vary.iter()),
        static_proof: page.static_proof,
        refused: want
            .suits(page)
            .err()
            .or_else(|| recoded.err())
            .map(|reason| reason.as_str().to_owned()),
    }
}

/// The field or setting that named a lifetime, as the app or the operator would write it.
fn source(source: LifetimeSource, headers: &HeaderMap, now: u64) -> String {
    let said = match source {
        LifetimeSource::Default => return "[cache] default_ttl".to_owned(),
        LifetimeSource::Route => return "[[route]] ttl".to_owned(),
        LifetimeSource::Override => return "[[route]] override_ttl".to_owned(),
        LifetimeSource::Heuristic => return "a guess by Last-Modified".to_owned(),
        LifetimeSource::Explicit => named_by(headers, now),
    };
    let word = match said.what {
        None => return "nothing: it is kept to be validated".to_owned(),
        Some(Named::NoCache) => "no-cache",
        Some(Named::By(Source::SMaxAge)) => "s-maxage",
        Some(Named::By(Source::MaxAge)) => "max-age",
        Some(Named::By(Source::Expires)) => return "Expires".to_owned(),
    };
    let field = if said.is_targeted { "CDN-Cache-Control" } else { "Cache-Control" };
    format!("{field}: {word}")
}

/// What would become of an HTML page without caching fields from the app.
pub(super) fn silent(want: &Want<'_>) -> Silent {
    let cx = want.cx;
    let (request, _) = origin_request::fill(cx, want.class, want.sent());
    let html = HeaderValue::from_static("text/html");
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, html)]);
    let asked = Asked {
        method: request.method(),
        path: request.uri().path(),
        query: request.uri().query().unwrap_or_default(),
        headers: want.sent(),
        has_body: false,
        bound: false,
        who: Who::Anonymous,
        ranks: true,
    };
    let answer = Answered {
        status: StatusCode::OK,
        headers: &headers,
        length: Some(0),
        unframed: false,
        age: 0,
        now: want.now(),
    };
    let policy = &cx.worker.filler.policy;
    match may_store(&asked, want.class, &answer, cx.route, policy) {
        Ok(storing) => Silent {
            lifetime: storing.lifetime,
            source: source(storing.source, &headers, want.now()),
            reason: None,
        },
        Err(reason) => {
            Silent { lifetime: 0, source: String::new(), reason: Some(reason.as_str().to_owned()) }
        }
    }
}
