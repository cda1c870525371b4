//! What to write into the configuration, by what was learned.

use anteroom_http::path::decoded;
use anteroom_http::pattern::Pattern;

use super::report::{LearnedCookieReport, LearnedPageReport, Proposal, ReportContext};

/// The most pages that get a route of their own.
const ROUTES_MAX: usize = 50;

/// From which part of them on (one in so many) pages depend on an ignored cookie.
const MANY_PART: u64 = 5;
/// The default of `[session] cookie`.
const USUAL_SESSION_COOKIE: &str = "login";
/// The route of what no `[[route]]` matches.
const DEFAULT_ROUTE: &str = "default";

/// The lines that follow from the cookies and the pages.
pub(super) fn proposals(
    pages: &[LearnedPageReport],
    cookies: &[LearnedCookieReport],
    context: &ReportContext<'_>,
) -> Vec<Proposal> {
    let session = session_cookies(cookies, context);
    let harmless = harmless_cookies(cookies, context);
    let lists = known_app(cookies).into_iter().chain(session).chain(harmless);
    lists.chain(unshared(pages, cookies)).chain(keyed(cookies)).collect()
}

/// `[session] app`, if the cookies are those of an app that has a preset. It knows more than cookies tell: log-ins, and
/// which edits make pages stale.
fn known_app(cookies: &[LearnedCookieReport]) -> Option<Proposal> {
    let named = |is_one: &dyn Fn(&str) -> bool| {
        cookies.iter().find(|cookie| cookie.class == "unknown" && is_one(&cookie.name))
    };
    let is = |name: &'static str| move |own: &str| own == name;
    let found = [
        ("wordpress", named(&|name| name.starts_with("wordpress_logged_in_"))),
        (
            "mediawiki",
            named(&|name| name.ends_with("UserID"))
                .and_then(|_| named(&|name| name.ends_with("_session"))),
        ),
        ("django", named(&is("csrftoken")).and_then(|_| named(&is("sessionid")))),
        ("tomcat", named(&is("JSESSIONID"))),
        ("php", named(&is("PHPSESSID"))),
    ];
    let (app, cookie) = found.into_iter().find_map(|(app, cookie)| Some((app, cookie?)))?;
    Some(Proposal {
        reason: format!(
            "{}: a cookie of this app, whose preset has more than cookies: log-ins, and edits that make pages stale",
            cookie.name
        ),
        toml: format!("# [session]\n# app = {app:?}"),
        route: None,
    })
}

/// `[session] cookie`, with those that mean a visitor.
fn session_cookies(
    cookies: &[LearnedCookieReport],
    context: &ReportContext<'_>,
) -> Option<Proposal> {
    let new = |cookie: &&LearnedCookieReport| {
        cookie.verdict == "session"
            && !matches!(cookie.class.as_str(), "session" | "keyed")
            && pages_depend_on(cookie)
    };
    let new: Vec<&LearnedCookieReport> = cookies.iter().filter(new).collect();
    let (first, names) = (new.first()?, new.iter().map(|cookie| cookie.name.clone()));
    // The token is the first of the list that came: those in force stay in front. The default stays if it came.
    let came = |name: &&String| cookies.iter().any(|cookie| cookie.name == **name);
    let in_force = context.session_cookies.iter();
    let in_force = in_force.filter(|name| *name != USUAL_SESSION_COOKIE || came(name));
    let all = in_force.cloned().chain(names);
    Some(Proposal {
        reason: format!("{}: {}", joined(&new), first.text),
        toml: format!("[session]\ncookie = {}", list(all)),
        route: None,
    })
}

