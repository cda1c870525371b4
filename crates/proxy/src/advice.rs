//! What to change on a route whose requests the cache does not answer, in lines of `proxy.toml`.

use anteroom_policy::login::LoginRules;
use anteroom_policy::route::Routes;
use anteroom_telemetry::metrics::RouteTotals;
use anteroom_telemetry::metrics::histogram::Durations;
use anteroom_telemetry::misses::MissedUrl;
use anteroom_telemetry::reason::Reason;
use anteroom_telemetry::remedies::{Change, Lines, NAME_THE_SESSION, VERIFY_LINES, text_of};
use serde::{Deserialize, Serialize};

use super::cookie_report::{CookieReport, means_session};
use super::settings::ProxySettings;

/// The lines against a default lifetime of nothing.
const DEFAULT_TTL: &str = "[cache]\ndefault_ttl = \"300s\"";
const WITHOUT_DEFAULT_TTL: &str = "[cache] default_ttl is 0s, so that only pages are stored to which the app gives a lifetime. Where most pages may be \
     stored, one line for all is this";

/// A reason stands in the way from this part of a route's requests on, in percent.
const WORTH_SAYING: u64 = 2;
/// The most cookies that a line names.
const COOKIES_MAX: usize = 8;

/// What to change on a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// The reason that keeps most requests from the cache, of those that a change helps against.
    pub reason: String,
    /// What it means, and when the change is right.
    pub text: String,
    /// What to write into `proxy.toml`.
    pub toml: Option<String>,
}

/// The most patterns of paths that a route gets.
const PATTERNS_MAX: usize = 8;
/// So many patterns that all pages are meant, where the lines may stand for all.
const ALL_MIN: usize = 3;
/// The patterns are those of the most missed pages, until they are this part of the missed requests, in percent.
const MISSED_PART: u64 = 90;

/// What to change on a route, by what was counted there; `None`: nothing. `has_default_ttl`: whether a page to which the app
/// gives no lifetime has one.
#[must_use]
pub fn advice(
    settings: &ProxySettings,
    has_default_ttl: bool,
    counted: &RouteTotals,
    misses: &[MissedUrl],
    cookies: &CookieReport,
) -> Option<Advice> {
    let requests: u64 = counted.times.iter().map(Durations::count).sum();
    let nothing = Findings::default();
    let in_the_way = |(reason, count): &(Reason, u64)| {
        count * 100 >= requests * WORTH_SAYING && change(*reason, &nothing).is_some()
    };
    let (reason, _) = counted.top_reasons().into_iter().find(in_the_way)?;
    let missed = misses
        .iter()
        .filter(|url| url.route.as_ref() == Some(&counted.name) && url.reason == reason);
    let verify_path = settings.verify.as_ref().map(|verify| verify.target.path());
    let (of_sessions, missed): (Vec<_>, Vec<_>) =
        missed.partition(|url| is_of_sessions(&settings.watched, verify_path, &url.path));
    if missed.is_empty() && !of_sessions.is_empty() {
        return None;
    }
    let place = RoutePlace::of(&settings.routes, counted, missed.into_iter());
    let asks_app = settings.verify.is_some() || settings.minted.is_some();
    let why = text_of(reason).meaning;
    let (when, toml) = match reason == Reason::NoLifetime && !has_default_ttl {
        true => (WITHOUT_DEFAULT_TTL, Some(DEFAULT_TTL.to_owned())),
        false => change(reason, &Findings { place, blocking: blocking(cookies), asks_app })?,
    };
    Some(Advice {
        reason: reason.as_str().to_owned(),
        text: format!("{}{}. {when}.", why[..1].to_uppercase(), &why[1..]),
        toml,
    })
}

/// Whether visitors log in or out by requests for a path, or the app tells there who they are. No advice names it: a
/// log-out that the cache answers does not reach the app.
fn is_of_sessions(watched: &LoginRules, verify_path: Option<&str>, path: &str) -> bool {
    let logins = watched.login.iter().flat_map(|rule| &rule.matching.paths);
    let mut all = logins.chain(watched.logout.iter().flat_map(|rule| &rule.matching.paths));
    all.any(|pattern| pattern.matches(path).is_some()) || verify_path == Some(path)
}

/// What a change depends on, besides its reason.
#[derive(Debug, Default)]
struct Findings {
    place: RoutePlace,
    /// The unknown cookies that kept requests from the cache.
    blocking: Vec<String>,
    /// Whether it is configured how the user of a session is found out.
    asks_app: bool,
}

/// Where a line for a route stands.
#[derive(Debug, Default)]
struct RoutePlace {
    /// The name of the `[[route]]` that has it; empty: a new one, for `path`.
    name: String,
    paths: Vec<String>,
}

