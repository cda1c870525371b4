//! The cookies of all visitors: on how many requests and pages each one was seen, its class by the
//! rules, and what to configure if it keeps pages out of the cache.

use std::fmt;

use anteroom_telemetry::metrics::{CookieEventCounts, CookieTotals};
use anteroom_telemetry::remedies::of_cookie;
use serde::{Deserialize, Serialize};

use crate::cookie_rules::CookieRules;

/// Percentage of pages that set a cookie from which the app is taken to set it habitually; also the
/// percentage of requests that a cookie must keep from the cache to be logged.
const MANY: u64 = 10;
/// Cookies are logged while fewer than this percentage of requests are answered from the cache.
const FEW_HITS: u64 = 25;
/// Nothing is logged before this many requests.
const REQUESTS_MIN: u64 = 1_000;

/// The classes of cookies, over all routes.
#[derive(Clone, Debug)]
pub struct CookieKinds {
    /// The rules for all routes.
    pub rules: CookieRules,
    /// Cookies that are part of the key on some route.
    pub keyed: Vec<String>,
    /// Cookies that some route takes off its pages.
    pub stripped: Vec<String>,
    /// Whether some route takes all cookies off its pages for anonymous visitors.
    pub strips_for_anonymous: bool,
}

impl CookieKinds {
    /// The class of a cookie by its name, or by the pattern that stands for it.
    #[must_use]
    pub fn class(&self, name: &str) -> &'static str {
        self.of(name.as_bytes())
    }

    /// Whether a route takes the cookie off its pages, so that the app may set it.
    fn is_stripped(&self, name: &str) -> bool {
        self.strips_for_anonymous || self.stripped.iter().any(|stripped| stripped == name)
    }

    fn of(&self, name: &[u8]) -> &'static str {
        if self.rules.session.iter().any(|pattern| pattern.matches(name)) {
            "session"
        } else if self.rules.is_harmless(name) {
            "harmless"
        } else if self.keyed.iter().any(|keyed| keyed.as_bytes() == name) {
            "keyed"
        } else {
            "unknown"
        }
    }
}

/// The cookies of all visitors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CookieReport {
    /// Requests since the start.
    pub requests: u64,
    /// Requests that were answered from the cache.
    pub hits: u64,
    /// HTML pages that the app answered with.
    pub pages: u64,
    /// The cookies, the most frequent ones first.
    pub cookies: Vec<SeenCookie>,
    /// The total of the cookies beyond the limit on names.
    pub others: SeenCookie,
}

/// A cookie with its counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeenCookie {
    /// The name, cut if it is long; `*` stands for an id at its end.
    pub name: String,
    /// `session`, `harmless`, `keyed` or `unknown`.
    pub class: String,
    /// Requests that carried the cookie.
    pub requests: u64,
    /// The percentage of requests that carried the cookie.
    pub requests_percent: f64,
    /// Pages that set the cookie.
    pub pages: u64,
    /// The percentage of pages that set the cookie.
    pub pages_percent: f64,
    /// Requests that the cookie kept from the cache.
    pub bypasses: u64,
    /// What to configure, if anything.
    pub hint: Option<String>,
}

/// Builds the report from the counts.
#[must_use]
pub fn cookie_report(kinds: &CookieKinds, counted: &CookieTotals) -> CookieReport {
    let seen = |name: &str, class: &str, tally: &CookieEventCounts| SeenCookie {
        name: name.to_owned(),
        class: class.to_owned(),
        requests: tally.seen,
        requests_percent: percent(tally.seen, counted.requests),
        pages: tally.set,
        pages_percent: percent(tally.set, counted.pages),
        bypasses: tally.blocked,
        hint: None,
    };
    let cookies = counted.names.iter().map(|(name, tally)| {
        let cookie = seen(name, kinds.of(name.as_bytes()), tally);
        let advice = advice(&cookie, kinds.is_stripped(name));
        SeenCookie { hint: advice.map(|advice| hint(&cookie, &advice)), ..cookie }
    });
    CookieReport {
        requests: counted.requests,
        hits: counted.hits,
        pages: counted.pages,
        cookies: cookies.collect(),
        others: seen("(other)", "unknown", &counted.others),
    }
}

