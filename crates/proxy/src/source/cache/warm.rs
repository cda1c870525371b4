//! Pages that the proxy fetches by itself, and the recipes by which it does.

use std::sync::Arc;
use std::time::Duration;

use ::http::header::{HOST, ORIGIN, REFERER};
use ::http::uri::PathAndQuery;
use ::http::{HeaderMap, Method, Uri};
use anteroom_cache::fill::LeaderAnswer;
use anteroom_cache::flight::JoinResult;
use anteroom_cache::page_fields::PageFields;
use anteroom_cache::recipe::Recipe;
use anteroom_cache::warm_queue::WarmOccasion;
use anteroom_http::clock::unix_now;
use anteroom_http::host::Scheme;
use anteroom_origin::BackgroundSlot;
use anteroom_policy::route::RouteInput;

use super::begin;
use super::stale::FAILING_TTL;
use crate::context::{RequestContext, RequestKind, route_input};
use crate::plan::{PageDecision, StaleCandidate};
use crate::stage::wanted_page::WantedPage;

/// How long a recipe waits for a place at its origin.
const SLOT_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval at which it looks for one.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The result of a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WarmOutcome {
    /// The page was fetched.
    Fetched,
    /// A fresh page is there, or another request fetches it.
    Needless,
    /// The origin had no place for the fetch.
    NoPlace,
    /// The origin failed, or the page may not be shared.
    Failed,
}

/// The recipe that is kept with the page that this request fills.
pub(super) fn kept_recipe(want: &WantedPage<'_>) -> Option<Arc<Recipe>> {
    want.cx.worker.settings.keeps_recipes.then(|| recipe(want)).flatten()
}

/// The recipe of the page that this request is for; `None` where no stranger could fetch it.
pub(super) fn recipe(want: &WantedPage<'_>) -> Option<Arc<Recipe>> {
    let cx = want.cx;
    let is_of_strangers = want.class.has_recipes() && cx.certificate().is_none();
    if !is_of_strangers || cx.kind != RequestKind::Page {
        return None;
    }
    let mut fields = want.sent().clone();
    // SECURITY: where a visitor came from is the visitor's own affair.
    for name in [REFERER, ORIGIN, HOST] {
        fields.remove(name);
    }
    let query = cx.route.query_rule.kept(cx.head.uri.query().unwrap_or_default());
    if !takes_same_route(cx, &query, &fields) {
        return None;
    }
    let recipe = Recipe {
        is_https: cx.admitted.scheme == Scheme::Https,
        site: cx.admitted.site.clone(),
        target: target(&cx.head.uri, &query)?,
        fields: PageFields::of(&fields),
        local: cx.client.local,
    };
    recipe.bounded().map(Arc::new)
}

/// Whether a recipe with these parts finds the route of the page again. Where the condition of a route is on a field that
/// fills do not send, it would fetch the page of another route.
fn takes_same_route(cx: &RequestContext<'_>, query: &str, fields: &HeaderMap) -> bool {
    let routes = &cx.worker.settings.routes;
    if !routes.look_at_fields() {
        return true;
    }
    let asked = RouteInput {
        method: &Method::GET,
        query,
        headers: fields,
        ..route_input(cx.head, cx.admitted)
    };
    routes.find(&asked).0.place == cx.route.place
}

/// The target without the parameters on which the page does not depend.
fn target(uri: &Uri, query: &str) -> Option<PathAndQuery> {
    match query {
        "" => PathAndQuery::try_from(uri.path()).ok(),
        query => PathAndQuery::try_from(format!("{}?{query}", uri.path())).ok(),
    }
}

/// Fetches the page of a stranger's request, unless it is fresh or being fetched. One that expires soon is fetched
/// although it is fresh.
pub(crate) async fn warm(
    want: &WantedPage<'_>,
    decision: PageDecision,
    occasion: WarmOccasion,
) -> WarmOutcome {
    let cx = want.cx;
    if !(want.fills && want.class.has_recipes()) {
        return WarmOutcome::Failed;
    }
    let (candidate, key) = match decision {
        PageDecision::Fetch { candidate, key } => (candidate, key),
        // What the responses to others' requests are like is no matter for one that no client waits for.
        PageDecision::AsItCame { key, .. } => (None, key),
        PageDecision::Stale { candidate, renews: true } => {
            let key = candidate.key;
            (Some(candidate), key)
        }
        PageDecision::Hit(entry, _)
            if occasion == WarmOccasion::ExpiresSoon
                && entry.is_due_ahead(want.now(), want.key.0[0]) =>
        {
            let key = want.key_of(&entry);
            // An error of the origin leaves the page as it is.
            (Some(StaleCandidate { entry, key, serves_on_error: true }), key)
        }
        PageDecision::Hit(..) => return WarmOutcome::Needless,
        PageDecision::Stale { renews: false, .. } => return WarmOutcome::Failed,
    };
    let slot = match occasion {
        WarmOccasion::Purged => tokio::time::timeout(SLOT_TIMEOUT, slot(cx)).await.ok(),
        WarmOccasion::ExpiresSoon => cx.upstream().background_slot(),
    };
    let Some(slot) = slot else {
        if let Some(candidate) = &candidate {
            candidate.entry.hits.end_refresh();
        }
        return WarmOutcome::NoPlace;
    };
    let JoinResult::Lead(flight) = want.join(key) else { return WarmOutcome::Needless };
    let fetched = begin(want, flight, candidate.as_ref(), Some(slot)).await;
    if fetched.is_ok_and(|answer| is_refreshed(&answer)) {
        return WarmOutcome::Fetched;
    }
    if let Some(candidate) = candidate.filter(|_| occasion == WarmOccasion::ExpiresSoon) {
        // A later hit tries again.
        cx.worker.pages.memory().mark_failing(key, unix_now() as u64 + FAILING_TTL);
        candidate.entry.hits.end_refresh();
    }
    WarmOutcome::Failed
}

async fn slot(cx: &RequestContext<'_>) -> BackgroundSlot {
    loop {
        match cx.upstream().background_slot() {
            Some(slot) => return slot,
            None => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

/// Whether a fetch has brought a page that is shared.
fn is_refreshed(answer: &LeaderAnswer) -> bool {
    match answer {
        LeaderAnswer::Shared(_)
        | LeaderAnswer::Landed(_)
        | LeaderAnswer::Validated(_)
        | LeaderAnswer::Elsewhere(_) => true,
        LeaderAnswer::Own(..)
        | LeaderAnswer::Again(..)
        | LeaderAnswer::NotAsked(_)
        | LeaderAnswer::Failed(_) => false,
    }
}
