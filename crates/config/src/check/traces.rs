//! Checks of `[traces]`.

use anteroom_http::host::Scheme;

use super::ConfigCheck;
use crate::text::is_near;

impl ConfigCheck<'_> {
    pub(super) fn traces(&mut self) {
        let traces = &self.plan.traces;
        let Some(endpoint) = &traces.endpoint else {
            if !traces.headers.is_empty() && !self.unread("traces.endpoint") {
                self.problem("traces.headers", "has no effect without endpoint: set it, too");
            }
            return;
        };
        if endpoint.server.scheme == Scheme::Http && !is_near(&endpoint.server.host) {
            let text = "uses http: paths, and keys in headers, can be read on the way; use https";
            self.warning("traces.endpoint", text);
        }
    }
}
