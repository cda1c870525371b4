//! Decides what is done with an identified request: asks [`plan()`], and answers the look-ups that it needs.

mod facts;
mod lookups;

use anteroom_telemetry::reason::Reason;

pub(crate) use self::facts::{facts, obstacles};
pub(crate) use self::lookups::LookupRules;
use self::lookups::Lookups;
use super::wanted_page::WantedPage;
use crate::context::RequestContext;
use crate::plan::{self, Decision, Facts, LookupAnswers, Step, plan};

/// A request about which is decided: what it says, what look-ups have answered so far, and how they are answered.
pub(crate) struct Evaluation<'c> {
    facts: Facts<'c>,
    known: LookupAnswers,
    lookups: Lookups<'c>,
}

impl<'c> Evaluation<'c> {
    pub(crate) fn new(cx: &'c RequestContext<'c>, facts: Facts<'c>, rules: LookupRules) -> Self {
        Self { facts, known: LookupAnswers::default(), lookups: Lookups::new(cx, rules) }
    }

    /// Decides what is done with the request.
    pub(crate) async fn decide(&mut self) -> Decision {
        // PERF: memory is asked first, so that a hit needs one call, and no look-up that may wait.
        if self.lookups.are_live()
            && let Some(pages) = plan::first_class(&self.facts)
        {
            self.known.memory = Some(self.lookups.in_memory(pages));
        }
        loop {
            match plan(&self.facts, &self.known) {
                Step::Done(decision) => return decision,
                Step::Need(lookup) => {
                    let answering = self.lookups.answer(lookup, &self.facts, &mut self.known);
                    // PERF: boxed, so that the state of a hit stays small.
                    Box::pin(answering).await;
                }
            }
        }
    }

    /// The page that the request wants; `None`: no page was looked up.
    pub(crate) fn want(&self) -> Option<&WantedPage<'c>> {
        self.lookups.want.as_ref()
    }

    /// Why the cache may not serve the request at all.
    pub(crate) fn barred(&self) -> Option<Reason> {
        plan::barred(&self.facts, &self.known)
    }

    /// Counts the request for the page among those that let it be stored (`min_uses`).
    pub(crate) fn count_use(&self) {
        if self.known.is_rare.is_some()
            && let Some(want) = self.want()
        {
            want.cx.worker.pages.use_counts.count(&want.key);
        }
    }
}
