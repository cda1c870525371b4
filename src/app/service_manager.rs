//! Messages to the service manager: the protocol of `sd_notify`, which systemd made and others speak, too.
//!
//! Nothing is sent without `NOTIFY_SOCKET` in the environment. The watchdog's message depends on every
//! thread: each worker has a [`Pulse`], which its runtime moves on, and one that hangs holds the message
//! back. The service manager then restarts the process.
//!
//! No message waits in a thread for a service manager that does not read. One for which its socket has no room is tried
//! again for a moment, beside all else, and then dropped; one of the watchdog at once. The log says so once. The first
//! `READY=1` is tried until it is heard, and the removal of sockets with each later message. An upgrade of which it
//! does not hear is taken back: the service would end with this process. Sockets that it was not given are closed at a
//! restart; a reload offers them again.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::geteuid;
use sd_notify::NotifyState;
use tokio::time::{Instant, MissedTickBehavior, sleep};

use crate::take_over::frame::{FILES_MAX, send_with_files};

/// How often the pulses are looked at within the time that the service manager waits. One late look must
/// not end the process.
const LOOKS: u32 = 4;

/// How often a pulse moves within that time: more often than it is looked at.
const BEATS: u32 = 2 * LOOKS;

/// How long the service manager may take to act on a message where that is waited for.
const ACTED: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// How long it may have no room for a message until that is dropped.
const ROOM: Duration = Duration::from_secs(1);
/// How often a message is tried meanwhile.
const TRY: Duration = Duration::from_millis(20);
/// How often one is tried that is never dropped.
const AGAIN: Duration = Duration::from_millis(100);

/// The most names of [`CLOSED`].
const CLOSED_MAX: usize = 1_000;

/// How the control group of a service ends.
const SERVICE: &str = ".service";

/// The pulse of a worker that has ended as it should.
const ENDED: u64 = u64::MAX;

/// Whether the service manager listens to this process: to the main one alone.
static IS_MAIN: AtomicBool = AtomicBool::new(true);

/// Whether the log has said that messages are dropped; false again when one is taken.
static DROPS_LOGGED: AtomicBool = AtomicBool::new(false);

/// Whether it had no room for a message for [`ROOM`]. Others are tried once, until one is taken.
static IS_GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// The names of closed sockets that it may still keep, because it had no room for that message.
static CLOSED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Tells nothing until [`become_main`]: another process is the main one.
pub(super) fn wait_to_be_main() {
    IS_MAIN.store(false, Relaxed);
}

/// The service manager listens to this process from now on.
pub(super) fn become_main() {
    IS_MAIN.store(true, Relaxed);
}

/// Whether the environment names a service manager.
pub(super) fn is_named() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Tells that another process is the main one, and nothing more afterwards. `false`: there is a service manager, and it
/// has not heard this.
pub(super) async fn handed_over(successor: u32) -> bool {
    // Now, because it does not listen to this process afterwards.
    remove_closed();
    // In one message, so that the service is never seen without a process that serves.
    let states =
        [NotifyState::MainPid(successor), NotifyState::Ready, NotifyState::Status("serving")];
    // It has all the time for this, whatever it had no room for before.
    let is_heard = match send_within(ROOM, &text(&states), &[]).await {
        Ok(_) => true,
        // No service manager is there to end anything, as where the variable was inherited from another service.
        Err(error) => {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
        }
    };
    if is_heard {
        IS_MAIN.store(false, Relaxed);
    }
    is_heard
}

/// Whether the service manager would follow to this process, as far as is known: systemd takes one outside of the
/// service's control group for the main one only where root says so, and ends the service with this process otherwise.
pub(super) fn would_follow(process: u32) -> bool {
    let is_told = is_named() && IS_MAIN.load(Relaxed);
    if !is_told || geteuid().is_root() {
        return true;
    }
    let groups = |process: &str| fs::read_to_string(format!("/proc/{process}/cgroup"));
    match (groups("self"), groups(&process.to_string())) {
        (Ok(own), Ok(other)) => is_in_service(&own, &other),
        (Err(_), _) | (_, Err(_)) => true,
    }
}

/// Whether the control groups of another process are in the service of one with these, as `/proc/PID/cgroup` has them.
fn is_in_service(own: &str, other: &str) -> bool {
    let (Some(own), Some(other)) = (control_group(own), control_group(other)) else { return true };
    // A service may have groups of its own below the one that systemd has made for it.
    let service = own.rfind(SERVICE).map_or(own, |at| &own[..at + SERVICE.len()]);
    // Above what this process sees as the root, or beside it.
    let is_elsewhere = other.split('/').any(|part| part == "..");
    own == other || !is_elsewhere && Path::new(other).starts_with(service)
}

