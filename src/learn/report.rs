//! What was learned, for the operator.

use serde::{Deserialize, Serialize};

use super::compared::{CookieEffect, Difference};
use super::cookies::LearnedCookie;
use super::proposals::proposals;
use super::routes::LearnedRoute;
use super::state::{Learned, LearnedPage, Learning};
use crate::clock::unix_now;

/// The most pages that are told.
const PAGES_TOLD: usize = 100;
/// From how many pages that are the same with and without a cookie on it counts as harmless.
const SURE_PAGES: u64 = 3;

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
    /// Pages that would be shared and that differ, the worst first.
    pub pages: Vec<LearnedPageReport>,
    /// The cookies, the most frequent first.
    pub cookies: Vec<LearnedCookieReport>,
    /// What to write into the configuration.
    pub proposals: Vec<Proposal>,
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
    /// How it differs: `own-words`, `by-visitor`, `by-cookie`, `differs` or `noise`.
    pub verdict: String,
    /// What of the visitor's own words stands in it.
    pub finding: Option<String>,
    /// The cookie that it differs by.
    pub cookie: Option<String>,
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
    /// Pages that are the same with and without it.
    pub pages_same: u64,
    /// Pages that differ by it.
    pub pages_differ: u64,
    /// What it is, by these pages: `session`, `harmless`, `keyed` or `unclear`.
    pub verdict: String,
    /// The same in words.
    pub text: String,
}

/// Lines for the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// Why.
    pub reason: String,
    /// The lines.
    pub toml: String,
}

/// What the report needs besides what was learned.
pub struct ReportContext<'c> {
    /// The mode in force.
    pub mode: &'c str,
    /// The class of a cookie by the configuration in force.
    pub class: &'c dyn Fn(&str) -> &'static str,
    /// How many pages set a cookie.
    pub set_by: &'c dyn Fn(&str) -> u64,
    /// The names in `[session] cookie`.
    pub session_cookies: Vec<String>,
    /// The names in `[cache] ignore_cookies`.
    pub ignored_cookies: Vec<String>,
}

impl std::fmt::Debug for ReportContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReportContext").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Learning {
    /// What was learned until now.
    #[must_use]
    pub fn report(&self, context: &ReportContext<'_>) -> Report {
        let learned = self.learned();
        let routes = routes(&learned);
        let sum = |of: fn(&LearnedRouteReport) -> u64| routes.iter().map(of).sum::<u64>();
        let (requests, hits) = (sum(|route| route.requests), sum(|route| route.hits));
        let unknown = sum(|route| route.unknown);
        let several = learned.pages.values().filter(|page| page.compared.visitors() > 1);
        let is_same = |page: &&LearnedPage| page.compared.difference() == Some(Difference::Same);
        let (pages, cookies) = (pages(&learned), cookies(&learned, context));
        Report {
            since: learned.since,
            at: unix_now(),
            mode: context.mode.to_owned(),
            followed_percent: learned.followed_percent(),
            requests,
            hits,
            unknown,
            hit_percent: percent(hits, requests.saturating_sub(unknown)),
            compared_pages: several.clone().count() as u64,
            same_pages: several.filter(is_same).count() as u64,
            proposals: proposals(&pages, &cookies, context),
            routes,
            pages,
            cookies,
        }
    }
}

fn routes(learned: &Learned) -> Vec<LearnedRouteReport> {
    let waiting = |name: &str| -> u64 {
        let own = learned.pages.values().filter(|page| *page.route == *name);
        own.map(|page| page.simulated.waiting()).sum()
    };
    let told = learned.routes.all().map(|(name, route)| told_route(name, route, waiting(name)));
    let mut routes: Vec<_> = told.collect();
    routes.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.name.cmp(&b.name)));
    routes
}

