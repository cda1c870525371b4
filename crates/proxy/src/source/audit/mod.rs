//! The audit: answers a request that a stored page would answer with the app's own answer, and compares both.
//!
//! The request goes to the app as it came, so that the visitor gets what the app says; where the app fails, the stored
//! page is the answer. `body` reads the app's answer along, `differences` compares it, and `weigh` asks the app again to
//! tell what is noise or an edit. `stop` ends the sharing of pages in which visitors see different things.

mod body;
mod differences;
mod stop;
mod weigh;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{
    ACCEPT_ENCODING, CONNECTION, COOKIE, HOST, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE, RANGE, SET_COOKIE, TE, VIA,
};
use ::http::{HeaderName, HeaderValue, Method, Request};
use ahash::RandomState;
use anteroom_cache::entry::Entry;
use anteroom_cache::fill;
use anteroom_cache::rules::personal_data::PersonalData;
use anteroom_cache::url_patterns::network;
use anteroom_http::cookie::{cookies, is_affinity, is_harmless, rebuild};
use anteroom_http::field_set::FieldSet;
use anteroom_http::path::decoded;
use anteroom_http::request_fields::is_neutral;
use anteroom_http::segments::pattern_segments;
use anteroom_learn::audit::{AuditPlace, AuditedPage, AuditedRequest, COOKIES_KEPT};
use anteroom_origin::{BackgroundSlot, OriginResponse, UploadBody, Upstream};
use anteroom_policy::route::CompiledRoute;
use anteroom_telemetry::reason::Reason;
use tokio::time::timeout;

use self::body::AuditBody;
use self::body::BODY_MAX;
use super::causes::{learned_name, request_fields, short};
use super::{forward, personal};
use crate::answer::Answer;
use crate::context::{RequestContext, RequestKind, WorkerContext};
use crate::origin_request;
use crate::record::RequestRecord;
use crate::stage::url_pattern::{path_digests, short_path, shown_pattern};
use crate::stage::wanted_page::WantedPage;

/// With one of these, the app answers with a part of the page, or not with the page.
const CONDITIONS: [HeaderName; 5] =
    [RANGE, IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];
/// Neutral fields that the proxy adds itself.
static OF_THE_WAY: [HeaderName; 7] = [
    ACCEPT_ENCODING,
    CONNECTION,
    HOST,
    TE,
    VIA,
    HeaderName::from_static("cdn-loop"),
    HeaderName::from_static("traceparent"),
];
/// How long a visitor waits for the app where a stored page would be the answer at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// A hit that is held against the app.
pub(super) struct Audit {
    page: AuditedPage,
    /// Hashes of its path, and of the pattern of it.
    digests: [String; 2],
    /// The path, decoded, and the query without ignored parameters: the page that is purged.
    path: String,
    query: String,
    /// The path up to where pages of one kind differ, decoded: what is stored below is purged with the page.
    below: String,
    stored: Arc<Entry>,
    route: Arc<CompiledRoute>,
    worker: Rc<WorkerContext>,
    /// The page once more, as it was filled.
    fetch: Request<UploadBody>,
    /// The same with a cookie of no meaning, where the visitor has cookies: a cache between this proxy and the app may answer
    /// requests without cookies, and pass on others.
    fetch_passed_on: Request<UploadBody>,
    /// Whether it is known how the page was filled. If not, the fetch carries what this visitor's fill would: a difference
    /// that one of these fields makes is then not told from an edit.
    is_as_filled: bool,
    /// The visitor's request once more, but for what a client can make up.
    again: Request<UploadBody>,
    /// Whether it has cookies.
    has_cookies: bool,
    /// The visitor's session, which may keep to a server.
    session: Option<String>,
    /// The visitor's own words.
    words: PersonalData,
    upstream: Rc<Upstream>,
    /// While the visitor's request is at the app.
    slot: Option<BackgroundSlot>,
    /// While the bodies are held.
    _place: AuditPlace,
    /// For hashes of what is compared.
    key: RandomState,
    /// The Unix time of the request.
    now: u64,
}

