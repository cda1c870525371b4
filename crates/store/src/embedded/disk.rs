//! One redb file: opened, read, written, and reopened after an error.
//!
//! After an I/O error redb refuses everything until the file is reopened; that is done here, so
//! that a disk that was full for a while needs no restart. The tables are defined elsewhere.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};

use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, Durability, ReadTransaction, ReadableDatabase as _,
    StorageError, WriteTransaction,
};

use super::resynced_storage::{LastSync, ResyncedStorage};
use super::unsynced_file::UnsyncedFile;
use crate::StoreError;

/// A redb file. Many threads read; one writes.
pub(super) struct Disk {
    path: PathBuf,
    cache_bytes: usize,
    lasting: Permanence,
    opener: Opener,
    /// That of a file that lasts.
    last_sync: Option<Arc<LastSync>>,
    /// By which numbers the system knows the file: device and inode.
    identity: Mutex<Option<(u64, u64)>>,
    /// Whether the file is no longer at its path: what is written is lost with the process.
    is_gone: AtomicBool,
    /// `None` while the file is closed, or could not be reopened. Readers hold the lock for one
    /// read; the writer takes it exclusively only to close and open.
    database: RwLock<Option<Database>>,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Opens a database on its storage: a file, or the simulated disk of a test.
pub(super) type Opener = Box<dyn Fn(&Builder) -> Result<Database, DatabaseError> + Send + Sync>;

/// Whether a file outlasts the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permanence {
    /// It does, and is locked and synced.
    Yes,
    /// It is deleted at the next start.
    No,
}

impl Disk {
    /// Opens a file that lasts; opens or creates another one.
    pub(super) fn open(
        path: PathBuf,
        cache_bytes: usize,
        lasting: Permanence,
    ) -> Result<Self, DatabaseError> {
        let (opener, last_sync) = match lasting {
            Permanence::Yes => {
                let last_sync = LastSync::unknown(path.clone());
                (opener_of_lasting(path.clone(), Arc::clone(&last_sync)), Some(last_sync))
            }
            Permanence::No => (opener_of_scratch(path.clone()), None),
        };
        let disk = Self::open_with(opener, path, cache_bytes, lasting)?;
        Ok(Self { last_sync, ..disk })
    }

    /// The same, on any storage; the path is that of the file which the store is told apart by.
    pub(super) fn open_with(
        opener: Opener,
        path: PathBuf,
        cache_bytes: usize,
        lasting: Permanence,
    ) -> Result<Self, DatabaseError> {
        let database = RwLock::new(Some(open(&opener, cache_bytes)?));
        let identity = Mutex::new(identity(&path));
        let is_gone = AtomicBool::new(false);
        let last_sync = None;
        Ok(Self { path, cache_bytes, lasting, opener, last_sync, identity, is_gone, database })
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
        let read = || database.begin_read().map_err(redb::Error::from).and_then(|txn| look(&txn));
        caught(read).map_err(|error| {
            self.tell_damage(&error);
            StoreError::Failed(Box::new(error))
        })
    }

    /// Tells of a damaged block. What asks for other blocks goes on.
    pub(super) fn tell_damage(&self, error: &redb::Error) {
        if let redb::Error::Corrupted(what) = error {
            tracing::error!(
                disk = ?self,
                what,
                "a block of the store is damaged, or a step met a defect (see the line with `panicked`): what is in it \
                 counts as unknown; stop the proxy, check the store with `anteroom store verify`, and restore a backup"
            );
        }
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
        *database = Some(open(&self.opener, self.cache_bytes)?);
        *self.identity() = identity(&self.path);
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

    /// Closes the file so that another process can open it. Readers find the store away. After an error it is closed, too,
    /// and redb goes through the whole of it at the next opening.
    pub(super) fn release(&self) -> Result<(), redb::Error> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        database.take().map_or(Ok(()), Database::close).map_err(redb::Error::from)
    }

    /// Another process has written the file: how its last sync went is not known.
    pub(super) fn forget_sync(&self) {
        if let Some(last_sync) = &self.last_sync {
            last_sync.forget();
        }
    }

    /// Looks whether a lasting file is still at its path: an operator may delete the folder, or move it away. Returns
    /// whether that has changed since the last look.
    pub(super) fn look_for_file(&self) -> bool {
        let found = identity(&self.path);
        let is_there = || found.is_some() && found == *self.identity();
        let is_gone = self.lasting == Permanence::Yes && !is_there();
        self.is_gone.swap(is_gone, Ordering::Relaxed) != is_gone
    }

    fn identity(&self) -> MutexGuard<'_, Option<(u64, u64)>> {
        // No code that can panic runs under this lock.
        self.identity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the file was gone from its path at the last look.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Whether the file can be read and written now.
    pub(super) fn is_open(&self) -> bool {
        !self.is_gone() && self.database.try_read().is_ok_and(|guard| guard.is_some())
    }
}

/// Device and inode of the file at this path; `None` where there is none.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Carries out what redb may panic at: it does where a block that it trusts is damaged.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, redb::Error> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_panic| Err(redb::Error::Corrupted("a damaged block".to_owned())))
}

/// Deletes a file; a missing file is no error.
pub(super) fn delete(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Creates a file that lasts. It is its owner's alone, because it holds tokens, and its folder may be one that others
/// read.
pub(super) fn create(path: &Path) -> Result<(), DatabaseError> {
    owned().create_new(true).open(path)?;
    Builder::new().create(path).map(drop)
}

fn owned() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

fn open(opener: &Opener, cache_bytes: usize) -> Result<Database, DatabaseError> {
    let mut builder = Builder::new();
    builder.set_cache_size(cache_bytes);
    opener(&builder)
}

/// One that is gone or empty is not replaced by a new one.
fn opener_of_lasting(path: PathBuf, last_sync: Arc<LastSync>) -> Opener {
    Box::new(move |builder| {
        let file = FileBackend::new(owned().open(&path)?)?;
        builder.create_with_backend(ResyncedStorage::new(file, Arc::clone(&last_sync)))
    })
}

fn opener_of_scratch(path: PathBuf) -> Opener {
    Box::new(move |builder| {
        let file = owned().create(true).truncate(false).open(&path)?;
        builder.create_with_backend(UnsyncedFile::new(file)?)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_new_file_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        for lasting in [Permanence::Yes, Permanence::No] {
            let path = folder.path().join(format!("{lasting:?}.redb"));
            if lasting == Permanence::Yes {
                assert!(Disk::open(path.clone(), 1 << 20, lasting).is_err(), "it is not there");
                create(&path).unwrap();
            }
            let _disk = Disk::open(path.clone(), 1 << 20, lasting).unwrap();
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_file_that_another_process_has_open_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.redb");
        create(&path).unwrap();
        let _disk = Disk::open(path.clone(), 1 << 20, Permanence::Yes).unwrap();
        let file = fs::File::open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        let other = Disk::open(path, 1 << 20, Permanence::Yes);
        assert!(matches!(other, Err(DatabaseError::DatabaseAlreadyOpen)));
        assert_eq!(file.metadata().unwrap().modified().unwrap(), std::time::UNIX_EPOCH);
    }
}
