//! The message log: what the proxy says to operators through `tracing`, written to standard error by a thread of its
//! own.
//!
//! A thread that serves requests only pushes a line onto a bounded queue, so that it never waits for a terminal, a pipe
//! or a disk. Lines that do not fit, or that cannot be written, are counted, and the count is logged once lines can be
//! written again. `repeats` limits how often one message is logged.

mod repeats;

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

use self::repeats::Repeats;

/// The target of messages that are each logged, however many there are: what is lost is in no other record.
pub const EACH: &str = "anteroom::each";

/// The lines that wait at most.
const WAITING_MAX: usize = 1_024;
/// The bytes of a line that are kept at most: with [`WAITING_MAX`] a queue takes 8 MiB at most.
const LINE_MAX: usize = 8 * 1_024;
/// How often the writer looks for counts that are due.
const TICK: Duration = Duration::from_secs(1);
/// How long the end of the process waits for a reader of the last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

static QUEUE: OnceLock<Queue> = OnceLock::new();

/// The queue of the process.
#[derive(Debug)]
struct Queue {
    lines: SyncSender<Vec<u8>>,
    /// Lines that are neither written nor lost yet.
    open: Mutex<u64>,
    /// Notified when one of them is closed.
    closed: Condvar,
    /// Lines that were lost since the start.
    lost: AtomicU64,
}

/// The message log while it is on. When dropped, it waits briefly until what was logged is written.
#[derive(Debug)]
pub struct MessageLog(Repeats);

impl MessageLog {
    /// Starts logging to standard error what `filter` lets through. `is_colored`: for a terminal.
    ///
    /// # Errors
    /// When the process logs already, or no thread can be started.
    pub fn start(filter: EnvFilter, is_colored: bool) -> Result<Self, StartMessageLogError> {
        let (lines, waiting) = sync_channel(WAITING_MAX);
        let queue = QUEUE.get_or_init(|| Queue::new(lines));
        let repeats = Repeats::default();
        let counts = repeats.clone();
        std::thread::Builder::new()
            .name("message-log".to_owned())
            .spawn(move || write(queue, &waiting, &counts, &mut io::stderr()))?;
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(is_colored)
            // A queue that is full is no error, and a fallback to standard error would wait for it.
            .log_internal_errors(false)
            .with_writer(Lines(queue));
        tracing_subscriber::registry().with(filter).with(repeats.clone()).with(lines).try_init()?;
        Ok(Self(repeats))
    }
}

impl Drop for MessageLog {
    fn drop(&mut self) {
        let Some(queue) = QUEUE.get() else { return };
        self.0.tell_all();
        // Lines that are not read within the time are lost with the process.
        let _ = queue.closed.wait_timeout_while(queue.open(), LAST_LINES, |open| *open > 0);
    }
}

/// Why messages are not logged.
#[derive(Debug, thiserror::Error)]
pub enum StartMessageLogError {
    /// There is no thread for it.
    #[error("no thread can be started for the message log: {0}")]
    Thread(#[from] io::Error),
    /// It was started before.
    #[error("the message log has been started already: {0}")]
    Twice(#[from] TryInitError),
}

/// Writes a line as it is in its turn; false: the log is off.
pub fn write_line(text: &str) -> bool {
    QUEUE.get().is_some_and(|queue| {
        queue.push(format!("{text}\n").as_bytes());
        true
    })
}

/// The lines that could not be written, or found no room.
#[must_use]
pub fn lost() -> u64 {
    QUEUE.get().map_or(0, |queue| queue.lost.load(Ordering::Relaxed))
}

/// The lines that wait to be written.
#[must_use]
pub fn waiting() -> u64 {
    QUEUE.get().map_or(0, |queue| *queue.open())
}

impl Queue {
    fn new(lines: SyncSender<Vec<u8>>) -> Self {
        Self { lines, open: Mutex::default(), closed: Condvar::new(), lost: AtomicU64::new(0) }
    }

    fn open(&self) -> MutexGuard<'_, u64> {
        // No code that can panic runs under this lock.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a line is written or lost.
    fn close(&self, is_lost: bool) {
        self.lost.fetch_add(u64::from(is_lost), Ordering::Relaxed);
        let mut open = self.open();
        *open = open.saturating_sub(1);
        self.closed.notify_all();
    }

    /// Adds a line, with its line feed, unless there is no room.
    fn push(&self, line: &[u8]) {
        let line = match line.get(..LINE_MAX) {
            None => line.to_vec(),
            Some(start) => [start, b"...\n"].concat(),
        };
        // Before the writer can close it.
        *self.open() += 1;
        if self.lines.try_send(line).is_err() {
            self.close(true);
        }
    }
}

/// What the formatter writes each event to, in one piece.
#[derive(Clone, Copy)]
struct Lines(&'static Queue);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}

/// Writes lines as they come, for as long as the process lives.
fn write(queue: &Queue, waiting: &Receiver<Vec<u8>>, repeats: &Repeats, out: &mut impl Write) {
    let (mut told, mut is_torn) = (0, false);
    let mut looked = Instant::now();
    loop {
        match waiting.recv_timeout(TICK) {
            Ok(line) => {
                let begin: &[u8] = if is_torn { b"\n" } else { b"" };
                is_torn = out.write_all(begin).and_then(|()| out.write_all(&line)).is_err();
                queue.close(is_torn);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let lost = queue.lost.load(Ordering::Relaxed);
        if lost > told && !is_torn {
            let notice = format!(
                "{} messages are missing here: standard error could not be written, or was not read\n",
                lost - told
            );
            match out.write_all(notice.as_bytes()) {
                Ok(()) => told = lost,
                Err(_) => is_torn = true,
            }
        }
        if looked.elapsed() >= TICK {
            looked = Instant::now();
            repeats.tell(looked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> (Queue, Receiver<Vec<u8>>) {
        let (lines, waiting) = sync_channel(2);
        (Queue::new(lines), waiting)
    }

    /// Refuses the first writes after a part of each.
    #[derive(Default)]
    struct FullOutput(usize, Vec<u8>);

    impl Write for FullOutput {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 > 0 {
                self.0 -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.1.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_without_room_is_counted_and_a_long_one_is_cut() {
        let (queue, waiting) = queue();
        for line in [&b"a\n"[..], &[b'x'; 2 * LINE_MAX], b"c\n"] {
            queue.push(line);
        }
        assert_eq!(queue.lost.into_inner(), 1);
        assert_eq!(waiting.try_recv().unwrap(), b"a\n");
        let long = waiting.try_recv().unwrap();
        assert_eq!((long.len(), &long[LINE_MAX..]), (LINE_MAX + 4, &b"...\n"[..]));
    }

    #[test]
    fn a_line_that_cannot_be_written_is_counted_and_the_next_one_begins_anew() {
        let (queue, waiting) = queue();
        queue.push(b"a\n");
        queue.push(b"b\n");
        // The writer ends with the last sender.
        let Queue { lines, open, closed, lost } = queue;
        drop(lines);
        let queue = Queue { lines: sync_channel(1).0, open, closed, lost };
        let mut out = FullOutput(1, Vec::new());
        write(&queue, &waiting, &Repeats::default(), &mut out);
        let text = String::from_utf8(out.1).unwrap();
        assert!(text.starts_with("\nb\n1 messages are missing here"), "{text}");
        assert_eq!((queue.lost.into_inner(), queue.open.into_inner().unwrap()), (1, 0));
    }
}
