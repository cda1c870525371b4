//! `[limits]`.

use std::time::Duration;

use ipnet::IpNet;

use anteroom_policy::rate_limit::Rate;

const MIB: u64 = 1 << 20;

/// `[limits]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// `request_head`, 32 KiB.
    pub request_head: usize,
    /// `uri`, 16 KiB.
    pub uri: usize,
    /// `max_body`, `"none"`.
    pub max_body: Option<u64>,
    /// `head_timeout`, 10 s.
    pub head_timeout: Duration,
    /// `idle_timeout`, 75 s.
    pub idle_timeout: Duration,
    /// `stall_timeout`, 30 s: the longest pause of a body, read or written.
    pub stall_timeout: Duration,
    /// `connections`, 20,000.
    pub connections: usize,
    /// `connections_per_address`, 1,000 per address or /64 of IPv6, like every limit by address, once half of
    /// `connections` are open. Trusted proxies, loopback, and clients without an address are not counted.
    pub connections_per_address: usize,
    /// `requests_at_once_per_address`, 2,000: concurrent HTTP/2 requests; trusted proxies are not counted.
    pub requests_at_once_per_address: usize,
    /// `requests_per_address`, `"none"`: the rate of one address.
    pub requests_per_address: Option<Rate>,
    /// `requests_per_session`, `"none"`: the rate of one session.
    pub requests_per_session: Option<Rate>,
    /// `requests_exempt`: networks whose requests are not counted.
    pub requests_exempt: Vec<IpNet>,
    /// `requests_counted`, 100,000: addresses and sessions counted at a time.
    pub requests_counted: usize,
    /// `in_flight`, 64 MiB: the memory for bodies that are being stored or shared.
    pub in_flight: u64,
    /// `fragments`, 32: the fragments filled in one page for one visitor.
    pub fragments: usize,
    /// `fragment_size`, 256 KiB: the largest content of a fragment.
    pub fragment_size: usize,
    /// `fragment_timeout`, 5 s: how long a fragment may take.
    pub fragment_timeout: Duration,
    /// `fragment_memory`, 64 MiB: the memory for contents that wait for their pages.
    pub fragment_memory: u64,
    /// `waiters`, 10,000: the most requests that wait for fetches of other requests.
    pub waiters: usize,
    /// `variants`, 32: the most variants of one URL.
    pub variants: usize,
    /// `visit_queue`, 100,000.
    pub visit_queue: usize,
    /// `tunnels`, 10,000: the most connections that have switched to another protocol.
    pub tunnels: usize,
    /// `tunnels_per_address`, 1,000; trusted proxies are not counted.
    pub tunnels_per_address: usize,
    /// `tunnel_idle`, 1 h: how long a tunnel may be silent.
    pub tunnel_idle: Duration,
    /// `drain_delay`, 5 s: how long connections are still accepted after TERM, while `/readyz` says 503.
    pub drain_delay: Duration,
    /// `drain_timeout`, 30 s.
    pub drain_timeout: Duration,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            request_head: 32 << 10,
            uri: 16 << 10,
            max_body: None,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            stall_timeout: Duration::from_secs(30),
            connections: 20_000,
            connections_per_address: 1_000,
            requests_at_once_per_address: 2_000,
            requests_per_address: None,
            requests_per_session: None,
            requests_exempt: Vec::new(),
            requests_counted: 100_000,
            in_flight: 64 * MIB,
            fragments: 32,
            fragment_size: 256 << 10,
            fragment_timeout: Duration::from_secs(5),
            fragment_memory: 64 * MIB,
            waiters: 10_000,
            variants: 32,
            visit_queue: 100_000,
            tunnels: 10_000,
            tunnels_per_address: 1_000,
            tunnel_idle: Duration::from_secs(3_600),
            drain_delay: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(30),
        }
    }
}
