//! The storage of the file of sessions: after a failed sync it is written once more, as a whole.
//!
//! A system whose sync has failed counts the blocks as written. It still shows them (ext4, XFS) or drops them, one by
//! one, when it likes; on the disk they may be missing either way. redb would find a commit whole, build on it, and
//! lose it with much else in a power cut. So each block is written as it reads, and all are synced, before redb sees
//! any. Since the last sync that succeeded a block reads as before or after each of its writes: as after a power cut,
//! from which redb recovers with all that was durable.
//!
//! The same is done where the process before did not close the file: its last sync may have failed without a word.
//!
//! The file is also kept longer than redb knows. redb syncs a file that grows under a lock that readers wait for, and
//! only for the length's sake. The sync of each commit, for which no reader waits, makes the length durable beforehand.
//! A file that was not closed is cut to what its header says, where nothing is behind that: otherwise redb would take the
//! room for its own, and each crash would double the file.

use std::io;
use std::ops::{Bound, Range};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{BackendError, StorageBackend};

/// How much is read and written at once, in bytes.
const CHUNK: usize = 1 << 16;
/// What the system reads and writes as one, in bytes.
const BLOCK: usize = 4096;
/// Where redb's format says how the file was left, and the bit for a file that was not closed.
const FLAGS: usize = 9;
const IS_OPEN: u8 = 2;
/// Where redb's format has five numbers of four bytes: the size of a page, the pages of a region's header, the most
/// pages of a region without it, the full regions, and the pages of the region behind them.
const GEOMETRY: usize = 12;
const HEADER: usize = GEOMETRY + 5 * size_of::<u32>();

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

    /// Another process has had the file since.
    pub(super) fn forget(&self) {
        let mut outcome = self.outcome();
        if *outcome == Outcome::Succeeded {
            *outcome = Outcome::Unknown;
        }
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
                "the disk failed to keep what was written: the store takes no logins until its file has been written \
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
pub(super) struct ResyncedStorage<B> {
    inner: B,
    last_sync: Arc<LastSync>,
    /// `None` until all of it is on the disk.
    lengths: Mutex<Option<Lengths>>,
}

/// How long the file is, in bytes.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    /// For redb.
    used: u64,
    /// For the system.
    whole: u64,
    /// After a power cut, at least.
    durable: u64,
    /// Whether redb's next sync is for a length that is durable already.
    is_grown_within: bool,
}

/// redb doubles a file that has less than one region, and adds a region to a longer one: 4 GiB, as redb has it where
/// the builder says nothing else.
const REGION: u64 = 1 << 32;

impl Lengths {
    fn new(length: u64) -> Self {
        Self { used: length, whole: length, durable: length, is_grown_within: false }
    }

    /// How long the file is to be, so that redb finds room when it grows the next time.
    fn with_room(&self) -> u64 {
        self.used.saturating_add(self.used.min(REGION))
    }
}

impl<B: StorageBackend> ResyncedStorage<B> {
    /// A storage that has just been opened; `last_sync` is the file's, whenever this process opens it.
    pub(super) fn new(inner: B, last_sync: Arc<LastSync>) -> Self {
        Self { inner, last_sync, lengths: Mutex::new(None) }
    }

