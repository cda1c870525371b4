//! The file of abandoned carts: JSON lines, private, append-only.
//!
//! Lines count as written when they are on disk. Which records of the outbox the file already has
//! is known from this process's own writes, and from the end of the file, which is read back when
//! it was opened, or changed by another program. So each record is in the file once.

use std::collections::HashSet;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anteroom_store::{ExpiredSession, HandoverReason};

/// How much of the file's end is read back to find lines from before a crash, in bytes: more than
/// the lines of a whole outbox.
const LOOK_BACK: u64 = 8 << 20;
/// The beginning of this program's lines: the first key of each.
const BEGINNING: &[u8] = br#"{"cart":["#;
/// The file's permissions.
const MODE: u32 = 0o600;

/// The identity of an event in the file, see [`ExpiredSession::event`].
type EventId = String;

/// The event of a line. A line of an earlier version does not name it, and is of a cleaned session.
fn event_of(line: &serde_json::Value) -> Option<EventId> {
    if let Some(event) = line["event"].as_str() {
        return Some(event.to_owned());
    }
    let milliseconds = (line["seen"].as_f64()? * 1e3).round() as i64;
    Some(format!("{}-{milliseconds}-{}", line["id"].as_str()?, HandoverReason::Expired.as_str()))
}

/// A file of JSON lines, mode 0600.
#[derive(Debug)]
pub struct ExpiredFile {
    path: PathBuf,
    state: State,
}

#[derive(Debug, Default)]
struct State {
    /// Reopened after a failed write: an operator may have made room, or replaced the file.
    open: Option<OpenFile>,
    /// The events in this file, or in an earlier one at its path, whose sessions may still be in
    /// the outbox.
    written: HashSet<EventId>,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    /// The file's length after the last write; `None` if it must be looked up.
    length: Option<u64>,
}

impl ExpiredFile {
    /// The file at `path`, which is opened on first use.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, state: State::default() }
    }

    /// Whether the file can be written, as far as can be known without a write: `Err` has the
    /// reason. For an empty outbox.
    pub(super) async fn check(&mut self) -> Result<(), String> {
        let checked = self.append(Vec::new()).await;
        self.forget();
        checked
    }

    /// Appends a line for each session that has none yet; all are on disk when it returns.
    pub(super) async fn write(
        &mut self,
        expired: &[ExpiredSession],
        now: f64,
    ) -> Result<(), String> {
        self.append(expired.iter().map(|one| (one.event(), line(one, now))).collect()).await
    }

    /// The written records are no longer in the outbox: they cannot come again.
    pub(super) fn forget(&mut self) {
        self.state.written = HashSet::new();
    }

    /// A disk may be slow: the write runs on a thread of its own.
    async fn append(&mut self, lines: Vec<(EventId, String)>) -> Result<(), String> {
        let (path, mut state) = (self.path.clone(), std::mem::take(&mut self.state));
        let appending = tokio::task::spawn_blocking(move || {
            let result = state.append(&path, lines);
            (state, result)
        });
        let result = match appending.await {
            Ok((state, result)) => {
                self.state = state;
                result
            }
            Err(panicked) => Err(io::Error::other(panicked)),
        };
        result.map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

impl State {
    /// Appends the lines that the file does not have yet.
    fn append(&mut self, path: &Path, lines: Vec<(EventId, String)>) -> io::Result<()> {
        let mut open = match self.open.take().filter(|open| is_at(&open.file, path)) {
            Some(open) => open,
            None => OpenFile { file: open_at(path)?, length: None },
        };
        lock(&open.file)?;
        let result = self.append_locked(&mut open, lines);
        // Without lock support there is nothing to release.
        let _ = open.file.unlock();
        if result.is_ok() {
            self.open = Some(open);
        }
        result
    }

    fn append_locked(
        &mut self,
        open: &mut OpenFile,
        lines: Vec<(EventId, String)>,
    ) -> io::Result<()> {
        let file = &mut open.file;
        if open.length != Some(file.metadata()?.len()) {
            self.written.extend(read_back(file)?);
        }
        let before = file.metadata()?.len();
        if !lines.is_empty() {
            let new = lines.iter().filter(|(known, _)| !self.written.contains(known));
            let text: String = new.map(|(_, line)| line.as_str()).collect();
            // Lines that are there already may be from a process that died before its sync.
            if let Err(error) = file.write_all(text.as_bytes()).and_then(|()| file.sync_data()) {
                // How much of it is on disk is unknown. If it cannot be cut off, it is read back.
                let _ = file.set_len(before);
                return Err(error);
            }
            self.written.extend(lines.into_iter().map(|(known, _)| known));
        }
        open.length = Some(file.metadata()?.len());
        Ok(())
    }
}

/// Keeps other processes out for a moment.
fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(io::Error::other("another process is writing to it")),
        // A file system without locks: the file is assumed to be this process's alone.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

/// Whether the open file is still at its path.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), path.symlink_metadata()) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

/// Opens or creates the file, and makes it private.
fn open_at(path: &Path) -> io::Result<File> {
    // SECURITY: through a link this would write to any file, and make it private.
    let opened = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(MODE)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => {
            io::Error::other("it is a symbolic link: set the path of the file itself")
        }
        _ => error,
    })?;
    let is = file.metadata()?;
    if !is.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if is.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(MODE)).map_err(|error| {
            io::Error::other(format!(
                "other users can read it, and its permissions cannot be changed: {error}"
            ))
        })?;
    }
    if is.len() == 0 {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        // The directory entry must persist, too. Some file systems do not support this sync.
        let _ =
            File::open(folder.unwrap_or_else(|| Path::new("."))).map(|folder| folder.sync_all());
    }
    Ok(file)
}