impl Audit {
    /// Draws one hit of so many as the route says, if the app has a place for it. PERF: boxed, so that the state of a hit
    /// stays small.
    pub(super) fn draw(want: &WantedPage<'_>, stored: &Arc<Entry>) -> Option<Box<Self>> {
        let cx = want.cx;
        let hits = cx.route.audit.hits()?;
        if fastrand::u32(..hits) != 0 || stored.body.len() > BODY_MAX || !may_be_held(want) {
            return None;
        }
        let (place, slot) = (cx.worker.audits.place()?, cx.upstream().background_slot()?);
        let recipe = stored.recipe.as_ref();
        let filled_with = recipe.map_or_else(|| want.sent().clone(), |recipe| recipe.fields.map());
        let has_cookies = cx.admitted.fields.has(FieldSet::COOKIE);
        let fetch = |more: Option<&str>| {
            let request = origin_request::fill(cx, want.class, &filled_with);
            with_cookies(cx, request, more)
        };
        let digests = path_digests(cx);
        Some(Box::new(Self {
            page: audited(cx, &digests),
            digests,
            path: cx.admitted.path.clone(),
            query: cx.route.query_rule.kept(cx.head.uri.query().unwrap_or_default()).into_owned(),
            below: below(cx.head.uri.path()),
            stored: Arc::clone(stored),
            route: Arc::clone(cx.route),
            worker: Rc::clone(cx.worker),
            fetch: fetch(None),
            fetch_passed_on: fetch(has_cookies.then_some(NO_MEANING)),
            is_as_filled: recipe.is_some(),
            again: without_made_up(origin_request::question(cx)),
            has_cookies,
            session: cx.visitor.token.as_ref().map(|token| token.as_str().to_owned()),
            words: personal::own_words(cx),
            upstream: Rc::clone(cx.upstream()),
            slot: Some(slot),
            _place: place,
            key: RandomState::new(),
            now: want.now(),
        }))
    }

    /// The app's answer; `None`: it has none, and the stored page is the answer.
    pub(super) async fn answer(
        mut self: Box<Self>,
        cx: &RequestContext<'_>,
        record: &mut RequestRecord,
    ) -> Option<Answer> {
        let forwarded = forward::forward(cx, None, Reason::Audited, record);
        // What a request with a cookie has begun in the app is waited for: its answer may change the session.
        let forwarded = match cx.admitted.fields.has(FieldSet::COOKIE) {
            true => forwarded.await.ok(),
            false => timeout(PATIENCE, forwarded).await.ok().and_then(Result::ok),
        };
        let slot = self.slot.take();
        // What the app says of this one request is no failure of the app.
        let has_failed = !matches!(&forwarded, Some(Answer::Uncached(came, _)) if !came.response.status().is_server_error());
        if let Some(mut slot) = slot
            && has_failed
        {
            slot.fail();
        }
        let Some(Answer::Uncached(mut came, reason)) = forwarded.filter(is_told) else {
            return None;
        };
        let (status, headers) = (came.response.status(), came.response.headers().clone());
        let reader = AuditBody::new(self, status, headers);
        came.response.body_mut().read_along(Box::new(reader));
        Some(Answer::Uncached(came, reason))
    }
}

/// Whether the visitor gets this answer of the app: an error gives way to the stored page, unless it sets a cookie.
fn is_told(answer: &Answer) -> bool {
    let tells = |came: &OriginResponse| {
        !fill::passes(came.response.status()) || came.response.headers().contains_key(SET_COOKIE)
    };
    matches!(answer, Answer::Uncached(came, _) if tells(came))
}

/// Whether the app's answer to this request can be compared with the page.
fn may_be_held(want: &WantedPage<'_>) -> bool {
    let cx = want.cx;
    let headers = &cx.head.headers;
    cx.kind == RequestKind::Page
        && cx.head.method == Method::GET
        && want.fills
        && want.class.has_recipes()
        && !want.directives.only_if_cached
        && !cx.route.maintenance
        // Each visitor has its own contents in the holes of a page.
        && !cx.route.has_fragments()
        && !CONDITIONS.iter().any(|name| headers.contains_key(name))
        // What no fetch carries may show in the visitor's answer alone, and a client can make it up.
        && !want.loss().field
        && !has_ignored_query(cx)
}

