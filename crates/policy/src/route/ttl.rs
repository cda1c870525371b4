//! The lifetime that a route gives to pages.

use std::time::Duration;

use ::http::StatusCode;

/// `ttl`: the lifetime of pages if the origin sets none, for all statuses or for some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ttl {
    /// For pages of all statuses that a default lifetime applies to.
    pub usual: Option<Duration>,
    /// For pages with exactly this status.
    pub by_status: Vec<(u16, Duration)>,
}

impl Ttl {
    /// The same lifetime for all statuses.
    #[must_use]
    pub fn all(ttl: Duration) -> Self {
        Self { usual: Some(ttl), by_status: Vec::new() }
    }

    /// The lifetime that is set for this status by name.
    #[must_use]
    pub fn of(&self, status: StatusCode) -> Option<Duration> {
        let found = self.by_status.iter().find(|(named, _)| *named == status.as_u16());
        found.map(|(_, ttl)| *ttl)
    }
}
