//! The access log: one line a request, formatted and written on a thread of its own.
//!
//! A server thread only pushes a record onto its own bounded list. Tokens, cookies and query
//! values are not in a record at all. Operational messages go through `tracing`, not through here.

mod format;
mod record;

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anteroom_policy::access_log::AccessLogTarget;

pub use format::Style;
pub use format::{millis, timestamp};
pub use record::{LogRecord, LogTexts, VisitorClass};

use self::record::Records;
use crate::line_file::LineFile;

/// How often the writer looks for records.
const TICK: Duration = Duration::from_millis(50);
/// Records that wait on one thread's list; over it they are dropped and counted. At 70,000 requests
/// a second a tick brings 3,500.
const WAITING_MAX: usize = 16_384;
/// Bytes of targets and fields in them, likewise.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// One thread's list of records.
#[derive(Debug, Default)]
pub struct LogBuffer {
    waiting: Mutex<Records>,
    dropped: AtomicU64,
}

impl LogBuffer {
    /// Records a request. At the bound the record is dropped and counted.
    pub fn write(&self, record: LogRecord, texts: LogTexts<'_>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.push(record, texts, WAITING_MAX, WAITING_BYTES_MAX) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes what waits, in exchange for `spare`, which is empty.
    fn take(&self, spare: Records) -> Records {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *waiting, spare)
    }
}

/// The log, shared by all threads.
#[derive(Debug)]
pub struct AccessLog {
    log_buffers: Mutex<Vec<Arc<LogBuffer>>>,
    stop: AtomicBool,
    /// Whether the file is to be reopened.
    moved: AtomicBool,
}

impl AccessLog {
    /// Opens the target and starts the writing thread. The handle ends after [`Self::stop`], when
    /// all is written.
    ///
    /// # Errors
    /// When the file cannot be opened for appending, or no thread can be started.
    pub fn start(
        target: &AccessLogTarget,
        style: Style,
    ) -> io::Result<(Arc<Self>, JoinHandle<()>)> {
        let out = Output::open(target)?;
        let log = Arc::new(Self {
            log_buffers: Mutex::default(),
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
    pub fn log_buffer(&self) -> Arc<LogBuffer> {
        let log_buffer = Arc::new(LogBuffer::default());
        self.log_buffers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(&log_buffer));
        log_buffer
    }

    /// Ends the writing thread once it has written what waits.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Reopens the log if it is a file: the old one has been moved away. Until that succeeds, the old file is
    /// written to.
    pub fn reopen(&self) {
        self.moved.store(true, Ordering::Release);
    }

    /// Records dropped so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        let log_buffers = self.log_buffers.lock().unwrap_or_else(PoisonError::into_inner);
        log_buffers.iter().map(|log_buffer| log_buffer.dropped.load(Ordering::Relaxed)).sum()
    }

    fn write_until_stopped(&self, mut out: Output, target: &AccessLogTarget, style: &Style) {
        let (mut taken, mut spare) = (Vec::new(), Vec::<Records>::new());
        let mut text = Vec::new();
        let mut failing = false;
        loop {
            let last = self.stop.load(Ordering::Acquire);
            if self.moved.swap(false, Ordering::AcqRel) {
                match Output::open(target) {
                    Ok(anew) => out = anew,
                    Err(error) => tracing::warn!(%error, "the access log cannot be opened anew"),
                }
            }
            let log_buffers =
                self.log_buffers.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let exchange =
                |log_buffer: &Arc<LogBuffer>| log_buffer.take(spare.pop().unwrap_or_default());
            taken.extend(log_buffers.iter().map(exchange));
            let mut records: Vec<_> = taken.iter().flat_map(Records::iter).collect();
            // Each thread's records are in order; together they are not.
            records.sort_by(|(a, _), (b, _)| a.ended().total_cmp(&b.ended()));
            records.iter().for_each(|(record, texts)| style.line(record, texts, &mut text));
            taken.iter_mut().for_each(Records::clear);
            spare.append(&mut taken);
            if !text.is_empty() {
                let written = out.write_all(&text);
                if let (Err(error), false) = (&written, failing) {
                    tracing::warn!(%error, "the access log cannot be written; lines are lost");
                }
                failing = written.is_err();
                text.clear();
            }
            if last {
                return;
            }
            std::thread::park_timeout(TICK);
        }
    }
}

#[derive(Debug)]
enum Output {
    Stdout(io::Stdout),
    File(LineFile),
}

impl Output {
    fn open(target: &AccessLogTarget) -> io::Result<Self> {
        match target {
            AccessLogTarget::Stdout => Ok(Self::Stdout(io::stdout())),
            AccessLogTarget::File(path) => LineFile::open(path, 0o666).map(Self::File),
        }
    }

    fn write_all(&mut self, text: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout(out) => {
                let mut out = out.lock();
                out.write_all(text).and_then(|()| out.flush())
            }
            Self::File(out) => out.append(text),
        }
    }
}
