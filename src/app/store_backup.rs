//! `anteroom store backup`, `restore` and `verify` of stores that no proxy uses.

use std::path::Path;

use anteroom_store::backup::{self, BackupCounts, BackupError};
use anteroom_store::transfer::TransferProgress;
use anteroom_store::{OpenError, embedded};

use super::migrate_store::{StoreMigrationError, UnusedStore, telling};
use super::runtime::runtime;
use super::start_error::StartError;
use super::store::StorePlace;

/// Why a backup was not written, restored or found whole.
#[derive(Debug, thiserror::Error)]
pub enum StoreBackupError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreMigrationError),
    /// The file, or a step at the store.
    #[error(transparent)]
    File(#[from] BackupError),
    /// The folder.
    #[error(transparent)]
    Folder(#[from] OpenError),
    /// The system refused something.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Writes a backup of a store that no proxy uses. Blocks.
///
/// # Errors
/// See [`StoreBackupError`].
pub fn back_up_store(
    from: &StorePlace,
    file: &Path,
    mut tell: impl FnMut(&TransferProgress),
) -> Result<BackupCounts, StoreBackupError> {
    runtime()?.block_on(async {
        let source = UnusedStore::open("--from", from, false).await?;
        let progress = TransferProgress::default();
        let backup = backup::back_up(&source.store, file, &progress);
        let counts = telling(backup, || tell(&progress)).await?;
        source.close().await;
        Ok(counts)
    })
}

/// Puts a backup into a store that no proxy uses. With `replace` the store may hold something, which is removed.
/// Blocks.
///
/// # Errors
/// See [`StoreBackupError`].
pub fn restore_store(
    file: &Path,
    to: &StorePlace,
    replace: bool,
    mut tell: impl FnMut(&TransferProgress),
) -> Result<BackupCounts, StoreBackupError> {
    backup::verify(file)?;
    runtime()?.block_on(async {
        let target = UnusedStore::open("--to", to, true).await?;
        if !replace {
            target.refuse_full().await?;
        }
        let progress = TransferProgress::default();
        let restored = backup::restore(&target.store, file, &progress);
        let counts = telling(restored, || tell(&progress)).await?;
        target.close().await;
        Ok(counts)
    })
}

/// Reads a backup, or the folder of an embedded store that no proxy uses, to its end. A folder that was closed badly is
/// repaired. Returns what a backup holds. Blocks.
///
/// # Errors
/// If it is damaged.
pub fn verify_store(path: &Path) -> Result<Option<BackupCounts>, StoreBackupError> {
    if !path.is_dir() {
        return Ok(Some(backup::verify(path)?));
    }
    if !path.join(embedded::SESSIONS_FILE).exists() {
        return Err(StoreMigrationError::Missing(path.display().to_string()).into());
    }
    embedded::check_folder(path)?;
    Ok(None)
}
