//! The servers of one origin, as all threads see them: which are up, how many requests each works on, which
//! is next, and which requests wait.
//!
//! All decisions are made under one small lock, which is never held across an await. The rules are separate
//! and pure: `balance` chooses, `health` decides on rests, `budget` on retries, `wait_queue` on the queue.

mod balance;
mod budget;
mod health;
mod slot;
mod wait_queue;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anteroom_policy::origin::Balance;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::background::{BackgroundRequests, BackgroundSlot};
use balance::{Candidate, RoundRobin, preferred};
use budget::Budget;
pub use health::FailureRules;
use health::{HealthChange, RunningTrial, ServerHealth, Trial};
pub(super) use slot::ServerSlot;
use wait_queue::{WaitQueue, WaitsFor};

/// How the servers of an origin are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRules {
    /// How they are chosen.
    pub balance: Balance,
    /// When they rest and come back.
    pub failure_rules: FailureRules,
    /// How many requests in a hundred may be sent again.
    pub retry_percent: u32,
    /// The most requests that one server works on at once.
    pub max_busy: Option<u32>,
    /// The most requests that wait.
    pub max_waiting: usize,
    /// How long a request waits.
    pub wait_timeout: Duration,
}

/// The servers of an origin.
#[derive(Debug)]
pub struct ServerList {
    name: Arc<str>,
    /// Names and weights.
    servers: Vec<(String, u32)>,
    rules: ServerRules,
    state: Mutex<ServerState>,
    background: Arc<BackgroundRequests>,
}

#[derive(Debug)]
struct ServerState {
    standings: Vec<ServerHealth>,
    busy: Vec<u32>,
    turns: RoundRobin,
    budget: Budget,
    wait_queue: WaitQueue<oneshot::Sender<ServerSlot>>,
    successor: Option<Successor>,
}

/// A server list that has taken servers over, which still work on earlier requests.
#[derive(Clone, Debug)]
struct Successor {
    servers: Arc<ServerList>,
    /// The index of each server in that list, if it is there.
    places: Arc<[Option<usize>]>,
}

impl Successor {
    /// The list, and the index of a server in it.
    fn of(state: &ServerState, server: usize) -> Option<(Arc<ServerList>, usize)> {
        let successor = state.successor.as_ref()?;
        Some((Arc::clone(&successor.servers), successor.places[server]?))
    }
}

/// How a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerStanding<'s> {
    /// Its name.
    pub name: &'s str,
    /// Whether it is asked.
    pub is_up: bool,
    /// Its weight.
    pub weight: u32,
    /// The requests that it works on, as far as they are counted.
    pub busy: u32,
}

/// Why a server failed a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerFailure {
    /// The connection failed.
    Unreachable,
    /// It was silent, broke off, or reported that it cannot serve. A request can cause that, too; to keep
    /// clients from taking all servers out, this takes out at most half of them.
    Unanswered,
}

/// What a request needs from a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerWanted<'w> {
    /// The session, which may keep to a server.
    pub(super) session: Option<&'w str>,
    /// Whether it can be sent again if the server fails.
    pub(super) is_repeatable: bool,
    /// The server that has already failed it.
    pub(super) not: Option<usize>,
    /// The server to which its connection is pinned; this overrides all else.
    pub(super) only: Option<usize>,
}

impl ServerWanted<'_> {
    /// The kind of trial that this request makes.
    fn trial(&self) -> Trial {
        Trial::by(self.is_repeatable)
    }
}

/// The result of a search for a server.
#[derive(Debug)]
enum FoundServer {
    Place(ServerSlot),
    /// A place will be sent, or the channel closes when the wait for that server ends.
    Wait(u64, oneshot::Receiver<ServerSlot>),
    /// The queue is full.
    Full,
    /// No server is up, and other requests try them.
    Resting,
}

/// Why there is no server for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoServer {
    /// All are at their limit, and none was ready in time.
    Crowded,
    /// None is up.
    Resting,
}

