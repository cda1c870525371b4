//! The rules for all sessions.

use std::time::Duration;

use anteroom_store::ExpiryAction;

/// The rules for all sessions, until a reload.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rules {
    /// How long a session may be idle.
    pub idle: Option<Duration>,
    /// How long a session may last, even in use.
    pub absolute: Option<Duration>,
    /// The most sessions of a user; 0: no limit.
    pub most: u32,
    /// Whether an app with sessions of its own verifies visitors: it may still accept a session
    /// that was ended here, so its token is revoked.
    pub marks_revoked: bool,
    /// What happens to the cart of a session that neither its visitor nor the cleaner ends; `None`:
    /// it is removed.
    pub expiry_action: Option<ExpiryAction>,
}

impl Rules {
    /// The longest time until an unused session is over; `None`: for ever. A session was seen when
    /// it began, so its absolute limit is reached when it was not seen for as long.
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
    fn an_unused_session_ends_after_the_shorter_time() {
        let rules = |idle, absolute| Rules { idle, absolute, ..Rules::default() };
        assert_eq!(rules(None, None).longest(), None);
        assert_eq!(rules(Some(SECOND), None).longest(), Some(SECOND));
        assert_eq!(rules(None, Some(SECOND)).longest(), Some(SECOND));
        assert_eq!(rules(Some(SECOND * 2), Some(SECOND)).longest(), Some(SECOND));
    }
}
