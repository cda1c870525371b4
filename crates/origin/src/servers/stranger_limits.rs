//! How many requests of strangers an origin works on at once: in all, of one network, and of one route. Pure.
//!
//! A request counts from when it gets a place at a server until the head of its answer has come, or until it is over.

use std::collections::HashMap;

use anteroom_policy::priority::{Priority, RouteLimit};

/// How many requests of a network or a route may wait for each one that it may have at the servers. Enough for a page with
/// its parts, and far from filling the queue.
const WAITING_PER_PLACE: u32 = 16;

/// The most requests of strangers that the servers of an origin work on at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StrangerLimits {
    /// Of all strangers.
    pub max: Option<u32>,
    /// Of one network.
    pub max_per_network: Option<u32>,
    /// Whether a route of the origin has a limit of its own, which comes with each of its requests.
    pub of_routes: bool,
}

impl StrangerLimits {
    /// Whether nothing is limited.
    pub(super) fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether they count this request.
    pub(super) fn count(&self, priority: &Priority) -> bool {
        !self.are_none() && priority.counts_as_stranger()
    }

    /// The most requests of one network that wait.
    pub(super) fn max_waiting_per_network(&self) -> Option<u32> {
        self.max_per_network.map(|max| max.saturating_mul(WAITING_PER_PLACE))
    }
}

/// The most requests of a route that wait.
pub(super) fn max_waiting_on(route: RouteLimit) -> u32 {
    route.max.saturating_mul(WAITING_PER_PLACE)
}

/// How many requests there are of each network or route, by its hash.
#[derive(Debug, Default)]
pub(super) struct Tally(HashMap<u64, u32>);

impl Tally {
    pub(super) fn add(&mut self, of: u64) {
        *self.0.entry(of).or_default() += 1;
    }

    pub(super) fn remove(&mut self, of: u64) {
        let Some(count) = self.0.get_mut(&of) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.0.remove(&of);
        }
    }

    pub(super) fn count(&self, of: u64) -> u32 {
        self.0.get(&of).copied().unwrap_or_default()
    }
}

/// Requests of one rank that the same limits hold back, apart from that of their network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Lane {
    /// Those that no limit of strangers counts.
    Unlimited,
    /// Those of strangers, with the limit of their route if it has one.
    Strangers(Option<RouteLimit>),
}

impl Lane {
    pub(super) fn of(priority: &Priority) -> Self {
        match priority.counts_as_stranger() {
            true => Self::Strangers(priority.route_limit),
            false => Self::Unlimited,
        }
    }
}

/// The requests of strangers at the servers, and the limits that count them.
#[derive(Debug, Default)]
pub(super) struct StrangersAtWork {
    limits: StrangerLimits,
    all: u32,
    networks: Tally,
    routes: Tally,
}

impl StrangersAtWork {
    pub(super) fn new(limits: StrangerLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// A request has got a place.
    pub(super) fn begin(&mut self, priority: &Priority) {
        if !self.limits.count(priority) {
            return;
        }
        self.all += 1;
        if self.limits.max_per_network.is_some() {
            self.networks.add(priority.flow);
        }
        if let Some(limit) = priority.route_limit {
            self.routes.add(limit.route);
        }
    }

    /// The servers' work on a request is over. Returns whether its network has room for another.
    pub(super) fn end(&mut self, priority: &Priority) -> bool {
        if !self.limits.count(priority) {
            return false;
        }
        self.all = self.all.saturating_sub(1);
        if let Some(limit) = priority.route_limit {
            self.routes.remove(limit.route);
        }
        if self.limits.max_per_network.is_none() {
            return false;
        }
        self.networks.remove(priority.flow);
        !self.is_full_of(priority.flow)
    }

    /// Whether all limits leave room for a request.
    pub(super) fn have_room(&self, priority: &Priority) -> bool {
        let lane = Lane::of(priority);
        let is_held = lane != Lane::Unlimited && self.is_full_of(priority.flow);
        self.is_open(lane) && !is_held
    }

    /// Whether the limits leave room for requests of this lane, if their network has some.
    pub(super) fn is_open(&self, lane: Lane) -> bool {
        let Lane::Strangers(route) = lane else { return true };
        self.limits.max.is_none_or(|max| self.all < max)
            && route.is_none_or(|limit| self.routes.count(limit.route) < limit.max)
    }

    /// Whether this network has as many requests at the servers as it may.
    pub(super) fn is_full_of(&self, network: u64) -> bool {
        self.limits.max_per_network.is_some_and(|max| self.networks.count(network) >= max)
    }
}

#[cfg(test)]
mod tests {
    use anteroom_policy::priority::RequestClass;

    use super::*;

    fn of(class: RequestClass, flow: u64) -> Priority {
        Priority { class, flow, ..Priority::BACKGROUND }
    }

    #[test]
    fn without_limits_nothing_is_counted() {
        let mut strangers = StrangersAtWork::default();
        let limit = Some(RouteLimit { route: 5, max: 1 });
        let one = Priority { route_limit: limit, ..of(RequestClass::New, 1) };
        strangers.begin(&one);
        assert!(strangers.have_room(&one));
        assert!(!strangers.end(&one));
    }

    #[test]
    fn each_limit_counts_strangers_only() {
        let limits =
            StrangerLimits { max: Some(3), max_per_network: Some(2), ..StrangerLimits::default() };
        let mut strangers = StrangersAtWork::new(limits);
        for class in [RequestClass::Known, RequestClass::LogIn, RequestClass::Background] {
            (0..9).for_each(|_| strangers.begin(&of(class, 1)));
        }
        let over = Priority { is_over_quota: true, ..of(RequestClass::New, 1) };
        (0..9).for_each(|_| strangers.begin(&over));
        let (one, other) = (of(RequestClass::New, 1), of(RequestClass::Seen, 2));
        strangers.begin(&one);
        strangers.begin(&one);
        assert!(!strangers.have_room(&one), "its network has two");
        assert!(strangers.have_room(&other));
        strangers.begin(&other);
        assert!(!strangers.have_room(&of(RequestClass::New, 3)), "three are at work");
        assert!(strangers.have_room(&of(RequestClass::Known, 1)));
        assert!(strangers.have_room(&over), "a user's request is no stranger's");
        assert!(strangers.end(&one));
        assert!(strangers.have_room(&one));
    }

    #[test]
    fn a_route_is_counted_by_its_own_limit() {
        let limits = StrangerLimits { of_routes: true, ..StrangerLimits::default() };
        let mut strangers = StrangersAtWork::new(limits);
        let on = |route: u64| Priority {
            route_limit: Some(RouteLimit { route, max: 1 }),
            ..of(RequestClass::New, 1)
        };
        strangers.begin(&on(5));
        assert!(!strangers.have_room(&on(5)));
        assert!(strangers.have_room(&on(6)));
        assert!(strangers.have_room(&of(RequestClass::New, 1)));
        assert!(!strangers.end(&on(5)), "no network is limited");
        assert!(strangers.have_room(&on(5)));
    }
}
