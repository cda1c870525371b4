//! Where the tags of a page must be read: the words without which the guard finds nothing in them.
//!
//! Reading tags takes more time than all else that a page goes through. A field or a link that the guard
//! refuses has one of a few words in it, as they stand or with letters of theirs escaped. A page that has
//! none of these is not read any further. A word that only looks like one costs time and nothing else, so
//! that in doubt it is one.

use std::sync::LazyLock;

use aho_corasick::Span;
use aho_corasick::packed::{Config, MatchKind, Searcher};

use super::escape::hex;
use super::leak::Forms;
use super::window::Window;

/// What stands in names and links of which the guard has one to find. Each of the names ends with `srf` or
/// `token`.
///
/// PERF: all have three bytes or more, by which the processor tells them from others 32 places at a time.
/// What is shorter is looked for by itself.
const IN_FIELDS_AND_LINKS: [&str; 10] = [
    "srf", "token", "sessi", "oscsid", "(s(", "(a(", "(f(", "&percnt", "&lpar",
    // A page within the page may have all of them with its escapes escaped.
    "rcdoc",
];

/// So many bytes behind a word say whether it is one, and before it.
const AROUND: usize = 64;

/// A longer segment of a path counts as one that may have an id.
const SEGMENT_MAX: usize = 256;

/// The longest number in a reference that is looked at. A longer one has zeros before it.
const DIGITS_MAX: usize = 16;

/// What is looked for where forms are looked at as [`Forms`] says. `None` where the processor has no
/// instructions for it.
static NO_FORMS: LazyLock<Option<Searcher>> = LazyLock::new(|| searcher(&[]));
static LOG_INS: LazyLock<Option<Searcher>> = LazyLock::new(|| searcher(&["password", "action"]));
static POSTED: LazyLock<Option<Searcher>> = LazyLock::new(|| searcher(&["password", "method"]));

fn searcher(more: &[&str]) -> Option<Searcher> {
    let mut builder = Config::new().match_kind(MatchKind::LeftmostFirst).builder();
    builder.extend(IN_FIELDS_AND_LINKS.iter().chain(more).map(|stem| stem.as_bytes())).build()
}

/// Whether the tags of a text must be read, as far as it is in sight.
pub(in crate::cache) fn may_stand_in(window: &Window, forms: Forms, is_last: bool) -> bool {
    let searcher = match forms {
        Forms::None => &*NO_FORMS,
        Forms::LogIns => &*LOG_INS,
        Forms::Posted => &*POSTED,
    };
    let Some(searcher) = searcher else { return true };
    let text = window.bytes();
    // What is nearer to the end comes again with the next piece, and what is nearer to the start has been seen.
    let end = if is_last { text.len() } else { text.len().saturating_sub(AROUND) };
    let start = if window.is_cut() { AROUND } else { 0 };
    let counts = |at: usize| (start..end).contains(&at) && counts(text, at);
    words(searcher, text).any(counts) || window.escapes().iter().any(|at| counts(*at))
}

/// Where the words stand, also those that have a part in common.
fn words<'t>(searcher: &'t Searcher, text: &'t [u8]) -> impl Iterator<Item = usize> + 't {
    let mut span = Span::from(0..text.len());
    std::iter::from_fn(move || {
        let at = searcher.find_in(text, span)?.start();
        span.start = at + 1;
        Some(at)
    })
}

/// Whether the word that stands `at` a place may be part of what the guard finds.
fn counts(text: &[u8], at: usize) -> bool {
    let (before, rest) = (&text[..at], &text[at..]);
    let last = before.last().copied();
    match rest {
        [b's', b'r', b'f', behind @ ..] => matches!(last, Some(b'c' | b'x')) && ends_name(behind),
        // `csrf_token`, `csrf-token`, `csrftoken`, `csrfmiddlewaretoken`, `…VerificationToken`, `wpEditToken`.
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
        // No escape, for it is cut off by the end of the text; and one that tags do not have.
        [b'%' | b'\\', ..] => false,
        // All others, by themselves.
        _ => true,
    }
}

/// Whether a name may be at its end: `name=_token>`, `name="contact[_token]"`, `name='_token&#32;'`.
fn ends_name(behind: &[u8]) -> bool {
    match behind.first() {
        None => true,
        Some(&byte) => byte <= b' ' || byte >= 0x7f || b"\"'>]&/`".contains(&byte),
    }
}

/// Whether an escape may end with this byte: `_` is `&#95;`, or `&#95` without its end.
fn may_be_escape(last: Option<u8>) -> bool {
    last.is_some_and(|byte| byte == b';' || byte.is_ascii_hexdigit())
}

/// `(S(…))` before what ends it. A parenthesis in it may be an escape.
fn may_be_cookieless(rest: &[u8]) -> bool {
    let rest = &rest[..rest.len().min(SEGMENT_MAX)];
    let end = rest.iter().position(|byte| b"/?#'\" ".contains(byte));
    let segment = &rest[..end.unwrap_or(rest.len())];
    end.is_none()
        || segment.windows(2).any(|pair| pair == b"))")
        || segment.iter().any(|byte| b"&%".contains(byte))
}

/// Whether a numeric reference, behind its `&#`, is a letter or a digit, or begins an escape of another kind
/// or what ASP.NET puts into paths.
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
