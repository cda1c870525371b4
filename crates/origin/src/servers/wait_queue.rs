//! The queue of requests that wait for a server: the best class first, and within a class all flows alike.
//!
//! Flows are served by start-time fair queueing: a request starts where the last one of its flow ended, or now, in seconds of
//! the origin; the earliest start is next. So a flow with many requests waits for itself, and one that was idle for nothing.
//!
//! A flow of strangers is in a lane, by the limits that hold it back. A lane at its limit is passed over as a whole. A flow
//! whose network is at its limit is out of the order, and comes back when the network has room. So what may not
//! be served is not walked over.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use anteroom_policy::priority::{Priority, RequestClass};

use super::stranger_limits::{Lane, StrangersAtWork, Tally, max_waiting_on};

/// The most flows of a class that are told apart; the others share a few.
const FLOWS_MAX: usize = 16_384;
const SHARED_FLOWS: u64 = 256;
/// How many more flows share at once after all were walked over, and none could go.
const SHARED_AT_ONCE: u32 = 1_024;
/// Every so many grants, a stranger comes before known visitors, and a new one before those who were seen.
const STRANGERS_TURN: u64 = 8;

/// Which server a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitsFor {
    /// Any.
    Any,
    /// Any but the one that has failed it.
    Not(usize),
    /// This one.
    Only(usize),
}

impl WaitsFor {
    pub(super) fn takes(self, server: usize) -> bool {
        match self {
            Self::Any => true,
            Self::Not(other) => other != server,
            Self::Only(wanted) => wanted == server,
        }
    }
}

/// The rank of a request in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
    Known,
    LogInForm,
    LogInPage,
    Seen,
    New,
    Background,
}

const RANKS: usize = 6;
type Order = [Rank; RANKS];
/// In which order ranks are served: while logins have fewer places than are theirs; while they have them, in turns; and when
/// it is the strangers' turn.
const USUAL_ORDER: Order =
    [Rank::Known, Rank::LogInForm, Rank::LogInPage, Rank::Seen, Rank::New, Rank::Background];
const FORMS_ORDER: Order =
    [Rank::Known, Rank::Seen, Rank::LogInForm, Rank::New, Rank::LogInPage, Rank::Background];
const PAGES_ORDER: Order =
    [Rank::Known, Rank::Seen, Rank::New, Rank::LogInPage, Rank::LogInForm, Rank::Background];
const STRANGERS_ORDER: Order =
    [Rank::New, Rank::LogInForm, Rank::Seen, Rank::LogInPage, Rank::Known, Rank::Background];

impl Rank {
    fn of(priority: &Priority) -> Self {
        match (priority.class, priority.is_change) {
            (RequestClass::Known, _) => Self::Known,
            (RequestClass::LogIn, true) => Self::LogInForm,
            (RequestClass::LogIn, false) => Self::LogInPage,
            (RequestClass::Seen, _) => Self::Seen,
            (RequestClass::New, _) => Self::New,
            (RequestClass::Background, _) => Self::Background,
        }
    }

    fn class(self) -> RequestClass {
        match self {
            Self::Known => RequestClass::Known,
            Self::LogInForm | Self::LogInPage => RequestClass::LogIn,
            Self::Seen => RequestClass::Seen,
            Self::New => RequestClass::New,
            Self::Background => RequestClass::Background,
        }
    }
}

/// A waiting request, and the channel that notifies it.
#[derive(Debug)]
struct Waiter<T> {
    wants: WaitsFor,
    priority: Priority,
    /// The flow under which it is kept.
    key: FlowKey,
    tell: T,
}

/// A request that has a place now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NextRequest<T> {
    pub(super) priority: Priority,
    pub(super) tell: T,
}

/// A bounded queue.
#[derive(Debug)]
pub(super) struct WaitQueue<T> {
    /// By ticket number.
    waiters: HashMap<u64, Waiter<T>>,
    ranks: [FairQueue; RANKS],
    max: usize,
    next: u64,
    grants: u64,
    /// How many requests of each class wait.
    counts: [usize; RequestClass::ALL.len()],
    /// How many tickets of requests that have left are still in the ranks.
    dead: usize,
    /// The most requests of strangers of one network that wait; and how many do, where that is limited.
    network_max: Option<u32>,
    networks: Tally,
    /// How many requests of strangers wait for each route with a limit of its own.
    routes: Tally,
}

/// The fewest dead tickets that are swept out at once.
const DEAD_MIN: usize = 64;

