//! The storage of the file of pages: it is never synced, because the file is deleted at each start.
//!
//! A slow disk would hold up more than the writer: redb syncs a file that grows under a lock that readers take.

use std::fs::File;
use std::io;

use redb::backends::FileBackend;
use redb::{DatabaseError, StorageBackend};

/// A file whose syncs do nothing. The folder is locked by the file of sessions, so this one is not.
#[derive(Debug)]
pub(super) struct UnsyncedFile(FileBackend);

impl UnsyncedFile {
    /// A file that is open for reading and writing.
    pub(super) fn new(file: File) -> Result<Self, DatabaseError> {
        FileBackend::new(file).map(Self)
    }
}

impl StorageBackend for UnsyncedFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}
