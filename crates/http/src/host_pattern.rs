//! Hosts as the configuration names them: `example.com`, `example.com:8080`, `*.example.com`.

use std::fmt;

use super::host::Host;

/// A host that the configuration names, in lower case.
///
/// Without a port, it matches every port. `*.` stands for one label or more, as in nginx's `server_name`; the name
/// behind it is not matched itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    text: String,
    /// The length of the part before the port's colon, in bytes.
    name_length: usize,
}

impl HostPattern {
    /// Parses `[*.]host[:port]`, in any case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let after_star = text.strip_prefix("*.");
        let host = Host::parse(after_star.unwrap_or(&text).as_bytes()).ok()?;
        let is_address = host.name().starts_with('[');
        let has_port = host.port().is_none_or(|port| port > 0);
        if after_star.is_some() && is_address || !has_port {
            return None;
        }
        let star = if after_star.is_some() { "*." } else { "" };
        let port = host.port().map(|port| format!(":{port}")).unwrap_or_default();
        let name_length = star.len() + host.name().len();
        Some(Self { text: format!("{star}{}{port}", host.name()), name_length })
    }

    /// The pattern as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it begins with `*.`.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.text.starts_with('*')
    }

    /// Whether it matches one port only.
    #[must_use]
    pub fn has_port(&self) -> bool {
        self.name_length < self.text.len()
    }

    /// Whether it matches a site: a lower-case `host` or `host:port`, without a default port.
    #[must_use]
    pub fn matches(&self, site: &str) -> bool {
        let name_length = name_length(site);
        self.matches_name(&site[..name_length])
            && (!self.has_port() || self.text[self.name_length..] == site[name_length..])
    }

    /// Whether it matches all sites that `other` matches.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        // A wildcard is not matched by its own name, but ends with what it stands for.
        self.matches(&other.text)
    }

    /// Whether there is a site that both match.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        let is_one_port = !self.has_port()
            || !other.has_port()
            || self.text[self.name_length..] == other.text[other.name_length..];
        let names = self.matches_name(other.name()) || other.matches_name(self.name());
        is_one_port && names
    }

    /// The part before the port.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.text[..self.name_length]
    }

    fn matches_name(&self, name: &str) -> bool {
        match self.name().strip_prefix('*') {
            Some(end) => name.len() > end.len() && name.ends_with(end),
            None => name == self.name(),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The first host that names a single site, for requests of the proxy itself.
#[must_use]
pub fn first_host(hosts: &[HostPattern]) -> Option<&str> {
    hosts.iter().find(|host| !host.is_wildcard()).map(HostPattern::as_str)
}

/// Whether each site that one of `later` matches is matched by one of `earlier`. An empty list matches every site.
#[must_use]
pub fn cover(earlier: &[HostPattern], later: &[HostPattern]) -> bool {
    let is_covered = |host: &HostPattern| earlier.iter().any(|earlier| earlier.covers(host));
    earlier.is_empty() || (!later.is_empty() && later.iter().all(is_covered))
}

/// The length of a site's name, without its port.
fn name_length(site: &str) -> usize {
    if site.ends_with(']') { site.len() } else { site.rfind(':').unwrap_or(site.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HostPattern {
        HostPattern::parse(text).unwrap()
    }

    #[test]
    fn a_pattern_matches_its_sites() {
        for (text, matched, others) in [
            (
                "Shop.test",
                &["shop.test", "shop.test:8080"][..],
                &["a.shop.test", "shop.test.", "xshop.test", "shop.test.evil"][..],
            ),
            (
                "shop.test:8080",
                &["shop.test:8080"],
                &["shop.test", "shop.test:80801", "shop.test:80"],
            ),
            (
                "*.shop.test",
                &["a.shop.test", "a.b.shop.test:1"],
                &["shop.test", ".shop.test", "ashop.test", "a.shop.test.evil"],
            ),
            ("*.shop.test:81", &["a.shop.test:81"], &["a.shop.test", "a.shop.test:8"]),
            ("[::1]", &["[::1]", "[::1]:80"], &["[::2]"]),
            ("[::1]:80", &["[::1]:80"], &["[::1]"]),
            ("shop.test:0081", &["shop.test:81"], &["shop.test:0081"]),
        ] {
            let pattern = pattern(text);
            assert!(matched.iter().all(|site| pattern.matches(site)), "{text}");
            assert!(!others.iter().any(|site| pattern.matches(site)), "{text}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in [
            "", "*", "*.", "a.*", "*a.test", "*.*.test", "a.test:", "a.test:0", "a:b", "*.[::1]",
            "a b",
        ] {
            assert_eq!(HostPattern::parse(text), None, "{text}");
        }
    }

    #[test]
    fn patterns_are_compared_by_their_sites() {
        for (one, other, covers, meets) in [
            ("a.test", "a.test", true, true),
            ("a.test", "a.test:80", true, true),
            ("a.test:80", "a.test", false, true),
            ("a.test:80", "a.test:81", false, false),
            ("*.test", "a.test", true, true),
            ("*.test", "*.a.test:1", true, true),
            ("*.a.test", "*.test", false, true),
            ("a.test", "*.test", false, true),
            ("*.test", "*.test", true, true),
            ("*.test:1", "*.test", false, true),
            ("a.test", "b.test", false, false),
        ] {
            let (one, other) = (pattern(one), pattern(other));
            assert_eq!((one.covers(&other), one.meets(&other)), (covers, meets), "{one} {other}");
            assert_eq!(other.meets(&one), meets, "{other} {one}");
        }
        let all = [pattern("*.a.test"), pattern("b.test:1")];
        assert_eq!(first_host(&all), Some("b.test:1"));
        assert!(cover(&[], &all) && !cover(&all, &[]));
        assert!(cover(&all, &[pattern("x.a.test")]) && !cover(&all, &[pattern("b.test")]));
    }
}