impl<T> WaitQueue<T> {
    /// A queue of up to `max` requests, and up to `network_max` of each network's strangers.
    pub(super) fn new(max: usize, network_max: Option<u32>) -> Self {
        let ranks = std::array::from_fn(|_| FairQueue::default());
        Self {
            waiters: HashMap::new(),
            ranks,
            max,
            next: 0,
            grants: 0,
            counts: Default::default(),
            dead: 0,
            network_max,
            networks: Tally::default(),
            routes: Tally::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// How many requests of each class wait, in the order of [`RequestClass::ALL`].
    pub(super) fn by_class(&self) -> [usize; RequestClass::ALL.len()] {
        self.counts
    }

    /// How many requests wait for a server that its automatic limit may hold back: all but those of known visitors. Those that
    /// a limit of strangers holds back do not.
    pub(super) fn held_back(&self, strangers: &StrangersAtWork) -> usize {
        self.strangers_until(RequestClass::Background, strangers)
            + self.counts[RequestClass::LogIn as usize]
    }

    /// How many of them are of this class or of a better one.
    pub(super) fn strangers_until(
        &self,
        class: RequestClass,
        strangers: &StrangersAtWork,
    ) -> usize {
        let is_one = |of: &RequestClass| of.is_stranger() && *of <= class;
        let classes = RequestClass::ALL.into_iter().filter(is_one);
        classes.map(|of| self.class_for_servers(of, strangers)).sum()
    }

    /// Whether a request waits for more than room under a limit of strangers.
    pub(super) fn waits_for_servers(&self, strangers: &StrangersAtWork) -> bool {
        self.ranks.iter().any(|rank| rank.for_servers(strangers) > 0)
    }

    /// How many requests of a class wait for more than room under a limit of strangers.
    fn class_for_servers(&self, class: RequestClass, strangers: &StrangersAtWork) -> usize {
        let ranks =
            USUAL_ORDER.into_iter().zip(&self.ranks).filter(|(rank, _)| rank.class() == class);
        ranks.map(|(_, queue)| queue.for_servers(strangers)).sum()
    }

    /// Appends to the queue and returns a ticket number; `None` if the queue is full, or has as many of its network or of its
    /// route as may wait. A full one loses its least request, if that is less than this one.
    pub(super) fn join(
        &mut self,
        wants: WaitsFor,
        priority: Priority,
        tell: T,
        strangers: &StrangersAtWork,
    ) -> Option<u64> {
        if self.has_enough_of(&priority) {
            return None;
        }
        if self.waiters.len() >= self.max && !self.make_room(&priority, strangers) {
            return None;
        }
        let number = self.next;
        self.next += 1;
        let rank = &mut self.ranks[Rank::of(&priority) as usize];
        let key = rank.join(FlowKey::of(&priority), number, strangers);
        self.count(&priority);
        self.waiters.insert(number, Waiter { wants, priority, key, tell });
        Some(number)
    }

    /// Whether as many requests of its network or of its route wait as may.
    fn has_enough_of(&self, priority: &Priority) -> bool {
        if !priority.counts_as_stranger() {
            return false;
        }
        let waiting = self.networks.count(priority.flow);
        self.network_max.is_some_and(|max| waiting >= max)
            || priority
                .route_limit
                .is_some_and(|limit| self.routes.count(limit.route) >= max_waiting_on(limit))
    }

    fn count(&mut self, priority: &Priority) {
        self.counts[priority.class as usize] += 1;
        if !priority.counts_as_stranger() {
            return;
        }
        if self.network_max.is_some() {
            self.networks.add(priority.flow);
        }
        if let Some(limit) = priority.route_limit {
            self.routes.add(limit.route);
        }
    }

    fn discount(&mut self, priority: &Priority) {
        self.counts[priority.class as usize] -= 1;
        if !priority.counts_as_stranger() {
            return;
        }
        if self.network_max.is_some() {
            self.networks.remove(priority.flow);
        }
        if let Some(limit) = priority.route_limit {
            self.routes.remove(limit.route);
        }
    }

    /// Drops a request of the worst class for this one: the last that a limit of strangers holds back, or else the last. In
    /// the class of this request, only one that is held back goes, and only for one that is not.
    fn make_room(&mut self, priority: &Priority, strangers: &StrangersAtWork) -> bool {
        let is_waiting = |class: &RequestClass| self.counts[*class as usize] > 0;
        let worst = RequestClass::ALL.into_iter().rev().find(is_waiting);
        let Some(worst) = worst.filter(|worst| *worst >= priority.class) else { return false };
        let is_worse = worst > priority.class;
        // PERF: counts first, so that a full queue is not walked over for each request that it refuses.
        let has_held = self.counts[worst as usize] > self.class_for_servers(worst, strangers);
        if !is_worse && (!has_held || !strangers.have_room(priority)) {
            return false;
        }
        let of_class = self.waiters.iter().filter(|(_, waiter)| waiter.priority.class == worst);
        let last = of_class
            .map(|(number, waiter)| (!strangers.have_room(&waiter.priority), *number))
            .max();
        last.filter(|(is_held, _)| is_worse || *is_held)
            .is_some_and(|(_, number)| self.leave(number).is_some())
    }

    /// Removes the request that is next at this server. `may_take`: whether there is a place for a class; `log_ins_first`:
    /// whether logins have fewer places than are theirs.
    pub(super) fn next_for(
        &mut self,
        server: usize,
        log_ins_first: bool,
        strangers: &StrangersAtWork,
        may_take: impl Fn(RequestClass) -> bool,
    ) -> Option<NextRequest<T>> {
        if self.waiters.is_empty() {
            return None;
        }
        let order = match self.grants % STRANGERS_TURN {
            turn if turn == STRANGERS_TURN - 1 => STRANGERS_ORDER,
            _ if log_ins_first => USUAL_ORDER,
            turn if turn % 2 == 0 => FORMS_ORDER,
            _ => PAGES_ORDER,
        };
        for rank in order.into_iter().filter(|rank| may_take(rank.class())) {
            let waiters = &self.waiters;
            let takes = |number: u64| {
                let waiter = waiters.get(&number).filter(|one| Rank::of(&one.priority) == rank)?;
                Some(waiter.wants.takes(server) && strangers.have_room(&waiter.priority))
            };
            if let Some(number) = self.ranks[rank as usize].pick(strangers, takes) {
                self.grants += 1;
                let Waiter { priority, tell, .. } = self.remove(number)?;
                self.forget_when_empty();
                return Some(NextRequest { priority, tell });
            }
        }
        None
    }

    /// The request with this ticket ranks as `priority` from now on, if that is better: of a better class, or of the same
    /// one from a network that is not at its limit. Returns whether it is.
    pub(super) fn raise(
        &mut self,
        number: u64,
        priority: Priority,
        strangers: &StrangersAtWork,
    ) -> bool {
        let Some(waiter) = self.waiters.get_mut(&number) else { return false };
        let before = waiter.priority;
        let is_held = |of: &Priority| of.counts_as_stranger() && strangers.is_full_of(of.flow);
        let is_freed = priority.class == before.class && is_held(&before) && !is_held(&priority);
        if priority.class >= before.class && !is_freed {
            return false;
        }
        self.ranks[Rank::of(&before) as usize].depart(waiter.key);
        let rank = &mut self.ranks[Rank::of(&priority) as usize];
        waiter.key = rank.join(FlowKey::of(&priority), number, strangers);
        waiter.priority = priority;
        self.discount(&before);
        self.count(&priority);
        // One of its two tickets is dead.
        self.dead += 1;
        true
    }

    /// A network has as many requests at the servers as it may.
    pub(super) fn hold(&mut self, network: u64) {
        for rank in [Rank::Seen, Rank::New] {
            self.ranks[rank as usize].hold(network);
        }
    }

    /// A network has room for a request at the servers again.
    pub(super) fn release(&mut self, network: u64) {
        for rank in [Rank::Seen, Rank::New] {
            self.ranks[rank as usize].release(network);
        }
    }

    /// A request was sent at once. Where none waits, it takes nothing from others.
    pub(super) fn passed(&mut self, priority: &Priority) {
        if self.waiters.is_empty() {
            return;
        }
        self.ranks[Rank::of(priority) as usize].passed(FlowKey::of(priority));
    }

    /// A request of this flow has kept the origin at work for so many seconds.
    pub(super) fn charge(&mut self, priority: &Priority, seconds: f64) {
        self.ranks[Rank::of(priority) as usize].charge(FlowKey::of(priority), seconds);
    }

    /// Removes the requests that wait for none of the servers that are up, so that they look again or fail. Returns how they
    /// ranked.
    pub(super) fn dismiss(
        &mut self,
        is_up: impl Fn(usize) -> bool,
        servers: usize,
    ) -> Vec<Priority> {
        let can_hope =
            |wants: WaitsFor| (0..servers).any(|server| wants.takes(server) && is_up(server));
        let hopeless = self.waiters.iter().filter(|(_, waiter)| !can_hope(waiter.wants));
        let numbers: Vec<u64> = hopeless.map(|(number, _)| *number).collect();
        let gone = numbers.into_iter().filter_map(|number| self.remove(number));
        let gone = gone.map(|waiter| waiter.priority).collect();
        self.sweep();
        gone
    }

    /// The request no longer waits. Returns how it ranked, if it did wait.
    pub(super) fn leave(&mut self, number: u64) -> Option<Priority> {
        let priority = self.remove(number)?.priority;
        self.dead += 1;
        if self.dead > self.waiters.len().max(DEAD_MIN) {
            self.sweep();
        }
        self.forget_when_empty();
        Some(priority)
    }

    fn remove(&mut self, number: u64) -> Option<Waiter<T>> {
        let waiter = self.waiters.remove(&number)?;
        self.ranks[Rank::of(&waiter.priority) as usize].depart(waiter.key);
        self.discount(&waiter.priority);
        Some(waiter)
    }

    fn sweep(&mut self) {
        let waiters = &self.waiters;
        for (rank, tickets) in USUAL_ORDER.into_iter().zip(&mut self.ranks) {
            let is_here = |waiter: &Waiter<T>| Rank::of(&waiter.priority) == rank;
            tickets.retain(|number| waiters.get(&number).is_some_and(is_here));
        }
        self.dead = 0;
        self.forget_when_empty();
    }

    /// Where no request waits, none has to be fair to others.
    fn forget_when_empty(&mut self) {
        if self.waiters.is_empty() {
            self.ranks.iter_mut().for_each(FairQueue::clear);
            self.dead = 0;
        }
    }
}

/// The flow of a request, and its lane. A network that asks for routes with limits of their own has a flow in each lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct FlowKey {
    flow: u64,
    lane: Lane,
}

impl FlowKey {
    fn of(priority: &Priority) -> Self {
        Self { flow: priority.flow, lane: Lane::of(priority) }
    }

