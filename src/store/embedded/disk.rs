//! One redb file: opened, read, written, and reopened after an error.
//!
//! After an I/O error redb refuses everything until the file is reopened; that is done here, so
//! that a disk that was full for a while needs no restart. The tables are defined elsewhere.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, TryLockError};

use redb::{
    Builder, Database, DatabaseError, Durability, ReadTransaction, ReadableDatabase as _,
    StorageError, WriteTransaction,
};

use crate::store::StoreError;

/// A redb file. Many threads read; one writes.
pub(super) struct Disk {
    path: PathBuf,
    cache_bytes: usize,
    /// `None` while the file is closed, or could not be reopened. Readers hold the lock for one
    /// read; the writer takes it exclusively only to close and open.
    database: RwLock<Option<Database>>,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Disk {
    /// Opens or creates the file and locks it.
    pub(super) fn open(path: PathBuf, cache_bytes: usize) -> Result<Self, DatabaseError> {
        let database = open(&path, cache_bytes)?;
        Ok(Self { path, cache_bytes, database: RwLock::new(Some(database)) })
    }

    /// Reads within one transaction. Never waits: while the file is being reopened the store is
    /// away.
    pub(super) fn read<T>(
        &self,
        look: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let guard = match self.database.try_read() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(StoreError::Away),
        };
        let Some(database) = guard.as_ref() else { return Err(StoreError::Away) };
        let answer = database.begin_read().map_err(redb::Error::from).and_then(|txn| look(&txn));
        answer.map_err(|error| StoreError::Failed(Box::new(error)))
    }

    /// Begins the one write transaction. For the writer thread only: it waits until another ends.
    pub(super) fn begin(&self, durability: Durability) -> Result<WriteTransaction, redb::Error> {
        let guard = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let Some(database) = guard.as_ref() else {
            return Err(StorageError::DatabaseClosed.into());
        };
        let mut txn = database.begin_write()?;
        txn.set_durability(durability)?;
        Ok(txn)
    }

    /// Closes the file and reopens it at its last durable commit.
    pub(super) fn reopen(&self) -> Result<(), redb::Error> {
        self.replace(|| Ok(()))
    }

    /// Closes the file and begins a new, empty one.
    pub(super) fn recreate(&self) -> Result<(), redb::Error> {
        self.replace(|| delete(&self.path))
    }

    fn replace(&self, between: impl FnOnce() -> io::Result<()>) -> Result<(), redb::Error> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        // Drop the old one first: it holds the lock on the file.
        drop(database.take());
        between()?;
        *database = Some(open(&self.path, self.cache_bytes)?);
        Ok(())
    }

    /// Checks every block; blocks.
    pub(super) fn check(&self) -> Result<(), redb::Error> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        let Some(database) = database.as_mut() else {
            return Err(StorageError::DatabaseClosed.into());
        };
        match database.check_integrity()? {
            true => Ok(()),
            false => Err(redb::Error::Corrupted(
                "blocks were damaged; they have been repaired as far as possible".to_owned(),
            )),
        }
    }

    /// Closes the file for good. Readers find the store away.
    pub(super) fn close(&self) {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        drop(database.take());
    }

    /// Whether the file can be read now.
    pub(super) fn is_open(&self) -> bool {
        self.database.try_read().is_ok_and(|guard| guard.is_some())
    }
}

/// Deletes a file; a missing file is no error.
pub(super) fn delete(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A new file is its owner's alone, because it holds tokens, and its folder may be one that others read.
fn open(path: &Path, cache_bytes: usize) -> Result<Database, DatabaseError> {
    // A file that is there is not opened here: closing it could end locks on it.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    Builder::new().set_cache_size(cache_bytes).create(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_new_file_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.redb");
        let _disk = Disk::open(path.clone(), 1 << 20).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
