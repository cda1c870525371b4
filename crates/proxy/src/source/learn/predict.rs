//! The score of what was decided by the simulated cache.

use anteroom_cache::rules::key::ShareClass;
use anteroom_http::ident::PageKey;
use anteroom_learn::PredictedOutcome;
use anteroom_policy::route::Share;
use anteroom_telemetry::reason::Reason;

use super::forward_reason;
use crate::context::RequestContext;
use crate::origin_request;
use crate::plan::{Decision, PageDecision};
use crate::stage::decide;
use crate::stage::wanted_page::WantedPage;

/// What was predicted for a request.
pub(super) struct Prediction<'c> {
    /// The page, without variants.
    pub(super) key: PageKey,
    pub(super) predicted: PredictedOutcome,
    /// The page as the cache would look it up; `None`: it would not, and the answer is only compared.
    pub(super) want: Option<&'c WantedPage<'c>>,
    /// Whether the visitor would get the page that others get.
    pub(super) is_shared: bool,
    /// Whether the visitor's own answer is what a fetch would get.
    pub(super) is_seen: bool,
    /// Whether a stale page would be the answer where the origin fails.
    pub(super) is_rescued: bool,
}

impl Prediction<'_> {
    /// The same for a request whose answer is not seen.
    pub(super) fn unseen(mut self) -> Self {
        self.is_seen = false;
        if let PredictedOutcome::Fetch { is_seen } | PredictedOutcome::StaleHit { is_seen } =
            &mut self.predicted
        {
            *is_seen = false;
        }
        self
    }
}

/// Scores what was decided about a GET by the simulated cache. `None`: its answer teaches nothing.
pub(super) fn predict<'c>(
    cx: &RequestContext<'_>,
    decision: &Decision,
    want: Option<&'c WantedPage<'c>>,
) -> Option<Prediction<'c>> {
    let reason = forward_reason(decision);
    let Some(want) = want else { return only_compared(cx, reason) };
    // A parameter that the configuration ignores does not matter, by its word.
    let loses_fields = origin_request::lost_fields(cx, want.class, want.sent()).next().is_some();
    let is_seen = want.fills && !loses_fields && cx.certificate().is_none();
    let (predicted, is_rescued) = match decision {
        Decision::Page(PageDecision::Hit(..)) => (PredictedOutcome::Hit, false),
        Decision::Page(PageDecision::Stale { .. }) => {
            (PredictedOutcome::StaleHit { is_seen }, false)
        }
        Decision::Page(PageDecision::Fetch { candidate, .. }) => {
            let is_rescued = candidate.as_ref().is_some_and(|stale| stale.serves_on_error);
            (PredictedOutcome::Fetch { is_seen }, is_rescued)
        }
        _ => (PredictedOutcome::Forward(reason), false),
    };
    // What is static by proof, visitors with a login share, too.
    let is_shared = match want.fills {
        false => predicted == PredictedOutcome::Hit,
        true => want.class != ShareClass::User,
    };
    Some(Prediction { key: want.key, predicted, want: Some(want), is_shared, is_seen, is_rescued })
}

/// A request that only its cookies keep from the page of strangers: its answer shows what the cookies do.
fn only_compared<'c>(cx: &RequestContext<'_>, reason: Reason) -> Option<Prediction<'c>> {
    let is_of_cookies = |reason: &Reason| {
        matches!(
            reason,
            Reason::UnknownCookie | Reason::UnknownToken | Reason::Unverified | Reason::Login
        )
    };
    let is_read = is_of_cookies(&reason) && cx.route.share == Share::Anonymous;
    if !is_read || !decide::obstacles(cx, false).iter().all(is_of_cookies) {
        return None;
    }
    let target = cx.head.uri.path_and_query().map_or("/", |target| target.as_str());
    let key = cx.page_key(target, cx.route, ShareClass::Anonymous);
    let predicted = PredictedOutcome::Forward(reason);
    let (is_shared, is_seen, is_rescued) = (false, false, false);
    Some(Prediction { key, predicted, want: None, is_shared, is_seen, is_rescued })
}
