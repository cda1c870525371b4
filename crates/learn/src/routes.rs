//! What is counted of the requests of each route.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anteroom_telemetry::reason::Reason;

use crate::simulated::VerdictEffect;

/// The most routes that are told apart; requests of others are counted as [`OTHERS`].
const ROUTES_MAX: usize = 200;
/// The name of the routes beyond the bound.
const OTHERS: &str = "(others)";

/// The route of what no `[[route]]` matches.
pub(crate) const DEFAULT_ROUTE: &str = "default";

/// The requests of a route in learn mode.
#[derive(Clone, Debug, Default)]
pub(crate) struct LearnedRoute {
    pub(crate) requests: u64,
    /// Those that the cache would have answered.
    pub(crate) hits: u64,
    /// Those that would have fetched a page for it.
    pub(crate) fetches: u64,
    /// Those of URLs that are not followed.
    pub(crate) unfollowed: u64,
    /// Those whose result will not be known any more.
    pub(crate) lost: u64,
    /// Why others would have been forwarded.
    pub(crate) reasons: HashMap<Reason, u64>,
    /// What the origin took for the hits.
    pub(crate) saved: Duration,
    /// The bytes of the hits.
    pub(crate) saved_bytes: u64,
}

impl LearnedRoute {
    pub(crate) fn refuse(&mut self, reason: Reason, requests: u64) {
        if requests > 0 {
            *self.reasons.entry(reason).or_default() += requests;
        }
    }

    pub(crate) fn settle(&mut self, settled: VerdictEffect) {
        match settled {
            VerdictEffect::Hits(requests) => self.hits += requests,
            VerdictEffect::Refused(0, _) | VerdictEffect::Rescued(0) => {}
            VerdictEffect::Rescued(requests) => {
                self.fetches = self.fetches.saturating_sub(1);
                self.hits += requests;
            }
            VerdictEffect::Refused(requests, reason) => {
                self.fetches = self.fetches.saturating_sub(1);
                self.refuse(reason, requests);
            }
        }
    }
}

/// The routes.
#[derive(Clone, Debug, Default)]
pub(crate) struct LearnedRoutes(HashMap<Arc<str>, LearnedRoute>);

impl LearnedRoutes {
    pub(crate) fn of(&mut self, name: &Arc<str>) -> &mut LearnedRoute {
        let has_place = self.0.len() < ROUTES_MAX || self.0.contains_key(name);
        let name = if has_place { Arc::clone(name) } else { OTHERS.into() };
        self.0.entry(name).or_default()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&Arc<str>, &LearnedRoute)> {
        self.0.iter()
    }
}