    /// The flow that it shares with others where too many are told apart.
    fn shared(self) -> Self {
        Self { flow: self.flow % SHARED_FLOWS, ..self }
    }
}

/// The place of a flow in the order: its next start, in microseconds of the origin, and its first ticket.
type Place = (u64, u64, FlowKey);

/// The flows with tickets that may be next, by lanes. No lane is empty.
#[derive(Debug, Default)]
struct FlowOrder(BTreeMap<Lane, BTreeSet<Place>>);

impl FlowOrder {
    fn insert(&mut self, place: Place) {
        self.0.entry(place.2.lane).or_default().insert(place);
    }

    fn remove(&mut self, place: &Place) {
        let Some(lane) = self.0.get_mut(&place.2.lane) else { return };
        lane.remove(place);
        if lane.is_empty() {
            self.0.remove(&place.2.lane);
        }
    }

    fn of(&self, lane: Lane) -> impl Iterator<Item = Place> {
        self.0.get(&lane).into_iter().flatten().copied()
    }

    /// The lanes whose limits leave room.
    fn open_lanes(&self, strangers: &StrangersAtWork) -> impl Iterator<Item = Lane> {
        self.0.keys().copied().filter(move |lane| strangers.is_open(*lane))
    }
}

/// The tickets of one rank, by flows.
#[derive(Debug, Default)]
struct FairQueue {
    flows: HashMap<FlowKey, Flow>,
    order: FlowOrder,
    /// The flows that are not in the order because their network is at its limit, by network.
    held: HashMap<u64, Vec<FlowKey>>,
    /// How many requests of each lane wait whose network is not at its limit.
    waiting: BTreeMap<Lane, usize>,
    /// How many new flows share without a look whether others can go.
    shared_at_once: u32,
    /// The start of the request that was served last, in microseconds of the origin.
    now: u64,
    /// What a request costs on average.
    cost: u64,
}

#[derive(Debug, Default)]
struct Flow {
    /// When its last request ends, in microseconds of the origin.
    end: u64,
    tickets: VecDeque<u64>,
    /// How many of its tickets are of requests that wait.
    living: usize,
    turn: Turn,
}

/// When a flow is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    /// It has no tickets.
    #[default]
    None,
    /// At this place in the order.
    At(Place),
    /// Its network is at its limit.
    Held,
}

