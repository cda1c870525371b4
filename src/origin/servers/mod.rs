//! The servers of one origin, as all threads see them: who is up, who works on how much, who is next, and
//! who waits.
//!
//! What is decided here is decided under one small lock, and never across an await. The rules are apart,
//! and pure: `balance` chooses, `standing` says who rests, `budget` what is sent again, `line` who waits.

mod balance;
mod budget;
mod line;
mod place;
mod standing;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

pub use balance::Balance;
use balance::{Candidate, Turns, preferred};
use budget::Budget;
use line::{Line, Wants};
pub(super) use place::Place;
pub use standing::Patience;
use standing::{Change, Standing, Trial, Trying};

/// How the servers of an origin are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How they are chosen.
    pub balance: Balance,
    /// When they rest and come back.
    pub patience: Patience,
    /// How many of a hundred requests may be sent again.
    pub retry_percent: u32,
    /// The most requests that one works on at once.
    pub max_busy: Option<u32>,
    /// The most requests that wait.
    pub max_waiting: usize,
    /// How long one waits.
    pub wait_timeout: Duration,
}

/// The servers of an origin.
#[derive(Debug)]
pub struct Roster {
    name: Arc<str>,
    /// Names and weights.
    servers: Vec<(String, u32)>,
    rules: Rules,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    standings: Vec<Standing>,
    busy: Vec<u32>,
    turns: Turns,
    budget: Budget,
    line: Line<oneshot::Sender<Place>>,
    heir: Option<Heir>,
}

/// Who has taken servers over, which still work on requests of before.
#[derive(Clone, Debug)]
struct Heir {
    roster: Arc<Roster>,
    /// For each server its place there, where it is there.
    places: Arc<[Option<usize>]>,
}

impl Heir {
    /// It, and the place of a server there.
    fn of(state: &State, server: usize) -> Option<(Arc<Roster>, usize)> {
        let heir = state.heir.as_ref()?;
        Some((Arc::clone(&heir.roster), heir.places[server]?))
    }
}

/// Why a server failed a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It could not be connected to.
    Unreachable,
    /// It was silent, broke off, or said that it cannot: which a request can bring about, too. So that
    /// nobody can take all servers out by asking, this takes no more than half of them.
    Unanswered,
}

/// What a request asks of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish<'w> {
    /// The session, which may keep to a server.
    pub(super) session: Option<&'w str>,
    /// Whether it can be sent again, should the server fail.
    pub(super) is_repeatable: bool,
    /// The server that has failed it already.
    pub(super) not: Option<usize>,
    /// The server to which its connection is bound, whatever else is said.
    pub(super) only: Option<usize>,
}

impl Wish<'_> {
    /// As which it tries a server.
    fn trial(&self) -> Trial {
        Trial::by(self.is_repeatable)
    }
}

/// What was found for a request.
#[derive(Debug)]
enum Found {
    Place(Place),
    /// A place will be told, or the end of waiting for that server.
    Wait(u64, oneshot::Receiver<Place>),
    /// No more may wait.
    Full,
    /// No server is up, and others try them.
    Resting,
}

/// Why there is no server for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// All work on as much as they may, and nobody was ready in time.
    Crowded,
    /// None is up.
    Resting,
}

impl Roster {
    /// The servers of the origin `name`, each with its weight.
    #[must_use]
    pub fn new(name: &str, servers: Vec<(String, u32)>, rules: Rules) -> Arc<Self> {
        let count = servers.len();
        let state = Mutex::new(State {
            standings: vec![Standing::default(); count],
            busy: vec![0; count],
            turns: Turns::new(count),
            budget: Budget::new(rules.retry_percent, Instant::now()),
            line: Line::new(rules.max_waiting),
            heir: None,
        });
        Arc::new(Self { name: name.into(), servers, rules, state })
    }