/// The group in the hierarchy of systemd: one of its own, or the only one (version 2).
fn control_group(groups: &str) -> Option<&str> {
    let of = |controllers: &str| {
        groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            rest.strip_prefix(controllers)?.strip_prefix(':')
        })
    };
    of("name=systemd").or_else(|| of(""))
}

/// Tells that another process did not take over.
pub(super) fn serving_on() {
    let status = NotifyState::Status("serving: the last upgrade failed, see the log");
    // A reload that was refused meanwhile may not have come to its own end.
    say_at_once(&[NotifyState::Ready, status]);
}

/// Tells that clients are served, at start: until it is heard, because a start of which systemd does not hear fails.
pub(super) async fn ready() {
    if send(&text(&[NotifyState::Ready, NotifyState::Status("serving")]), &[]).await.is_ok() {
        return;
    }
    tokio::task::spawn_local(async {
        let ready = text(&[NotifyState::Ready]);
        while try_send(&ready, &[]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            sleep(AGAIN).await;
        }
    });
}

/// Tells that a reload is over: whether the new configuration is in force. HUP cannot fail, so `systemctl
/// status` is where a refused one shows.
pub(super) async fn reloaded(is_in_force: bool) {
    let status = match is_in_force {
        true => "serving",
        false => "serving with the old configuration: the last reload was refused, see the log",
    };
    say(&[NotifyState::Ready, NotifyState::Status(status)]).await;
}

/// Tells that a reload begins. [`reloaded`] tells its end.
pub(super) async fn reloading() {
    // The time tells this reload from the one before; systemd 253 and later waits for it.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => say(&[NotifyState::Reloading, now]).await,
        Err(error) => tracing::warn!(%error, "the monotonic clock cannot be read"),
    }
}

/// Tells that the process drains.
pub(super) async fn stopping() {
    say(&[NotifyState::Stopping, NotifyState::Status("draining")]).await;
}