impl Flow {
    /// Its turn is at `start`, if it has tickets. Returns its place in the order.
    fn line_up(&mut self, start: u64, key: FlowKey) -> Option<Place> {
        let place = self.tickets.front().map(|number| (start, *number, key));
        self.turn = place.map_or(Turn::None, Turn::At);
        place
    }
}

impl FairQueue {
    /// The flow under which requests of `key` are kept.
    fn flow(&mut self, key: FlowKey) -> FlowKey {
        if self.flows.len() < FLOWS_MAX || self.flows.contains_key(&key) {
            return key;
        }
        // PERF: in a flood of networks, a walk over all flows for each of them would hold up the lock.
        if self.shared_at_once > 0 {
            self.shared_at_once -= 1;
            return key.shared();
        }
        // What has no tickets and is over is as one that was never seen.
        let now = self.now;
        self.flows.retain(|_, known| {
            !known.tickets.is_empty() || known.end > now || known.turn == Turn::Held
        });
        if self.flows.len() < FLOWS_MAX {
            return key;
        }
        self.shared_at_once = SHARED_AT_ONCE;
        key.shared()
    }

    /// Appends a ticket, and returns the flow under which it is kept.
    fn join(&mut self, key: FlowKey, number: u64, strangers: &StrangersAtWork) -> FlowKey {
        let key = self.flow(key);
        let now = self.now;
        let known = self.flows.entry(key).or_default();
        known.tickets.push_back(number);
        known.living += 1;
        let is_held = key.lane != Lane::Unlimited && strangers.is_full_of(key.flow);
        if known.turn == Turn::None && is_held {
            known.turn = Turn::Held;
            self.held.entry(key.flow).or_default().push(key);
        } else if known.turn == Turn::None {
            let place = (known.end.max(now), number, key);
            known.turn = Turn::At(place);
            self.order.insert(place);
        }
        if known.turn != Turn::Held {
            *self.waiting.entry(key.lane).or_default() += 1;
        }
        key
    }

    /// A request of this flow waits no more. Its ticket stays until it is met, or is swept out.
    fn depart(&mut self, key: FlowKey) {
        let Some(flow) = self.flows.get_mut(&key) else { return };
        flow.living = flow.living.saturating_sub(1);
        if flow.turn != Turn::Held {
            self.discount(key.lane, 1);
        }
    }

    fn discount(&mut self, lane: Lane, requests: usize) {
        let Some(waiting) = self.waiting.get_mut(&lane) else { return };
        *waiting = waiting.saturating_sub(requests);
        if *waiting == 0 {
            self.waiting.remove(&lane);
        }
    }

    /// How many requests wait that no limit of strangers holds back.
    fn for_servers(&self, strangers: &StrangersAtWork) -> usize {
        let open = self.waiting.iter().filter(|(lane, _)| strangers.is_open(**lane));
        open.map(|(_, requests)| requests).sum()
    }

    /// Removes the first ticket that `takes` this place; `None` of a ticket: it is dead.
    fn pick(
        &mut self,
        strangers: &StrangersAtWork,
        takes: impl Fn(u64) -> Option<bool>,
    ) -> Option<u64> {
        let lanes: Vec<Lane> = self.order.open_lanes(strangers).collect();
        let first = lanes.into_iter().filter_map(|lane| self.first_of(lane, &takes));
        let (place, at) = first.min()?;
        let number = self.flows.get_mut(&place.2)?.tickets.remove(at)?;
        self.serve(place);
        Some(number)
    }

    /// The first flow of a lane with a ticket that `takes` this place, and the index of that ticket. What comes before it
    /// without tickets leaves the order.
    fn first_of(
        &mut self,
        lane: Lane,
        takes: &impl Fn(u64) -> Option<bool>,
    ) -> Option<(Place, usize)> {
        let Self { flows, order, .. } = self;
        let (mut found, mut out) = (None, Vec::new());
        for place in order.of(lane) {
            let Some(flow) = flows.get_mut(&place.2) else { continue };
            while flow.tickets.front().is_some_and(|number| takes(*number).is_none()) {
                flow.tickets.pop_front();
            }
            if flow.tickets.is_empty() {
                flow.turn = Turn::None;
                out.push(place);
            } else if let Some(at) =
                flow.tickets.iter().position(|number| takes(*number) == Some(true))
            {
                found = Some((place, at));
                break;
            }
        }
        out.iter().for_each(|place| order.remove(place));
        found
    }

    /// The flows of a network that limits count leave the order.
    fn hold(&mut self, network: u64) {
        let lanes = self.order.0.keys().copied().filter(|lane| *lane != Lane::Unlimited);
        for lane in lanes.collect::<Vec<Lane>>() {
            let key = FlowKey { flow: network, lane };
            let Some(flow) = self.flows.get_mut(&key) else { continue };
            let Turn::At(place) = flow.turn else { continue };
            flow.turn = Turn::Held;
            let living = flow.living;
            self.order.remove(&place);
            self.held.entry(network).or_default().push(key);
            self.discount(lane, living);
        }
    }