/// Requests of URLs that are not followed count like those that are.
fn told_route(name: &str, route: &LearnedRoute, waiting: u64) -> LearnedRouteReport {
    let unknown = waiting + route.lost;
    let followed = route.hits + route.fetches + unknown;
    let whole = |part: u64| part + (part * route.unfollowed).checked_div(followed).unwrap_or(0);
    let mut reasons: Vec<_> =
        route.reasons.iter().map(|(reason, count)| (reason.as_str().to_owned(), *count)).collect();
    reasons.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    LearnedRouteReport {
        name: name.to_owned(),
        requests: route.requests,
        hits: whole(route.hits),
        fetches: whole(route.fetches),
        unknown: whole(unknown),
        hit_percent: percent(whole(route.hits), route.requests.saturating_sub(whole(unknown))),
        saved_seconds: route.saved.as_secs_f64(),
        saved_bytes: route.saved_bytes,
        reasons,
    }
}

fn pages(learned: &Learned) -> Vec<LearnedPageReport> {
    let shared = learned.pages.values().filter(|page| page.simulated.is_stored());
    let differing = shared.filter_map(|page| {
        let difference = page.compared.difference()?;
        (difference != Difference::Same).then_some((difference, page))
    });
    let mut differing: Vec<_> = differing.collect();
    differing
        .sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| one.name.path.cmp(&other.name.path)));
    differing.truncate(PAGES_TOLD);
    differing.into_iter().map(|(difference, page)| told_page(learned, difference, page)).collect()
}

fn told_page(learned: &Learned, difference: Difference, page: &LearnedPage) -> LearnedPageReport {
    let (verdict, finding, cookie) = match difference {
        Difference::Same => ("same", None, None),
        Difference::Noise => ("noise", None, None),
        Difference::Unexplained => ("differs", None, None),
        Difference::ByCookie(place) => ("by-cookie", None, learned.cookies.name(place)),
        Difference::ByVisitor => ("by-visitor", None, None),
        Difference::OwnWords(leak) => ("own-words", Some(leak.as_str()), None),
    };
    LearnedPageReport {
        host: page.name.host.clone(),
        path: page.name.path.clone(),
        parameters: page.name.parameters.clone(),
        route: page.route.to_string(),
        verdict: verdict.to_owned(),
        finding: finding.map(str::to_owned),
        cookie: cookie.map(str::to_owned),
        visitors: page.compared.visitors() as u64,
        answers: page.compared.answers() as u64,
    }
}

fn cookies(learned: &Learned, context: &ReportContext<'_>) -> Vec<LearnedCookieReport> {
    let told = learned.cookies.all().iter().zip(0..);
    let mut cookies: Vec<_> =
        told.map(|(cookie, place)| told_cookie(learned, (cookie, place), context)).collect();
    cookies.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.name.cmp(&b.name)));
    cookies
}

fn told_cookie(
    learned: &Learned,
    (cookie, place): (&LearnedCookie, u32),
    context: &ReportContext<'_>,
) -> LearnedCookieReport {
    let effects = || learned.pages.values().filter_map(|page| page.compared.effect(place));
    let count = |effect| effects().filter(|one| *one == effect).count() as u64;
    let (same, differ) = (count(CookieEffect::Same), count(CookieEffect::Differs));
    let verdict = match (same, differ) {
        (_, 1..) if cookie.is_own() => "session",
        (_, 1..) => "keyed",
        (SURE_PAGES.., 0) => "harmless",
        (_, 0) => "unclear",
    };
    let text = match verdict {
        "session" => format!(
            "nearly each visitor has a value of its own, and {differ} of {} pages differ by it",
            same + differ
        ),
        "keyed" => format!(
            "{} values, and {differ} of {} pages differ by it",
            cookie.values.len(),
            same + differ
        ),
        "harmless" => format!("{same} pages are the same with and without it"),
        _ => format!(
            "{same} pages are the same with and without it; {SURE_PAGES} are needed to say that it is harmless"
        ),
    };
    LearnedCookieReport {
        name: cookie.name.clone(),
        class: (context.class)(&cookie.name).to_owned(),
        requests: cookie.requests,
        set_by: (context.set_by)(&cookie.name),
        pages_same: same,
        pages_differ: differ,
        verdict: verdict.to_owned(),
        text,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a percentage")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 * 1_000.0 / whole as f64).round() / 10.0 }
}
