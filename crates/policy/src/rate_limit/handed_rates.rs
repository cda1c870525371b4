//! What clients have used of their rates, as lines for a successor: first by which hash a session is known, then the
//! limits, then for each address and session the milliseconds until it has a whole burst again.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::iter::once;
use std::sync::Arc;
use std::time::Duration;

use super::token_hasher::TokenHasher;
use super::{Limit, RateKey, RateLimitCounters, RequestLimits};

/// The most addresses and sessions that are told of.
const CELLS_MAX: usize = 50_000;
/// The most limits of another process.
const LIMITS_MAX: usize = 10_000;
/// In a millisecond.
const NANOSECONDS: u64 = 1_000_000;
/// What a line begins with that tells of no address or session.
const TOKENS: &str = "tokens";
const LIMIT: &str = "limit";
/// What a session begins with, unlike any address.
const SESSION: char = 's';

/// What one address or session has used of one limit. What is ahead furthest is the greatest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    /// In milliseconds.
    ahead: u64,
    /// The limit's place in the list.
    place: usize,
    key: RateKey,
}

impl Cell {
    fn line(&self) -> String {
        let Self { ahead, place, key } = self;
        match key {
            RateKey::Address(address) => format!("{place} {ahead} {address}"),
            RateKey::Session(hash) => format!("{place} {ahead} {SESSION}{hash:032x}"),
        }
    }
}

/// The lines for all `limits`, which have these counters. If they have counted more than there is room for, those stay
/// that would be refused for longest: others are soon as good as new.
pub fn hand_out<'l>(
    counters: &RateLimitCounters,
    limits: impl IntoIterator<Item = &'l RequestLimits>,
) -> impl Iterator<Item = String> {
    let labelled = labelled(limits);
    let cells = cells(counters, &labelled, CELLS_MAX);
    let labels = labelled.into_iter().map(|(label, _)| format!("{LIMIT} {label}"));
    once(format!("{TOKENS} {}", counters.tokens().digits()))
        .chain(labels)
        .chain(cells.into_iter().map(|cell| cell.line()))
}

/// Each limit with what it is called in both processes: its name, and what it counts. Those that have the same name are
/// told apart by their order.
fn labelled<'l>(
    limits: impl IntoIterator<Item = &'l RequestLimits>,
) -> Vec<(String, &'l Arc<Limit>)> {
    let (mut alike, mut labelled) = (HashMap::<String, usize>::new(), Vec::new());
    for limits in limits {
        for (kind, limit) in [("address", &limits.address), ("session", &limits.session)] {
            let Some(limit) = limit else { continue };
            let name = format!("{kind} {}", limit.name.escape_debug());
            let number = alike.entry(name.clone()).or_default();
            *number += 1;
            labelled.push((format!("{number} {name}"), limit));
        }
    }
    labelled
}

/// What is ahead, at most so many, the furthest first.
fn cells(counters: &RateLimitCounters, limits: &[(String, &Arc<Limit>)], max: usize) -> Vec<Cell> {
    let moments = limits.iter().enumerate();
    let moments = moments.map(|(place, (_, limit))| (limit.number, (place, limit.elapsed())));
    let moments: HashMap<u32, (usize, u64)> = moments.collect();
    let mut furthest = BinaryHeap::new();
    counters.each(|number, key, at| {
        let Some(&(place, now)) = moments.get(&number) else { return };
        let ahead = at.saturating_sub(now).div_ceil(NANOSECONDS);
        let cell = Cell { ahead, place, key };
        if ahead == 0 {
            return;
        }
        // Requests wait for this: a cell that has no room costs one comparison.
        if furthest.len() < max {
            furthest.push(Reverse(cell));
        } else if let Some(mut least) = furthest.peek_mut()
            && cell > least.0
        {
            *least = Reverse(cell);
        }
    });
    furthest.into_sorted_vec().into_iter().map(|Reverse(cell)| cell).collect()
}

/// Reads the lines, in a process that has counted nothing so far. What it does not know is passed over.
#[derive(Debug)]
pub struct RateReader {
    counters: Option<Arc<RateLimitCounters>>,
    own: HashMap<String, Arc<Limit>>,
    /// The limits of the other process, as far as this one has them.
    theirs: Vec<Option<Arc<Limit>>>,
    /// Whether a session has the same hash in both.
    knows_sessions: bool,
}

