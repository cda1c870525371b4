//! The state of a move to another store. One that is done is a file in the folder, so that the next process knows it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::small_file;

/// The name of the file.
const MOVED_FILE: &str = "moved";
/// The longest state that is read, in bytes.
const STATE_MAX: u64 = 4 << 10;

/// The state, and where it is kept.
#[derive(Debug)]
pub(super) struct MoveFile {
    folder: PathBuf,
    /// With the time when it ends by itself.
    state: Mutex<Option<(String, Option<Instant>)>>,
}

impl MoveFile {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join(MOVED_FILE);
        let state = match fs::metadata(&path) {
            Ok(file) if file.len() > STATE_MAX => {
                return Err(io::Error::other("the file `moved` is too long"));
            }
            Ok(_) => Some((fs::read_to_string(path)?, None)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Self { folder: folder.to_owned(), state: Mutex::new(state) })
    }

    pub(super) fn state(&self) -> Option<String> {
        // No code that can panic runs under this lock.
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (text, ends) = state.as_ref()?;
        ends.is_none_or(|ends| Instant::now() < ends).then(|| text.clone())
    }

    /// As [`crate::FleetStore::change_move`]. It waits for the disk.
    pub(super) fn change(
        &self,
        before: Option<&str>,
        after: Option<String>,
        lives: Option<Duration>,
    ) -> io::Result<bool> {
        if self.state().as_deref() != before {
            return Ok(false);
        }
        match (&after, lives) {
            (Some(text), None) => {
                small_file::write(&self.folder, MOVED_FILE, text.as_bytes())?;
            }
            _ => small_file::remove(&self.folder, MOVED_FILE)?,
        }
        let ends = lives.map(|lives| Instant::now() + lives);
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = after.map(|text| (text, ends));
        Ok(true)
    }
}
