//! The lines of `proxy.toml` that would stop or limit one of those that take the app's time.

use std::net::IpAddr;

use anteroom_http::path::{PathPattern, decoded};
use anteroom_telemetry::crowd::CrowdMember;

/// The shortest and the longest name of a program in a user agent that a line names.
const NAME_MIN: usize = 4;
const NAME_MAX: usize = 64;
/// What is in the names of programs that crawl.
const CRAWLS: [&str; 6] = ["bot", "crawl", "spider", "slurp", "scrap", "fetch"];
/// Words that many of them have in common.
const COMMON: [&str; 5] = ["bots", "robot", "crawler", "spider", "compatible"];
/// How the user agents of browsers begin.
const BROWSERS: [&str; 2] = ["Mozilla", "Opera"];

/// The lines that refuse a network; `None` for loopback addresses, which are those of a proxy on this machine, and so of
/// all its visitors.
pub(super) fn against_network(network: &str) -> Option<String> {
    let address = network.split('/').next().and_then(|address| address.parse::<IpAddr>().ok());
    if address.is_some_and(|address| address.is_loopback() || address.is_unspecified()) {
        return None;
    }
    Some(format!("[client]\ndeny = [{}]", quoted(network)))
}

/// The lines that refuse a user agent; `None` for that of a browser, which users have, too.
pub(super) fn against_agent(agent: &str) -> Option<String> {
    let name = program(agent)?;
    let value = quoted(&format!("~ (?i){name}"));
    Some(format!("[[route]]\nmatch.headers = {{ user-agent = {value} }}\ndeny = true"))
}

/// The lines that let all requests for an endless pattern wait behind those of users; `None` for a pattern that ends, or that
/// `match.path` cannot name.
pub(super) fn against_pattern(pattern: &CrowdMember) -> Option<String> {
    if !pattern.is_endless() {
        return None;
    }
    let (path, has_query) = pattern.path_pattern()?;
    let path = decoded(path).filter(|path| !path.contains(char::is_control))?;
    // All paths would be those of users, too.
    let parsed = PathPattern::parse(&path).ok().filter(|one| !one.is_nearly_everything())?;
    let query = if has_query { "\nmatch.query = \"any\"" } else { "" };
    Some(format!("[[route]]\nmatch.path = {}{query}\nclass = \"new\"", quoted(parsed.as_str())))
}

/// The lines that put requests in order at an origin.
pub(super) fn put_in_order(origin: &str) -> String {
    let table = match origin {
        "origin" => "[origin]".to_owned(),
        name => format!("[origins.{}]", quoted(name)),
    };
    format!("{table}\noverload = \"order\"")
}

/// The name of the program in a user agent, of letters, digits, `-` and `_`.
fn program(agent: &str) -> Option<&str> {
    let is_name = |word: &&str| (NAME_MIN..=NAME_MAX).contains(&word.len());
    let words = || agent.split(is_between_names).filter(is_name);
    let crawls = |word: &&str| {
        let word = word.to_ascii_lowercase();
        CRAWLS.iter().any(|part| word.contains(*part)) && !COMMON.contains(&word.as_str())
    };
    words().find(crawls).or_else(|| {
        let is_browser = BROWSERS.iter().any(|name| agent.starts_with(*name));
        agent.split(is_between_names).next().filter(is_name).filter(|_| !is_browser)
    })
}

fn is_between_names(c: char) -> bool {
    !c.is_ascii_alphanumeric() && !"-_".contains(c)
}

/// A string as TOML writes it. JSON writes strings without control characters in the same way.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use anteroom_telemetry::crowd::Load;

    use super::*;

    fn pattern(name: &str, requests: f64) -> CrowdMember {
        let load = Load { requests, new_urls: requests, ..Load::default() };
        CrowdMember { name: name.to_owned(), load }
    }

    #[test]
    fn a_line_names_the_program_that_crawls_and_no_browser() {
        for (agent, name) in [
            ("Mozilla/5.0 (compatible; GPTBot/1.2; +https://example.com/bot)", Some("GPTBot")),
            ("Mozilla/5.0 (Linux) AppleWebKit/537.36 (compatible; Bytespider)", Some("Bytespider")),
            ("python-requests/2.31", Some("python-requests")),
            ("Crawler/1.0", Some("Crawler")),
            ("Mozilla/5.0 (X11; Linux x86_64) Chrome/120.0", None),
            ("Mozilla/5.0 (compatible; crawler)", None),
            ("\"; x", None),
            ("", None),
        ] {
            assert_eq!(program(agent), name, "{agent}");
        }
        let lines = against_agent("GPTBot/1.2").unwrap();
        assert_eq!(
            lines,
            "[[route]]\nmatch.headers = { user-agent = \"~ (?i)GPTBot\" }\ndeny = true"
        );
    }

    #[test]
    fn only_an_endless_pattern_gets_lines() {
        let lines = |name: &str| against_pattern(&pattern(name, 500.0));
        assert_eq!(
            lines("/shop/*?color&page").unwrap(),
            "[[route]]\nmatch.path = \"/shop/*\"\nmatch.query = \"any\"\nclass = \"new\""
        );
        assert_eq!(
            lines("/a%22b/*").unwrap(),
            "[[route]]\nmatch.path = \"/a\\\"b/*\"\nclass = \"new\""
        );
        for name in ["/shop/{id}/*?q", "/a%0a/*", "~^/a", "/long…"] {
            assert_eq!(lines(name), None, "{name}");
        }
        assert_eq!(against_pattern(&pattern("/shop/*", 100.0)), None);
    }

    #[test]
    fn networks_and_origins_are_named_as_the_file_has_them() {
        let lines = "[client]\ndeny = [\"192.0.2.0/24\"]".to_owned();
        assert_eq!(against_network("192.0.2.0/24"), Some(lines));
        // The network of ::1 is ::/64.
        assert_eq!(["127.0.0.0/24", "::/64"].map(against_network), [None, None]);
        assert_eq!(put_in_order("origin"), "[origin]\noverload = \"order\"");
        assert_eq!(put_in_order("blog"), "[origins.\"blog\"]\noverload = \"order\"");
    }
}
