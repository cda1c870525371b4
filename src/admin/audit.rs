//! The audit log: which operator did what, and with what result.
//!
//! The last entries are in memory. Each is also appended to a file, by a thread of its own, so that a slow disk holds up
//! nothing; without a file it goes to the log of the process, which has no names of users and no queries.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use anteroom_http::clock::unix_now;
use anteroom_telemetry::line_file::LineFile;
use serde::Serialize;

use super::audit_subject::AuditSubject;
use super::per_minute::PerMinute;

/// Entries in memory.
const RING: usize = 200;
/// Entries that wait for the file. Further ones are lost, which the log of the process says.
const WAITING_MAX: usize = 1_024;
/// Refused requests of strangers that are recorded in a minute: these must not push the actions of operators out of
/// the memory, nor fill the disk.
const STRANGERS_PER_MINUTE: usize = 30;
/// How the entry of a request without a known token is signed. No token can have this name.
const STRANGER: &str = "(none)";
/// The status of an action whose client left before its end, as nginx has it.
const CLIENT_LEFT: u16 = 499;

/// What an operator did.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AuditEntry {
    /// The Unix time of its end.
    at: f64,
    /// The name of the operator's token.
    name: String,
    /// The path of the endpoint, without its first `/`.
    action: &'static str,
    /// What it was done to, in at most 512 bytes.
    what: String,
    /// The status of the response.
    status: u16,
}

/// The audit log of this process.
#[derive(Debug)]
pub struct AuditLog {
    ring: RefCell<VecDeque<AuditEntry>>,
    strangers: RefCell<PerMinute>,
    /// Refused requests of strangers that were not recorded since the last one that was.
    unrecorded: Cell<u64>,
    file: RefCell<Option<AuditFile>>,
}

impl AuditLog {
    /// The log, with a file at `path` if there is one.
    ///
    /// # Errors
    /// If the system starts no thread. A file that cannot be opened is warned of, and tried again.
    pub fn start(path: Option<&Path>) -> io::Result<Self> {
        let file = path.map(|path| AuditFile::start(path.to_owned())).transpose()?;
        Ok(Self {
            ring: RefCell::default(),
            strangers: RefCell::new(PerMinute::new(STRANGERS_PER_MINUTE)),
            unrecorded: Cell::default(),
            file: RefCell::new(file),
        })
    }

    /// Opens the file again: the old one has been moved away.
    pub fn reopen(&self) {
        if let Some(file) = &*self.file.borrow() {
            file.send(Message::Reopen);
        }
    }

    /// Ends the thread of the file once it has written what waits.
    pub fn end(&self) {
        let file = self.file.borrow_mut().take();
        if let Some(AuditFile { messages, writer }) = file {
            drop(messages);
            if writer.join().is_err() {
                tracing::error!("the audit log's thread panicked");
            }
        }
    }

    /// The last entries, the newest last.
    pub(super) fn last(&self) -> Vec<AuditEntry> {
        self.ring.borrow().iter().cloned().collect()
    }

    /// An action that begins. It is recorded when its status is known, or its client leaves.
    pub(super) fn begin(
        &self,
        name: &Arc<str>,
        action: &'static str,
        subject: AuditSubject,
    ) -> PendingEntry<'_> {
        PendingEntry { log: self, name: Arc::clone(name), action, subject, status: CLIENT_LEFT }
    }

    /// Records the refused request of a stranger, if not too many came within a minute.
    pub(super) fn refused(&self, action: &'static str, status: u16, now: Instant) {
        if !self.strangers.borrow_mut().count(now) {
            self.unrecorded.set(self.unrecorded.get() + 1);
            return;
        }
        let subject = match self.unrecorded.take() {
            0 => AuditSubject::default(),
            more => AuditSubject::plain(format!("{more} more before it")),
        };
        self.record(STRANGER, action, subject, status);
    }

    fn record(&self, name: &str, action: &'static str, subject: AuditSubject, status: u16) {
        let AuditSubject { full, public } = subject;
        let name = name.to_owned();
        let entry = AuditEntry { at: unix_now(), name, action, what: full, status };
        match &*self.file.borrow() {
            Some(file) => file.append(&entry),
            None => {
                tracing::info!(name = ?entry.name, action, what = ?public, status, "an operator's action");
            }
        }
        let mut ring = self.ring.borrow_mut();
        if ring.len() >= RING {
            ring.pop_front();
        }
        ring.push_back(entry);
    }
}

/// An action that goes on. Its entry is recorded on drop.
#[derive(Debug)]
pub(super) struct PendingEntry<'l> {
    log: &'l AuditLog,
    name: Arc<str>,
    action: &'static str,
    subject: AuditSubject,
    status: u16,
}

impl PendingEntry<'_> {
    pub(super) fn end(mut self, status: u16) {
        self.status = status;
    }
}

