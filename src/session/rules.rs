//! What holds for all sessions.

use std::time::Duration;

use crate::store::Farewell;

/// What holds for all sessions, until a reload.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rules {
    /// How long a session may go unseen.
    pub idle: Option<Duration>,
    /// How long a session may last, however busy it is.
    pub absolute: Option<Duration>,
    /// How many sessions a user may have; 0: any number.
    pub most: u32,
    /// Whether an app that keeps its own sessions is asked who a visitor is: it may go on to believe in one
    /// that was ended here, so that its token is barred.
    pub bars: bool,
    /// What becomes of the cart of a session that its visitor has not ended himself, and that does not wait for
    /// the cleaner; `None`: it goes.
    pub farewell: Option<Farewell>,
}

impl Rules {
    /// How long it takes at most until a session that nobody uses any more is over; `None`: for ever.
    /// A session was seen when it began, so that it has lasted for too long when it was not seen for as
    /// long.
    #[must_use]
    pub fn longest(&self) -> Option<Duration> {
        self.idle.into_iter().chain(self.absolute).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_nobody_uses_goes_after_the_shorter_time() {
        let rules = |idle, absolute| Rules { idle, absolute, ..Rules::default() };
        assert_eq!(rules(None, None).longest(), None);
        assert_eq!(rules(Some(SECOND), None).longest(), Some(SECOND));
        assert_eq!(rules(None, Some(SECOND)).longest(), Some(SECOND));
        assert_eq!(rules(Some(SECOND * 2), Some(SECOND)).longest(), Some(SECOND));
    }
}
