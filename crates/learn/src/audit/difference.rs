//! Where an answer differs from a stored page.

use std::ops::Range;

use ahash::RandomState;
use serde::{Deserialize, Serialize};

use crate::changes::Changes;
use crate::pieces::{AnswerPieces, AnswerText};

/// The most places that are told.
const PLACES_MAX: usize = 64;

/// What of an answer a place is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlaceKind {
    /// The status, or a field without which the body means something else, such as `Location`.
    Head,
    /// Another field.
    Field,
    /// The body.
    Body,
}

/// A place at which an answer differs from a stored page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DifferingPlace {
    /// What it is in.
    pub kind: PlaceKind,
    /// Of a body: where it begins in the stored page, in bytes of the body without coding. Otherwise 0.
    pub at: u32,
    /// Of a body: how many bytes of the stored page differ.
    pub stored: u32,
    /// A mark that equal places have.
    #[serde(skip)]
    mark: Mark,
}

/// What a comparison showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditResult {
    /// The visitor's answer is as the stored page.
    Same,
    /// It differs where another fetch of the page differs, too.
    Noise,
    /// It differs, and other fetches of the page do not.
    Differs(Vec<DifferingPlace>),
    /// The stored page holds words of the visitor, and other fetches of it do not: it was another page than that for all.
    Leak,
    /// The app did not answer with a page, or the answer could not be compared.
    Unknown,
}

/// What two differences have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// The hash of a field's name.
    field: u32,
    /// The places of pieces of the stored body; empty: before this place.
    pieces: Range<u16>,
}

impl DifferingPlace {
    /// Whether these have a place in common.
    fn meets(&self, other: &Self) -> bool {
        let (own, its) = (&self.mark.pieces, &other.mark.pieces);
        let is_near = own.start <= its.end && its.start <= own.end;
        self.kind == other.kind && self.mark.field == other.mark.field && is_near
    }

    /// Whether these are in the same place, or have all of it in common. A page that differs as a whole is no noise because
    /// one piece of it is.
    fn is_covered(&self, others: &[Self]) -> bool {
        let Mark { field, pieces } = &self.mark;
        let is_like = |other: &&Self| other.kind == self.kind && other.mark.field == *field;
        let mut alike = others.iter().filter(is_like).map(|other| &other.mark.pieces);
        if pieces.is_empty() {
            return alike.any(|own| own.start <= pieces.start && pieces.start <= own.end);
        }
        pieces.clone().all(|piece| alike.clone().any(|own| own.contains(&piece)))
    }
}

/// Where an answer differs from a stored page, at most 64 places.
#[must_use]
pub fn compare(stored: &AnswerText<'_>, answer: &AnswerText<'_>) -> Vec<DifferingPlace> {
    let key = RandomState::new();
    let (page, answer) =
        (AnswerPieces::of(&key, stored, None), AnswerPieces::of(&key, answer, None));
    let changes =
        Changes::between(&page, &answer).unwrap_or_else(|| Changes::whole(&page, &answer));
    let plain =
        |kind, field| DifferingPlace { kind, at: 0, stored: 0, mark: Mark { field, pieces: 0..0 } };
    let head = (page.head != answer.head).then(|| plain(PlaceKind::Head, 0));
    let fields = changes.fields.iter().map(|field| plain(PlaceKind::Field, field.name));
    let end = |piece: u16| match piece {
        0 => 0,
        piece => page.ends.get(usize::from(piece) - 1).copied().unwrap_or(0),
    };
    let body = changes.body.iter().map(|change| DifferingPlace {
        kind: PlaceKind::Body,
        at: end(change.at.start),
        stored: end(change.at.end).saturating_sub(end(change.at.start)),
        mark: Mark { field: 0, pieces: change.at.clone() },
    });
    head.into_iter().chain(fields).chain(body).take(PLACES_MAX).collect()
}

/// The places at which a visitor's answer differs from a stored page, and that visitor's next answer, too.
#[must_use]
pub fn seen_again(visitor: Vec<DifferingPlace>, again: &[DifferingPlace]) -> Vec<DifferingPlace> {
    visitor.into_iter().filter(|place| again.iter().any(|other| place.meets(other))).collect()
}