/// The cookies to log: those that keep requests from the cache, if few requests are answered from it.
/// Empty until there have been enough requests.
#[must_use]
pub fn cookie_hints(report: &CookieReport) -> Vec<&SeenCookie> {
    if report.requests < REQUESTS_MIN || report.hits * 100 >= report.requests * FEW_HITS {
        return Vec::new();
    }
    let blocks = |cookie: &&SeenCookie| cookie.bypasses * 100 >= report.requests * MANY;
    report.cookies.iter().filter(|cookie| cookie.hint.is_some()).filter(blocks).collect()
}

/// What to configure because of a cookie.
fn advice(cookie: &SeenCookie, is_stripped: bool) -> Option<String> {
    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    let is_habit = !is_stripped && cookie.pages > 0 && cookie.pages_percent >= MANY as f64;
    match cookie.class.as_str() {
        "unknown" if cookie.bypasses == 0 && !is_habit => None,
        "unknown" if means_session(&cookie.name) => {
            let name = of_cookie::SESSION;
            let strip = of_cookie::SET_BY_PAGES;
            Some(if is_habit { format!("{name}; {strip}") } else { name.to_owned() })
        }
        "unknown" => Some(of_cookie::UNKNOWN.to_owned()),
        "session" if is_habit => Some(of_cookie::SET_BY_PAGES.to_owned()),
        _ if is_habit => Some(format!("[[route]] strip_set_cookie = [\"{}\"]", cookie.name)),
        _ => None,
    }
}

/// Whether frameworks use such a name for the session cookie.
#[must_use]
pub fn means_session(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words = ["sess", "auth", "logged_in", "login", "remember", "cfid", "cftoken"];
    words.iter().any(|word| name.contains(word)) || name.ends_with("sid") || name.ends_with(".sid")
}

fn hint(cookie: &SeenCookie, advice: &str) -> String {
    let SeenCookie { name, requests_percent, pages_percent, .. } = cookie;
    format!(
        "{name} is sent with {requests_percent:.0} % of requests and set by {pages_percent:.0} % of \
         pages: {advice}"
    )
}

#[expect(clippy::cast_precision_loss, reason = "a percentage")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 * 1000.0 / whole as f64).round() / 10.0 }
}

