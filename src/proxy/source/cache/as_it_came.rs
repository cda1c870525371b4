//! Which requests for pages that are not stored are sent to the origin as they came, and what their responses teach.

use std::sync::Arc;

use ::http::Response;
use anteroom_cache::LookupMode;
use anteroom_cache::fill::{TrialOrder, changes_session};
use anteroom_cache::rules::key::ShareClass;
use anteroom_cache::rules::personal_data::PersonalData;
use anteroom_cache::url_patterns::{AsItCame, OwnResponse, UrlPattern};
use anteroom_fault::fault;
use anteroom_http::{query, segments};
use anteroom_origin::OriginResponse;
use anteroom_telemetry::reason::Reason;

use crate::proxy::answer::Answer;
use crate::proxy::origin_request;
use crate::proxy::stage::cache_lookup::{StaleCandidate, WantedPage};

/// Why a request is sent as it came, although its page could be fetched for the cache. A page that was stored once is
/// fetched again for the cache; so are pages of one visitor or segment, whose fetch carries the visitor's session.
pub(in crate::proxy) fn as_it_came(
    want: &WantedPage<'_>,
    candidate: Option<&StaleCandidate>,
    look: LookupMode,
) -> Option<Reason> {
    if candidate.is_some() || want.class.is_personal() || fault!("unproven") {
        return None;
    }
    let patterns = &want.cx.worker.pages.url_patterns;
    let sent = patterns.as_it_came(pattern(want), is_delicate(want), want.now(), look)?;
    Some(match sent {
        AsItCame::Unproven => Reason::Unproven,
        AsItCame::Uncacheable => Reason::Pattern,
    })
}

/// Whether the URL may be a secret.
fn is_secret(want: &WantedPage<'_>) -> bool {
    let uri = &want.cx.head.uri;
    let kept = want.cx.route.query_rule.kept(uri.query().unwrap_or_default());
    query::has_uncacheable_parameter(&kept)
        || segments::has_secret(uri.path())
        || segments::has_secret_value(&kept)
}

/// Whether the URL may be a secret, or a fetch would leave out a field of the request. On a route for everyone, and where
/// `public` is believed, the visitor is declared not to matter.
fn is_delicate(want: &WantedPage<'_>) -> bool {
    let loss = want.loss();
    let is_declared = matches!(want.class, ShareClass::Everyone | ShareClass::Public);
    loss.field || loss.identity && !is_declared || pattern(want).may_be_secret()
}

/// The pattern of the request's URL.
pub(super) fn pattern(want: &WantedPage<'_>) -> UrlPattern {
    *want.pattern.get_or_init(|| {
        let (cx, uri, loss) = (want.cx, &want.cx.head.uri, want.loss());
        let kept = cx.route.query_rule.kept(uri.query().unwrap_or_default());
        let loses_any = loss.field || loss.identity;
        let lost = loses_any.then(|| origin_request::lost_fields(cx, want.class, want.sent()));
        let lost = lost.into_iter().flatten().map(|name| name.as_str());
        let patterns = &cx.worker.pages.url_patterns;
        patterns.pattern(&cx.admitted.site, (uri.path(), &kept), is_secret(want), lost)
    })
}

/// Notes whether the response to a request that was sent as it came could have been shared.
pub(super) fn learn(want: &WantedPage<'_>, answer: &Answer) {
    let Answer::Uncached(received, _) = answer else { return };
    let response = match would_be_shared(want, received) {
        Some(has_lifetime) => OwnResponse::Shareable { has_lifetime },
        None => OwnResponse::Unshareable {
            persists: changes_session(received.response.headers())
                || received.response.status().is_redirection(),
        },
    };
    want.cx.worker.pages.url_patterns.saw_own(pattern(want), response, want.now());
}

/// Whether a response has a freshness lifetime of the origin's or the route's, if its head lets it be shared, also with
/// visitors without the fields that a fetch leaves out; `None`: it could not be shared.
fn would_be_shared(want: &WantedPage<'_>, received: &OriginResponse) -> Option<bool> {
    let cx = want.cx;
    let (mut head, ()) = Response::new(()).into_parts();
    head.status = received.response.status();
    head.headers = received.response.headers().clone();
    let order = TrialOrder {
        primary: want.key,
        target: cx.head.uri.clone(),
        class: want.class,
        route: Arc::clone(cx.route),
        person: None,
        personal_data: PersonalData::default(),
        sent: want.sent().clone(),
        purge_snapshot: cx.worker.pages.purged.now(&cx.purge_scopes()),
        asked_at: cx.now,
    };
    let body = (received.length, received.unframed);
    let page = cx.worker.filler.judge_head(order, head, body).ok()?;
    let is_for_others = !page.vary().iter().any(|name| want.is_left_out(name));
    is_for_others.then(|| page.has_lifetime())
}