/// `[cache] ignore_cookies`, with those that no page depends on, and without those that some page does.
fn harmless_cookies(
    cookies: &[LearnedCookieReport],
    context: &ReportContext<'_>,
) -> Option<Proposal> {
    let is_new = |cookie: &&LearnedCookieReport| {
        cookie.verdict == "harmless"
            && cookie.class == "unknown"
            && !stands_for_more(cookie, cookies, context)
    };
    let new: Vec<&LearnedCookieReport> = cookies.iter().filter(is_new).collect();
    let is_wrong = |name: &String| {
        let pattern = Pattern::parse(name);
        let stands_for =
            |cookie: &str| pattern.as_ref().is_ok_and(|pattern| pattern.matches(cookie.as_bytes()));
        cookies.iter().any(|cookie| pages_depend_on(cookie) && stands_for(&cookie.name))
    };
    let wrong: Vec<&String> =
        context.ignored_cookies.iter().filter(|name| is_wrong(name)).collect();
    let mut reasons = Vec::new();
    if let Some(first) = new.first() {
        reasons.push(format!("{}: {}", joined(&new), first.text));
    }
    if !wrong.is_empty() {
        let names: Vec<&str> = wrong.iter().map(|name| name.as_str()).collect();
        reasons.push(format!("pages differ by {}, which must not be ignored", names.join(", ")));
    }
    let kept = context.ignored_cookies.iter().filter(|name| !is_wrong(name)).cloned();
    let all = kept.chain(new.iter().map(|cookie| cookie.name.clone()));
    (!reasons.is_empty()).then(|| Proposal {
        reason: reasons.join("; "),
        toml: format!("[cache]\nignore_cookies = {}", list(all)),
        route: None,
    })
}

/// Whether the pattern under which a cookie was learned also matches one that is not harmless.
fn stands_for_more(
    pattern: &LearnedCookieReport,
    cookies: &[LearnedCookieReport],
    context: &ReportContext<'_>,
) -> bool {
    let Some(prefix) = pattern.name.strip_suffix('*') else { return false };
    let sessions = context.session_cookies.iter().map(|name| name.trim_end_matches('*'));
    let others = cookies.iter().filter(|cookie| cookie.verdict != "harmless");
    let mut others = others.map(|cookie| cookie.name.as_str()).chain(sessions);
    others.any(|name| name.starts_with(prefix) || prefix.starts_with(name))
}

/// Whether what pages show of a cookie is said of the cookie, and not of these pages. Where the configuration ignores it,
/// few of many pages are no reason not to: these get routes of their own.
fn pages_depend_on(cookie: &LearnedCookieReport) -> bool {
    let (same, differ) = (cookie.pages_same, cookie.pages_differ);
    let is_many = differ * MANY_PART >= same + differ;
    differ > 0 && (is_many || cookie.class != "harmless")
}

/// A route for pages that differ: by a cookie of few values with that in the key, others not shared at all.
fn unshared<'p>(
    pages: &'p [LearnedPageReport],
    cookies: &'p [LearnedCookieReport],
) -> impl Iterator<Item = Proposal> + 'p {
    let is_explained = |page: &LearnedPageReport| {
        page.cookie.as_ref().is_some_and(|name| {
            let explains =
                |cookie: &&LearnedCookieReport| cookie.name == *name && cookie.verdict == "session";
            cookies.iter().find(explains).is_some_and(pages_depend_on)
        })
    };
    let told = pages.iter().filter(move |page| page.verdict != "noise" && !is_explained(page));
    let mut paths: Vec<&str> = Vec::new();
    let once = told.filter(move |page| {
        let is_new = !paths.contains(&page.path.as_str());
        paths.push(&page.path);
        is_new
    });
    once.take(ROUTES_MAX).map(move |page| {
        let Some(pattern) = pattern_of(&page.path) else { return by_hand(page) };
        let is_keyed = |name: &&String| {
            cookies.iter().any(|cookie| cookie.name == **name && cookie.verdict == "keyed")
        };
        let line = match page.cookie.as_ref().filter(is_keyed) {
            Some(name) => format!("key_cookies = [{name:?}]"),
            None => "share = \"none\"".to_owned(),
        };
        let lines = ["[[route]]".to_owned(), format!("match.path = {pattern}"), line];
        let route = Some(&page.route).filter(|route| *route != DEFAULT_ROUTE).cloned();
        let kept = route.as_ref().map_or_else(String::new, |route| {
            format!("; with the other keys of the route {route}, before it")
        });
        Proposal {
            reason: format!("{}: {}{kept}", page.path, meaning(page)),
            toml: match page.parameters.is_empty() {
                true => lines.join("\n"),
                // Other pages may have the same path: the condition on the query is the operator's choice.
                false => lines.map(|line| format!("# {line}")).join("\n"),
            },
            route,
        }
    })
}

