//! What the audit has found, by patterns of URLs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anteroom_http::clock::unix_now;

use super::cause::{AuditCause, lines};
use super::difference::{AuditResult, DifferingPlace};
use super::evidence::{ComparisonResult, Evidence};
use super::page::{AuditedPage, PatternVerdict};
use super::report::{AuditReport, AuditTotals, AuditedPatternReport};

/// The most patterns that are told apart.
const PATTERNS_MAX: usize = 1_024;
/// The most patterns that are reported.
const TOLD_MAX: usize = 100;
/// The most patterns with kept requests.
const EXPLAINED_MAX: usize = 64;

/// The most comparisons at a time: each may hold two bodies of 1 MiB.
const RUNNING_MAX: usize = 8;

/// The comparisons of a pattern.
#[derive(Clone, Debug, Default)]
struct AuditedPattern {
    route: Option<Arc<str>>,
    totals: AuditTotals,
    evidence: Evidence,
    /// The last difference.
    path: String,
    places: Vec<DifferingPlace>,
    differed_at: f64,
    /// What explained it, as far as it was known then.
    causes: Vec<AuditCause>,
    /// From how many networks visitors have seen something else.
    networks: usize,
    /// When it was last compared, in Unix time.
    last: f64,
}

type PatternKey = (String, String, Arc<str>);

/// What was found since the start.
#[derive(Debug)]
struct Findings {
    since: f64,
    totals: AuditTotals,
    /// By host, pattern and rules: two routes may have pages of one pattern.
    patterns: HashMap<PatternKey, AuditedPattern>,
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

    /// Notes what a comparison showed, and says what follows from it.
    pub fn note(&self, page: &AuditedPage, result: AuditResult) -> PatternVerdict {
        let mut findings = self.findings();
        findings.totals.add(&result);
        let kept = findings.patterns.values().filter(|one| one.evidence.is_kept()).count();
        findings.pattern_of(page).note(page, result, kept < EXPLAINED_MAX, unix_now())
    }

    /// What was found until now, what differs first.
    #[must_use]
    pub fn report(&self) -> AuditReport {
        let findings = self.findings();
        let mut patterns: Vec<AuditedPatternReport> =
            findings.patterns.iter().map(|(key, pattern)| pattern.told(key)).collect();
        patterns.sort_by(|a, b| {
            let rank = |AuditedPatternReport { totals, networks, .. }: &AuditedPatternReport| {
                (totals.leaks, *networks, totals.differed, totals.compared)
            };
            rank(b).cmp(&rank(a)).then_with(|| a.pattern.cmp(&b.pattern))
        });
        patterns.truncate(TOLD_MAX);
        let (since, totals) = (findings.since, findings.totals);
        AuditReport { since, at: unix_now(), totals, patterns, stopped: Vec::new() }
    }

    /// How many comparisons there were.
    #[must_use]
    pub fn totals(&self) -> AuditTotals {
        self.findings().totals
    }
}

impl AuditedPage {
    fn key(&self) -> PatternKey {
        (self.host.clone(), self.pattern.clone(), Arc::clone(&self.rules))
    }
}

impl Findings {
    fn pattern_of(&mut self, page: &AuditedPage) -> &mut AuditedPattern {
        let key = page.key();
        if !self.patterns.contains_key(&key) {
            self.make_room();
        }
        self.patterns.entry(key).or_default()
    }

    /// Where there is no place left, the pattern goes that was not compared for the longest time, one that never differed
    /// first.
    fn make_room(&mut self) {
        if self.patterns.len() < PATTERNS_MAX {
            return;
        }
        let oldest = self.patterns.iter().min_by(|(_, a), (_, b)| {
            let rank = |one: &AuditedPattern| (one.totals.any_differed(), one.last);
            rank(a).0.cmp(&rank(b).0).then(rank(a).1.total_cmp(&rank(b).1))
        });
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.patterns.remove(&key);
        }
    }
}

impl AuditedPattern {
    /// What the lines of TOML are for: the page, as long as it alone differs and can be written, or the pattern.
    fn lines_for(&self, pattern: &str) -> String {
        let is_plain =
            |path: &str| path.is_ascii() && !path.contains(['*', '{', '}', '~', '%', ';', '…']);
        match self.evidence.differing_pages() == 1 && is_plain(&self.path) {
            true => self.path.clone(),
            false => route_path(pattern),
        }
    }

