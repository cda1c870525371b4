//! What a process tells its successor of the servers of an origin, as it is at that moment: the store has what is known of
//! their limits as of the last minute, and nothing of their health.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::ServerList;
use super::health::RestLeft;
use super::known_servers::{KINDS_MAX, decode, encode};

/// How a server is.
#[derive(Clone, Debug, PartialEq)]
pub struct HandedServer {
    /// Its name.
    pub name: String,
    /// Its rest after failures.
    pub rest: Option<RestLeft>,
    /// Whether its health checks have taken it out.
    pub fails_checks: bool,
    /// What its automatic limit knows, if it has one.
    pub limit: Option<HandedLimit>,
}

/// What an automatic limit knows.
#[derive(Clone, Debug, PartialEq)]
pub struct HandedLimit {
    /// How many requests the server may work on.
    pub limit: f64,
    /// Whether it is found to have a queue because of what it is asked.
    pub has_queue: bool,
    /// How it is in calm, as the store would keep it: by keys of
    /// [`PAGE_KIND_VERSION`](anteroom_policy::priority::PAGE_KIND_VERSION).
    pub known: Bytes,
}

impl HandedServer {
    /// Whether a process that knows nothing of the server would take it for another.
    fn tells_something(&self) -> bool {
        self.rest.is_some() || self.fails_checks || self.limit.is_some()
    }
}

impl ServerList {
    /// How its servers are, for a successor. A server of which nothing is known is left out.
    #[must_use]
    pub fn hand_out(&self) -> Vec<HandedServer> {
        let names = self.servers.iter().map(|(name, _)| name).enumerate();
        let servers = names.map(|(place, name)| self.handed(place, name, Instant::now()));
        servers.filter(HandedServer::tells_something).collect()
    }

    fn handed(&self, place: usize, name: &str, now: Instant) -> HandedServer {
        // The lock is taken for each server by itself: requests wait for it.
        let state = self.lock();
        let health = &state.standings[place];
        let limit = state.automatic.get(place).map(|limit| HandedLimit {
            limit: limit.limit(),
            has_queue: limit.has_queue(),
            known: encode(&[(name, limit.known(KINDS_MAX))], usize::MAX).unwrap_or_default(),
        });
        HandedServer {
            name: name.to_owned(),
            rest: health.rest_left(now),
            fails_checks: health.fails_checks(),
            limit,
        }
    }

    /// Takes in how a server was in the process before. One that is not in the list is passed over, and so is a limit that
    /// is damaged.
    pub fn take_in(self: &Arc<Self>, handed: &HandedServer) {
        let place = self.servers.iter().position(|(own, _)| *own == handed.name);
        let Some(place) = place else { return };
        let now = Instant::now();
        {
            let mut state = self.lock();
            // A sole server is always asked, and never tried.
            if self.servers.len() > 1 {
                let rules = &self.rules.failure_rules;
                state.standings[place].resume(handed.rest, handed.fails_checks, rules, now);
            }
            if let Some(own) = state.automatic.get_mut(place)
                && let Some(HandedLimit { limit, has_queue, known }) = &handed.limit
                && let Some((_, known)) = decode(known).into_iter().flatten().next()
            {
                own.resume(self.seconds(now), &known, *limit, *has_queue);
            }
        }
        // A limit that begins higher has room for what waits.
        self.admit_all(now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anteroom_policy::origin::Overload;

    use super::super::ServerRules;
    use super::super::automatic_limit::KnownServer;
    use super::super::tests::{rules, server_list};
    use super::*;

    fn is_up(list: &Arc<ServerList>) -> Vec<bool> {
        list.standings().iter().map(|standing| standing.is_up).collect()
    }

    fn learning() -> Arc<ServerList> {
        server_list(2, ServerRules { overload: Overload::Order, ..rules() })
    }

    #[test]
    fn a_server_that_rests_does_so_in_the_next_process() {
        let (list, next) = (server_list(2, rules()), server_list(2, rules()));
        assert!(list.hand_out().is_empty());
        let now = Instant::now();
        for _ in 0..3 {
            list.lock().standings[1].failed(None, true, &list.rules.failure_rules, now);
        }
        let handed = list.hand_out();
        assert_eq!((handed.len(), &*handed[0].name), (1, "s1:1"));
        let rest = handed[0].rest.unwrap();
        assert!(rest.left <= rest.length && rest.length == Duration::from_secs(10), "{rest:?}");
        next.take_in(&handed[0]);
        assert_eq!(is_up(&next), [true, false]);
        let sole = server_list(1, rules());
        sole.take_in(&HandedServer { name: "s0:1".to_owned(), ..handed[0].clone() });
        sole.take_in(&handed[0]);
        assert_eq!(is_up(&sole), [true], "it has no other that could stand in for it");
    }

    #[test]
    fn a_server_whose_checks_fail_is_out_until_they_are_good() {
        let (list, next) = (server_list(2, rules()), server_list(2, rules()));
        list.checked(0, false);
        for handed in list.hand_out() {
            next.take_in(&handed);
        }
        assert_eq!(is_up(&next), [false, true]);
        next.checked(0, true);
        assert_eq!(is_up(&next), [true, true]);
    }

    #[test]
    fn a_limit_goes_on_from_what_is_known_now() {
        let list = learning();
        let kinds = vec![(7, 0.25)];
        let known = KnownServer { calm_at: 40.0, kinds };
        list.lock().automatic[1].resume(0.0, &known, 25.0, true);
        let handed = list.hand_out();
        assert_eq!(handed.len(), 2);

        let kept = |calm_at| KnownServer { calm_at, kinds: vec![(7, 9.0), (8, 1.0)] };
        let older = encode(&[("s0:1", kept(80.0)), ("s1:1", kept(90.0))], 999);
        for is_recalled_first in [true, false] {
            let next = learning();
            if is_recalled_first {
                next.recall(older.clone());
            }
            handed.iter().for_each(|server| next.take_in(server));
            if !is_recalled_first {
                next.recall(older.clone());
            }
            let limits: Vec<_> = next.standings().iter().map(|standing| standing.limit).collect();
            assert_eq!(limits, [list.standings()[0].limit, Some(25)]);
            let state = next.lock();
            assert!(state.automatic[1].has_queue() && !state.automatic[0].has_queue());
            let expected = KnownServer { calm_at: 40.0, kinds: vec![(7, 0.25), (8, 1.0)] };
            assert_eq!(state.automatic[1].known(9), expected);
        }
    }

    #[test]
    fn what_is_damaged_or_unknown_is_passed_over() {
        let next = learning();
        let limit = HandedLimit { limit: 9.0, has_queue: true, known: Bytes::from_static(b"?") };
        let unknown = HandedServer {
            name: "gone:1".to_owned(),
            rest: None,
            fails_checks: true,
            limit: Some(limit),
        };
        next.take_in(&unknown);
        next.take_in(&HandedServer { name: "s0:1".to_owned(), fails_checks: false, ..unknown });
        assert_eq!(is_up(&next), [true, true]);
        assert_eq!(next.standings()[0].limit, learning().standings()[0].limit);
    }
}
