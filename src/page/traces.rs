//! What of one visitor's own must not stand in a page that others are given, and the search for it.
//!
//! A fill is sent without anything that tells who the visitor is, so that nothing should ever be found.
//! It is looked for all the same: an app has other ways to know somebody. The whole page is read,
//! tags and comments and scripts included, as it stands and with its escapes undone (`&eacute;`, `%40`,
//! `\u0041`). Case counts for nothing. What follows from a find is decided elsewhere.

use std::borrow::Cow;

use ::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, DATE, EXPIRES, LAST_MODIFIED, PRAGMA, REFERRER_POLICY,
    SERVER, SET_COOKIE, STRICT_TRANSPORT_SECURITY, VARY, VIA,
};
use ::http::{HeaderMap, HeaderName};
use encoding_rs::{Encoding, UTF_8};
use memchr::memmem::Finder;
use memchr::{memchr2, memchr3};
use percent_encoding::percent_decode;

use super::guard::Finding;

/// The most that is looked for at a time.
const MARKS_MAX: usize = 64;
/// So much of each: who shows the start of a secret shows it.
const MARK_BYTES_MAX: usize = 64;
/// The shortest attribute that is looked for, and the shortest name that is found in running text.
const WORD_MIN: usize = 4;
/// The shortest token that is looked for.
const TOKEN_MIN: usize = 8;
/// The shortest value of a cookie that a page sets: shorter ones are words such as `compact`.
const VALUE_MIN: usize = 16;
/// So many pieces of a token.
const PIECES_MAX: usize = 8;
/// So many bytes on each side of a find say whether it is one: a character, or `="`.
const AROUND: usize = 4;
/// The longest escape, `&CounterClockwise…;` not among them.
const ESCAPE_MAX: usize = 10;

/// What of one visitor's own no shared page may hold.
#[derive(Clone, Default)]
pub struct Traces(Vec<Mark>);

impl std::fmt::Debug for Traces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Traces({})", self.0.len())
    }
}

/// One text that is looked for.
#[derive(Clone)]
struct Mark {
    finding: Finding,
    text: Vec<u8>,
    place: Place,
}

/// Where a text counts as found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Anywhere: it is no word.
    Anywhere,
    /// As a word, and not as a name of the markup itself.
    Word,
    /// As all that stands in an element or between quotation marks: it is too short for more.
    Alone,
}

impl Traces {
    /// The user's name. One of fewer than four bytes is looked for where it stands alone, and not at all
    /// where it is a short number.
    pub fn user(&mut self, name: &[u8]) {
        let is_number = name.iter().all(u8::is_ascii_digit);
        match name.len() {
            0 | 1 => {}
            2 | 3 if is_number => {}
            2 | 3 => self.add(Finding::LeakUser, name, Place::Alone),
            _ => self.add(Finding::LeakUser, name, Place::Word),
        }
    }

    /// The value of an attribute of the user's: his e-mail address, his customer number.
    pub fn attribute(&mut self, value: &[u8]) {
        if value.len() >= WORD_MIN {
            self.add(Finding::LeakAttribute, value, Place::Word);
        }
    }

    /// A token or any other secret that he came with.
    pub fn token(&mut self, value: &[u8]) {
        self.secret(value, TOKEN_MIN);
    }

    /// The value of a cookie that the page itself would set.
    pub fn set_cookie(&mut self, value: &[u8]) {
        self.secret(value, VALUE_MIN);
        // A short one may be the number of a cart.
        let plain: Cow<'_, [u8]> = percent_decode(value).into();
        let words = plain.split(|byte| !byte.is_ascii_alphanumeric()).take(PIECES_MAX);
        for word in words.filter(|word| word.len() >= WORD_MIN) {
            if word.iter().any(u8::is_ascii_digit) {
                self.add(Finding::LeakToken, word, Place::Word);
            }
        }
    }

