//! The servers of one origin, as all threads see them: which are up, how many requests each works on, which
//! is next, and which requests wait.
//!
//! All decisions are made under one small lock, which is never held across an await. The rules are separate
//! and pure: `choice` and `balance` choose, `health` decides on rests, `budget` on retries, `wait_queue` on the queue, `places` on the
//! room for each class of requests, `user_places` and `stranger_limits` on what users and strangers may take of it, and `automatic_limit` on how many a
//! server works on well, which `known_servers` keeps for the next process. `handed_servers` is what a successor is told.

mod automatic_limit;
mod balance;
mod budget;
mod choice;
mod handed_servers;
mod health;
mod known_servers;
mod places;
mod queue_report;
mod shared_priority;
mod slot;
mod stranger_limits;
mod user_places;
mod wait_queue;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anteroom_policy::origin::{Balance, Overload};
use anteroom_policy::priority::{Priority, RequestClass};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::background::{BackgroundRequests, BackgroundSlot};
use super::requester::Requester;
use automatic_limit::{AutomaticLimit, RequestAtServer};
use balance::RoundRobin;
use budget::Budget;
use choice::ServerChoice;
pub use handed_servers::{HandedLimit, HandedServer};
pub use health::{FailureRules, RestLeft};
use health::{HealthChange, RunningTrial, ServerHealth, Trial};
use known_servers::KeptServers;
use places::{PlaceLimits, Places};
use queue_report::{QueueChange, QueueReport};
pub use shared_priority::SharedPriority;
pub(super) use slot::ServerSlot;
pub use stranger_limits::StrangerLimits;
use stranger_limits::StrangersAtWork;
use user_places::{UserPlaces, UserQuota};
use wait_queue::{NextRequest, WaitQueue};

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
    /// How long a request waits where `max_busy` is set.
    pub wait_timeout: Duration,
    /// What is done where the servers have more to do than they can.
    pub overload: Overload,
    /// How long a request waits where it is held back by what a server can do, or by a limit of strangers.
    pub patience: Duration,
    /// The most requests of strangers that all servers work on at once.
    pub strangers: StrangerLimits,
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
    /// Whether there is nothing to decide.
    is_plain: bool,
    /// The begin of the seconds by which automatic limits reckon.
    epoch: Instant,
}

#[derive(Debug)]
struct ServerState {
    standings: Vec<ServerHealth>,
    places: Vec<Places>,
    /// Of each server; none where nothing is done about overload.
    automatic: Vec<AutomaticLimit>,
    turns: RoundRobin,
    budget: Budget,
    wait_queue: WaitQueue<WaitingRequest>,
    users: UserPlaces,
    strangers: StrangersAtWork,
    /// What the log was told of the queue of each server.
    reports: Vec<QueueReport>,
    /// What the store has of the automatic limits.
    kept: KeptServers,
    successor: Option<Successor>,
}

impl ServerState {
    /// The servers' work on a request is over.
    fn end_work(&mut self, SlotUse { priority, counts, .. }: &SlotUse) {
        if *counts {
            self.users.leave(priority);
        }
        if self.strangers.end(priority) {
            self.wait_queue.release(priority.flow);
        }
    }
}

/// What is known of a request that waits.
#[derive(Debug)]
struct WaitingRequest {
    sender: oneshot::Sender<ServerSlot>,
    upload: Upload,
}

/// A request that has a place now.
struct SlotGrant {
    sender: oneshot::Sender<ServerSlot>,
    slot_use: SlotUse,
    /// The list that has taken the server over, and the server's index there.
    successor: Option<(Arc<ServerList>, usize)>,
}

/// What a place at a server is used for.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotUse {
    /// When the request was to be served where others wait.
    priority: Priority,
    /// The request, while its answer is waited for; `None`: the servers have no automatic limit.
    at_server: Option<RequestAtServer>,
    begun: Instant,
    /// How long the server took.
    worked: Option<Duration>,
    upload: Upload,
    /// Whether it is work of the server, as far as that is known.
    counts: bool,
}

