//! The file of a backup: a line that names it, blocks, and a last block with the counts.
//!
//! A block has its length (4 bytes), its kind (1), its content, and the SHA-256 of its number, its kind and its content.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::code::{self, BackupRecord};
use super::count;
use crate::StoreError;

/// The head of a file. The number is the version of the format.
const HEAD: &[u8] = b"anteroom backup 1\n";
/// A block ends when it has this many bytes.
const BLOCK: usize = 1 << 20;
/// The largest block that is read: one that was nearly full, and the largest record.
const BLOCK_MAX: usize = 16 << 20;
/// The kinds of blocks.
const RECORDS: u8 = 1;
const COUNTS: u8 = 2;

/// How much a backup holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupCounts {
    /// Sessions.
    pub sessions: u64,
    /// Tokens of visitors without a login.
    pub visitors: u64,
    /// Other records.
    pub others: u64,
}

/// Why a backup was not written or not restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The file cannot be written or read.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error("{}: not a backup of Anteroom that this version reads (format 1)", .0.display())]
    NotOne(PathBuf),
    /// It was cut off.
    #[error("{}: the backup is not complete: its end is missing; use another one", .0.display())]
    CutOff(PathBuf),
    /// It was changed.
    #[error("{}: the backup is damaged in block {block}; use another one", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The number of the block, from 1.
        block: u64,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reads a backup to its end.
///
/// # Errors
/// If it is not whole.
pub fn verify(path: &Path) -> Result<BackupCounts, BackupError> {
    let mut reader = BackupReader::open(path)?;
    while reader.next_block()?.is_some() {}
    Ok(reader.counts)
}

fn checksum(block: u64, kind: u8, content: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(block.to_le_bytes());
    hash.update([kind]);
    hash.update(content);
    hash.finalize().into()
}

/// Writes a file. One that is not finished is removed.
#[derive(Debug)]
pub(super) struct BackupWriter {
    path: PathBuf,
    unfinished: Option<PathBuf>,
    file: BufWriter<File>,
    block: Vec<u8>,
    blocks: u64,
    counts: BackupCounts,
}

impl Drop for BackupWriter {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            // What cannot be removed has a name that says what it is.
            let _ = fs::remove_file(unfinished);
        }
    }
}

impl BackupWriter {
    pub(super) fn create(path: &Path) -> Result<Self, BackupError> {
        let mut name = OsString::from(path);
        name.push(format!(".unfinished-{}", std::process::id()));
        let unfinished = PathBuf::from(name);
        let create = || {
            let file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
            let mut file = BufWriter::new(file);
            file.write_all(HEAD)?;
            Ok(file)
        };
        let file =
            create().map_err(|source| BackupError::File { path: path.to_owned(), source })?;
        Ok(Self {
            path: path.to_owned(),
            unfinished: Some(unfinished),
            file,
            block: Vec::new(),
            blocks: 0,
            counts: BackupCounts::default(),
        })
    }

    pub(super) fn add(&mut self, record: &BackupRecord) -> Result<(), BackupError> {
        count(&mut self.counts, record);
        code::write(&mut self.block, record);
        if self.block.len() >= BLOCK { self.end_block(RECORDS) } else { Ok(()) }
    }

    fn end_block(&mut self, kind: u8) -> Result<(), BackupError> {
        self.blocks += 1;
        let content = std::mem::take(&mut self.block);
        let length = u32::try_from(content.len()).expect("a record is far below 4 GiB");
        let mut write = || {
            self.file.write_all(&length.to_le_bytes())?;
            self.file.write_all(&[kind])?;
            self.file.write_all(&content)?;
            self.file.write_all(&checksum(self.blocks, kind, &content))
        };
        write().map_err(|source| BackupError::File { path: self.path.clone(), source })
    }

    /// Writes the last block, and gives the file its name once it is on the disk.
    pub(super) fn finish(mut self) -> Result<BackupCounts, BackupError> {
        if !self.block.is_empty() {
            self.end_block(RECORDS)?;
        }
        let BackupCounts { sessions, visitors, others } = self.counts;
        for number in [sessions, visitors, others] {
            self.block.extend_from_slice(&number.to_le_bytes());
        }
        self.end_block(COUNTS)?;
        let unfinished = self.unfinished.clone().unwrap_or_default();
        let mut rename = || {
            self.file.flush()?;
            self.file.get_ref().sync_all()?;
            fs::rename(&unfinished, &self.path)?;
            // The new name is on the disk with its folder.
            let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
        };
        rename().map_err(|source| BackupError::File { path: self.path.clone(), source })?;
        self.unfinished = None;
        Ok(self.counts)
    }
}

/// Reads a file, block by block.
#[derive(Debug)]
pub(super) struct BackupReader {
    path: PathBuf,
    file: BufReader<File>,
    blocks: u64,
    /// What was read so far.
    counts: BackupCounts,
}

