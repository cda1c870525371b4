//! What the audit has found, by patterns of URLs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anteroom_http::clock::unix_now;

use super::difference::{AuditResult, DifferingPlace};
use super::report::{AuditReport, AuditTotals, AuditedPatternReport};

/// The most patterns that are told apart.
const PATTERNS_MAX: usize = 1_024;
/// The most networks of a pattern that are told apart.
const NETWORKS_MAX: usize = 8;
/// The most patterns that are reported.
const TOLD_MAX: usize = 100;

/// A page that was compared.
#[derive(Clone, Debug)]
pub struct AuditedPage {
    /// The site.
    pub host: String,
    /// The pattern of its URL: the path with `*` where pages of one kind differ.
    pub pattern: String,
    /// The route.
    pub route: Arc<str>,
    /// The path as it may be shown.
    pub path: String,
    /// The network of the visitor.
    pub network: u32,
}

/// The most comparisons at a time: each may hold two bodies of 1 MiB.
const RUNNING_MAX: usize = 8;

/// The comparisons of a pattern.
#[derive(Clone, Debug, Default)]
struct AuditedPattern {
    route: Option<Arc<str>>,
    compared: u64,
    same: u64,
    noise: u64,
    differed: u64,
    /// Networks that saw something else than the stored page.
    networks: Vec<u32>,
    /// The last difference.
    path: String,
    places: Vec<DifferingPlace>,
    differed_at: f64,
    /// When it was last compared, in Unix time.
    last: f64,
}

/// What was found since the start.
#[derive(Debug)]
struct Findings {
    since: f64,
    totals: AuditTotals,
    patterns: HashMap<(String, String), AuditedPattern>,
}

/// What the audit has found, shared by all threads. PERF: one lock, which a comparison takes once.
#[derive(Debug)]
pub struct Audits {
    findings: Mutex<Findings>,
    /// The comparisons that are under way.
    running: Arc<AtomicUsize>,
}

impl Default for Audits {
    fn default() -> Self {
        let findings = Findings {
            since: unix_now(),
            totals: AuditTotals::default(),
            patterns: HashMap::new(),
        };
        Self { findings: Mutex::new(findings), running: Arc::default() }
    }
}

/// The place of a comparison, until it is dropped.
#[derive(Debug)]
pub struct AuditPlace(Arc<AtomicUsize>);

impl Drop for AuditPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Audits {
    fn findings(&self) -> MutexGuard<'_, Findings> {
        // No code that can panic runs under this lock.
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a comparison, whose bodies are held until it is over; `None`: there are enough.
    #[must_use]
    pub fn place(&self) -> Option<AuditPlace> {
        let taken = self.running.fetch_add(1, Ordering::Relaxed);
        let place = AuditPlace(Arc::clone(&self.running));
        (taken < RUNNING_MAX).then_some(place)
    }

    /// Notes what a comparison showed. Returns from how many networks visitors saw something else, if this one is new.
    pub fn note(&self, page: &AuditedPage, result: AuditResult) -> Option<usize> {
        let (mut findings, now) = (self.findings(), unix_now());
        findings.totals.add(&result);
        if result == AuditResult::Unknown {
            return None;
        }
        let key = (page.host.clone(), page.pattern.clone());
        if !findings.patterns.contains_key(&key) {
            findings.make_room();
        }
        let pattern = findings.patterns.entry(key).or_default();
        pattern.route = Some(Arc::clone(&page.route));
        (pattern.compared, pattern.last) = (pattern.compared + 1, now);
        match result {
            AuditResult::Same | AuditResult::Unknown => pattern.same += 1,
            AuditResult::Noise => pattern.noise += 1,
            AuditResult::Differs(places) => {
                pattern.differed += 1;
                (pattern.path, pattern.places) = (page.path.clone(), places);
                pattern.differed_at = now;
                let is_new = !pattern.networks.contains(&page.network);
                if is_new && pattern.networks.len() < NETWORKS_MAX {
                    pattern.networks.push(page.network);
                    return Some(pattern.networks.len());
                }
            }
        }
        None
    }

