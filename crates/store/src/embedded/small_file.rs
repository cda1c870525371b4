//! The small files of the store's folder: each is written whole or not at all, and but for [`write_unsynced`], what was
//! changed lasts through a power cut.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;

use crate::StoreError;

/// Writes `text` in place of the file `name`, for this user alone. Waits for the disk.
pub(super) fn write(folder: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    let (file, temporary) = write_beside(folder, name, text)?;
    file.sync_all()?;
    fs::rename(temporary, folder.join(name))?;
    sync(folder)
}

/// The same without a sync: a power cut may cost the file, or leave it empty.
pub(super) fn write_unsynced(folder: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    let (_, temporary) = write_beside(folder, name, text)?;
    fs::rename(temporary, folder.join(name))
}

/// Writes `text` into the file that is to replace `name`.
fn write_beside(folder: &Path, name: &str, text: &[u8]) -> io::Result<(File, PathBuf)> {
    let temporary = folder.join(format!("{name}.new"));
    let mut options = File::options();
    // SECURITY: the folder may be older than the proxy, and open to others.
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(text)?;
    Ok((file, temporary))
}

/// Removes the file `name`; a missing one is no error. Waits for the disk.
pub(super) fn remove(folder: &Path, name: &str) -> io::Result<()> {
    match fs::remove_file(folder.join(name)) {
        Ok(()) => sync(folder),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes durable which files the folder has.
pub(super) fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Locks the folder until the file is dropped, where the file system can.
pub(super) fn lock(folder: &Path) -> Option<File> {
    let folder = File::open(folder).ok()?;
    folder.lock().ok()?;
    Some(folder)
}

/// A step that waits for the disk, on a thread that may.
pub(super) async fn answer_of<T: Send + 'static>(
    step: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, StoreError> {
    match spawn_blocking(step).await {
        Ok(answer) => answer.map_err(|error| StoreError::Failed(error.into())),
        Err(panicked) => Err(StoreError::Failed(panicked.into())),
    }
}
