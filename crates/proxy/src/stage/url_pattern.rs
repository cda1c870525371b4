//! The patterns of a request's URL, and whether a request for a page that is not stored is sent to the origin as it came.

use anteroom_cache::rules::key::ShareClass;
use anteroom_cache::url_patterns::{AsItCame, UrlPattern};
use anteroom_http::ident::hex;
use anteroom_http::segments::pattern_segments;
use anteroom_http::{query, segments};
use anteroom_telemetry::reason::Reason;
use anteroom_telemetry::request_feed::PATH_MAX;
use sha2::{Digest as _, Sha256};

use super::wanted_page::WantedPage;
use crate::context::RequestContext;
use crate::origin_request;

/// Why a request for a page that is not stored is sent as it came, although the page could be fetched for the cache.
/// `may_try`: whether some are fetched all the same, to see whether the responses are cacheable now.
pub(crate) fn as_it_came(want: &WantedPage<'_>, may_try: bool) -> Option<Reason> {
    let patterns = &want.cx.worker.pages.url_patterns;
    let sent = patterns.as_it_came(pattern(want), is_delicate(want), want.now(), may_try)?;
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
pub(crate) fn pattern(want: &WantedPage<'_>) -> UrlPattern {
    *want.pattern.get_or_init(|| {
        let (cx, uri, loss) = (want.cx, &want.cx.head.uri, want.loss());
        let kept = cx.route.query_rule.kept(uri.query().unwrap_or_default());
        let loses_any = loss.field || loss.identity;
        let lost = loses_any.then(|| origin_request::lost_fields(cx, want.class, want.sent()));
        let lost = lost.into_iter().flatten().map(|name| name.as_str());
        let patterns = &cx.worker.pages.url_patterns;
        patterns.pattern(&cx.admitted.site, uri.path(), &kept, is_secret(want), lost)
    })
}

/// The pattern of the request's path as operators see it: with `*` where pages of one kind differ.
pub(crate) fn shown_pattern(cx: &RequestContext<'_>) -> String {
    short_path(&path_pattern(&cx.worker.telemetry.paths.path(&cx.admitted.path)))
}

/// Hashes of the request's path and of its pattern, by which the audit stops pages. What is hidden of paths does not matter:
/// it is each machine's own.
pub(crate) fn path_digests(cx: &RequestContext<'_>) -> [String; 2] {
    // All spellings of a path have one key, and so one pattern.
    let path = &cx.admitted.path;
    let path = path.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(path);
    // A path may be written like the pattern of others.
    let digest = |kind: &str, text: &str| hex(&Sha256::digest(format!("{kind}{text}"))[..8]);
    [digest("path ", path), digest("pattern ", &path_pattern(path))]
}

fn path_pattern(path: &str) -> String {
    let segments = pattern_segments(path).map(|(segment, rest)| format!("/{segment}{rest}"));
    let mut pattern: String = segments.collect();
    // The last segment says whether the path ends in a slash.
    if pattern.ends_with('/') {
        pattern.pop();
    }
    pattern
}

/// The path as it is kept. That of a path which is too long ends in a sign that no path has.
pub(crate) fn short_path(path: &str) -> String {
    match path.len() > PATH_MAX {
        true => format!("{}…", &path[..path.floor_char_boundary(PATH_MAX)]),
        false => path.to_owned(),
    }
}