impl ServerList {
    /// The servers of the origin `name`, each with its weight.
    #[must_use]
    pub fn new(name: &str, servers: Vec<(String, u32)>, rules: ServerRules) -> Arc<Self> {
        let count = servers.len();
        let state = Mutex::new(ServerState {
            standings: vec![ServerHealth::default(); count],
            busy: vec![0; count],
            turns: RoundRobin::new(count),
            budget: Budget::new(rules.retry_percent, Instant::now()),
            wait_queue: WaitQueue::new(rules.max_waiting),
            successor: None,
        });
        let background = Arc::default();
        Arc::new(Self { name: name.into(), servers, rules, state, background })
    }

    /// Takes over what `old` knows of servers that are also in this list, by name. A rest continues
    /// unchanged, and requests in progress count here as well until they end.
    pub fn learn_from(self: &Arc<Self>, old: &Self) {
        let mut known = old.lock();
        let mut state = self.lock();
        let place =
            |(name, _): &(String, u32)| self.servers.iter().position(|(own, _)| own == name);
        let places: Arc<[Option<usize>]> = old.servers.iter().map(place).collect();
        for (at, here) in places.iter().enumerate() {
            let Some(here) = *here else { continue };
            state.standings[here] = known.standings[at].taken_over();
            state.busy[here] = known.busy[at];
        }
        known.successor = Some(Successor { servers: Arc::clone(self), places });
    }

    /// Whether the lists have no server in common.
    #[must_use]
    pub fn is_apart_from(&self, other: &Self) -> bool {
        let is_there = |(name, _): &(String, u32)| other.servers.iter().any(|(own, _)| own == name);
        !self.servers.iter().any(is_there)
    }

    /// Whether it is the same origin with the same servers, used in the same way.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.name == other.name && self.servers == other.servers && self.rules == other.rules
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is nothing to decide.
    pub(super) fn is_plain(&self) -> bool {
        self.servers.len() == 1 && self.rules.max_busy.is_none()
    }

