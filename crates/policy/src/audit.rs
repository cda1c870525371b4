//! The audit: which part of the hits is held against the app.

use std::fmt;
use std::num::NonZeroU32;

/// One hit of so many is held against the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AuditRate(Option<NonZeroU32>);

impl AuditRate {
    /// None is.
    pub const OFF: Self = Self(None);

    /// One hit of a thousand: it costs the app a request more in a thousand.
    pub const DEFAULT: Self = Self::one_of(1_000);

    /// One of `hits`; none if that is 0.
    #[must_use]
    pub const fn one_of(hits: u32) -> Self {
        Self(NonZeroU32::new(hits))
    }

    /// Of how many hits one is drawn; `None`: of none.
    #[must_use]
    pub fn hits(self) -> Option<u32> {
        self.0.map(NonZeroU32::get)
    }
}

impl fmt::Display for AuditRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(hits) => write!(f, "1/{hits}"),
            None => f.write_str("off"),
        }
    }
}
