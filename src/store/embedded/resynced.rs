//! The storage of the file of sessions: after a failed sync it is written once more, as a whole.
//!
//! A system whose sync has failed counts the blocks as written. It still shows them (ext4, XFS) or drops them, one by
//! one, when it likes; on the disk they may be missing either way. redb would find a commit whole, build on it, and
//! lose it with much else in a power cut. So each block is written as it reads, and all are synced, before redb sees
//! any. Since the last sync that succeeded a block reads as before or after each of its writes: as after a power cut,
//! from which redb recovers with all that was durable.
//!
//! The same is done where the process before did not close the file: its last sync may have failed without a word.

use std::io;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{BackendError, StorageBackend};

/// How much is read and written at once, in bytes.
const CHUNK: usize = 1 << 16;
/// What the system reads and writes as one, in bytes.
const BLOCK: usize = 4096;
/// Where redb's format says how the file was left, and the bit for a file that was not closed.
const FLAGS: usize = 9;
const IS_OPEN: u8 = 2;

/// What is known of the last sync of a file, for as long as the process runs.
#[derive(Debug)]
pub(super) struct LastSync {
    path: PathBuf,
    outcome: Mutex<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It was another process's.
    Unknown,
    Succeeded,
    Failed,
}

impl LastSync {
    /// For a file that this process has not opened yet.
    pub(super) fn unknown(path: PathBuf) -> Arc<Self> {
        Arc::new(Self { path, outcome: Mutex::new(Outcome::Unknown) })
    }

    fn outcome(&self) -> MutexGuard<'_, Outcome> {
        // No code that can panic runs under this lock.
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, synced: &io::Result<()>) {
        let outcome = if synced.is_ok() { Outcome::Succeeded } else { Outcome::Failed };
        let before = std::mem::replace(&mut *self.outcome(), outcome);
        let path = self.path.display();
        match (before, synced) {
            (Outcome::Unknown | Outcome::Succeeded, Err(error)) => tracing::error!(
                %path,
                %error,
                "the disk failed to keep what was written: the store takes no log-ins until its file has been written \
                 once more as a whole, which is tried each second; look for errors of the disk in the system's log, \
                 and make a backup with `anteroom store backup`"
            ),
            (Outcome::Failed, Ok(())) => {
                tracing::warn!(%path, "the store's file was written once more, and is on the disk");
            }
            _ => {}
        }
    }
}

/// A storage of which nothing is read before all of it is on the disk.
#[derive(Debug)]
pub(super) struct Resynced<B> {
    inner: B,
    last_sync: Arc<LastSync>,
    /// Whether all of it was on the disk when it was opened.
    is_settled: AtomicBool,
}

impl<B: StorageBackend> Resynced<B> {
    /// A storage that has just been opened; `last_sync` is the file's, whenever this process opens it.
    pub(super) fn new(inner: B, last_sync: Arc<LastSync>) -> Self {
        Self { inner, last_sync, is_settled: AtomicBool::new(false) }
    }

    fn settle(&self) -> io::Result<()> {
        if self.inner.len()? == 0 {
            // redb would begin a new database.
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty"));
        }
        let outcome = *self.last_sync.outcome();
        match outcome {
            Outcome::Succeeded => Ok(()),
            Outcome::Unknown if self.was_closed()? => {
                self.last_sync.note(&Ok(()));
                Ok(())
            }
            Outcome::Unknown | Outcome::Failed => self.sync_data(),
        }
    }

    /// Whether the process before has closed the file, after all syncs but the one of this flag: redb writes the block
    /// of the flag again before any other.
    fn was_closed(&self) -> io::Result<bool> {
        let mut header = [0; FLAGS + 1];
        if self.inner.len()? < header.len() as u64 {
            return Ok(false);
        }
        self.inner.read(0, &mut header)?;
        Ok(header[FLAGS] & IS_OPEN == 0)
    }

    fn rewrite(&self) -> io::Result<()> {
        let length = self.inner.len()?;
        let mut buffer = vec![0; CHUNK];
        for offset in (0..length).step_by(CHUNK) {
            let size = usize::try_from(length - offset).map_or(CHUNK, |rest| rest.min(CHUNK));
            let chunk = &mut buffer[..size];
            let read = self.inner.read(offset, chunk);
            if read.and_then(|()| self.inner.write(offset, chunk)).is_err() {
                self.rewrite_blocks(offset, chunk)?;
            }
        }
        Ok(())
    }

