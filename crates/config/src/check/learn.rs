//! Checks of `[learn]`.

use anteroom_policy::learn::CacheMode;

use super::ConfigCheck;

impl ConfigCheck<'_> {
    pub(super) fn learn(&mut self) {
        let (plan, serves) = (self.plan, |mode| mode == CacheMode::Serve);
        let all_learn =
            !serves(plan.cache.mode) && !plan.routes.iter().any(|route| serves(route.mode));
        let none_learns =
            serves(plan.cache.mode) && plan.routes.iter().all(|route| serves(route.mode));
        if plan.learn.mirror && !all_learn {
            self.problem(
                "learn.mirror",
                "forwards nothing, so that no route can be served: set [cache] mode = \"learn\", and no other mode in a \
                 [[route]]",
            );
        }
        if plan.learn.probe && none_learns {
            self.problem(
                "learn.probe",
                "has no effect without a route that learns: set [cache] mode = \"learn\"",
            );
        }
    }
}
