//! Certificates in files: found, read with their keys, and selected by the name that a client requests.
//!
//! Listeners and connections are unknown here. Reading blocks.

mod fault;
mod load;
mod names;
mod table;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use x509_parser::parse_x509_certificate;

pub use fault::{Fault, FaultKind};
pub use load::{Certificate, CertificateSources, authorities, find, means, read};
pub use names::Names;
pub use table::CertificateTable;

/// Whether a certificate in DER is valid at `now`, in Unix time, by its period alone. False if it cannot
/// be read.
#[must_use]
pub fn is_in_time(der: &[u8], now: i64) -> bool {
    times(der).is_some_and(|valid| valid.contains(&now))
}

/// The Unix times from and until which a certificate in DER is valid, if it can be read.
#[must_use]
pub fn times(der: &[u8]) -> Option<RangeInclusive<i64>> {
    let (_, read) = parse_x509_certificate(der).ok()?;
    let validity = read.validity();
    Some(validity.not_before.timestamp()..=validity.not_after.timestamp())
}

/// The file of the certificate that the proxy orders for `name`, with its key. A `*`, which patterns of files have, is
/// written as a word that no host name begins with.
#[must_use]
pub fn ordered_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{}.pem", name.replacen("*.", "_wildcard_.", 1)))
}

/// Detects changes of a file; all fields are `None` if it does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStamp {
    path: PathBuf,
    state: Option<State>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    modified: Option<SystemTime>,
    /// When its metadata changed, such as its permissions.
    changed: (i64, i64),
    length: u64,
    number: u64,
}

impl FileStamp {
    /// The stamp of a file, as it is now.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        use std::os::unix::fs::MetadataExt as _;

        let state = std::fs::metadata(path).ok().map(|file| State {
            modified: file.modified().ok(),
            changed: (file.ctime(), file.ctime_nsec()),
            length: file.len(),
            number: file.ino(),
        });
        Self { path: path.to_owned(), state }
    }
}

/// The stamps of all files that would be read, in order.
#[must_use]
pub fn stamps(sources: &CertificateSources) -> Vec<FileStamp> {
    let (files, _) = find(sources);
    let mut stamps = Vec::new();
    for file in &files {
        stamps.push(FileStamp::of(file));
        stamps.extend(load::keys_beside(file).iter().map(|key| FileStamp::of(key)));
    }
    stamps.extend(sources.key.as_deref().map(FileStamp::of));
    stamps
}
