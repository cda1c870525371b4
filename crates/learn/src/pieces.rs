//! An answer as keyed hashes of its pieces: two answers are compared by them, and neither is kept.

use std::hash::{BuildHasher as _, Hash, Hasher as _};

use ::http::HeaderMap;
use ahash::RandomState;
use anteroom_cache::rules::personal_data::PersonalData;

/// The most pieces of an answer, about. With more, neighbours are taken together.
pub(crate) const PIECES_MAX: usize = 4_096;
/// The most fields that are compared.
const FIELDS_MAX: usize = 64;
/// The most pieces with the visitor's own words that are told apart.
const OWN_MAX: usize = 64;

/// How many digits a Unix time has, until the year 2286.
const SECONDS_DIGITS: usize = 10;
const MILLISECONDS_DIGITS: usize = 13;
/// How far from an answer a time is that means the answer itself, in seconds.
const NOW: u64 = 600;

/// What is compared of an answer.
#[derive(Clone, Copy, Debug)]
pub struct AnswerText<'a> {
    /// The status, and the fields without which the body means something else.
    pub head: &'a [u8],
    /// The other fields that everyone would get.
    pub fields: &'a HeaderMap,
    /// The body without its coding.
    pub body: &'a [u8],
    /// Whether the body is cut into pieces.
    pub is_text: bool,
    /// When it came, in Unix seconds: a number that says so makes no difference.
    pub now: u64,
}

/// A field of the head: keyed hashes of its name and of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FieldHash {
    pub(crate) name: u32,
    /// Never 0, which stands for a field that the answer lacks.
    pub(crate) value: u32,
}

/// The pieces of an answer, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerPieces {
    /// The status, and the fields without which the body means something else.
    pub(crate) head: u32,
    /// Sorted by name, each name once.
    pub(crate) fields: Vec<FieldHash>,
    /// The body.
    pub(crate) body: Vec<u32>,
    /// What of all these holds the visitor's own words.
    pub(crate) own: Vec<u32>,
    /// Where each piece of the body ends, in bytes. A body of over 4 GiB is not read.
    pub(crate) ends: Vec<u32>,
}

/// A piece of a body.
struct Piece {
    hash: u32,
    /// Where it ends, in bytes.
    end: usize,
}

impl AnswerPieces {
    /// Reads an answer. `key`: that of all answers that are compared. `words`: the visitor's own, if the answer holds
    /// some: the pieces that hold them are marked.
    ///
    /// A text is cut where tags, attributes, lines and members end, so that a piece is small and has what stands around
    /// it. Other content is one piece.
    #[must_use]
    pub fn of(key: &RandomState, answer: &AnswerText<'_>, words: Option<&PersonalData>) -> Self {
        let mut search = words.map(PersonalData::finder);
        let mut own = Vec::new();
        let mut note = |hash: u32, text: &[u8]| {
            let is_own = own.len() < OWN_MAX && search.as_mut().is_some_and(|finds| finds(text));
            if is_own {
                own.push(hash);
            }
            hash
        };
        let head = note(short(key, &(0, answer.head)), answer.head);
        let body = match answer.is_text {
            true => text(key, answer.now, answer.body, &mut note),
            false => {
                let hash = note(short(key, &(1, answer.body)), answer.body);
                vec![Piece { hash, end: answer.body.len() }]
            }
        };
        let ends = body.iter().map(|piece| piece.end as u32).collect();
        let body = body.into_iter().map(|piece| piece.hash).collect();
        let mut fields: Vec<FieldHash> = Vec::new();
        for name in answer.fields.keys().take(FIELDS_MAX) {
            let values: Vec<&[u8]> =
                answer.fields.get_all(name).iter().map(|value| value.as_bytes()).collect();
            let value = short(key, &(5, name.as_str(), &values)).max(1);
            for text in &values {
                note(value, text);
            }
            fields.push(FieldHash { name: short(key, &(6, name.as_str())), value });
        }
        fields.sort_unstable();
        Self { head, fields, body, own, ends }
    }

    /// One hash of all but the fields.
    pub(crate) fn digest(&self) -> u64 {
        // The hashes are keyed already.
        let mut digest = std::hash::DefaultHasher::new();
        (self.head, &self.body).hash(&mut digest);
        digest.finish()
    }
}

