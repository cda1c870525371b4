//! The places at one server: how many requests of each class it works on, and for which there is room. Pure.

use std::time::Duration;

use anteroom_policy::priority::RequestClass;
use tokio::time::Instant;

const CLASSES: usize = RequestClass::ALL.len();
/// The part of all places that is kept for known visitors at the most, and for logins. Of fewer places, none is.
const KNOWN_PART: u32 = 4;
const LOG_IN_PART: u32 = 16;
/// For how long the most places taken at once are remembered, twice.
const PEAK_LASTS: Duration = Duration::from_secs(30);

/// The places at a server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Places {
    taken: [u32; CLASSES],
    known: Peak,
    log_in: Peak,
}

/// The most places that a class took at once in the last minute or so.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    now: u32,
    before: u32,
    since: Option<Instant>,
}

impl Peak {
    fn note(&mut self, taken: u32, now: Instant) {
        if self.since.is_none_or(|since| now.duration_since(since) > PEAK_LASTS) {
            let is_old = self.since.is_none_or(|since| now.duration_since(since) > 2 * PEAK_LASTS);
            (self.before, self.now, self.since) = (if is_old { 0 } else { self.now }, 0, Some(now));
        }
        self.now = self.now.max(taken);
    }

    fn most(&self, now: Instant) -> u32 {
        match self.since.map(|since| now.duration_since(since)) {
            Some(age) if age <= PEAK_LASTS => self.now.max(self.before),
            Some(age) if age <= 2 * PEAK_LASTS => self.now,
            Some(_) | None => 0,
        }
    }
}

/// How many requests a server may work on.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlaceLimits {
    /// For all classes: `max_connections`.
    pub(super) max: Option<u32>,
    /// For strangers, by what the server is found to work on well; and how many requests count towards that now.
    pub(super) automatic: Option<(u32, u32)>,
}

impl Places {
    /// The requests that the server works on.
    pub(super) fn taken(&self) -> u32 {
        self.taken.iter().sum()
    }

    /// The same by class, in the order of [`RequestClass::ALL`].
    pub(super) fn by_class(&self) -> [u32; CLASSES] {
        self.taken
    }

    pub(super) fn take(&mut self, class: RequestClass, now: Instant) {
        self.taken[class as usize] += 1;
        match class {
            RequestClass::Known => self.known.note(self.taken[class as usize], now),
            RequestClass::LogIn => self.log_in.note(self.taken[class as usize], now),
            RequestClass::Seen | RequestClass::New | RequestClass::Background => {}
        }
    }

    pub(super) fn leave(&mut self, class: RequestClass) {
        let taken = &mut self.taken[class as usize];
        *taken = taken.saturating_sub(1);
    }

    /// Whether there is a place for a request of this class.
    pub(super) fn has_room(&self, class: RequestClass, limits: PlaceLimits, now: Instant) -> bool {
        let taken = self.taken();
        if limits.max.is_some_and(|max| taken >= max) {
            return false;
        }
        let known_left = |of| self.left(&self.known, RequestClass::Known, of, KNOWN_PART, now);
        match class {
            RequestClass::Known => true,
            RequestClass::LogIn if self.log_ins_first(limits) => {
                limits.max.is_none_or(|max| taken + known_left(max) < max)
            }
            _ => {
                let log_in_left =
                    |of| self.left(&self.log_in, RequestClass::LogIn, of, LOG_IN_PART, now);
                limits.max.is_none_or(|max| taken + known_left(max) + log_in_left(max) < max)
                    && limits
                        .automatic
                        .is_none_or(|(limit, at_server)| at_server + known_left(limit) < limit)
            }
        }
    }

    /// Whether logins have fewer places than are theirs.
    pub(super) fn log_ins_first(&self, limits: PlaceLimits) -> bool {
        let of = limits.max.or_else(|| limits.automatic.map(|(limit, _)| limit));
        let taken = self.taken[RequestClass::LogIn as usize];
        of.is_some_and(|of| taken < (of / LOG_IN_PART).max(1))
    }

    /// How many places are still kept free for a class: as many as it took at once lately, and one more, but no more than its
    /// part of all.
    fn left(&self, peak: &Peak, class: RequestClass, of: u32, part: u32, now: Instant) -> u32 {
        let most = peak.most(now);
        if most == 0 || of < part {
            return 0;
        }
        (most + 1).min(of / part).saturating_sub(self.taken[class as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn places(taken: &[(RequestClass, u32)], now: Instant) -> Places {
        let mut places = Places::default();
        for (class, count) in taken {
            (0..*count).for_each(|_| places.take(*class, now));
        }
        places
    }

    fn hard(max: u32) -> PlaceLimits {
        PlaceLimits { max: Some(max), automatic: None }
    }

    #[test]
    fn a_place_is_kept_for_known_visitors_who_came_lately() {
        let now = Instant::now();
        let strangers = places(&[(RequestClass::New, 7)], now);
        assert!(strangers.has_room(RequestClass::New, hard(8), now), "no known visitor came");
        let mut both = places(&[(RequestClass::New, 6), (RequestClass::Known, 1)], now);
        assert!(!both.has_room(RequestClass::New, hard(8), now));
        assert!(both.has_room(RequestClass::Known, hard(8), now));
        both.leave(RequestClass::Known);
        assert!(!both.has_room(RequestClass::New, hard(8), now), "two are kept");
        assert!(both.has_room(RequestClass::New, hard(8), now + 61 * SECOND));
        assert!(!both.has_room(RequestClass::Known, hard(6), now), "none is left at all");
    }

    #[test]
    fn of_few_places_none_is_kept() {
        let now = Instant::now();
        let mut places = places(&[(RequestClass::Known, 1), (RequestClass::New, 2)], now);
        places.leave(RequestClass::Known);
        assert!(places.has_room(RequestClass::New, hard(3), now));
        assert!(places.has_room(RequestClass::New, hard(4), now));
        places.take(RequestClass::New, now);
        assert!(!places.has_room(RequestClass::New, hard(4), now), "the fourth is kept");
    }

    #[test]
    fn log_ins_have_a_place_and_take_no_more_than_strangers_beyond_it() {
        let now = Instant::now();
        let one = places(&[(RequestClass::LogIn, 1), (RequestClass::Known, 1)], now);
        let limits = PlaceLimits { max: None, automatic: Some((4, 4)) };
        assert!(places(&[], now).has_room(RequestClass::LogIn, limits, now), "beyond the limit");
        assert!(!one.has_room(RequestClass::LogIn, limits, now), "the second waits");
        assert!(!one.has_room(RequestClass::New, limits, now));
        assert!(one.has_room(RequestClass::Known, limits, now));
    }
}