    /// How each of its servers is.
    #[must_use]
    pub fn standings(&self) -> Vec<ServerStanding<'_>> {
        let state = self.lock();
        let known = state.standings.iter().zip(&state.busy);
        let servers = self.servers.iter().zip(known);
        servers
            .map(|((name, weight), (health, busy))| ServerStanding {
                name,
                is_up: health.is_up(),
                weight: *weight,
                busy: *busy,
            })
            .collect()
    }

    /// How many requests wait for a server.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().wait_queue.len()
    }

    /// A place for a request of the proxy's own accord. There is none while no server is up, or while
    /// requests of visitors wait for one.
    pub(super) fn background_slot(&self) -> Option<BackgroundSlot> {
        let is_ready = {
            let state = self.lock();
            state.wait_queue.len() == 0 && state.standings.iter().any(ServerHealth::is_up)
        };
        is_ready.then(|| self.background.take(Instant::now())).flatten()
    }

    fn lock(&self) -> MutexGuard<'_, ServerState> {
        // No code that holds this lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request is sent for the first time.
    pub(super) fn count_request(&self) {
        self.lock().budget.request();
    }

    /// Whether a request that a server may have seen can be sent to another.
    pub(super) fn may_send_again(&self) -> bool {
        self.lock().budget.take(Instant::now())
    }

    /// A place at a server, as soon as one is free.
    pub(super) async fn slot(
        self: &Arc<Self>,
        wanted: &ServerWanted<'_>,
    ) -> Result<ServerSlot, NoServer> {
        let deadline = Instant::now() + self.rules.wait_timeout;
        loop {
            let (number, receiver) = match self.find(wanted, Instant::now()) {
                FoundServer::Place(place) => return Ok(place),
                FoundServer::Full => return Err(NoServer::Crowded),
                FoundServer::Resting => return Err(NoServer::Resting),
                FoundServer::Wait(number, receiver) => (number, receiver),
            };
            let _seat = QueuedRequest { server_list: self, number };
            match tokio::time::timeout_at(deadline, receiver).await {
                Ok(Ok(place)) => return Ok(place),
                // The servers that the request waited for are out.
                Ok(Err(_)) => {}
                Err(_) => return Err(NoServer::Crowded),
            }
        }
    }

    fn find(self: &Arc<Self>, wanted: &ServerWanted<'_>, now: Instant) -> FoundServer {
        let mut guard = self.lock();
        let state = &mut *guard;
        let (server, is_trial) = match self.choose(state, wanted, now) {
            ServerChoice::Server(server) => (server, false),
            ServerChoice::Trial(server) => (server, true),
            ServerChoice::None => return FoundServer::Resting,
            ServerChoice::Busy(wants) => {
                let (sender, receiver) = oneshot::channel();
                return match state.wait_queue.join(wants, sender) {
                    Some(number) => FoundServer::Wait(number, receiver),
                    None => FoundServer::Full,
                };
            }
        };
        state.busy[server] += 1;
        let trial = is_trial.then(|| state.standings[server].try_it(wanted.trial(), now));
        let successor = Successor::of(state, server);
        drop(guard);
        if let Some((successor, there)) = successor {
            successor.count(there);
        }
        FoundServer::Place(ServerSlot::new(Arc::clone(self), server, trial))
    }

    /// A server taken over from another list works on one more request.
    fn count(&self, server: usize) {
        let successor = {
            let mut state = self.lock();
            state.busy[server] += 1;
            Successor::of(&state, server)
        };
        if let Some((successor, there)) = successor {
            successor.count(there);
        }
    }

    /// Chooses a server in the current state.
    fn choose(
        &self,
        state: &mut ServerState,
        wanted: &ServerWanted<'_>,
        now: Instant,
    ) -> ServerChoice {
        if let Some(only) = wanted.only {
            return if self.has_room(state, only) {
                ServerChoice::Server(only)
            } else {
                ServerChoice::Busy(WaitsFor::Only(only))
            };
        }
        let session = wanted.session.filter(|_| self.rules.balance == Balance::Sticky);
        if let Some(session) = session {
            return self.choose_for(session, state, wanted, now);
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
            .filter(|server| self.has_room(state, *server))
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
                return if self.has_room(state, server) {
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
        Candidate { server, share, busy: state.busy[server] }
    }

    /// Whether a server gets ordinary requests. A sole server always does. If none is up, those that only
    /// their checks have taken out do: more likely the checks are wrong.
    fn is_up(&self, state: &ServerState, server: usize) -> bool {
        let standings = &state.standings;
        self.servers.len() == 1
            || standings[server].is_up()
            || (standings[server].is_out_by_checks() && !standings.iter().any(ServerHealth::is_up))
    }

    fn has_room(&self, state: &ServerState, server: usize) -> bool {
        self.rules.max_busy.is_none_or(|max| state.busy[server] < max)
    }

    /// A request is over: its place goes to the next in the queue. `unjudged`: a trial that ended without a
    /// result.
    fn leave(self: &Arc<Self>, server: usize, unjudged: Option<RunningTrial>) {
        if let Some(trial) = unjudged {
            self.lock().standings[server].tried_in_vain(trial);
        }
        loop {
            let (next, successor) = {
                let mut state = self.lock();
                // Including this request, the server may be over its limit: then the place is not passed on.
                let busy = state.busy[server];
                let is_over = self.rules.max_busy.is_some_and(|max| busy > max);
                let takes = self.is_up(&state, server) && !is_over;
                let next = if takes { state.wait_queue.first_for(server) } else { None };
                if next.is_none() {
                    state.busy[server] = state.busy[server].saturating_sub(1);
                }
                (next, Successor::of(&state, server))
            };
            let Some(sender) = next else {
                if let Some((successor, there)) = successor {
                    successor.leave(there, None);
                }
                return;
            };
            match sender.send(ServerSlot::new(Arc::clone(self), server, None)) {
                Ok(()) => return,
                // The waiting request has just left.
                Err(place) => place.forget(),
            }
        }
    }

    fn judge(
        self: &Arc<Self>,
        server: usize,
        trial: Option<RunningTrial>,
        failure: Option<ServerFailure>,
    ) {
        let now = Instant::now();
        let change = {
            let mut state = self.lock();
            let up = state.standings.iter().filter(|standing| standing.is_up()).count();
            let change = match failure {
                None => state.standings[server].succeeded(trial, now),
                Some(failure) => {
                    let may_rest = self.may_rest(failure, self.servers.len() - up);
                    let rules = &self.rules.failure_rules;
                    state.standings[server].failed(trial, may_rest, rules, now)
                }
            };
            self.after(&mut state, change, up, now);
            change
        };
        self.report(server, change);
    }

    /// Whether a server may rest, given how many are out already. The last one up has no replacement.
    fn may_rest(&self, failure: ServerFailure, out: usize) -> bool {
        let servers = self.servers.len();
        match failure {
            _ if servers == 1 => false,
            ServerFailure::Unreachable => true,
            ServerFailure::Unanswered => (out + 1) * 2 <= servers,
        }
    }

    /// A health check of a server has a result.
    pub(super) fn checked(self: &Arc<Self>, server: usize, is_well: bool) {
        let now = Instant::now();
        let change = {
            let mut state = self.lock();
            let up = state.standings.iter().filter(|standing| standing.is_up()).count();
            let change = state.standings[server].checked(is_well, &self.rules.failure_rules, now);
            self.after(&mut state, change, up, now);
            let is_last = !state.standings.iter().any(ServerHealth::is_up);
            change.map(|change| (change, is_last))
        };
        self.report(server, change.map(|(change, _)| change));
        if let Some((HealthChange::Sick, true)) = change {
            let origin = &*self.name;
            tracing::warn!(origin, "no server is up: servers with failed checks are used again");
        }
    }

    /// Applies a change to the other servers. `up`: how many were up before.
    fn after(
        &self,
        state: &mut ServerState,
        change: Option<HealthChange>,
        up: usize,
        now: Instant,
    ) {
        match change {
            Some(HealthChange::Rests(_) | HealthChange::Sick) => {
                let servers = 0..self.servers.len();
                let up: Vec<bool> = servers.map(|server| self.is_up(state, server)).collect();
                state.wait_queue.dismiss(|server| up[server], up.len());
            }
            Some(HealthChange::Back) if up == 0 => {
                for standing in &mut state.standings {
                    standing.shorten_rest(&self.rules.failure_rules, now);
                }
            }
            Some(HealthChange::Back) | None => {}
        }
    }

    /// Reports a change, and admits the requests that waited for it.
    fn report(self: &Arc<Self>, server: usize, change: Option<HealthChange>) {
        let (origin, name) = (&*self.name, self.servers[server].0.as_str());
        match change {
            None => {}
            Some(HealthChange::Rests(rest)) => {
                tracing::warn!(
                    origin,
                    server = name,
                    ?rest,
                    "a server rests after too many failures"
                );
            }
            Some(HealthChange::Sick) => {
                tracing::warn!(
                    origin,
                    server = name,
                    "a server is out because its health checks fail"
                );
            }
            Some(HealthChange::Back) => {
                tracing::info!(origin, server = name, "a server is back");
                self.let_in(server);
            }
        }
    }

    /// A server that is back takes waiting requests.
    fn let_in(self: &Arc<Self>, server: usize) {
        loop {
            let (sender, successor) = {
                let mut state = self.lock();
                let has_room = self.has_room(&state, server);
                let next = if has_room { state.wait_queue.first_for(server) } else { None };
                let Some(sender) = next else { return };
                state.busy[server] += 1;
                (sender, Successor::of(&state, server))
            };
            if let Some((successor, there)) = successor {
                successor.count(there);
            }
            // If the request has left meanwhile, dropping the place returns it.
            drop(sender.send(ServerSlot::new(Arc::clone(self), server, None)));
        }
    }
}

/// What a request does next.
enum ServerChoice {
    Server(usize),
    /// The same; the result shows whether the server is back.
    Trial(usize),
    /// Waits for such a server.
    Busy(WaitsFor),
    None,
}

/// A request in the queue; dropping this removes it.
struct QueuedRequest<'r> {
    server_list: &'r Arc<ServerList>,
    number: u64,
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        self.server_list.lock().wait_queue.leave(self.number);
    }
}

#[cfg(test)]
mod tests;
