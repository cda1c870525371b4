//! Sums up what was learned.

use std::collections::HashMap;

use anteroom_http::clock::unix_now;
use anteroom_telemetry::reason::Reason;

use crate::cookie_verdicts::cookies;
use crate::judged::{JudgedPage, judged, keyed_everywhere};
use crate::judgement::Difference;
use crate::parameters;
use crate::proposals::Findings;
use crate::report::{
    LearnedCookieReport, LearnedPageReport, LearnedRouteReport, Proposal, Report, ReportContext,
};
use crate::routes::LearnedRoute;
use crate::sample::FieldNames;
use crate::state::{LearnedState, Learning};

/// The most pages that are told.
const PAGES_TOLD: usize = 100;

impl Learning {
    /// What was learned until now. It may take seconds, and holds no request up.
    #[must_use]
    pub fn report(&self, context: &ReportContext) -> Report {
        // PERF: each request takes the lock, and judging takes long.
        let learned = self.learned().clone();
        let noisy = noisy_fields(&learned);
        let routes = routes(&learned);
        let sum = |of: fn(&LearnedRouteReport) -> u64| routes.iter().map(of).sum::<u64>();
        let (requests, hits) = (sum(|route| route.requests), sum(|route| route.hits));
        let unknown = sum(|route| route.unknown);
        let cookies = cookies(&learned, context, &noisy);
        let keyed = keyed_everywhere(&learned, &cookies);
        let judged = judged(&learned, &cookies, &keyed, &noisy);
        let compared = judged.iter().filter(|page| page.visitors > 1);
        let count = |is_one: &dyn Fn(&Difference) -> bool| {
            compared.clone().filter(|page| page.difference.is_some_and(|one| is_one(&one))).count()
                as u64
        };
        let (compared_pages, same_pages) =
            (compared.clone().count() as u64, count(&|one| *one == Difference::Same));
        let undecided_pages = count(&|one| matches!(one, Difference::Undecided(_)));
        let uncompared_pages =
            judged.iter().filter(|page| page.difference.is_none()).count() as u64;
        let name = |place: u8| learned.cookies.name(place).map(str::to_owned);
        let pages = told_pages(&judged, &name);
        let mut cookies: Vec<LearnedCookieReport> =
            cookies.into_iter().map(|(_, told)| told).collect();
        cookies.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.name.cmp(&b.name)));
        let keyed: Vec<String> = keyed.iter().filter_map(|place| name(*place)).collect();
        let is_whole = learned.follows_all();
        let findings =
            Findings { cookies: &cookies, keyed: &keyed, name: &name, context, is_whole };
        let (mut lines, serves_rest) = findings.proposals(&judged);
        lines.extend(parameters::proposals(&learned));
        lines.extend(default_lifetime(&learned, context));
        Report {
            since: learned.since,
            at: unix_now(),
            mode: context.mode.clone(),
            followed_percent: learned.followed_percent(),
            requests,
            hits,
            unknown,
            hit_percent: percent(hits, requests.saturating_sub(unknown)),
            compared_pages,
            same_pages,
            undecided_pages,
            uncompared_pages,
            proposals: lines,
            serves_rest,
            routes,
            pages,
            cookies,
        }
    }
}

/// The fields of the head that differ each time wherever visitors return, and that nothing explains.
fn noisy_fields(learned: &LearnedState) -> FieldNames {
    let (mut noisy, mut explained) = (FieldNames::new(), FieldNames::new());
    for page in learned.pages.values() {
        let (own, not) = page.compared.fields();
        noisy.extend(own);
        explained.extend(not);
    }
    noisy.retain(|name| !explained.contains(name));
    noisy
}

fn routes(learned: &LearnedState) -> Vec<LearnedRouteReport> {
    let mut waiting: HashMap<&str, u64> = HashMap::new();
    for page in learned.pages.values() {
        *waiting.entry(&page.route).or_default() += page.simulated.waiting();
    }
    let waiting = |name: &str| waiting.get(name).copied().unwrap_or_default();
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

/// From which part of the requests on (one in so many) a missing lifetime is worth a line.
const WITHOUT_LIFETIME_PART: u64 = 50;

/// `[cache] default_ttl`, if without one many requests are forwarded.
fn default_lifetime(learned: &LearnedState, context: &ReportContext) -> Option<Proposal> {
    let sum = |of: &dyn Fn(&LearnedRoute) -> u64| {
        learned.routes.all().map(|(_, route)| of(route)).sum::<u64>()
    };
    let requests = sum(&|route| route.requests);
    let without = sum(&|route| route.reasons.get(&Reason::NoLifetime).copied().unwrap_or(0));
    let is_worth = without > 0 && without * WITHOUT_LIFETIME_PART >= requests;
    (is_worth && !context.has_default_ttl).then(|| Proposal {
        reason: format!(
            "{without} of {requests} requests {} for pages to which the app gives no lifetime, and default_ttl is 0s",
            if without == 1 { "is" } else { "are" }
        ),
        toml: "# [cache]\n# default_ttl = \"300s\"".to_owned(),
        route: None,
    })
}

fn told_pages(
    judged: &[JudgedPage<'_>],
    name: &dyn Fn(u8) -> Option<String>,
) -> Vec<LearnedPageReport> {
    let differing = judged.iter().filter(|page| page.difference > Some(Difference::Same));
    differing.take(PAGES_TOLD).map(|page| told_page(page, name)).collect()
}

fn told_page(judged: &JudgedPage<'_>, name: &dyn Fn(u8) -> Option<String>) -> LearnedPageReport {
    let (mut finding, mut cookie, mut field, mut missing) = (None, None, None, None);
    let verdict = match judged.difference {
        None | Some(Difference::Same) => "same",
        Some(Difference::Noise) => "noise",
        Some(Difference::Undecided(lack)) => {
            missing = Some(lack.as_str().to_owned());
            "undecided"
        }
        Some(Difference::Unexplained) => "differs",
        Some(Difference::SeveralCauses) => "several-causes",
        Some(Difference::ByField(by)) => {
            field = Some(by.as_str().to_owned());
            "by-field"
        }
        Some(Difference::ByCookie(place)) => {
            cookie = name(place);
            "by-cookie"
        }
        Some(Difference::ByVisitor) => "by-visitor",
        Some(Difference::OwnWords(leak)) => {
            finding = Some(leak.as_str().to_owned());
            "own-words"
        }
    };
    let page = judged.page;
    LearnedPageReport {
        host: page.name.host.clone(),
        path: page.name.path.clone(),
        parameters: page.name.parameters.clone(),
        route: page.route.to_string(),
        verdict: verdict.to_owned(),
        finding,
        cookie,
        field,
        missing,
        visitors: judged.visitors as u64,
        answers: page.compared.answers() as u64,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a percentage")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 * 1_000.0 / whole as f64).round() / 10.0 }
}
