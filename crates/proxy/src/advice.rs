//! What to change on a route whose requests the cache does not answer, in lines of `proxy.toml`.

use anteroom_http::path::PathPattern;
use anteroom_policy::login::LoginRules;
use anteroom_policy::route::Routes;
use anteroom_telemetry::metrics::RouteTotals;
use anteroom_telemetry::metrics::histogram::Durations;
use anteroom_telemetry::misses::MissedUrl;
use anteroom_telemetry::reason::Reason;
use anteroom_telemetry::remedies::{
    Change, Lines, NAME_THE_SESSION, TO_EVERYONE, VERIFY_LINES, text_of,
};
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
    let sessions = SessionPaths::of(&settings.watched, verify_path);
    let (of_sessions, missed): (Vec<_>, Vec<_>) = missed.partition(|url| sessions.have(&url.path));
    if missed.is_empty() && !of_sessions.is_empty() {
        return None;
    }
    let place = RoutePlace::of(&settings.routes, counted, missed.into_iter(), &sessions);
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

/// The paths by which visitors log in or out, or the app tells who they are. No advice to share names them: a logout that
/// the cache answers does not reach the app.
struct SessionPaths<'s> {
    patterns: Vec<&'s PathPattern>,
    verify: Option<&'s str>,
}

impl<'s> SessionPaths<'s> {
    fn of(watched: &'s LoginRules, verify: Option<&'s str>) -> Self {
        let logins = watched.login.iter().flat_map(|rule| &rule.matching.paths);
        let logouts = watched.logout.iter().flat_map(|rule| &rule.matching.paths);
        Self { patterns: logins.chain(logouts).collect(), verify }
    }

    fn have(&self, path: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(path).is_some())
            || self.verify == Some(path)
    }

    /// Whether a pattern may match one of them, too.
    fn may_meet(&self, pattern: &str) -> bool {
        let meets = |other: &str| may_meet(pattern, other);
        self.patterns.iter().any(|own| own.is_expression() || meets(own.as_str()))
            || self.verify.is_some_and(meets)
    }

    fn are_none(&self) -> bool {
        self.patterns.is_empty() && self.verify.is_none()
    }
}

/// Whether a path may match both patterns, as far as is seen up to their first wildcards.
fn may_meet(one: &str, other: &str) -> bool {
    let ((one, is_one_open), (other, is_other_open)) = (begin_of(one), begin_of(other));
    one == other || is_one_open && other.starts_with(one) || is_other_open && one.starts_with(other)
}

/// A pattern up to its first wildcard, without a slash at the end, and whether there is a wildcard.
fn begin_of(pattern: &str) -> (&str, bool) {
    let wildcard = pattern.find(['*', '{']);
    let begin = &pattern[..wildcard.unwrap_or(pattern.len())];
    (begin.trim_end_matches('/'), wildcard.is_some())
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
    /// Whether that `[[route]]` may be for a path by which visitors log in or out, too.
    may_have_sessions: bool,
}

impl RoutePlace {
    fn of<'m>(
        routes: &Routes,
        counted: &RouteTotals,
        missed: impl Iterator<Item = &'m MissedUrl>,
        sessions: &SessionPaths<'_>,
    ) -> Self {
        let named = routes.listed().find(|route| route.name == counted.name);
        let own = named.map(|route| route.paths.as_slice()).unwrap_or_default();
        let name = if own.is_empty() { String::new() } else { counted.name.to_string() };
        let meets = |own: &PathPattern| own.is_expression() || sessions.may_meet(own.as_str());
        let may_have_sessions = !sessions.are_none() && own.iter().any(meets);
        Self { name, paths: patterns(missed, sessions), may_have_sessions }
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
fn patterns<'m>(
    missed: impl Iterator<Item = &'m MissedUrl>,
    sessions: &SessionPaths<'_>,
) -> Vec<String> {
    let mut counts: Vec<(u64, String)> = Vec::new();
    let mut all = 0;
    for url in missed {
        let pattern = pattern(&url.path, sessions);
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

/// The pattern of the pages that a path is one of: its folder, unless visitors may log in or out below that.
fn pattern(path: &str, sessions: &SessionPaths<'_>) -> String {
    let literal =
        |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.~/%".contains(c));
    let below = |folder: &str| format!("{folder}/**");
    match path.rsplit_once('/') {
        Some((folder, _))
            if !folder.is_empty() && literal(folder) && !sessions.may_meet(&below(folder)) =>
        {
            below(folder)
        }
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
        Lines::OfRoute(TO_EVERYONE) if place.may_have_sessions => return None,
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
    use anteroom_policy::login::{LogoutRule, RequestPattern, Success};

    use super::*;

    fn logging_out_by(path: &str) -> LoginRules {
        let matching = RequestPattern {
            methods: vec![Method::GET],
            paths: vec![PathPattern::parse(path).unwrap()],
            query: Vec::new(),
        };
        LoginRules {
            login: None,
            logout: Some(LogoutRule { matching, success: Success::default() }),
        }
    }

    #[test]
    fn no_advice_names_a_path_that_logs_out() {
        let watched = logging_out_by("/logout*");
        let sessions = SessionPaths::of(&watched, Some("/whoami.php"));
        for (path, expected) in
            [("/logout.php", true), ("/whoami.php", true), ("/cart.php", false), ("/", false)]
        {
            assert_eq!(sessions.have(path), expected, "{path}");
        }
        let watched = LoginRules::default();
        let none = SessionPaths::of(&watched, None);
        assert!(!none.have("/logout.php") && none.are_none() && !none.may_meet("/**"));
    }

    #[test]
    fn no_advice_is_for_a_folder_in_which_a_path_logs_out() {
        for (logout, path, expected) in [
            ("/user/logout", "/user/42", "/user/42"),
            ("/user/logout", "/user/42/edit", "/user/42/**"),
            ("/user/logout", "/users/42", "/users/**"),
            ("/user/*/logout", "/user/42/edit", "/user/42/edit"),
            ("/**/logout", "/shop/mug", "/shop/mug"),
            ("/shop", "/shop/mug", "/shop/mug"),
            ("/logout*", "/shop/mug", "/shop/**"),
            ("/", "/shop/mug", "/shop/**"),
        ] {
            let watched = logging_out_by(logout);
            let sessions = SessionPaths::of(&watched, None);
            assert_eq!(pattern(path, &sessions), expected, "{logout} {path}");
        }
        let watched = LoginRules::default();
        let own = SessionPaths::of(&watched, Some("/api/me"));
        assert_eq!(pattern("/api/news", &own), "/api/news");
        let place =
            RoutePlace { name: "api".to_owned(), may_have_sessions: true, ..RoutePlace::default() };
        let findings = Findings { place, ..Findings::default() };
        assert!(change(Reason::Login, &findings).is_none());
        assert!(change(Reason::Login, &Findings::default()).is_some());
    }
}
