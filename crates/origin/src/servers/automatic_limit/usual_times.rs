//! How long each kind of page takes in calm. The number of kinds is bounded.

use ahash::HashMap;
use std::cmp::Reverse;

/// The weight of an answer in the time of its kind.
const GAIN: f64 = 1.0 / 16.0;
/// The most kinds whose times are known; others share a few.
const KINDS_MAX: usize = 1_024;
const SHARED_KINDS: u64 = 64;
/// How often kinds with fewer answers than these go, in seconds.
const SWEPT_EVERY_S: f64 = 60.0;
const RARE: u32 = 4;
/// While nothing is proven, the average of so many answers is the time of a kind: a single one tells little of pages that
/// differ.
const FIRST_ANSWERS: u32 = 16;
/// So many answers in a row that took half as long as usual show that the usual time is none of calm.
const LOW_RUN: u32 = 4;

/// Whether a server was calm while it worked on an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calm {
    Yes,
    /// Nothing is proven of the server, and nothing is tried.
    Unproven,
    No,
}

/// The times of kinds of pages.
#[derive(Clone, Debug)]
pub(super) struct UsualTimes {
    kinds: HashMap<u64, UsualTime>,
    swept: f64,
}

#[derive(Clone, Copy, Debug)]
struct UsualTime {
    seconds: f64,
    answers: u32,
    /// Answers in a row that took less than half of it.
    low_run: u32,
}

impl UsualTimes {
    pub(super) fn new(now: f64) -> Self {
        Self { kinds: HashMap::default(), swept: now }
    }

    /// The same, on another clock.
    pub(super) fn taken_over(&self, now: f64) -> Self {
        Self { swept: now, ..self.clone() }
    }

    /// The key under which the time of a kind is kept.
    pub(super) fn key(&self, kind: u64) -> u64 {
        let has_room = self.kinds.len() < KINDS_MAX || self.kinds.contains_key(&kind);
        if has_room { kind } else { kind % SHARED_KINDS }
    }

    /// How long the kind takes, in seconds, if that is known.
    pub(super) fn of(&self, key: u64) -> Option<f64> {
        self.kinds.get(&key).map(|known| known.seconds)
    }

    /// Learns from an answer that took so long, and returns how long the kind takes.
    pub(super) fn learn(&mut self, now: f64, key: u64, took: f64, calm: Calm) -> f64 {
        let Some(known) = self.kinds.get_mut(&key) else {
            self.make_room(now);
            self.kinds.insert(key, UsualTime { seconds: took, answers: 1, low_run: 0 });
            return took;
        };
        known.low_run =
            if took < known.seconds / 2.0 { known.low_run.saturating_add(1) } else { 0 };
        let is_first = calm == Calm::Unproven && known.answers < FIRST_ANSWERS;
        if calm == Calm::Yes || is_first || known.low_run >= LOW_RUN {
            known.answers = known.answers.saturating_add(1);
            let gain = GAIN.max(1.0 / f64::from(known.answers));
            known.seconds += (took.min(4.0 * known.seconds) - known.seconds) * gain;
        }
        known.seconds
    }

    /// The kinds with the most answers, at most so many, with their times in seconds and in the order of their keys.
    pub(super) fn most_answered(&self, max: usize) -> Vec<(u64, f32)> {
        let mut kinds: Vec<_> = self.kinds.iter().collect();
        kinds.sort_unstable_by_key(|(key, known)| (Reverse(known.answers), **key));
        kinds.truncate(max);
        kinds.sort_unstable_by_key(|(key, _)| **key);
        kinds.into_iter().map(|(key, known)| (*key, known.seconds as f32)).collect()
    }

    /// Takes over times of kinds that are unknown here. Each counts as a few answers: enough to stay when kinds make room,
    /// and so few that the answers of today soon outweigh it.
    pub(super) fn recall(&mut self, kinds: &[(u64, f32)]) {
        for (key, seconds) in kinds {
            if self.kinds.len() >= KINDS_MAX {
                return;
            }
            let recalled = UsualTime { seconds: f64::from(*seconds), answers: RARE, low_run: 0 };
            self.kinds.entry(*key).or_insert(recalled);
        }
    }

    /// The server is so many times as slow as it was. Work stays work: its time is not raised over `work_max`, in seconds.
    pub(super) fn scale(&mut self, times: f64, work_max: f64) {
        for known in self.kinds.values_mut().filter(|known| known.seconds <= work_max) {
            known.seconds = (known.seconds * times).min(work_max);
        }
    }

    /// Where there is no place left, kinds go that were hardly asked for.
    fn make_room(&mut self, now: f64) {
        if self.kinds.len() >= KINDS_MAX && now >= self.swept + SWEPT_EVERY_S {
            self.swept = now;
            self.kinds.retain(|_, known| known.answers >= RARE);
            // What is not asked for any more goes in time.
            self.kinds.values_mut().for_each(|known| known.answers /= 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_of_a_bounded_number_of_kinds() {
        let mut times = UsualTimes::new(0.0);
        for kind in 0..10_000 {
            let key = times.key(kind);
            times.learn(0.1, key, 0.1, Calm::Yes);
        }
        assert!(times.kinds.len() <= KINDS_MAX + SHARED_KINDS as usize);
    }

    #[test]
    fn the_kinds_with_most_answers_are_kept_in_the_order_of_their_keys() {
        let mut times = UsualTimes::new(0.0);
        for (kind, answers) in [(9, 3), (5, 1), (2, 7)] {
            for _ in 0..answers {
                times.learn(0.0, kind, 0.25, Calm::Yes);
            }
        }
        assert_eq!(times.most_answered(2), [(2, 0.25), (9, 0.25)]);
    }

    #[test]
    fn what_was_learned_here_goes_before_what_is_recalled() {
        let mut times = UsualTimes::new(0.0);
        times.learn(0.0, 1, 0.25, Calm::Yes);
        times.recall(&[(1, 2.0), (2, 30.0)]);
        assert_eq!(times.most_answered(9), [(1, 0.25), (2, 30.0)]);
        let many: Vec<_> = (0..5_000).map(|kind| (kind, 1.0)).collect();
        times.recall(&many);
        assert_eq!(times.kinds.len(), KINDS_MAX);
    }

    #[test]
    fn what_took_long_under_load_is_not_learned() {
        let mut times = UsualTimes::new(0.0);
        times.learn(0.0, 1, 0.2, Calm::Yes);
        assert!((times.learn(1.0, 1, 3.0, Calm::No) - 0.2).abs() < 1e-9);
        for _ in 1..LOW_RUN {
            assert!((times.learn(2.0, 1, 0.05, Calm::No) - 0.2).abs() < 1e-9);
        }
        let usual = times.learn(2.0, 1, 0.05, Calm::No);
        assert!(usual < 0.2, "so many are less than calm was thought to be");
    }

    #[test]
    fn the_first_answers_have_an_average_while_nothing_is_proven() {
        let mut times = UsualTimes::new(0.0);
        for took in [0.1, 2.0, 0.3, 1.0, 0.6] {
            times.learn(0.0, 1, took, Calm::Unproven);
        }
        let usual = times.of(1).unwrap_or_default();
        assert!((0.3..1.0).contains(&usual), "{usual}");
    }
}
