//! The register of proxies, of which one has the folder: in memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anteroom_http::clock::unix_now;
use tokio::task::spawn_blocking;

use super::EmbeddedStore;
use crate::fleet::{FLEET_MAX, FleetRegister, FleetStore, RegisteredProxy};
use crate::{Generation, StoreError};

/// Each proxy with its entry, and when it was written.
#[derive(Debug, Default)]
pub(super) struct Proxies(Mutex<BTreeMap<u64, (Instant, String)>>);

impl FleetStore for EmbeddedStore {
    async fn register_proxy(
        &self,
        process_id: u64,
        entry: &str,
        lives: Duration,
    ) -> Result<FleetRegister, StoreError> {
        // No code that can panic runs under this lock.
        let mut proxies = self.0.proxies.0.lock().unwrap_or_else(PoisonError::into_inner);
        proxies.retain(|other, (written, _)| *other != process_id && written.elapsed() <= lives);
        if proxies.len() < FLEET_MAX {
            proxies.insert(process_id, (Instant::now(), entry.to_owned()));
        }
        let now = unix_now();
        // Purges of the one process are in effect at once.
        let proxies = proxies.iter().map(|(process_id, (written, entry))| RegisteredProxy {
            process_id: *process_id,
            written: now - written.elapsed().as_secs_f64(),
            seen: Some(Generation::default()),
            entry: entry.clone(),
        });
        let moving = self.0.moving.state();
        let (purges, proxies) = (Generation::default(), proxies.collect());
        Ok(FleetRegister { now, clock: None, purges, moving, proxies })
    }

    async fn unregister_proxy(&self, process_id: u64) -> Result<(), StoreError> {
        self.0.proxies.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&process_id);
        Ok(())
    }

    async fn change_move(
        &self,
        before: Option<&str>,
        after: Option<&str>,
        lives: Option<Duration>,
    ) -> Result<bool, StoreError> {
        let (before, after) = (before.map(str::to_owned), after.map(str::to_owned));
        let store = self.clone();
        let changed =
            spawn_blocking(move || store.0.moving.change(before.as_deref(), after, lives)).await;
        match changed {
            Ok(Ok(changed)) => Ok(changed),
            Ok(Err(error)) => Err(StoreError::Failed(error.into())),
            Err(panicked) => Err(StoreError::Failed(panicked.into())),
        }
    }

    async fn move_state(&self) -> Result<Option<String>, StoreError> {
        Ok(self.0.moving.state())
    }

    async fn has_other_layout(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn other_prefixes(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}
