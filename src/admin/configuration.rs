//! The configuration in force, as operators see it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anteroom_http::clock::unix_now;
use serde::{Deserialize, Serialize};

/// The most problems of a refused reload that are kept.
const PROBLEMS_MAX: usize = 20;

/// How reloads went.
#[derive(Debug, Default)]
pub struct ReloadCounts {
    /// Configurations put into force.
    pub done: AtomicU64,
    /// Reloads that changed nothing.
    pub refused: AtomicU64,
    /// The last one of these, if none was put into force since.
    last_refused: Mutex<Option<RefusedReload>>,
}

/// A reload that changed nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RefusedReload {
    /// The Unix time.
    pub at: f64,
    /// Why: the first problems.
    pub problems: Vec<String>,
}

impl ReloadCounts {
    /// Counts a configuration that was put into force.
    pub fn count_done(&self) {
        *self.last() = None;
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a reload that changed nothing, and keeps why.
    pub fn count_refused(&self, problems: &[String]) {
        let problems = problems.iter().take(PROBLEMS_MAX).cloned().collect();
        *self.last() = Some(RefusedReload { at: unix_now(), problems });
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// The last reload, if it was refused.
    #[must_use]
    pub fn last_refused(&self) -> Option<RefusedReload> {
        self.last().clone()
    }

    fn last(&self) -> MutexGuard<'_, Option<RefusedReload>> {
        self.last_refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the proxy has found out about the configuration while it ran: hints, by the cookie that each is about.
pub type FoundHints = Mutex<BTreeMap<String, String>>;

/// The configuration in force, without secrets.
#[derive(Debug, Default)]
pub struct ConfigReport {
    /// As `anteroom config print` prints it.
    pub text: String,
    /// The keys that are not at their defaults.
    pub changed: Vec<String>,
    /// What was warned of when it was read.
    pub warnings: Vec<String>,
}

/// The answer about the configuration.
#[derive(Debug, Serialize)]
pub(super) struct ConfigAnswer<'c> {
    text: &'c str,
    changed: &'c [String],
    warnings: Vec<String>,
    reloads: ReloadAnswer,
}

#[derive(Debug, Serialize)]
struct ReloadAnswer {
    done: u64,
    refused: u64,
}

impl<'c> ConfigAnswer<'c> {
    pub(super) fn new(
        config: &'c ConfigReport,
        hints: &FoundHints,
        reloads: &ReloadCounts,
    ) -> Self {
        let found = hints.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            text: &config.text,
            changed: &config.changed,
            warnings: config.warnings.iter().chain(found.values()).cloned().collect(),
            reloads: ReloadAnswer {
                done: reloads.done.load(Ordering::Relaxed),
                refused: reloads.refused.load(Ordering::Relaxed),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_reload_is_kept_until_the_next_configuration() {
        let reloads = ReloadCounts::default();
        assert_eq!(reloads.last_refused(), None);
        let problems: Vec<String> = (0..30).map(|problem| problem.to_string()).collect();
        reloads.count_refused(&problems);
        let kept = reloads.last_refused().unwrap();
        assert_eq!(kept.problems, problems[..PROBLEMS_MAX]);
        assert!(kept.at > 0.0);
        reloads.count_done();
        assert_eq!(reloads.last_refused(), None);
        assert_eq!(reloads.refused.load(Ordering::Relaxed), 1);
    }
}
