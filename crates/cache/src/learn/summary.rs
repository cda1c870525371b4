//! Sums up what was learned.

use std::collections::HashMap;

use anteroom_http::clock::unix_now;

use super::answer::{CookieEffect, Difference};
use super::cookies::LearnedCookie;
use super::parameters;
use super::proposals::proposals;
use super::report::{
    LearnedCookieReport, LearnedPageReport, LearnedRouteReport, Report, ReportContext,
};
use super::routes::LearnedRoute;
use super::state::{Learned, LearnedPage, Learning};

/// The most pages that are told.
const PAGES_TOLD: usize = 100;
/// From how many pages that are the same with and without a cookie on it counts as harmless.
const SURE_PAGES: u64 = 3;
/// The same, of addresses and browsers that it came from: one visitor alone may make a cookie up.
const SURE_VISITORS: usize = 2;

impl Learning {
    /// What was learned until now.
    #[must_use]
    pub fn report(&self, context: &ReportContext<'_>) -> Report {
        let learned = self.learned();
        let routes = routes(&learned);
        let sum = |of: fn(&LearnedRouteReport) -> u64| routes.iter().map(of).sum::<u64>();
        let (requests, hits) = (sum(|route| route.requests), sum(|route| route.hits));
        let unknown = sum(|route| route.unknown);
        let several = learned.pages.values().filter(|page| page.compared.is_compared());
        let count = |difference: Option<Difference>| {
            several.clone().filter(|page| page.compared.difference() == difference).count() as u64
        };
        let (pages, cookies) = (pages(&learned), cookies(&learned, context));
        let mut lines = proposals(&pages, &cookies, context);
        lines.extend(parameters::proposals(&learned));
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
            same_pages: count(Some(Difference::Same)),
            undecided_pages: count(None),
            proposals: lines,
            routes,
            pages,
            cookies,
        }
    }
}

fn routes(learned: &Learned) -> Vec<LearnedRouteReport> {
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

fn pages(learned: &Learned) -> Vec<LearnedPageReport> {
    let shared = learned.pages.values().filter(|page| page.simulated.may_be_stored());
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
    let class = (context.class)(&cookie.name);
    // What a cookie does on pages that are never shared is no reason not to ignore it any more.
    let counts = |page: &&LearnedPage| class != "harmless" || page.simulated.is_stored();
    let (mut same, mut differ, mut likely) = (0, 0, 0);
    for page in learned.pages.values().filter(counts) {
        match page.compared.effect(place) {
            Some(CookieEffect::Same) => same += 1,
            Some(CookieEffect::Differs) => differ += 1,
            Some(CookieEffect::Likely) => likely += 1,
            Some(CookieEffect::Unclear) | None => {}
        }
    }
    let lives_for = learned.cookies.lives_for(&cookie.name);
    let verdict = match (same, differ) {
        (_, 1..) if cookie.is_own() => "session",
        (_, 1..) => "keyed",
        (_, 0) if likely > 0 => "unclear",
        (SURE_PAGES.., 0) if (context.means_session)(&cookie.name) => "unclear",
        (SURE_PAGES.., 0) if cookie.visitors.len() < SURE_VISITORS => "unclear",
        (SURE_PAGES.., 0) if lives_for.is_some() => "unclear",
        (SURE_PAGES.., 0) => "harmless",
        (_, 0) => "unclear",
    };
    let text = match verdict {
        "session" => format!(
            "nearly each visitor has a value of its own, and {differ} of {} pages differ by it",
            same + differ
        ),
        "keyed" => format!(
            "few values for many visitors, and {differ} of {} pages differ by it",
            same + differ
        ),
        "harmless" => format!("{same} pages are the same with and without it"),
        _ if likely > 0 => format!("of {} pages, {likely} seem to differ by it", same + likely),
        _ if same >= SURE_PAGES && lives_for.is_some() => format!(
            "{same} pages are the same with and without it, but the app sets it for {} s only, to say something to \
             the next pages",
            lives_for.unwrap_or_default()
        ),
        _ if same >= SURE_PAGES && !(context.means_session)(&cookie.name) => {
            format!(
                "{same} pages are the same with and without it, but one visitor alone has sent it"
            )
        }
        _ if same >= SURE_PAGES => format!(
            "{same} pages are the same with and without it, but its name is that of a session, in which an app may \
             keep a cart or a log-in"
        ),
        _ => format!(
            "{same} pages are the same with and without it; {SURE_PAGES} are needed to say that it is harmless"
        ),
    };
    LearnedCookieReport {
        name: cookie.name.clone(),
        class: class.to_owned(),
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