impl BackupReader {
    pub(super) fn open(path: &Path) -> Result<Self, BackupError> {
        let failed = |source| BackupError::File { path: path.to_owned(), source };
        let mut file = BufReader::new(File::open(path).map_err(failed)?);
        let mut head = [0; HEAD.len()];
        match file.read_exact(&mut head) {
            Ok(()) if head == HEAD => {}
            Ok(()) => return Err(BackupError::NotOne(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(BackupError::NotOne(path.to_owned()));
            }
            Err(error) => return Err(failed(error)),
        }
        Ok(Self { path: path.to_owned(), file, blocks: 0, counts: BackupCounts::default() })
    }

    /// The records of the next block; `None` after the last, whose counts are those of what was read.
    pub(super) fn next_block(&mut self) -> Result<Option<Vec<BackupRecord>>, BackupError> {
        self.blocks += 1;
        let (kind, content) = self.read_block()?;
        match kind {
            RECORDS => {
                let (mut rest, mut records) = (content.as_slice(), Vec::new());
                while !rest.is_empty() {
                    let record = code::read(&mut rest).ok_or_else(|| self.damaged())?;
                    count(&mut self.counts, &record);
                    records.push(record);
                }
                Ok(Some(records))
            }
            COUNTS => {
                let BackupCounts { sessions, visitors, others } = self.counts;
                let counts = [sessions, visitors, others].map(u64::to_le_bytes).concat();
                let is_end = self.file.read(&mut [0]).map_err(|error| self.failed(error))? == 0;
                if content == counts && is_end { Ok(None) } else { Err(self.damaged()) }
            }
            _ => Err(self.damaged()),
        }
    }

    fn read_block(&mut self) -> Result<(u8, Vec<u8>), BackupError> {
        let mut head = [0; 5];
        self.fill(&mut head)?;
        let [a, b, c, d, kind] = head;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > BLOCK_MAX {
            return Err(self.damaged());
        }
        let mut content = vec![0; length];
        self.fill(&mut content)?;
        let mut sum = [0; 32];
        self.fill(&mut sum)?;
        match sum == checksum(self.blocks, kind, &content) {
            true => Ok((kind, content)),
            false => Err(self.damaged()),
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), BackupError> {
        self.file.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => BackupError::CutOff(self.path.clone()),
            _ => self.failed(error),
        })
    }

    fn failed(&self, source: io::Error) -> BackupError {
        BackupError::File { path: self.path.clone(), source }
    }

    fn damaged(&self) -> BackupError {
        BackupError::Damaged { path: self.path.clone(), block: self.blocks }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use anteroom_http::ident::{Item, StoredToken, User};

    use super::*;
    use crate::transfer::{IdleMark, LogInTime, SharedRecord, TransferRecord};

    /// More than a block.
    const RECORDS_WRITTEN: usize = 12_000;

    fn records() -> Vec<BackupRecord> {
        let token = |number: usize| {
            StoredToken::from_store(format!("token-{number:04}").as_bytes()).unwrap()
        };
        let item = Item::new("mug \"blue\"").unwrap();
        let mut records: Vec<_> = (0..RECORDS_WRITTEN)
            .map(|number| {
                BackupRecord::Token(TransferRecord {
                    token: token(number),
                    user: User::from_store(b"ann\0group=trade\0?"),
                    seen: Some(1.5),
                    since: LogInTime::At(0.25),
                    viewed: vec![(item.clone(), 3.5)],
                    cart: vec![(item.clone(), -2)],
                })
            })
            .collect();
        let mark = IdleMark { until: 9.5, token: Some(token(1)) };
        let fields = vec![(b"id".to_vec(), b"a\0b".to_vec())];
        records.extend([
            BackupRecord::Shared(SharedRecord::Popularity(item, -7.0)),
            BackupRecord::Shared(SharedRecord::Revoked { digest: "ab".to_owned(), until: 4.0 }),
            BackupRecord::Shared(SharedRecord::Event(b"{}".to_vec())),
            BackupRecord::Shared(SharedRecord::Outbox(Vec::new())),
            BackupRecord::Shared(SharedRecord::Stream { id: (5, 6), fields }),
            BackupRecord::Shared(SharedRecord::IdleMark(mark)),
        ]);
        records
    }

    fn written(path: &Path) -> BackupCounts {
        let mut file = BackupWriter::create(path).unwrap();
        for record in &records() {
            file.add(record).unwrap();
        }
        file.finish().unwrap()
    }

    #[test]
    fn records_are_read_as_they_were_written_by_their_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backup");
        let counts = written(&path);
        assert_eq!(
            counts,
            BackupCounts { sessions: RECORDS_WRITTEN as u64, visitors: 0, others: 6 }
        );
        assert_eq!(verify(&path).unwrap(), counts);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let (mut reader, mut read) = (BackupReader::open(&path).unwrap(), Vec::new());
        while let Some(block) = reader.next_block().unwrap() {
            read.extend(block);
        }
        assert!(read == records());
        assert!(reader.blocks > 2);
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backup");
        written(&path);
        let whole = fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(99_991).chain([whole.len() - 1]) {
            fs::write(&path, &whole[..at]).unwrap();
            assert!(verify(&path).is_err(), "cut at {at}");
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).unwrap();
            assert!(verify(&path).is_err(), "changed at {at}");
        }
        fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
        assert!(verify(&path).is_err());
    }

    #[test]
    fn a_backup_that_breaks_off_leaves_the_earlier_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backup");
        written(&path);
        let mut file = BackupWriter::create(&path).unwrap();
        file.add(&records()[0]).unwrap();
        drop(file);
        assert_eq!(verify(&path).unwrap().sessions, RECORDS_WRITTEN as u64);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
