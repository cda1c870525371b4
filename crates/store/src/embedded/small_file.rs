//! The small files of the store's folder: each is written whole or not at all, and what was changed lasts through a
//! power cut.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// Writes `text` in place of the file `name`. Waits for the disk.
pub(super) fn write(folder: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    let temporary = folder.join(format!("{name}.new"));
    let mut file = File::create(&temporary)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(temporary, folder.join(name))?;
    sync(folder)
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
