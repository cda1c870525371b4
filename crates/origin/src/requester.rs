//! Of whom a request is.

use anteroom_policy::priority::Priority;
use anteroom_telemetry::origin_use::OriginUse;
use tokio::time::Instant;

/// Of whom a request is: what chooses its server, and its place in the queue where others wait.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'r> {
    /// The session, which may keep to a server.
    pub session: Option<&'r str>,
    /// When it is served where others wait.
    pub priority: Priority,
    /// What measures the origin's time, if that is told.
    pub origin_use: Option<&'r OriginUse<'r>>,
}

impl Requester<'_> {
    /// The proxy, of its own accord.
    pub const BACKGROUND: Self =
        Requester { session: None, priority: Priority::BACKGROUND, origin_use: None };

    /// The request is sent to a server now.
    pub(super) fn begin(&self) {
        if let Some(origin_use) = self.origin_use {
            origin_use.begin();
        }
    }

    /// The head of the server's answer has come now, or there will be none.
    pub(super) fn end(&self, now: Instant) {
        if let Some(origin_use) = self.origin_use {
            origin_use.end(now);
        }
    }
}
