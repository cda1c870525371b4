//! What the log is told of a server that has a queue because of what it is asked. Pure but for the lines.

use anteroom_policy::origin::Overload;

use super::automatic_limit::AutomaticLimit;
use super::whole;

/// Changes that follow sooner on the last line are told when this is over, in seconds, if they last.
const TOLD_AGAIN_S: f64 = 10.0;
/// A queue that lasts is told of once a day.
const DAY_S: f64 = 24.0 * 3_600.0;

/// What was told last, and when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueReport {
    has_queue: bool,
    told: Option<f64>,
}

/// What is to be told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum QueueChange {
    /// The server has a queue; its limit is this many requests.
    Begins(f64),
    /// It has had one for a day.
    Lasts(f64),
    Ends,
}

impl QueueReport {
    pub(super) fn change(&mut self, limit: &AutomaticLimit, now: f64) -> Option<QueueChange> {
        let (has_queue, since) = (limit.has_queue(), self.told.map(|told| now - told));
        if has_queue == self.has_queue {
            let is_due = has_queue && since.is_some_and(|since| since > DAY_S);
            if is_due {
                self.told = Some(now);
            }
            return is_due.then(|| QueueChange::Lasts(limit.limit()));
        }
        if since.is_some_and(|since| since < TOLD_AGAIN_S) {
            return None;
        }
        *self = Self { has_queue, told: Some(now) };
        Some(if has_queue { QueueChange::Begins(limit.limit()) } else { QueueChange::Ends })
    }
}

impl QueueChange {
    /// Writes the line.
    pub(super) fn log(self, origin: &str, server: &str, overload: Overload) {
        let limit = match self {
            Self::Begins(limit) | Self::Lasts(limit) => whole(limit),
            Self::Ends => 0,
        };
        match (self, overload) {
            (Self::Ends, _) => {
                tracing::info!(origin, server, "a server works off its requests again")
            }
            (Self::Begins(_), Overload::Watch) => tracing::warn!(
                origin,
                server,
                "a server is asked for more than it can do; overload = \"order\" would hold strangers back"
            ),
            (Self::Begins(_), _) => tracing::warn!(
                origin,
                server,
                limit,
                "a server is asked for more than it can do: strangers wait, known visitors do not; \
                 `anteroom top crowd` shows what asks"
            ),
            (Self::Lasts(_), _) => tracing::warn!(
                origin,
                server,
                limit,
                "a server has been asked for more than it can do for a day"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_told_of_once_and_again_after_a_day() {
        let mut limit = AutomaticLimit::new(0.0, true);
        let mut report = QueueReport::default();
        assert_eq!(report.change(&limit, 0.0), None);
        limit.find_queue();
        assert!(matches!(report.change(&limit, 1.0), Some(QueueChange::Begins(_))));
        assert_eq!(report.change(&limit, 2.0), None);
        assert!(matches!(report.change(&limit, 2.0 + DAY_S), Some(QueueChange::Lasts(_))));
        let calm = AutomaticLimit::new(0.0, true);
        assert_eq!(report.change(&calm, 3.0 + DAY_S), None, "it may be back at once");
        assert_eq!(report.change(&calm, 20.0 + DAY_S), Some(QueueChange::Ends));
    }
}
