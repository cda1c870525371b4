//! A round: answers to requests that were sent since the limit changed, and what they show together.

use super::{CALM_PART, CALM_S, SLOW_PART, SLOW_S};

/// The answers of a round, and its length in seconds. Where chance may explain what it shows, it goes on.
const SAMPLES_MIN: usize = 24;
const SAMPLES_MAX: usize = 200;
const FEW_SAMPLES: usize = 8;
const ROUND_MIN_S: f64 = 0.1;
const ROUND_MAX_S: f64 = 5.0;
const EXTENSIONS_MAX: u32 = 2;
/// The part of a queue that is taken away.
const DRAINS: f64 = 0.8;

/// The answers so far.
#[derive(Clone, Debug)]
pub(super) struct Round {
    began: f64,
    waits: Vec<f64>,
    usual: f64,
    time: f64,
    at_server: f64,
    full: f64,
    samples_wanted: usize,
    extensions: u32,
}

/// What a round shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundResult {
    /// The requests at the server, on average.
    pub(super) at_server: f64,
    /// Answers in a second, by Little's law.
    pub(super) rate: f64,
    /// How long kinds of pages take in calm, on average.
    pub(super) usual: f64,
    /// How much longer the median answer took, and the standard error of that.
    pub(super) wait: f64,
    pub(super) error: f64,
}

impl Round {
    pub(super) fn new(now: f64) -> Self {
        Self {
            began: now,
            waits: Vec::new(),
            usual: 0.0,
            time: 0.0,
            at_server: 0.0,
            full: 0.0,
            samples_wanted: SAMPLES_MIN,
            extensions: 0,
        }
    }

    pub(super) fn began(&self) -> f64 {
        self.began
    }

    /// Strangers have waited for so many seconds.
    pub(super) fn note_full(&mut self, seconds: f64) {
        self.full += seconds;
    }

    /// An answer took so long, of a kind that takes so long in calm, with so many requests at the server.
    pub(super) fn note(&mut self, took: f64, usual: f64, at_server: u32) {
        self.usual += usual;
        self.time += took;
        self.at_server += f64::from(at_server);
        self.waits.push(took - usual);
    }

    pub(super) fn is_over(&self, now: f64, limit: f64) -> bool {
        let (samples, elapsed) = (self.waits.len(), now - self.began);
        let wanted = (self.samples_wanted as f64).max(limit.min(SAMPLES_MAX as f64));
        let longest = ROUND_MAX_S * f64::from(1 + self.extensions);
        samples as f64 >= wanted && elapsed >= ROUND_MIN_S
            || elapsed >= longest && samples >= FEW_SAMPLES
    }

    /// Whether the round goes on, because chance may explain what it shows.
    pub(super) fn extend(&mut self) -> bool {
        let may_go_on = self.extensions < EXTENSIONS_MAX;
        if may_go_on {
            self.extensions += 1;
            self.samples_wanted = 2 * self.waits.len();
        }
        may_go_on
    }

    /// Whether strangers waited most of the time.
    pub(super) fn was_full(&self, now: f64) -> bool {
        self.full > 0.5 * (now - self.began)
    }

    /// Whether strangers waited at times.
    pub(super) fn was_full_at_times(&self) -> bool {
        self.full > 0.0
    }

    pub(super) fn result(&mut self) -> RoundResult {
        self.waits.sort_unstable_by(f64::total_cmp);
        let (waits, count) = (&self.waits, self.waits.len());
        let samples = count as f64;
        // Of a normal distribution, the median's error is 1.25 σ/√n, and the quartiles are 1.35 σ apart.
        let quartiles = waits[count * 3 / 4] - waits[count / 4];
        let at_server = self.at_server / samples;
        RoundResult {
            at_server,
            rate: at_server.max(1.0) * samples / self.time.max(1e-6),
            usual: self.usual / samples,
            wait: waits[count / 2],
            error: 0.93 * quartiles / samples.sqrt(),
        }
    }
}

impl RoundResult {
    /// Whether the server has hardly a queue.
    pub(super) fn is_calm(&self) -> bool {
        self.wait <= calm(self.usual)
    }

    /// Whether a visitor that waits so long in all waits for a queue that is worth looking at.
    pub(super) fn is_slow(&self, wait: f64) -> bool {
        wait > slow(self.usual)
    }

    /// How long a visitor waits in all who is the last of so many that wait for the server.
    pub(super) fn wait_in_all(&self, waiting: f64) -> f64 {
        self.wait + waiting / self.rate
    }

    /// The requests at the server if most of its queue was gone.
    pub(super) fn drained(&self) -> f64 {
        self.at_server - DRAINS * self.rate * self.wait
    }

    /// How many times as long as usual answers take.
    pub(super) fn slowdown(&self) -> f64 {
        ((self.usual + self.wait) / self.usual.max(1e-6)).clamp(1.0, 100.0)
    }

    /// The same result where answers that took less time than usual show that the usual time was too long.
    pub(super) fn sped_up(&self) -> Self {
        let usual = (self.usual + self.wait.min(0.0)).max(0.1 * self.usual);
        Self { usual, wait: self.usual + self.wait - usual, ..*self }
    }

    /// The same result for a server that is known by its new times.
    pub(super) fn rebased(&self) -> Self {
        let usual = self.usual * self.slowdown();
        Self { usual, wait: self.usual + self.wait - usual, ..*self }
    }
}

/// How much longer than usual answers take of a server that has hardly a queue.
pub(super) fn calm(usual: f64) -> f64 {
    CALM_S.max(CALM_PART * usual)
}

/// How much longer they take where its queue is worth looking at.
pub(super) fn slow(usual: f64) -> f64 {
    SLOW_S.max(SLOW_PART * usual)
}
