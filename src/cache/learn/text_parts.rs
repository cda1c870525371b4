//! The parts of a body as keyed hashes: two bodies are compared by them, and neither is kept.

use std::hash::Hash;

use ahash::RandomState;

/// The most parts of a body. With more, neighbours are taken together.
pub(super) const PARTS_MAX: usize = 4_096;

/// The hashes of a body's parts, sorted, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextParts(Vec<u32>);

impl TextParts {
    /// Reads a body. `key`: that of all bodies that are compared. A text is cut where tags, lines and members
    /// begin, so that a part is small and has what stands around it; other content is one part.
    #[must_use]
    pub fn of(key: &RandomState, fields: &[u8], body: &[u8], is_text: bool) -> Self {
        let mut parts = vec![short(key, &(0, fields))];
        match is_text {
            true => parts.extend(text(key, body)),
            false => parts.push(short(key, &(1, body))),
        }
        parts.sort_unstable();
        parts.dedup();
        Self(parts)
    }

    /// One hash of all.
    pub(super) fn digest(&self) -> u64 {
        digest(self.0.iter().copied())
    }

    /// The hashes.
    pub(super) fn hashes(&self) -> &[u32] {
        &self.0
    }
}

/// One hash of sorted ones.
pub(super) fn digest(hashes: impl Iterator<Item = u32>) -> u64 {
    hashes.fold(0, |all: u64, hash| all.rotate_left(7).wrapping_mul(31) ^ u64::from(hash))
}

/// The parts of a text, at most [`PARTS_MAX`].
fn text(key: &RandomState, body: &[u8]) -> Vec<u32> {
    let begins = |byte: &u8| matches!(byte, b'<' | b'\n' | b'{' | b',');
    let pieces = body.split_inclusive(begins).map(|piece| short(key, &(2, piece)));
    let pieces: Vec<u32> = pieces.collect();
    let mut together: u32 = 1;
    while pieces.len() / together as usize > PARTS_MAX / 2 {
        together *= 2;
    }
    if together == 1 {
        return pieces;
    }
    // A part ends where the content says, so that one more piece does not shift all others.
    let ends = |piece: &u32| piece.is_multiple_of(together);
    let parts = pieces.split_inclusive(ends).map(|part| short(key, &(3, part)));
    parts.take(PARTS_MAX - 2).collect()
}

fn short(key: &RandomState, part: &(u8, impl Hash)) -> u32 {
    // The low half of a good hash is as good.
    key.hash_one(part) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> TextParts {
        let key = RandomState::with_seeds(1, 2, 3, 4);
        TextParts::of(&key, b"200", text.as_bytes(), true)
    }

    #[test]
    fn a_changed_word_changes_one_part() {
        let (ann, bob) = (parts("<p>Hi Ann</p><b>x</b>"), parts("<p>Hi Bob</p><b>x</b>"));
        let differs = ann.hashes().iter().filter(|hash| !bob.hashes().contains(hash)).count();
        assert_eq!(differs, 1);
        assert_eq!(parts("a\nb"), parts("a\nb"));
        assert_ne!(parts("a\nb"), parts("a\nc"));
    }

    #[test]
    fn the_parts_of_a_long_text_are_bounded_and_few_of_them_change() {
        let text = |word: &str| {
            let line = |n: usize| if n == 70_000 { word.to_owned() } else { format!("line {n}\n") };
            (0..100_000).map(line).collect::<String>()
        };
        let (one, other) = (parts(&text("one\n")), parts(&text("another\n")));
        assert!(one.hashes().len() <= PARTS_MAX && one.hashes().len() > PARTS_MAX / 8);
        let differs = one.hashes().iter().filter(|hash| !other.hashes().contains(hash)).count();
        assert!((1..=2).contains(&differs), "{differs}");
    }

    #[test]
    fn an_image_is_one_part() {
        let key = RandomState::with_seeds(1, 2, 3, 4);
        let image = TextParts::of(&key, b"200", b"<\n<\n", false);
        assert_eq!(image.hashes().len(), 2);
    }
}
