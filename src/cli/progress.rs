//! What a command that takes its time shows meanwhile, on standard error.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use super::output::note;

/// The time between two lines about the progress, without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// The time between two questions to a proxy that works on a command.
const ASKED_EVERY: Duration = Duration::from_millis(200);
/// What the progress of a store is counted in.
pub(crate) const SESSIONS: &str = "sessions and visitors";
/// The width of the progress bar.
const BAR: u64 = 30;

/// The pause before a proxy that works on a command is asked again.
pub(crate) fn pause() {
    wait(ASKED_EVERY);
}

/// Waits for some time.
#[expect(
    clippy::disallowed_methods,
    reason = "this process has no runtime, and nothing else to do"
)]
pub(crate) fn wait(time: Duration) {
    std::thread::sleep(time);
}

/// The progress, as a bar on a terminal, or as a line now and then.
#[derive(Debug)]
pub(crate) struct ShownProgress {
    /// What is counted, in the plural.
    what: &'static str,
    is_terminal: bool,
    last: Instant,
    is_open: bool,
}

impl ShownProgress {
    /// The progress over what is counted, in the plural.
    pub(crate) fn of(what: &'static str) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { what, is_terminal, last: Instant::now(), is_open: false }
    }

    /// Shows how far the step is.
    pub(crate) fn show(&mut self, done: u64, of: u64) {
        if self.is_terminal {
            let full = (done * BAR).checked_div(of).unwrap_or(BAR).min(BAR) as usize;
            let bar = format!("{:<width$}", "#".repeat(full), width = BAR as usize);
            let mut out = std::io::stderr().lock();
            // A closed terminal is no error.
            let _closed = write!(out, "\r[{bar}] {done} of about {of}").and_then(|()| out.flush());
            self.is_open = true;
        } else if self.last.elapsed() >= LINE_EVERY {
            note(&format!("{done} of about {of} {}", self.what));
            self.last = Instant::now();
        }
    }

    /// Ends the line of the bar, if there is one.
    pub(crate) fn end(&mut self) {
        if std::mem::take(&mut self.is_open) {
            note("");
        }
    }
}
