//! The keys of `[learn]`, and the words of `mode`.

use anteroom_policy::learn::CacheMode;

use super::shared::RATE;
use crate::form::Flag;
use crate::plan::LearnConfig;
use crate::walk::Walk;

/// The words of `mode` in `[cache]` and in a route.
pub(super) const CACHE_MODES: [(&str, CacheMode); 2] =
    [("serve", CacheMode::Serve), ("learn", CacheMode::Learn)];

pub(super) fn learn(at: &mut impl Walk, learn: &mut LearnConfig) {
    at.key("mirror", &mut learn.mirror, &Flag);
    at.key("probe", &mut learn.probe, &Flag);
    at.key("probe_rate", &mut learn.probe_rate, &RATE);
}
