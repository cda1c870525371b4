//! The tag prefilter: decides from a few words whether the tags of a page must be parsed.
//!
//! Parsing tags takes more time than all other processing of a page. Every field or link that the guard
//! refuses contains one of a few words, literally or with some letters escaped. A page without these words is
//! not parsed. A false match only costs time, so doubtful cases count as matches.

use std::sync::LazyLock;

use aho_corasick::Span;
use aho_corasick::packed::{Config, MatchKind, Searcher};

use super::escape::hex;
use super::leak_kind::PersonalForms;
use super::window::Window;

/// Parts of the names and links that the guard refuses: each contains one of these. Each of the names ends
/// with `srf` or `token`.
///
/// PERF: all have three bytes or more, which lets the processor check 32 positions at a time. Shorter ones
/// are looked for separately.
const IN_FIELDS_AND_LINKS: [&str; 10] = [
    "srf", "token", "sessi", "oscsid", "(s(", "(a(", "(f(", "&percnt", "&lpar",
    // A page within the page may contain any of them, with doubly escaped letters.
    "rcdoc",
];

/// How many bytes after a word, and before it, decide whether it counts.
const AROUND: usize = 64;

/// A longer path segment counts as one that may contain an id.
const SEGMENT_MAX: usize = 256;

/// The most digits of a numeric reference that are read; longer ones have leading zeros.
const DIGITS_MAX: usize = 16;

/// The matchers for each case of [`PersonalForms`]; `None` if the processor lacks the instructions.
static NO_FORMS: LazyLock<Option<Searcher>> = LazyLock::new(|| searcher(&[]));
static LOG_INS: LazyLock<Option<Searcher>> = LazyLock::new(|| searcher(&["password", "action"]));
static POSTED: LazyLock<Option<Searcher>> = LazyLock::new(|| searcher(&["password", "method"]));

fn searcher(more: &[&str]) -> Option<Searcher> {
    let mut builder = Config::new().match_kind(MatchKind::LeftmostFirst).builder();
    builder.extend(IN_FIELDS_AND_LINKS.iter().chain(more).map(|stem| stem.as_bytes())).build()
}

/// Whether the tags of a text must be parsed, judging by the window on it.
pub(crate) fn may_stand_in(window: &Window, forms: PersonalForms, is_last: bool) -> bool {
    let searcher = match forms {
        PersonalForms::None => &*NO_FORMS,
        PersonalForms::LogIns => &*LOG_INS,
        PersonalForms::Posted => &*POSTED,
    };
    let Some(searcher) = searcher else { return true };
    let text = window.bytes();
    // Words nearer to the end come again with the next piece, and those nearer to the start have been
    // checked.
    let end = if is_last { text.len() } else { text.len().saturating_sub(AROUND) };
    let start = if window.is_cut() { AROUND } else { 0 };
    let counts = |at: usize| (start..end).contains(&at) && counts(text, at);
    words(searcher, text).any(counts) || window.escapes().iter().any(|at| counts(*at))
}

/// The positions of the words, overlapping ones included.
fn words<'t>(searcher: &'t Searcher, text: &'t [u8]) -> impl Iterator<Item = usize> + 't {
    let mut span = Span::from(0..text.len());
    std::iter::from_fn(move || {
        let at = searcher.find_in(text, span)?.start();
        span.start = at + 1;
        Some(at)
    })
}

/// Whether the word at `at` may be part of something that the guard refuses.
fn counts(text: &[u8], at: usize) -> bool {
    let (before, rest) = (&text[..at], &text[at..]);
    let last = before.last().copied();
    match rest {
        [b's', b'r', b'f', behind @ ..] => matches!(last, Some(b'c' | b'x')) && ends_name(behind),
        // `csrf_token`, `csrf-token`, `csrftoken`, `csrfmiddlewaretoken`, `…VerificationToken`,
        // `wpEditToken`.
        [b't', b'o', b'k', b'e', b'n', behind @ ..] => {
            let continues = matches!(last, Some(b'_' | b'-' | b'f' | b'e' | b'n' | b't'));
            (continues || may_be_escape(last)) && ends_name(behind)
        }
        [b's', b'e', b's', b's', b'i', behind @ ..] => {
            last == Some(b'j') && behind.starts_with(b"onid")
                || before.ends_with(b"php") && behind.starts_with(b"d")
        }
        [b'(', _, b'(', ..] => may_be_cookieless(rest),
        [b'r', b'c', b'd', b'o', b'c', ..] => last == Some(b's'),
        [b'&', b'#', number @ ..] => may_spell(number),
        [b'%', b'2', b'8', behind @ ..] => {
            let opens = |byte: &u8| b"saf%&".contains(byte);
            behind.first().is_none_or(opens) || last.as_ref().is_some_and(opens)
        }
        [b'%', high, low, ..] => hex(&[*high, *low])
            .and_then(char::from_u32)
            .is_some_and(|one| one.is_ascii_alphabetic()),
        [b'p', b'a', b's', b's', b'w', b'o', b'r', b'd', behind @ ..] => ends_name(behind),
        [b'a', b'c', b't', b'i', b'o', b'n', behind @ ..]
        | [b'm', b'e', b't', b'h', b'o', b'd', behind @ ..] => {
            matches!(behind.trim_ascii_start().first(), None | Some(b'='))
        }
        // Not an escape that counts: it is cut off by the end of the text, or of a kind that tags do not use.
        [b'%' | b'\\', ..] => false,
        // All other words count by themselves.
        _ => true,
    }
}

/// Whether a name may end here: `name=_token>`, `name="contact[_token]"`, `name='_token&#32;'`.
fn ends_name(behind: &[u8]) -> bool {
    match behind.first() {
        None => true,
        Some(&byte) => byte <= b' ' || byte >= 0x7f || b"\"'>]&/`".contains(&byte),
    }
}

/// Whether an escape may end with this byte: `_` is `&#95;`, or `&#95` without its `;`.
fn may_be_escape(last: Option<u8>) -> bool {
    last.is_some_and(|byte| byte == b';' || byte.is_ascii_hexdigit())
}

/// Whether `(S(…))` may stand here before a segment's end. A parenthesis in it may be escaped.
fn may_be_cookieless(rest: &[u8]) -> bool {
    let rest = &rest[..rest.len().min(SEGMENT_MAX)];
    let end = rest.iter().position(|byte| b"/?#'\" ".contains(byte));
    let segment = &rest[..end.unwrap_or(rest.len())];
    end.is_none()
        || segment.windows(2).any(|pair| pair == b"))")
        || segment.iter().any(|byte| b"&%".contains(byte))
}

/// Whether a numeric reference, after its `&#`, is a letter or a digit, begins another kind of escape, or
/// belongs to what ASP.NET puts into paths.
fn may_spell(number: &[u8]) -> bool {
    let (digits, radix) = match number {
        [b'x', digits @ ..] => (digits, 16),
        digits => (digits, 10),
    };
    let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
    let count = digits.iter().take_while(is_digit).count();
    if count > DIGITS_MAX {
        return true;
    }
    let character = std::str::from_utf8(&digits[..count])
        .ok()
        .and_then(|text| u32::from_str_radix(text, radix).ok())
        .and_then(char::from_u32);
    character.is_some_and(|one| one.is_ascii_alphanumeric() || matches!(one, '%' | '('))
}