    /// Whether there is nothing to look for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn secret(&mut self, value: &[u8], least: usize) {
        let plain: Cow<'_, [u8]> = percent_decode(value).into();
        for value in [value, &plain] {
            if value.len() >= least {
                self.add(Finding::LeakToken, value, Place::Anywhere);
            }
        }
        // A page may hold the id alone of a cookie that has a signature behind it.
        let pieces = plain.split(|byte| b"|.:".contains(byte)).take(PIECES_MAX);
        for piece in pieces.filter(|piece| piece.len() >= VALUE_MIN) {
            self.add(Finding::LeakToken, piece, Place::Anywhere);
        }
    }

    fn add(&mut self, finding: Finding, text: &[u8], place: Place) {
        self.add_cased(finding, text, place);
        // A page is compared in ASCII's lower case: what is beyond that is looked for as it is usually written.
        let Ok(text) = std::str::from_utf8(text) else { return };
        if !text.is_ascii() {
            let lower = text.to_lowercase();
            let rest = lower.chars().next().map_or(0, char::len_utf8);
            let capital = lower[..rest].to_uppercase() + &lower[rest..];
            for cased in [lower, capital, text.to_uppercase()] {
                self.add_cased(finding, cased.as_bytes(), place);
            }
        }
    }

    fn add_cased(&mut self, finding: Finding, text: &[u8], place: Place) {
        // Of what is cut the word goes on.
        let place = if text.len() > MARK_BYTES_MAX { Place::Anywhere } else { place };
        let text = text[..text.len().min(MARK_BYTES_MAX)].to_ascii_lowercase();
        let is_known = self.0.iter().any(|mark| mark.text == text);
        if self.0.len() < MARKS_MAX && !is_known {
            self.0.push(Mark { finding, text, place });
        }
    }

    /// Looks through the fields of a response that are kept.
    ///
    /// # Errors
    /// The first find.
    pub fn search_fields(&self, headers: &HeaderMap) -> Result<(), Finding> {
        if self.is_empty() {
            return Ok(());
        }
        let mut search = Search::new(self, UTF_8);
        for (_, value) in headers.iter().filter(|(name, _)| !USUAL.contains(name)) {
            search.feed(value.as_bytes(), true)?;
        }
        Ok(())
    }

    /// The longest text, in bytes.
    fn longest(&self) -> usize {
        self.0.iter().map(|mark| mark.text.len()).max().unwrap_or_default()
    }
}

/// Fields whose words are the protocol's, and one that is never kept.
static USUAL: [HeaderName; 17] = [
    ACCEPT_RANGES,
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LENGTH,
    CONTENT_SECURITY_POLICY,
    CONTENT_TYPE,
    DATE,
    EXPIRES,
    LAST_MODIFIED,
    PRAGMA,
    REFERRER_POLICY,
    SERVER,
    SET_COOKIE,
    STRICT_TRANSPORT_SECURITY,
    VARY,
    VIA,
];

/// A search through a text that comes in pieces.
pub(super) struct Search<'t> {
    wanted: Vec<(Finder<'t>, &'t Mark)>,
    /// The same texts in the page's own charset, where that writes them in another way.
    recoded: Vec<Mark>,
    longest: usize,
    raw: Window,
    plain: Window,
    escapes: Escapes,
}

impl<'t> Search<'t> {
    /// A search in a page of this charset.
    pub(super) fn new(traces: &'t Traces, charset: &'static Encoding) -> Self {
        let recoded = |mark: &Mark| {
            let text = std::str::from_utf8(&mark.text).ok()?;
            let (bytes, _, has_failed) = charset.encode(text);
            let differs = !has_failed && *bytes != *mark.text;
            differs.then(|| Mark { text: bytes.to_ascii_lowercase(), ..mark.clone() })
        };
        let is_utf8 = charset == UTF_8;
        Self {
            wanted: traces.0.iter().map(|mark| (Finder::new(&mark.text), mark)).collect(),
            recoded: traces.0.iter().filter(|_| !is_utf8).filter_map(recoded).collect(),
            longest: traces.longest(),
            raw: Window::default(),
            plain: Window::default(),
            escapes: Escapes::default(),
        }
    }

    /// The next piece; with `is_last` the text ends behind it, and another may begin.
    pub(super) fn feed(&mut self, piece: &[u8], is_last: bool) -> Result<(), Finding> {
        if self.wanted.is_empty() {
            return Ok(());
        }
        self.raw.add(piece);
        let has_escapes = self.escapes.undo(piece, is_last, &mut self.plain.bytes);
        self.look(&self.raw, is_last)?;
        // Without an escape the two hold the same.
        if has_escapes {
            self.look(&self.plain, is_last)?;
        }
        let kept = if is_last { 0 } else { self.longest + 2 * AROUND };
        self.raw.keep(kept);
        self.plain.keep(kept);
        Ok(())
    }

    fn look(&self, window: &Window, is_last: bool) -> Result<(), Finding> {
        let bytes = &window.bytes;
        for (finder, mark) in &self.wanted {
            let found = finder.find_iter(bytes).any(|at| window.holds(mark, at, is_last));
            if found {
                return Err(mark.finding);
            }
        }
        for mark in &self.recoded {
            let mut places = memchr::memmem::find_iter(bytes, &mark.text);
            if places.any(|at| window.holds(mark, at, is_last)) {
                return Err(mark.finding);
            }
        }
        Ok(())
    }
}

