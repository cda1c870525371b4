//! How many places known users take, so that one of them does not keep all others from the servers.

use std::time::Duration;

use ahash::HashMap;
use anteroom_policy::priority::{Priority, RequestClass};
use tokio::time::Instant;

/// A page and what a browser asks for with it are answered within this time. A user whose requests go on for longer without
/// a break takes more than pages.
const BURST: Duration = Duration::from_secs(2);

/// How many places one user may take before others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UserQuota {
    pub(super) burst: u32,
    /// The same for a user whose requests have gone on for longer than a burst.
    pub(super) lasting: u32,
}

/// The places of known users, by their flows; a user without one has no entry.
#[derive(Debug, Default)]
pub(super) struct UserPlaces(HashMap<u64, TakenPlaces>);

/// The requests of a user that are at the servers or wait, and when the first of them came.
#[derive(Clone, Copy, Debug)]
struct TakenPlaces {
    count: u32,
    since: Instant,
}

impl UserPlaces {
    /// One more request is at the servers or waits, if it ranks as a user's.
    pub(super) fn take(&mut self, priority: &Priority, now: Instant) {
        if priority.class == RequestClass::Known {
            let first = TakenPlaces { count: 0, since: now };
            self.0.entry(priority.flow).or_insert(first).count += 1;
        }
    }

    /// One less is.
    pub(super) fn leave(&mut self, priority: &Priority) {
        if priority.class != RequestClass::Known {
            return;
        }
        if let Some(taken) = self.0.get_mut(&priority.flow) {
            taken.count = taken.count.saturating_sub(1);
            if taken.count == 0 {
                self.0.remove(&priority.flow);
            }
        }
    }

    /// Whether the user of this request has as many places as one user may.
    pub(super) fn is_full_of(
        &self,
        priority: &Priority,
        now: Instant,
        quota: impl FnOnce() -> UserQuota,
    ) -> bool {
        if priority.class != RequestClass::Known {
            return false;
        }
        let Some(taken) = self.0.get(&priority.flow) else { return false };
        let UserQuota { burst, lasting } = quota();
        let lasts = now.saturating_duration_since(taken.since) > BURST;
        taken.count >= if lasts { lasting } else { burst }
    }

    #[cfg(test)]
    pub(super) fn of(&self, flow: u64) -> u32 {
        self.0.get(&flow).map_or(0, |taken| taken.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Priority = Priority { class: RequestClass::Known, ..Priority::BACKGROUND };

    fn quota() -> UserQuota {
        UserQuota { burst: 3, lasting: 2 }
    }

    #[test]
    fn a_user_whose_requests_go_on_has_fewer_places_until_there_is_a_break() {
        let (mut users, begin) = (UserPlaces::default(), Instant::now());
        let is_full =
            |users: &UserPlaces, after: Duration| users.is_full_of(&KNOWN, begin + after, quota);
        users.take(&KNOWN, begin);
        users.take(&KNOWN, begin);
        assert!(!is_full(&users, BURST), "there is room for one more");
        assert!(is_full(&users, 2 * BURST), "they have gone on for long");
        users.leave(&KNOWN);
        assert!(!is_full(&users, 2 * BURST));
        users.leave(&KNOWN);
        users.take(&KNOWN, begin + 3 * BURST);
        users.take(&KNOWN, begin + 3 * BURST);
        assert!(!is_full(&users, 4 * BURST), "there was a break");
        users.take(&KNOWN, begin + 4 * BURST);
        assert!(is_full(&users, 4 * BURST));
    }

    #[test]
    fn only_users_take_places_and_one_without_any_has_no_entry() {
        let (mut users, now) = (UserPlaces::default(), Instant::now());
        users.take(&Priority::BACKGROUND, now);
        assert!(users.0.is_empty());
        users.take(&KNOWN, now);
        assert_eq!(users.of(KNOWN.flow), 1);
        users.leave(&KNOWN);
        users.leave(&KNOWN);
        assert!(users.0.is_empty());
    }
}
