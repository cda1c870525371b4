//! Ends the sharing of pages in which visitors see different things: in all proxies on the store, until an operator's word,
//! or until the configuration says something else of them.

use std::time::Duration;

use anteroom_cache::bypass_switch::{Bypass, all_pages};
use anteroom_cache::purge::scope::{EVERY_SITE, PurgeTarget, Scope};
use anteroom_policy::route::Route;
use anteroom_store::bypass::{BYPASS_LASTS_MAX, BypassChange};
use anteroom_store::{BypassScope, StoppedPages};
use tokio::time::timeout;

use super::Audit;

/// How long to wait for the store.
const TIMEOUT: Duration = Duration::from_secs(3);
/// From how many patterns on a route is stopped as a whole: its pages differ by what its keys do not say.
const PATTERNS_OF_ROUTE_MAX: usize = 8;

/// What is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopExtent {
    /// The page with all its queries.
    Page,
    /// All pages of its pattern.
    Pattern,
}

impl Audit {
    /// Ends the sharing of the page, or of all pages of its pattern, and purges what is stored of them.
    pub(super) async fn stop(&self, extent: StopExtent, why: &str) {
        let (switch, host) = (&self.worker.pages.purged.bypass, &self.page.host);
        let digests = match extent {
            StopExtent::Page => self.digests.clone(),
            // A stop of the page alone is not enough.
            StopExtent::Pattern => [self.digests[1].clone(), self.digests[1].clone()],
        };
        // Another comparison may have been faster.
        if !switch.stops(&self.route.rules, host, || digests) {
            let (stopped, purged) = self.stopped(extent, &switch.stopped());
            self.change(stopped, why).await;
            self.purge(&purged).await;
        }
    }

    /// What is stopped, and what is purged with it; the whole route where many patterns of it are.
    fn stopped(&self, extent: StopExtent, stopped: &[Bypass]) -> (StoppedPages, Vec<PurgeTarget>) {
        let (rules, site) = (&self.route.rules, &self.page.host);
        let is_kind = |one: &&Bypass| {
            let pages = one.scope.pages();
            pages.is_some_and(|pages| pages.rules == **rules && pages.pattern.contains('*'))
        };
        let kinds = stopped.iter().filter(is_kind).count();
        if extent == StopExtent::Pattern && kinds >= PATTERNS_OF_ROUTE_MAX {
            return (all_pages(rules), pages_of(&self.route, site));
        }
        let (digest, pattern, below) = match extent {
            StopExtent::Page => (&self.digests[0], &self.page.path, ""),
            StopExtent::Pattern => (&self.digests[1], &self.page.pattern, self.below.as_str()),
        };
        let pages = StoppedPages {
            rules: rules.to_string(),
            host: site.clone(),
            digest: digest.clone(),
            pattern: pattern.clone(),
        };
        // A prefix that is empty has all pages of the site.
        let page = Scope::Url { site, path: &self.path, query: &self.query };
        let prefix = Scope::Prefix { site, path: below };
        let scopes = [Some(page), (!below.is_empty()).then_some(prefix)];
        (pages, scopes.iter().flatten().map(|scope| scope.purge_target(true)).collect())
    }

    async fn change(&self, pages: StoppedPages, why: &str) {
        let lasts = Some(BYPASS_LASTS_MAX);
        let change = BypassChange { scope: BypassScope::Pages(pages), lasts, by: why.to_owned() };
        let switch = &self.worker.pages.purged.bypass;
        if let Err(error) = switch.change(&self.worker.store, &change, TIMEOUT).await {
            tracing::warn!(
                %error,
                pages = %change.scope,
                "these pages are not shared any more by this proxy alone: the others follow when the store takes it"
            );
        }
    }

    /// Now that the stop is in force, nothing new is stored; what was stored before goes.
    async fn purge(&self, targets: &[PurgeTarget]) {
        let purge = self.worker.pages.purged.purge(&self.worker.store, targets);
        if !matches!(timeout(TIMEOUT, purge).await, Ok(Ok(_))) {
            tracing::warn!(
                "the other proxies learn of the purge of these pages when the store takes it"
            );
        }
    }
}

/// All pages that a route may have; where it matches any path, those of the site.
fn pages_of(route: &Route, site: &str) -> Vec<PurgeTarget> {
    let below = |site: &str, path: &str| Scope::Prefix { site, path }.purge_target(true);
    match route.paths.as_slice() {
        [] => vec![below(site, "")],
        paths => paths.iter().map(|path| below(EVERY_SITE, &path.branch())).collect(),
    }
}