    fn rewrite_blocks(&self, mut offset: u64, chunk: &mut [u8]) -> io::Result<()> {
        for block in chunk.chunks_mut(BLOCK) {
            // One that cannot be read is nowhere but on the disk: redb meets the same error if it needs it.
            if self.inner.read(offset, block).is_ok() {
                match self.inner.write(offset, block) {
                    // A full disk has no room for a block that was never written: on the disk it reads as zeros, too.
                    Err(full) if is_full(&full) && block.iter().all(|byte| *byte == 0) => {}
                    written => written?,
                }
            }
            offset += block.len() as u64;
        }
        Ok(())
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl<B: StorageBackend> StorageBackend for Resynced<B> {
    /// redb asks for the length first, and not before it has the lock on the file.
    fn len(&self) -> io::Result<u64> {
        if !self.is_settled.load(Ordering::Relaxed) {
            self.settle()?;
            self.is_settled.store(true, Ordering::Relaxed);
        }
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.inner.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        let is_sound = *self.last_sync.outcome() == Outcome::Succeeded;
        let written = if is_sound { Ok(()) } else { self.rewrite() };
        let synced = written.and_then(|()| self.inner.sync_data());
        self.last_sync.note(&synced);
        synced
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use redb::{Builder, TableDefinition};

    use super::*;

    const TABLE: TableDefinition<'_, u64, u64> = TableDefinition::new("table");

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Call {
        Read(usize),
        Write(usize),
        Sync,
    }

    /// A file in memory, and what was asked of it.
    #[derive(Clone, Debug, Default)]
    struct Memory {
        bytes: Arc<Mutex<Vec<u8>>>,
        calls: Arc<Mutex<Vec<Call>>>,
        /// Blocks that cannot be read, and blocks for which the disk has no room.
        unreadable: Vec<usize>,
        without_room: Vec<usize>,
        sync_fails: bool,
    }

    impl Memory {
        fn meets(&self, blocks: &[usize], offset: u64, size: usize) -> bool {
            let offset = usize::try_from(offset).unwrap();
            blocks.iter().any(|block| (offset / BLOCK..(offset + size) / BLOCK).contains(block))
        }

        fn open(&self, last_sync: &Arc<LastSync>) -> Result<redb::Database, redb::DatabaseError> {
            self.calls.lock().unwrap().clear();
            Builder::new().create_with_backend(Resynced::new(self.clone(), Arc::clone(last_sync)))
        }

        fn copy(&self) -> Self {
            let bytes = self.bytes.lock().unwrap().clone();
            Self { bytes: Arc::new(Mutex::new(bytes)), ..Self::default() }
        }

        /// How many bytes were written before the first sync.
        fn written_first(&self) -> usize {
            let calls = self.calls.lock().unwrap();
            let first = calls.iter().take_while(|call| **call != Call::Sync);
            first.map(|call| if let Call::Write(size) = call { *size } else { 0 }).sum()
        }
    }

    impl StorageBackend for Memory {
        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.lock().unwrap().len() as u64)
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.calls.lock().unwrap().push(Call::Read(out.len()));
            if self.meets(&self.unreadable, offset, out.len()) {
                return Err(io::Error::other("unreadable"));
            }
            let start = usize::try_from(offset).unwrap();
            out.copy_from_slice(&self.bytes.lock().unwrap()[start..start + out.len()]);
            Ok(())
        }

        fn set_len(&self, length: u64) -> io::Result<()> {
            self.bytes.lock().unwrap().resize(usize::try_from(length).unwrap(), 0);
            Ok(())
        }

        fn sync_data(&self) -> io::Result<()> {
            self.calls.lock().unwrap().push(Call::Sync);
            if self.sync_fails { Err(io::Error::other("the sync failed")) } else { Ok(()) }
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.calls.lock().unwrap().push(Call::Write(data.len()));
            if self.meets(&self.without_room, offset, data.len()) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let start = usize::try_from(offset).unwrap();
            self.bytes.lock().unwrap()[start..start + data.len()].copy_from_slice(data);
            Ok(())
        }
    }

    fn unknown() -> Arc<LastSync> {
        LastSync::unknown("memory".into())
    }

    /// A database that was closed.
    fn database() -> Memory {
        let memory = Memory::default();
        let database = Builder::new().create_with_backend(memory.clone()).unwrap();
        let txn = database.begin_write().unwrap();
        txn.open_table(TABLE).unwrap().insert(1, 1).unwrap();
        txn.commit().unwrap();
        memory
    }

    #[test]
    fn a_file_that_was_not_closed_is_written_again_before_redb_reads_it() {
        let closed = database();
        let length = closed.bytes.lock().unwrap().len();
        let open = closed.open(&unknown()).unwrap();
        assert!(closed.written_first() < length, "it was closed");

        let left_open = closed.copy();
        left_open.open(&unknown()).unwrap();
        assert_eq!(left_open.written_first(), length);
        // The flag, and the chunks; redb's own reads come behind the sync.
        let calls = left_open.calls.lock().unwrap();
        let chunks = length.div_ceil(CHUNK);
        assert_eq!(calls.iter().position(|call| *call == Call::Sync), Some(1 + 2 * chunks));
        drop(open);
    }

    #[test]
    fn after_a_failed_sync_all_is_written_until_a_sync_succeeds() {
        let (mut memory, last_sync) = (database(), unknown());
        let length = memory.bytes.lock().unwrap().len();
        drop(memory.open(&last_sync).unwrap());
        memory.sync_fails = true;
        assert!(memory.open(&last_sync).is_err());
        assert!(memory.written_first() < length, "the last sync succeeded");
        for is_refused in [true, true, false] {
            memory.sync_fails = is_refused;
            assert_eq!(memory.open(&last_sync).is_err(), is_refused);
            assert_eq!(memory.written_first(), length);
        }
        drop(memory.open(&last_sync).unwrap());
        assert!(memory.written_first() < length, "the last sync succeeded");
    }

    #[test]
    fn an_empty_file_is_not_replaced() {
        let memory = Memory::default();
        assert!(memory.open(&unknown()).is_err());
        assert!(memory.bytes.lock().unwrap().is_empty());
    }

    #[test]
    fn a_block_that_cannot_be_read_or_was_never_written_stops_nothing() {
        let mut memory = Memory {
            bytes: Arc::new(Mutex::new([vec![1; 2 * BLOCK], vec![0; BLOCK]].concat())),
            unreadable: vec![1],
            without_room: vec![2],
            ..Memory::default()
        };
        Resynced::new(memory.clone(), unknown()).sync_data().unwrap();
        assert_eq!(memory.written_first(), 2 * BLOCK);

        memory.without_room = vec![0];
        assert!(Resynced::new(memory, unknown()).sync_data().is_err(), "it has content");
    }
}
