//! The stored pages that do not fit another plan, as purges.

use anteroom_config::{Cache, Plan};
use anteroom_policy::learn::CacheMode;
use anteroom_policy::route::{Route, outdated_pages};

use anteroom_cache::purge::scope::{EVERY_SITE, PurgeTarget, Scope};

/// Pages that a reload outdates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OutdatingPurges {
    /// The purges that outdate them.
    pub(super) targets: Vec<PurgeTarget>,
    /// Their paths, for the log.
    pub(super) paths: String,
}

/// The pages that were stored under `old`, and that `next` would not store, or not for as many visitors or for
/// as long.
pub(super) fn outdated(old: &Plan, next: &Plan) -> OutdatingPurges {
    let pages = outdated_pages(&routes(old), &routes(next));
    let of_routes = pages.paths.into_iter().map(|path| (path, pages.is_hard));
    let of_cache = everything(&old.cache, &next.cache).map(|is_hard| (String::new(), is_hard));
    let scopes: Vec<(String, bool)> = of_routes.chain(of_cache).collect();
    let in_words = scopes.iter().map(|(path, _)| format!("{path}/**"));
    OutdatingPurges {
        paths: in_words.collect::<Vec<_>>().join(" "),
        targets: scopes.iter().map(|(path, is_hard)| target(path, *is_hard)).collect(),
    }
}

/// Whether what was learned under `old` says nothing of `next`: the cache would decide otherwise.
pub(super) fn teaches_another(old: &Plan, next: &Plan) -> bool {
    // Which routes learn does not change what was learned of others.
    let serving = |plan: &Plan| {
        let serve = |route: &Route| Route { mode: CacheMode::Serve, ..route.clone() };
        let cache = Cache { mode: CacheMode::Serve, ..plan.cache.clone() };
        (cache, plan.routes.iter().map(serve).collect::<Vec<_>>())
    };
    serving(old) != serving(next)
        || (&old.session, &old.origin, &old.origins) != (&next.session, &next.origin, &next.origins)
}

/// Whether all pages are outdated, and if so, whether they must not be served again.
fn everything(old: &Cache, next: &Cache) -> Option<bool> {
    let named_visitors = old.fill_client_address && !next.fill_client_address;
    let is_shorter = next.default_ttl < old.default_ttl;
    (named_visitors || is_shorter).then_some(named_visitors)
}

/// The routes of a plan; the last is that of all other requests.
fn routes(plan: &Plan) -> Vec<Route> {
    let rest = Route { trust_public: plan.cache.trust_public, ..Route::default() };
    plan.routes.iter().cloned().chain([rest]).collect()
}

/// The purge of a path and all paths below it, on every site.
fn target(path: &str, is_hard: bool) -> PurgeTarget {
    let scope = match path {
        "" => Scope::Everything,
        path => Scope::Prefix { site: EVERY_SITE, path },
    };
    scope.purge_target(is_hard)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_setting_of_all_pages_outdates_all_pages() {
        let usual = Cache::default();
        let address = Cache { fill_client_address: true, ..usual.clone() };
        let short = Cache { default_ttl: Duration::from_secs(1), ..usual.clone() };
        for (old, next, is_hard) in [
            (&usual, &short, Some(false)),
            (&short, &usual, None),
            (&address, &usual, Some(true)),
            (&usual, &address, None),
            (&usual, &usual, None),
        ] {
            assert_eq!(everything(old, next), is_hard, "{old:?} {next:?}");
        }
    }
}