impl Drop for PendingEntry<'_> {
    fn drop(&mut self) {
        let subject = std::mem::take(&mut self.subject);
        self.log.record(&self.name, self.action, subject, self.status);
    }
}

/// The file, and the thread that writes it.
#[derive(Debug)]
struct AuditFile {
    messages: SyncSender<Message>,
    writer: JoinHandle<()>,
}

enum Message {
    Line(Vec<u8>),
    Reopen,
}

impl AuditFile {
    fn start(path: PathBuf) -> io::Result<Self> {
        let (messages, received) = sync_channel(WAITING_MAX);
        let writer = std::thread::Builder::new()
            .name("audit-log".to_owned())
            .spawn(move || write_until_ended(&path, &received))?;
        Ok(Self { messages, writer })
    }

    fn append(&self, entry: &AuditEntry) {
        match serde_json::to_vec(entry) {
            Ok(mut line) => {
                line.push(b'\n');
                self.send(Message::Line(line));
            }
            Err(error) => {
                tracing::error!(%error, "an entry of the audit log cannot be written as JSON")
            }
        }
    }

    fn send(&self, message: Message) {
        if let Err(TrySendError::Full(Message::Line(_))) = self.messages.try_send(message) {
            tracing::warn!("the file of [admin] audit_log takes too long; an entry is not in it");
        }
    }
}

fn write_until_ended(path: &Path, received: &Receiver<Message>) {
    let mut file = opened(path);
    for message in received {
        match message {
            Message::Reopen => file = opened(path).or(file),
            Message::Line(line) => {
                file = file.or_else(|| opened(path));
                let Some(out) = &mut file else { continue };
                if let Err(error) = out.append(&line) {
                    tracing::warn!(%error, path = %path.display(), "an entry of the audit log is lost");
                }
            }
        }
    }
}

/// The file, which no other user may read: it names users.
fn opened(path: &Path) -> Option<LineFile> {
    let file = LineFile::open(path, 0o600);
    let warn = |error: &io::Error| {
        tracing::warn!(%error, path = %path.display(), "cannot open the file of [admin] audit_log; its entries are lost");
    };
    file.inspect_err(warn).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn subject(text: &str) -> AuditSubject {
        AuditSubject::plain(text.to_owned())
    }

    #[test]
    fn the_last_entries_are_kept_and_every_one_is_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let log = AuditLog::start(Some(&path)).unwrap();
        for number in 0..RING + 5 {
            log.begin(&"alice".into(), "purge", subject(&number.to_string())).end(200);
        }
        let kept = log.last();
        assert_eq!((kept.len(), kept[0].what.as_str()), (RING, "5"));
        log.end();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), RING + 5);
        let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(first["name"], "alice");
        assert_eq!(
            (first["action"].as_str(), first["status"].as_u64()),
            (Some("purge"), Some(200))
        );
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_reopened_file_is_a_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let [path, moved] = ["audit.log", "audit.log.1"].map(|name| folder.path().join(name));
        let log = AuditLog::start(Some(&path)).unwrap();
        log.begin(&"a".into(), "purge", subject("1")).end(200);
        let deadline = Instant::now() + std::time::Duration::from_secs(10);
        while !fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n')) {
            assert!(Instant::now() < deadline, "the entry is written");
            std::thread::yield_now();
        }
        fs::rename(&path, &moved).unwrap();
        log.reopen();
        log.begin(&"a".into(), "purge", subject("2")).end(200);
        log.end();
        assert!(fs::read_to_string(&path).unwrap().contains("\"what\":\"2\""));
        assert!(!fs::read_to_string(&moved).unwrap().contains("\"what\":\"2\""));
    }

    #[test]
    fn a_file_that_cannot_be_opened_loses_entries_and_nothing_else() {
        let log = AuditLog::start(Some(Path::new("/nonexistent/audit.log"))).unwrap();
        log.begin(&"a".into(), "purge", subject("1")).end(200);
        assert_eq!(log.last().len(), 1);
        log.end();
    }

    #[test]
    fn an_action_whose_client_leaves_is_recorded() {
        let log = AuditLog::start(None).unwrap();
        drop(log.begin(&"a".into(), "purge", subject("1")));
        assert_eq!(log.last()[0].status, CLIENT_LEFT);
    }

    #[test]
    fn strangers_fill_neither_the_memory_nor_the_disk() {
        let log = AuditLog::start(None).unwrap();
        let now = Instant::now();
        for _ in 0..1_000 {
            log.refused("purge", 401, now);
        }
        assert_eq!(log.last().len(), STRANGERS_PER_MINUTE);
        log.refused("purge", 401, now + std::time::Duration::from_secs(60));
        let last = log.last().pop().unwrap();
        assert_eq!((last.what.as_str(), &*last.name), ("970 more before it", STRANGER));
    }
}
