//! `[learn]`

use std::num::NonZeroU32;
use std::time::Duration;

use anteroom_policy::rate_limit::Rate;

/// `[learn]`: how it is learned what the cache would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnConfig {
    /// `mirror`, false: whether this proxy is the target of a mirror, and forwards nothing.
    pub mirror: bool,
    /// `probe`, false: whether the origin is asked as a visitor without cookies.
    pub probe: bool,
    /// `probe_rate`, `"1/s"`.
    pub probe_rate: Rate,
}

impl Default for LearnConfig {
    fn default() -> Self {
        let one = NonZeroU32::MIN;
        let probe_rate = Rate { requests: one, per: Duration::from_secs(1), burst: one };
        Self { mirror: false, probe: false, probe_rate }
    }
}
