//! The parts of an answer as keyed hashes: two answers are compared by them, and neither is kept.

use std::hash::{BuildHasher as _, Hash, Hasher as _};

use ::http::HeaderMap;
use ahash::RandomState;

use crate::rules::personal_data::PersonalData;

/// The most parts of an answer, about. With more, neighbours are taken together.
pub(super) const PARTS_MAX: usize = 4_096;
/// The most fields that are parts of their own.
const FIELDS_MAX: usize = 64;

/// What is compared of an answer.
#[derive(Clone, Copy, Debug)]
pub struct AnswerText<'a> {
    /// The status, and the fields without which the body means something else.
    pub head: &'a [u8],
    /// The other fields that everyone would get.
    pub fields: &'a HeaderMap,
    /// The body without its coding.
    pub body: &'a [u8],
    /// Whether the body is cut into parts.
    pub is_text: bool,
}

/// A part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TextPart {
    /// Its hash. The lowest bit says whether it is a field.
    pub(super) hash: u32,
    /// Whether the visitor's own words stand in it.
    pub(super) is_own: bool,
}

/// Whether a part is a field of the head.
pub(super) fn is_field(hash: u32) -> bool {
    hash & 1 == 1
}

/// The parts of an answer, sorted, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextParts {
    parts: Vec<TextPart>,
    digest: u64,
}

impl TextParts {
    /// Reads an answer. `key`: that of all answers that are compared. `words`: the visitor's own, if the answer holds
    /// some: the parts that hold them are marked.
    ///
    /// A text is cut where tags, attributes, lines and members end, so that a part is small and has what stands around
    /// it. How often a part is there, and the order of all, are parts, too. Other content is one part.
    #[must_use]
    pub fn of(key: &RandomState, answer: &AnswerText<'_>, words: Option<&PersonalData>) -> Self {
        let mut search = words.map(PersonalData::finder);
        let mut is_own = |text: &[u8]| search.as_mut().is_some_and(|finds| finds(text));
        let part = |hash: u32, is_own: bool| TextPart { hash: hash & !1, is_own };
        let mut parts = vec![part(short(key, &(0, answer.head)), is_own(answer.head))];
        match answer.is_text {
            true => {
                for (hash, is_own) in text(key, answer.body, &mut is_own) {
                    parts.push(part(hash, is_own));
                }
            }
            false => parts.push(part(short(key, &(1, answer.body)), is_own(answer.body))),
        }
        sort(&mut parts);
        let digest = key.hash_one(parts.iter().map(|part| part.hash).collect::<Vec<_>>());
        for (name, value) in answer.fields.iter().take(FIELDS_MAX) {
            let hash = short(key, &(5, name.as_str().as_bytes(), value.as_bytes())) | 1;
            parts.push(TextPart { hash, is_own: is_own(value.as_bytes()) });
        }
        sort(&mut parts);
        Self { parts, digest }
    }

    /// One hash of all but the fields.
    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    /// The parts.
    pub(super) fn parts(&self) -> &[TextPart] {
        &self.parts
    }
}

/// Sorts by hash, and takes equal ones together.
fn sort(parts: &mut Vec<TextPart>) {
    parts.sort_unstable();
    parts.dedup_by(|later, kept| {
        let is_same = later.hash == kept.hash;
        kept.is_own |= is_same && later.is_own;
        is_same
    });
}

/// The parts of a text, and whether own words stand in them.
fn text(
    key: &RandomState,
    body: &[u8],
    is_own: &mut impl FnMut(&[u8]) -> bool,
) -> Vec<(u32, bool)> {
    let count = pieces(body).count();
    let mut together: u32 = 1;
    while count / together as usize > PARTS_MAX / 2 {
        together *= 2;
    }
    let (mut parts, mut order) = (Vec::new(), key.build_hasher());
    let (mut group, mut holds_own) = (key.build_hasher(), false);
    let mut is_open = false;
    for piece in pieces(body) {
        let hash = short(key, &(2, piece));
        order.write_u32(hash);
        group.write_u32(hash);
        (is_open, holds_own) = (true, holds_own || is_own(piece));
        // A part ends where the content says, so that one more piece does not shift all others. What a body of few
        // different pieces has too much of is in the last part.
        if hash.is_multiple_of(together) && parts.len() < PARTS_MAX {
            parts.push((group.finish() as u32, holds_own));
            (group, holds_own, is_open) = (key.build_hasher(), false, false);
        }
    }
    if is_open {
        parts.push((group.finish() as u32, holds_own));
    }
    let mut counted = parts.clone();
    counted.sort_unstable();
    let repeated = counted.chunk_by(|one, other| one.0 == other.0).filter(|run| run.len() > 1);
    parts.extend(repeated.map(|run| (short(key, &(3, (run[0].0, run.len()))), false)));
    parts.push((order.finish() as u32, false));
    parts
}

