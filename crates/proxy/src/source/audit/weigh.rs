//! Weighs a difference: asks the app again, to tell what is noise or an edit of the page, and notes what is left.

use std::rc::Rc;

use ::http::Request;
use ::http::header::SET_COOKIE;
use anteroom_learn::audit::{AuditResult, AuditedPage, PatternVerdict, seen_again, without_noise};
use anteroom_origin::{ConnectionReuse, UploadBody};
use bytes::BytesMut;

use super::Audit;
use super::body::add;
use super::differences::AppAnswer;

/// How often the page is fetched as it was filled before a difference counts. A page that shows one of two things by chance
/// passes for one that differs once in so many powers of two.
const FETCHES: usize = 4;

impl Audit {
    /// Compares the visitor's answer with the stored page, notes what it shows, and does what follows.
    pub(super) async fn compare(self: Box<Self>, answer: Option<AppAnswer>) {
        let result = match answer {
            Some(answer) => self.weigh(answer).await,
            None => None,
        };
        let verdict = self.worker.audits.note(&self.page, result.unwrap_or(AuditResult::Unknown));
        let AuditedPage { host, pattern, path, .. } = &self.page;
        match verdict {
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
        let may_ask_again = !answer.headers.contains_key(SET_COOKIE);
        let found = self.look_at(answer).await?;
        let (mut places, mut has_words) = (found.places, found.words_stored);
        if places.is_empty() && !has_words {
            return Some(AuditResult::Same);
        }
        let is_known = !has_words && self.worker.audits.is_known(&self.page);
        for _ in 0..if is_known { 1 } else { FETCHES } {
            let fetched = self.send(&self.fetch, None).await?;
            let fetched = self.look_at(fetched).await?;
            places = without_noise(places, &fetched.places);
            has_words &= !fetched.words_answered;
            if places.is_empty() && !has_words {
                return self.is_as_filled.then_some(AuditResult::Noise);
            }
        }
        if has_words {
            return Some(AuditResult::Leak);
        }
        if may_ask_again {
            let again = self.send(&self.again, self.session.as_deref()).await?;
            places = seen_again(places, &self.look_at(again).await?.places);
        }
        Some(match places.is_empty() {
            true => AuditResult::Noise,
            false => AuditResult::Differs(places),
        })
    }

    /// The app's answer to a request without a body; `None`: it has none, or is busy, or the answer is too large.
    async fn send(
        &self,
        request: &Request<UploadBody>,
        session: Option<&str>,
    ) -> Option<AppAnswer> {
        let mut slot = self.upstream.background_slot()?;
        let mut copy = Request::new(UploadBody::Empty);
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.headers_mut() = request.headers().clone();
        let upstream = Rc::clone(&self.upstream);
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
}
