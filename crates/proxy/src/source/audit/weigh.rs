//! Weighs a difference: asks the app again, to tell what is noise or an edit of the page, and notes what is left.

use std::rc::Rc;
use std::time::Duration;

use ::http::Request;
use ::http::header::SET_COOKIE;
use anteroom_learn::audit::{
    AuditResult, AuditedPage, DifferingPlace, PatternVerdict, any_overlaps, for_one_only, is_edit,
    seen_again, without_noise,
};
use anteroom_origin::{BackgroundSlot, ConnectionReuse, Requester, UploadBody};
use bytes::BytesMut;
use tokio::time::{sleep, timeout};

use super::Audit;
use super::body::add;
use super::differences::{AppAnswer, AuditFinding};
use super::stop::StopExtent;

/// How often the page is fetched as it was filled before a difference counts, and how often the visitor's request is
/// repeated. Of a page that shows something else by chance in the part q of its answers, all of these agree in
/// (1 − q)⁴ · q³ of the cases: in one of 120 at the most.
const FETCHES: usize = 4;
const REPETITIONS: usize = 3;
/// How often the app is looked at where it is slow or has other work.
const WAIT: Duration = Duration::from_millis(250);
/// How long the app may take for one of these answers, and for all of them.
const ANSWERED_FOR: Duration = Duration::from_secs(10);
const WEIGHED_FOR: Duration = Duration::from_secs(30);

/// What speaks against the stored page.
struct Suspicion {
    /// Where the visitor sees something else.
    places: Vec<DifferingPlace>,
    /// Where the stored page has the visitor's own words, and the fetches do not.
    leaked: Vec<DifferingPlace>,
}

impl Suspicion {
    fn is_over(&self) -> bool {
        self.places.is_empty() && self.leaked.is_empty()
    }
}

impl Audit {
    /// The visitor's answer cannot be compared.
    pub(super) fn note_unknown(&self) {
        let _nothing = self.worker.audits.note(&self.page, AuditResult::Unknown);
    }

    /// Compares the visitor's answer with the stored page, notes what it shows, and does what follows.
    pub(super) async fn compare(self: Box<Self>, answer: AppAnswer) {
        // An answer from long after says nothing of the page as it was.
        let weighed = timeout(WEIGHED_FOR, self.weigh(answer)).await;
        let result = weighed.ok().flatten().unwrap_or(AuditResult::Unknown);
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
            PatternVerdict::PageDiffers(networks) => {
                let why = format!("audit: it differs for visitors of {networks} networks");
                self.stop(StopExtent::Page, &why).await;
            }
            PatternVerdict::PatternDiffers(networks) => {
                let why = format!("audit: they differ for visitors of {networks} networks");
                self.stop(StopExtent::Pattern, &why).await;
            }
            PatternVerdict::Leak => {
                tracing::error!(
                    host,
                    pattern,
                    path,
                    "a stored page held a visitor's own words: it is purged, and not shared any more"
                );
                self.stop(StopExtent::Pattern, "audit: one held a visitor's own words").await;
            }
        }
    }

    /// What the visitor's answer shows; `None`: nothing.
    async fn weigh(&self, answer: AppAnswer) -> Option<AuditResult> {
        // Where the app has just changed the visitor's session, the same request would be one of the session before.
        let may_ask_again = !self.changes_session(&answer);
        let is_refused = answer.status.is_client_error() && self.stored.status < 400;
        let finding = self.look_at(answer).await?;
        if finding.places.is_empty() && !finding.has_words {
            return Some(AuditResult::Same);
        }
        let suspicion = match self.hold_against_fetches(finding).await? {
            Ok(suspicion) if may_ask_again => suspicion,
            Ok(_) => return None,
            Err(result) => return Some(result),
        };
        let suspicion = self.hold_against_repetitions(suspicion).await?;
        Some(match (suspicion.leaked.is_empty(), is_refused) {
            _ if suspicion.is_over() => AuditResult::Noise,
            (false, _) => AuditResult::Leak,
            (true, true) => AuditResult::Refused,
            (true, false) => AuditResult::Differs(suspicion.places),
        })
    }

    /// What is left of a difference after fetches of the page; `Err`: nothing is, and what that means. `None`: nothing can
    /// be said.
    async fn hold_against_fetches(
        &self,
        AuditFinding { places: seen, has_words }: AuditFinding,
    ) -> Option<Result<Suspicion, AuditResult>> {
        let mut left = Suspicion { places: seen.clone(), leaked: Vec::new() };
        let mut fetches = Vec::new();
        for nth in 0..FETCHES {
            let fetched = self.send(if nth % 2 == 0 { &self.fetch } else { &self.fetch_passed_on });
            let fetched = self.look_at(fetched.await?).await?.places;
            left.places = without_noise(left.places, &fetched);
            fetches.push(fetched);
            left.leaked = self.leaked(has_words, &fetches, &seen).await;
            if left.is_over() {
                return self.changed_for_all(&seen, &fetches[0]).map(Err);
            }
        }
        Some(Ok(left))
    }

    /// What is left of it after the visitor's request was repeated; `None`: nothing can be said.
    async fn hold_against_repetitions(&self, mut left: Suspicion) -> Option<Suspicion> {
        for _ in 0..REPETITIONS {
            let again = self.send(&self.again).await?;
            if self.changes_session(&again) {
                return None;
            }
            let again = self.look_at(again).await?.places;
            left.places = seen_again(left.places, &again);
            if any_overlaps(&left.leaked, &again) {
                left.leaked.clear();
            }
            if left.is_over() {
                break;
            }
        }
        Some(left)
    }

    fn changes_session(&self, answer: &AppAnswer) -> bool {
        self.has_cookies && answer.headers.contains_key(SET_COOKIE)
    }

    /// The places with the visitor's own words at which the fetches show the same thing and the stored page another one,
    /// which the visitor sees, too.
    async fn leaked(
        &self,
        has_words: bool,
        fetches: &[Vec<DifferingPlace>],
        seen: &[DifferingPlace],
    ) -> Vec<DifferingPlace> {
        let places = if has_words { for_one_only(fetches, seen) } else { Vec::new() };
        if places.is_empty() { places } else { self.with_words(places).await }
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

    /// The app's answer to a request without a body; `None`: it has none, or the answer is too large.
    async fn send(&self, request: &Request<UploadBody>) -> Option<AppAnswer> {
        let mut slot = self.slot().await;
        let mut copy = Request::new(UploadBody::Empty);
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.headers_mut() = request.headers().clone();
        let came = timeout(ANSWERED_FOR, self.answer_of(copy, &mut slot)).await;
        if came.is_err() {
            slot.fail();
        }
        came.ok().flatten()
    }

    async fn answer_of(
        &self,
        request: Request<UploadBody>,
        slot: &mut BackgroundSlot,
    ) -> Option<AppAnswer> {
        let upstream = Rc::clone(&self.upstream);
        // The session keeps to a server; what the request says is not changed by it.
        let requester = Requester { session: self.session.as_deref(), ..Requester::BACKGROUND };
        let sent = upstream.send(request, ConnectionReuse::Pool(None), requester).await;
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

    /// A place at the app. The time for all answers bounds the wait.
    async fn slot(&self) -> BackgroundSlot {
        loop {
            match self.upstream.background_slot() {
                Some(slot) => return slot,
                None => sleep(WAIT).await,
            }
        }
    }
}
