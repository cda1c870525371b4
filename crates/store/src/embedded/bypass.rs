//! The bypass switches of the one process that has the folder: in a file, so that the next process knows them.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anteroom_http::clock::unix_now;
use tokio::task::spawn_blocking;

use super::{EmbeddedStore, small_file};
use crate::StoreError;
use crate::bypass::{BypassChange, BypassStore, StoredBypass, StoredBypasses};

/// The name of the file: a line of JSON for each switch, with its field and its value.
const FILE: &str = "bypass";
/// The longest file that is read, in bytes.
const FILE_MAX: u64 = 256 << 10;

/// The switches, and where they are kept.
#[derive(Debug)]
pub(super) struct BypassFile {
    folder: PathBuf,
    bypasses: Mutex<Vec<StoredBypass>>,
}

impl BypassFile {
    /// What is not ours in the file is left out.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let mut text = Vec::new();
        match File::open(folder.join(FILE)) {
            Ok(file) => drop(file.take(FILE_MAX).read_to_end(&mut text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let lines = text.split(|byte| *byte == b'\n');
        let stored: Vec<(String, String)> =
            lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        let StoredBypasses { bypasses, .. } = StoredBypasses::of(now(), &stored);
        Ok(Self { folder: folder.to_owned(), bypasses: Mutex::new(bypasses) })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<StoredBypass>> {
        // No code that can panic runs under this lock.
        self.bypasses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are on.
    pub(super) fn list(&self) -> StoredBypasses {
        let now = now();
        let mut bypasses = self.lock();
        bypasses.retain(|bypass| bypass.until > now);
        StoredBypasses { now, bypasses: bypasses.clone() }
    }

    /// As [`BypassStore::change_bypass`]. It waits for the disk.
    fn change(&self, change: BypassChange) -> Result<StoredBypasses, StoreError> {
        let now = now();
        let mut bypasses = self.lock();
        let mut next = bypasses.clone();
        next.retain(|one| one.until > now && !change.covers(&one.scope));
        if let Some(lasts) = change.lasts {
            let lasts = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX);
            make_room(&mut next, &change, now.saturating_add(lasts / 2))?;
            let until = now.saturating_add(lasts);
            next.push(StoredBypass { scope: change.scope, until, by: change.by });
        }
        next.sort_unstable_by(|a, b| a.scope.cmp(&b.scope));
        self.write(&next).map_err(|error| StoreError::Failed(error.into()))?;
        bypasses.clone_from(&next);
        Ok(StoredBypasses { now, bypasses: next })
    }

    fn write(&self, bypasses: &[StoredBypass]) -> io::Result<()> {
        if bypasses.is_empty() {
            return small_file::remove(&self.folder, FILE);
        }
        let mut text = Vec::new();
        for bypass in bypasses {
            serde_json::to_writer(&mut text, &(bypass.scope.field(), bypass.value()))?;
            text.push(b'\n');
        }
        small_file::write(&self.folder, FILE, &text)
    }
}

/// Makes room for a switch, as `lua/change_bypass.lua` does.
fn make_room(
    next: &mut Vec<StoredBypass>,
    change: &BypassChange,
    half: u64,
) -> Result<(), StoreError> {
    let of_pages = change.scope.pages().is_some();
    let is_kind = |one: &StoredBypass| one.scope.pages().is_some() == of_pages;
    if next.iter().filter(|one| is_kind(one)).count() < change.most() {
        return Ok(());
    }
    let kind = next.iter().enumerate().filter(|(_, one)| is_kind(one));
    let first = kind.min_by_key(|(_, one)| one.until);
    match first.filter(|(_, one)| of_pages && one.until < half).map(|(place, _)| place) {
        Some(place) => {
            next.remove(place);
            Ok(())
        }
        None => Err(StoreError::BypassesFull),
    }
}

impl BypassStore for EmbeddedStore {
    async fn change_bypass(&self, change: &BypassChange) -> Result<StoredBypasses, StoreError> {
        let (store, change) = (self.clone(), change.clone());
        spawn_blocking(move || store.0.bypass.change(change))
            .await
            .unwrap_or_else(|panicked| Err(StoreError::Failed(panicked.into())))
    }

    async fn bypasses(&self) -> Result<StoredBypasses, StoreError> {
        Ok(self.0.bypass.list())
    }
}

/// The Unix time in milliseconds.
fn now() -> u64 {
    (unix_now() * 1000.0) as u64
}
