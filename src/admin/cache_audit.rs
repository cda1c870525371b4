//! What the audit of hits has found, and the order to share pages again that it has stopped.

use std::time::Duration;

use ::http::StatusCode;
use anteroom_cache::bypass_switch::Bypass;
use anteroom_learn::audit::{AuditReport, StoppedPattern};
use anteroom_store::bypass::BypassChange;
use serde::{Deserialize, Serialize};

use super::commands::{CommandRefusal, Commands, bad, read};

/// How long to wait for the store.
const TIMEOUT: Duration = Duration::from_secs(3);

/// An order to share pages again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumeOrder {
    /// The site; `None`: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The pattern, as the report has it; `None`: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// The name of the route; `None`: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
}

impl ResumeOrder {
    fn is_for(&self, one: &StoppedPattern) -> bool {
        let is = |asked: &Option<String>, is: &str| asked.as_deref().is_none_or(|one| one == is);
        is(&self.host, &one.host) && is(&self.pattern, &one.pattern) && is(&self.route, &one.route)
    }
}

impl Commands {
    /// What was found by this process, and what is stopped in all proxies on the store.
    pub(super) fn cache_audit(&self) -> AuditReport {
        let stopped = self.worker.pages.purged.bypass.stopped();
        let stopped = stopped.iter().filter_map(|one| self.stopped_pattern(one)).collect();
        AuditReport { stopped, ..self.worker.audits.report() }
    }

    fn stopped_pattern(&self, one: &Bypass) -> Option<StoppedPattern> {
        let pages = one.scope.pages()?;
        let mut routes = self.worker.settings.routes.all();
        let route = routes.find(|route| *route.rules == *pages.rules)?;
        Some(StoppedPattern {
            host: pages.host.clone(),
            pattern: pages.pattern.clone(),
            route: route.name.to_string(),
            by: one.by.clone(),
            only_here: one.only_here,
        })
    }

    /// Lets pages be shared again that the audit has stopped, in all proxies on the store.
    pub(super) async fn resume_sharing(
        &self,
        operator: &str,
        body: &[u8],
    ) -> Result<AuditReport, CommandRefusal> {
        let order: ResumeOrder = read(body)?;
        let bypass = &self.worker.pages.purged.bypass;
        let is_meant =
            |one: &Bypass| self.stopped_pattern(one).is_some_and(|told| order.is_for(&told));
        let stopped: Vec<Bypass> = bypass.stopped().into_iter().filter(is_meant).collect();
        if stopped.is_empty() {
            let why = "the audit has stopped no such pages; anteroom audit lists those it has";
            return Err(bad(&why));
        }
        let mut failed = None;
        for one in stopped {
            let pages = one.scope.to_string();
            let change = BypassChange { scope: one.scope, lasts: None, by: operator.to_owned() };
            if let Err(error) = bypass.change(&self.store, &change, TIMEOUT).await {
                failed = Some(error);
            }
            tracing::info!(pages, by = operator, "pages are shared again by order");
        }
        match failed {
            None => Ok(self.cache_audit()),
            Some(error) => {
                let why = format!(
                    "the pages are shared again by this proxy alone, and the others could not be told: {error}; they \
                     follow when the store is back"
                );
                Err((StatusCode::SERVICE_UNAVAILABLE, why))
            }
        }
    }
}
