//! What learn mode makes of a decision: the request is forwarded, or only counted, whatever the cache would do.

use anteroom_cache::rules::verdict::Access;
use anteroom_policy::learn::CacheMode;
use anteroom_telemetry::reason::Reason;

use super::DecisionAndPage;
use super::explanation::{ExplainedOutcome, Explanation};
use super::print::verb;
use crate::proxy::context::RequestContext;
use crate::proxy::source::forward_reason;
use crate::proxy::stage::decide;

impl Explanation {
    /// Turns what the cache would do into a note, where the route learns; `forwarded_for`: why such a request is
    /// forwarded.
    pub(super) fn apply_learn_mode(
        &mut self,
        cx: &RequestContext<'_>,
        forwarded_for: Option<Reason>,
    ) {
        let is_mirror = cx.worker.settings.learn.is_mirror;
        if forwarded_for.is_none() && !is_mirror {
            return;
        }
        if is_mirror || forwarded_for == Some(Reason::Learn) {
            self.notes.push(format!("with mode = \"serve\": {}: {}", verb(self.outcome), self.why));
        }
        if is_mirror {
            self.settle(cx.worker, ExplainedOutcome::Own, Some(Reason::Learn), None);
            "204: with [learn] mirror, requests are counted and not forwarded"
                .clone_into(&mut self.why);
        } else if decide::takes_stored_only(cx.head) {
            self.apply(cx, &DecisionAndPage::not_stored());
        } else if let Some(reason) = forwarded_for {
            self.apply(cx, &DecisionAndPage::forward(reason));
        }
    }

    pub(super) fn apply(&mut self, cx: &RequestContext<'_>, decided: &DecisionAndPage) {
        self.settle(cx.worker, decided.outcome, decided.reason, decided.status.as_ref());
        decided.why.clone_into(&mut self.why);
    }
}

/// Why a request of a route that learns is forwarded; `None`: the route does not learn, or the cache may not serve the
/// request in any case.
pub(super) fn forwarded_for(
    cx: &RequestContext<'_>,
    access: Access,
    has_body: bool,
) -> Option<Reason> {
    let learns = cx.route.mode == CacheMode::Learn && !matches!(access, Access::Bypass(_));
    learns.then(|| forward_reason(cx, &access, has_body))
}