    /// What `old` knows of servers that this one has, too, by their names. A rest goes on as it was, and
    /// what they work on counts here, too, until it is over.
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
        known.heir = Some(Heir { roster: Arc::clone(self), places });
    }

    /// Whether it has none of the servers of another.
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

    /// How its servers are called, and whether each is up.
    #[must_use]
    pub fn standings(&self) -> Vec<(&str, bool)> {
        let state = self.lock();
        let names = self.servers.iter().map(|(name, _)| name.as_str());
        names.zip(state.standings.iter().map(Standing::is_up)).collect()
    }

    /// How many requests wait for a server.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().line.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request is sent for the first time.
    pub(super) fn count_request(&self) {
        self.lock().budget.request();
    }

    /// Whether one that a server may have seen can be sent to another.
    pub(super) fn may_send_again(&self) -> bool {
        self.lock().budget.take(Instant::now())
    }

    /// A place at a server, as soon as there is one.
    pub(super) async fn place(self: &Arc<Self>, wish: &Wish<'_>) -> Result<Place, NoPlace> {
        let deadline = Instant::now() + self.rules.wait_timeout;
        loop {
            let (number, told) = match self.find(wish, Instant::now()) {
                Found::Place(place) => return Ok(place),
                Found::Full => return Err(NoPlace::Crowded),
                Found::Resting => return Err(NoPlace::Resting),
                Found::Wait(number, told) => (number, told),
            };
            let _seat = Seat { roster: self, number };
            match tokio::time::timeout_at(deadline, told).await {
                Ok(Ok(place)) => return Ok(place),
                // The servers that were waited for are out.
                Ok(Err(_)) => {}
                Err(_) => return Err(NoPlace::Crowded),
            }
        }
    }

    fn find(self: &Arc<Self>, wish: &Wish<'_>, now: Instant) -> Found {
        let mut guard = self.lock();
        let state = &mut *guard;
        let (server, is_trial) = match self.choose(state, wish, now) {
            Choice::Server(server) => (server, false),
            Choice::Trial(server) => (server, true),
            Choice::None => return Found::Resting,
            Choice::Busy(wants) => {
                let (tell, told) = oneshot::channel();
                return match state.line.join(wants, tell) {
                    Some(number) => Found::Wait(number, told),
                    None => Found::Full,
                };
            }
        };
        state.busy[server] += 1;
        let trial = is_trial.then(|| state.standings[server].try_it(wish.trial(), now));
        let heir = Heir::of(state, server);
        drop(guard);
        if let Some((heir, there)) = heir {
            heir.count(there);
        }
        Found::Place(Place::new(Arc::clone(self), server, trial))
    }

    /// A server that it has taken over works on a request more.
    fn count(&self, server: usize) {
        let heir = {
            let mut state = self.lock();
            state.busy[server] += 1;
            Heir::of(&state, server)
        };
        if let Some((heir, there)) = heir {
            heir.count(there);
        }
    }

    /// Which server, as things are.
    fn choose(&self, state: &mut State, wish: &Wish<'_>, now: Instant) -> Choice {
        if let Some(only) = wish.only {
            return if self.has_room(state, only) {
                Choice::Server(only)
            } else {
                Choice::Busy(Wants::Only(only))
            };
        }
        let session = wish.session.filter(|_| self.rules.balance == Balance::Sticky);
        if let Some(session) = session {
            return self.choose_for(session, state, wish, now);
        }
        let others = (0..self.servers.len()).filter(|server| wish.not != Some(*server));
        let standings = &state.standings;
        let due = |server: &usize| standings[*server].may_be_tried(wish.trial(), now);
        if let Some(due) = others.clone().find(due) {
            return Choice::Trial(due);
        }
        let up: Vec<usize> = others.filter(|server| self.is_up(state, *server)).collect();
        if up.is_empty() {
            return self.last_resort(state, wish, now);
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
        let wants = wish.not.map_or(Wants::Any, Wants::Not);
        chosen.map_or(Choice::Busy(wants), Choice::Server)
    }

    /// The server that a session prefers of those that are up, or is due to try what it prefers to it.
    fn choose_for(&self, session: &str, state: &State, wish: &Wish<'_>, now: Instant) -> Choice {
        let servers = self.servers.iter().map(|(name, weight)| (name.as_str(), *weight));
        for server in preferred(session, servers) {
            let standing = &state.standings[server];
            if wish.not == Some(server) {
                continue;
            }
            if standing.may_be_tried(wish.trial(), now) {
                return Choice::Trial(server);
            }
            if self.is_up(state, server) {
                return if self.has_room(state, server) {
                    Choice::Server(server)
                } else {
                    Choice::Busy(Wants::Only(server))
                };
            }
        }
        self.last_resort(state, wish, now)
    }

    /// No server is up: one request at a time tries each of them, whatever it had to rest for. So they are
    /// found as soon as they are back, and a request that cannot be answered waits for nothing.
    fn last_resort(&self, state: &State, wish: &Wish<'_>, now: Instant) -> Choice {
        // Who was failed by one a moment ago has tried.
        if wish.not.is_some() {
            return Choice::None;
        }
        let order = |server: usize| {
            state.standings[server].last_resort(wish.trial(), now).map(|rank| (rank, server))
        };
        let next = (0..self.servers.len()).filter_map(order).min();
        next.map_or(Choice::None, |(_, server)| Choice::Trial(server))
    }

    fn candidate(&self, state: &State, server: usize, now: Instant) -> Candidate {
        let part = state.standings[server].share(self.rules.patience.slow_start, now);
        let share = self.servers[server].1.saturating_mul(part).max(1);
        Candidate { server, share, busy: state.busy[server] }
    }

    /// Whether a server gets requests as they come. One alone does, for there is no other. Where none is up
    /// those do that nothing but their checks has taken out: more likely it is the checks that are wrong.
    fn is_up(&self, state: &State, server: usize) -> bool {
        let standings = &state.standings;
        self.servers.len() == 1
            || standings[server].is_up()
            || (standings[server].is_out_by_checks() && !standings.iter().any(Standing::is_up))
    }

    fn has_room(&self, state: &State, server: usize) -> bool {
        self.rules.max_busy.is_none_or(|max| state.busy[server] < max)
    }

    /// A request is over: its place goes to the next in the line.
    /// `unjudged`: it was to show whether the server is back, and has not.
    fn leave(self: &Arc<Self>, server: usize, unjudged: Option<Trying>) {
        if let Some(trial) = unjudged {
            self.lock().standings[server].tried_in_vain(trial);
        }
        loop {
            let (next, heir) = {
                let mut state = self.lock();
                // With his own he may have more than he may: then it goes to nobody.
                let busy = state.busy[server];
                let is_over = self.rules.max_busy.is_some_and(|max| busy > max);
                let takes = self.is_up(&state, server) && !is_over;
                let next = if takes { state.line.first_for(server) } else { None };
                if next.is_none() {
                    state.busy[server] = state.busy[server].saturating_sub(1);
                }
                (next, Heir::of(&state, server))
            };
            let Some(tell) = next else {
                if let Some((heir, there)) = heir {
                    heir.leave(there, None);
                }
                return;
            };
            match tell.send(Place::new(Arc::clone(self), server, None)) {
                Ok(()) => return,
                // He has left in this instant.
                Err(place) => place.forget(),
            }
        }
    }

    fn judge(self: &Arc<Self>, server: usize, trial: Option<Trying>, failure: Option<Failure>) {
        let now = Instant::now();
        let change = {
            let mut state = self.lock();
            let up = state.standings.iter().filter(|standing| standing.is_up()).count();
            let change = match failure {
                None => state.standings[server].succeeded(trial, now),
                Some(failure) => {
                    let may_rest = self.may_rest(failure, self.servers.len() - up);
                    let patience = &self.rules.patience;
                    state.standings[server].failed(trial, may_rest, patience, now)
                }
            };
            self.after(&mut state, change, up, now);
            change
        };
        self.tell(server, change);
    }

    /// Whether a server may rest where so many are out already. The last one has nobody to take its place.
    fn may_rest(&self, failure: Failure, out: usize) -> bool {
        let servers = self.servers.len();
        match failure {
            _ if servers == 1 => false,
            Failure::Unreachable => true,
            Failure::Unanswered => (out + 1) * 2 <= servers,
        }
    }

    /// A check said how a server is.
    pub(super) fn checked(self: &Arc<Self>, server: usize, is_well: bool) {
        let now = Instant::now();
        let change = {
            let mut state = self.lock();
            let up = state.standings.iter().filter(|standing| standing.is_up()).count();
            let change = state.standings[server].checked(is_well, &self.rules.patience, now);
            self.after(&mut state, change, up, now);
            let is_last = !state.standings.iter().any(Standing::is_up);
            change.map(|change| (change, is_last))
        };
        self.tell(server, change.map(|(change, _)| change));
        if let Some((Change::Sick, true)) = change {
            let origin = &*self.name;
            tracing::warn!(
                origin,
                "no server is up: those that checks call sick are asked after all"
            );
        }
    }

    /// What a change means for the others. `up`: how many were up before.
    fn after(&self, state: &mut State, change: Option<Change>, up: usize, now: Instant) {
        match change {
            Some(Change::Rests(_) | Change::Sick) => {
                let servers = 0..self.servers.len();
                let up: Vec<bool> = servers.map(|server| self.is_up(state, server)).collect();
                state.line.dismiss(|server| up[server], up.len());
            }
            Some(Change::Back) if up == 0 => {
                for standing in &mut state.standings {
                    standing.hurry(&self.rules.patience, now);
                }
            }
            Some(Change::Back) | None => {}
        }
    }

    /// Says what has changed, and lets those in who have waited for it.
    fn tell(self: &Arc<Self>, server: usize, change: Option<Change>) {
        let (origin, name) = (&*self.name, self.servers[server].0.as_str());
        match change {
            None => {}
            Some(Change::Rests(rest)) => {
                tracing::warn!(origin, server = name, ?rest, "a server rests: it failed too often");
            }
            Some(Change::Sick) => {
                tracing::warn!(origin, server = name, "a server is out: its health checks fail");
            }
            Some(Change::Back) => {
                tracing::info!(origin, server = name, "a server is back");
                self.let_in(server);
            }
        }
    }

    /// A server that is back takes those who wait.
    fn let_in(self: &Arc<Self>, server: usize) {
        loop {
            let (tell, heir) = {
                let mut state = self.lock();
                let has_room = self.has_room(&state, server);
                let next = if has_room { state.line.first_for(server) } else { None };
                let Some(tell) = next else { return };
                state.busy[server] += 1;
                (tell, Heir::of(&state, server))
            };
            if let Some((heir, there)) = heir {
                heir.count(there);
            }
            // Whoever has left meanwhile gives the place back by dropping it.
            drop(tell.send(Place::new(Arc::clone(self), server, None)));
        }
    }
}

/// What a request is to do.
enum Choice {
    Server(usize),
    /// The same, and what becomes of it says whether the server is back.
    Trial(usize),
    /// To wait for such a server.
    Busy(Wants),
    None,
}

/// Somebody in the line; he leaves it when this is dropped.
struct Seat<'r> {
    roster: &'r Arc<Roster>,
    number: u64,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.roster.lock().line.leave(self.number);
    }
}

#[cfg(test)]
mod tests;