/// Gives sockets to the service manager: it keeps them open while the process restarts, and passes them to the next
/// start under this name. Returns whether a service manager has got them; one that may keep no more closes its own
/// copies. Those that it has already are not kept twice.
pub(super) async fn keep_sockets(name: &str, sockets: &[BorrowedFd<'_>]) -> bool {
    remove_closed();
    if closed().contains(name) {
        // Older sockets of this name have to go first.
        return false;
    }
    let message = format!("FDSTORE=1\nFDNAME={name}\n");
    let mut has_got_them = false;
    for part in sockets.chunks(FILES_MAX) {
        has_got_them = send(&message, part).await.unwrap_or(false);
        if !has_got_them {
            break;
        }
    }
    has_got_them
}

/// Has the service manager close the sockets that it keeps under these names, if any, and returns when it has done so:
/// no client waits at them afterwards. What it has no room for is told later.
pub(super) fn drop_sockets(names: BTreeSet<String>) {
    if !names.is_empty() {
        note_closed(names);
        let is_told = remove_closed();
        wait_until_closed(is_told);
    }
}

/// The same, with time for the service manager to make room.
pub(super) async fn drop_sockets_in_time(names: BTreeSet<String>) {
    if names.is_empty() {
        return;
    }
    note_closed(names);
    let end = Instant::now() + ROOM;
    let mut is_told = remove_closed();
    while !is_told && !IS_GIVEN_UP.load(Relaxed) && Instant::now() < end {
        sleep(TRY).await;
        is_told = remove_closed();
    }
    wait_until_closed(is_told);
}

fn wait_until_closed(is_told: bool) {
    let heard = if is_told { wait_until_heard() } else { Err(io::ErrorKind::WouldBlock.into()) };
    if let Err(error) = heard {
        tracing::warn!(%error, "the service manager may still keep sockets of closed listeners");
    }
}

fn closed() -> MutexGuard<'static, BTreeSet<String>> {
    CLOSED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note_closed(names: BTreeSet<String>) {
    let mut closed = closed();
    closed.extend(names);
    while closed.len() > CLOSED_MAX {
        closed.pop_last();
    }
}

/// Tells of the names of closed sockets, as long as there is room. Returns whether none is left.
fn remove_closed() -> bool {
    let mut closed = closed();
    while let Some(name) = closed.pop_first() {
        if send_now(&format!("FDSTOREREMOVE=1\nFDNAME={name}\n"), &[]).is_err() {
            closed.insert(name);
            return false;
        }
    }
    true
}

/// Waits until the service manager has acted on all messages, for a moment at most: it closes this one's file then.
fn wait_until_heard() -> io::Result<()> {
    let (here, there) = io::pipe()?;
    if !send_at_once("BARRIER=1", &[there.as_fd()])? {
        return Ok(());
    }
    drop(there);
    match poll(&mut [PollFd::new(&here, PollFlags::IN)], Some(&ACTED))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// Tells states, with time for the service manager to make room.
async fn say(states: &[NotifyState<'_>]) {
    // A failure is logged.
    let _is_heard = send(&text(states), &[]).await;
}

fn say_at_once(states: &[NotifyState<'_>]) {
    // The same.
    let _is_heard = send_at_once(&text(states), &[]);
}

/// A message: a state a line.
fn text(states: &[NotifyState<'_>]) -> String {
    let mut text = String::new();
    for state in states {
        text.push_str(&state.to_string());
        text.push('\n');
    }
    text
}

/// Sends a message with files. Returns whether there is a service manager that listens to this process. Where it has no
/// room, it is given [`ROOM`], once; this thread does other work meanwhile.
async fn send(message: &str, files: &[BorrowedFd<'_>]) -> io::Result<bool> {
    let limit = if IS_GIVEN_UP.load(Relaxed) { Duration::ZERO } else { ROOM };
    send_within(limit, message, files).await
}

/// The same, where it is given this time.
async fn send_within(limit: Duration, message: &str, files: &[BorrowedFd<'_>]) -> io::Result<bool> {
    let end = Instant::now() + limit;
    loop {
        match try_send(message, files) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < end => {
                sleep(TRY).await;
            }
            sent => {
                IS_GIVEN_UP.store(sent.is_err(), Relaxed);
                return logged(sent);
            }
        }
    }
}

/// The same without that time.
fn send_at_once(message: &str, files: &[BorrowedFd<'_>]) -> io::Result<bool> {
    logged(try_send(message, files))
}

/// Logs the first message that is dropped.
fn logged(sent: io::Result<bool>) -> io::Result<bool> {
    match &sent {
        Ok(true) => DROPS_LOGGED.store(false, Relaxed),
        Err(error) if !DROPS_LOGGED.swap(true, Relaxed) => tracing::warn!(
            %error,
            "the service manager takes no messages: they are dropped, and sockets are not kept for a restart"
        ),
        Ok(false) | Err(_) => {}
    }
    sent
}

/// Tries to send a message with files, and never waits. Returns whether there is a service manager that listens to this
/// process. One that takes it has room for what it was not told before, too.
fn try_send(message: &str, files: &[BorrowedFd<'_>]) -> io::Result<bool> {
    let is_heard = send_now(message, files)?;
    if is_heard {
        IS_GIVEN_UP.store(false, Relaxed);
        remove_closed();
    }
    Ok(is_heard)
}

fn send_now(message: &str, files: &[BorrowedFd<'_>]) -> io::Result<bool> {
    let path = std::env::var_os("NOTIFY_SOCKET").filter(|_| IS_MAIN.load(Relaxed));
    let Some(path) = path else { return Ok(false) };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect(path)?;
    // A datagram goes as a whole.
    send_with_files(socket.as_fd(), message.as_bytes(), files)?;
    Ok(true)
}

/// Sends the watchdog's message while every worker makes progress.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// How long the service manager waits for the message.
    timeout: Duration,
    pulses: Vec<WatchedPulse>,
}

/// A pulse, and what it was at the last message.
#[derive(Debug)]
struct WatchedPulse {
    pulse: Arc<AtomicU64>,
    seen: u64,
}

impl Watchdog {
    /// The watchdog, if the service manager asks for one.
    pub(super) fn wanted() -> Option<Self> {
        let timeout = sd_notify::watchdog_enabled().filter(|timeout| !timeout.is_zero())?;
        Some(Self { timeout, pulses: Vec::new() })
    }

    /// The pulse of one more worker.
    pub(super) fn pulse(&mut self) -> Pulse {
        let beats = Arc::<AtomicU64>::default();
        self.pulses.push(WatchedPulse { pulse: Arc::clone(&beats), seen: 0 });
        Pulse { beats, every: self.timeout / BEATS }
    }

    /// Sends the messages. It never ends: the drain is watched, too.
    pub(super) async fn run(mut self) {
        let mut looks = tokio::time::interval(self.timeout / LOOKS);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_held_back = false;
        loop {
            looks.tick().await;
            if self.all_moved() {
                say_at_once(&[NotifyState::Watchdog]);
                is_held_back = false;
            } else if !std::mem::replace(&mut is_held_back, true) {
                tracing::debug!("a worker made no progress since the last look");
            }
        }
    }

    /// Whether every pulse has moved since this was true before.
    fn all_moved(&mut self) -> bool {
        let now: Vec<_> = self.pulses.iter().map(|watched| watched.pulse.load(Relaxed)).collect();
        let moved = |(watched, now): (&WatchedPulse, &u64)| *now == ENDED || *now != watched.seen;
        let all = self.pulses.iter().zip(&now).all(moved);
        if all {
            self.pulses.iter_mut().zip(now).for_each(|(watched, now)| watched.seen = now);
        }
        all
    }
}

/// The sign of life of one worker, for the [`Watchdog`].
#[derive(Clone, Debug)]
pub(super) struct Pulse {
    beats: Arc<AtomicU64>,
    every: Duration,
}

impl Pulse {
    /// Moves the pulse on for as long as the runtime that this runs on makes progress.
    pub(super) async fn keep_up(self) {
        let mut beats = tokio::time::interval(self.every);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beats.tick().await;
            self.beats.fetch_add(1, Relaxed);
        }
    }

    /// The worker has ended as it should, and is not waited for. One that panicked never says this.
    pub(super) fn end(&self) {
        self.beats.store(ENDED, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_in_the_service_by_the_group_that_systemd_has_made() {
        let unit = "0::/system.slice/anteroom.service\n";
        let old_unit = "12:cpu:/\n1:name=systemd:/system.slice/anteroom.service\n0::/\n";
        for (own, other, is_in) in [
            (unit, unit, true),
            (unit, "0::/system.slice/anteroom.service/.control\n", true),
            ("0::/system.slice/anteroom.service/main\n", unit, true),
            (unit, "0::/user.slice/user-1000.slice/session-3.scope\n", false),
            (unit, "0::/system.slice/anteroom.service-2.service\n", false),
            (unit, "0::/\n", false),
            (old_unit, old_unit, true),
            (old_unit, "12:cpu:/\n1:name=systemd:/user.slice\n0::/\n", false),
            // In a container, and in one of which the other is outside.
            ("0::/\n", "0::/\n", true),
            ("0::/\n", "0::/other\n", true),
            ("0::/\n", "0::/../user.slice\n", false),
            ("0::/../a\n", "0::/../a\n", true),
            // Nothing is known.
            ("", unit, true),
            (unit, "4:memory:/a\n", true),
        ] {
            assert_eq!(is_in_service(own, other), is_in, "{own:?} {other:?}");
        }
    }

    fn watchdog() -> Watchdog {
        Watchdog { timeout: Duration::from_secs(8), pulses: Vec::new() }
    }

    fn beat(pulse: &Pulse) {
        pulse.beats.fetch_add(1, Relaxed);
    }

    #[test]
    fn the_message_waits_for_the_slowest_worker() {
        let mut watchdog = watchdog();
        let (one, two) = (watchdog.pulse(), watchdog.pulse());
        assert!(!watchdog.all_moved(), "none has begun");
        beat(&one);
        assert!(!watchdog.all_moved(), "the other hangs");
        beat(&two);
        assert!(watchdog.all_moved());
        assert!(!watchdog.all_moved(), "no progress since then");
        beat(&two);
        assert!(!watchdog.all_moved());
        beat(&one);
        assert!(
            watchdog.all_moved(),
            "each has moved since the message, though not at the same look"
        );
    }

    #[test]
    fn a_worker_that_has_ended_is_not_waited_for() {
        let mut watchdog = watchdog();
        let (ended, busy) = (watchdog.pulse(), watchdog.pulse());
        ended.end();
        assert!(!watchdog.all_moved());
        for _ in 0..2 {
            beat(&busy);
            assert!(watchdog.all_moved());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pulse_moves_between_two_looks() {
        let mut watchdog = watchdog();
        let kept_up = watchdog.pulse().keep_up();
        let looks = async {
            for _ in 0..3 {
                sleep(watchdog.timeout / LOOKS).await;
                assert!(watchdog.all_moved());
            }
        };
        tokio::select! {
            () = kept_up => {}
            () = looks => {}
        }
    }
}
