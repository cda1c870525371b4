//! Hashes of a plan's settings, by which the proxies of a fleet compare their configurations.
//!
//! A setting at its default counts as absent, so that versions with other keys compare what both of them know.

use std::collections::BTreeMap;

use anteroom_http::ident::hex;
use anteroom_policy::route::{Route, Ttl, for_pages};
use sha2::{Digest as _, Sha256};

use super::lines::Lines;
use super::plan::{OriginUrl, Plan};

/// What all proxies on one store must have alike: how the data in the store are read, and who a visitor is.
const ALIKE: [&str; 11] = [
    "store.layout",
    "store.next",
    "session.token_storage",
    "session.viewed_items",
    "session.cookie",
    "session.mint",
    "session.per_host",
    "session.token_from",
    "session.part",
    "session.verify",
    "rows",
];
/// The tables whose settings are compared.
const TABLES: [&str; 16] = [
    "acme",
    "client",
    "origin",
    "origins",
    "store",
    "session",
    "visitor",
    "cache",
    "views",
    "route",
    "cookies",
    "databases",
    "rows",
    "purge",
    "errors",
    "limits",
];
/// What may differ between machines.
const OWN: [&str; 8] = [
    "acme.ca",
    "acme.dns_hook",
    "acme.folder",
    "store.url",
    "store.pages_url",
    "store.next.url",
    "store.next.pages_url",
    "errors.pages",
];
/// Parts of values that say where a machine has a file, or a secret.
const PLACES: [&str; 3] = ["{ file =", "{ env =", "\"file:"];

/// Hashes of settings, by their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Each setting that all proxies on a store must have alike.
    pub alike: BTreeMap<String, String>,
    /// Each table of the configuration.
    pub tables: BTreeMap<String, String>,
}

/// The hashes of `plan`. Secrets, and what may differ between machines (listeners, threads, paths of files, the log
/// and the admin interface), are not in them.
#[must_use]
pub fn fingerprint(plan: &Plan) -> Fingerprint {
    let usual = Lines::of(&Plan::new(OriginUrl::default()));
    let mut lines = Lines::of(plan);
    lines.retain(|line @ (path, value)| {
        // Each machine may have a replica of its own.
        let is_database = path.starts_with("databases.") && path.ends_with(".url");
        let is_own = OWN.contains(&path.as_str()) || is_database;
        !(is_own || PLACES.iter().any(|place| value.contains(place)) || usual.contains(line))
    });
    let hashes = |names: &[&str]| {
        let hash = |name: &&str| ((*name).to_owned(), hash_of(&lines, name));
        names.iter().map(hash).collect()
    };
    Fingerprint { alike: hashes(&ALIKE), tables: hashes(&TABLES) }
}

/// What decides for all routes what their pages hold, and which visitors share them.
const OF_ALL_PAGES: [&str; 9] = [
    "cache.unknown_cookies",
    "cache.trust_public",
    "cache.static_for_all",
    "cache.fill_client_address",
    "cache.ignore_cookies",
    "cache.ignore_query",
    "cache.identity_headers",
    "session.app",
    "session.cookie",
];

/// For each route, and last for what none matches, a hash of all keys that decide what its pages hold and which visitors
/// share them. Keys at their defaults do not count, so that it stays the same in versions with other keys.
#[must_use]
pub fn page_rules(plan: &Plan) -> Vec<String> {
    // Lifetimes say nothing of who shares a page.
    let of_route = |route: &Route| Route {
        query_rule: route.query_rule.clone(),
        ttl: Ttl::default(),
        override_ttl: None,
        ..for_pages(route)
    };
    let routes = plan.routes.iter().map(of_route).collect();
    let lines = Lines::of(&Plan { routes, ..plan.clone() });
    let usual = Lines::of(&Plan::new(OriginUrl::default()));
    let of_all = lines
        .iter()
        .filter(|line| OF_ALL_PAGES.contains(&line.0.as_str()) && !usual.contains(line));
    let of_all: Vec<(String, String)> = of_all.cloned().collect();
    let rules = |place: Option<usize>| {
        let own = place.map(|place| format!("route[{place}]."));
        let own = lines.iter().filter_map(|(path, value)| {
            Some((format!("route.{}", path.strip_prefix(own.as_deref()?)?), value.clone()))
        });
        let all: Vec<_> = of_all.iter().cloned().chain(own).collect();
        hash_of_all(all.iter())
    };
    (0..plan.routes.len()).map(Some).chain([None]).map(rules).collect()
}

/// The hash of a key, or of all keys of a table.
fn hash_of(lines: &[(String, String)], name: &str) -> String {
    let is_of = |(path, _): &&(String, String)| {
        let rest = path.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    hash_of_all(lines.iter().filter(is_of))
}

fn hash_of_all<'l>(lines: impl Iterator<Item = &'l (String, String)>) -> String {
    let mut hash = Sha256::new();
    for (path, value) in lines {
        // Lengths, so that no two lists of lines are read as the same bytes.
        hash.update((path.len() as u64).to_be_bytes());
        hash.update(path);
        hash.update((value.len() as u64).to_be_bytes());
        hash.update(value);
    }
    hex(&hash.finalize()[..4])
}
