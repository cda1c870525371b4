//! Decides what is done with an identified request: asks [`plan`], and answers the look-ups that it needs.

mod facts;
mod lookups;

use anteroom_telemetry::reason::Reason;

pub(in crate::proxy) use self::facts::{facts, obstacles};
pub(in crate::proxy) use self::lookups::LookupRules;
use self::lookups::Lookups;
use super::wanted_page::WantedPage;
use crate::proxy::context::RequestContext;
use crate::proxy::plan::{self, Decision, Facts, Known, Step, plan};

/// What is done with a request, and what the decision is based on.
pub(in crate::proxy) struct Decided<'c> {
    pub(in crate::proxy) decision: Decision,
    /// The page that the request wants; `None`: no page was looked up.
    pub(in crate::proxy) want: Option<WantedPage<'c>>,
    facts: Facts<'c>,
    known: Known,
}

impl Decided<'_> {
    /// Why the cache may not serve the request at all.
    pub(in crate::proxy) fn barred(&self) -> Option<Reason> {
        plan::barred(&self.facts, &self.known)
    }

    /// Counts the request for the page among those that let it be stored (`min_uses`).
    pub(in crate::proxy) fn count_use(&self) {
        if self.known.is_rare.is_some()
            && let Some(want) = &self.want
        {
            want.cx.worker.pages.use_counts.count(&want.key);
        }
    }
}

/// Decides what is done with a request.
pub(in crate::proxy) async fn decide<'c>(
    cx: &'c RequestContext<'c>,
    facts: Facts<'c>,
    rules: LookupRules,
) -> Decided<'c> {
    let (mut known, mut lookups) = (Known::default(), Lookups::new(cx, rules));
    // PERF: memory is asked first, so that a hit needs one call, and no look-up that may wait.
    if lookups.are_live()
        && !facts.learns
        && let Some(pages) = plan::first_class(&facts)
    {
        known.memory = Some(lookups.in_memory(pages));
    }
    loop {
        match plan(&facts, &known) {
            Step::Done(decision) => {
                return Decided { decision, want: lookups.want, facts, known };
            }
            // PERF: boxed, so that the state of a hit stays small.
            Step::Need(lookup) => Box::pin(lookups.answer(lookup, &facts, &mut known)).await,
        }
    }
}