    /// Notes what a comparison showed. `has_room`: whether requests may be kept that explain a difference.
    fn note(
        &mut self,
        page: &AuditedPage,
        result: AuditResult,
        has_room: bool,
        now: f64,
    ) -> PatternVerdict {
        self.totals.add(&result);
        (self.route, self.last) = (Some(Arc::clone(&page.route)), now);
        if result == AuditResult::Leak {
            self.differs(page, Vec::new(), now);
            self.causes.clear();
            return PatternVerdict::Leak;
        }
        let Some(shown) = ComparisonResult::of(&result) else { return PatternVerdict::Nothing };
        if !self.evidence.begin(page, now) {
            return PatternVerdict::Nothing;
        }
        let verdict = self.evidence.add(page, shown, has_room);
        if let ComparisonResult::Differs { .. } = shown {
            self.differs(page, result.places(), now);
            self.networks = self.evidence.networks();
            self.causes = self.evidence.causes();
        }
        verdict
    }

    fn differs(&mut self, page: &AuditedPage, places: Vec<DifferingPlace>, now: f64) {
        (self.path, self.places, self.differed_at) = (page.path.clone(), places, now);
    }

    fn told(&self, (host, pattern, _): &PatternKey) -> AuditedPatternReport {
        let differs = self.totals.any_differed();
        AuditedPatternReport {
            host: host.clone(),
            pattern: pattern.clone(),
            route: self.route.as_ref().map(ToString::to_string).unwrap_or_default(),
            totals: self.totals,
            networks: self.networks as u64,
            path: differs.then(|| self.path.clone()),
            differed_at: differs.then_some(self.differed_at),
            places: self.places.clone(),
            toml: differs.then(|| lines(&self.lines_for(pattern), &self.causes)),
            causes: self.causes.iter().map(AuditCause::name).collect(),
        }
    }
}

