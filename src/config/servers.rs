//! The part of `[origin]` and `[origins.NAME]` that says how several servers of one app are used: which
//! gets a request, when one rests, what is tried again, and how many may wait.

use std::time::Duration;

use super::form::{Either, List, Optional, Span, Text, Words};
use super::plan::OriginUrl;
use super::schema::{DAY, MS, TIMEOUT, Walk, count, named};
use super::text;

/// How the servers of an origin are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    /// `urls`: the servers, where there are several; empty: the one at `url`.
    pub urls: Vec<OriginUrl>,
    /// `weights`: the share of each of `urls`; empty: all alike.
    pub weights: Vec<u32>,
    /// `balance`, `"round_robin"`.
    pub balance: Balance,
    /// `fails`, 3: failures in a row after which a server rests.
    pub fails: u32,
    /// `fail_window`, 30 s: within which they count.
    pub fail_window: Duration,
    /// `rest`, 10 s: the first rest, doubled by each that follows at once.
    pub rest: Duration,
    /// `slow_start`, 10 s: how long the share of a server grows that came back.
    pub slow_start: Duration,
    /// `retry_percent`, 10: how many of a hundred requests may be sent again to another server.
    pub retry_percent: u32,
    /// `max_connections`, none: requests that a server works on at once.
    pub max_connections: Option<u32>,
    /// `max_waiting`, 1,024: requests that wait for a server at once.
    pub max_waiting: u32,
    /// `wait_timeout`, 5 s: how long one waits.
    pub wait_timeout: Duration,
    /// `health`
    pub health: Health,
}

/// Which server gets a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Each in its turn.
    RoundRobin,
    /// The one that works on the fewest.
    LeastRequests,
    /// The same for all requests of a session; the others in turn.
    Sticky,
}

/// `health`: what servers are asked by themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// `path`; none: they are not asked.
    pub path: Option<String>,
    /// `every`, 5 s.
    pub every: Duration,
    /// `timeout`, 2 s: for the whole answer.
    pub timeout: Duration,
    /// `status`, 200: the answers that are well.
    pub status: Vec<u16>,
    /// `healthy_after`, 2: answers in a row that bring a server back.
    pub healthy_after: u32,
    /// `unhealthy_after`, 3: failures in a row that take it out.
    pub unhealthy_after: u32,
}

impl Default for Servers {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            weights: Vec::new(),
            balance: Balance::RoundRobin,
            fails: 3,
            fail_window: Duration::from_secs(30),
            rest: Duration::from_secs(10),
            slow_start: Duration::from_secs(10),
            retry_percent: 10,
            max_connections: None,
            max_waiting: 1_024,
            wait_timeout: Duration::from_secs(5),
            health: Health::default(),
        }
    }
}

impl Default for Health {
    fn default() -> Self {
        Self {
            path: None,
            every: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            status: vec![200],
            healthy_after: 2,
            unhealthy_after: 3,
        }
    }
}

/// Meets the keys, but for `urls`.
pub(super) fn servers(at: &mut impl Walk, servers: &mut Servers) {
    at.key("weights", &mut servers.weights, &List::of(count(1, 100)));
    let ways = [
        ("round_robin", Balance::RoundRobin),
        ("least_requests", Balance::LeastRequests),
        ("sticky", Balance::Sticky),
    ];
    at.key("balance", &mut servers.balance, &Words(&ways));
    at.key("fails", &mut servers.fails, &count(1, 1_000));
    at.key("fail_window", &mut servers.fail_window, &TIMEOUT);
    at.key("rest", &mut servers.rest, &Span { min: MS, max: Duration::from_secs(300) });
    at.key("slow_start", &mut servers.slow_start, &Span { min: Duration::ZERO, max: DAY });
    at.key("retry_percent", &mut servers.retry_percent, &count(0, 100));
    let most = Either("none", count(1, 1_000_000));
    at.key("max_connections", &mut servers.max_connections, &most);
    at.key("max_waiting", &mut servers.max_waiting, &count(0, 10_000));
    at.key("wait_timeout", &mut servers.wait_timeout, &TIMEOUT);
    at.section("health", |at| health(at, &mut servers.health));
}

fn health(at: &mut impl Walk, health: &mut Health) {
    at.key("path", &mut health.path, &Optional(named(text::health_path)));
    at.key("every", &mut health.every, &Span { min: 100 * MS, max: DAY });
    at.key("timeout", &mut health.timeout, &TIMEOUT);
    at.key("status", &mut health.status, &List::of(count(100, 599)));
    at.key("healthy_after", &mut health.healthy_after, &count(1, 1_000));
    at.key("unhealthy_after", &mut health.unhealthy_after, &count(1, 1_000));
}

/// Meets `urls`.
pub(super) fn urls(at: &mut impl Walk, servers: &mut Servers, url: Text<OriginUrl>) {
    at.key("urls", &mut servers.urls, &List::of(url));
}