/// Whether the query has parameters that the page's key lacks.
fn has_ignored_query(cx: &RequestContext<'_>) -> bool {
    let query = cx.head.uri.query().unwrap_or_default();
    cx.route.query_rule.kept(query).len() != query.len()
}

/// The page as the audit names it.
fn audited(cx: &RequestContext<'_>, [digest, _]: &[String; 2]) -> AuditedPage {
    AuditedPage {
        host: cx.admitted.site.clone(),
        pattern: shown_pattern(cx),
        route: Arc::clone(&cx.route.name),
        rules: Arc::clone(&cx.route.rules),
        digest: digest.clone(),
        page_changes: cx.worker.pages.purged.bypass.page_changes(),
        path: short_path(&cx.worker.telemetry.paths.path(cx.head.uri.path())),
        network: network(cx.admitted.address),
        request: depends_on(cx),
    }
}

/// A cookie of Google Analytics, which only scripts in a browser read.
const NO_MEANING: &str = "_ga=GA1.1.1.1";

/// The same request to the server that answers the visitor: two servers may have two versions of the app. `more`: a cookie
/// that is added.
fn with_cookies(
    cx: &RequestContext<'_>,
    mut request: Request<UploadBody>,
    more: Option<&str>,
) -> Request<UploadBody> {
    let is_sent = |name: &[u8]| cx.route.keys_cookie(name) || is_affinity(name);
    let line = rebuild(&cx.head.headers, is_sent);
    let line = match (line, more) {
        (Some(line), Some(more)) => {
            let line = [line.as_bytes(), b"; ", more.as_bytes()].concat();
            HeaderValue::from_bytes(&line).ok()
        }
        (line, more) => line.or_else(|| HeaderValue::from_str(more?).ok()),
    };
    if let Some(line) = line {
        request.headers_mut().insert(COOKIE, line);
    }
    request
}

/// The same request without fields that say nothing of the visitor, such as `Referer`: an app may write them into its
/// pages.
fn without_made_up(mut request: Request<UploadBody>) -> Request<UploadBody> {
    let is_made_up = |name: &&HeaderName| is_neutral(name) && !OF_THE_WAY.contains(*name);
    let names: Vec<HeaderName> = request.headers().keys().filter(is_made_up).cloned().collect();
    for name in names {
        request.headers_mut().remove(name);
    }
    request
}

/// What the answer may depend on.
fn depends_on(cx: &RequestContext<'_>) -> AuditedRequest {
    let key = cx.worker.learning.hash_key();
    let may_matter = |(name, _): &(&[u8], &[u8])| !is_harmless(name) && !cx.route.keys_cookie(name);
    let named = |(name, value)| Some((learned_name(name)?, short(&key, value).max(1)));
    let cookies = cookies(&cx.head.headers).filter(may_matter).filter_map(named);
    AuditedRequest {
        fields: request_fields(cx, &key),
        cookies: cookies.take(COOKIES_KEPT).collect(),
    }
}

/// The path up to where pages of one kind differ, decoded.
fn below(path: &str) -> String {
    let same =
        pattern_segments(path).take_while(|(segment, _)| !matches!(*segment, "*" | "/" | ""));
    let same: String = same.map(|(segment, _)| format!("/{segment}")).collect();
    decoded(&same).unwrap_or(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_purged_ends_where_pages_of_one_kind_differ() {
        for (path, expected) in [
            ("/", ""),
            ("/country", "/country"),
            ("/country/", "/country"),
            ("/item/7", "/item"),
            ("/caf%C3%A9/2026/11/news.html", "/café"),
        ] {
            assert_eq!(below(path), expected, "{path}");
        }
    }
}