/// The pattern as `match.path` has it, where `*` stands for whole segments.
fn route_path(pattern: &str) -> String {
    let segments = pattern.split('/').map(|segment| match segment.starts_with('*') {
        true => "*",
        false => segment,
    });
    segments.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::AuditedRequest;

    fn page(pattern: &str, network: u32) -> AuditedPage {
        AuditedPage {
            host: "shop.test".to_owned(),
            pattern: pattern.to_owned(),
            route: Arc::from("default"),
            rules: Arc::from("r1"),
            page_changes: 0,
            digest: pattern.to_owned(),
            path: pattern.replace('*', "7"),
            network,
            request: AuditedRequest::default(),
        }
    }

    fn differs() -> AuditResult {
        AuditResult::Differs(Vec::new())
    }

    #[test]
    fn differences_are_counted_by_network() {
        let audits = Audits::default();
        let note = |network, result| audits.note(&page("/a", network), result);
        assert_eq!(note(1, AuditResult::Same), PatternVerdict::Nothing);
        assert_eq!(note(1, differs()), PatternVerdict::Doubtful(1));
        assert_eq!(note(1, differs()), PatternVerdict::Nothing, "the network is known");
        assert_eq!(note(2, differs()), PatternVerdict::PageDiffers(2));
        audits.note(&page("/b/*", 2), AuditResult::Noise);
        audits.note(&page("/b/*", 2), AuditResult::Unknown);
        let report = audits.report();
        let expected =
            AuditTotals { compared: 5, same: 1, noise: 1, differed: 3, leaks: 0, unknown: 1 };
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
        audits.note(&page("/bad", 1), differs());
        for n in 0..3 * PATTERNS_MAX {
            audits.note(&page(&format!("/{n}"), 1), AuditResult::Same);
        }
        assert!(audits.findings().patterns.len() <= PATTERNS_MAX);
        assert_eq!(audits.report().patterns[0].pattern, "/bad");
    }

    #[test]
    fn what_differs_by_chance_is_not_stopped() {
        let audits = Audits::default();
        for _ in 0..40 {
            audits.note(&page("/quote", 1), AuditResult::Noise);
        }
        for network in 1..4 {
            let verdict = audits.note(&page("/quote", network), differs());
            assert_eq!(verdict, PatternVerdict::Doubtful(network as usize));
        }
    }

    #[test]
    fn under_other_rules_and_after_an_order_pages_must_be_seen_anew() {
        let audits = Audits::default();
        let other = AuditedPage { rules: Arc::from("r2"), ..page("/a", 2) };
        let later = |network| AuditedPage { page_changes: 1, ..page("/a", network) };
        audits.note(&page("/a", 1), differs());
        assert_eq!(audits.note(&other, differs()), PatternVerdict::Doubtful(1));
        assert_eq!(audits.note(&later(2), differs()), PatternVerdict::Doubtful(1));
        assert_eq!(audits.note(&later(3), differs()), PatternVerdict::PageDiffers(2));
    }

    #[test]
    fn a_leak_is_told_whatever_was_stopped_meanwhile() {
        let audits = Audits::default();
        audits.note(&AuditedPage { page_changes: 1, ..page("/a", 1) }, AuditResult::Same);
        assert_eq!(audits.note(&page("/a", 2), AuditResult::Leak), PatternVerdict::Leak);
    }

    #[test]
    fn what_few_see_must_be_seen_from_many_networks() {
        let audits = Audits::default();
        for _ in 0..1_000 {
            audits.note(&page("/a", 1), AuditResult::Same);
        }
        for network in 1..8 {
            let verdict = audits.note(&page("/a", network), differs());
            assert_eq!(verdict, PatternVerdict::Doubtful(network as usize));
        }
        assert_eq!(audits.note(&page("/a", 8), differs()), PatternVerdict::PageDiffers(8));
    }

    #[test]
    fn the_cause_is_told_with_the_lines_that_help() {
        let audits = Audits::default();
        let with = |network, language| {
            let mut page = page("/news/*.html", network);
            (page.request.fields[0], page.request.fields[2]) = (network, language);
            page
        };
        audits.note(&with(1, 5), differs());
        for network in 2..5 {
            audits.note(&with(network, 6), AuditResult::Same);
        }
        audits.note(&with(9, 5), differs());
        let told = &audits.report().patterns[0];
        assert_eq!(told.causes, ["Accept-Language"]);
        let expected =
            "[[route]]\nmatch.path = \"/news/7.html\"\nkey_headers = [\"accept-language\"]";
        assert_eq!(told.toml.as_deref(), Some(expected));
        assert_eq!(audits.note(&page("/b", 1), AuditResult::Leak), PatternVerdict::Leak);
        assert_eq!(audits.report().patterns[0].pattern, "/b", "a leak comes first");
    }

    #[test]
    fn what_the_app_refuses_some_is_stopped_only_where_it_refuses_many() {
        let audits = Audits::default();
        let refused = |network| audits.note(&page("/a", network), AuditResult::Refused);
        for network in 1..8 {
            assert_eq!(refused(network), PatternVerdict::Doubtful(network as usize));
        }
        assert_eq!(refused(8), PatternVerdict::PageDiffers(8));
        let audits = Audits::default();
        for _ in 0..300 {
            audits.note(&page("/a", 1), AuditResult::Same);
        }
        let last = (1..9).map(|n| audits.note(&page("/a", n), AuditResult::Refused)).last();
        assert_eq!(last, Some(PatternVerdict::Doubtful(8)), "robots");
    }

    #[test]
    fn a_comparison_from_before_an_order_resets_nothing() {
        let audits = Audits::default();
        let later = |network| AuditedPage { page_changes: 1, ..page("/a", network) };
        audits.note(&later(1), differs());
        audits.note(&page("/a", 2), AuditResult::Same);
        assert_eq!(audits.note(&later(2), differs()), PatternVerdict::PageDiffers(2));
    }

    fn of_kind(number: u32, network: u32) -> AuditedPage {
        AuditedPage { digest: number.to_string(), ..page("/item/*", network) }
    }

    #[test]
    fn the_pattern_differs_with_several_of_its_pages() {
        let audits = Audits::default();
        for number in 1..3 {
            let verdict = audits.note(&of_kind(number, number), differs());
            assert_eq!(verdict, PatternVerdict::Doubtful(number as usize), "one witness each");
        }
        assert_eq!(audits.note(&of_kind(3, 3), differs()), PatternVerdict::PatternDiffers(3));
    }

    #[test]
    fn a_page_that_is_the_same_for_many_speaks_against_that() {
        let audits = Audits::default();
        for nth in 0..20 {
            audits.note(&of_kind(9, nth % 3), AuditResult::Same);
        }
        for number in 1..5 {
            audits.note(&of_kind(number, 1), differs());
            let verdict = audits.note(&of_kind(number, 2), differs());
            assert_eq!(verdict, PatternVerdict::PageDiffers(2), "this page alone");
        }
        audits.note(&of_kind(9, 1), differs());
        assert_eq!(audits.note(&of_kind(1, 3), differs()), PatternVerdict::PatternDiffers(3));
    }
}
