//! A file to which lines are appended, each on a line of its own: also behind one that a full disk or a crash has torn.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

/// A file of lines.
#[derive(Debug)]
pub struct LineFile {
    file: File,
    /// Whether the file may end within a line.
    is_torn: bool,
}

impl LineFile {
    /// Opens the file for appending, or creates it with these permissions, less those of the process' mask.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path, mode: u32) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(mode).open(path)?;
        Ok(Self { file, is_torn: ends_within_a_line(path) })
    }

    /// Appends lines, the last with its line feed, too.
    ///
    /// # Errors
    /// When they cannot be written; a part of them may be in the file.
    pub fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let begin: &[u8] = if self.is_torn { b"\n" } else { b"" };
        let written = self.file.write_all(begin).and_then(|()| self.file.write_all(lines));
        self.is_torn = written.is_err();
        written
    }
}

/// Whether a file has a last line without its end. Of a pipe or a device, and of a file that cannot be read, that is not
/// known.
fn ends_within_a_line(path: &Path) -> bool {
    let last_byte = || {
        let length = path.metadata().ok().filter(|file| file.is_file())?.len();
        let mut byte = [0];
        File::open(path).ok()?.read_exact_at(&mut byte, length.checked_sub(1)?).ok()?;
        Some(byte[0])
    };
    last_byte().is_some_and(|byte| byte != b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_behind_a_torn_one_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for (before, expected) in [("", "b\n"), ("a\n", "a\nb\n"), ("a", "a\nb\n")] {
            std::fs::write(&path, before).unwrap();
            LineFile::open(&path, 0o600).unwrap().append(b"b\n").unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        }
    }

    #[test]
    fn a_device_is_appended_to() {
        let mut device = LineFile::open(Path::new("/dev/null"), 0o600).unwrap();
        device.append(b"a\n").unwrap();
        let mut full = LineFile::open(Path::new("/dev/full"), 0o600).unwrap();
        assert!(full.append(b"a\n").is_err() && full.is_torn);
    }
}
