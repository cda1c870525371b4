//! Weighs a difference: asks the app again, to tell what is noise or an edit of the page, and notes what is left.

use std::rc::Rc;
use std::time::Duration;

use ::http::Request;
use ::http::header::SET_COOKIE;
use anteroom_learn::audit::{
    AuditResult, AuditedPage, DifferingPlace, PatternVerdict, for_one_only, is_edit, seen_again,
    without_noise,
};
use anteroom_origin::{BackgroundSlot, ConnectionReuse, UploadBody};
use bytes::BytesMut;
use tokio::time::sleep;

use super::Audit;
use super::body::add;
use super::differences::AppAnswer;

/// How often the page is fetched as it was filled before a difference counts, and how often the visitor's request is
/// repeated. Of a page that shows something else by chance in the part q of its answers, all of these agree in
/// (1 − q)⁴ · q³ of the cases: in one of 120 at the most.
const FETCHES: usize = 4;
const REPETITIONS: usize = 3;
/// How long, and how often, the app is waited for where it is slow or has other work.
const WAIT: Duration = Duration::from_millis(500);
const WAITS_MAX: usize = 30;

impl Audit {
    /// The visitor's answer cannot be compared.
    pub(super) fn note_unknown(&self) {
        let _nothing = self.worker.audits.note(&self.page, AuditResult::Unknown);
    }

    /// Compares the visitor's answer with the stored page, notes what it shows, and does what follows.
    pub(super) async fn compare(self: Box<Self>, answer: AppAnswer) {
        let result = self.weigh(answer).await.unwrap_or(AuditResult::Unknown);
        let AuditedPage { host, pattern, path, .. } = &self.page;
        match self.worker.audits.note(&self.page, result) {
            PatternVerdict::Nothing => {}
            PatternVerdict::Doubtful(networks) => tracing::warn!(
                host,
                pattern,
                path,
                networks,
                "the app gives a visitor something else than the stored page: see anteroom audit"
            ),
            PatternVerdict::Differs(networks) => {
                self.stop(&format!("audit: it differs for visitors of {networks} networks")).await;
            }
            PatternVerdict::Leak => {
                tracing::error!(
                    host,
                    pattern,
                    path,
                    "a stored page held a visitor's own words: it is purged, and not shared any more"
                );
                self.stop("audit: it held a visitor's own words").await;
            }
        }
    }

    /// What the visitor's answer shows; `None`: nothing.
    async fn weigh(&self, answer: AppAnswer) -> Option<AuditResult> {
        // Where the app has just changed the visitor's session, the same request would be one of the session before.
        let may_ask_again = !self.has_cookies || !answer.headers.contains_key(SET_COOKIE);
        let found = self.look_at(answer).await?;
        if found.places.is_empty() && !found.has_words {
            return Some(AuditResult::Same);
        }
        let seen = found.places;
        let (mut places, mut fetches) = (seen.clone(), Vec::new());
        for nth in 0..FETCHES {
            let fetched = self.send(&self.fetch).await?;
            let fetched = self.look_at(fetched).await?.places;
            places = without_noise(places, &fetched);
            fetches.push(fetched);
            let may_leak = found.has_words && self.may_leak(&fetches, &seen).await;
            match (places.is_empty(), may_leak) {
                (true, false) => return self.changed_for_all(&seen, &fetches[0]),
                (_, true) if nth + 1 == FETCHES => return Some(AuditResult::Leak),
                (_, _) => {}
            }
        }
        if !may_ask_again {
            return None;
        }
        for _ in 0..REPETITIONS {
            let again = self.send(&self.again).await?;
            places = seen_again(places, &self.look_at(again).await?.places);
            if places.is_empty() {
                return Some(AuditResult::Noise);
            }
        }
        Some(AuditResult::Differs(places))
    }

    /// Whether the visitor's own words stand where the fetches show the same thing and the stored page another one, which the
    /// visitor sees, too.
    async fn may_leak(&self, fetches: &[Vec<DifferingPlace>], seen: &[DifferingPlace]) -> bool {
        let places = for_one_only(fetches, seen);
        !places.is_empty() && self.holds_words(places).await
    }

    /// What is said where a fetch differs, too.
    fn changed_for_all(
        &self,
        seen: &[DifferingPlace],
        fetched: &[DifferingPlace],
    ) -> Option<AuditResult> {
        match (seen.is_empty(), is_edit(seen, fetched)) {
            (true, _) => Some(AuditResult::Same),
            // A field of the visitor's fill may have made the difference in both.
            _ if !self.is_as_filled => None,
            (false, true) => Some(AuditResult::Edited),
            (false, false) => Some(AuditResult::Noise),
        }
    }

    /// The app's answer to a request without a body; `None`: it has none, or is busy for too long, or the answer is too
    /// large.
    async fn send(&self, request: &Request<UploadBody>) -> Option<AppAnswer> {
        let mut slot = self.slot_in_time().await?;
        let mut copy = Request::new(UploadBody::Empty);
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.headers_mut() = request.headers().clone();
        let (upstream, session) = (Rc::clone(&self.upstream), self.session.as_deref());
        // The session keeps to a server; what the request says is not changed by it.
        let sent = upstream.send(copy, ConnectionReuse::Pool(None), session).await;
        let Ok(mut came) = sent.inspect_err(|_| slot.fail()) else { return None };
        let mut body = Some(BytesMut::new());
        while let Some(frame) = came.response.body_mut().frame().await {
            let frame = frame.inspect_err(|_| slot.fail()).ok()?;
            if let Some(part) = frame.data_ref() {
                add(&mut body, part);
                body.as_ref()?;
            }
        }
        let (status, headers) = (came.response.status(), came.response.headers().clone());
        Some(AppAnswer { status, headers, body: body?.freeze() })
    }

    async fn slot_in_time(&self) -> Option<BackgroundSlot> {
        for _ in 0..WAITS_MAX {
            if let Some(slot) = self.upstream.background_slot() {
                return Some(slot);
            }
            sleep(WAIT).await;
        }
        None
    }
}
