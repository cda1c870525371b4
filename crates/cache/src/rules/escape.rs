//! Undoes escapes in a page: `&eacute;`, `%40`, `\u0041`.

use memchr::{memchr2, memchr3};

/// The longest escape that is undone; longer named references such as `&CounterClockwise…;` are not.
pub(super) const ESCAPE_MAX: usize = 16;
/// The most digits of a numeric reference; longer ones only add leading zeros.
const DIGITS_MAX: usize = 10;

/// Whether an escape may begin with this byte.
pub(super) fn is_sign(byte: u8) -> bool {
    matches!(byte, b'&' | b'%' | b'\\')
}

/// A lower-case text with its escapes undone; `None` if it has none.
pub(super) fn without_escapes(text: &[u8]) -> Option<Vec<u8>> {
    memchr3(b'&', b'%', b'\\', text)?;
    let (text, mut plain) = (text.to_ascii_lowercase(), Vec::new());
    unescape(&text, true, &mut plain);
    (plain != text).then_some(plain)
}

/// Appends a lower-case text to `plain` with its escapes undone. Unless it `is_last`, a possible start of an
/// escape at its end is left out.
pub(super) fn unescape(text: &[u8], is_last: bool, plain: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = memchr3(b'&', b'%', b'\\', rest) {
        plain.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        if !is_last && rest.len() < ESCAPE_MAX {
            rest = &[];
            break;
        }
        let length = unescaped(rest, plain).unwrap_or_else(|| {
            plain.push(rest[0]);
            1
        });
        rest = &rest[length..];
    }
    plain.extend_from_slice(rest);
    plain.make_ascii_lowercase();
}

/// Appends the character of the escape at the start of `text`, and returns the escape's length.
pub(super) fn unescaped(text: &[u8], plain: &mut Vec<u8>) -> Option<usize> {
    let (character, length) = match text {
        [b'%', high, low, ..] => {
            plain.push(hex(&[*high, *low]).and_then(|byte| u8::try_from(byte).ok())?);
            return Some(3);
        }
        [b'&', b'#', b'x' | b'X', digits @ ..] => reference(digits, 3, 16)?,
        [b'&', b'#', digits @ ..] => reference(digits, 2, 10)?,
        [b'&', name @ ..] => named(name)?,
        [b'\\', b'u', a, b, c, d, ..] => (char::from_u32(hex(&[*a, *b, *c, *d])?)?, 6),
        [b'\\', b'x', high, low, ..] => (char::from_u32(hex(&[*high, *low])?)?, 4),
        [b'\\', b'n' | b'r' | b't' | b'f' | b'b' | b'v', ..] => (' ', 2),
        [b'\\', sign @ (b'"' | b'\'' | b'/' | b'\\' | b'`'), ..] => (char::from(*sign), 2),
        _ => return None,
    };
    plain.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    Some(length)
}

/// The value of hexadecimal digits.
pub(super) fn hex(digits: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(digits).ok()?;
    text.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u32::from_str_radix(text, 16).ok())?
}

/// Parses a numeric reference whose digits begin after `before` bytes. The final `;` may be missing.
fn reference(digits: &[u8], before: usize, radix: u32) -> Option<(char, usize)> {
    let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
    let count = digits.iter().take(DIGITS_MAX).take_while(is_digit).count();
    let text = std::str::from_utf8(&digits[..count]).ok()?;
    let character = u32::from_str_radix(text, radix).ok().and_then(char::from_u32)?;
    let closed = usize::from(digits.get(count) == Some(&b';'));
    Some((character, before + count + closed))
}

/// Parses a named reference, after its `&`.
fn named(name: &[u8]) -> Option<(char, usize)> {
    let end = memchr2(b';', b'&', &name[..name.len().min(ESCAPE_MAX - 1)])?;
    let closed = name[end] == b';';
    let name = std::str::from_utf8(&name[..end]).ok()?;
    let mut known = references().filter(|(known, _)| *known == name);
    let length = 1 + end + usize::from(closed);
    known.next().map(|(_, character)| (character, length))
}

/// The named references that are undone, in lower case.
pub(super) fn references() -> impl Iterator<Item = (&'static str, char)> {
    NAMED.into_iter().chain(LATIN.split(' ').zip('\u{df}'..))
}

/// Named references for characters that occur in names and addresses.
const NAMED: [(&str, char); 14] = [
    ("times", '×'),
    ("amp", '&'),
    ("quot", '"'),
    ("apos", '\''),
    ("lt", '<'),
    ("gt", '>'),
    ("nbsp", ' '),
    ("commat", '@'),
    ("period", '.'),
    ("lowbar", '_'),
    ("plus", '+'),
    ("hyphen", '-'),
    ("rsquo", '’'),
    ("shy", '\u{ad}'),
];

/// The names of the letters from U+00DF to U+00FF, in order. The letters from U+00C0 on are the same in
/// capitals.
const LATIN: &str = "szlig agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc euml \
                     igrave iacute icirc iuml eth ntilde ograve oacute ocirc otilde ouml divide oslash \
                     ugrave uacute ucirc uuml yacute thorn yuml";
