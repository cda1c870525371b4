//! Of whom a request is.

use anteroom_policy::priority::Priority;

/// Of whom a request is: what chooses its server, and its place in the queue where others wait.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'r> {
    /// The session, which may keep to a server.
    pub session: Option<&'r str>,
    /// When it is served where others wait.
    pub priority: Priority,
}

impl Requester<'_> {
    /// The proxy, of its own accord.
    pub const BACKGROUND: Self = Requester { session: None, priority: Priority::BACKGROUND };
}
