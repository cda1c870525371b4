//! Control of sessions: their lifetime, their users, and listing them.

use std::fmt;
use std::future::Future;
use std::str::FromStr;

use anteroom_http::ident::{StoredToken, User};

use super::StoreError;

/// The most concurrent sessions that a user may be allowed.
pub const PER_USER_MAX: u32 = 1_000;
/// The most sessions that one step of a walk reads.
pub const WALK_MAX: usize = 1_000;

/// How long sessions last, and the time of the check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionLifetimes {
    /// Unix time in seconds.
    pub now: f64,
    /// A session is over when it was not seen for this many seconds; `None`: no such limit.
    pub idle: Option<f64>,
    /// A session is over this many seconds after its login; `None`: no such limit.
    pub absolute: Option<f64>,
    /// Whether the store may record when it first saw a session with an unknown login time.
    pub notes: bool,
}

impl SessionLifetimes {
    /// No time limits: a session lasts as long as it is stored.
    #[must_use]
    pub fn endless(now: f64) -> Self {
        Self { now, idle: None, absolute: None, notes: false }
    }

    /// Whether there are no time limits.
    #[must_use]
    pub fn are_endless(&self) -> bool {
        self.idle.is_none() && self.absolute.is_none()
    }

    /// When a session that began at `since` ends, even in use.
    #[must_use]
    pub fn ends(&self, since: f64) -> f64 {
        self.absolute.map_or(f64::INFINITY, |absolute| since + absolute)
    }

    /// Whether a session is over. An unknown time does not end it.
    #[must_use]
    pub fn are_over(&self, since: Option<f64>, seen: Option<f64>) -> bool {
        let has_been = |from: Option<f64>, most: Option<f64>| {
            from.zip(most).is_some_and(|(from, most)| self.now - from >= most)
        };
        has_been(seen, self.idle) || has_been(since, self.absolute)
    }
}

/// The user of a live session.
#[derive(Clone, Debug, PartialEq)]
pub struct LogIn {
    /// The user.
    pub user: User,
    /// The Unix time at which the session is over, even in use.
    pub ends: f64,
}

/// A session, as shown to an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Its token.
    pub token: StoredToken,
    /// Its user.
    pub user: User,
    /// The Unix time of its login; for a session that the app wrote, when it was first seen, if
    /// known.
    pub since: Option<f64>,
    /// The Unix time when it was last seen.
    pub seen: Option<f64>,
}

/// A position in the sessions from which a walk continues. Its text contains no token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bookmark {
    /// The store's own position.
    pub(super) at: u64,
    /// How many sessions with this same time come before it.
    pub(super) offset: u64,
}

impl fmt::Display for Bookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.at, self.offset)
    }
}

/// The text is not a bookmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a valid position of a listing")]
pub struct NoBookmark;

impl FromStr for Bookmark {
    type Err = NoBookmark;

    fn from_str(text: &str) -> Result<Self, NoBookmark> {
        let (at, offset) = text.split_once('-').ok_or(NoBookmark)?;
        let read = |digits| u64::from_str_radix(digits, 16).map_err(|_| NoBookmark);
        Ok(Self { at: read(at)?, offset: read(offset)? })
    }
}

/// The position after sessions of which the last `left` share the bits `at`, for a walk that began
/// at `from`.
pub(super) fn behind(from: Option<Bookmark>, times: &[u64]) -> Option<Bookmark> {
    let at = *times.last()?;
    let same = times.iter().rev().take_while(|time| **time == at).count();
    let before = from.filter(|from| from.at == at && same == times.len());
    Some(Bookmark { at, offset: before.map_or(0, |from| from.offset) + same as u64 })
}

/// At most `most` of a user's sessions after `from`; they are ordered by login time.
#[must_use]
pub fn by_log_in(
    mut sessions: Vec<Session>,
    from: Option<Bookmark>,
    most: usize,
) -> WalkStep<Session> {
    let time = |session: &Session| session.since.unwrap_or_default().to_bits();
    if let Some(Bookmark { at, offset }) = from {
        let earlier = sessions.iter().take_while(|session| time(session) < at).count();
        let same = sessions[earlier..].iter().take_while(|session| time(session) == at).count();
        sessions.drain(..earlier + same.min(usize::try_from(offset).unwrap_or(usize::MAX)));
    }
    let is_all = sessions.len() <= most;
    sessions.truncate(most);
    let times: Vec<u64> = sessions.iter().map(time).collect();
    let next = if is_all { None } else { behind(from, &times) };
    WalkStep { met: sessions, next }
}