/// The smallest parts of a text.
fn pieces(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut before = 0;
    body.split_inclusive(move |byte| {
        let ends_attribute = byte.is_ascii_whitespace() && matches!(before, b'"' | b'\'');
        before = *byte;
        ends_attribute || matches!(byte, b'<' | b'\n' | b'{' | b',' | b';' | b'&')
    })
}

fn short(key: &RandomState, part: &impl Hash) -> u32 {
    // The low half of a good hash is as good.
    key.hash_one(part) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(key: &RandomState, body: &[u8], is_text: bool) -> TextParts {
        let fields = HeaderMap::new();
        TextParts::of(key, &AnswerText { head: b"200", fields: &fields, body, is_text }, None)
    }

    fn parts(text: &str) -> TextParts {
        read(&RandomState::with_seeds(1, 2, 3, 4), text.as_bytes(), true)
    }

    /// The parts of one that the other does not have, but for that of the order.
    fn new_in(one: &TextParts, other: &TextParts) -> usize {
        one.parts().iter().filter(|part| !other.parts().contains(part)).count() - 1
    }

    #[test]
    fn a_changed_word_changes_one_part() {
        let (ann, bob) = (parts("<p>Hi Ann</p><b>x</b>"), parts("<p>Hi Bob</p><b>x</b>"));
        assert_eq!(new_in(&ann, &bob), 1);
        let (ann, bob) =
            (parts("<p id=\"1\" data-name=\"Ann\">"), parts("<p id=\"1\" data-name=\"Bob\">"));
        assert_eq!(new_in(&ann, &bob), 1);
        assert_eq!(parts("a\nb"), parts("a\nb"));
        assert_ne!(parts("a\nb"), parts("a\nc"));
    }

    #[test]
    fn the_order_of_parts_and_their_number_are_parts() {
        assert_ne!(parts("<b>1<b>2<b>"), parts("<b>2<b>1<b>"));
        assert_ne!(parts("<i>*</i><i>*</i>"), parts("<i>*</i><i>*</i><i>*</i>"));
    }

    #[test]
    fn the_parts_of_a_long_text_are_bounded_and_few_of_them_change() {
        let text = |word: &str| {
            let line = |n: usize| if n == 70_000 { word.to_owned() } else { format!("line {n}\n") };
            (0..100_000).map(line).collect::<String>()
        };
        let (one, other) = (parts(&text("one\n")), parts(&text("another\n")));
        assert!(one.parts().len() <= PARTS_MAX && one.parts().len() > PARTS_MAX / 8);
        let differs = new_in(&one, &other);
        assert!((1..=2).contains(&differs), "{differs}");
    }

    #[test]
    fn the_end_of_a_long_text_counts_however_often_its_parts_repeat() {
        for seed in 0..300 {
            let key = RandomState::with_seeds(seed, 2, 3, 4);
            let text = |end: &str| read(&key, ("0,".repeat(2 * PARTS_MAX) + end).as_bytes(), true);
            let (one, other) = (text("Ann"), text("Bob"));
            assert_ne!(one, other, "seed {seed}");
            assert!(one.parts().len() < 10);
        }
    }

    #[test]
    fn parts_with_own_words_are_marked() {
        let mut words = PersonalData::default();
        words.user(b"Anneliese");
        let fields = HeaderMap::new();
        let body = b"<p>same</p><p>Hi Anneliese</p>";
        let answer = AnswerText { head: b"200", fields: &fields, body, is_text: true };
        let parts = TextParts::of(&RandomState::new(), &answer, Some(&words));
        assert_eq!(parts.parts().iter().filter(|part| part.is_own).count(), 1);
    }

    #[test]
    fn an_image_is_one_part() {
        let image = read(&RandomState::with_seeds(1, 2, 3, 4), b"<\n<\n", false);
        assert_eq!(image.parts().len(), 2);
    }
}