impl RoutePlace {
    fn of<'m>(
        routes: &Routes,
        counted: &RouteTotals,
        missed: impl Iterator<Item = &'m MissedUrl>,
    ) -> Self {
        let named = routes.listed().find(|route| route.name == counted.name);
        let is_own = named.is_some_and(|route| !route.paths.is_empty());
        let name = if is_own { counted.name.to_string() } else { String::new() };
        Self { name, paths: patterns(missed) }
    }

    /// A line of the route.
    fn with(&self, line: &str) -> String {
        if !self.name.is_empty() {
            return format!("# in the [[route]] named {:?}:\n{line}", self.name);
        }
        let quoted = |path: &String| format!("{path:?}");
        let paths = match self.paths.as_slice() {
            [] => "\"/…\"".to_owned(),
            // A default lifetime is safe for all pages; what replaces the app's word is not.
            paths if paths.len() >= ALL_MIN && line.starts_with("ttl") => "\"/**\"".to_owned(),
            [path] => quoted(path),
            paths => format!("[{}]", paths.iter().map(quoted).collect::<Vec<_>>().join(", ")),
        };
        format!("[[route]]\nmatch.path = {paths}\n{line}")
    }
}

/// The patterns of most of the missed requests, the most missed first.
fn patterns<'m>(missed: impl Iterator<Item = &'m MissedUrl>) -> Vec<String> {
    let mut counts: Vec<(u64, String)> = Vec::new();
    let mut all = 0;
    for url in missed {
        let pattern = pattern(&url.path);
        all += url.count;
        match counts.iter_mut().find(|(_, known)| *known == pattern) {
            Some((count, _)) => *count += url.count,
            None => counts.push((url.count, pattern)),
        }
    }
    counts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let mut told = 0;
    let worth = counts.into_iter().take(PATTERNS_MAX).take_while(|(count, _)| {
        let is_worth = told * 100 < all * MISSED_PART;
        told += count;
        is_worth
    });
    worth.map(|(_, pattern)| pattern).collect()
}

/// The pattern of the pages that a path is one of: its folder.
fn pattern(path: &str) -> String {
    let literal =
        |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.~/%".contains(c));
    match path.rsplit_once('/') {
        Some((folder, _)) if !folder.is_empty() && literal(folder) => format!("{folder}/**"),
        _ if literal(path) => path.to_owned(),
        _ => "/…".to_owned(),
    }
}

/// The change that helps against a reason: when it is right, and what to write.
fn change(
    reason: Reason,
    Findings { place, blocking, asks_app }: &Findings,
) -> Option<(&'static str, Option<String>)> {
    let Change { when, lines } = text_of(reason).change?;
    Some(match lines {
        Lines::OfRoute(lines) => (when, Some(place.with(lines))),
        Lines::Whole(lines) => (when, Some(lines.to_owned())),
        Lines::OfCookies => against_cookies(when, blocking, *asks_app),
        Lines::Nothing => (when, None),
    })
}

/// The unknown cookies that kept requests from the cache.
fn blocking(cookies: &CookieReport) -> Vec<String> {
    let unknown = cookies.cookies.iter().filter(|cookie| cookie.class == "unknown");
    let blocking = unknown.filter(|cookie| cookie.bypasses > 0).map(|cookie| cookie.name.clone());
    blocking.take(COOKIES_MAX).collect()
}

/// Cookies that look like sessions are to be named as such, and only others may be ignored.
fn against_cookies(
    when: &'static str,
    blocking: &[String],
    asks_app: bool,
) -> (&'static str, Option<String>) {
    let (sessions, others): (Vec<&String>, Vec<&String>) =
        blocking.iter().partition(|name| means_session(name));
    let list = |names: &[&String]| {
        names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
    };
    if !sessions.is_empty() {
        let named = format!("[session]\ncookie = [{}]", list(&sessions));
        let toml = if asks_app { named } else { format!("{named}\n\n{VERIFY_LINES}") };
        return (NAME_THE_SESSION, Some(toml));
    }
    let toml =
        (!others.is_empty()).then(|| format!("[cache]\nignore_cookies = [{}]", list(&others)));
    (when, toml)
}

#[cfg(test)]
mod tests {
    use ::http::Method;
    use anteroom_http::path::PathPattern;
    use anteroom_policy::login::{LogoutRule, RequestPattern, Success};

    use super::*;

    #[test]
    fn no_advice_names_a_path_that_logs_out() {
        let matching = RequestPattern {
            methods: vec![Method::GET],
            paths: vec![PathPattern::parse("/logout*").unwrap()],
            query: Vec::new(),
        };
        let logout = Some(LogoutRule { matching, success: Success::default() });
        let watched = LoginRules { login: None, logout };
        for (path, expected) in
            [("/logout.php", true), ("/whoami.php", true), ("/cart.php", false), ("/", false)]
        {
            assert_eq!(is_of_sessions(&watched, Some("/whoami.php"), path), expected, "{path}");
        }
        assert!(!is_of_sessions(&LoginRules::default(), None, "/logout.php"));
    }
}