/// A step of a walk.
#[derive(Clone, Debug, PartialEq)]
pub struct WalkStep<T> {
    /// The entries found.
    pub met: Vec<T>,
    /// Where to continue; `None`: the walk is complete.
    pub next: Option<Bookmark>,
}

/// Listings for operators. No request waits for them.
pub trait SessionListing {
    /// A session's data.
    fn session(
        &self,
        token: &StoredToken,
    ) -> impl Future<Output = Result<Option<Session>, StoreError>>;

    /// A user's sessions by the index, the oldest login first, at most [`WALK_MAX`].
    fn sessions_of(&self, user: &User) -> impl Future<Output = Result<Vec<Session>, StoreError>>;

    /// At most `most` sessions, last seen first. A session that is seen during the call may be
    /// missed.
    fn newest(
        &self,
        from: Option<Bookmark>,
        most: usize,
    ) -> impl Future<Output = Result<WalkStep<Session>, StoreError>>;

    /// One step through all tokens with their users, unordered: about [`WALK_MAX`] of them, and
    /// only those that begin with `prefix`. A session that exists during the whole walk is found at
    /// least once.
    fn walk(
        &self,
        from: Option<Bookmark>,
        prefix: &str,
    ) -> impl Future<Output = Result<WalkStep<(StoredToken, User)>, StoreError>>;

    /// Removes what remains of a user without sessions: index entries of sessions that another
    /// program has ended, carts handed on into the stream `expired:`, and events that wait for a
    /// receiver. Returns the number of these carts.
    fn forget_user(&self, user: &User) -> impl Future<Output = Result<usize, StoreError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_when_it_was_idle_or_has_lasted_for_too_long() {
        let terms = SessionLifetimes {
            idle: Some(10.0),
            absolute: Some(100.0),
            ..SessionLifetimes::endless(1_000.0)
        };
        for (since, seen, over) in [
            (Some(950.0), Some(990.5), false),
            (Some(950.0), Some(990.0), true),
            (Some(900.0), Some(999.0), true),
            (None, Some(999.0), false),
            (Some(950.0), None, false),
            (None, None, false),
        ] {
            assert_eq!(terms.are_over(since, seen), over, "{since:?} {seen:?}");
        }
        assert!(!SessionLifetimes::endless(1e12).are_over(Some(1.0), Some(1.0)));
        assert_eq!(terms.ends(950.0), 1_050.0);
    }

    #[test]
    fn a_bookmark_reads_back() {
        for bookmark in [Bookmark::default(), Bookmark { at: u64::MAX, offset: 7 }] {
            assert_eq!(bookmark.to_string().parse(), Ok(bookmark));
        }
        for none in ["", "-", "1", "1-", "x-1", "1-2-3"] {
            assert_eq!(none.parse::<Bookmark>(), Err(NoBookmark), "{none}");
        }
    }

    #[test]
    fn a_walk_goes_on_behind_those_of_the_same_time() {
        assert_eq!(behind(None, &[]), None);
        assert_eq!(behind(None, &[9, 8, 8]), Some(Bookmark { at: 8, offset: 2 }));
        let from = Some(Bookmark { at: 8, offset: 2 });
        assert_eq!(behind(from, &[8, 8]), Some(Bookmark { at: 8, offset: 4 }));
        assert_eq!(behind(from, &[8, 7]), Some(Bookmark { at: 7, offset: 1 }));
    }
    #[test]
    fn a_user_s_sessions_come_in_pieces_also_those_of_one_time() {
        let session = |number: usize, since: f64| Session {
            token: StoredToken::from_store(format!("session-{number}").as_bytes()).unwrap(),
            user: User::new(b"alice").unwrap(),
            since: Some(since),
            seen: None,
        };
        let times = [1.0, 2.0, 2.0, 2.0, 2.0, 3.0];
        let all: Vec<_> = times.into_iter().enumerate().map(|(n, at)| session(n, at)).collect();
        for most in 1..=7 {
            let (mut met, mut from) = (Vec::new(), None);
            loop {
                let piece = by_log_in(all.clone(), from, most);
                assert!(piece.met.len() <= most);
                met.extend(piece.met);
                from = piece.next;
                if from.is_none() {
                    break;
                }
            }
            assert_eq!(met, all, "{most}");
        }
    }
}
