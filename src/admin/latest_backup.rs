//! How the latest backup of the store is.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use anteroom_store::backup::BackupError;
use anteroom_store::transfer::TransferProgress;

/// Which backup to write.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackupOrder {
    /// The file, as an absolute path.
    pub file: PathBuf,
}

/// How the latest backup is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupState {
    /// Its number, since this proxy started; 0: there was none.
    pub number: u64,
    /// Whether it is being written.
    pub runs: bool,
    /// Sessions and visitors written.
    pub done: u64,
    /// About how many there are.
    pub of: u64,
    /// Why it failed.
    pub error: Option<String>,
    /// What is in it, once it is whole: sessions, visitors, other records.
    pub written: Option<(u64, u64, u64)>,
}

/// The latest backup of this process. There is one at a time.
#[derive(Debug, Default)]
pub struct LatestBackup {
    state: Mutex<BackupState>,
    progress: Mutex<Arc<TransferProgress>>,
}

impl LatestBackup {
    fn state(&self) -> MutexGuard<'_, BackupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn progress(&self) -> MutexGuard<'_, Arc<TransferProgress>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn current(&self) -> BackupState {
        let (state, progress) = (self.state().clone(), Arc::clone(&self.progress()));
        BackupState { done: progress.done(), of: progress.of(), ..state }
    }

    /// Its progress; `None` while another runs.
    pub(super) fn begin(&self) -> Option<Arc<TransferProgress>> {
        let mut state = self.state();
        if state.runs {
            return None;
        }
        *state = BackupState { number: state.number + 1, runs: true, ..BackupState::default() };
        let progress = Arc::<TransferProgress>::default();
        *self.progress() = Arc::clone(&progress);
        Some(progress)
    }

    pub(super) fn end(&self, done: Result<(u64, u64, u64), BackupError>) {
        let mut state = self.state();
        state.runs = false;
        match done {
            Ok(written) => state.written = Some(written),
            Err(error) => state.error = Some(error.to_string()),
        }
    }
}