impl RateReader {
    /// For a process with these limits, on these counters.
    pub fn new<'l>(
        counters: Option<&Arc<RateLimitCounters>>,
        limits: impl IntoIterator<Item = &'l RequestLimits>,
    ) -> Self {
        let own = labelled(limits).into_iter().map(|(label, limit)| (label, Arc::clone(limit)));
        Self {
            counters: counters.cloned(),
            own: own.collect(),
            theirs: Vec::new(),
            knows_sessions: false,
        }
    }

    /// Takes in a line.
    pub fn read(&mut self, line: &str) {
        match line.split_once(' ') {
            Some((TOKENS, digits)) => self.read_tokens(digits),
            Some((LIMIT, label)) if self.theirs.len() < LIMITS_MAX => {
                self.theirs.push(self.own.get(label).cloned());
            }
            Some((place, cell)) => {
                if let Some((limit, ahead, key)) = self.cell(place, cell) {
                    limit.resume(key, ahead);
                }
            }
            None => {}
        }
    }

    fn read_tokens(&mut self, digits: &str) {
        let Some(counters) = &self.counters else { return };
        let hasher = TokenHasher::of(digits);
        self.knows_sessions = hasher.is_some_and(|hasher| counters.tokens.set(hasher).is_ok());
    }

    fn cell(&self, place: &str, cell: &str) -> Option<(&Limit, Duration, RateKey)> {
        let place: usize = place.parse().ok()?;
        let limit = self.theirs.get(place)?.as_deref()?;
        let (ahead, key) = cell.split_once(' ')?;
        let ahead = Duration::from_millis(ahead.parse().ok()?);
        let key = match key.strip_prefix(SESSION) {
            Some(digits) if self.knows_sessions => {
                RateKey::Session(u128::from_str_radix(digits, 16).ok()?)
            }
            Some(_) => return None,
            None => RateKey::at(key.parse().ok()?),
        };
        Some((limit, ahead, key))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use anteroom_http::ident::StoredToken;

    use super::super::{Rate, RateLimitBuilder};
    use super::*;

    /// What a process has: limits of all requests, and of two routes of the same name.
    struct Process {
        counters: Arc<RateLimitCounters>,
        limits: [RequestLimits; 3],
    }

    /// A burst of so many, and one more an hour.
    fn rate(burst: u32) -> Option<Rate> {
        let (requests, burst) = (NonZeroU32::MIN, NonZeroU32::new(burst)?);
        Some(Rate { requests, per: Duration::from_secs(3_600), burst })
    }

    impl Process {
        fn new() -> Self {
            let counters = RateLimitCounters::new(1_000);
            let mut limiting = RateLimitBuilder::new(Some(Arc::clone(&counters)));
            let limits = [("*", 2), ("a\nroute", 3), ("a\nroute", 4)];
            let limits =
                limits.map(|(name, burst)| limiting.limits(name, rate(burst), rate(burst)));
            Self { counters, limits }
        }

        fn lines(&self) -> Vec<String> {
            hand_out(&self.counters, &self.limits).collect()
        }

        fn read(&self, lines: &[String]) {
            let mut reader = RateReader::new(Some(&self.counters), &self.limits);
            lines.iter().for_each(|line| reader.read(line));
        }

        fn session(&self, token: &str) -> RateKey {
            self.counters.session(&StoredToken::from_store(token.as_bytes()).unwrap())
        }
    }

    fn at(text: &str) -> RateKey {
        RateKey::at(text.parse().unwrap())
    }

    /// How many requests are taken.
    fn taken(limit: Option<&Arc<Limit>>, key: RateKey) -> usize {
        let limit = limit.unwrap();
        (0..9).filter(|_| limit.take(key).is_ok()).count()
    }

    #[test]
    fn what_is_used_is_used_in_the_next_process() {
        let (one, next) = (Process::new(), Process::new());
        let (four, six) = (at("192.0.2.1"), at("2001:db8::1"));
        for key in [four, six] {
            assert_eq!(taken(one.limits[0].address.as_ref(), key), 2);
        }
        assert_eq!(taken(one.limits[2].address.as_ref(), four), 4);
        let session = one.session("0123456789abcdef");
        assert_eq!(taken(one.limits[1].session.as_ref(), session), 3);

        let lines = one.lines();
        assert_eq!(lines.len(), 1 + 6 + 4, "{lines:?}");
        next.read(&lines);

        for (limit, key, left) in [
            (next.limits[0].address.as_ref(), four, 0),
            (next.limits[0].address.as_ref(), six, 0),
            (next.limits[0].address.as_ref(), at("192.0.2.2"), 2),
            (next.limits[1].address.as_ref(), four, 3),
            (next.limits[2].address.as_ref(), four, 0),
            (next.limits[2].session.as_ref(), session, 4),
            (next.limits[1].session.as_ref(), next.session("0123456789abcdef"), 0),
            (next.limits[1].session.as_ref(), next.session("0123456789abcdeg"), 3),
        ] {
            assert_eq!(taken(limit, key), left, "{key:?}");
        }
    }

    #[test]
    fn a_process_that_knows_tokens_by_its_own_hash_takes_in_no_sessions() {
        let (one, next) = (Process::new(), Process::new());
        let session = one.session("0123456789abcdef");
        assert_eq!(taken(one.limits[0].session.as_ref(), session), 2);
        assert_eq!(taken(one.limits[0].address.as_ref(), at("192.0.2.1")), 2);
        next.session("0123456789abcdef");
        next.read(&one.lines());
        assert_eq!(taken(next.limits[0].session.as_ref(), session), 2);
        assert_eq!(taken(next.limits[0].address.as_ref(), at("192.0.2.1")), 0);
    }

    #[test]
    fn those_that_are_refused_for_longest_are_told_first_within_a_bound() {
        let one = Process::new();
        let limits = labelled(&one.limits);
        for number in 1..=20 {
            assert_eq!(taken(one.limits[0].address.as_ref(), at(&format!("192.0.2.{number}"))), 2);
        }
        assert_eq!(taken(one.limits[2].address.as_ref(), at("198.51.100.1")), 4);
        let some = cells(&one.counters, &limits, 5);
        assert_eq!((some.len(), some[0].key), (5, at("198.51.100.1")));
        assert!(some.is_sorted_by(|one, next| one >= next));
        assert_eq!(cells(&one.counters, &limits, 100).len(), 21);
        assert_eq!(cells(&one.counters, &[], 100).len(), 0);
    }

    #[test]
    fn what_is_no_line_is_passed_over() {
        let next = Process::new();
        let lines = [
            "",
            "?",
            "tokens 00",
            "limit",
            "0 9000 192.0.2.1",
            "limit 1 address gone",
            "limit 1 address *",
            "0 9000 192.0.2.1",
            "1 x 192.0.2.1",
            "1 9000 s00",
            "1 9000 here",
            "1 9000",
            "99999999999999999999 9000 192.0.2.1",
        ];
        next.read(&lines.map(str::to_owned));
        let mut held = 0;
        next.counters.each(|_, _, _| held += 1);
        assert_eq!(held, 0);
        RateReader::new(None, []).read("tokens 00");
    }
}
