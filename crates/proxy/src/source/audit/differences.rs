//! What of an answer of the app is something else than the stored page, and whether a visitor's own words stand in it.

use std::sync::Arc;

use ::http::{HeaderMap, StatusCode};
use ahash::RandomState;
use anteroom_cache::entry::Entry;
use anteroom_cache::rules::personal_data::PersonalData;
use anteroom_cache::{fill, recoded};
use anteroom_http::forwarded;
use anteroom_learn::AnswerText;
use anteroom_learn::audit::{DifferingPlace, PlaceKind, compare};
use bytes::Bytes;

use super::Audit;
use crate::source::compared::{compared, is_text, of_the_head, shown};

/// The largest body that is compared, decoded, in bytes.
const DECODED_MAX: usize = 4 << 20;

/// An answer of the app.
pub(super) struct AppAnswer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// What a comparison finds.
pub(super) struct AuditFinding {
    /// Where the answer differs from the stored page.
    pub(super) places: Vec<DifferingPlace>,
    /// Whether the visitor's own words stand in the stored page.
    pub(super) has_words: bool,
}

impl Audit {
    /// Compares an answer with the stored page; `None`: they cannot be compared.
    pub(super) async fn look_at(&self, mut answer: AppAnswer) -> Option<AuditFinding> {
        // An error says nothing of the page.
        if fill::passes(answer.status) {
            return None;
        }
        forwarded::remove_own(&mut answer.headers);
        self.route.cut_fields(&mut answer.headers);
        let (stored, words, now) = (Arc::clone(&self.stored), self.words.clone(), self.now);
        let key = self.key.clone();
        // This takes milliseconds: other requests do not wait for it.
        let looked = tokio::task::spawn_blocking(move || find(&key, &stored, answer, &words, now));
        looked.await.ok().flatten()
    }

    /// Those of these places at which the visitor's own words stand in the stored page.
    pub(super) async fn with_words(&self, mut places: Vec<DifferingPlace>) -> Vec<DifferingPlace> {
        let (stored, words) = (Arc::clone(&self.stored), self.words.clone());
        let looked = tokio::task::spawn_blocking(move || {
            match stored_page(&stored).and_then(ReadAnswer::of) {
                Some(page) => places.retain(|place| page.holds_at(place, &words)),
                None => places.clear(),
            }
            places
        });
        looked.await.unwrap_or_default()
    }
}

fn stored_page(stored: &Entry) -> Option<AppAnswer> {
    Some(AppAnswer {
        status: StatusCode::from_u16(stored.status).ok()?,
        headers: stored.fields.map(),
        body: stored.body.clone(),
    })
}

fn find(
    key: &RandomState,
    stored: &Entry,
    answer: AppAnswer,
    words: &PersonalData,
    now: u64,
) -> Option<AuditFinding> {
    let (page, answer) = (ReadAnswer::of(stored_page(stored)?)?, ReadAnswer::of(answer)?);
    Some(AuditFinding {
        places: compare(key, &page.text(now), &answer.text(now)),
        has_words: page.holds(words),
    })
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

    /// Whether it holds one of these words.
    fn holds(&self, words: &PersonalData) -> bool {
        if words.is_empty() {
            return false;
        }
        let mut find = words.finder();
        find(&self.head) || find(&self.body) || words.search_fields(&self.fields).is_err()
    }

    /// The same at a place.
    fn holds_at(&self, place: &DifferingPlace, words: &PersonalData) -> bool {
        match place.kind {
            PlaceKind::Head => words.finder()(&self.head),
            PlaceKind::Field => words.search_fields(&self.fields).is_err(),
            PlaceKind::Body => words.finder()(place.text(&self.body)),
        }
    }
}
