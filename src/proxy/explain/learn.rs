//! What learn mode makes of a decision: the request is forwarded, or only counted, whatever the cache would do.

use super::explanation::{ExplainedOutcome, Explanation};
use super::print::verb;
use super::words::why;
use crate::policy::learn::CacheMode;
use crate::proxy::context::RequestContext;
use crate::proxy::deliver::headers;
use crate::telemetry::reason::Reason;

impl Explanation {
    /// Turns what the cache would do into a note, where the route learns.
    pub(super) fn apply_learn_mode(&mut self, cx: &RequestContext<'_>) {
        let asks_cache = matches!(
            self.outcome,
            ExplainedOutcome::Hit | ExplainedOutcome::Stale | ExplainedOutcome::Fetch
        );
        let is_mirror = cx.worker.settings.learn.is_mirror;
        let learns = asks_cache && cx.route.mode == CacheMode::Learn;
        if !learns && !is_mirror {
            return;
        }
        self.notes.push(format!("with mode = \"serve\": {}: {}", verb(self.outcome), self.why));
        if is_mirror {
            self.settle(cx.worker, ExplainedOutcome::Own, Some(Reason::Learn), None);
            "204: with [learn] mirror, requests are counted and not forwarded"
                .clone_into(&mut self.why);
        } else {
            let status = headers::bypassed(Reason::Learn);
            self.settle(cx.worker, ExplainedOutcome::Forward, Some(Reason::Learn), Some(&status));
            why(Reason::Learn).clone_into(&mut self.why);
        }
    }
}