/// The places at which a visitor's answer differs from a stored page, but for those at which another fetch of the page
/// differs from it, too: these are noise, or the page has changed.
#[must_use]
pub fn without_noise(
    visitor: Vec<DifferingPlace>,
    fetched: &[DifferingPlace],
) -> Vec<DifferingPlace> {
    visitor.into_iter().filter(|place| !place.is_covered(fetched)).collect()
}

#[cfg(test)]
mod tests {
    use ::http::{HeaderMap, HeaderValue};

    use super::*;

    fn compared(stored: &str, answer: &str) -> Vec<DifferingPlace> {
        let fields = HeaderMap::new();
        let text = |body| AnswerText { head: b"200", fields: &fields, body, is_text: true, now: 0 };
        compare(&text(stored.as_bytes()), &text(answer.as_bytes()))
    }

    #[test]
    fn a_place_is_told_by_its_bytes_and_not_by_its_words() {
        let places = compared(
            "<p>top</p><p>Hello stranger</p><i>x</i>",
            "<p>top</p><p>Hello Ann</p><i>x</i>",
        );
        assert_eq!(places.len(), 1);
        assert_eq!((places[0].kind, places[0].at, places[0].stored), (PlaceKind::Body, 11, 17));
        assert!(compared("<p>same</p>", "<p>same</p>").is_empty());
    }

    #[test]
    fn fields_and_the_head_are_compared() {
        let with = |value: &'static str| {
            HeaderMap::from_iter([(::http::header::LINK, HeaderValue::from_static(value))])
        };
        let (one, other) = (with("</a>"), with("</b>"));
        let text = |head, fields| AnswerText { head, fields, body: b"x", is_text: true, now: 0 };
        let kinds = |places: Vec<DifferingPlace>| {
            places.into_iter().map(|place| place.kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(compare(&text(b"200", &one), &text(b"200", &other))), [PlaceKind::Field]);
        assert_eq!(kinds(compare(&text(b"200", &one), &text(b"404", &one))), [PlaceKind::Head]);
    }

    #[test]
    fn what_another_fetch_changes_too_is_noise() {
        let stored = "<p>n1</p><p>same</p><p>DE</p>";
        let visitor = compared(stored, "<p>n2</p><p>same</p><p>AT</p>");
        let fetched = compared(stored, "<p>n3</p><p>same</p><p>DE</p>");
        assert_eq!((visitor.len(), fetched.len()), (2, 1));
        let own = without_noise(visitor.clone(), &fetched);
        assert_eq!(own.len(), 1);
        assert_eq!(own[0].at, 21);
        assert!(without_noise(visitor.clone(), &visitor).is_empty(), "the page has changed");
    }

    #[test]
    fn what_the_visitor_does_not_see_again_is_noise() {
        let stored = "<p>quote 1</p><p>same</p><p>DE</p>";
        let visitor = compared(stored, "<p>quote 2</p><p>same</p><p>AT</p>");
        let again = compared(stored, "<p>quote 1</p><p>same</p><p>AT</p>");
        let own = seen_again(visitor, &again);
        assert_eq!(own.iter().map(|place| place.at).collect::<Vec<_>>(), [26]);
    }

    #[test]
    fn a_page_that_differs_as_a_whole_is_not_dismissed_by_a_nonce() {
        let text = |word: &str| (0..40).map(|n| format!("<p>{word} {n}</p>")).collect::<String>();
        let stored = format!("<i>1</i>{}", text("stored"));
        let visitor = compared(&stored, &format!("<i>2</i>{}", text("banned")));
        let fetched = compared(&stored, &format!("<i>3</i>{}", text("stored")));
        assert!(!without_noise(visitor, &fetched).is_empty());
    }

    #[test]
    fn an_insertion_at_one_place_meets_one_at_the_same() {
        let stored = "<a>1</a><b>2</b>";
        let one = compared(stored, "<a>1</a><i>ad</i><b>2</b>");
        let other = compared(stored, "<a>1</a><u>another</u><b>2</b>");
        assert!(without_noise(one, &other).is_empty());
    }
}