/// What is left to the operator, because no pattern can be written for the path.
fn by_hand(page: &LearnedPageReport) -> Proposal {
    Proposal {
        reason: format!(
            "{}: {}; no pattern that is written here stands for this path alone",
            page.path,
            meaning(page)
        ),
        toml: format!("# [[route]]\n# match.path = {:?}\n# share = \"none\"", page.path),
        route: None,
    }
}

/// A path as the pattern that stands for it alone, in TOML: patterns are compared with decoded paths. `None`: there is
/// none, or the path is not known whole.
fn pattern_of(path: &str) -> Option<String> {
    let decoded = decoded(path).filter(|_| path.is_ascii())?;
    let is_plain =
        |c: char| c.is_alphanumeric() || matches!(c, ' '..='~') && !"*{}\"\\;".contains(c);
    let is_own = decoded.starts_with('/') && decoded.chars().all(is_plain);
    is_own.then(|| format!("\"{decoded}\""))
}

/// What a verdict means.
fn meaning(page: &LearnedPageReport) -> String {
    match (page.verdict.as_str(), &page.cookie) {
        ("own-words", _) => "it shows a visitor's own words".to_owned(),
        ("by-cookie", Some(cookie)) => format!("it differs by the cookie {cookie}"),
        ("by-visitor", _) => "it differs by visitor".to_owned(),
        _ => "it differs, and it is not known by what".to_owned(),
    }
}

/// Cookies that pages differ by, with few values: the route is the operator's choice.
fn keyed(cookies: &[LearnedCookieReport]) -> impl Iterator<Item = Proposal> {
    let keyed =
        cookies.iter().filter(|cookie| cookie.verdict == "keyed" && cookie.class == "unknown");
    keyed.map(|cookie| Proposal {
        reason: format!(
            "{}: {}; in the route of these pages, it makes a page for each value",
            cookie.name, cookie.text
        ),
        toml: format!("# key_cookies = [{:?}]", cookie.name),
        route: None,
    })
}

