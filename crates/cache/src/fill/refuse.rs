//! Handles a response that cannot be shared.

use std::sync::Arc;

use ::http::header::ACCEPT_ENCODING;
use ::http::{HeaderMap, StatusCode};
use anteroom_http::ident::PageKey;
use anteroom_http::vary::Vary;
use anteroom_origin::OriginResponse;
use anteroom_telemetry::reason::Reason;
use tokio::sync::oneshot;

use super::fetched::Fetch;
use super::filler::Filler;
use super::lead::{LeaderAnswer, send_answer};
use crate::flight::{Flight, FlightVerdict};
use crate::rules::further_reasons::{RefusalReasons, StrippedHead};
use crate::rules::key::ShareClass;
use crate::rules::leak_kind::LeakKind;
use crate::rules::verdict::ResponseView;

/// The least interval between log messages about pages with personal data, in seconds.
const LEAK_LOG_EVERY: u64 = 60;

impl Filler {
    /// Gives the response to its visitor alone, unless this visitor's own request must be sent, too. The response gets
    /// back the fields that were `cut`, because they may state that the visitor has logged in.
    pub(super) fn refuse(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        mut received: OriginResponse,
        cut: HeaderMap,
        reason: Reason,
        sender: oneshot::Sender<LeaderAnswer>,
    ) {
        // A response that a cache in front of the origin was about to drop is fetched again next time.
        let aged = reason == Reason::Stale && fetch.age(received.response.headers()) > 0;
        if aged {
            let now = fetch.received_at as u64;
            self.pages.memory().note_refusal(fetch.primary, reason, now);
        }
        if reason == Reason::ServerError {
            // A later request should find the stale page instead of being forwarded.
            self.thread_metrics.refused(reason);
        } else {
            // The app may set a cookie for one user of a segment, or redirect that user, but not the next
            // one.
            let is_for_one_user = fetch.class == ShareClass::Segment
                && (reason == Reason::SetCookie || received.response.status() != StatusCode::OK);
            let scope = match aged || is_for_one_user || passes(received.response.status()) {
                true => MarkScope::Brief,
                false => MarkScope::of(&Vary::parse(received.response.headers())),
            };
            let reasons = self.all_reasons(fetch, &flight.sent, &received, reason);
            self.mark(fetch, reasons, scope);
        }
        flight.decide(FlightVerdict::Refused(reason));
        self.note_redirect(fetch, received.response.status());
        received.response.headers_mut().extend(cut);
        let asks_again = fetch.asks_again(&received.response);
        let (head, body) = received.response.into_parts();
        let answer = match asks_again {
            Some(why) => LeaderAnswer::Again(reason, why),
            None => {
                let response = ::http::Response::from_parts(head, body);
                LeaderAnswer::Own(Box::new(OriginResponse { response, ..received }), reason)
            }
        };
        send_answer(sender, answer);
    }

    /// The reason for which a response is refused, with those behind it. PERF: a key is marked afterwards, so that
    /// this is rare.
    fn all_reasons(
        &self,
        fetch: &Fetch,
        sent: &HeaderMap,
        received: &OriginResponse,
        reason: Reason,
    ) -> RefusalReasons {
        let (length, unframed) = (received.length, received.unframed);
        let headers = received.response.headers().clone();
        RefusalReasons::find(reason, StrippedHead { headers, length, unframed }, |head| {
            let answer = ResponseView {
                status: received.response.status(),
                headers: &head.headers,
                length: head.length,
                unframed: head.unframed,
                age: fetch.age(&head.headers),
                now: fetch.received_at as u64,
            };
            self.may_store(fetch, sent, &answer).err()
        })
    }

    /// A redirect may lead back to where the visitor came from, or carry the query on: the fetch has left both out.
    fn note_redirect(&self, fetch: &Fetch, status: StatusCode) {
        let is_changed = fetch.loss.detour && status.is_redirection();
        if let Some(pattern) = fetch.pattern.filter(|_| is_changed) {
            self.pages.url_patterns.leads_elsewhere(pattern, fetch.received_at as u64);
        }
    }

