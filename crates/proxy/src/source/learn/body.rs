//! Reads an answer along, and tells what it shows: whether the cache could share it, and how it differs from the
//! answers that others get.

use std::sync::Arc;

use ::http::HeaderMap;
use ::http::header::{ACCEPT_ENCODING, COOKIE};
use ::http::response::Parts;
use anteroom_cache::fill::TrialPage;
use anteroom_cache::purge::PurgeSnapshot;
use anteroom_cache::recoded;
use anteroom_cache::rules::key::variant_key;
use anteroom_cache::rules::leak_guard::{self, LeakChecks};
use anteroom_cache::rules::leak_kind::{LeakKind, PersonalForms};
use anteroom_cache::rules::personal_data::PersonalData;
use anteroom_http::ident::PageKey;
use anteroom_http::tags::tags;
use anteroom_http::vary::Vary;
use anteroom_learn::{AnswerPieces, AnswerSeen, AnswerText, BodyPlace, ComparedAnswer};
use anteroom_origin::BodyReader;
use anteroom_policy::route::CompiledRoute;
use bytes::{Bytes, BytesMut};

use super::place::LearnedPlace;
use crate::source::compared::{compared, is_text, of_the_head, shown};

/// The largest body that is read along, in bytes, as it comes and decoded.
const BODY_MAX: usize = 1 << 20;
const DECODED_MAX: usize = 4 << 20;

/// What is known of an answer that is compared, before its body.
pub(super) struct AnswerComparison {
    answer: AnswerSeen,
    words: PersonalData,
    /// The fields that each visitor would get.
    fields: HeaderMap,
    /// The values of the request that choose the variant, by the answer's `Vary`.
    chosen: Option<HeaderMap>,
}

impl AnswerComparison {
    /// `asked`: the fields of the request.
    pub(super) fn new(
        answer: AnswerSeen,
        words: PersonalData,
        route: &CompiledRoute,
        head: &Parts,
        asked: &HeaderMap,
    ) -> Self {
        let mut fields = head.headers.clone();
        route.cut_fields(&mut fields);
        Self { answer, words, fields: shown(fields), chosen: chosen(&head.headers, asked) }
    }

    /// The key of the answer's variant.
    fn variant(&self, primary: &PageKey) -> Option<PageKey> {
        let chosen = self.chosen.as_ref()?;
        let names: Vec<_> = chosen.keys().cloned().collect();
        Some(variant_key(primary, &names, chosen))
    }
}

/// What of the request chooses the answer's variant. `None`: nothing. What its cookies do is compared, and codings
/// make no difference.
fn chosen(headers: &HeaderMap, asked: &HeaderMap) -> Option<HeaderMap> {
    let Vary::Fields(names) = Vary::parse(headers) else { return None };
    let chosen: HeaderMap = names
        .into_iter()
        .filter(|name| *name != COOKIE && *name != ACCEPT_ENCODING)
        .filter_map(|name| Some((name.clone(), asked.get(name)?.clone())))
        .collect();
    Some(chosen).filter(|chosen| !chosen.is_empty())
}

/// Reads the body of an answer along.
pub(super) struct LessonBody {
    page: LearnedPlace,
    visitor: u64,
    trial: Option<TrialPage>,
    comparing: Option<AnswerComparison>,
    head: Parts,
    body: BytesMut,
    /// Whether the body was kept until now.
    is_kept: bool,
    place: Option<BodyPlace>,
    /// Which purges outdate the answer, but for its tags.
    marks: PurgeSnapshot,
}

impl LessonBody {
    /// `place`: `None`: the body is not kept. `marks`: which purges outdate the answer, but for its tags.
    pub(super) fn new(
        page: LearnedPlace,
        trial: Option<TrialPage>,
        comparing: Option<AnswerComparison>,
        head: Parts,
        place: Option<BodyPlace>,
        marks: PurgeSnapshot,
        visitor: u64,
    ) -> Self {
        let (body, is_kept) = (BytesMut::new(), place.is_some());
        Self { page, visitor, trial, comparing, head, body, is_kept, place, marks }
    }
}

impl BodyReader for LessonBody {
    fn part(&mut self, part: &Bytes) {
        if self.is_kept && self.body.len() + part.len() <= BODY_MAX {
            self.body.extend_from_slice(part);
        } else if self.is_kept {
            self.is_kept = false;
            self.body = BytesMut::new();
        }
    }

    fn whole(self: Box<Self>) {
        if !self.is_kept {
            return self.learn();
        }
        // What the leak guard and the comparison read may take milliseconds: other requests do not wait for it.
        tokio::task::spawn_blocking(move || self.learn());
    }
}

impl LessonBody {
    fn learn(self) {
        let Self { page, visitor, trial, comparing, head, .. } = self;
        let Self { body, is_kept, place, marks, .. } = self;
        let body = body.freeze();
        let read = || {
            let plain = recoded::plain(&head.headers, &body, DECODED_MAX)?;
            let kept = comparing.as_ref();
            let finding = kept.and_then(|kept| find(&head, kept, &body));
            let words = kept.filter(|_| finding.is_some()).map(|kept| &kept.words);
            let fields = kept.map(|kept| compared(kept.fields.clone())).unwrap_or_default();
            let text = AnswerText {
                head: &of_the_head(head.status, &head.headers),
                fields: &fields,
                body: &plain,
                is_text: is_text(&head.headers) || std::str::from_utf8(&plain).is_ok(),
                now: page.now,
            };
            Some((AnswerPieces::of(&page.learning.hash_key(), &text, words), finding))
        };
        let read = is_kept.then(read).flatten();
        if let Some(comparing) = comparing
            && let Some((pieces, finding)) = &read
        {
            let purged = &page.pages.purged;
            let variant = comparing.variant(&page.key);
            let compared = ComparedAnswer {
                answer: AnswerSeen { finding: *finding, ..comparing.answer },
                pieces,
                variant,
                marks: &purged.tagged(&marks, &tags(&head.headers).unwrap_or_default()),
            };
            let is_current = |marks: &PurgeSnapshot| purged.is_current(marks);
            page.learning.compare(&page.key, compared, is_current);
        }
        match trial {
            Some(trial) if is_kept || !trial.is_guarded() => {
                let needs_proof = trial.needs_second_user();
                let judged = trial.judge_body(&body, &page.pages.purged);
                let judged = judged.map(|(key, entry)| (key, Arc::new(entry)));
                let pieces = read.as_ref().map(|(pieces, _)| pieces);
                match needs_proof {
                    true => page.learning.proved(&page.key, visitor, judged, pieces),
                    false => page.learning.judged(&page.key, judged),
                }
            }
            Some(_) => page.unseen(),
            None => {}
        }
        drop(place);
    }
}

/// What of the visitor's own words stands in an answer.
fn find(head: &Parts, comparing: &AnswerComparison, body: &Bytes) -> Option<LeakKind> {
    let words = &comparing.words;
    let checks =
        LeakChecks { forms: PersonalForms::None, personal_data: words, max_decoded: DECODED_MAX };
    let found = leak_guard::search(&head.headers, std::slice::from_ref(body), &checks).err();
    let found = found.filter(|leak| *leak != LeakKind::Undecodable);
    found.or_else(|| words.search_fields(&comparing.fields).err())
}
