//! What to write into the configuration, by what was learned.

use std::collections::BTreeMap;

use anteroom_http::pattern::Pattern;

use crate::causes::RequestField;
use crate::judged::JudgedPage;
use crate::judgement::Difference;
use crate::report::{LearnedCookieReport, Proposal, ReportContext};
use crate::routes::DEFAULT_ROUTE;
use crate::treatments::{self, LEARNS, TreatedPage, Treatment, Treatments, UNSHARED};

/// The key of cookies that are part of a page's key.
const KEY_COOKIES: &str = "key_cookies = ";
/// From how many visitors on a page that is the same for all of them is sure to be.
const SURE_VISITORS: usize = 4;

/// The default of `[session] cookie`.
const USUAL_SESSION_COOKIE: &str = "login";

/// What proposals follow from.
pub(crate) struct Findings<'s> {
    pub(crate) cookies: &'s [LearnedCookieReport],
    /// The cookies that are part of the key where no route of the operator decides.
    pub(crate) keyed: &'s [String],
    /// The name of a cookie, by its place.
    pub(crate) name: &'s dyn Fn(u8) -> Option<String>,
    pub(crate) context: &'s ReportContext,
    /// Whether all pages were followed.
    pub(crate) is_whole: bool,
}

impl Findings<'_> {
    /// The lines that follow, and whether what no route matches is served.
    pub(crate) fn proposals(&self, pages: &[JudgedPage<'_>]) -> (Vec<Proposal>, bool) {
        let Self { cookies, context, .. } = self;
        let session = session_cookies(cookies, context);
        let harmless = harmless_cookies(cookies, context);
        let mut lines: Vec<Proposal> =
            known_app(cookies).into_iter().chain(session).chain(harmless).collect();
        let serves_rest = self.routes(pages, &mut lines);
        (lines, serves_rest)
    }
}

/// `[session] app`, if the cookies are those of an app that has a preset. It knows more than cookies tell: logins, and
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
            "{}: a cookie of this app, whose preset has more than cookies: logins, and edits that make pages stale",
            cookie.name
        ),
        toml: format!("# [session]\n# app = {app:?}"),
        route: None,
    })
}