    /// Counts a refusal and remembers that the key is uncacheable: for a short time if the cause is
    /// temporary, and not at all if the request itself is the cause.
    pub(super) fn mark(&self, fetch: &Fetch, reasons: impl Into<RefusalReasons>, scope: MarkScope) {
        let reasons = reasons.into();
        let reason = reasons.first;
        self.thread_metrics.refused(reason);
        let path = fetch.target.path();
        tracing::debug!(path, reason = reason.as_str(), "a page is not shared");
        let now = fetch.received_at as u64;
        if is_leak(reason) && now.saturating_sub(self.leak_logged_at.get()) >= LEAK_LOG_EVERY {
            self.leak_logged_at.set(now);
            let route = &*fetch.route.name;
            tracing::warn!(
                path,
                route,
                reason = reason.as_str(),
                "a page is not shared: it holds its visitor's personal data; logged once a minute"
            );
        }
        let memory = self.pages.memory();
        if is_leak(reason) {
            memory.note_refusal(fetch.primary, reason, now);
        }
        // The data that was found is the visitor's own, so another visitor's page may be free of it. A
        // visitor without personal data has requested a page with a cookie of the app in it, and every other
        // visitor will get the same.
        let is_own_response = is_leak(reason) && !fetch.personal_data.is_empty();
        // The same holds for the fields of one request.
        if matches!(reason, Reason::Accept | Reason::Reflected) || is_own_response {
            return;
        }
        // What passes says nothing of the pattern.
        let passes = reason == Reason::Crowded || scope == MarkScope::Brief;
        if let (Some(pattern), false) = (fetch.pattern, passes) {
            let PageKey([first, second, third, fourth, ..]) = fetch.primary;
            let url = u32::from_be_bytes([first, second, third, fourth]);
            self.pages.url_patterns.was_refused(pattern, url, fetch.network, now);
        }
        let at = self.mark_time(now);
        match scope {
            // There may be room for the page in a moment.
            _ if reason == Reason::Crowded => memory.mark_briefly(fetch.primary, reasons, at),
            MarkScope::Brief => memory.mark_briefly(fetch.primary, reasons, at),
            MarkScope::OneVariant | MarkScope::AllVariants => {
                let before = Arc::new(fetch.purge_snapshot.clone());
                let is_of_all = scope == MarkScope::AllVariants;
                memory.mark_uncacheable(fetch.primary, reasons, at, before, is_of_all);
            }
        }
    }
}

/// What a refusal says about later requests under the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkScope {
    /// The cause is likely to pass: the mark lasts for a second.
    Brief,
    /// The response may be one of several variants, of which the store may hold others.
    OneVariant,
    /// The response has no variants. The codings of a page do not count.
    AllVariants,
}

impl MarkScope {
    fn of(vary: &Vary) -> Self {
        match vary {
            Vary::None => Self::AllVariants,
            Vary::Fields(fields) if fields.iter().all(|name| *name == ACCEPT_ENCODING) => {
                Self::AllVariants
            }
            Vary::Any | Vary::Fields(_) => Self::OneVariant,
        }
    }
}

pub(super) fn is_leak(reason: Reason) -> bool {
    matches!(reason, Reason::LeakUser | Reason::LeakAttribute | Reason::LeakToken)
}

/// Whether a status is temporary or specific to one request: some field of the fill may be too large for the
/// origin, and another visitor's may not.
#[must_use]
pub fn passes(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status.as_u16(), 400 | 406 | 408 | 409 | 411..=431)
}

pub(super) fn reason_of(leak: LeakKind) -> Reason {
    match leak {
        LeakKind::CsrfField => Reason::CsrfField,
        LeakKind::SessionIdInLink => Reason::SessionInLink,
        LeakKind::Undecodable => Reason::Undecodable,
        LeakKind::PasswordField => Reason::PasswordField,
        LeakKind::PostForm => Reason::PostForm,
        LeakKind::LeakUser => Reason::LeakUser,
        LeakKind::LeakAttribute => Reason::LeakAttribute,
        LeakKind::LeakToken => Reason::LeakToken,
        LeakKind::Reflected => Reason::Reflected,
    }
}
