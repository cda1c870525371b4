//! Which clock is believed, and when a step of it is followed.

/// Seconds within which clocks agree: what a leap second and a network's delay come to.
pub(super) const CLOSE: f64 = 1.0;
/// Seconds from which two clocks differ by a mistake: up to here, a step is one of time keeping, and is followed.
pub const FAR: f64 = 30.0;
/// Seconds after which a step is believed.
pub(super) const CONFIRMED_AFTER: f64 = 300.0;

/// Whose clock is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    /// The system's.
    System,
    /// That of the store, which all proxies on it share.
    Store,
}

/// What is to be done about a time that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeVerdict {
    /// Nothing: it is the time.
    Agrees,
    /// The time is set by it.
    Follows,
    /// Nothing yet: the clock has just stepped.
    Stepped,
    /// Nothing yet: the step is not confirmed.
    Waits,
    /// The time is set by it: the step is confirmed.
    Confirmed,
    /// Nothing: the step has been taken back.
    Returned,
}

/// A step that is not confirmed.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// By how many seconds the clock is ahead since then.
    ahead: f64,
    /// When it was seen, by the monotonic clock.
    since: f64,
}

/// What is known of the clock that is believed.
#[derive(Debug)]
pub(super) struct Steering {
    reference: Option<Reference>,
    step: Option<Step>,
}

impl Steering {
    pub(super) const fn new() -> Self {
        Self { reference: None, step: None }
    }

    /// Whether no clock has been heard, or the one that is believed has stepped.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.reference.is_none() || self.step.is_some()
    }

    /// Hears a clock that is `ahead` by so many seconds, give or take `error`, at a time of the monotonic clock.
    ///
    /// The first answer counts as it is, and the first of a store: this process may have begun by a wrong clock.
    pub(super) fn hear(
        &mut self,
        reference: Reference,
        ahead: f64,
        error: f64,
        at: f64,
    ) -> TimeVerdict {
        let before = self.reference.replace(reference);
        if ahead.abs() <= CLOSE + error {
            return if self.step.take().is_some() {
                TimeVerdict::Returned
            } else {
                TimeVerdict::Agrees
            };
        }
        let is_new = match reference {
            Reference::System => before.is_none(),
            Reference::Store => before != Some(Reference::Store),
        };
        if is_new || ahead.abs() <= FAR {
            self.step = None;
            return TimeVerdict::Follows;
        }
        match self.step.filter(|step| (step.ahead - ahead).abs() <= FAR) {
            None => {
                self.step = Some(Step { ahead, since: at });
                TimeVerdict::Stepped
            }
            Some(step) if at - step.since < CONFIRMED_AFTER => TimeVerdict::Waits,
            Some(_) => {
                self.step = None;
                TimeVerdict::Confirmed
            }
        }
    }

    /// Confirms a step.
    pub(super) fn accept(&mut self) {
        if let Some(step) = &mut self.step {
            step.since = f64::NEG_INFINITY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Reference::{Store, System};
    use super::*;

    const DAY: f64 = 86_400.0;

    #[test]
    fn a_step_of_the_systems_clock_counts_when_it_has_held() {
        let mut steering = Steering::new();
        assert!(steering.is_in_doubt());
        assert_eq!(steering.hear(System, 0.0, 0.0, 1.0), TimeVerdict::Agrees);
        assert!(!steering.is_in_doubt());
        assert_eq!(steering.hear(System, DAY, 0.0, 6.0), TimeVerdict::Stepped);
        assert!(steering.is_in_doubt());
        assert_eq!(steering.hear(System, DAY + 2.0, 0.0, 300.0), TimeVerdict::Waits);
        assert_eq!(steering.hear(System, DAY, 0.0, 306.0), TimeVerdict::Confirmed);
        assert!(!steering.is_in_doubt());
    }

    #[test]
    fn another_step_is_confirmed_by_its_own_time() {
        let mut steering = Steering::new();
        assert_eq!(steering.hear(System, 0.0, 0.0, 0.0), TimeVerdict::Agrees);
        assert_eq!(steering.hear(System, -DAY, 0.0, 1.0), TimeVerdict::Stepped);
        assert_eq!(steering.hear(System, DAY, 0.0, 200.0), TimeVerdict::Stepped);
        assert_eq!(steering.hear(System, DAY, 0.0, 301.0), TimeVerdict::Waits);
        assert_eq!(steering.hear(System, 0.5, 0.0, 400.0), TimeVerdict::Returned);
        assert_eq!(steering.hear(System, 0.5, 0.0, 405.0), TimeVerdict::Agrees);
    }

    #[test]
    fn an_operator_confirms_a_step() {
        let mut steering = Steering::new();
        assert_eq!(steering.hear(System, 0.0, 0.0, 0.0), TimeVerdict::Agrees);
        steering.accept();
        assert_eq!(steering.hear(System, DAY, 0.0, 1.0), TimeVerdict::Stepped);
        steering.accept();
        assert_eq!(steering.hear(System, DAY, 0.0, 2.0), TimeVerdict::Confirmed);
    }

    #[test]
    fn a_small_step_is_followed() {
        let mut steering = Steering::new();
        assert_eq!(steering.hear(System, -1.0, 0.0, 1.0), TimeVerdict::Agrees);
        assert_eq!(steering.hear(System, -2.0, 0.0, 1.0), TimeVerdict::Follows);
        assert_eq!(steering.hear(System, FAR, 0.0, 1.0), TimeVerdict::Follows);
        // An answer that took long says little.
        assert_eq!(steering.hear(System, 2.0, 1.5, 1.0), TimeVerdict::Agrees);
    }

    #[test]
    fn the_first_answers_count_and_a_later_step_must_hold() {
        let mut steering = Steering::new();
        assert_eq!(steering.hear(System, DAY, 0.0, 1.0), TimeVerdict::Follows);
        assert_eq!(steering.hear(Store, -DAY, 0.0, 2.0), TimeVerdict::Follows);
        assert!(!steering.is_in_doubt());
        assert_eq!(steering.hear(Store, DAY, 0.0, 3.0), TimeVerdict::Stepped);
        assert_eq!(steering.hear(Store, DAY, 0.0, 303.0), TimeVerdict::Confirmed);
    }
}