/// How often a request that waits looks whether there is a place.
const LOOKS_AGAIN: Duration = Duration::from_secs(1);
/// A stranger that would wait for longer than this is refused at once with `overload = "shed"`.
const SHED_WAIT: Duration = Duration::from_secs(1);
/// How long a stranger's request is thought to take at least, if nothing is known of its kind.
const UNKNOWN_WORK: Duration = Duration::from_secs(5);
/// How many places one user may take before others, at least, while strangers wait: for as long as a page takes, and for
/// longer; and while none wait.
const QUOTA_MIN: u32 = 8;
const LASTING_MIN: u32 = 2;
const QUOTA_IN_CALM: u32 = 16;

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
    /// The same by class, in the order of [`RequestClass::ALL`].
    pub by_class: [u32; RequestClass::ALL.len()],
    /// How many requests it may work on before strangers wait; `None`: as many as there are.
    pub limit: Option<u32>,
    /// Whether it is found to have a queue because of what it is asked.
    pub has_queue: bool,
    /// Whether strangers wait because of that.
    pub holds_back: bool,
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

/// What a request sends besides its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upload {
    None,
    /// It comes with the head, or soon after.
    Small,
    /// The answer may take as long as the client, so its time says nothing of the server.
    Large,
}

/// What a request needs from a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerWanted<'w> {
    /// Of whom it is.
    pub(super) requester: Requester<'w>,
    /// The priority of all who wait for its answer, if there may be several.
    pub(super) shared: Option<&'w SharedPriority>,
    /// Whether it can be sent again if the server fails.
    pub(super) is_repeatable: bool,
    pub(super) upload: Upload,
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
pub(super) enum FoundServer {
    Place(ServerSlot),
    Wait(QueueTicket),
    /// The queue is full.
    Full,
    /// No server is up, and other requests try them.
    Resting,
}

/// What a request has that waits in the queue.
#[derive(Debug)]
pub(super) struct QueueTicket {
    number: u64,
    /// How its requester ranked.
    priority: Priority,
    since: Instant,
    /// A place will be sent, or the channel closes when the wait for that server ends.
    receiver: oneshot::Receiver<ServerSlot>,
}

/// Why there is no server for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoServer {
    /// All are at their limit, and none was ready in time.
    Crowded,
    /// None is up.
    Resting,
}

