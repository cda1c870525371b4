//! The backup command: the proxy writes the file itself, and tells how far it is. So a backup may take longer than a
//! connection.

use std::sync::Arc;

use ::http::StatusCode;
use anteroom_store::backup::back_up;

use super::commands::{CommandRefusal, Commands, bad, read};
use super::latest_backup::{BackupOrder, BackupState};

impl Commands {
    /// Begins a backup, and tells of it.
    pub(super) fn begin_backup(&self, body: &[u8]) -> Result<BackupState, CommandRefusal> {
        let BackupOrder { file } = read(body)?;
        if !file.is_absolute() {
            return Err(bad(&"the path of the file must begin with /"));
        }
        let Some(progress) = self.backup.begin() else {
            let why = "another backup is being written: wait until it is done";
            return Err((StatusCode::CONFLICT, why.to_owned()));
        };
        let (latest, store) = (Arc::clone(&self.backup), self.store.clone());
        tokio::task::spawn_local(async move {
            let done = back_up(&store, &file, &progress).await;
            if let Err(error) = &done {
                tracing::warn!(%error, "the backup of the store failed");
            }
            latest.end(done.map(|counts| (counts.sessions, counts.visitors, counts.others)));
        });
        Ok(self.backup.current())
    }

    /// How the latest backup is.
    pub(super) fn backup_state(&self) -> BackupState {
        self.backup.current()
    }
}