/// `[session] cookie`, with those that mean a visitor.
fn session_cookies(cookies: &[LearnedCookieReport], context: &ReportContext) -> Option<Proposal> {
    let new = |cookie: &&LearnedCookieReport| {
        cookie.verdict == "session"
            && !matches!(cookie.class.as_str(), "session" | "keyed")
            && cookie.shows_pages_depend()
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
fn harmless_cookies(cookies: &[LearnedCookieReport], context: &ReportContext) -> Option<Proposal> {
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
        cookies.iter().any(|cookie| cookie.shows_pages_depend() && stands_for(&cookie.name))
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
    context: &ReportContext,
) -> bool {
    let Some(prefix) = pattern.name.strip_suffix('*') else { return false };
    let sessions = context.session_cookies.iter().map(|name| name.trim_end_matches('*'));
    let others = cookies.iter().filter(|cookie| cookie.verdict != "harmless");
    let mut others = others.map(|cookie| cookie.name.as_str()).chain(sessions);
    others.any(|name| name.starts_with(prefix) || prefix.starts_with(name))
}

impl Findings<'_> {
    /// Adds the routes of the pages. Returns whether what none matches is served.
    fn routes(&self, pages: &[JudgedPage<'_>], lines: &mut Vec<Proposal>) -> bool {
        let mut by_route: BTreeMap<&str, Vec<TreatedPage<'_>>> = BTreeMap::new();
        for judged in pages {
            let path = judged.page.name.path.as_str();
            let reason = format!("{path}: {}", self.meaning(judged));
            let page = TreatedPage { path, treatment: self.treatment(judged), reason };
            by_route.entry(&judged.page.route).or_default().push(page);
        }
        let rest = by_route.remove(DEFAULT_ROUTE).unwrap_or_default();
        for (route, pages) in by_route {
            self.routes_within(route, &pages, lines);
        }
        let Treatments { lines: own, serves_rest } = treatments::of_rest(&rest, self.is_whole);
        lines.extend(own.into_iter().map(|one| Proposal {
            reason: one.reason,
            toml: self.route_lines(&format!("\"{}\"", one.path), &one.line),
            route: None,
        }));
        if serves_rest && let Some(keys) = self.keys() {
            lines.push(Proposal {
                reason: "pages differ by these cookies of few values; a page for each value"
                    .to_owned(),
                toml: format!("[[route]]\nmatch.path = \"/**\"\n{keys}"),
                route: None,
            });
        }
        lines.extend(self.keyed_by_hand());
        serves_rest
    }

    /// The exceptions from a route of the operator.
    fn routes_within(&self, route: &str, pages: &[TreatedPage<'_>], lines: &mut Vec<Proposal>) {
        let Treatments { lines: exceptions, serves_rest } =
            treatments::exceptions(pages, self.is_whole);
        let kept = format!("; with the other keys of the route {route}, before it");
        lines.extend(exceptions.into_iter().map(|one| Proposal {
            reason: format!("{}{kept}", one.reason),
            toml: format!("[[route]]\nmatch.path = \"{}\"\n{}", one.path, one.line),
            route: Some(route.to_owned()),
        }));
        if !serves_rest {
            lines.push(whole_route(route));
        }
    }

    /// A route for pages that no route of the operator matches. One that is served has the cookies of few values in its
    /// key.
    fn route_lines(&self, path: &str, line: &str) -> String {
        let is_served = line != UNSHARED && line != LEARNS && !line.starts_with(KEY_COOKIES);
        let keys =
            self.keys().filter(|_| is_served).map_or_else(String::new, |keys| format!("\n{keys}"));
        format!("[[route]]\nmatch.path = {path}\n{line}{keys}")
    }

    fn keys(&self) -> Option<String> {
        let names = self.keyed.iter().cloned();
        (!self.keyed.is_empty()).then(|| format!("{KEY_COOKIES}{}", list(names)))
    }

    /// What becomes of a page.
    fn treatment(&self, judged: &JudgedPage<'_>) -> Treatment {
        let is_sure = judged.visitors >= SURE_VISITORS;
        let is_settled = matches!(judged.beside, Some(Difference::Same | Difference::Noise));
        match judged.then {
            None => Treatment::Unseen,
            Some(Difference::Same | Difference::Noise) => Treatment::Shared { is_sure },
            Some(Difference::Undecided(_)) => Treatment::Learns,
            Some(Difference::ByCookie(place)) if is_settled && self.is_keyed(place) => {
                let names = self.keyed.iter().cloned().chain([self.cookie(place)]);
                Treatment::Keyed(format!("{KEY_COOKIES}{}", list(names)))
            }
            Some(Difference::ByField(RequestField::AcceptLanguage)) if is_settled => {
                Treatment::Keyed("key_headers = [\"accept-language\"]".to_owned())
            }
            Some(
                Difference::ByField(_)
                | Difference::ByCookie(_)
                | Difference::Unexplained
                | Difference::SeveralCauses
                | Difference::ByVisitor
                | Difference::OwnWords(_),
            ) => Treatment::Unshared,
        }
    }

    /// Whether pages depend on a cookie of few values that a route can name.
    fn is_keyed(&self, place: u8) -> bool {
        let name = self.cookie(place);
        !name.contains('*')
            && self.cookies.iter().any(|cookie| cookie.name == name && cookie.verdict == "keyed")
    }

    fn cookie(&self, place: u8) -> String {
        (self.name)(place).unwrap_or_default()
    }

    /// What the answers of a page showed.
    fn meaning(&self, judged: &JudgedPage<'_>) -> String {
        match judged.then {
            None => "one visitor alone has asked for it".to_owned(),
            Some(Difference::Same) => "it is the same for all".to_owned(),
            Some(Difference::Noise) => "it differs even for one visitor".to_owned(),
            Some(Difference::Undecided(missing)) => {
                format!(
                    "it differs, and it is not decided by what; {} would tell",
                    missing.as_str()
                )
            }
            Some(Difference::Unexplained) => "it differs, and it is not known by what".to_owned(),
            Some(Difference::SeveralCauses) => {
                "it differs by several causes, or by one of several that come together".to_owned()
            }
            Some(Difference::ByField(RequestField::Address)) => {
                "it differs by the address of the client".to_owned()
            }
            Some(Difference::ByField(field)) => format!("it differs by {}", field.as_str()),
            Some(Difference::ByCookie(place)) => {
                format!("it differs by the cookie {}", self.cookie(place))
            }
            Some(Difference::ByVisitor) => "it differs by visitor".to_owned(),
            Some(Difference::OwnWords(_)) => "it shows a visitor's own words".to_owned(),
        }
    }

    /// Cookies that pages differ by, with few values: the route is the operator's choice.
    fn keyed_by_hand(&self) -> impl Iterator<Item = Proposal> {
        let keyed = self.cookies.iter().filter(|cookie| {
            cookie.verdict == "keyed"
                && cookie.class == "unknown"
                && !self.keyed.contains(&cookie.name)
        });
        keyed.map(|cookie| Proposal {
            reason: format!(
                "{}: {}; in the route of these pages, it makes a page for each value",
                cookie.name, cookie.text
            ),
            toml: format!("# key_cookies = [{:?}]", cookie.name),
            route: None,
        })
    }
}

/// A route of which too little is known, or too many pages are exceptions to name them: it learns on.
fn whole_route(route: &str) -> Proposal {
    Proposal {
        reason: format!(
            "{route}: too little is known of its pages, or more are exceptions than can be written; with its other keys, \
             before it"
        ),
        toml: format!("[[route]]\n{LEARNS}"),
        route: Some(route.to_owned()),
    }
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
    use std::collections::HashMap;

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

    fn proposed(
        cookies: &[LearnedCookieReport],
        session: &[&str],
        ignored: &[&str],
    ) -> Vec<String> {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        let context = ReportContext {
            mode: "learn".to_owned(),
            cookies: HashMap::new(),
            session_cookies: names(session),
            ignored_cookies: names(ignored),
            has_default_ttl: true,
        };
        let findings =
            Findings { cookies, keyed: &[], name: &|_| None, context: &context, is_whole: true };
        findings.proposals(&[]).0.into_iter().map(|one| one.toml).collect()
    }

    #[test]
    fn session_cookies_in_force_stay_in_front_and_the_default_only_if_it_came() {
        let cookies = [cookie("sid", "unknown", "session")];
        let lines = proposed(&cookies, &["DW*"], &[]);
        assert_eq!(lines, ["[session]\ncookie = [\"DW*\", \"sid\"]"]);
        let lines = proposed(&cookies, &["login"], &[]);
        assert_eq!(lines, ["[session]\ncookie = [\"sid\"]"]);
    }

    #[test]
    fn a_cookie_that_pages_differ_by_is_no_longer_ignored() {
        let cookies = [cookie("who", "harmless", "session"), cookie("seen", "unknown", "harmless")];
        let lines = proposed(&cookies, &[], &["who", "ab"]);
        let expected =
            ["[session]\ncookie = [\"who\"]", "[cache]\nignore_cookies = [\"ab\", \"seen\"]"];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_pattern_goes_with_the_cookie_that_it_stands_for() {
        let cookies = [cookie("wikiUserName", "harmless", "session")];
        let lines = proposed(&cookies, &[], &["*UserName", "ab"]);
        assert_eq!(lines[1], "[cache]\nignore_cookies = [\"ab\"]");
    }

    #[test]
    fn a_pattern_that_would_stand_for_a_session_too_is_not_ignored() {
        let cookies = [
            cookie("wordpress_*", "unknown", "harmless"),
            cookie("cart_seen_*", "unknown", "harmless"),
        ];
        let lines = proposed(&cookies, &["wordpress_logged_in_*"], &[]);
        assert_eq!(lines, ["[cache]\nignore_cookies = [\"cart_seen_*\"]"]);
    }

    #[test]
    fn a_well_known_app_is_proposed_by_name() {
        let lines = |names: &[&str]| {
            let cookies: Vec<_> =
                names.iter().map(|name| cookie(name, "unknown", "unclear")).collect();
            proposed(&cookies, &[], &[])
        };
        assert_eq!(lines(&["wordpress_logged_in_*"]), ["# [session]\n# app = \"wordpress\""]);
        assert_eq!(lines(&["sessionid", "csrftoken"]), ["# [session]\n# app = \"django\""]);
        assert!(lines(&["sessionid"]).is_empty());
    }
}