    /// The flows of a network may be served again.
    fn release(&mut self, network: u64) {
        for key in self.held.remove(&network).unwrap_or_default() {
            let Some(flow) = self.flows.get_mut(&key) else { continue };
            let start = flow.end.max(self.now);
            if let Some(place) = flow.line_up(start, key) {
                self.order.insert(place);
            }
            if flow.living > 0 {
                *self.waiting.entry(key.lane).or_default() += flow.living;
            }
        }
    }

    fn retain(&mut self, is_alive: impl Fn(u64) -> bool) {
        for flow in self.flows.values_mut() {
            flow.tickets.retain(|number| is_alive(*number));
            // One that is held stays so, and is looked at when its network has room.
            if let (true, Turn::At(place)) = (flow.tickets.is_empty(), flow.turn) {
                flow.turn = Turn::None;
                self.order.remove(&place);
            }
        }
    }

    /// A request of the flow at this place is served now.
    fn serve(&mut self, place: Place) {
        self.order.remove(&place);
        let (start, _, key) = place;
        self.now = self.now.max(start);
        let end = start + self.cost;
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.end = end;
            if let Some(place) = flow.line_up(end, key) {
                self.order.insert(place);
            }
        }
    }

    fn passed(&mut self, key: FlowKey) {
        let key = self.flow(key);
        let (now, cost) = (self.now, self.cost);
        let known = self.flows.entry(key).or_default();
        let start = known.end.max(now);
        known.end = start + cost;
        self.now = start;
    }

    /// Corrects what a request was thought to cost.
    fn charge(&mut self, key: FlowKey, seconds: f64) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
        let cost = (seconds.clamp(0.0, 3_600.0) * 1e6) as u64;
        let thought = self.cost;
        self.cost = thought - thought / 16 + cost / 16;
        let key = if self.flows.contains_key(&key) { key } else { key.shared() };
        let Some(known) = self.flows.get_mut(&key) else { return };
        known.end = (known.end + cost).saturating_sub(thought);
        if let Turn::At(place) = known.turn {
            self.order.remove(&place);
            let moved = (known.end.max(self.now), place.1, key);
            known.turn = Turn::At(moved);
            self.order.insert(moved);
        }
    }

    fn clear(&mut self) {
        self.order = FlowOrder::default();
        self.held.clear();
        self.waiting.clear();
        self.flows.clear();
        self.shared_at_once = 0;
    }
}

#[cfg(test)]
mod tests {
    use anteroom_policy::priority::RouteLimit;

    use super::super::stranger_limits::StrangerLimits;
    use super::*;

    fn of(class: RequestClass, flow: u64) -> Priority {
        Priority { class, flow, page_kind: 1, ..Priority::BACKGROUND }
    }

