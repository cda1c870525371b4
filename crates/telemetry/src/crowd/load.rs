//! What was taken of the origins lately. Figures are halved each minute, by arithmetic, without a timer.

use std::time::{Duration, Instant};

use anteroom_policy::priority::RequestClass;

/// After so many seconds, half of a figure is left.
const HALF_LIFE: f64 = 60.0;
/// A request that took no time at all weighs so much, in seconds.
const LEAST_WEIGHT: f64 = 1e-6;

/// How many classes of requests there are.
pub(crate) const CLASSES: usize = RequestClass::ALL.len();

/// What was taken of the origins lately.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Seconds until the answers came.
    pub seconds: f64,
    /// Requests.
    pub requests: f64,
    /// Those for a URL that was not asked for before.
    pub new_urls: f64,
    /// Requests by class, in the order of [`RequestClass::ALL`].
    pub by_class: [f64; CLASSES],
}

impl Load {
    /// That of one request.
    #[must_use]
    pub fn of_request(class: RequestClass, took: Duration, is_new: bool) -> Self {
        let mut by_class = [0.0; CLASSES];
        by_class[class as usize] = 1.0;
        let new_urls = if is_new { 1.0 } else { 0.0 };
        Self { seconds: took.as_secs_f64(), requests: 1.0, new_urls, by_class }
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.requests += other.requests;
        self.new_urls += other.new_urls;
        for (own, other) in self.by_class.iter_mut().zip(other.by_class) {
            *own += other;
        }
    }

    /// How many seconds of the origins are taken in a second: what is left of a steady load is `HALF_LIFE / ln 2` times
    /// what comes in a second.
    #[must_use]
    pub fn seconds_per_second(&self) -> f64 {
        self.seconds * std::f64::consts::LN_2 / HALF_LIFE
    }

    pub(super) fn scaled(&self, by: f64) -> Self {
        Self {
            seconds: self.seconds * by,
            requests: self.requests * by,
            new_urls: self.new_urls * by,
            by_class: self.by_class.map(|count| count * by),
        }
    }
}

/// A load, and when it was worked out.
#[derive(Clone, Copy, Debug)]
pub(super) struct FadingLoad {
    load: Load,
    at: Instant,
}

impl FadingLoad {
    pub(super) fn new(load: &Load, now: Instant) -> Self {
        Self { load: *load, at: now }
    }

    pub(super) fn add(&mut self, load: &Load, now: Instant) {
        self.load = self.now(now);
        self.load.add(load);
        self.at = self.at.max(now);
    }

    /// What is left of it.
    pub(super) fn now(&self, now: Instant) -> Load {
        self.load.scaled(self.part_left(now))
    }

    /// What is left of its time.
    pub(super) fn weight(&self, now: Instant) -> f64 {
        (self.load.seconds + LEAST_WEIGHT * self.load.requests) * self.part_left(now)
    }

    fn part_left(&self, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.at);
        (-passed.as_secs_f64() / HALF_LIFE).exp2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_load_is_left_after_a_minute() {
        let begin = Instant::now();
        let one = Load::of_request(RequestClass::New, Duration::from_secs(8), true);
        let mut load = FadingLoad::new(&one, begin);
        let later = begin + Duration::from_secs(60);
        assert!((load.now(later).seconds - 4.0).abs() < 1e-9);
        assert!((load.now(later).by_class[RequestClass::New as usize] - 0.5).abs() < 1e-9);
        load.add(&one, later);
        assert!((load.now(later).seconds - 12.0).abs() < 1e-9);
        assert!(
            (load.now(begin).seconds - 12.0).abs() < 1e-9,
            "an earlier time takes nothing back"
        );
        assert!(load.weight(later + Duration::from_secs(3_600)) < 1e-15);
    }

    #[test]
    fn a_steady_load_is_told_as_seconds_per_second() {
        let begin = Instant::now();
        let half = Load::of_request(RequestClass::Seen, Duration::from_millis(500), false);
        let mut load = FadingLoad::new(&half, begin);
        for second in 1..=1_200 {
            load.add(&half, begin + Duration::from_secs(second));
        }
        let rate = load.now(begin + Duration::from_secs(1_200)).seconds_per_second();
        assert!((rate - 0.5).abs() < 0.01, "{rate}");
    }
}
