//! Counts the URLs that the cache did not answer.
//!
//! A client may ask for any number of URLs. So each thread has entries for a bounded number of them; at the bound a
//! new URL replaces the one with the least weight, and inherits its weight, so that the URLs of a flood displace
//! each other, and those that are often missed stay (the space-saving algorithm).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::reason::Reason;
use super::shown_path::parameter_names;

/// The most URLs that one thread counts.
const URLS_MAX: usize = 256;
/// The longest path and host that are kept, in bytes.
const TEXT_MAX: usize = 512;
/// The most URLs that are told.
pub const TOLD_MAX: usize = 200;

/// A request that the cache did not answer.
#[derive(Clone, Debug)]
pub struct Miss<'m> {
    /// The site.
    pub host: &'m str,
    /// The path as it may be shown.
    pub path: &'m str,
    /// The query; only names of parameters are kept.
    pub query: Option<&'m str>,
    /// The route.
    pub route: Option<&'m Arc<str>>,
    /// Why the cache did not answer.
    pub reason: Reason,
    /// How long the answer took.
    pub took: Duration,
    /// When the request came, in Unix time.
    pub at: f64,
}

/// A URL that the cache did not answer.
#[derive(Clone, Debug, PartialEq)]
pub struct MissedUrl {
    /// The site.
    pub host: String,
    /// The path.
    pub path: String,
    /// Names of query parameters, of the last such request.
    pub parameters: Vec<String>,
    /// The route.
    pub route: Option<Arc<str>>,
    /// The reason of the last such request.
    pub reason: Reason,
    /// How many requests there were since the URL got its entry.
    pub count: u64,
    /// How long their answers took, in all.
    pub took: Duration,
    /// When the last one came, in Unix time.
    pub last: f64,
    weight: u64,
}

impl MissedUrl {
    fn count(&mut self, miss: &Miss<'_>) {
        if miss.query.is_some() || !self.parameters.is_empty() {
            self.parameters = parameter_names(miss.query);
        }
        if self.route.as_ref() != miss.route {
            self.route = miss.route.map(Arc::clone);
        }
        self.reason = miss.reason;
        self.count += 1;
        self.weight += 1;
        self.took += miss.took;
        self.last = miss.at;
    }
}

/// The URLs of one thread.
#[derive(Debug, Default)]
pub struct Misses {
    /// By host and path, with a space between.
    urls: HashMap<Box<str>, MissedUrl, ahash::RandomState>,
    /// The key of the request that is being counted.
    key: String,
}

impl Misses {
    /// Counts a request.
    pub fn count(&mut self, miss: &Miss<'_>) {
        let cut = |text: &'_ str| text.floor_char_boundary(TEXT_MAX);
        let (host, path) = (&miss.host[..cut(miss.host)], &miss.path[..cut(miss.path)]);
        // PERF: one buffer, so that a URL that has its entry allocates nothing.
        self.key.clear();
        self.key.push_str(host);
        self.key.push(' ');
        self.key.push_str(path);
        if let Some(url) = self.urls.get_mut(self.key.as_str()) {
            return url.count(miss);
        }
        let weight = if self.urls.len() < URLS_MAX { 0 } else { self.push_out() };
        let mut new = MissedUrl {
            host: host.to_owned(),
            path: path.to_owned(),
            parameters: Vec::new(),
            route: None,
            reason: miss.reason,
            count: 0,
            took: Duration::ZERO,
            last: 0.0,
            weight,
        };
        new.count(miss);
        self.urls.insert(self.key.as_str().into(), new);
    }

    /// Frees the entry with the least weight, and returns that weight.
    fn push_out(&mut self) -> u64 {
        let least = self.urls.iter().min_by_key(|(_, url)| url.weight);
        let Some(key) = least.map(|(key, _)| key.clone()) else { return 0 };
        self.urls.remove(&key).map_or(0, |gone| gone.weight)
    }
}

/// Adds up the URLs of all threads, the most missed first.
#[must_use]
pub fn sum<'m>(threads: impl Iterator<Item = &'m Misses>) -> Vec<MissedUrl> {
    let mut all: HashMap<(&str, &str), MissedUrl> = HashMap::new();
    for url in threads.flat_map(|misses| misses.urls.values()) {
        let key = (url.host.as_str(), url.path.as_str());
        let Some(same) = all.get_mut(&key) else {
            all.insert(key, url.clone());
            continue;
        };
        let (count, took) = (same.count + url.count, same.took + url.took);
        if url.last > same.last {
            *same = url.clone();
        }
        (same.count, same.took) = (count, took);
    }
    let mut urls: Vec<MissedUrl> = all.into_values().collect();
    urls.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.path.cmp(&b.path)));
    urls.truncate(TOLD_MAX);
    urls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn miss(path: &str) -> Miss<'_> {
        Miss {
            host: "shop.test",
            path,
            query: Some("q=1"),
            route: None,
            reason: Reason::UnknownCookie,
            took: Duration::from_millis(2),
            at: 7.0,
        }
    }

    #[test]
    fn a_flood_of_urls_does_not_displace_those_that_are_often_missed() {
        let mut misses = Misses::default();
        for n in 0..20_000 {
            misses.count(&miss("/often"));
            misses.count(&miss(&format!("/{n}")));
        }
        assert_eq!(misses.urls.len(), URLS_MAX);
        let other = {
            let mut other = Misses::default();
            other.count(&Miss { at: 9.0, reason: Reason::Login, ..miss("/often") });
            other
        };
        let told = sum([&misses, &other].into_iter());
        assert_eq!((told[0].path.as_str(), told[0].count), ("/often", 20_001));
        assert_eq!(told[0].reason, Reason::Login, "the last one's");
        assert_eq!(told[0].parameters, ["q"]);
        assert_eq!(told.len(), TOLD_MAX);
    }

    #[test]
    fn long_texts_are_cut() {
        let mut misses = Misses::default();
        let long = "/".repeat(100_000);
        misses.count(&miss(&long));
        assert_eq!(sum([&misses].into_iter())[0].path.len(), TEXT_MAX);
    }
}
