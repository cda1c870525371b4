//! What to write into the configuration, by what was learned.

use super::report::{LearnedCookieReport, LearnedPageReport, Proposal, ReportContext};

/// The most pages that get a route of their own.
const ROUTES_MAX: usize = 50;

/// The default of `[session] cookie`.
const USUAL_SESSION_COOKIE: &str = "login";

/// The lines that follow from the cookies and the pages.
pub(super) fn proposals(
    pages: &[LearnedPageReport],
    cookies: &[LearnedCookieReport],
    context: &ReportContext<'_>,
) -> Vec<Proposal> {
    let session = session_cookies(cookies, context);
    let harmless = harmless_cookies(cookies, context);
    let lists = session.into_iter().chain(harmless);
    lists.chain(unshared(pages, cookies)).chain(keyed(cookies)).collect()
}

/// `[session] cookie`, with those that mean a visitor.
fn session_cookies(
    cookies: &[LearnedCookieReport],
    context: &ReportContext<'_>,
) -> Option<Proposal> {
    let new = |cookie: &&LearnedCookieReport| {
        cookie.verdict == "session" && cookie.class != "session" && cookie.class != "keyed"
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
    })
}

/// `[cache] ignore_cookies`, with those that no page depends on, and without those that some page does.
fn harmless_cookies(
    cookies: &[LearnedCookieReport],
    context: &ReportContext<'_>,
) -> Option<Proposal> {
    let is_new =
        |cookie: &&LearnedCookieReport| cookie.verdict == "harmless" && cookie.class == "unknown";
    let new: Vec<&LearnedCookieReport> = cookies.iter().filter(is_new).collect();
    let is_wrong = |name: &String| {
        let own = cookies.iter().find(|cookie| cookie.name == *name);
        own.is_some_and(|cookie| cookie.pages_differ > 0)
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
    })
}

/// `share = "none"` for pages that differ and that no cookie explains.
fn unshared<'p>(
    pages: &'p [LearnedPageReport],
    cookies: &'p [LearnedCookieReport],
) -> impl Iterator<Item = Proposal> + 'p {
    let is_explained = |page: &LearnedPageReport| {
        page.cookie.as_ref().is_some_and(|name| {
            cookies.iter().any(|cookie| cookie.name == *name && cookie.verdict == "session")
        })
    };
    let told = pages.iter().filter(move |page| page.verdict != "noise" && !is_explained(page));
    let mut paths: Vec<&str> = Vec::new();
    let once = told.filter(move |page| {
        let is_new = !paths.contains(&page.path.as_str());
        paths.push(&page.path);
        is_new
    });
    let literal =
        |path: &str| path.chars().all(|c| c.is_ascii_alphanumeric() || "-_./~%".contains(c));
    once.filter(move |page| literal(&page.path)).take(ROUTES_MAX).map(|page| Proposal {
        reason: format!("{}: {}", page.path, meaning(page)),
        toml: match page.parameters.is_empty() {
            true => format!("[[route]]\nmatch.path = {:?}\nshare = \"none\"", page.path),
            // Other pages may have the same path: the condition on the query is the operator's choice.
            false => format!("# [[route]]\n# match.path = {:?}\n# share = \"none\"", page.path),
        },
    })
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
    })
}

fn joined(cookies: &[&LearnedCookieReport]) -> String {
    cookies.iter().map(|cookie| cookie.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn list(names: impl Iterator<Item = String>) -> String {
    let quoted: Vec<String> = names.map(|name| format!("{name:?}")).collect();
    format!("[{}]", quoted.join(", "))
}
