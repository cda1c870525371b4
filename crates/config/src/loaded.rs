//! A plan with what was warned of when it was read.

use super::plan::Plan;

/// A plan as it was read.
#[derive(Debug)]
pub struct LoadedPlan {
    /// The plan.
    pub plan: Plan,
    /// The warnings, a line each.
    pub warnings: Vec<String>,
}

impl From<Plan> for LoadedPlan {
    fn from(plan: Plan) -> Self {
        Self { plan, warnings: Vec::new() }
    }
}
