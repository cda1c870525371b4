//! The command that moves the store to the next one.

use std::sync::Arc;

use ::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::commands::{CommandRefusal, Commands, bad, read};
use crate::task::{MigrateStore, MigrationStatus};

/// What to do with the next store.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct MigrationRequest {
    /// Whether it may have sessions, which are removed where this store does not have them.
    pub replace: bool,
}

impl Commands {
    /// Begins a move, and returns at once: its report tells of it.
    pub(super) fn migrate_store(&self, body: &[u8]) -> Result<MigrationStatus, CommandRefusal> {
        let MigrationRequest { replace } = read(body)?;
        let target = self.move_target.clone();
        let target = target.ok_or_else(|| bad(&"the configuration has no [store.next] url"))?;
        if self.fleet.switch.has_moved() {
            let why =
                "the store has been moved: make [store.next] the [store] of the configuration";
            return Err((StatusCode::CONFLICT, why.to_owned()));
        }
        if !self.moving.is_free() {
            return Err((StatusCode::CONFLICT, "a move is under way".to_owned()));
        }
        let work = MigrateStore {
            from: self.store.fixed(),
            fleet: Arc::clone(&self.fleet),
            process_id: self.worker.pages.purged.process_id,
            entry: self.entry.clone(),
            target,
            advice: self.move_advice.clone(),
            replace,
            progress: Arc::clone(&self.moving),
        };
        tokio::task::spawn_local(work.run());
        Ok(self.moving.report())
    }
}