/// The part of a text that is looked at, in lower case.
#[derive(Default)]
struct Window {
    bytes: Vec<u8>,
    /// Whether there was something before.
    is_cut: bool,
}

impl Window {
    fn add(&mut self, piece: &[u8]) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(piece);
        self.bytes[from..].make_ascii_lowercase();
    }

    /// Leaves the last `kept` bytes.
    fn keep(&mut self, kept: usize) {
        let gone = self.bytes.len().saturating_sub(kept);
        self.bytes.drain(..gone);
        self.is_cut = kept > 0 && (self.is_cut || gone > 0);
    }

    /// Whether the text that stands `at` a place is a find. What stands too near to the end is looked at
    /// with the next piece, and what stands near to a cut was looked at with the piece before.
    fn holds(&self, mark: &Mark, at: usize, is_last: bool) -> bool {
        let end = at + mark.text.len();
        if !is_last && end + AROUND > self.bytes.len() || self.is_cut && at < AROUND {
            return false;
        }
        let (before, behind) = (&self.bytes[..at], &self.bytes[end..]);
        match mark.place {
            Place::Anywhere => true,
            Place::Alone => {
                before.last().is_some_and(|byte| b"\"'>`".contains(byte))
                    && behind.first().is_some_and(|byte| b"\"'<`".contains(byte))
            }
            Place::Word => {
                let begins = !starts_word(&mark.text) || !ends_word(before);
                let ends = !ends_word(&mark.text) || !starts_word(behind);
                begins && ends && !is_markup(before, behind)
            }
        }
    }
}

/// Whether what stands between is the name of an element, or of an attribute.
fn is_markup(before: &[u8], behind: &[u8]) -> bool {
    let is_element = (before.ends_with(b"<") || before.ends_with(b"</"))
        && behind.first().is_some_and(|byte| byte.is_ascii_whitespace() || b">/".contains(byte));
    let is_attribute = before.last().is_some_and(u8::is_ascii_whitespace)
        && (behind.starts_with(b"=\"") || behind.starts_with(b"='"));
    is_element || is_attribute
}

fn starts_word(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(AROUND)];
    let first = start.utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next());
    first.is_some_and(is_word)
}

fn ends_word(bytes: &[u8]) -> bool {
    let end = &bytes[bytes.len().saturating_sub(AROUND)..];
    let Some(last) = end.utf8_chunks().last() else { return false };
    last.invalid().is_empty() && last.valid().chars().next_back().is_some_and(is_word)
}

fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

/// Undoes the escapes of a text that comes in pieces.
#[derive(Default)]
struct Escapes {
    /// The end of a piece that may be the start of an escape.
    held: Vec<u8>,
    /// Whether there was one.
    is_used: bool,
}

impl Escapes {
    /// Adds the text without its escapes, in lower case. Returns whether there have been any.
    fn undo(&mut self, piece: &[u8], is_last: bool, plain: &mut Vec<u8>) -> bool {
        let from = plain.len();
        let joined;
        let mut rest = if self.held.is_empty() {
            piece
        } else {
            joined = [std::mem::take(&mut self.held).as_slice(), piece].concat();
            &joined
        };
        while let Some(at) = memchr3(b'&', b'%', b'\\', rest) {
            plain.extend_from_slice(&rest[..at]);
            rest = &rest[at..];
            if !is_last && rest.len() < ESCAPE_MAX {
                self.held = rest.to_vec();
                rest = &[];
                break;
            }
            match unescaped(rest, plain) {
                Some(length) => {
                    self.is_used = true;
                    rest = &rest[length..];
                }
                None => {
                    plain.push(rest[0]);
                    rest = &rest[1..];
                }
            }
        }
        plain.extend_from_slice(rest);
        plain[from..].make_ascii_lowercase();
        let has_been_used = self.is_used;
        self.is_used &= !is_last;
        has_been_used
    }
}

/// Writes what the escape at the start of `text` means, and returns its length.
fn unescaped(text: &[u8], plain: &mut Vec<u8>) -> Option<usize> {
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

fn hex(digits: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(digits).ok()?;
    text.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u32::from_str_radix(text, 16).ok())?
}

/// A numeric reference whose digits begin behind `before` bytes. The final `;` may be missing.
fn reference(digits: &[u8], before: usize, radix: u32) -> Option<(char, usize)> {
    let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
    let count = digits.iter().take(ESCAPE_MAX).take_while(is_digit).count();
    let text = std::str::from_utf8(&digits[..count]).ok()?;
    let character = u32::from_str_radix(text, radix).ok().and_then(char::from_u32)?;
    let closed = usize::from(digits.get(count) == Some(&b';'));
    Some((character, before + count + closed))
}

