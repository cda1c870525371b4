//! What the audit has found, as the operator gets it.

use serde::{Deserialize, Serialize};

use super::difference::{AuditResult, DifferingPlace};

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AuditReport {
    /// The Unix time since which it counts: the start of the process.
    pub since: f64,
    /// The Unix time of the report.
    pub at: f64,
    /// Of all patterns, those that have made room for others, too.
    #[serde(flatten)]
    pub totals: AuditTotals,
    /// The patterns of URLs, what differs first; at most 100.
    pub patterns: Vec<AuditedPatternReport>,
    /// The pages that are not shared any more, in all proxies on the store.
    #[serde(default)]
    pub stopped: Vec<StoppedPattern>,
}

/// Pages that are not shared any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppedPattern {
    /// The site; `*`: all.
    pub host: String,
    /// The pattern; `**`: all pages of the route.
    pub pattern: String,
    /// The route.
    pub route: String,
    /// Why.
    pub by: String,
    /// Whether the answering proxy alone knows of it, because the store did not take it.
    #[serde(default)]
    pub only_here: bool,
}

/// How many comparisons there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditTotals {
    /// Answers of the app that were compared with the stored page.
    pub compared: u64,
    /// Those that were the same.
    pub same: u64,
    /// Those that differed as another fetch of the page did.
    pub noise: u64,
    /// Those that differed otherwise.
    pub differed: u64,
    /// Stored pages that held a visitor's own words.
    #[serde(default)]
    pub leaks: u64,
    /// Answers that could not be compared: errors of the app, what is too large, and what may differ by a field with which a
    /// page from the store was filled.
    pub unknown: u64,
}

impl AuditTotals {
    /// Whether an answer was another than the stored page, but for noise.
    #[must_use]
    pub fn any_differed(&self) -> bool {
        self.differed + self.leaks > 0
    }

    pub(super) fn add(&mut self, result: &AuditResult) {
        self.compared += u64::from(*result != AuditResult::Unknown);
        match result {
            AuditResult::Same => self.same += 1,
            AuditResult::Noise | AuditResult::Edited => self.noise += 1,
            AuditResult::Differs(_) | AuditResult::Refused => self.differed += 1,
            AuditResult::Leak => self.leaks += 1,
            AuditResult::Unknown => self.unknown += 1,
        }
    }
}

/// A pattern of URLs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AuditedPatternReport {
    /// The site.
    pub host: String,
    /// The path, with `*` where pages of one kind differ.
    pub pattern: String,
    /// The route.
    pub route: String,
    /// Of this pattern alone.
    #[serde(flatten)]
    pub totals: AuditTotals,
    /// From how many networks visitors saw something else, at most 8.
    pub networks: u64,
    /// The path of the last page that differed.
    pub path: Option<String>,
    /// When that was, in Unix time.
    pub differed_at: Option<f64>,
    /// Where it differed, at most 64 places. Nothing of the text is kept.
    pub places: Vec<DifferingPlace>,
    /// What explains it, if it is known: all of these do.
    #[serde(default)]
    pub causes: Vec<String>,
    /// The lines of `proxy.toml` that keep apart the visitors who see different things.
    #[serde(default)]
    pub toml: Option<String>,
}
