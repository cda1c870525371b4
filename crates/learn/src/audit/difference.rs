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
    /// A hash of what the answer shows there.
    #[serde(skip)]
    shown: u32,
}

/// What a comparison showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditResult {
    /// The visitor's answer is as the stored page.
    Same,
    /// It differs where another fetch of the page differs, too.
    Noise,
    /// The same, and the fetch shows what the visitor sees: the page has changed.
    Edited,
    /// It differs, and other fetches of the page do not.
    Differs(Vec<DifferingPlace>),
    /// The same: the app refuses this visitor what others get.
    Refused,
    /// The stored page holds words of the visitor, and other fetches of it do not: it was another page than that for all.
    Leak,
    /// The app did not answer with a page, or the answer could not be compared.
    Unknown,
}

impl AuditResult {
    /// Where the answer differs, if that counts.
    pub(super) fn places(self) -> Vec<DifferingPlace> {
        match self {
            Self::Differs(places) => places,
            Self::Same
            | Self::Noise
            | Self::Edited
            | Self::Refused
            | Self::Leak
            | Self::Unknown => Vec::new(),
        }
    }
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
    /// The text of the stored page there. `body`: that of the page, without coding.
    #[must_use]
    pub fn text<'b>(&self, body: &'b [u8]) -> &'b [u8] {
        let (at, stored) = (self.at as usize, self.stored as usize);
        body.get(at..at.saturating_add(stored)).unwrap_or_default()
    }

    /// Whether a piece of the stored page is in both.
    fn overlaps(&self, other: &Self) -> bool {
        let (own, its) = (&self.mark.pieces, &other.mark.pieces);
        self.kind == other.kind
            && self.mark.field == other.mark.field
            && (own == its || own.start < its.end && its.start < own.end)
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

/// Where an answer differs from a stored page, at most 64 places. `key`: that of all answers that are held against each
/// other.
#[must_use]
pub fn compare(
    key: &RandomState,
    stored: &AnswerText<'_>,
    answer: &AnswerText<'_>,
) -> Vec<DifferingPlace> {
    let (page, answer) = (AnswerPieces::of(key, stored, None), AnswerPieces::of(key, answer, None));
    let changes =
        Changes::between(&page, &answer).unwrap_or_else(|| Changes::whole(&page, &answer));
    let plain = |kind, field, shown| DifferingPlace {
        kind,
        at: 0,
        stored: 0,
        mark: Mark { field, pieces: 0..0 },
        shown,
    };
    let head = (page.head != answer.head).then(|| plain(PlaceKind::Head, 0, answer.head));
    let fields = changes.fields.iter();
    let fields = fields.map(|field| plain(PlaceKind::Field, field.name, field.value));
    let end = |piece: u16| match piece {
        0 => 0,
        piece => page.ends.get(usize::from(piece) - 1).copied().unwrap_or(0),
    };
    let body = changes.body.iter().map(|change| DifferingPlace {
        kind: PlaceKind::Body,
        at: end(change.at.start),
        stored: end(change.at.end).saturating_sub(end(change.at.start)),
        mark: Mark { field: 0, pieces: change.at.clone() },
        shown: change.text,
    });
    head.into_iter().chain(fields).chain(body).take(PLACES_MAX).collect()
}

/// Whether a fetch of the page shows at each of these places what the visitor sees: the page has changed.
#[must_use]
pub fn is_edit(visitor: &[DifferingPlace], fetched: &[DifferingPlace]) -> bool {
    visitor.iter().all(|place| fetched.contains(place))
}

/// The places at which several fetches of the page show the same, and not what the stored page does, but the visitor sees
/// that: it was stored for this visitor alone.
#[must_use]
pub fn for_one_only(
    fetches: &[Vec<DifferingPlace>],
    visitor: &[DifferingPlace],
) -> Vec<DifferingPlace> {
    let Some((first, others)) = fetches.split_first() else { return Vec::new() };
    let is_steady = |place: &&DifferingPlace| others.iter().all(|fetch| fetch.contains(place));
    let is_seen = |place: &&DifferingPlace| !visitor.iter().any(|own| own.overlaps(place));
    first.iter().filter(is_steady).filter(is_seen).cloned().collect()
}

/// The places at which a visitor's answer differs from a stored page, and that visitor's next answer shows the same there.
#[must_use]
pub fn seen_again(visitor: Vec<DifferingPlace>, again: &[DifferingPlace]) -> Vec<DifferingPlace> {
    visitor.into_iter().filter(|place| again.contains(place)).collect()
}

/// Whether some of these places are among the others: a visitor does not see there what the stored page has.
#[must_use]
pub fn any_overlaps(places: &[DifferingPlace], others: &[DifferingPlace]) -> bool {
    places.iter().any(|place| others.iter().any(|other| place.overlaps(other)))
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

    fn key() -> RandomState {
        RandomState::with_seeds(1, 2, 3, 4)
    }

    fn compared(stored: &str, answer: &str) -> Vec<DifferingPlace> {
        let fields = HeaderMap::new();
        let text = |body| AnswerText { head: b"200", fields: &fields, body, is_text: true, now: 0 };
        compare(&key(), &text(stored.as_bytes()), &text(answer.as_bytes()))
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
        assert_eq!(
            kinds(compare(&key(), &text(b"200", &one), &text(b"200", &other))),
            [PlaceKind::Field]
        );
        assert_eq!(
            kinds(compare(&key(), &text(b"200", &one), &text(b"404", &one))),
            [PlaceKind::Head]
        );
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
    fn an_edit_shows_all_what_the_visitor_sees() {
        let stored = "<p>old</p><p>same</p>";
        let visitor = compared(stored, "<p>new</p><p>same</p>");
        assert!(is_edit(&visitor, &compared(stored, "<p>new</p><p>more</p>")));
        assert!(!is_edit(&visitor, &compared(stored, "<p>newer</p><p>same</p>")));
    }

    #[test]
    fn what_was_stored_for_one_visitor_is_seen_by_no_other() {
        let stored = "<p>Hello Ann</p><i>1</i><p>same</p>";
        let stranger = |nonce| compared(stored, &format!("<p>Log in</p><i>{nonce}</i><p>same</p>"));
        let ann = compared(stored, "<p>Hello Ann</p><i>2</i><p>same</p>");
        let fetches = [stranger(3), stranger(4)];
        let found = for_one_only(&fetches, &ann);
        let texts: Vec<&[u8]> = found.iter().map(|place| place.text(stored.as_bytes())).collect();
        assert_eq!(texts, [b"p>Hello Ann<".as_slice()], "and not the nonce");
        let edited = compared(stored, "<p>Log in</p><i>2</i><p>same</p>");
        assert!(for_one_only(&fetches, &edited).is_empty(), "Ann does not see it any more");
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