    /// What was found until now, what differs first.
    #[must_use]
    pub fn report(&self) -> AuditReport {
        let findings = self.findings();
        let mut patterns: Vec<AuditedPatternReport> =
            findings.patterns.iter().map(|(key, pattern)| pattern.told(key)).collect();
        patterns.sort_by(|a, b| {
            let rank = |one: &AuditedPatternReport| (one.networks, one.differed, one.compared);
            rank(b).cmp(&rank(a)).then_with(|| a.pattern.cmp(&b.pattern))
        });
        patterns.truncate(TOLD_MAX);
        AuditReport { since: findings.since, at: unix_now(), totals: findings.totals, patterns }
    }
}

impl Findings {
    /// Where there is no place left, the pattern goes that was not compared for the longest time, one that never differed
    /// first.
    fn make_room(&mut self) {
        if self.patterns.len() < PATTERNS_MAX {
            return;
        }
        let oldest = self.patterns.iter().min_by(|(_, a), (_, b)| {
            let rank = |one: &AuditedPattern| (one.differed > 0, one.last);
            rank(a).0.cmp(&rank(b).0).then(rank(a).1.total_cmp(&rank(b).1))
        });
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.patterns.remove(&key);
        }
    }
}

impl AuditedPattern {
    fn told(&self, (host, pattern): &(String, String)) -> AuditedPatternReport {
        AuditedPatternReport {
            host: host.clone(),
            pattern: pattern.clone(),
            route: self.route.as_ref().map(ToString::to_string).unwrap_or_default(),
            compared: self.compared,
            same: self.same,
            noise: self.noise,
            differed: self.differed,
            networks: self.networks.len() as u64,
            path: (self.differed > 0).then(|| self.path.clone()),
            differed_at: (self.differed > 0).then_some(self.differed_at),
            places: self.places.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(pattern: &str, network: u32) -> AuditedPage {
        AuditedPage {
            host: "shop.test".to_owned(),
            pattern: pattern.to_owned(),
            route: Arc::from("default"),
            path: pattern.replace('*', "7"),
            network,
        }
    }

    #[test]
    fn differences_are_counted_by_network() {
        let audits = Audits::default();
        assert_eq!(audits.note(&page("/a", 1), AuditResult::Same), None);
        assert_eq!(audits.note(&page("/a", 1), AuditResult::Differs(Vec::new())), Some(1));
        assert_eq!(audits.note(&page("/a", 1), AuditResult::Differs(Vec::new())), None, "known");
        assert_eq!(audits.note(&page("/a", 2), AuditResult::Differs(Vec::new())), Some(2));
        audits.note(&page("/b/*", 2), AuditResult::Noise);
        audits.note(&page("/b/*", 2), AuditResult::Unknown);
        let report = audits.report();
        let expected = AuditTotals { compared: 5, same: 1, noise: 1, differed: 3, unknown: 1 };
        assert_eq!(report.totals, expected);
        assert_eq!((report.patterns[0].pattern.as_str(), report.patterns[0].networks), ("/a", 2));
        assert_eq!(report.patterns[1].path, None, "nothing differed there");
    }

    #[test]
    fn the_comparisons_at_a_time_are_bounded() {
        let audits = Audits::default();
        let places: Vec<_> = (0..20).filter_map(|_| audits.place()).collect();
        assert_eq!(places.len(), RUNNING_MAX);
        drop(places);
        assert!(audits.place().is_some());
    }

    #[test]
    fn the_patterns_are_bounded_and_those_that_differ_stay() {
        let audits = Audits::default();
        audits.note(&page("/bad", 1), AuditResult::Differs(Vec::new()));
        for n in 0..3 * PATTERNS_MAX {
            audits.note(&page(&format!("/{n}"), 1), AuditResult::Same);
        }
        assert!(audits.findings().patterns.len() <= PATTERNS_MAX);
        assert_eq!(audits.report().patterns[0].pattern, "/bad");
    }
}