impl ServerRules {
    fn longest_wait(&self) -> Duration {
        if self.max_busy.is_some() { self.wait_timeout } else { self.patience }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a limit is small")]
fn whole(limit: f64) -> u32 {
    limit as u32
}

impl ServerList {
    /// The servers of the origin `name`, each with its weight.
    #[must_use]
    pub fn new(name: &str, servers: Vec<(String, u32)>, rules: ServerRules) -> Arc<Self> {
        let count = servers.len();
        let is_plain = count == 1
            && rules.max_busy.is_none()
            && rules.overload == Overload::Off
            && rules.strangers.are_none();
        let state = Mutex::new(ServerState {
            standings: vec![ServerHealth::default(); count],
            places: vec![Places::default(); count],
            automatic: match rules.overload {
                Overload::Order | Overload::Shed => vec![AutomaticLimit::new(0.0, false); count],
                Overload::Watch => vec![AutomaticLimit::new(0.0, true); count],
                Overload::Off => Vec::new(),
            },
            turns: RoundRobin::new(count),
            budget: Budget::new(rules.retry_percent, Instant::now()),
            wait_queue: WaitQueue::new(
                rules.max_waiting,
                rules.strangers.max_waiting_per_network(),
            ),
            users: UserPlaces::default(),
            strangers: StrangersAtWork::new(rules.strangers),
            reports: vec![QueueReport::default(); count],
            kept: KeptServers::default(),
            successor: None,
        });
        let (background, epoch) = (Arc::default(), Instant::now());
        Arc::new(Self { name: name.into(), servers, rules, state, background, is_plain, epoch })
    }

    /// Takes over what `old` knows of servers that are also in this list, by name. A rest continues
    /// unchanged, and requests in progress count here as well until they end, except towards limits of strangers.
    pub fn learn_from(self: &Arc<Self>, old: &Self) {
        let mut known = old.lock();
        let mut state = self.lock();
        let place =
            |(name, _): &(String, u32)| self.servers.iter().position(|(own, _)| own == name);
        let places: Arc<[Option<usize>]> = old.servers.iter().map(place).collect();
        for (at, here) in places.iter().enumerate() {
            let Some(here) = *here else { continue };
            // A sole server is always asked, and never tried.
            if self.servers.len() > 1 {
                state.standings[here] = known.standings[at].taken_over();
            }
            state.places[here] = known.places[at];
            if let (Some(own), Some(limit)) =
                (state.automatic.get_mut(here), known.automatic.get(at))
            {
                *own = limit.taken_over(self.seconds(Instant::now()));
            }
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

    /// The same, to be kept.
    pub(super) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether there is nothing to decide.
    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// How each of its servers is.
    #[must_use]
    pub fn standings(&self) -> Vec<ServerStanding<'_>> {
        let state = self.lock();
        let limit = |server: usize| {
            let PlaceLimits { max, automatic } = self.limits(&state, server);
            [max, automatic.map(|(limit, _)| limit)].into_iter().flatten().min()
        };
        let standing = |server: usize| ServerStanding {
            name: &self.servers[server].0,
            is_up: state.standings[server].is_up(),
            weight: self.servers[server].1,
            busy: state.places[server].taken(),
            by_class: state.places[server].by_class(),
            limit: limit(server),
            has_queue: state.automatic.get(server).is_some_and(AutomaticLimit::has_queue),
            holds_back: state
                .automatic
                .get(server)
                .is_some_and(|limit| limit.has_queue() && limit.is_full()),
        };
        (0..self.servers.len()).map(standing).collect()
    }

    /// How many requests wait for a server.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().wait_queue.len()
    }

    /// The same by class, in the order of [`RequestClass::ALL`].
    #[must_use]
    pub fn waiting_by_class(&self) -> [usize; RequestClass::ALL.len()] {
        self.lock().wait_queue.by_class()
    }

    /// A place for a request of the proxy's own accord. There is none while no server is up, or while
    /// requests of visitors wait for one. Those that only a limit of strangers holds back leave the servers free.
    pub(super) fn background_slot(&self) -> Option<BackgroundSlot> {
        let is_ready = {
            let state = self.lock();
            !state.wait_queue.waits_for_servers(&state.strangers)
                && state.standings.iter().any(ServerHealth::is_up)
        };
        is_ready.then(|| self.background.take(Instant::now())).flatten()
    }

    fn lock(&self) -> MutexGuard<'_, ServerState> {
        // No code that holds this lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request is sent for the first time. PERF: a sole server has no other that could take it.
    pub(super) fn count_request(&self) {
        if self.servers.len() > 1 {
            self.lock().budget.request();
        }
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
        self.slot_after(self.find(wanted), wanted).await
    }

    /// The same, after a look for one.
    pub(super) async fn slot_after(
        self: &Arc<Self>,
        mut found: FoundServer,
        wanted: &ServerWanted<'_>,
    ) -> Result<ServerSlot, NoServer> {
        let mut deadline = None;
        loop {
            let QueueTicket { number, priority, since, receiver } = match found {
                FoundServer::Place(place) => return Ok(place),
                FoundServer::Full => return Err(NoServer::Crowded),
                FoundServer::Resting => return Err(NoServer::Resting),
                FoundServer::Wait(ticket) => ticket,
            };
            let deadline = *deadline.get_or_insert_with(|| since + self.rules.longest_wait());
            let seat = QueuedRequest { server_list: self, number, shared: wanted.shared };
            if let Some(shared) = wanted.shared {
                shared.waits_in(self, number, priority);
            }
            match self.wait(number, priority, receiver, deadline).await {
                Some(Ok(place)) => return Ok(place),
                // The servers that the request waited for are out, or a better one has its place in the queue.
                Some(Err(_)) => {}
                None => return Err(NoServer::Crowded),
            }
            drop(seat);
            found = self.find(wanted);
        }
    }

    /// Waits for a place; `None`: there was none in time. Reserves, what is thought to wait at a server, and the rank of a user
    /// with several requests change with time, so it looks now and then.
    async fn wait(
        self: &Arc<Self>,
        number: u64,
        priority: Priority,
        mut receiver: oneshot::Receiver<ServerSlot>,
        deadline: Instant,
    ) -> Option<Result<ServerSlot, oneshot::error::RecvError>> {
        loop {
            let next = (Instant::now() + LOOKS_AGAIN).min(deadline);
            if let Ok(place) = tokio::time::timeout_at(next, &mut receiver).await {
                return Some(place);
            }
            let now = Instant::now();
            if now >= deadline {
                return None;
            }
            self.raise(number, priority);
            self.observe(&mut self.lock(), now);
            self.admit_all(now);
        }
    }

    /// Looks for a place. A request that gets a ticket goes on with [`Self::slot_after`] at once. PERF: most get a place, and need no
    /// future that waits.
    pub(super) fn find(self: &Arc<Self>, wanted: &ServerWanted<'_>) -> FoundServer {
        let now = Instant::now();
        let best = wanted.shared.and_then(SharedPriority::best);
        let asked = best.unwrap_or(wanted.requester.priority);
        let mut guard = self.lock();
        let state = &mut *guard;
        let priority = self.ranked(state, asked, now);
        let (server, is_trial) = match self.choose(state, wanted, &priority, now) {
            ServerChoice::Server(server) => (server, false),
            ServerChoice::Trial(server) => (server, true),
            ServerChoice::None => return FoundServer::Resting,
            ServerChoice::Busy(_) if self.is_shed(state, priority.class) => {
                return FoundServer::Full;
            }
            ServerChoice::Busy(wants) => {
                let (sender, receiver) = oneshot::channel();
                let waiter = WaitingRequest { sender, upload: wanted.upload };
                let number = state.wait_queue.join(wants, priority, waiter, &state.strangers);
                if number.is_some() {
                    state.users.take(&priority, now);
                }
                let has_grown = self.observe(state, now);
                drop(guard);
                if has_grown {
                    self.admit_all(now);
                }
                let Some(number) = number else { return FoundServer::Full };
                return FoundServer::Wait(QueueTicket {
                    number,
                    priority: asked,
                    since: now,
                    receiver,
                });
            }
        };
        state.wait_queue.passed(&priority);
        state.users.take(&priority, now);
        let slot_use = self.take(state, server, priority, wanted.upload, now);
        let trial = is_trial.then(|| state.standings[server].try_it(wanted.trial(), now));
        let successor = Successor::of(state, server);
        drop(guard);
        if let Some((successor, there)) = successor {
            successor.count(there, &slot_use);
        }
        FoundServer::Place(ServerSlot::new(Arc::clone(self), server, trial, slot_use))
    }

    /// A request as it ranks now: of one user's requests, those beyond a quarter of the places rank as those of class seen, and
    /// count towards no limit of theirs.
    fn ranked(&self, state: &ServerState, priority: Priority, now: Instant) -> Priority {
        let is_over = state.users.is_full_of(&priority, now, || self.quota(state));
        let class = if is_over { RequestClass::Seen } else { priority.class };
        Priority { class, is_over_quota: is_over, ..priority }
    }

    /// Whether a request is refused at once, because it would wait for too long.
    fn is_shed(&self, state: &ServerState, class: RequestClass) -> bool {
        if self.rules.overload != Overload::Shed || !class.is_stranger() {
            return false;
        }
        let before = state.wait_queue.strangers_until(class, &state.strangers) as f64;
        let before = before / self.servers.len() as f64;
        let is_long = |limit: &AutomaticLimit| {
            limit.has_queue() && limit.predicted_wait(before) > SHED_WAIT.as_secs_f64()
        };
        state.automatic.iter().all(is_long)
    }

    /// A better request waits for the answer to the one with this ticket.
    fn raise(self: &Arc<Self>, ticket: u64, priority: Priority) {
        let now = Instant::now();
        {
            let mut guard = self.lock();
            let state = &mut *guard;
            let priority = self.ranked(state, priority, now);
            if !state.wait_queue.raise(ticket, priority, &state.strangers) {
                return;
            }
            state.users.take(&priority, now);
            self.observe(state, now);
        }
        self.admit_all(now);
    }

    /// Whether a request may wait because of what others of its network take.
    fn limits_networks(&self) -> bool {
        self.rules.strangers.max_per_network.is_some()
    }

    /// How many places one user may take before others.
    fn quota(&self, state: &ServerState) -> UserQuota {
        if let Some(max) = self.rules.max_busy {
            let quarter = (max.saturating_mul(self.servers.len() as u32) / 4).max(1);
            return UserQuota { burst: quarter, lasting: quarter };
        }
        let limit: f64 = state.automatic.iter().map(AutomaticLimit::limit).sum();
        let quarter = whole(limit / 4.0);
        if state.automatic.iter().any(AutomaticLimit::is_full) {
            return UserQuota { burst: quarter.max(QUOTA_MIN), lasting: quarter.max(LASTING_MIN) };
        }
        let in_calm = quarter.max(QUOTA_IN_CALM);
        UserQuota { burst: in_calm, lasting: in_calm }
    }

    /// Takes a place at a server.
    fn take(
        &self,
        state: &mut ServerState,
        server: usize,
        priority: Priority,
        upload: Upload,
        now: Instant,
    ) -> SlotUse {
        state.places[server].take(priority.class, now);
        state.strangers.begin(&priority);
        if state.strangers.is_full_of(priority.flow) && self.rules.strangers.count(&priority) {
            state.wait_queue.hold(priority.flow);
        }
        let seconds = self.seconds(now);
        let at_server = state
            .automatic
            .get_mut(server)
            .map(|limit| limit.begin(seconds, priority.page_kind, upload != Upload::None));
        // A long poll is no work, and so takes nothing from its user.
        let counts = at_server.is_none_or(|request| request.counts());
        if !counts {
            state.users.leave(&priority);
        }
        SlotUse { priority, at_server, begun: now, worked: None, upload, counts }
    }

    /// The seconds of the automatic limits.
    fn seconds(&self, now: Instant) -> f64 {
        now.saturating_duration_since(self.epoch).as_secs_f64()
    }

    /// Tells the limits whether strangers wait. Returns whether a server has more room than was.
    fn observe(&self, state: &mut ServerState, now: Instant) -> bool {
        let seconds = self.seconds(now);
        // Those that wait are shared among all servers, as what comes is. What a limit of strangers holds back says nothing of
        // the servers; logins beyond their own places wait for them as strangers do.
        let waiting = match self.rules.overload {
            Overload::Watch => 0.0,
            Overload::Order | Overload::Shed | Overload::Off => {
                state.wait_queue.held_back(&state.strangers) as f64 / self.servers.len() as f64
            }
        };
        let mut has_grown = false;
        for limit in &mut state.automatic {
            has_grown |= limit.observe(seconds, waiting);
        }
        has_grown
    }

    fn limits(&self, state: &ServerState, server: usize) -> PlaceLimits {
        let is_enforced = self.rules.overload != Overload::Watch;
        let automatic = state.automatic.get(server).filter(|_| is_enforced);
        let automatic = automatic.map(|limit| (whole(limit.limit()), limit.at_server()));
        PlaceLimits { max: self.rules.max_busy, automatic }
    }

    /// A server taken over from another list works on one more request.
    fn count(&self, server: usize, slot_use: &SlotUse) {
        let successor = {
            let mut state = self.lock();
            state.places[server].take(slot_use.priority.class, slot_use.begun);
            Successor::of(&state, server)
        };
        if let Some((successor, there)) = successor {
            successor.count(there, slot_use);
        }
    }

    /// A request is over: its place goes to the next in the queue.
    fn leave(self: &Arc<Self>, server: usize, slot_use: &SlotUse) {
        let (successor, granted) = {
            let mut state = self.lock();
            self.end_use(&mut state, server, slot_use);
            // PERF: mostly none waits. A later request sees what is free.
            let granted = (state.wait_queue.len() > 0).then(|| {
                let now = Instant::now();
                (self.grant(&mut state, server, now), now)
            });
            (Successor::of(&state, server), granted)
        };
        if let Some((next, now)) = granted {
            let has_next = next.is_some();
            if let Some(next) = next {
                self.hand_over(server, next);
            }
            if has_next || self.rules.strangers.count(&slot_use.priority) {
                self.admit_after(server, &slot_use.priority, now);
            }
        }
        if let Some((successor, there)) = successor {
            successor.leave_taken_over(there, slot_use);
        }
    }

    /// The same for a place at a server that was taken over from another list.
    fn leave_taken_over(self: &Arc<Self>, server: usize, slot_use: &SlotUse) {
        let now = Instant::now();
        let successor = {
            let mut state = self.lock();
            state.places[server].leave(slot_use.priority.class);
            Successor::of(&state, server)
        };
        self.admit(server, now);
        if let Some((successor, there)) = successor {
            successor.leave_taken_over(there, slot_use);
        }
    }

    /// A trial was given up without a result.
    fn end_trial(&self, server: usize, trial: RunningTrial) {
        self.lock().standings[server].tried_in_vain(trial);
    }

    /// How much longer a server is thought to work on a request that was given up: until twice the usual time of its kind.
    /// Of one that a limit of strangers counts, what is not known is taken to be long, so that hanging up gains no place.
    fn works_on(&self, server: usize, slot_use: &SlotUse) -> Duration {
        if slot_use.worked.is_some() {
            return Duration::ZERO;
        }
        let now = Instant::now();
        let usual = {
            let state = self.lock();
            let limit = state.automatic.get(server).zip(slot_use.at_server.as_ref());
            if self.rules.strangers.count(&slot_use.priority) {
                let known = limit.and_then(|(limit, request)| limit.usual_however_long(request));
                known.unwrap_or_else(|| {
                    now.saturating_duration_since(slot_use.begun).max(UNKNOWN_WORK).as_secs_f64()
                })
            } else {
                limit.and_then(|(limit, request)| limit.usual(request)).unwrap_or_default()
            }
        };
        let until = slot_use.begun + Duration::from_secs_f64(2.0 * usual.max(0.0));
        until.saturating_duration_since(now)
    }

    fn end_use(&self, state: &mut ServerState, server: usize, slot_use: &SlotUse) {
        let SlotUse { priority, at_server, begun, worked, counts, .. } = slot_use;
        state.places[server].leave(priority.class);
        // After its head, a stream or a tunnel is no work of the app any more.
        if worked.is_none() {
            state.end_work(slot_use);
        }
        if let Some((limit, request)) = state.automatic.get_mut(server).zip(at_server.as_ref()) {
            limit.end(request);
        }
        let worked = worked.unwrap_or_else(|| begun.elapsed());
        let charged = if *counts { worked } else { Duration::ZERO };
        state.wait_queue.charge(priority, charged.as_secs_f64());
    }

    /// Gives what a request has left to those that wait: its place, and where strangers are limited and it was one's, that
    /// of a stranger at any server.
    fn admit_after(self: &Arc<Self>, server: usize, priority: &Priority, now: Instant) {
        match self.rules.strangers.count(priority) {
            true => self.admit_all(now),
            false => self.admit(server, now),
        }
    }

    fn admit_all(self: &Arc<Self>, now: Instant) {
        (0..self.servers.len()).for_each(|server| self.admit(server, now));
    }

    /// Gives the free places of a server to the requests that wait for it.
    fn admit(self: &Arc<Self>, server: usize, now: Instant) {
        loop {
            let granted = self.grant(&mut self.lock(), server, now);
            let Some(granted) = granted else { return };
            self.hand_over(server, granted);
        }
    }

    /// The next request that gets a place at a server.
    fn grant(&self, state: &mut ServerState, server: usize, now: Instant) -> Option<SlotGrant> {
        if state.wait_queue.len() == 0 || !self.is_up(state, server) {
            return None;
        }
        let (places, limits) = (state.places[server], self.limits(state, server));
        let may_take = |class| places.has_room(class, limits, now);
        let log_ins_first = places.log_ins_first(limits);
        let next = state.wait_queue.next_for(server, log_ins_first, &state.strangers, may_take)?;
        let NextRequest { priority, tell } = next;
        let slot_use = self.take(state, server, priority, tell.upload, now);
        self.observe(state, now);
        Some(SlotGrant { sender: tell.sender, slot_use, successor: Successor::of(state, server) })
    }

    fn hand_over(self: &Arc<Self>, server: usize, granted: SlotGrant) {
        let SlotGrant { sender, slot_use, successor } = granted;
        if let Some((successor, there)) = successor {
            successor.count(there, &slot_use);
        }
        // If the request has left meanwhile, dropping the place returns it.
        drop(sender.send(ServerSlot::new(Arc::clone(self), server, None, slot_use)));
    }

    fn judge(
        self: &Arc<Self>,
        server: usize,
        trial: Option<RunningTrial>,
        failure: Option<ServerFailure>,
        slot_use: &mut SlotUse,
        now: Instant,
    ) {
        let (change, queue_change, has_waiting) = {
            let mut state = self.lock();
            let queue_change = self.note_answer(&mut state, server, failure, slot_use, now);
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
            (change, queue_change, state.wait_queue.len() > 0)
        };
        self.report(server, change);
        if let Some(change) = queue_change {
            change.log(&self.name, &self.servers[server].0, self.rules.overload);
        }
        if has_waiting {
            self.admit_after(server, &slot_use.priority, now);
        }
    }

    /// Tells the limit of a server how long it took. Returns what the log is to be told of its queue.
    fn note_answer(
        &self,
        state: &mut ServerState,
        server: usize,
        failure: Option<ServerFailure>,
        slot_use: &mut SlotUse,
        now: Instant,
    ) -> Option<QueueChange> {
        if slot_use.worked.is_none() {
            state.end_work(slot_use);
        }
        slot_use.worked = Some(now.saturating_duration_since(slot_use.begun));
        let request = slot_use.at_server.take()?;
        let seconds = self.seconds(now);
        let limit = state.automatic.get_mut(server)?;
        match failure {
            None if slot_use.upload == Upload::Large => limit.answer_untimed(seconds, &request),
            None => limit.answer(seconds, &request),
            Some(_) => limit.end(&request),
        }
        state.reports[server].change(limit, seconds)
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
                let gone = state.wait_queue.dismiss(|server| up[server], up.len());
                gone.iter().for_each(|priority| state.users.leave(priority));
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
                self.admit(server, Instant::now());
            }
        }
    }
}

/// A request in the queue; dropping this removes it.
struct QueuedRequest<'r> {
    server_list: &'r Arc<ServerList>,
    number: u64,
    shared: Option<&'r SharedPriority>,
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared {
            shared.waits_no_more();
        }
        let mut state = self.server_list.lock();
        if let Some(priority) = state.wait_queue.leave(self.number) {
            state.users.leave(&priority);
        }
        self.server_list.observe(&mut state, Instant::now());
    }
}

#[cfg(test)]
mod tests;
