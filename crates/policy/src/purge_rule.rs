//! `[purge] after`: requests of the app's users that change more pages than their own.

use anteroom_http::path::PurgePath;

use crate::login::RequestPattern;

/// Unsafe requests whose success makes pages stale, on any route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeRule {
    /// `match`: the requests.
    pub matching: RequestPattern,
    /// `form`: fields that the form in the body must have, each with one of these values.
    pub form: Vec<(String, Vec<String>)>,
    /// `status`: one of these; empty: any 2xx or 3xx.
    pub status: Vec<u16>,
    /// `purges`: paths, or with `/**` everything below them, that become stale. Required.
    pub purges: Vec<PurgePath>,
}
