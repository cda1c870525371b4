//! Whether the store answers, and what went wrong so far.

use std::sync::atomic::{AtomicU64, Ordering};

use super::StoreError;

/// Whether the store answers, as far as is known without asking it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreState {
    /// It answers.
    Connected,
    /// There is no connection, or the breaker is open: calls fail at once.
    Away,
}

/// What went wrong so far, over all lanes: counters for `/metrics`.
#[derive(Debug, Default)]
pub struct Counters {
    timeouts: AtomicU64,
    failures: AtomicU64,
    breaker_openings: AtomicU64,
    page_bytes: AtomicU64,
}

/// One reading of the [`Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Calls that used up their budget.
    pub timeouts: u64,
    /// Calls that the store answered with an error, or whose connection broke.
    pub failures: u64,
    /// How often the breaker opened.
    pub breaker_openings: u64,
}

impl Counters {
    pub(super) fn opened(&self) {
        self.breaker_openings.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the error that a call is about to return. `Away` and `Full` are answers.
    pub(super) fn count(&self, error: &StoreError) {
        match error {
            StoreError::TimedOut => self.timeouts.fetch_add(1, Ordering::Relaxed),
            StoreError::Failed(_) | StoreError::Unanswered(_) => {
                self.failures.fetch_add(1, Ordering::Relaxed)
            }
            StoreError::Away
            | StoreError::Full
            | StoreError::NearlyFull
            | StoreError::TooLarge
            | StoreError::RowsFull => 0,
        };
    }

    /// Bytes of pages in the store, as it was last told.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn holds(&self, page_bytes: u64) {
        self.page_bytes.store(page_bytes, Ordering::Relaxed);
    }

    /// The counters now.
    #[must_use]
    pub fn read(&self) -> Counted {
        Counted {
            timeouts: self.timeouts.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            breaker_openings: self.breaker_openings.load(Ordering::Relaxed),
        }
    }
}
