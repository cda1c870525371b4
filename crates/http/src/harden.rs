//! Adds attributes (RFC 6265 §4.1.2) to cookies on their way to the client, where the app did not set them.
//!
//! The name, the value and the attributes that the app wrote stay unchanged.

use ::http::header::SET_COOKIE;
use ::http::{HeaderMap, HeaderValue};

use super::list::{divide, trim};
use super::pattern::Pattern;
use super::set_cookie;

/// A `[[cookies]]`: a rule that adds attributes to cookies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hardening {
    /// The names of the cookies that the rule covers.
    pub names: Vec<Pattern>,
    /// Whether `Secure` is added, if the visitor uses https.
    pub secure: bool,
    /// Whether `HttpOnly` is added.
    pub http_only: bool,
    /// The value of the `SameSite` that is added, if any.
    pub same_site: Option<&'static str>,
}

/// Adds the missing attributes to the cookies that a response sets. For each cookie, the first of `rules`
/// that names it applies.
pub fn harden(headers: &mut HeaderMap, rules: &[Hardening], is_https: bool) {
    if rules.is_empty() || !headers.contains_key(SET_COOKIE) {
        return;
    }
    let lines: Vec<HeaderValue> = headers
        .get_all(SET_COOKIE)
        .iter()
        .map(|line| hardened(line, rules, is_https).unwrap_or_else(|| line.clone()))
        .collect();
    headers.remove(SET_COOKIE);
    for line in lines {
        headers.append(SET_COOKIE, line);
    }
}

/// The field line with the missing attributes; `None` if nothing is missing.
fn hardened(line: &HeaderValue, rules: &[Hardening], is_https: bool) -> Option<HeaderValue> {
    let name = set_cookie::name(line.as_bytes());
    let rule = rules.iter().find(|rule| rule.names.iter().any(|names| names.matches(name)))?;
    let says = |attribute: &str| {
        let mut said = line.as_bytes().split(|&byte| byte == b';').skip(1);
        said.any(|part| trim(divide(part, b'=').0).eq_ignore_ascii_case(attribute.as_bytes()))
    };
    let mut text = line.as_bytes().to_vec();
    let adds_secure = rule.secure && is_https && !says("secure");
    if adds_secure {
        text.extend_from_slice(b"; Secure");
    }
    if rule.http_only && !says("httponly") {
        text.extend_from_slice(b"; HttpOnly");
    }
    // Browsers drop a `SameSite=None` cookie that is not `Secure`.
    let fits = |site: &&str| *site != "None" || adds_secure || says("secure");
    if let Some(site) = rule.same_site.filter(fits)
        && !says("samesite")
    {
        text.extend_from_slice(b"; SameSite=");
        text.extend_from_slice(site.as_bytes());
    }
    if text.len() == line.len() { None } else { HeaderValue::from_bytes(&text).ok() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(names: &str, same_site: &'static str) -> Hardening {
        let names = vec![Pattern::parse(names).unwrap()];
        Hardening { names, secure: true, http_only: true, same_site: Some(same_site) }
    }

    fn shown(line: &str, rules: &[Hardening], is_https: bool) -> String {
        let value = HeaderValue::from_str(line).unwrap();
        let mut headers = HeaderMap::from_iter([(SET_COOKIE, value)]);
        harden(&mut headers, rules, is_https);
        headers[SET_COOKIE].to_str().unwrap().to_owned()
    }

    #[test]
    fn missing_attributes_are_appended_to_the_cookie() {
        for (line, is_https, expected) in [
            ("a=1", true, "a=1; Secure; HttpOnly; SameSite=Lax"),
            ("a=1", false, "a=1; HttpOnly; SameSite=Lax"),
            ("a=1; Path=/; secure", true, "a=1; Path=/; secure; HttpOnly; SameSite=Lax"),
            ("a=1;HTTPONLY;SECURE;samesite=strict", true, "a=1;HTTPONLY;SECURE;samesite=strict"),
            ("a=1; SameSite=None", true, "a=1; SameSite=None; Secure; HttpOnly"),
            ("a=1; SameSite", false, "a=1; SameSite; HttpOnly"),
            ("a=secure", true, "a=secure; Secure; HttpOnly; SameSite=Lax"),
            (
                "__Host-a=1; Secure; Path=/",
                true,
                "__Host-a=1; Secure; Path=/; HttpOnly; SameSite=Lax",
            ),
            ("__Host-a=1; Path=/", false, "__Host-a=1; Path=/; HttpOnly; SameSite=Lax"),
            ("a=; Max-Age=0", true, "a=; Max-Age=0; Secure; HttpOnly; SameSite=Lax"),
        ] {
            assert_eq!(shown(line, &[rule("*", "Lax")], is_https), expected);
        }
    }

    #[test]
    fn the_first_rule_that_names_a_cookie_counts() {
        let rules = [
            Hardening { secure: false, http_only: false, same_site: None, ..rule("lang", "Lax") },
            rule("*_session", "None"),
        ];
        for (line, is_https, expected) in [
            ("lang=de", true, "lang=de"),
            ("my_session=1", true, "my_session=1; Secure; HttpOnly; SameSite=None"),
            ("my_session=1", false, "my_session=1; HttpOnly"),
            ("other=1", true, "other=1"),
        ] {
            assert_eq!(shown(line, &rules, is_https), expected);
        }
    }

    #[test]
    fn lines_keep_their_order() {
        let mut headers = HeaderMap::new();
        for line in ["b=1", "a=2", "b=3"] {
            headers.append(SET_COOKIE, HeaderValue::from_static(line));
        }
        harden(&mut headers, &[rule("a", "Lax")], true);
        let lines: Vec<_> = headers.get_all(SET_COOKIE).iter().collect();
        assert_eq!(lines, ["b=1", "a=2; Secure; HttpOnly; SameSite=Lax", "b=3"]);
    }

    proptest! {
        #[test]
        fn existing_attributes_stay_unchanged(line in "[ -~]{0,80}", is_https: bool) {
            let now = shown(&line, &[rule("*", "Strict")], is_https);
            prop_assert!(now.starts_with(&line));
            prop_assert_eq!(shown(&now, &[rule("*", "Strict")], is_https), now);
        }
    }
}
