//! Handles a response that cannot be shared.

use ::http::StatusCode;
use tokio::sync::oneshot;

use super::fetched::Fetch;
use super::filler::{ERROR_TTL, Filler};
use super::lead::{Led, say};
use super::order::Loss;
use crate::cache::flight::{Flight, Verdict};
use crate::cache::rules::key::ShareClass;
use crate::cache::rules::leak::Finding;
use crate::origin::OriginResponse;
use crate::telemetry::reason::Reason;

/// The least interval between log messages about pages with personal data, in seconds.
const LEAK_SAID_EVERY: u64 = 60;

impl Filler {
    /// Gives the response to its visitor alone.
    pub(super) fn refuse(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        came: OriginResponse,
        reason: Reason,
        tell: oneshot::Sender<Led>,
    ) {
        // A response that a cache in front of the origin was about to drop is fetched anew next time.
        let aged = reason == Reason::Stale && fetch.age(came.response.headers()) > 0;
        if reason == Reason::ServerError {
            // A later request should find the stale page instead of being forwarded.
            self.sheet.refused(reason);
        } else {
            // The app may set a cookie for one user of a segment, or redirect that user, but not the next
            // one.
            let is_ones = fetch.class == ShareClass::Segment
                && (reason == Reason::SetCookie || came.response.status() != StatusCode::OK);
            self.mark(fetch, reason, aged || is_ones || passes(came.response.status()));
        }
        flight.decide(Verdict::Refused(reason));
        let (head, body) = came.response.into_parts();
        // A response that logs in or out is for its request alone, and takes effect where that request gets
        // it: the app then knows the visitor's session. In an anonymous fill the app knows no session, so the
        // response is not a log-in.
        let is_his = fetch.loss == Loss::None && fetch.class.is_personal();
        if is_his || reason != Reason::Anteroom && fetch.loss.spares(&head) {
            let response = ::http::Response::from_parts(head, body);
            say(tell, Led::Own(Box::new(OriginResponse { response, ..came }), reason));
        } else {
            say(tell, Led::Again(reason));
        }
    }

    /// Counts a refusal and remembers that the key is uncacheable: for a short time if the cause is
    /// temporary, and not at all if the cause lies in the request.
    pub(super) fn mark(&self, fetch: &Fetch, reason: Reason, passing: bool) {
        self.sheet.refused(reason);
        let path = fetch.target.path();
        tracing::debug!(path, reason = reason.as_str(), "a page is not shared");
        let now = fetch.came_at as u64;
        if is_leak(reason) && now.saturating_sub(self.leak_said_at.get()) >= LEAK_SAID_EVERY {
            self.leak_said_at.set(now);
            let route = &*fetch.route.name;
            tracing::warn!(
                path,
                route,
                reason = reason.as_str(),
                "a page that was about to be shared holds its visitor's own; told once a minute"
            );
        }
        let memory = self.pages.memory();
        if is_leak(reason) {
            memory.note_leak(fetch.primary, reason, now);
        }
        // The data that was found is the visitor's own, so another visitor's page may be free of it. A
        // visitor without personal data has requested a page with a cookie of the app in it, and every other
        // visitor will get the same.
        let is_his = is_leak(reason) && !fetch.traces.is_empty();
        if reason == Reason::Accept || is_his {
            return;
        }
        if passing || reason == Reason::Crowded {
            memory.mark_uncacheable_for(fetch.primary, reason, now, ERROR_TTL);
        } else {
            memory.mark_uncacheable(fetch.primary, reason, now);
        }
    }
}

pub(super) fn is_leak(reason: Reason) -> bool {
    matches!(reason, Reason::LeakUser | Reason::LeakAttribute | Reason::LeakToken)
}

/// Whether a status is temporary or specific to one request: some field of the fill may be too large for the
/// origin, and another visitor's may not.
pub(super) fn passes(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status.as_u16(), 400 | 406 | 408 | 409 | 411..=431)
}

pub(super) fn reason_of(finding: Finding) -> Reason {
    match finding {
        Finding::CsrfField => Reason::CsrfField,
        Finding::SessionIdInLink => Reason::SessionInLink,
        Finding::Undecodable => Reason::Undecodable,
        Finding::PasswordField => Reason::PasswordField,
        Finding::PostForm => Reason::PostForm,
        Finding::LeakUser => Reason::LeakUser,
        Finding::LeakAttribute => Reason::LeakAttribute,
        Finding::LeakToken => Reason::LeakToken,
    }
}
