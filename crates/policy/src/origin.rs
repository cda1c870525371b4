//! How an origin and its servers are used.

use std::time::Duration;

/// Whether HTTP/2 is used with an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http2 {
    /// If it is negotiated over TLS.
    Auto,
    /// Always; in clear text without negotiation.
    Always,
    /// Never.
    Never,
}

/// What is done where an origin has more to do than it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overload {
    /// Visitors of unproven standing wait, so that known visitors find the origin calm.
    Order,
    /// The same, and those that would wait for long are refused at once.
    Shed,
    /// The log and the metrics tell of it.
    Watch,
    /// Nothing.
    Off,
}

/// How the server for a request is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// In turn.
    RoundRobin,
    /// The one with the fewest requests in progress.
    LeastRequests,
    /// The same for all requests of a session; in turn for other requests.
    Sticky,
}

/// `health`: the health checks of an origin's servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// `path`; `None`: there are no checks.
    pub path: Option<String>,
    /// `every`, 5 s.
    pub every: Duration,
    /// `timeout`, 2 s: for the whole response.
    pub timeout: Duration,
    /// `status`, 200: the statuses of a healthy server.
    pub status: Vec<u16>,
    /// `healthy_after`, 2: consecutive successful checks after which a server returns.
    pub healthy_after: u32,
    /// `unhealthy_after`, 3: consecutive failed checks after which a server is taken out.
    pub unhealthy_after: u32,
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
