//! How an answer differs from another one of its page, which stands for both: most answers of a page are alike, and only
//! the difference is kept.

use std::hash::{DefaultHasher, Hasher as _};
use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices};

use crate::pieces::{AnswerPieces, FieldHash};

/// An answer with fewer pieces than this is never too different.
const SHORT: usize = 16;
/// An answer is too different when fewer than one of so many pieces are the same.
const SAME_PART: usize = 4;

/// A part of the first answer that has another text in the other one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The places of its pieces; empty: something is inserted before this place.
    pub(crate) at: Range<u16>,
    /// A hash of what stands there instead; 0: nothing.
    pub(crate) text: u32,
}

/// An answer, by its difference from the first one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// In the order of the text.
    pub(crate) body: Vec<Change>,
    /// The pieces in what is inserted, sorted, each once.
    pub(crate) inserted: Vec<u32>,
    /// The fields that differ. The value 0: the answer lacks it.
    pub(crate) fields: Vec<FieldHash>,
    pub(crate) head: u32,
}

impl Changes {
    /// How `answer` differs from `first`; `None`: too much to be compared piece by piece.
    pub(crate) fn between(first: &AnswerPieces, answer: &AnswerPieces) -> Option<Self> {
        let mut changes = Self {
            fields: changed_fields(&first.fields, &answer.fields),
            head: answer.head,
            ..Self::default()
        };
        if first.body == answer.body {
            return Some(changes);
        }
        let mut same = 0;
        for step in capture_diff_slices(Algorithm::Myers, &first.body, &answer.body) {
            if let DiffOp::Equal { len, .. } = step {
                same += len;
                continue;
            }
            let new = &answer.body[step.new_range()];
            changes.inserted.extend(new);
            changes.body.push(Change { at: short_range(step.old_range()), text: hash_of(new) });
        }
        changes.inserted.sort_unstable();
        changes.inserted.dedup();
        let longer = first.body.len().max(answer.body.len());
        (longer < SHORT || same * SAME_PART >= longer).then_some(changes)
    }

    /// All of an answer in place of all of the first one.
    pub(crate) fn whole(first: &AnswerPieces, answer: &AnswerPieces) -> Self {
        let (body, text) = (short_range(0..first.body.len()), hash_of(&answer.body));
        Self {
            body: vec![Change { at: body, text }],
            inserted: Vec::new(),
            fields: changed_fields(&first.fields, &answer.fields),
            head: answer.head,
        }
    }

    /// What stands at a place of the first answer: a hash, or `None` where it is the same. Places are counted twice:
    /// an even one is the gap before a piece.
    pub(crate) fn at(&self, place: u32) -> Option<u32> {
        let covers = |change: &&Change| {
            let (start, end) = (u32::from(change.at.start), u32::from(change.at.end));
            match start == end {
                true => place == 2 * start,
                false => (2 * start + 1..2 * end).contains(&place),
            }
        };
        self.body.iter().find(covers).map(|change| change.text)
    }

    /// Whether the answer has this piece. `places`: where the first answer has it.
    pub(crate) fn has(&self, piece: u32, mut places: impl Iterator<Item = u16>) -> bool {
        let is_kept = |place: u16| !self.body.iter().any(|change| change.at.contains(&place));
        self.inserted.binary_search(&piece).is_ok() || places.any(is_kept)
    }

    /// The size in words of four bytes, about.
    pub(crate) fn size(&self) -> usize {
        2 * self.body.len() + self.inserted.len() + 2 * self.fields.len() + 1
    }
}

fn hash_of(pieces: &[u32]) -> u32 {
    if pieces.is_empty() {
        return 0;
    }
    // The hashes are keyed already.
    let mut hasher = DefaultHasher::new();
    pieces.iter().for_each(|piece| hasher.write_u32(*piece));
    (hasher.finish() as u32).max(1)
}

/// An answer has at most 2¹⁵ pieces.
fn short_range(range: Range<usize>) -> Range<u16> {
    let short = |place: usize| u16::try_from(place).unwrap_or(u16::MAX);
    short(range.start)..short(range.end)
}

/// Both are sorted by name.
fn changed_fields(first: &[FieldHash], answer: &[FieldHash]) -> Vec<FieldHash> {
    let value = |fields: &[FieldHash], name: u32| {
        let place = fields.binary_search_by_key(&name, |field| field.name);
        place.map_or(0, |place| fields[place].value)
    };
    let mut names: Vec<u32> = first.iter().chain(answer).map(|field| field.name).collect();
    names.sort_unstable();
    names.dedup();
    let changed = names.into_iter().map(|name| FieldHash { name, value: value(answer, name) });
    changed.filter(|field| field.value != value(first, field.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &[u32]) -> AnswerPieces {
        AnswerPieces { body: body.to_vec(), ..AnswerPieces::default() }
    }

    fn between(first: &[u32], other: &[u32]) -> Changes {
        Changes::between(&answer(first), &answer(other)).unwrap()
    }

    #[test]
    fn the_same_has_no_changes() {
        let changes = between(&[1, 2, 3], &[1, 2, 3]);
        assert!(changes.body.is_empty() && changes.inserted.is_empty());
    }

    #[test]
    fn a_replaced_piece_and_an_inserted_one_have_their_places() {
        let changes = between(&[1, 2, 3], &[1, 9, 3, 4]);
        assert_eq!(changes.body[0].at, 1..2);
        assert_eq!(changes.body[1].at, 3..3);
        let told: Vec<bool> = (0..7).map(|place| changes.at(place).is_some()).collect();
        assert_eq!(told, [false, false, false, true, false, false, true]);
        assert_eq!(changes.inserted, [4, 9]);
    }

    #[test]
    fn a_piece_that_moved_is_still_there() {
        let first = [1, 2, 3, 4];
        let changes = between(&first, &[1, 3, 4, 2]);
        let places = |piece| (0..4_u16).filter(move |at| first[usize::from(*at)] == piece);
        assert!((1..5).all(|piece| changes.has(piece, places(piece))));
        assert!(!between(&first, &[1, 3, 4]).has(2, places(2)));
    }

    #[test]
    fn a_long_answer_with_hardly_a_piece_in_common_is_too_different() {
        let (first, other): (Vec<u32>, Vec<u32>) = ((0..100).collect(), (90..190).collect());
        assert_eq!(Changes::between(&answer(&first), &answer(&other)), None);
    }

    #[test]
    fn two_long_answers_with_nothing_in_common_take_no_time() {
        let (first, other): (Vec<u32>, Vec<u32>) =
            ((0..5_000).collect(), (9_000..14_000).collect());
        assert_eq!(Changes::between(&answer(&first), &answer(&other)), None);
    }

    #[test]
    fn a_field_that_one_of_them_lacks_differs() {
        let field = |name, value| FieldHash { name, value };
        let with = |fields: &[FieldHash]| AnswerPieces { fields: fields.to_vec(), ..answer(&[1]) };
        let changes = Changes::between(
            &with(&[field(1, 5), field(2, 6)]),
            &with(&[field(1, 5), field(3, 7)]),
        );
        assert_eq!(changes.unwrap().fields, [field(2, 0), field(3, 7)]);
    }
}
