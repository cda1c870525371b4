//! What was learned, as the operator gets it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// From which part of them on (one in so many) pages depend on an ignored cookie.
const MANY_PART: u64 = 5;

/// `1 page is`, `3 pages are`.
pub(crate) fn pages_are(count: u64) -> String {
    if count == 1 { "1 page is".to_owned() } else { format!("{count} pages are") }
}

/// What was learned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The Unix time at which learning began.
    pub since: f64,
    /// The Unix time of the report.
    pub at: f64,
    /// `learn`, `mirror` or `serve`: the mode of all routes; `mixed`: some learn.
    pub mode: String,
    /// The share of URLs that are followed, in percent: half as many each time that there is no room.
    pub followed_percent: f64,
    /// Requests of routes that learn.
    pub requests: u64,
    /// Those that the cache would have answered.
    pub hits: u64,
    /// Those that it would have looked up, and whose result is not known: no answer showed what a fetch would get.
    pub unknown: u64,
    /// The share of hits among the requests whose result is known, in percent.
    pub hit_percent: f64,
    /// The routes, the busiest first.
    pub routes: Vec<LearnedRouteReport>,
    /// Pages of which answers to two visitors were compared.
    pub compared_pages: u64,
    /// Those that were the same for all.
    pub same_pages: u64,
    /// Those that differ, where it is not decided yet whether that is noise.
    #[serde(default)]
    pub undecided_pages: u64,
    /// Pages that would be stored and that one visitor alone has asked for: nothing is compared.
    #[serde(default)]
    pub uncompared_pages: u64,
    /// Pages that would be shared and that differ, the worst first.
    pub pages: Vec<LearnedPageReport>,
    /// The cookies, the most frequent first.
    pub cookies: Vec<LearnedCookieReport>,
    /// What to write into the configuration.
    pub proposals: Vec<Proposal>,
    /// Whether a page that no route of these matches is served in the written configuration; otherwise it learns on.
    #[serde(default)]
    pub serves_rest: bool,
}

/// A route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LearnedRouteReport {
    /// Its name.
    pub name: String,
    /// Requests.
    pub requests: u64,
    /// Those that the cache would have answered.
    pub hits: u64,
    /// Those that would have fetched a page for it.
    pub fetches: u64,
    /// Those whose result is not known.
    pub unknown: u64,
    /// The share of hits among the requests whose result is known, in percent.
    pub hit_percent: f64,
    /// What the origin took for the hits.
    pub saved_seconds: f64,
    /// The bytes of the hits.
    pub saved_bytes: u64,
    /// Why the others would have been forwarded, the most frequent reason first.
    pub reasons: Vec<(String, u64)>,
}

/// A page that would be shared and that differs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LearnedPageReport {
    /// The site.
    pub host: String,
    /// The path.
    pub path: String,
    /// Names of query parameters.
    pub parameters: Vec<String>,
    /// The route.
    pub route: String,
    /// How it differs: `own-words`, `by-visitor`, `by-cookie`, `by-field`, `several-causes`, `differs`, `undecided` or
    /// `noise`.
    pub verdict: String,
    /// What of the visitor's own words stands in it.
    pub finding: Option<String>,
    /// The cookie that it differs by.
    pub cookie: Option<String>,
    /// The field of the request that it differs by, or `address`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What a decision lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Visitors whose answers were compared.
    pub visitors: u64,
    /// Their answers.
    pub answers: u64,
}

/// A cookie.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LearnedCookieReport {
    /// Its name; a `*` stands for an id at its end.
    pub name: String,
    /// What the configuration takes it for: `session`, `harmless`, `keyed` or `unknown`.
    pub class: String,
    /// Requests that it came with.
    pub requests: u64,
    /// Pages that set it.
    pub set_by: u64,
    /// Pages that are the same with different values of it.
    pub pages_same: u64,
    /// Pages that differ by it.
    pub pages_differ: u64,
    /// Pages that differ, and where it may be the cause.
    #[serde(default)]
    pub pages_unclear: u64,
    /// Paths of some pages that differ by it, or may; empty if none does.
    #[serde(default)]
    pub examples: Vec<String>,
    /// What it is, by these pages: `session`, `harmless`, `keyed` or `unclear`.
    pub verdict: String,
    /// The same in words.
    pub text: String,
}

impl LearnedCookieReport {
    /// Whether what pages show of a cookie is said of the cookie, and not of these pages. Where the configuration ignores it,
    /// few of many pages are no reason not to: these get routes of their own.
    pub(crate) fn shows_pages_depend(&self) -> bool {
        let (same, differ) = (self.pages_same, self.pages_differ);
        let is_many = differ * MANY_PART >= same + differ;
        differ > 0 && (is_many || self.class != "harmless")
    }
}

/// Lines for the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// Why.
    pub reason: String,
    /// The lines.
    pub toml: String,
    /// The route whose pages a `[[route]]` in the lines takes, and whose other keys it keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
}

/// What the report needs besides what was learned.
#[derive(Clone, Debug, Default)]
pub struct ReportContext {
    /// The mode in force.
    pub mode: String,
    /// What is known of the cookies that came, by their names.
    pub cookies: HashMap<String, CookieContext>,
    /// The names in `[session] cookie`.
    pub session_cookies: Vec<String>,
    /// The names in `[cache] ignore_cookies`.
    pub ignored_cookies: Vec<String>,
    /// Whether a page to which the app gives no lifetime has one.
    pub has_default_ttl: bool,
}

/// What is known of a cookie besides what was learned.
#[derive(Clone, Copy, Debug)]
pub struct CookieContext {
    /// Its class by the configuration in force.
    pub class: &'static str,
    /// Whether apps call a session cookie so.
    pub means_session: bool,
    /// How many pages set it.
    pub set_by: u64,
}

impl Default for CookieContext {
    fn default() -> Self {
        Self { class: "unknown", means_session: false, set_by: 0 }
    }
}

impl ReportContext {
    /// What is known of a cookie.
    pub(crate) fn of(&self, name: &str) -> CookieContext {
        self.cookies.get(name).copied().unwrap_or_default()
    }
}
