//! The configuration in force, as operators see it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

/// How reloads went.
#[derive(Debug, Default)]
pub struct ReloadCounts {
    /// Configurations put into force.
    pub done: AtomicU64,
    /// Reloads that changed nothing.
    pub refused: AtomicU64,
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