/// The pieces of a text. `note`: sees each with its hash.
fn text(
    key: &RandomState,
    now: u64,
    body: &[u8],
    note: &mut impl FnMut(u32, &[u8]) -> u32,
) -> Vec<Piece> {
    let count = pieces(body).count();
    let mut together: u32 = 1;
    while count / together as usize > PIECES_MAX / 2 {
        together *= 2;
    }
    let (mut all, mut group, mut begin, mut at) = (Vec::new(), key.build_hasher(), 0, 0);
    for piece in pieces(body) {
        let hash = piece_hash(key, piece, now);
        group.write_u32(hash);
        at += piece.len();
        // A piece ends where the content says, so that one more does not shift all others. What a body of few
        // different pieces has too much of is in the last one.
        if hash.is_multiple_of(together) && all.len() < PIECES_MAX {
            all.push(Piece { hash: note(group.finish() as u32, &body[begin..at]), end: at });
            (group, begin) = (key.build_hasher(), at);
        }
    }
    if begin < at {
        all.push(Piece { hash: note(group.finish() as u32, &body[begin..at]), end: at });
    }
    all
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

/// A hash of a piece, but for numbers that are the time: apps put it into addresses that no cache may store.
fn piece_hash(key: &RandomState, piece: &[u8], now: u64) -> u32 {
    let mut hasher = key.build_hasher();
    hasher.write_u8(2);
    let mut rest = piece;
    while let Some(start) = rest.iter().position(u8::is_ascii_digit) {
        let digits = rest[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let end = start + digits;
        match is_now(&rest[start..end], now) {
            true => hasher.write(&rest[..start]),
            false => hasher.write(&rest[..end]),
        }
        rest = &rest[end..];
    }
    hasher.write(rest);
    // The low half of a good hash is as good.
    hasher.finish() as u32
}

/// Whether a number is the present time, in seconds or milliseconds.
fn is_now(digits: &[u8], now: u64) -> bool {
    let unit = match digits.len() {
        SECONDS_DIGITS => 1,
        MILLISECONDS_DIGITS => 1_000,
        _ => return false,
    };
    let number = digits.iter().fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0'));
    (number / unit).abs_diff(now) <= NOW
}

fn short(key: &RandomState, part: &impl Hash) -> u32 {
    // The low half of a good hash is as good.
    key.hash_one(part) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_IS: u64 = 1_764_438_000;

    fn read(key: &RandomState, body: &[u8], is_text: bool) -> AnswerPieces {
        let fields = HeaderMap::new();
        AnswerPieces::of(
            key,
            &AnswerText { head: b"200", fields: &fields, body, is_text, now: NOW_IS },
            None,
        )
    }

    fn pieces_of(text: &str) -> AnswerPieces {
        read(&RandomState::with_seeds(1, 2, 3, 4), text.as_bytes(), true)
    }

    /// The pieces of one that the other does not have.
    fn new_in(one: &AnswerPieces, other: &AnswerPieces) -> usize {
        one.body.iter().filter(|piece| !other.body.contains(piece)).count()
    }

    #[test]
    fn a_changed_word_changes_one_piece() {
        let (ann, bob) = (pieces_of("<p>Hi Ann</p><b>x</b>"), pieces_of("<p>Hi Bob</p><b>x</b>"));
        assert_eq!(new_in(&ann, &bob), 1);
        let (ann, bob) = (
            pieces_of("<p id=\"1\" data-name=\"Ann\">"),
            pieces_of("<p id=\"1\" data-name=\"Bob\">"),
        );
        assert_eq!(new_in(&ann, &bob), 1);
        assert_eq!(pieces_of("a\nb"), pieces_of("a\nb"));
        assert_ne!(pieces_of("a\nb"), pieces_of("a\nc"));
    }

    #[test]
    fn the_pieces_of_a_long_text_are_bounded_and_few_of_them_change() {
        let text = |word: &str| {
            let line = |n: usize| if n == 70_000 { word.to_owned() } else { format!("line {n}\n") };
            (0..100_000).map(line).collect::<String>()
        };
        let (one, other) = (pieces_of(&text("one\n")), pieces_of(&text("another\n")));
        assert!(one.body.len() <= PIECES_MAX && one.body.len() > PIECES_MAX / 8);
        let differs = new_in(&one, &other);
        assert!((1..=2).contains(&differs), "{differs}");
    }

    #[test]
    fn the_end_of_a_long_text_counts_however_often_its_pieces_repeat() {
        for seed in 0..300 {
            let key = RandomState::with_seeds(seed, 2, 3, 4);
            let text = |end: &str| read(&key, ("0,".repeat(2 * PIECES_MAX) + end).as_bytes(), true);
            let (one, other) = (text("Ann"), text("Bob"));
            assert_ne!(one, other, "seed {seed}");
            assert!(one.body.len() <= PIECES_MAX + 1);
        }
    }

    #[test]
    fn pieces_with_own_words_are_marked() {
        let mut words = PersonalData::default();
        words.user(b"Anneliese");
        let fields = HeaderMap::new();
        let body = b"<p>same</p><p>Hi Anneliese</p>";
        let answer = AnswerText { head: b"200", fields: &fields, body, is_text: true, now: NOW_IS };
        let pieces = AnswerPieces::of(&RandomState::new(), &answer, Some(&words));
        assert_eq!(pieces.own.len(), 1);
        assert!(pieces.body.contains(&pieces.own[0]));
    }

    #[test]
    fn the_time_of_an_answer_makes_no_difference_and_another_time_does() {
        assert_eq!(
            pieces_of("<img src=\"/t?id=1&1764438010\">"),
            pieces_of("<img src=\"/t?id=1&1764437990\">")
        );
        assert_eq!(pieces_of("t=1764438010123;"), pieces_of("t=1764437990000;"));
        for (one, other) in [
            ("1764438010", "1764438"),
            ("17644380101", "17644380102"),
            ("1700000000", "1700000001"),
            ("a12", "a13"),
        ] {
            assert_ne!(pieces_of(one), pieces_of(other), "{one} {other}");
        }
    }

    #[test]
    fn an_image_is_one_piece() {
        assert_eq!(read(&RandomState::with_seeds(1, 2, 3, 4), b"<\n<\n", false).body.len(), 1);
    }
}
