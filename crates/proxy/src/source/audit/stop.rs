//! Ends the sharing of pages in which visitors see different things: in all proxies on the store, until an operator's word,
//! or until the configuration says something else of them.

use std::time::Duration;

use anteroom_cache::bypass_switch::{ALL_HOSTS, ALL_PAGES, Bypass};
use anteroom_cache::purge::scope::Scope;
use anteroom_store::bypass::{BYPASS_LASTS_MAX, BypassChange};
use anteroom_store::{BypassScope, StoppedPages};
use tokio::time::timeout;

use super::Audit;

/// How long to wait for the store.
const TIMEOUT: Duration = Duration::from_secs(3);
/// From how many patterns on a route is stopped as a whole: its pages differ by what its keys do not say.
const PATTERNS_OF_ROUTE_MAX: usize = 8;
/// The same, of all routes together: the store keeps a bounded number.
const PATTERNS_MAX: usize = 32;

impl Audit {
    /// Ends the sharing of the page and of all pages of its pattern, and purges what is stored of them.
    pub(super) async fn stop(&self, why: &str) {
        let (purged, store) = (&self.worker.pages.purged, &self.worker.store);
        let scope = BypassScope::Pages(self.pages(&purged.bypass.stopped()));
        let lasts = Some(BYPASS_LASTS_MAX);
        let change = BypassChange { scope, lasts, by: why.to_owned() };
        if let Err(error) = purged.bypass.change(store, &change, TIMEOUT).await {
            tracing::warn!(
                %error,
                pages = %change.scope,
                "these pages are not shared any more by this proxy alone: the others follow when the store takes it"
            );
        }
        // What is stored from now on is not served, and what was stored before is gone: so nothing old is there when the
        // pages are shared again.
        let target = Scope::Prefix { site: &self.page.host, path: &self.below }.purge_target(true);
        if !matches!(timeout(TIMEOUT, purged.purge(store, &[target])).await, Ok(Ok(_))) {
            tracing::warn!(
                "the other proxies learn of the purge of these pages when the store takes it"
            );
        }
        self.worker.audits.begin_again(&self.page.host, &self.page.pattern);
    }

    /// What is stopped: the pattern, or the whole route where many patterns of it are.
    fn pages(&self, stopped: &[Bypass]) -> StoppedPages {
        let rules = self.route.rules.to_string();
        let of_route = stopped
            .iter()
            .filter(|one| one.scope.pages().is_some_and(|pages| pages.rules == rules));
        let is_all = of_route.count() >= PATTERNS_OF_ROUTE_MAX || stopped.len() >= PATTERNS_MAX;
        let (host, pattern) = match is_all {
            true => (ALL_HOSTS.to_owned(), ALL_PAGES.to_owned()),
            false => (self.page.host.clone(), self.page.pattern.clone()),
        };
        StoppedPages { rules, host, pattern }
    }
}