/// The events at the end of the file. A line of ours that a crash cut off is removed: it is still
/// in the outbox. Foreign text without a final newline gets one.
fn read_back(file: &mut File) -> io::Result<HashSet<EventId>> {
    let length = file.seek(SeekFrom::End(0))?;
    let from = length.saturating_sub(LOOK_BACK);
    file.seek(SeekFrom::Start(from))?;
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    let whole = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (lines, cut) = end.split_at(whole);
    if cut.starts_with(BEGINNING) || !cut.is_empty() && BEGINNING.starts_with(cut) {
        file.set_len(from + whole as u64)?;
    } else if !cut.is_empty() {
        file.write_all(b"\n")?;
    }
    let event_in = |line: &[u8]| event_of(&serde_json::from_slice(line).ok()?);
    Ok(lines.split(|byte| *byte == b'\n').filter_map(event_in).collect())
}

/// The line of an event, with the time of writing, whose key depends on the reason.
fn line(one: &ExpiredSession, now: f64) -> String {
    let mut line = one.to_json();
    line[one.why.as_str()] = now.into();
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use anteroom_http::ident::{Item, User};

    use super::*;

    fn expired(number: u32) -> ExpiredSession {
        ExpiredSession {
            id: format!("id-{number}"),
            user: User::new(b"ann"),
            seen: 1.5 + f64::from(number),
            cart: vec![(Item::new("mug").unwrap(), 2)],
            viewed: vec![(Item::new("tea").unwrap(), 1.0)],
            why: HandoverReason::Expired,
        }
    }

    fn ids(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap();
        let id = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            Some(line["id"].as_str()?.to_owned())
        };
        text.lines().filter_map(id).collect()
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_line_begins_as_lines_of_ours_are_known_by() {
        let line = line(&expired(1), 9.0);
        assert!(line.as_bytes().starts_with(BEGINNING), "{line}");
    }

    #[tokio::test]
    async fn a_line_is_in_the_file_once_though_a_crash_cut_one_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("expired.jsonl");
        for cut in [1, 5, 20] {
            let half = &line(&expired(2), 9.0)[..cut];
            std::fs::write(&path, line(&expired(1), 9.0) + half).unwrap();
            let mut file = ExpiredFile::new(path.clone());
            file.write(&[expired(1), expired(2)], 10.0).await.unwrap();
            file.write(&[expired(1), expired(2), expired(3)], 10.0).await.unwrap();
            assert_eq!(ids(&path), ["id-1", "id-2", "id-3"], "cut at {cut}");
        }
    }

    #[tokio::test]
    async fn lines_of_an_earlier_version_are_not_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("expired.jsonl");
        let early = r#"{"cart":[{"count":2,"item":"mug"}],"expired":9.0,"id":"id-1","seen":2.5}"#;
        std::fs::write(&path, format!("{early}\n")).unwrap();
        let idle = ExpiredSession { why: HandoverReason::Idle, ..expired(1) };
        ExpiredFile::new(path.clone()).write(&[expired(1), idle.clone()], 9.0).await.unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("{early}\n{}", line(&idle, 9.0)));
        assert!(line(&idle, 9.0).contains(r#""idle":9.0"#));
    }

    #[tokio::test]
    async fn foreign_lines_stay_and_the_file_becomes_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        for text in ["no line of ours", r#"{"car": 1}"#, "\n\nan end", r#"{"id":"x"}"#] {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            ExpiredFile::new(path.clone()).write(&[expired(1)], 9.0).await.unwrap();
            let now = std::fs::read_to_string(&path).unwrap();
            assert_eq!(now, format!("{text}\n{}", line(&expired(1), 9.0)));
            assert_eq!(mode(&path), 0o600);
        }
    }

    #[tokio::test]
    async fn written_lines_are_known_after_the_file_is_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("expired.jsonl");
        let mut file = ExpiredFile::new(path.clone());
        file.write(&[expired(1)], 9.0).await.unwrap();
        std::fs::rename(&path, folder.path().join("expired.jsonl.1")).unwrap();
        // The answer was lost: the outbox still has the first one.
        file.write(&[expired(1), expired(2)], 9.0).await.unwrap();
        assert_eq!(ids(&path), ["id-2"]);
        assert_eq!(mode(&path), 0o600);
        file.forget();
        file.write(&[expired(3)], 9.0).await.unwrap();
        assert_eq!(ids(&path), ["id-2", "id-3"]);
    }

    #[tokio::test]
    async fn lines_of_another_process_are_not_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("expired.jsonl");
        let (mut one, mut other) = (ExpiredFile::new(path.clone()), ExpiredFile::new(path.clone()));
        one.check().await.unwrap();
        other.write(&[expired(1)], 9.0).await.unwrap();
        one.write(&[expired(1), expired(2)], 9.0).await.unwrap();
        assert_eq!(ids(&path), ["id-1", "id-2"]);
    }

    #[tokio::test]
    async fn a_failed_write_is_repeated_on_the_reopened_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("expired.jsonl");
        let mut file = ExpiredFile::new(path.clone());
        file.write(&[expired(1)], 9.0).await.unwrap();
        // A file open for reading only stands for a full disk.
        let full = OpenFile { file: File::open(&path).unwrap(), length: None };
        file.state.open = Some(full);
        file.write(&[expired(1), expired(2)], 9.0).await.unwrap_err();
        assert!(file.state.open.is_none());
        file.write(&[expired(1), expired(2)], 9.0).await.unwrap();
        assert_eq!(ids(&path), ["id-1", "id-2"]);
    }

    #[tokio::test]
    async fn a_link_directory_or_locked_file_is_refused_with_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let refusal = ExpiredFile::new(link).check().await.unwrap_err();
        assert!(refusal.contains("symbolic link"), "{refusal}");
        assert!(!target.exists());
        let refusal = ExpiredFile::new(folder.path().to_owned()).check().await.unwrap_err();
        assert!(refusal.contains("directory"), "{refusal}");

        let busy = folder.path().join("busy");
        let holder = File::create(&busy).unwrap();
        holder.lock().unwrap();
        let refusal = ExpiredFile::new(busy).check().await.unwrap_err();
        assert!(refusal.contains("another process"), "{refusal}");
    }
}
