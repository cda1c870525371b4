//! What learn mode makes of a decision: the request is forwarded, or only counted, whatever the cache would do.

use anteroom_telemetry::reason::Reason;

use super::DecisionAndPage;
use super::explanation::{ExplainedOutcome, Explanation};
use super::print::verb;
use crate::context::RequestContext;
use crate::plan::Decision;

impl Explanation {
    /// Turns what the cache would do into a note, where the route learns; `learned`: what is decided there.
    pub(super) fn apply_learn_mode(&mut self, cx: &RequestContext<'_>, learned: Option<&Decision>) {
        let is_mirror = cx.worker.settings.learn.is_mirror;
        let tells_more = match learned {
            Some(Decision::Forward(_)) => is_mirror,
            Some(_) => true,
            None if is_mirror => true,
            None => return,
        };
        if tells_more {
            self.notes.push(format!("with mode = \"serve\": {}: {}", verb(self.outcome), self.why));
        }
        if is_mirror {
            self.settle(cx.worker, ExplainedOutcome::Own, Some(Reason::Learn), None);
            "204: with [learn] mirror, requests are counted and not forwarded"
                .clone_into(&mut self.why);
        } else if let Some(decision) = learned {
            self.apply(cx, &DecisionAndPage::without_page(decision));
        }
    }

    pub(super) fn apply(&mut self, cx: &RequestContext<'_>, decided: &DecisionAndPage) {
        self.settle(cx.worker, decided.outcome, decided.reason, decided.status.as_ref());
        decided.why.clone_into(&mut self.why);
    }
}
