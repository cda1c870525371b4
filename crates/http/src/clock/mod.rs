//! The time. Only this module reads the clocks; below the edge, time is an argument.
//!
//! The time of this process runs by the monotonic clock. Where it begins, and which steps of other clocks it follows, is
//! decided in `steering`: by the clock of a store that proxies share, else by that of the system. So a clock that is
//! set wrong, or steps, changes the age of no page, and ends no session.

mod steering;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::system::sysinfo;

pub use self::steering::FAR;
use self::steering::{Reference, Steering, TimeVerdict};

/// 2026-01-01: an earlier clock has not been set yet, as on a machine without a battery that has reached no time server.
const UNSET_BEFORE: f64 = 1_767_225_600.0;

/// When this process first asked for the time, by the monotonic clock: from here on it counts.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
/// The bits of the Unix time at that moment; 0 until it is known.
static ZERO: AtomicU64 = AtomicU64::new(0);
/// How far this process is ahead of its time, in milliseconds: 0 but in tests.
static AHEAD: AtomicU64 = AtomicU64::new(0);
/// The bits of the seconds by which the system's clock is ahead of this process's time.
static DIFFERENCE: AtomicU64 = AtomicU64::new(0);
/// Whether it is certain what time it is.
static IS_CERTAIN: AtomicBool = AtomicBool::new(false);
/// How often the time of this process was set back.
static SET_BACKS: AtomicU64 = AtomicU64::new(0);
/// What has been heard of other clocks.
static HEARING: Mutex<Hearing> = Mutex::new(Hearing::new());

/// Unix time in seconds.
#[must_use]
pub fn unix_now() -> f64 {
    let ahead = Duration::from_millis(AHEAD.load(Ordering::Relaxed));
    since_zero() + zero() + ahead.as_secs_f64()
}

/// The Unix time of the system's clock, in seconds. A clock before 1970 reads as 0.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "the one place that asks")]
pub fn system_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Whether sessions and carts may be ended by their age: it is known what time it is, no clock has just stepped, and
/// that of the system does not differ.
#[must_use]
pub fn may_expire() -> bool {
    IS_CERTAIN.load(Ordering::Relaxed) && difference().abs() <= FAR
}

/// By how many seconds the system's clock is ahead of the time of this process, when they were last compared.
#[must_use]
pub fn difference() -> f64 {
    f64::from_bits(DIFFERENCE.load(Ordering::Relaxed))
}

/// How often the time of this process was set back: what was noted by the time before seems to be of the future.
#[must_use]
pub fn set_backs() -> u64 {
    SET_BACKS.load(Ordering::Relaxed)
}

/// When a question for the time was asked.
#[derive(Clone, Copy, Debug)]
pub struct Question(f64);

/// Notes that the time is asked for now.
#[must_use]
pub fn ask() -> Question {
    Question(since_zero())
}

/// Hears the answer to a question for the time: that of the store in Unix seconds, or `None` where the store has no clock
/// of its own. Logs a clock that differs, and a step, once.
pub fn hear(asked: Question, store: Option<f64>) {
    let now = since_zero();
    let mut hearing = HEARING.lock().unwrap_or_else(PoisonError::into_inner);
    hearing.wake();
    let system = system_now();
    let (reference, at, told) = match store {
        Some(told) => (Reference::Store, f64::midpoint(asked.0, now), told),
        None => (Reference::System, now, system),
    };
    let own = at + zero();
    if own < UNSET_BEFORE {
        hearing.steering = Steering::new();
    }
    let ahead = told - own;
    let heard = hearing.steering.hear(reference, ahead, now - asked.0, now);
    if matches!(heard, TimeVerdict::Follows | TimeVerdict::Confirmed) {
        ZERO.store((zero() + ahead).to_bits(), Ordering::Relaxed);
        SET_BACKS.fetch_add(u64::from(ahead < 0.0), Ordering::Relaxed);
    }
    let difference = system - (now + zero());
    DIFFERENCE.store(difference.to_bits(), Ordering::Relaxed);
    IS_CERTAIN.store(!hearing.steering.is_in_doubt(), Ordering::Relaxed);
    tell(reference, heard, ahead);
    hearing.tell_difference(reference, difference);
}

/// Accepts a step that a clock has made, for an operator: the next answer counts.
pub fn accept_step() {
    HEARING.lock().unwrap_or_else(PoisonError::into_inner).steering.accept();
}

/// Sets this process's clock forward. For tests that run a proxy in their own process: hours cost
/// them nothing.
pub fn advance(by: Duration) {
    let millis = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
    AHEAD.fetch_add(millis, Ordering::Relaxed);
}

/// What has been heard of other clocks.
#[derive(Debug)]
struct Hearing {
    steering: Steering,
    /// How long the machine has been up with its sleeps, less what this process counted, in seconds.
    slept: Option<f64>,
    /// Whether the log has reported that the clocks differ.
    is_told: bool,
}

impl Hearing {
    const fn new() -> Self {
        Self { steering: Steering::new(), slept: None, is_told: false }
    }

    /// The monotonic clock stands still while the machine sleeps: the time does not.
    fn wake(&mut self) {
        let slept = sysinfo().uptime as f64 - since_zero();
        if let Some(before) = self.slept.replace(slept) {
            let lost = slept - before;
            // The system tells whole seconds.
            if lost > 2.0 * steering::CLOSE {
                ZERO.store((zero() + lost).to_bits(), Ordering::Relaxed);
            }
        }
    }

    /// A step is told where it is heard, also that of a machine on which the store runs as well.
    fn tell_difference(&mut self, reference: Reference, difference: f64) {
        if self.steering.is_in_doubt() {
            return;
        }
        let differs = reference == Reference::Store && difference.abs() > FAR;
        if differs == std::mem::replace(&mut self.is_told, differs) {
            return;
        }
        if differs {
            tracing::warn!(
                "the clock of this machine is {difference:+.0} s from that of the store, whose time counts: this proxy \
                 ends no session by its age until they agree. Set the clock that is wrong"
            );
        } else {
            tracing::info!("the clocks of this machine and of the store agree");
        }
    }
}

fn tell(reference: Reference, heard: TimeVerdict, ahead: f64) {
    let whose = match reference {
        Reference::System => "this machine",
        Reference::Store => "the store",
    };
    match heard {
        TimeVerdict::Stepped => tracing::warn!(
            "the clock of {whose} stepped by {ahead:+.0} s: this proxy counts on as before, and ends no session by its \
             age. If the clock keeps its new time for {} minutes, or at a reload, the new time counts",
            steering::CONFIRMED_AFTER / 60.0
        ),
        TimeVerdict::Returned => tracing::info!("the clock of {whose} has stepped back"),
        TimeVerdict::Confirmed => {
            tracing::warn!(
                "the clock of {whose} kept its step of {ahead:+.0} s: the new time counts"
            );
        }
        TimeVerdict::Agrees | TimeVerdict::Follows | TimeVerdict::Waits => {}
    }
}

/// The Unix time when this process began to count. At first the system's clock says it.
fn zero() -> f64 {
    match ZERO.load(Ordering::Relaxed) {
        0 => begin(),
        bits => f64::from_bits(bits),
    }
}

#[cold]
fn begin() -> f64 {
    let begun = (system_now() - since_zero()).to_bits();
    match ZERO.compare_exchange(0, begun, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => f64::from_bits(begun),
        Err(other) => f64::from_bits(other),
    }
}

/// Seconds since this process began to count.
fn since_zero() -> f64 {
    BEGUN.elapsed().as_secs_f64()
}
