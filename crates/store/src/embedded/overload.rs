//! What is known of the servers of origins, for the one process that has the folder: a small file for each origin.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anteroom_http::clock::unix_now;
use bytes::Bytes;

use super::{EmbeddedStore, small_file};
use crate::StoreError;
use crate::overload::{KNOWN_SERVERS_MAX, OverloadStore};

/// How the name of each file begins. The version and the name of the origin follow.
const FILE: &str = "overload";
/// The bytes at the begin of a file: until when it counts, in milliseconds of the Unix time (little-endian).
const UNTIL: usize = size_of::<u64>();

/// Where the files are.
#[derive(Debug)]
pub(super) struct KnownServerFiles {
    folder: PathBuf,
    /// Held while a file is written, because its new version has one name: the end of a process may write while the last
    /// write of its task goes on.
    writing: Mutex<()>,
}

impl KnownServerFiles {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), writing: Mutex::new(()) }
    }

    /// The value of a file that still counts. Waits for the disk.
    fn read(&self, name: &str) -> io::Result<Option<Bytes>> {
        let mut stored = Vec::new();
        match File::open(self.folder.join(name)) {
            Ok(file) => {
                let most = UNTIL + KNOWN_SERVERS_MAX;
                file.take(most as u64).read_to_end(&mut stored)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
        let Some((until, known)) = stored.split_first_chunk::<UNTIL>() else { return Ok(None) };
        let counts = u64::from_le_bytes(*until) > now() && !known.is_empty();
        Ok(counts.then(|| Bytes::copy_from_slice(known)))
    }

    /// Waits for the disk.
    fn write(&self, name: &str, until: u64, known: &[u8]) -> io::Result<()> {
        let text = [&until.to_le_bytes()[..], known].concat();
        // No code that can panic runs under this lock.
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        small_file::write(&self.folder, name, &text)
    }
}

impl OverloadStore for EmbeddedStore {
    async fn put_known_servers(
        &self,
        version: u32,
        origin: &str,
        known: Bytes,
        ttl: Duration,
    ) -> Result<(), StoreError> {
        if known.len() > KNOWN_SERVERS_MAX {
            return Err(StoreError::TooLarge);
        }
        let Some(name) = file_name(version, origin) else { return Ok(()) };
        let until = now().saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        let store = self.clone();
        small_file::answer_of(move || store.0.known_servers.write(&name, until, &known)).await
    }

    async fn known_servers(&self, version: u32, origin: &str) -> Result<Option<Bytes>, StoreError> {
        let Some(name) = file_name(version, origin) else { return Ok(None) };
        let store = self.clone();
        small_file::answer_of(move || store.0.known_servers.read(&name)).await
    }
}

/// The name of the file of an origin; `None`: the origin has a name that the configuration does not allow, and that might
/// lead out of the folder.
fn file_name(version: u32, origin: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    origin.bytes().all(fits).then(|| format!("{FILE}.{version}.{origin}"))
}

/// The Unix time in milliseconds.
fn now() -> u64 {
    (unix_now() * 1000.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_until_its_end_and_no_further_than_a_value_goes() {
        let folder = tempfile::tempdir().unwrap();
        let files = KnownServerFiles::new(folder.path());
        let read = |name: &str| files.read(name).unwrap();
        assert_eq!(read("overload.1.origin"), None);
        let cases = [
            (u64::MAX, &b"one"[..], Some("one")),
            (u64::MAX, &b""[..], None),
            (1, &b"one"[..], None),
        ];
        for (until, known, expected) in cases {
            files.write("overload.1.origin", until, known).unwrap();
            assert_eq!(read("overload.1.origin"), expected.map(Bytes::from));
        }
        std::fs::write(folder.path().join("short"), "7 bytes").unwrap();
        assert_eq!(read("short"), None);
        std::fs::write(folder.path().join("long"), vec![0xff_u8; 1 << 20]).unwrap();
        assert_eq!(read("long").unwrap().len(), KNOWN_SERVERS_MAX);
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        assert_eq!(file_name(1, "blog-2").as_deref(), Some("overload.1.blog-2"));
        assert_eq!(file_name(1, "../blog"), None);
    }
}
