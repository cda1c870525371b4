//! What was learned of routes in learn mode, for the operator.

use anteroom_http::pattern::Pattern;
use anteroom_learn::{Report, ReportContext};
use anteroom_policy::learn::CacheMode;
use anteroom_proxy::means_session;

use super::commands::Commands;

impl Commands {
    /// What was learned since learning began.
    pub(super) fn learned(&self) -> Report {
        let counted = self.metrics.cookies();
        let set_by = |name: &str| {
            let cookie = counted.names.iter().find(|(own, _)| own == name);
            cookie.map_or(0, |(_, counts)| counts.set)
        };
        let names = |patterns: &[Pattern]| patterns.iter().map(ToString::to_string).collect();
        let rules = &self.kinds.rules;
        self.worker.learning.report(&ReportContext {
            mode: self.cache_mode(),
            class: &|name| self.kinds.class(name),
            means_session: &means_session,
            set_by: &set_by,
            session_cookies: names(&rules.session),
            ignored_cookies: names(&rules.ignored),
            has_default_ttl: !self.worker.filler.policy.default_ttl.is_zero(),
            route_paths: &|name| self.route_paths(name),
        })
    }

    /// The patterns of the paths of a route, if these are its only conditions that say which pages it has.
    fn route_paths(&self, name: &str) -> Vec<String> {
        let mut routes = self.worker.settings.routes.all();
        let route = routes.find(|route| *route.name == *name && route.query.is_empty());
        route.map_or_else(Vec::new, |route| route.paths.iter().map(ToString::to_string).collect())
    }

    /// Forgets it.
    pub(super) fn restart_learning(&self) -> Report {
        self.worker.learning.restart();
        self.learned()
    }

    /// What the cache does on the routes, in one word.
    pub(super) fn cache_mode(&self) -> &'static str {
        let settings = &self.worker.settings;
        let learns = settings.routes.all().map(|route| route.mode == CacheMode::Learn);
        let learns: Vec<bool> = learns.collect();
        match (learns.contains(&true), learns.contains(&false)) {
            _ if settings.learn.is_mirror => "mirror",
            (true, true) => "mixed",
            (true, false) => "learn",
            (false, _) => "serve",
        }
    }
}