    /// Of the one thread that opens, writes and closes: no reader asks for them.
    fn lengths(&self) -> MutexGuard<'_, Option<Lengths>> {
        // No code that can panic runs under this lock.
        self.lengths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// redb asks for the length first, and not before it has the lock on the file.
    fn settled<'l>(&self, lengths: &'l mut Option<Lengths>) -> io::Result<&'l mut Lengths> {
        match lengths {
            Some(known) => Ok(known),
            unknown => Ok(unknown.insert(self.settle()?)),
        }
    }

    fn settle(&self) -> io::Result<Lengths> {
        let length = self.inner.len()?;
        if length == 0 {
            // redb would begin a new database.
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty"));
        }
        let outcome = *self.last_sync.outcome();
        if outcome == Outcome::Succeeded {
            return Ok(Lengths::new(length));
        }
        let header = self.header(length)?;
        if outcome == Outcome::Unknown && header[FLAGS] & IS_OPEN == 0 {
            // Closed after all syncs but the one of this flag: redb writes the block of the flag again before any other.
            self.last_sync.note(&Ok(()));
            return Ok(Lengths::new(length));
        }
        let used = layout_length(&header);
        let has_room = used < length && self.reads_as_zeros(used..length);
        let length = if has_room { used } else { length };
        if has_room {
            self.inner.set_len(length)?;
        }
        self.sync(length)?;
        Ok(Lengths::new(length))
    }

    /// The first bytes; of a file that is too short, as of one that was left open without a page.
    fn header(&self, length: u64) -> io::Result<[u8; HEADER]> {
        let mut header = [0; HEADER];
        if length < header.len() as u64 {
            header[FLAGS] = IS_OPEN;
            return Ok(header);
        }
        self.inner.read(0, &mut header)?;
        Ok(header)
    }

    /// Whether there is nothing between these places. What cannot be read is something.
    fn reads_as_zeros(&self, places: Range<u64>) -> bool {
        let mut buffer = vec![0; CHUNK];
        places.clone().step_by(CHUNK).all(|offset| {
            let size = usize::try_from(places.end - offset).map_or(CHUNK, |rest| rest.min(CHUNK));
            let chunk = &mut buffer[..size];
            self.inner.read(offset, chunk).is_ok() && chunk.iter().all(|byte| *byte == 0)
        })
    }

    /// Has all before this length on the disk.
    fn sync(&self, used: u64) -> io::Result<()> {
        let is_sound = *self.last_sync.outcome() == Outcome::Succeeded;
        let written = if is_sound { Ok(()) } else { self.rewrite(used) };
        let synced = written.and_then(|()| self.inner.sync_data());
        self.last_sync.note(&synced);
        synced
    }

    /// Gives the file the length that the next sync makes durable. What the system refuses here it refuses redb, too,
    /// which reports it.
    fn make_room(&self, lengths: &mut Lengths) {
        let wanted = lengths.with_room();
        if lengths.whole < wanted && self.inner.set_len(wanted).is_ok() {
            lengths.whole = wanted;
        }
    }

    fn rewrite(&self, length: u64) -> io::Result<()> {
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

/// How long a file with this header is for redb.
fn layout_length(header: &[u8; HEADER]) -> u64 {
    let (numbers, _) = header[GEOMETRY..].as_chunks();
    let mut numbers = numbers.iter().map(|bytes| u64::from(u32::from_le_bytes(*bytes)));
    let mut next = || numbers.next().unwrap_or_default();
    let (page, header_pages, most_pages, full, rest) = (next(), next(), next(), next(), next());
    let region = |pages: u64| (header_pages + pages).saturating_mul(page);
    let last = if rest == 0 { 0 } else { region(rest) };
    page.saturating_add(full.saturating_mul(region(most_pages))).saturating_add(last)
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl<B: StorageBackend> StorageBackend for ResyncedStorage<B> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.settled(&mut self.lengths())?.used)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut guard = self.lengths();
        let lengths = self.settled(&mut guard)?;
        if length > lengths.whole || length < lengths.used {
            self.inner.set_len(length)?;
            lengths.whole = length;
            lengths.durable = lengths.durable.min(length);
        }
        lengths.is_grown_within = length > lengths.used && length <= lengths.durable;
        lengths.used = length;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut guard = self.lengths();
        let lengths = self.settled(&mut guard)?;
        if std::mem::take(&mut lengths.is_grown_within) {
            return Ok(());
        }
        self.make_room(lengths);
        self.sync(lengths.used)?;
        lengths.durable = lengths.whole;
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        if let Some(lengths) = *self.lengths() {
            // Where this fails, redb looks through the whole file at the next start, as after a crash.
            let _ = self.inner.set_len(lengths.used);
        }
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
    use redb::{Builder, ReadableDatabase as _, ReadableTableMetadata as _, TableDefinition};

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
            Builder::new()
                .create_with_backend(ResyncedStorage::new(self.clone(), Arc::clone(last_sync)))
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
        // The header, the room, and the chunks; redb's own reads come behind the sync.
        let calls = left_open.calls.lock().unwrap();
        let chunks = length.div_ceil(CHUNK);
        assert_eq!(calls.iter().position(|call| *call == Call::Sync), Some(1 + 3 * chunks));
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
    fn a_file_that_grows_is_synced_by_commits_alone() {
        let memory = database();
        let open = memory.open(&unknown()).unwrap();
        let syncs = || memory.calls.lock().unwrap().iter().filter(|c| **c == Call::Sync).count();
        let length = || memory.bytes.lock().unwrap().len();
        let (mut before, first) = (None, length());
        for round in 0..40_u64 {
            let txn = open.begin_write().unwrap();
            let mut table = txn.open_table(TABLE).unwrap();
            for entry in 0..10_000 {
                table.insert(round * 10_000 + entry, entry).unwrap();
            }
            drop(table);
            // The first commit makes the first room.
            assert!(before.is_none_or(|before| before == syncs()), "round {round}");
            txn.commit().unwrap();
            before = Some(syncs());
        }
        assert!(length() > 8 * first, "it has grown several times");

        // As after a power cut, and as after a close.
        let left_open = memory.copy();
        drop(open);
        assert!(length() < left_open.bytes.lock().unwrap().len());
        let read = memory.open(&unknown()).unwrap();
        assert!(memory.written_first() < length(), "it was closed");
        for database in [read, left_open.open(&unknown()).unwrap()] {
            let table = database.begin_read().unwrap().open_table(TABLE).unwrap();
            assert_eq!(table.len().unwrap(), 400_000);
        }
    }

    #[test]
    fn a_file_that_is_never_closed_does_not_grow() {
        let mut memory = database();
        let length = memory.bytes.lock().unwrap().len();
        for _ in 0..5 {
            let open = memory.open(&unknown()).unwrap();
            assert_eq!(
                layout_length(
                    &ResyncedStorage::new(memory.clone(), unknown()).header(1 << 20).unwrap()
                ),
                length as u64
            );
            let killed = memory.copy();
            assert!(killed.bytes.lock().unwrap().len() > length, "there is room");
            drop(open);
            memory = killed;
        }
        drop(memory.open(&unknown()).unwrap());
        assert_eq!((memory.written_first(), memory.bytes.lock().unwrap().len()), (length, length));
    }

    #[test]
    fn what_is_behind_the_header_s_length_is_kept() {
        let open = database();
        let _database = open.open(&unknown()).unwrap();
        let left_open = open.copy();
        let length = left_open.bytes.lock().unwrap().len();
        *left_open.bytes.lock().unwrap().last_mut().unwrap() = 1;
        left_open.open(&unknown()).unwrap();
        assert_eq!(left_open.written_first(), length);
    }

    #[test]
    fn room_that_redb_has_given_back_is_given_back_to_the_system() {
        let memory = database();
        let storage = ResyncedStorage::new(memory.clone(), unknown());
        let lengths = || *storage.lengths.lock().unwrap().as_ref().unwrap();
        storage.len().unwrap();
        storage.set_len(1 << 20).unwrap();
        storage.sync_data().unwrap();
        assert_eq!((lengths().used, lengths().durable), (1 << 20, 1 << 21));
        storage.set_len(1 << 19).unwrap();
        assert_eq!(memory.len().unwrap(), 1 << 19);
        storage.sync_data().unwrap();
        assert_eq!((lengths().whole, lengths().durable), (1 << 20, 1 << 20));
        storage.close().unwrap();
        assert_eq!(memory.len().unwrap(), 1 << 19);
    }

    #[test]
    fn room_of_which_a_sync_failed_is_not_relied_on() {
        let mut memory = database();
        memory.sync_fails = true;
        let last_sync = unknown();
        last_sync.note(&Ok(()));
        let storage = ResyncedStorage::new(memory, last_sync);
        let length = storage.len().unwrap();
        assert!(storage.sync_data().is_err());
        storage.set_len(2 * length).unwrap();
        assert!(storage.sync_data().is_err(), "it is not left out");
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
        let last_sync = unknown();
        last_sync.note(&Err(io::Error::other("the sync failed")));
        ResyncedStorage::new(memory.clone(), Arc::clone(&last_sync)).len().unwrap();
        assert_eq!(memory.written_first(), 2 * BLOCK);

        memory.without_room = vec![0];
        last_sync.note(&Err(io::Error::other("the sync failed")));
        assert!(ResyncedStorage::new(memory, last_sync).len().is_err(), "it has content");
    }
}
