//! The choice among several servers. Pure.

use sha2::{Digest, Sha256};

/// A server that may be chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) server: usize,
    /// Its current share; never 0.
    pub(super) share: u32,
    /// The number of requests in progress on it.
    pub(super) busy: u32,
}

/// Weighted round robin: each server gets requests by its share, spread as evenly as possible.
#[derive(Debug)]
pub(super) struct RoundRobin {
    /// The credit of each server; the one with the most is next.
    credits: Vec<i64>,
}

impl RoundRobin {
    pub(super) fn new(servers: usize) -> Self {
        Self { credits: vec![0; servers] }
    }

    /// The next of `candidates`.
    pub(super) fn next(&mut self, candidates: &[Candidate]) -> Option<usize> {
        let mut total = 0;
        for candidate in candidates {
            let share = i64::from(candidate.share);
            self.credits[candidate.server] += share;
            total += share;
        }
        let servers = candidates.iter().map(|candidate| candidate.server);
        // The first of those with the most credit.
        let next = servers.rev().max_by_key(|server| self.credits[*server])?;
        self.credits[next] -= total;
        Some(next)
    }

    /// The one of `candidates` with the fewest requests in progress for its share.
    pub(super) fn least(&mut self, candidates: &[Candidate]) -> Option<usize> {
        let load = |one: &Candidate, other: &Candidate| {
            let cost = u64::from(one.busy + 1) * u64::from(other.share);
            cost.cmp(&(u64::from(other.busy + 1) * u64::from(one.share)))
        };
        let least = candidates.iter().min_by(|one, other| load(one, other))?;
        let equals: Vec<Candidate> =
            candidates.iter().filter(|other| load(least, other).is_eq()).copied().collect();
        self.next(&equals)
    }
}

/// The servers in the order in which a session prefers them (rendezvous hashing): when a server goes down,
/// only its sessions move, and they return with it. `servers` are names and weights.
pub(super) fn preferred<'n>(
    session: &str,
    servers: impl Iterator<Item = (&'n str, u32)>,
) -> Vec<usize> {
    let mut scores: Vec<(f64, usize)> = servers
        .enumerate()
        .map(|(at, (name, weight))| (score(session, name, weight), at))
        .collect();
    scores.sort_by(|one, other| other.0.total_cmp(&one.0));
    scores.into_iter().map(|(_, server)| server).collect()
}

#[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
fn score(session: &str, name: &str, weight: u32) -> f64 {
    let mut hash = Sha256::new();
    hash.update((name.len() as u64).to_be_bytes());
    hash.update(name.as_bytes());
    hash.update(session.as_bytes());
    let digest = hash.finalize();
    let bits = digest.iter().take(8).fold(0_u64, |bits, byte| (bits << 8) | u64::from(*byte));
    // Strictly between 0 and 1.
    let chance = ((bits >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -f64::from(weight) / chance.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(shares: &[u32]) -> Vec<Candidate> {
        let candidate =
            |(server, share): (usize, &u32)| Candidate { server, share: *share, busy: 0 };
        shares.iter().enumerate().map(candidate).collect()
    }

    #[test]
    fn turns_go_round_by_their_shares() {
        let mut turns = RoundRobin::new(3);
        let all = candidates(&[1_000, 1_000, 1_000]);
        let order: Vec<_> = (0..6).filter_map(|_| turns.next(&all)).collect();
        assert_eq!(order, [0, 1, 2, 0, 1, 2]);

        let mut turns = RoundRobin::new(2);
        let all = candidates(&[3_000, 1_000]);
        let order: Vec<_> = (0..8).filter_map(|_| turns.next(&all)).collect();
        assert_eq!(order, [0, 0, 1, 0, 0, 0, 1, 0]);
        assert_eq!(turns.next(&[]), None);
    }

    #[test]
    fn a_growing_share_is_a_growing_count() {
        let mut counts = Vec::new();
        let mut turns = RoundRobin::new(2);
        for share in [100, 300, 600, 1_000] {
            let all = candidates(&[1_000, share]);
            counts.push((0..220).filter(|_| turns.next(&all) == Some(1)).count());
        }
        assert!(counts.is_sorted_by(|one, other| one < other), "{counts:?}");
        assert!(counts[0].abs_diff(20) <= 1 && counts[3].abs_diff(110) <= 1, "{counts:?}");
    }

    #[test]
    fn the_least_busy_is_chosen_by_its_share() {
        let mut turns = RoundRobin::new(3);
        let mut all = candidates(&[1_000, 1_000, 2_000]);
        for (busy, expected) in [([1, 0, 2], 1), ([1, 1, 2], 2), ([0, 1, 2], 0), ([5, 3, 8], 1)] {
            all.iter_mut().zip(busy).for_each(|(candidate, busy)| candidate.busy = busy);
            assert_eq!(turns.least(&all), Some(expected), "{busy:?}");
        }
        let equals = candidates(&[1_000, 1_000]);
        let mut turns = RoundRobin::new(2);
        let order: Vec<_> = (0..4).filter_map(|_| turns.least(&equals)).collect();
        assert_eq!(order, [0, 1, 0, 1]);
    }

    #[test]
    fn only_the_sessions_of_a_server_that_goes_move() {
        let three = [("a:1", 1), ("b:1", 1), ("c:1", 1)];
        let mut counts = [0; 3];
        for number in 0..3_000 {
            let session = format!("session-{number}");
            let order = preferred(&session, three.into_iter());
            let without = preferred(&session, three[..2].iter().copied());
            counts[order[0]] += 1;
            let left: Vec<_> = order.iter().copied().filter(|server| *server != 2).collect();
            assert_eq!(left, without);
        }
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }

    #[test]
    fn weights_count_for_sessions_too() {
        let two = [("a:1", 3), ("b:1", 1)];
        let first = (0..4_000).filter(|n| preferred(&n.to_string(), two.into_iter())[0] == 0);
        let count = first.count();
        assert!((2_850..3_150).contains(&count), "{count}");
    }
}