    fn queue(max: usize) -> WaitQueue<&'static str> {
        WaitQueue::new(max, None)
    }

    /// No limit of strangers.
    fn unlimited() -> StrangersAtWork {
        StrangersAtWork::default()
    }

    impl<T> WaitQueue<T> {
        /// Joins for any server, where strangers have no limit.
        fn wait(&mut self, priority: Priority, tell: T) -> Option<u64> {
            self.join(WaitsFor::Any, priority, tell, &unlimited())
        }
    }

    fn next(line: &mut WaitQueue<&'static str>, server: usize) -> Option<&'static str> {
        line.next_for(server, true, &unlimited(), |_| true).map(|next| next.tell)
    }

    #[test]
    fn waiters_of_a_flow_are_served_in_order() {
        let mut line = queue(4);
        for (wants, name) in [
            (WaitsFor::Only(1), "for 1"),
            (WaitsFor::Not(0), "not 0"),
            (WaitsFor::Any, "any"),
            (WaitsFor::Any, "later"),
        ] {
            assert!(line.join(wants, of(RequestClass::New, 7), name, &unlimited()).is_some());
        }
        assert_eq!(line.wait(of(RequestClass::New, 7), "too many"), None);
        assert_eq!(next(&mut line, 0), Some("any"));
        assert_eq!(next(&mut line, 0), Some("later"));
        assert_eq!(next(&mut line, 0), None);
        assert_eq!(next(&mut line, 1), Some("for 1"));
        assert_eq!(next(&mut line, 1), Some("not 0"));
        assert_eq!(next(&mut line, 1), None);
    }

    #[test]
    fn a_departed_or_dismissed_waiter_makes_room() {
        let new = of(RequestClass::New, 1);
        let mut line = queue(2);
        let first = line.wait(new, "a").unwrap();
        line.join(WaitsFor::Only(3), new, "b", &unlimited()).unwrap();
        line.leave(first);
        line.dismiss(|server| server != 3, 4);
        assert_eq!((line.len(), next(&mut line, 3)), (0, None));
        line.wait(new, "c").unwrap();
        line.join(WaitsFor::Not(1), new, "d", &unlimited()).unwrap();
        line.dismiss(|server| server == 1, 4);
        assert_eq!(line.len(), 1);
        line.dismiss(|_| false, 4);
        assert_eq!(line.len(), 0);
    }

    #[test]
    fn the_best_class_comes_first_and_every_eighth_is_a_strangers() {
        let mut line = queue(100);
        for (class, name) in [
            (RequestClass::Background, "background"),
            (RequestClass::New, "new"),
            (RequestClass::Seen, "seen"),
            (RequestClass::LogIn, "login"),
        ] {
            line.wait(of(class, 1), name).unwrap();
        }
        let form = Priority { is_change: true, ..of(RequestClass::LogIn, 2) };
        line.wait(form, "form").unwrap();
        line.wait(of(RequestClass::Known, 1), "known").unwrap();
        let order: Vec<_> = (0..6).filter_map(|_| next(&mut line, 0)).collect();
        assert_eq!(order, ["known", "form", "login", "seen", "new", "background"]);

        let mut line = queue(100);
        for _ in 0..20 {
            line.wait(of(RequestClass::Known, 1), "known").unwrap();
            line.wait(of(RequestClass::New, 1), "new").unwrap();
        }
        let order: Vec<_> = (0..16).filter_map(|_| next(&mut line, 0)).collect();
        assert_eq!(order.iter().filter(|name| **name == "new").count(), 2);
        assert_eq!((order[7], order[15]), ("new", "new"));
    }

    #[test]
    fn a_class_without_a_place_is_passed_over() {
        let mut line = queue(9);
        line.wait(of(RequestClass::Known, 1), "known").unwrap();
        line.wait(of(RequestClass::New, 1), "new").unwrap();
        let got = line.next_for(0, true, &unlimited(), |class| class != RequestClass::Known);
        assert_eq!(got.map(|next| next.tell), Some("new"));
    }

    #[test]
    fn each_flow_gets_its_share_of_the_origins_time() {
        // One network with many requests, and others with one each at a time.
        let mut line = WaitQueue::new(1_000, None);
        for _ in 0..200 {
            line.wait(of(RequestClass::New, 0), 0).unwrap();
        }
        for flow in 1..=20 {
            line.wait(of(RequestClass::New, flow), flow).unwrap();
        }
        let mut counts = [0; 21];
        for _ in 0..210 {
            let got = line.next_for(0, true, &unlimited(), |_| true).unwrap();
            line.charge(&got.priority, 0.2);
            counts[usize::try_from(got.tell).unwrap()] += 1;
            line.wait(got.priority, got.tell).unwrap();
        }
        assert!(counts.iter().all(|count| (9..=12).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_flow_with_slow_requests_gets_fewer() {
        let mut line = WaitQueue::new(100, None);
        for flow in [1, 2] {
            line.wait(of(RequestClass::New, flow), flow).unwrap();
        }
        let mut seconds = [0.0; 2];
        for _ in 0..400 {
            let got = line.next_for(0, true, &unlimited(), |_| true).unwrap();
            let took = if got.tell == 1 { 3.0 } else { 0.3 };
            seconds[usize::try_from(got.tell).unwrap() - 1] += took;
            line.charge(&got.priority, took);
            line.wait(got.priority, got.tell).unwrap();
        }
        let share = seconds[0] / (seconds[0] + seconds[1]);
        assert!((0.45..0.55).contains(&share), "{seconds:?}");
    }

    #[test]
    fn a_flow_that_was_idle_gains_nothing_by_it() {
        let mut line = WaitQueue::new(100, None);
        let serve = |line: &mut WaitQueue<u64>| {
            let got = line.next_for(0, true, &unlimited(), |_| true).unwrap();
            line.charge(&got.priority, 1.0);
            line.wait(got.priority, got.tell).unwrap();
            got.tell
        };
        line.wait(of(RequestClass::New, 1), 1).unwrap();
        line.wait(of(RequestClass::New, 9), 9).unwrap();
        for _ in 0..50 {
            serve(&mut line);
        }
        for _ in 0..9 {
            line.wait(of(RequestClass::New, 2), 2).unwrap();
        }
        let twos = (0..30).filter(|_| serve(&mut line) == 2).count();
        assert!((9..=12).contains(&twos), "{twos}");
    }

    #[test]
    fn those_that_hang_up_and_come_again_keep_no_memory() {
        let mut line = queue(10);
        let new = of(RequestClass::New, 1);
        line.wait(new, "stays").unwrap();
        for n in 0..10_000 {
            let number = line.wait(of(RequestClass::New, n % 3), "goes").unwrap();
            line.leave(number);
        }
        let tickets = |rank: &FairQueue| rank.flows.values().map(|flow| flow.tickets.len()).sum();
        let kept: usize = line.ranks.iter().map::<usize, _>(tickets).sum();
        assert!(kept <= 2 * DEAD_MIN, "{kept}");
        assert_eq!(next(&mut line, 0), Some("stays"));
    }

    #[test]
    fn a_request_is_raised_when_a_better_one_waits_for_its_answer() {
        let mut line = queue(9);
        line.wait(of(RequestClass::New, 1), "first").unwrap();
        let ticket = line.wait(of(RequestClass::New, 2), "raised").unwrap();
        line.raise(ticket, of(RequestClass::Known, 3), &unlimited());
        assert!(line.held_back(&unlimited()) > 0);
        assert_eq!(next(&mut line, 0), Some("raised"));
        assert_eq!(next(&mut line, 0), Some("first"));
        assert_eq!((next(&mut line, 0), line.len()), (None, 0));
    }

    #[test]
    fn a_full_queue_makes_room_for_a_better_class() {
        let mut line = queue(2);
        line.wait(of(RequestClass::New, 1), "new").unwrap();
        line.wait(of(RequestClass::Background, 0), "background").unwrap();
        assert_eq!(line.wait(of(RequestClass::Background, 0), "late"), None);
        assert!(line.wait(of(RequestClass::Known, 2), "known").is_some());
        assert_eq!((next(&mut line, 0), next(&mut line, 0)), (Some("known"), Some("new")));
        assert_eq!(next(&mut line, 0), None, "the worst has made room");
    }

    #[test]
    fn forms_beyond_their_places_take_turns_with_pages() {
        let mut line = queue(100);
        for _ in 0..16 {
            let form = Priority { is_change: true, ..of(RequestClass::LogIn, 1) };
            line.wait(form, "form").unwrap();
            line.wait(of(RequestClass::New, 1), "new").unwrap();
        }
        let order: Vec<_> = (0..16)
            .filter_map(|_| line.next_for(0, false, &unlimited(), |_| true))
            .map(|it| it.tell)
            .collect();
        let forms = order.iter().filter(|name| **name == "form").count();
        assert!((6..=10).contains(&forms), "{order:?}");
    }

    #[test]
    fn flows_are_bounded() {
        let mut line = WaitQueue::new(usize::MAX, None);
        for flow in 0..2 * FLOWS_MAX as u64 {
            line.wait(of(RequestClass::New, flow), ()).unwrap();
        }
        let rank = &line.ranks[Rank::New as usize];
        assert!(rank.flows.len() <= FLOWS_MAX + SHARED_FLOWS as usize);
        assert_eq!(
            (0..2 * FLOWS_MAX)
                .filter_map(|_| line.next_for(0, true, &unlimited(), |_| true))
                .count(),
            2 * FLOWS_MAX
        );
    }

    fn one_of_each_network() -> StrangersAtWork {
        let limits = StrangerLimits { max_per_network: Some(1), ..StrangerLimits::default() };
        StrangersAtWork::new(limits)
    }

    fn next_of(
        line: &mut WaitQueue<&'static str>,
        strangers: &StrangersAtWork,
    ) -> Option<&'static str> {
        line.next_for(0, true, strangers, |_| true).map(|next| next.tell)
    }

    #[test]
    fn a_network_at_its_limit_is_passed_over_until_it_has_room() {
        let (mut line, mut strangers) = (queue(9), one_of_each_network());
        let (one, other) = (of(RequestClass::New, 1), of(RequestClass::New, 2));
        strangers.begin(&one);
        line.join(WaitsFor::Any, one, "one", &strangers).unwrap();
        line.join(WaitsFor::Any, one, "one more", &strangers).unwrap();
        line.join(WaitsFor::Any, of(RequestClass::LogIn, 1), "form", &strangers).unwrap();
        line.join(WaitsFor::Any, other, "other", &strangers).unwrap();
        assert_eq!(line.held_back(&strangers), 2, "those of the full network wait for its room");
        assert_eq!(line.strangers_until(RequestClass::Seen, &strangers), 0);
        assert_eq!(next_of(&mut line, &strangers), Some("form"), "no limit counts a login");
        assert_eq!(next_of(&mut line, &strangers), Some("other"));
        assert_eq!(next_of(&mut line, &strangers), None);
        assert!(!line.waits_for_servers(&strangers));
        assert!(strangers.end(&one));
        line.release(one.flow);
        assert!(line.waits_for_servers(&strangers));
        assert_eq!(next_of(&mut line, &strangers), Some("one"));
    }

    #[test]
    fn a_network_that_gets_its_last_place_no_longer_waits_for_servers() {
        let (mut line, mut strangers) = (queue(9), one_of_each_network());
        let one = of(RequestClass::New, 1);
        for name in ["first", "second", "gone"] {
            line.join(WaitsFor::Any, one, name, &strangers).unwrap();
        }
        assert_eq!(line.held_back(&strangers), 3);
        assert_eq!(next_of(&mut line, &strangers), Some("first"));
        strangers.begin(&one);
        line.hold(one.flow);
        assert_eq!((line.held_back(&strangers), line.waits_for_servers(&strangers)), (0, false));
        // Tickets count from 0.
        assert!(line.leave(2).is_some());
        strangers.end(&one);
        line.release(one.flow);
        assert_eq!(line.held_back(&strangers), 1);
        assert_eq!(next_of(&mut line, &strangers), Some("second"));
        assert!(!line.waits_for_servers(&strangers));
    }

    #[test]
    fn networks_at_their_limits_are_walked_over_once() {
        let (mut line, mut strangers) = (WaitQueue::new(9_999, None), one_of_each_network());
        for flow in 0..1_000 {
            strangers.begin(&of(RequestClass::New, flow));
            line.join(WaitsFor::Any, of(RequestClass::New, flow), flow, &strangers).unwrap();
        }
        assert!(line.next_for(0, true, &strangers, |_| true).is_none());
        let rank = &line.ranks[Rank::New as usize];
        assert_eq!((rank.order.0.len(), rank.held.len()), (0, 1_000));
        strangers.end(&of(RequestClass::New, 7));
        line.release(7);
        let next = line.next_for(0, true, &strangers, |_| true);
        assert_eq!(next.map(|next| next.tell), Some(7));
    }

    #[test]
    fn those_of_a_held_network_that_hang_up_leave_no_trace() {
        let (mut line, mut strangers) = (queue(9_999), one_of_each_network());
        let one = of(RequestClass::New, 1);
        strangers.begin(&one);
        line.join(WaitsFor::Any, of(RequestClass::New, 2), "stays", &strangers).unwrap();
        strangers.begin(&of(RequestClass::New, 2));
        line.hold(2);
        for _ in 0..1_000 {
            let number = line.join(WaitsFor::Any, one, "goes", &strangers).unwrap();
            assert_eq!(next_of(&mut line, &strangers), None);
            line.leave(number);
        }
        let rank = &line.ranks[Rank::New as usize];
        let kept: usize = rank.held.values().map(Vec::len).sum();
        assert_eq!(kept, 2, "each network is held once");
        strangers.end(&one);
        line.release(1);
        assert_eq!(next_of(&mut line, &strangers), None);
        line.join(WaitsFor::Any, one, "comes", &strangers).unwrap();
        assert_eq!(next_of(&mut line, &strangers), Some("comes"));
    }

    #[test]
    fn a_route_at_its_limit_is_passed_over() {
        let limits = StrangerLimits { of_routes: true, ..StrangerLimits::default() };
        let (mut line, mut strangers) = (queue(9), StrangersAtWork::new(limits));
        let on = |route: u64, flow: u64| Priority {
            route_limit: Some(RouteLimit { route, max: 1 }),
            ..of(RequestClass::New, flow)
        };
        strangers.begin(&on(5, 1));
        line.join(WaitsFor::Any, on(5, 2), "search", &strangers).unwrap();
        line.join(WaitsFor::Any, on(6, 2), "calendar", &strangers).unwrap();
        line.join(WaitsFor::Any, of(RequestClass::New, 2), "page", &strangers).unwrap();
        assert_eq!(next_of(&mut line, &strangers), Some("calendar"));
        assert_eq!(next_of(&mut line, &strangers), Some("page"));
        assert_eq!(next_of(&mut line, &strangers), None);
        strangers.end(&on(5, 1));
        assert_eq!(next_of(&mut line, &strangers), Some("search"));
    }

    fn on_route(route: u64, class: RequestClass, flow: u64) -> Priority {
        Priority { route_limit: Some(RouteLimit { route, max: 1 }), ..of(class, flow) }
    }

    #[test]
    fn a_route_does_not_fill_the_queue() {
        let mut line = queue(99);
        let search = |flow: u64| on_route(5, RequestClass::New, flow);
        let tickets: Vec<u64> =
            (0..16).map(|flow| line.wait(search(flow), "search").unwrap()).collect();
        assert_eq!(line.wait(search(16), "too many"), None);
        assert!(line.wait(on_route(6, RequestClass::New, 1), "calendar").is_some());
        assert!(line.wait(on_route(5, RequestClass::Known, 1), "known").is_some());
        line.leave(tickets[0]);
        assert!(line.wait(search(16), "search").is_some());
    }

    #[test]
    fn what_a_limit_holds_back_makes_room_for_what_it_does_not() {
        let limits = StrangerLimits { of_routes: true, ..StrangerLimits::default() };
        let (mut line, mut strangers) = (queue(3), StrangersAtWork::new(limits));
        let search = |flow: u64| on_route(5, RequestClass::New, flow);
        strangers.begin(&search(9));
        for (priority, name) in [
            (search(1), "first search"),
            (search(2), "last search"),
            (of(RequestClass::New, 3), "page"),
        ] {
            line.join(WaitsFor::Any, priority, name, &strangers).unwrap();
        }
        assert_eq!(line.join(WaitsFor::Any, search(4), "late", &strangers), None);
        let new = of(RequestClass::New, 4);
        assert!(line.join(WaitsFor::Any, new, "other page", &strangers).is_some());
        let seen = of(RequestClass::Seen, 5);
        assert!(line.join(WaitsFor::Any, seen, "seen", &strangers).is_some());
        assert_eq!(line.join(WaitsFor::Any, new, "none is held", &strangers), None);
        let order: Vec<_> = (0..3).filter_map(|_| next_of(&mut line, &strangers)).collect();
        assert_eq!(order, ["seen", "page", "other page"]);
    }

    #[test]
    fn a_full_network_makes_room_in_the_queue_for_others() {
        let (mut line, mut strangers) = (queue(2), one_of_each_network());
        let one = of(RequestClass::New, 1);
        strangers.begin(&one);
        line.join(WaitsFor::Any, one, "a", &strangers).unwrap();
        line.join(WaitsFor::Any, one, "b", &strangers).unwrap();
        assert_eq!(line.join(WaitsFor::Any, one, "c", &strangers), None);
        assert!(line.join(WaitsFor::Any, of(RequestClass::New, 2), "page", &strangers).is_some());
        assert_eq!(next_of(&mut line, &strangers), Some("page"));
        assert_eq!(line.len(), 1);
    }

    #[test]
    fn flows_beyond_the_bound_share_for_a_while_without_a_walk_over_all() {
        let mut rank = FairQueue::default();
        let key = |flow: u64| FlowKey { flow, lane: Lane::Unlimited };
        for flow in 0..FLOWS_MAX as u64 {
            rank.join(key(flow), flow, &unlimited());
        }
        let unseen = key(1 << 32);
        assert_eq!(rank.flow(unseen), unseen.shared());
        rank.retain(|_| false);
        assert!((0..SHARED_AT_ONCE).all(|_| rank.flow(unseen) == unseen.shared()));
        assert_eq!(rank.flow(unseen), unseen);
    }

    #[test]
    fn a_network_does_not_fill_the_queue() {
        let mut line = WaitQueue::new(9, Some(2));
        let one = of(RequestClass::New, 1);
        let first = line.wait(one, "a").unwrap();
        assert!(line.wait(one, "b").is_some());
        assert_eq!(line.wait(one, "too many"), None);
        assert!(line.wait(of(RequestClass::New, 2), "other").is_some());
        assert!(line.wait(of(RequestClass::LogIn, 1), "form").is_some());
        line.leave(first);
        assert!(line.wait(one, "c").is_some());
    }

    #[test]
    fn a_held_request_goes_on_when_another_network_waits_for_it_too() {
        let (mut line, mut strangers) = (queue(9), one_of_each_network());
        let (one, other) = (of(RequestClass::New, 1), of(RequestClass::New, 2));
        strangers.begin(&one);
        let ticket = line.join(WaitsFor::Any, one, "page", &strangers).unwrap();
        assert_eq!(next_of(&mut line, &strangers), None);
        assert!(!line.raise(ticket, one, &strangers));
        assert!(line.raise(ticket, other, &strangers));
        let next = line.next_for(0, true, &strangers, |_| true).unwrap();
        assert_eq!((next.tell, next.priority.flow), ("page", 2));
        assert_eq!(line.len(), 0);
    }
}
