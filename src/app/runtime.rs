//! The runtime of a thread.

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

use super::start_error::StartError;

/// A runtime for the tasks of this thread alone.
pub(super) fn runtime() -> Result<LocalRuntime, StartError> {
    Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(|source| StartError::System { what: "a runtime", source })
}
