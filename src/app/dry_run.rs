//! A worker without a listener, and with an empty store of its own: for `anteroom test`, and for tables of tests.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use anteroom_config::{Plan, StoreUrl};
use anteroom_proxy::WorkerContext;

use super::certificate_parts::CertificateParts;
use super::live_config::LiveConfig;
use super::origins::Origins;
use super::runtime::runtime;
use super::shared_state::SharedState;
use super::start_error::StartError;
use super::store;
use super::worker::dry_worker;

/// Runs `run` with a worker under `plan`, whose store is replaced by an empty one.
///
/// # Errors
/// If the plan names a file that cannot be read, or there is no room for the store.
pub fn with_worker<T>(
    mut plan: Plan,
    run: impl AsyncFnOnce(&Rc<WorkerContext>) -> T,
) -> Result<T, StartError> {
    let folder = ScratchFolder::new()
        .map_err(|source| StartError::System { what: "a temporary folder", source })?;
    plan.store.url = StoreUrl::Embedded(folder.0.clone());
    plan.store.pages_url = None;
    runtime()?.block_on(async {
        let store = store::open(&plan).await?;
        let (certificates, ticket_keys) = (CertificateParts::default(), Arc::default());
        let metrics = Arc::default();
        let process_id = fastrand::u64(..);
        let shared =
            SharedState::new(&plan, &metrics, &store, certificates, &ticket_keys, process_id);
        let live = LiveConfig::new(plan.into(), &shared, &Origins::default())?;
        let worker = dry_worker(&live, &shared, &store.thread_handle());
        let answer = run(&worker).await;
        store.close().await;
        Ok(answer)
    })
}

/// A private folder that is removed on Drop.
struct ScratchFolder(PathBuf);

impl ScratchFolder {
    fn new() -> std::io::Result<Self> {
        let name = format!("anteroom-test-{}-{:016x}", std::process::id(), fastrand::u64(..));
        let path = std::env::temp_dir().join(name);
        // Fails if the folder exists: it may be another user's.
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::debug!(%error, "a temporary folder stays behind");
        }
    }
}