impl fmt::Display for CookieReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hits = percent(self.hits, self.requests);
        let ending = |count: u64| if count == 1 { "" } else { "s" };
        writeln!(
            f,
            "{} request{}, {hits:.0} % of them answered from the cache; {} HTML page{} from the app",
            self.requests,
            ending(self.requests),
            self.pages,
            ending(self.pages)
        )?;
        let (came, set, blocked) = ("sent with", "set by", "bypasses");
        writeln!(f, "\n{:<32} {came:>9}  {set:>6}  {blocked:>10}  class", "cookie")?;
        let others = Some(&self.others).filter(|others| others.requests + others.pages > 0);
        for cookie in self.cookies.iter().chain(others) {
            let SeenCookie { name, class, requests_percent, pages_percent, bypasses, .. } = cookie;
            writeln!(
                f,
                "{name:<32} {requests_percent:>7.1} %  {pages_percent:>4.0} %  {bypasses:>10}  {class}"
            )?;
            if let Some(hint) = &cookie.hint {
                writeln!(f, "    {hint}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use anteroom_http::pattern::Pattern;

    use super::*;
    use crate::cookie_rules::TokenFrom;

    fn kinds() -> CookieKinds {
        let session = vec![Pattern::Exact("login".to_owned())];
        let rules = CookieRules {
            session,
            minted: false,
            token: TokenFrom::default(),
            ignored: Vec::new(),
            unknown_bypass: true,
        };
        CookieKinds {
            rules,
            keyed: vec!["lang".to_owned()],
            stripped: Vec::new(),
            strips_for_anonymous: false,
        }
    }

    fn report(names: &[(&str, [u64; 3])], hits: u64) -> CookieReport {
        report_of(&kinds(), names, hits)
    }

    fn report_of(kinds: &CookieKinds, names: &[(&str, [u64; 3])], hits: u64) -> CookieReport {
        let tally = |[came, set, blocked]: [u64; 3]| CookieEventCounts { seen: came, set, blocked };
        let names = names.iter().map(|(name, counts)| ((*name).to_owned(), tally(*counts)));
        let counted = CookieTotals {
            requests: 1_000,
            hits,
            pages: 100,
            names: names.collect(),
            others: CookieEventCounts::default(),
        };
        cookie_report(kinds, &counted)
    }

    #[test]
    fn one_request_and_one_page_are_said_in_the_singular() {
        let head = |requests: u64, pages: u64| {
            let report = CookieReport { requests, pages, ..report(&[], 0) };
            report.to_string().lines().next().unwrap_or_default().to_owned()
        };
        assert!(head(1, 1).starts_with("1 request, ") && head(1, 1).contains("; 1 HTML page from"));
        assert!(
            head(2, 0).starts_with("2 requests, ") && head(2, 0).contains("; 0 HTML pages from")
        );
    }

    #[test]
    fn each_cookie_has_the_hint_that_fits_it() {
        for (name, counts, class, hint) in [
            (
                "PHPSESSID",
                [930, 88, 930],
                "unknown",
                "[session] cookie, and configure [session.verify]; ",
            ),
            (
                "connect.sid",
                [930, 0, 930],
                "unknown",
                "[session] cookie, and configure [session.verify]",
            ),
            ("consent", [500, 0, 500], "unknown", "[cache] ignore_cookies"),
            ("quiet", [0, 1, 0], "unknown", ""),
            ("login", [500, 50, 500], "session", "strip_for_anonymous"),
            ("login", [500, 0, 500], "session", ""),
            ("lang", [500, 50, 0], "keyed", "strip_set_cookie = [\"lang\"]"),
            ("_ga", [900, 0, 0], "harmless", ""),
        ] {
            let found = report(&[(name, counts)], 0);
            let cookie = &found.cookies[0];
            assert_eq!(cookie.class, class, "{name}");
            let said = cookie.hint.clone().unwrap_or_default();
            assert!(said.contains(hint) && said.is_empty() == hint.is_empty(), "{name}: {said}");
        }
    }

    #[test]
    fn a_cookie_that_a_route_strips_needs_no_other_rule() {
        let named = CookieKinds { stripped: vec!["login".to_owned()], ..kinds() };
        let all = CookieKinds { strips_for_anonymous: true, ..kinds() };
        for (kinds, name, counts, is_hinted) in [
            (&named, "login", [500, 50, 500], false),
            (&named, "lang", [500, 50, 0], true),
            (&named, "log", [0, 50, 0], true),
            (&all, "login", [500, 50, 500], false),
            (&all, "lang", [500, 50, 0], false),
            (&all, "consent", [500, 50, 500], true),
        ] {
            let hint = report_of(kinds, &[(name, counts)], 0).cookies[0].hint.clone();
            assert_eq!(hint.is_some(), is_hinted, "{name}: {hint:?}");
        }
    }

    #[test]
    fn an_unconfigured_session_is_reported_in_numbers() {
        let found = report(&[("PHPSESSID", [930, 88, 930])], 0);
        let said = found.cookies[0].hint.clone().unwrap();
        let start = "PHPSESSID is sent with 93 % of requests and set by 88 % of pages: add it to ";
        assert!(said.starts_with(start), "{said}");
        let text = found.to_string();
        assert!(text.contains("PHPSESSID") && text.contains("93.0 %"), "{text}");
    }

    #[test]
    fn cookies_that_keep_many_requests_from_the_cache_are_logged() {
        let blocking = [("PHPSESSID", [930, 88, 930])];
        assert_eq!(cookie_hints(&report(&blocking, 249)).len(), 1);
        assert_eq!(cookie_hints(&report(&blocking, 250)).len(), 0, "hits are many");
        assert_eq!(cookie_hints(&report(&[("consent", [99, 0, 99])], 0)).len(), 0, "too few");
        let early = CookieReport { requests: 999, ..report(&blocking, 0) };
        assert_eq!(cookie_hints(&early).len(), 0, "too early");
    }
}
