//! The access log: one line a request, formatted and written on a thread of its own.
//!
//! A server thread only pushes a record onto its own bounded list. Tokens, cookies and query
//! values are not in a record at all. Operational messages go through `tracing`, not through here.

mod format;
mod record;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use format::{Format, Style};
pub use record::{Record, VisitorClass};

/// How often the writer looks for records.
const TICK: Duration = Duration::from_millis(50);
/// Records that wait on one thread's list; over it they are dropped and counted. At 70,000 requests
/// a second a tick brings 3,500.
const WAITING_MAX: usize = 16_384;
/// Bytes of targets and fields in them, likewise.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// Appended to this file.
    File(PathBuf),
}

#[derive(Debug, Default)]
struct Waiting {
    records: Vec<Record>,
    bytes: usize,
}

/// One thread's list of records.
#[derive(Debug, Default)]
pub struct Pen {
    waiting: Mutex<Waiting>,
    dropped: AtomicU64,
}

impl Pen {
    /// Notes a request. At the bound the record is dropped and counted.
    pub fn write(&self, record: Record) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = waiting.bytes + record.weight();
        if waiting.records.len() < WAITING_MAX && bytes < WAITING_BYTES_MAX {
            waiting.bytes = bytes;
            waiting.records.push(record);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn take(&self, into: &mut Vec<Record>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.bytes = 0;
        into.append(&mut waiting.records);
    }
}

/// The log, shared by all threads.
#[derive(Debug)]
pub struct AccessLog {
    pens: Mutex<Vec<Arc<Pen>>>,
    stop: AtomicBool,
    /// Whether the file is to be opened anew.
    moved: AtomicBool,
}

impl AccessLog {
    /// Opens the target and starts the writing thread. The handle ends after [`Self::stop`], when
    /// all is written.
    ///
    /// # Errors
    /// When the file cannot be opened for appending, or no thread can be started.
    pub fn start(target: &Target, style: Style) -> io::Result<(Arc<Self>, JoinHandle<()>)> {
        let out = Out::open(target)?;
        let log = Arc::new(Self {
            pens: Mutex::default(),
            stop: AtomicBool::new(false),
            moved: AtomicBool::new(false),
        });
        let (shared, target) = (Arc::clone(&log), target.clone());
        let writer = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || shared.write_until_stopped(out, &target, &style))?;
        Ok((log, writer))
    }

    /// A list for one more server thread.
    #[must_use]
    pub fn pen(&self) -> Arc<Pen> {
        let pen = Arc::new(Pen::default());
        self.pens.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&pen));
        pen
    }

    /// Ends the writing thread once it has written what waits.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Opens the file anew, where it is one: somebody has moved it away. Until that works the old one
    /// is written to.
    pub fn reopen(&self) {
        self.moved.store(true, Ordering::Release);
    }

    /// Records dropped so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        let pens = self.pens.lock().unwrap_or_else(PoisonError::into_inner);
        pens.iter().map(|pen| pen.dropped.load(Ordering::Relaxed)).sum()
    }

    fn write_until_stopped(&self, mut out: Out, target: &Target, style: &Style) {
        let mut records = Vec::new();
        let mut text = Vec::new();
        let mut failing = false;
        loop {
            let last = self.stop.load(Ordering::Acquire);
            if self.moved.swap(false, Ordering::AcqRel) {
                match Out::open(target) {
                    Ok(anew) => out = anew,
                    Err(error) => tracing::warn!(%error, "the access log cannot be opened anew"),
                }
            }
            let pens = self.pens.lock().unwrap_or_else(PoisonError::into_inner).clone();
            pens.iter().for_each(|pen| pen.take(&mut records));
            // Each thread's records are in order; together they are not.
            records.sort_by(|a, b| a.ended().total_cmp(&b.ended()));
            records.drain(..).for_each(|record| style.line(&record, &mut text));
            let written = out.write_all(&text);
            if let (Err(error), false) = (&written, failing) {
                tracing::warn!(%error, "the access log cannot be written; lines are lost");
            }
            failing = written.is_err();
            text.clear();
            if last {
                return;
            }
            std::thread::park_timeout(TICK);
        }
    }
}

#[derive(Debug)]
enum Out {
    Stdout(io::Stdout),
    File(File),
}

impl Out {
    fn open(target: &Target) -> io::Result<Self> {
        match target {
            Target::Stdout => Ok(Self::Stdout(io::stdout())),
            Target::File(path) => {
                OpenOptions::new().append(true).create(true).open(path).map(Self::File)
            }
        }
    }

    fn write_all(&mut self, text: &[u8]) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        match self {
            Self::Stdout(out) => {
                let mut out = out.lock();
                out.write_all(text).and_then(|()| out.flush())
            }
            Self::File(out) => out.write_all(text),
        }
    }
}
