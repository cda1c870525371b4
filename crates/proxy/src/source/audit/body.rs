//! Reads the app's answer along, and compares it with the stored page.

use std::sync::Arc;

use ::http::{HeaderMap, StatusCode};
use anteroom_cache::entry::Entry;
use anteroom_cache::{fill, recoded};
use anteroom_http::forwarded;
use anteroom_learn::AnswerText;
use anteroom_learn::audit::{AuditResult, AuditedPage, DifferingPlace, compare, without_noise};
use anteroom_origin::{BodyReader, ConnectionReuse};
use anteroom_policy::route::CompiledRoute;
use bytes::{Bytes, BytesMut};

use super::Audit;
use crate::source::compared::{compared, is_text, of_the_head, shown};

/// The largest body that is compared, in bytes, as it comes and decoded.
const BODY_MAX: usize = 1 << 20;
const DECODED_MAX: usize = 4 << 20;

/// An answer of the app.
struct AppAnswer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

/// Reads the visitor's answer along.
pub(super) struct AuditBody {
    audit: Box<Audit>,
    status: StatusCode,
    headers: HeaderMap,
    /// `None`: it is too large.
    body: Option<BytesMut>,
}

impl AuditBody {
    pub(super) fn new(audit: Box<Audit>, status: StatusCode, headers: HeaderMap) -> Self {
        Self { audit, status, headers, body: Some(BytesMut::new()) }
    }
}

impl BodyReader for AuditBody {
    fn part(&mut self, part: &Bytes) {
        add(&mut self.body, part);
    }

    fn whole(self: Box<Self>) {
        let Self { audit, status, headers, body } = *self;
        let answer = body.map(|body| AppAnswer { status, headers, body: body.freeze() });
        tokio::task::spawn_local(audit.compare(answer));
    }
}

/// Adds a part to a body, unless it becomes too large.
fn add(body: &mut Option<BytesMut>, part: &Bytes) {
    if body.as_ref().is_some_and(|body| body.len() + part.len() > BODY_MAX) {
        *body = None;
    }
    if let Some(body) = body {
        body.extend_from_slice(part);
    }
}

impl Audit {
    /// Compares the visitor's answer with the stored page, and notes what it shows.
    async fn compare(mut self: Box<Self>, answer: Option<AppAnswer>) {
        let found = match answer {
            Some(answer) => self.differences(answer).await,
            None => None,
        };
        let result = match found {
            None => AuditResult::Unknown,
            Some(places) if places.is_empty() => AuditResult::Same,
            Some(places) => self.weigh(places).await,
        };
        let Some(networks) = self.audits.note(&self.page, result) else { return };
        let AuditedPage { host, pattern, path, .. } = &self.page;
        tracing::warn!(
            host,
            pattern,
            path,
            networks,
            "the app gives a visitor something else than the stored page: see anteroom audit"
        );
    }

    /// Fetches the page once more: what differs there, too, is noise, or the page has changed.
    async fn weigh(&mut self, places: Vec<DifferingPlace>) -> AuditResult {
        let Some(fetched) = self.fetch().await else { return AuditResult::Unknown };
        match self.differences(fetched).await {
            None => AuditResult::Unknown,
            Some(fetched) => match without_noise(places, &fetched) {
                own if own.is_empty() => AuditResult::Noise,
                own => AuditResult::Differs(own),
            },
        }
    }

    /// The page as the app gives it now to the request that filled it.
    async fn fetch(&mut self) -> Option<AppAnswer> {
        let fetch = self.fetch.take()?;
        let mut slot = self.upstream.background_slot()?;
        let sent = self.upstream.send(fetch, ConnectionReuse::Pool(None), None).await;
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

    /// Where an answer differs from the stored page; `None`: it cannot be compared.
    async fn differences(&self, answer: AppAnswer) -> Option<Vec<DifferingPlace>> {
        let (stored, route, now) = (Arc::clone(&self.stored), Arc::clone(&self.route), self.now);
        // This takes milliseconds: other requests do not wait for it.
        let compared = move || differences(&stored, &route, answer, now);
        tokio::task::spawn_blocking(compared).await.ok().flatten()
    }
}

fn differences(
    stored: &Entry,
    route: &CompiledRoute,
    mut answer: AppAnswer,
    now: u64,
) -> Option<Vec<DifferingPlace>> {
    // An error says nothing of the page.
    if fill::passes(answer.status) {
        return None;
    }
    forwarded::remove_own(&mut answer.headers);
    route.cut_fields(&mut answer.headers);
    let page = AppAnswer {
        status: StatusCode::from_u16(stored.status).ok()?,
        headers: stored.fields.map(),
        body: stored.body.clone(),
    };
    let (page, answer) = (ReadAnswer::of(page)?, ReadAnswer::of(answer)?);
    Some(compare(&page.text(now), &answer.text(now)))
}

/// An answer without its coding.
struct ReadAnswer {
    head: Vec<u8>,
    fields: HeaderMap,
    body: Bytes,
    is_text: bool,
}

impl ReadAnswer {
    fn of(answer: AppAnswer) -> Option<Self> {
        let AppAnswer { status, headers, body } = answer;
        let body = recoded::plain(&headers, &body, DECODED_MAX)?;
        Some(Self {
            head: of_the_head(status, &headers),
            is_text: is_text(&headers) || std::str::from_utf8(&body).is_ok(),
            fields: compared(shown(headers)),
            body,
        })
    }

    fn text(&self, now: u64) -> AnswerText<'_> {
        let Self { head, fields, body, is_text } = self;
        AnswerText { head, fields, body, is_text: *is_text, now }
    }
}
