//! The process that takes over, as the one that serves sees it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anteroom_telemetry::message_log;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long a process that was told why may take to end by itself.
const OWN_END: Duration = Duration::from_secs(2);
/// How long the system may take to end one.
const END: Duration = Duration::from_secs(5);
/// How long the last lines of one that has ended may be on their way.
const LAST_LINES: Duration = Duration::from_secs(1);
/// How often it is looked whether a process has ended.
const LOOK: Duration = Duration::from_millis(10);
/// How many of its last lines are told.
const LINES_MAX: usize = 20;
/// How much of a line is told, in bytes.
const LINE_MAX: u64 = 1 << 10;

/// A process that takes over.
#[derive(Debug)]
pub(super) struct SuccessorProcess {
    id: u32,
    end: ProcessEnd,
}

/// How the end of a process is seen, and how it is ended.
#[derive(Debug)]
enum ProcessEnd {
    Own(StartedProcess),
    /// It was started elsewhere.
    Other(OwnedFd),
    /// The system gives no handle. The end of the connection tells it to end.
    Unseen,
}

/// A process that this one has started.
#[derive(Debug)]
struct StartedProcess {
    child: Child,
    lines: LastLines,
    reading: JoinHandle<()>,
}

/// The last lines that a process has written to standard error.
type LastLines = Rc<RefCell<VecDeque<String>>>;

impl SuccessorProcess {
    /// Starts one. What it writes to standard error is logged here, until it has another.
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let lines = LastLines::default();
        let pass_on = pass_on(child.stderr.take(), Rc::clone(&lines));
        let (id, reading) = (child.id(), tokio::task::spawn_local(pass_on));
        Ok(Self { id, end: ProcessEnd::Own(StartedProcess { child, lines, reading }) })
    }

    /// The process with this id. To be called while it is known to run: ids are used again.
    pub(super) fn of(id: i32) -> Option<Self> {
        let end = match pidfd_open(Pid::from_raw(id)?, PidfdFlags::empty()) {
            Ok(handle) => ProcessEnd::Other(handle),
            Err(error) => {
                tracing::warn!(%error, "the end of the new process is not seen");
                ProcessEnd::Unseen
            }
        };
        Some(Self { id: id.try_into().ok()?, end })
    }

    /// Its id.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Whether this process has started it.
    pub(super) fn is_own(&self) -> bool {
        matches!(self.end, ProcessEnd::Own(_))
    }

    /// Returns when it has ended.
    pub(super) async fn ended(&mut self) {
        while !self.has_ended() {
            sleep(LOOK).await;
        }
    }

    fn has_ended(&mut self) -> bool {
        match &mut self.end {
            // An error means that there is nothing to wait for.
            ProcessEnd::Own(StartedProcess { child, .. }) => !matches!(child.try_wait(), Ok(None)),
            // The handle becomes readable then.
            ProcessEnd::Other(handle) => {
                let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
                poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&at_once)) != Ok(0)
            }
            ProcessEnd::Unseen => false,
        }
    }

    /// Waits until it has ended, and ends it if it does not. It has been told why. Returns how it ended, and its last
    /// lines, if this process has started it.
    pub(super) async fn end(self) -> Option<String> {
        self.end_within(OWN_END).await
    }

    /// The same, where it has `limit` to end by itself.
    pub(super) async fn end_within(mut self, limit: Duration) -> Option<String> {
        if timeout(limit, self.ended()).await.is_err() {
            match self.kill() {
                Ok(()) if timeout(END, self.ended()).await.is_ok() => {}
                Ok(()) => tracing::error!(process = self.id, "the new process does not end"),
                Err(error) => tracing::warn!(%error, "the new process cannot be ended"),
            }
        }
        let ProcessEnd::Own(StartedProcess { mut child, lines, reading }) = self.end else {
            return None;
        };
        let read = timeout(LAST_LINES, reading).await;
        let mut words = match child.try_wait() {
            Ok(Some(status)) => format!("it ended with {status}"),
            Ok(None) | Err(_) => "it has not ended".to_owned(),
        };
        if read.is_err() {
            tracing::debug!("something else still has the standard error of the new process");
        }
        for line in lines.borrow().iter() {
            let _infallible = write!(words, "\n{line}");
        }
        Some(words)
    }

    fn kill(&mut self) -> io::Result<()> {
        match &mut self.end {
            ProcessEnd::Own(StartedProcess { child, .. }) => child.kill(),
            ProcessEnd::Other(handle) => Ok(pidfd_send_signal(handle, Signal::KILL)?),
            ProcessEnd::Unseen => Err(io::Error::other("the system gave no handle on it")),
        }
    }
}

/// Logs what a process writes to standard error, and keeps the last lines.
async fn pass_on(stderr: Option<ChildStderr>, lines: LastLines) {
    let Some(stderr) = stderr else { return };
    let mut reader = match pipe::Receiver::from_owned_fd(OwnedFd::from(stderr)) {
        Ok(receiver) => BufReader::new(receiver),
        Err(error) => return tracing::warn!(%error, "the messages of the new process are lost"),
    };
    let mut line = Vec::new();
    while let Ok(1..) = (&mut reader).take(LINE_MAX).read_until(b'\n', &mut line).await {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        message_log::write_line(&text);
        let mut lines = lines.borrow_mut();
        if lines.len() >= LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(text);
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::LocalSet;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_does_not_end_is_ended() {
        let mut command = shell("exec sleep 60");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let process = SuccessorProcess::of(i32::try_from(child.id()).unwrap()).unwrap();
        assert_eq!((process.id(), process.is_own()), (child.id(), false));
        assert_eq!(process.end().await, None);
        assert!(!child.wait().unwrap().success());
    }

    #[tokio::test]
    async fn what_a_started_process_said_last_is_told() {
        let local = LocalSet::new();
        local
            .run_until(async {
                let script = "for i in $(seq 30); do echo line $i >&2; done; exit 64";
                let mut process = SuccessorProcess::start(shell(script)).unwrap();
                assert!(process.is_own());
                process.ended().await;
                let told = process.end().await.unwrap();
                let lines: Vec<_> = told.lines().collect();
                assert_eq!(lines[0], "it ended with exit status: 64");
                assert_eq!((lines.len(), lines[1], lines[20]), (21, "line 11", "line 30"));
                assert!(SuccessorProcess::start(Command::new("/missing")).is_err());
            })
            .await;
    }
}
