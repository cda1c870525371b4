//! What was learned of routes in learn mode, for the operator.

use std::sync::Arc;

use anteroom_http::pattern::Pattern;
use anteroom_learn::{CookieContext, Report, ReportContext};
use anteroom_policy::learn::CacheMode;
use anteroom_proxy::means_session;

use super::commands::Commands;

impl Commands {
    /// What was learned since learning began.
    pub(super) async fn learned(&self) -> Report {
        let (context, learning) = (self.report_context(), Arc::clone(&self.worker.learning));
        // It computes for long where much was learned.
        let report = tokio::task::spawn_blocking(move || learning.report(&context)).await;
        report.unwrap_or_default()
    }

    fn report_context(&self) -> ReportContext {
        let counted = self.metrics.cookies();
        let set_by = |name: &str| {
            let cookie = counted.names.iter().find(|(own, _)| own == name);
            cookie.map_or(0, |(_, counts)| counts.set)
        };
        let cookies = self.worker.learning.cookie_names().into_iter().map(|name| {
            let class = self.kinds.class(&name);
            let means_session = means_session(&name);
            let set_by = set_by(&name);
            (name, CookieContext { class, means_session, set_by })
        });
        let names = |patterns: &[Pattern]| patterns.iter().map(ToString::to_string).collect();
        let rules = &self.kinds.rules;
        ReportContext {
            mode: self.cache_mode().to_owned(),
            cookies: cookies.collect(),
            session_cookies: names(&rules.session),
            ignored_cookies: names(&rules.ignored),
            has_default_ttl: !self.worker.filler.policy.default_ttl.is_zero(),
        }
    }

    /// Forgets it.
    pub(super) async fn restart_learning(&self) -> Report {
        self.worker.learning.restart();
        self.learned().await
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