fn joined(cookies: &[&LearnedCookieReport]) -> String {
    cookies.iter().map(|cookie| cookie.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn list(names: impl Iterator<Item = String>) -> String {
    let quoted: Vec<String> = names.map(|name| format!("{name:?}")).collect();
    format!("[{}]", quoted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie(name: &str, class: &str, verdict: &str) -> LearnedCookieReport {
        LearnedCookieReport {
            name: name.to_owned(),
            class: class.to_owned(),
            verdict: verdict.to_owned(),
            pages_differ: u64::from(verdict == "session"),
            text: "why".to_owned(),
            ..LearnedCookieReport::default()
        }
    }

    fn page(path: &str, parameter: Option<&str>) -> LearnedPageReport {
        LearnedPageReport {
            path: path.to_owned(),
            parameters: parameter.iter().map(|name| (*name).to_owned()).collect(),
            route: DEFAULT_ROUTE.to_owned(),
            verdict: "by-visitor".to_owned(),
            ..LearnedPageReport::default()
        }
    }

    fn proposed(
        pages: &[LearnedPageReport],
        cookies: &[LearnedCookieReport],
        (session, ignored): (&[&str], &[&str]),
    ) -> Vec<String> {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        let context = ReportContext {
            mode: "learn",
            class: &|_| "unknown",
            means_session: &|_| false,
            set_by: &|_| 0,
            session_cookies: names(session),
            ignored_cookies: names(ignored),
        };
        proposals(pages, cookies, &context).into_iter().map(|one| one.toml).collect()
    }

    #[test]
    fn session_cookies_in_force_stay_in_front_and_the_default_only_if_it_came() {
        let cookies = [cookie("sid", "unknown", "session")];
        let lines = proposed(&[], &cookies, (&["DW*"], &[]));
        assert_eq!(lines, ["[session]\ncookie = [\"DW*\", \"sid\"]"]);
        let lines = proposed(&[], &cookies, (&["login"], &[]));
        assert_eq!(lines, ["[session]\ncookie = [\"sid\"]"]);
    }

    #[test]
    fn a_cookie_that_pages_differ_by_is_no_longer_ignored() {
        let cookies = [cookie("who", "harmless", "session"), cookie("seen", "unknown", "harmless")];
        let lines = proposed(&[], &cookies, (&[], &["who", "ab"]));
        let expected =
            ["[session]\ncookie = [\"who\"]", "[cache]\nignore_cookies = [\"ab\", \"seen\"]"];
        assert_eq!(lines, expected);
    }

    #[test]
    fn an_ignored_cookie_that_few_pages_depend_on_stays_ignored_and_they_are_not_shared() {
        let who = LearnedCookieReport { pages_same: 17, ..cookie("who", "harmless", "session") };
        let page = LearnedPageReport {
            verdict: "by-cookie".to_owned(),
            cookie: Some("who".to_owned()),
            ..page("/hello", None)
        };
        let lines = proposed(&[page], &[who], (&[], &["who"]));
        assert_eq!(lines, ["[[route]]\nmatch.path = \"/hello\"\nshare = \"none\""]);
    }

    #[test]
    fn a_pattern_goes_with_the_cookie_that_it_stands_for() {
        let cookies = [cookie("wikiUserName", "harmless", "session")];
        let lines = proposed(&[], &cookies, (&[], &["*UserName", "ab"]));
        assert_eq!(lines[1], "[cache]\nignore_cookies = [\"ab\"]");
    }

    #[test]
    fn a_pattern_that_would_stand_for_a_session_too_is_not_ignored() {
        let cookies = [
            cookie("wordpress_*", "unknown", "harmless"),
            cookie("cart_seen_*", "unknown", "harmless"),
        ];
        let lines = proposed(&[], &cookies, (&["wordpress_logged_in_*"], &[]));
        assert_eq!(lines, ["[cache]\nignore_cookies = [\"cart_seen_*\"]"]);
    }

    #[test]
    fn a_page_that_differs_is_not_shared_and_one_with_a_query_is_the_operators_choice() {
        let lines = proposed(&[page("/me", None), page("/doku.php", Some("id"))], &[], (&[], &[]));
        assert_eq!(lines[0], "[[route]]\nmatch.path = \"/me\"\nshare = \"none\"");
        assert!(lines[1].lines().all(|line| line.starts_with('#')), "{lines:?}");
    }

    #[test]
    fn a_path_is_proposed_as_routes_read_it() {
        let lines = |path| proposed(&[page(path, None)], &[], (&[], &[]));
        assert!(lines("/caf%C3%A9%20x")[0].contains("match.path = \"/café x\""));
        for path in
            ["/%E2%80%AE", "/%zz", "/%2A", "/a%22b", "/%0a", "/user/*/**", "/a;-", "/long…", "*"]
        {
            assert!(lines(path)[0].lines().all(|line| line.starts_with('#')), "{path}");
        }
    }

    #[test]
    fn a_page_that_differs_by_a_cookie_of_few_values_has_it_in_its_key() {
        let page = LearnedPageReport {
            verdict: "by-cookie".to_owned(),
            cookie: Some("lang".to_owned()),
            ..page("/lang", None)
        };
        let lines = proposed(&[page], &[cookie("lang", "harmless", "keyed")], (&[], &[]));
        assert_eq!(lines, ["[[route]]\nmatch.path = \"/lang\"\nkey_cookies = [\"lang\"]"]);
    }

    #[test]
    fn a_well_known_app_is_proposed_by_name() {
        let lines = |names: &[&str]| {
            let cookies: Vec<_> =
                names.iter().map(|name| cookie(name, "unknown", "unclear")).collect();
            proposed(&[], &cookies, (&[], &[]))
        };
        assert_eq!(lines(&["wordpress_logged_in_*"]), ["# [session]\n# app = \"wordpress\""]);
        assert_eq!(lines(&["sessionid", "csrftoken"]), ["# [session]\n# app = \"django\""]);
        assert!(lines(&["sessionid"]).is_empty());
    }
}