/// A reference by name, behind its `&`.
fn named(name: &[u8]) -> Option<(char, usize)> {
    let end = memchr2(b';', b'&', &name[..name.len().min(ESCAPE_MAX - 1)])?;
    let name = std::str::from_utf8(&name[..end]).ok()?;
    let marks = || NAMED.iter().find(|(known, _)| *known == name).map(|(_, sign)| *sign);
    // PERF: most others, `&euro;` for one, are told by their last letter.
    let may_be_letter = name.as_bytes().last().is_some_and(|last| b"ecglHNhsn".contains(last));
    let letters = || may_be_letter.then(|| LATIN.split(' ').position(|known| known == name))?;
    let letter = || char::from_u32(0xC0 + u32::try_from(letters()?).ok()?);
    marks().or_else(letter).map(|character| (character, end + 2))
}

/// References by name that stand in names and addresses.
const NAMED: [(&str, char); 14] = [
    ("amp", '&'),
    ("AMP", '&'),
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

/// The letters from U+00C0 to U+00FF by name, in order.
const LATIN: &str = "Agrave Aacute Acirc Atilde Auml Aring AElig Ccedil Egrave Eacute Ecirc Euml \
                     Igrave Iacute Icirc Iuml ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times \
                     Oslash Ugrave Uacute Ucirc Uuml Yacute THORN szlig agrave aacute acirc atilde \
                     auml aring aelig ccedil egrave eacute ecirc euml igrave iacute icirc iuml eth \
                     ntilde ograve oacute ocirc otilde ouml divide oslash ugrave uacute ucirc uuml \
                     yacute thorn yuml";

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn alice() -> Traces {
        let mut traces = Traces::default();
        traces.user(b"alice");
        traces.user("Zoë.Müller".as_bytes());
        traces.user("éloïse".as_bytes());
        traces.user(b"bob");
        traces.user(b"17");
        traces.attribute(b"alice@example.com");
        traces.attribute(b"C-10442");
        traces.attribute(b"de");
        traces.token(b"s3cr3t/T0ken+abc==");
        traces.token(b"short");
        traces.set_cookie(b"compact");
        traces.set_cookie(b"0a1b2c3d4e5f60718293");
        traces.token(b"s%3Afedcba9876543210.signature-of-it");
        traces
    }

    fn seen_in(page: &[u8], charset: &'static Encoding, piece: usize) -> Option<Finding> {
        let traces = alice();
        let mut search = Search::new(&traces, charset);
        let mut found = Ok(());
        for part in page.chunks(piece) {
            found = found.and_then(|()| search.feed(part, false));
        }
        found.and_then(|()| search.feed(b"", true)).err()
    }

    fn seen(page: &str) -> Option<Finding> {
        let all = [1, 2, 3, 7, 16_384].map(|piece| seen_in(page.as_bytes(), UTF_8, piece));
        assert!(all.iter().all(|one| *one == all[0]), "{page}: by the pieces {all:?}");
        all[0]
    }

    #[test]
    fn what_is_a_visitor_s_own_is_found_however_it_is_written() {
        for (page, finding) in [
            ("Hello, alice!", Finding::LeakUser),
            ("<p>Alice</p>", Finding::LeakUser),
            ("alice", Finding::LeakUser),
            ("ALICE’s cart", Finding::LeakUser),
            ("…alice…", Finding::LeakUser),
            ("<a href=/user/alice/cart>", Finding::LeakUser),
            ("<a href='/u?name=alice&x=1'>", Finding::LeakUser),
            ("<img alt=\"alice\">", Finding::LeakUser),
            ("<!-- made for alice in 3 ms -->", Finding::LeakUser),
            ("<script>var me = {name:'alice'}</script>", Finding::LeakUser),
            ("{\"name\":\"\\u0061lice\"}", Finding::LeakUser),
            ("{\"text\":\"hi\\nalice\"}", Finding::LeakUser),
            ("{\"path\":\"\\/alice\\/\"}", Finding::LeakUser),
            ("'\\x61lice'", Finding::LeakUser),
            ("&#97;lice", Finding::LeakUser),
            ("&#x61;lice &amp; co", Finding::LeakUser),
            ("&#97lice", Finding::LeakUser),
            ("/u?q=%61lice", Finding::LeakUser),
            ("/u?q=hi%20alice", Finding::LeakUser),
            ("zoë.müller", Finding::LeakUser),
            ("Zo&euml;.M&uuml;ller", Finding::LeakUser),
            ("ZOË.MÜLLER", Finding::LeakUser),
            ("Éloïse's cart", Finding::LeakUser),
            ("<b>ÉLOÏSE</b>", Finding::LeakUser),
            ("Zo&#235;.M&#xfc;ller", Finding::LeakUser),
            ("Zo%C3%AB.M%C3%BCller", Finding::LeakUser),
            ("Zo\\u00eb.M\\u00fcller", Finding::LeakUser),
            ("<b>bob</b>", Finding::LeakUser),
            ("{\"user\":\"Bob\"}", Finding::LeakUser),
            ("&quot;bob&quot;", Finding::LeakUser),
            ("mail alice@example.com now", Finding::LeakUser),
            ("customer C-10442.", Finding::LeakAttribute),
            ("customer%20c%2d10442", Finding::LeakAttribute),
            ("x=s3cr3t/T0ken+abc==", Finding::LeakToken),
            ("xs3cr3t%2FT0ken%2Babc%3D%3Dx", Finding::LeakToken),
            ("\"s3cr3t\\/T0ken+abc==\"", Finding::LeakToken),
            ("<input value=0a1b2c3d4e5f60718293>", Finding::LeakToken),
            ("<input value=fedcba9876543210>", Finding::LeakToken),
        ] {
            assert_eq!(seen(page), Some(finding), "{page}");
        }
    }

    #[test]
    fn other_words_are_not() {
        for page in [
            "",
            "malice alices alice_b alice2 Alicés éalice",
            "<alice>text</alice> <alice x=1>",
            "<p alice=\"1\" class='x'>",
            "Hello bob, bobs and bobbins",
            "17 <td>17</td>",
            "de <b>de</b> short compact",
            "C-104421 s3cr3t",
            "100%alic e",
            "&alice;x",
            "al&shy;ice",
        ] {
            let found = seen(page);
            // A reference that is none is read as its letters.
            let expected = if page.starts_with("&alice") { Some(Finding::LeakUser) } else { None };
            assert_eq!(found, expected, "{page}");
        }
    }

    #[test]
    fn other_charsets_are_read_as_they_write_the_name() {
        let latin = b"Zo\xeb.M\xfcller";
        let label = |label: &str| Encoding::for_label(label.as_bytes()).unwrap();
        assert_eq!(seen_in(latin, label("latin1"), 4), Some(Finding::LeakUser));
        assert_eq!(seen_in(latin, UTF_8, 4), None);
        assert_eq!(seen_in("zoë.müller".as_bytes(), label("latin1"), 99), Some(Finding::LeakUser));
    }

    #[test]
    fn fields_are_looked_through_but_for_those_of_the_protocol() {
        let mut traces = Traces::default();
        traces.user(b"html");
        for (name, value, is_found) in [
            ("content-type", "text/html", false),
            ("x-user", "html", true),
            ("link", "</u/html>; rel=me", true),
            ("set-cookie", "html=1", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            assert_eq!(traces.search_fields(&headers).is_err(), is_found, "{name}");
        }
    }

    #[test]
    fn a_secret_that_is_long_is_found_by_its_start() {
        let mut traces = Traces::default();
        let secret = "x1".repeat(4_096);
        traces.token(secret.as_bytes());
        let mut search = Search::new(&traces, UTF_8);
        assert!(search.feed(secret.as_bytes(), true).is_err());
        for n in 0..1_000 {
            traces.token(format!("secret-{n}").as_bytes());
        }
        assert_eq!(traces.0.len(), MARKS_MAX);
    }

    #[test]
    fn nothing_of_it_is_shown() {
        assert!(!format!("{:?}", alice()).contains("alice"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_in_any_pieces(
            page in proptest::collection::vec(any::<u8>(), 0..200), piece in 1_usize..40,
        ) {
            let whole = seen_in(&page, UTF_8, 1_000);
            prop_assert_eq!(seen_in(&page, UTF_8, piece), whole);
        }

        #[test]
        fn a_name_is_found_wherever_it_stands(
            before in "[a-z&%\\\\;<> ]{0,40}", behind in "[a-z&%\\\\;<> ]{0,40}", piece in 1_usize..40,
        ) {
            let page = format!("{before} alice {behind}");
            prop_assert_eq!(seen_in(page.as_bytes(), UTF_8, piece), Some(Finding::LeakUser));
        }

        #[test]
        fn escapes_of_any_shape_are_read(page in "[&%\\\\#xu0-9a-f;]{0,60}", piece in 1_usize..9) {
            let whole = seen_in(page.as_bytes(), UTF_8, 1_000);
            prop_assert_eq!(seen_in(page.as_bytes(), UTF_8, piece), whole);
        }
    }
}
