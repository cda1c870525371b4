//! Which server a request gets: by its session or in turn, among those that are up and have room, or one that is tried.

use anteroom_policy::origin::Balance;
use anteroom_policy::priority::Priority;
use tokio::time::Instant;

use super::balance::{Candidate, preferred};
use super::health::ServerHealth;
use super::wait_queue::WaitsFor;
use super::{ServerList, ServerState, ServerWanted};

/// What a request does next.
pub(super) enum ServerChoice {
    Server(usize),
    /// The same; the result shows whether the server is back.
    Trial(usize),
    /// Waits for such a server.
    Busy(WaitsFor),
    None,
}

impl ServerList {
    /// Chooses a server in the current state, for a request that ranks as `priority`.
    pub(super) fn choose(
        &self,
        state: &mut ServerState,
        wanted: &ServerWanted<'_>,
        priority: &Priority,
        now: Instant,
    ) -> ServerChoice {
        if self.servers.len() == 1 && wanted.not.is_none() {
            // PERF: the usual case; a sole server is always up.
            return if self.has_room(state, 0, priority, now) {
                ServerChoice::Server(0)
            } else {
                ServerChoice::Busy(WaitsFor::Any)
            };
        }
        if let Some(only) = wanted.only {
            return if self.has_room(state, only, priority, now) {
                ServerChoice::Server(only)
            } else {
                ServerChoice::Busy(WaitsFor::Only(only))
            };
        }
        let session = wanted.requester.session.filter(|_| self.rules.balance == Balance::Sticky);
        if let Some(session) = session {
            return self.choose_for(session, state, wanted, priority, now);
        }
        let others = (0..self.servers.len()).filter(|server| wanted.not != Some(*server));
        let standings = &state.standings;
        let due = |server: &usize| standings[*server].may_be_tried(wanted.trial(), now);
        if let Some(due) = others.clone().find(due) {
            return ServerChoice::Trial(due);
        }
        let up: Vec<usize> = others.filter(|server| self.is_up(state, *server)).collect();
        if up.is_empty() {
            return self.last_resort(state, wanted, now);
        }
        let candidates: Vec<Candidate> = up
            .into_iter()
            .filter(|server| self.has_room(state, *server, priority, now))
            .map(|server| self.candidate(state, server, now))
            .collect();
        let chosen = match self.rules.balance {
            Balance::LeastRequests => state.turns.least(&candidates),
            Balance::RoundRobin | Balance::Sticky => state.turns.next(&candidates),
        };
        let wants = wanted.not.map_or(WaitsFor::Any, WaitsFor::Not);
        chosen.map_or(ServerChoice::Busy(wants), ServerChoice::Server)
    }

    /// The server that a session prefers among those that are up, or a preferred one that is due for a trial.
    fn choose_for(
        &self,
        session: &str,
        state: &ServerState,
        wanted: &ServerWanted<'_>,
        priority: &Priority,
        now: Instant,
    ) -> ServerChoice {
        let servers = self.servers.iter().map(|(name, weight)| (name.as_str(), *weight));
        for server in preferred(session, servers) {
            let standing = &state.standings[server];
            if wanted.not == Some(server) {
                continue;
            }
            if standing.may_be_tried(wanted.trial(), now) {
                return ServerChoice::Trial(server);
            }
            if self.is_up(state, server) {
                return if self.has_room(state, server, priority, now) {
                    ServerChoice::Server(server)
                } else {
                    ServerChoice::Busy(WaitsFor::Only(server))
                };
            }
        }
        self.last_resort(state, wanted, now)
    }

    /// No server is up: one request at a time tries each of them, even during a rest. They are thus found as
    /// soon as they are back, and a request that cannot be answered does not wait.
    fn last_resort(
        &self,
        state: &ServerState,
        wanted: &ServerWanted<'_>,
        now: Instant,
    ) -> ServerChoice {
        // A request that a server has just failed has already made its try.
        if wanted.not.is_some() {
            return ServerChoice::None;
        }
        let order = |server: usize| {
            state.standings[server].last_resort(wanted.trial(), now).map(|rank| (rank, server))
        };
        let next = (0..self.servers.len()).filter_map(order).min();
        next.map_or(ServerChoice::None, |(_, server)| ServerChoice::Trial(server))
    }

    fn candidate(&self, state: &ServerState, server: usize, now: Instant) -> Candidate {
        let part = state.standings[server].share(self.rules.failure_rules.slow_start, now);
        let share = self.servers[server].1.saturating_mul(part).max(1);
        Candidate { server, share, busy: state.places[server].taken() }
    }

    /// Whether a server gets ordinary requests. A sole server always does. If none is up, those that only
    /// their checks have taken out do: more likely the checks are wrong.
    pub(super) fn is_up(&self, state: &ServerState, server: usize) -> bool {
        let standings = &state.standings;
        self.servers.len() == 1
            || standings[server].is_up()
            || (standings[server].is_out_by_checks() && !standings.iter().any(ServerHealth::is_up))
    }

    fn has_room(
        &self,
        state: &ServerState,
        server: usize,
        priority: &Priority,
        now: Instant,
    ) -> bool {
        state.places[server].has_room(priority.class, self.limits(state, server), now)
            && state.strangers.have_room(priority)
    }
}
