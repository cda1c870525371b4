//! Searches a page for one visitor's personal data, which a shared page must not contain.
//!
//! A fill is sent without anything that identifies the visitor, so the search should never find anything. It
//! is done all the same, because an app may identify visitors in other ways. The whole page is read,
//! including tags, comments and scripts, both as it is and with its escapes undone (`&eacute;`, `%40`,
//! `\u0041`). Case is ignored. What follows from a find is decided elsewhere.

use std::borrow::Cow;
use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;

use ::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, DATE, EXPIRES, LAST_MODIFIED, PRAGMA, REFERRER_POLICY,
    SERVER, SET_COOKIE, STRICT_TRANSPORT_SECURITY, VARY, VIA,
};
use ::http::{HeaderMap, HeaderName};
use aho_corasick::Span;
use aho_corasick::packed::{Config, MatchKind, Searcher};
use encoding_rs::{Encoding, UTF_8};
use memchr::memchr3;
use percent_encoding::percent_decode;

use super::escape::{ESCAPE_MAX, is_sign, references, unescape, unescaped, without_escapes};
use super::leak_kind::LeakKind;
use super::window::Window;

/// The most texts that are looked for at a time.
const SEARCH_TEXTS_MAX: usize = 64;
/// In how many spellings a text is looked for.
const CASES: usize = 4;
/// How much of each text is looked for, in bytes: showing the start of a secret already reveals it.
const MARK_BYTES_MAX: usize = 64;
/// The shortest attribute that is looked for, and the shortest name that is looked for in running text.
const WORD_MIN: usize = 4;
/// The shortest token that is looked for.
const TOKEN_MIN: usize = 8;
/// The shortest cookie value that is looked for, of cookies that a page sets: shorter ones are words such as
/// `compact`.
const VALUE_MIN: usize = 16;
/// The shortest value of a request field that is looked for.
const FIELD_MIN: usize = 9;
/// Values of request fields that stand in many pages for another reason. They say nothing of a visitor, and an attacker
/// can do nothing with them.
const USUAL_VALUES: [&[u8]; 8] = [
    b"text/html",
    b"text/plain",
    b"application/json",
    b"application/xml",
    b"application/xhtml+xml",
    b"\"windows\"",
    b"\"android\"",
    b"\"chrome os\"",
];
/// The most pieces of a token that are looked for.
const PIECES_MAX: usize = 8;
/// How many bytes on each side of a match are needed to judge it: a character, or `="`.
const AROUND: usize = 4;
/// The most escapes that are checked one by one.
const ESCAPES_MAX: usize = 256;
/// The bytes at the start of the window that may begin with the end of an escape, and so may be read
/// differently than with an earlier piece.
const UNSURE: usize = 32;

/// One visitor's personal data, which a shared page must not contain.
#[derive(Clone, Default)]
pub struct PersonalData {
    texts: Vec<SearchText>,
    /// Whether there was no room for the value of a request field, so that a page may hold it unseen.
    lacks_field: bool,
}

impl std::fmt::Debug for PersonalData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PersonalData({})", self.texts.len())
    }
}

/// One text to look for.
#[derive(Clone)]
struct SearchText {
    leak: LeakKind,
    text: Vec<u8>,
    place: MatchPlace,
}

/// Where a match of a text counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MatchPlace {
    /// Anywhere: the text is not a word.
    Anywhere,
    /// As a whole word, and not as a name in the markup.
    Word,
    /// As the whole content of an element, or of quotation marks: the text is too short to count elsewhere.
    Alone,
}

impl PersonalData {
    /// Adds the user's name. A name of fewer than four bytes counts only as a whole content, and a short
    /// number is not looked for.
    ///
    /// The name may contain escapes, if it was taken from HTML; another page may write it without them.
    pub fn user(&mut self, name: &[u8]) {
        self.user_as_written(name);
        if let Some(plain) = without_escapes(name) {
            self.user_as_written(&plain);
        }
    }

    fn user_as_written(&mut self, name: &[u8]) {
        let is_number = name.iter().all(u8::is_ascii_digit);
        match name.len() {
            0 | 1 => {}
            2 | 3 if is_number => {}
            2 | 3 => self.add(LeakKind::LeakUser, name, MatchPlace::Alone),
            _ => self.add(LeakKind::LeakUser, name, MatchPlace::Word),
        }
    }

    /// Adds the value of one of the user's attributes, such as an e-mail address or a customer number.
    pub fn attribute(&mut self, value: &[u8]) {
        let plain = without_escapes(value);
        for value in [Some(value), plain.as_deref()].into_iter().flatten() {
            if value.len() >= WORD_MIN {
                self.add(LeakKind::LeakAttribute, value, MatchPlace::Word);
            }
        }
    }

    /// Adds a token or another secret from the visitor's request.
    pub fn token(&mut self, value: &[u8]) {
        self.secret(value, TOKEN_MIN);
    }

    /// Adds the value of a cookie that the page itself would set.
    pub fn set_cookie(&mut self, value: &[u8]) {
        self.secret(value, VALUE_MIN);
        // A short value may be the number of a cart.
        let plain: Cow<'_, [u8]> = percent_decode(value).into();
        let words = plain.split(|byte| !byte.is_ascii_alphanumeric()).take(PIECES_MAX);
        for word in words.filter(|word| word.len() >= WORD_MIN) {
            if word.iter().any(u8::is_ascii_digit) {
                self.add(LeakKind::LeakToken, word, MatchPlace::Word);
            }
        }
    }

    /// Adds the value of a request field that a fetch sends and the page's key lacks.
    pub fn request_field(&mut self, value: &[u8]) {
        if value.len() >= FIELD_MIN
            && !USUAL_VALUES.iter().any(|usual| value.eq_ignore_ascii_case(usual))
        {
            self.lacks_field |= self.texts.len() + CASES > SEARCH_TEXTS_MAX;
            self.add(LeakKind::Reflected, value, MatchPlace::Anywhere);
        }
    }

    /// Whether there is nothing to look for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    fn secret(&mut self, value: &[u8], least: usize) {
        let plain: Cow<'_, [u8]> = percent_decode(value).into();
        for value in [value, &plain] {
            if value.len() >= least {
                self.add(LeakKind::LeakToken, value, MatchPlace::Anywhere);
            }
        }
        // A page may contain the id alone of a cookie with a signature after it.
        let pieces = plain.split(|byte| b"|.:".contains(byte)).take(PIECES_MAX);
        for piece in pieces.filter(|piece| piece.len() >= VALUE_MIN) {
            self.add(LeakKind::LeakToken, piece, MatchPlace::Anywhere);
        }
    }

    fn add(&mut self, leak: LeakKind, text: &[u8], place: MatchPlace) {
        self.add_cased(leak, text, place);
        // A page is compared in ASCII lower case, so other characters are looked for in their usual spelling.
        let Ok(text) = std::str::from_utf8(text) else { return };
        if !text.is_ascii() {
            let lower = text.to_lowercase();
            let rest = lower.chars().next().map_or(0, char::len_utf8);
            let capital = lower[..rest].to_uppercase() + &lower[rest..];
            for cased in [lower, capital, text.to_uppercase()] {
                self.add_cased(leak, cased.as_bytes(), place);
            }
        }
    }

    fn add_cased(&mut self, leak: LeakKind, text: &[u8], place: MatchPlace) {
        let (text, place) = cut(text, place);
        let text = text.to_ascii_lowercase();
        let is_known = self.texts.iter().any(|mark| mark.text == text);
        if self.texts.len() < SEARCH_TEXTS_MAX && !is_known {
            self.texts.push(SearchText { leak, text, place });
        }
    }

    /// Finds this data in single texts, each of which is in memory as a whole.
    pub fn finder(&self) -> impl FnMut(&[u8]) -> bool {
        let (mut search, mut window) = (Search::unsieved(self, UTF_8), Window::default());
        move |text| {
            window.show(text);
            search.look(&window, true).is_err()
        }
    }

    /// Searches the fields that are kept of a response.
    ///
    /// # Errors
    /// The first find.
    pub fn search_fields(&self, headers: &HeaderMap) -> Result<(), LeakKind> {
        if self.lacks_field {
            return Err(LeakKind::Reflected);
        }
        if self.is_empty() {
            return Ok(());
        }
        // PERF: the fields are short, and building a sieve would take longer than the search.
        let (mut search, mut window) = (Search::unsieved(self, UTF_8), Window::default());
        for (_, value) in headers.iter().filter(|(name, _)| !USUAL.contains(name)) {
            window.show(value.as_bytes());
            search.look(&window, true)?;
        }
        Ok(())
    }
}

/// Cuts a text to the length that is looked for. A word that is cut continues, so it may match anywhere.
fn cut(text: &[u8], place: MatchPlace) -> (&[u8], MatchPlace) {
    if text.len() <= MARK_BYTES_MAX {
        return (text, place);
    }
    let start = &text[..MARK_BYTES_MAX];
    // A page never contains half a character.
    let whole = std::str::from_utf8(start).map_or_else(|error| error.valid_up_to(), str::len);
    let is_text = MARK_BYTES_MAX - whole < 4;
    (if is_text { &start[..whole] } else { start }, MatchPlace::Anywhere)
}

impl SearchText {
    /// The same text in another charset, if its bytes differ there.
    fn recoded(&self, charset: &'static Encoding) -> Option<Self> {
        let text = std::str::from_utf8(&self.text).ok()?;
        let (bytes, _, has_failed) = charset.encode(text);
        let differs = !has_failed && *bytes != *self.text;
        let (text, place) = cut(&bytes, self.place);
        differs.then(|| Self { text: text.to_ascii_lowercase(), place, ..self.clone() })
    }
}

/// Fields with values defined by the protocol, and one that is never kept.
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

/// A search in a text that comes in pieces.
pub(crate) struct Search<'t> {
    marks: Vec<Cow<'t, SearchText>>,
    sieve: Option<Rc<Searcher>>,
    /// The bytes that occur in the texts.
    has: [bool; 256],
    /// The text with its escapes undone, if that was necessary.
    plain: Vec<u8>,
}

impl<'t> Search<'t> {
    /// A search in a page of this charset.
    pub(crate) fn new(personal_data: &'t PersonalData, charset: &'static Encoding) -> Self {
        let search = Self::unsieved(personal_data, charset);
        Self { sieve: sieve(&search.marks, &search.has), ..search }
    }

    fn unsieved(personal_data: &'t PersonalData, charset: &'static Encoding) -> Self {
        let mut marks: Vec<_> = personal_data.texts.iter().map(Cow::Borrowed).collect();
        if charset != UTF_8 {
            marks.extend(
                personal_data.texts.iter().filter_map(|mark| mark.recoded(charset)).map(Cow::Owned),
            );
        }
        let mut has = [false; 256];
        for byte in marks.iter().flat_map(|mark| &mark.text) {
            has[usize::from(*byte)] = true;
        }
        Self { sieve: None, marks, has, plain: Vec::new() }
    }

    /// Searches the window on a text; with `is_last` the text ends there.
    ///
    /// # Errors
    /// The first find.
    pub(crate) fn look(&mut self, window: &Window, is_last: bool) -> Result<(), LeakKind> {
        if self.marks.is_empty() {
            return Ok(());
        }
        let text =
            LowercaseText { bytes: window.bytes(), skipped: skipped(window, AROUND), is_last };
        let is_as_it_stands = match &self.sieve {
            Some(sieve) => self.sift(sieve, &text)? && !self.is_spelt(window),
            None => {
                self.look_at(&text)?;
                memchr3(b'&', b'%', b'\\', text.bytes).is_none()
            }
        };
        if is_as_it_stands {
            return Ok(());
        }
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        unescape(text.bytes, is_last, &mut plain);
        let skipped = skipped(window, UNSURE);
        let found = self.look_at(&LowercaseText { bytes: &plain, skipped, is_last });
        self.plain = plain;
        found
    }

    /// Searches for all texts in literal form. Returns whether this is sufficient: whether neither a named
    /// reference nor an escape beside a match could be part of a text.
    fn sift(&self, sieve: &Searcher, text: &LowercaseText<'_>) -> Result<bool, LeakKind> {
        let mut is_all = true;
        let mut span = Span::from(0..text.bytes.len());
        while let Some(found) = sieve.find_in(text.bytes, span) {
            let at = found.start();
            let rest = &text.bytes[at..];
            is_all = is_all && !(rest[0] == b'&' && self.may_be_spelt(rest));
            for mark in self.marks.iter().filter(|mark| rest.starts_with(&mark.text)) {
                if text.holds(mark, at) {
                    return Err(mark.leak);
                }
                // An escape beside the match may change how it is read.
                let (before, behind) = (&text.bytes[..at], &rest[mark.text.len()..]);
                let before = &before[at.saturating_sub(ESCAPE_MAX)..];
                is_all = is_all && !before.iter().chain(behind.first()).any(|byte| is_sign(*byte));
            }
            span.start = at + 1;
        }
        Ok(is_all)
    }

    /// Whether an escape other than a named reference may be part of a text.
    fn is_spelt(&self, window: &Window) -> bool {
        let (bytes, escapes) = (window.bytes(), window.escapes());
        // Of many escapes one is likely to be, and undoing all takes less time than checking each.
        escapes.len() > ESCAPES_MAX || escapes.iter().any(|at| self.may_be_spelt(&bytes[*at..]))
    }

    /// Whether the escape at the start of `rest` may be part of a text: its character occurs in one, followed
    /// by the same byte as here.
    fn may_be_spelt(&self, rest: &[u8]) -> bool {
        let mut meant = Vec::with_capacity(4);
        let Some(length) = unescaped(rest, &mut meant) else {
            return rest.len() < ESCAPE_MAX;
        };
        meant.make_ascii_lowercase();
        if !meant.first().is_some_and(|first| self.has[usize::from(*first)]) {
            return false;
        }
        let next = rest.get(length);
        let is_next = |wanted: Option<&u8>| {
            wanted.is_none() || next.is_none_or(|next| Some(next) == wanted || is_sign(*next))
        };
        self.marks.iter().any(|mark| {
            let mut places = mark.text.windows(meant.len()).enumerate();
            places.any(|(at, part)| part == meant && is_next(mark.text.get(at + meant.len())))
        })
    }

    /// Searches for one text after the other.
    fn look_at(&self, text: &LowercaseText<'_>) -> Result<(), LeakKind> {
        for mark in self.marks.iter().filter(|mark| mark.text.len() <= text.bytes.len()) {
            let mut places = memchr::memmem::find_iter(text.bytes, &mark.text);
            if places.any(|at| text.holds(mark, at)) {
                return Err(mark.leak);
            }
        }
        Ok(())
    }
}

/// A matcher that finds the texts, and references that may be part of one, in a single pass. `None` if the
/// processor lacks the instructions for it, or there are too many texts.
///
/// PERF: nearly all texts have three bytes or more, by which the processor distinguishes them from others.
fn sieve(marks: &[Cow<'_, SearchText>], has: &[bool; 256]) -> Option<Rc<Searcher>> {
    if marks.is_empty() {
        return None;
    }
    SIEVES.with_borrow_mut(|sieves| {
        let slot = &mut sieves[slot_of(marks)];
        let fits = slot.as_ref().is_some_and(|made| made.is_of(marks));
        if !fits {
            let texts = marks.iter().map(|mark| mark.text.clone()).collect();
            *slot = Some(Matcher { texts, sieve: new_sieve(marks, has).map(Rc::new) });
        }
        slot.as_ref().and_then(|made| made.sieve.clone())
    })
}

/// The number of cached sieves, of some KiB each: a returning visitor brings the same texts.
const SIEVES_MAX: usize = 64;

thread_local! {
    /// PERF: building a sieve takes as long as searching 16 KiB.
    static SIEVES: RefCell<[Option<Matcher>; SIEVES_MAX]> = const { RefCell::new([const { None }; SIEVES_MAX]) };
}

/// A sieve, with the texts that it finds.
struct Matcher {
    texts: Vec<Vec<u8>>,
    sieve: Option<Rc<Searcher>>,
}

impl Matcher {
    fn is_of(&self, marks: &[Cow<'_, SearchText>]) -> bool {
        self.texts.iter().eq(marks.iter().map(|mark| &mark.text))
    }
}

/// The cache slot for the sieve of these texts. A sieve for other texts in the same slot is replaced.
fn slot_of(marks: &[Cow<'_, SearchText>]) -> usize {
    let mut hasher = DefaultHasher::new();
    marks.iter().for_each(|mark| mark.text.hash(&mut hasher));
    hasher.finish() as usize % SIEVES_MAX
}

fn new_sieve(marks: &[Cow<'_, SearchText>], has: &[bool; 256]) -> Option<Searcher> {
    let mut builder = Config::new().match_kind(MatchKind::LeftmostFirst).builder();
    builder.extend(marks.iter().map(|mark| &mark.text));
    let mut letter = [0; 4];
    for (name, character) in references() {
        let character = character.encode_utf8(&mut letter).as_bytes();
        if character.iter().all(|byte| has[usize::from(*byte)]) {
            builder.add(format!("&{}", name.to_ascii_lowercase()));
        }
    }
    builder.build()
}

/// How much at the start of the window was searched with an earlier piece.
fn skipped(window: &Window, least: usize) -> usize {
    if window.is_cut() { least } else { 0 }
}

/// A part of a text, in lower case.
struct LowercaseText<'t> {
    bytes: &'t [u8],
    /// How many bytes at its start serve only as context.
    skipped: usize,
    /// Whether the text ends with this part.
    is_last: bool,
}

impl LowercaseText<'_> {
    /// Whether the match of a text at `at` is a find. A match too near to the end is checked with the next
    /// piece.
    fn holds(&self, mark: &SearchText, at: usize) -> bool {
        let end = at + mark.text.len();
        if !self.is_last && end + AROUND > self.bytes.len() || at < self.skipped {
            return false;
        }
        let (before, behind) = (&self.bytes[..at], &self.bytes[end..]);
        match mark.place {
            MatchPlace::Anywhere => true,
            MatchPlace::Alone => {
                before.last().is_some_and(|byte| b"\"'>`".contains(byte))
                    && behind.first().is_some_and(|byte| b"\"'<`".contains(byte))
            }
            MatchPlace::Word => {
                let begins = !starts_word(&mark.text) || !ends_word(before);
                let ends = !ends_word(&mark.text) || !starts_word(behind);
                begins && ends && !is_markup(before, behind)
            }
        }
    }
}

/// Whether the match is the name of an element or of an attribute.
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

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn alice() -> PersonalData {
        let mut personal_data = PersonalData::default();
        personal_data.user(b"alice");
        personal_data.user("Zoë.Müller".as_bytes());
        personal_data.user("éloïse".as_bytes());
        personal_data.user(b"bob");
        personal_data.user(b"17");
        personal_data.attribute(b"alice@example.com");
        personal_data.attribute(b"C-10442");
        personal_data.attribute(b"de");
        personal_data.token(b"s3cr3t/T0ken+abc==");
        personal_data.token(b"short");
        personal_data.set_cookie(b"compact");
        personal_data.set_cookie(b"0a1b2c3d4e5f60718293");
        personal_data.token(b"s%3Afedcba9876543210.signature-of-it");
        personal_data
    }

    fn seen_in(page: &[u8], charset: &'static Encoding, piece: usize) -> Option<LeakKind> {
        found_in(&alice(), page, charset, piece)
    }

    fn found_in(
        personal_data: &PersonalData,
        page: &[u8],
        charset: &'static Encoding,
        piece: usize,
    ) -> Option<LeakKind> {
        let (mut search, mut window) = (Search::new(personal_data, charset), Window::default());
        let mut found = Ok(());
        for part in page.chunks(piece).chain([&b""[..]]) {
            window.add(part);
            found = found.and_then(|()| search.look(&window, part.is_empty()));
        }
        found.err()
    }

    fn seen(page: &str) -> Option<LeakKind> {
        let all = [1, 2, 3, 7, 16_384].map(|piece| seen_in(page.as_bytes(), UTF_8, piece));
        assert!(all.iter().all(|one| *one == all[0]), "{page}: by the pieces {all:?}");
        all[0]
    }

    #[test]
    fn personal_data_is_found_in_every_spelling() {
        for (page, leak) in [
            ("Hello, alice!", LeakKind::LeakUser),
            ("<p>Alice</p>", LeakKind::LeakUser),
            ("alice", LeakKind::LeakUser),
            ("ALICE’s cart", LeakKind::LeakUser),
            ("…alice…", LeakKind::LeakUser),
            ("<a href=/user/alice/cart>", LeakKind::LeakUser),
            ("<a href='/u?name=alice&x=1'>", LeakKind::LeakUser),
            ("<img alt=\"alice\">", LeakKind::LeakUser),
            ("<!-- made for alice in 3 ms -->", LeakKind::LeakUser),
            ("<script>var me = {name:'alice'}</script>", LeakKind::LeakUser),
            ("{\"name\":\"\\u0061lice\"}", LeakKind::LeakUser),
            ("{\"text\":\"hi\\nalice\"}", LeakKind::LeakUser),
            ("{\"path\":\"\\/alice\\/\"}", LeakKind::LeakUser),
            ("'\\x61lice'", LeakKind::LeakUser),
            ("&#97;lice", LeakKind::LeakUser),
            ("&#x61;lice &amp; co", LeakKind::LeakUser),
            ("&#97lice", LeakKind::LeakUser),
            ("/u?q=%61lice", LeakKind::LeakUser),
            ("/u?q=hi%20alice", LeakKind::LeakUser),
            ("zoë.müller", LeakKind::LeakUser),
            ("Zo&euml;.M&uuml;ller", LeakKind::LeakUser),
            ("ZOË.MÜLLER", LeakKind::LeakUser),
            ("Éloïse's cart", LeakKind::LeakUser),
            ("<b>ÉLOÏSE</b>", LeakKind::LeakUser),
            ("Zo&#235;.M&#xfc;ller", LeakKind::LeakUser),
            ("Zo%C3%AB.M%C3%BCller", LeakKind::LeakUser),
            ("Zo\\u00eb.M\\u00fcller", LeakKind::LeakUser),
            ("<b>bob</b>", LeakKind::LeakUser),
            ("{\"user\":\"Bob\"}", LeakKind::LeakUser),
            ("&quot;bob&quot;", LeakKind::LeakUser),
            ("mail alice@example.com now", LeakKind::LeakUser),
            ("customer C-10442.", LeakKind::LeakAttribute),
            ("customer%20c%2d10442", LeakKind::LeakAttribute),
            ("x=s3cr3t/T0ken+abc==", LeakKind::LeakToken),
            ("xs3cr3t%2FT0ken%2Babc%3D%3Dx", LeakKind::LeakToken),
            ("\"s3cr3t\\/T0ken+abc==\"", LeakKind::LeakToken),
            ("<input value=0a1b2c3d4e5f60718293>", LeakKind::LeakToken),
            ("<input value=fedcba9876543210>", LeakKind::LeakToken),
        ] {
            assert_eq!(seen(page), Some(leak), "{page}");
        }
    }

    #[test]
    fn long_names_are_found_in_any_charset_and_with_any_escape() {
        let gb18030 = Encoding::for_label(b"gb18030").unwrap();
        let long = "ë".repeat(16) + "abc";
        let (written, ..) = gb18030.encode(&long);
        let start = "a".repeat(63);
        let slashes = "\\".repeat(2_501);
        for (wanted, page, charset) in [
            (long.as_str(), written.to_vec(), gb18030),
            (&*format!("{start}é"), format!("<p>{start}&eacute;</p>").into_bytes(), UTF_8),
            (&*format!("{start}é"), format!("{start}\\u00e9").into_bytes(), UTF_8),
            ("3×4 Halle", b"<p>3&times;4 Halle</p>".to_vec(), UTF_8),
            ("a<b>c", b"a&lt&#98;&gt;c".to_vec(), UTF_8),
            ("alice", format!("{}{slashes}x61lice end", "f".repeat(14_000)).into_bytes(), UTF_8),
        ] {
            let mut personal_data = PersonalData::default();
            personal_data.attribute(wanted.as_bytes());
            for piece in [1_000, 3, 16_384] {
                assert!(
                    found_in(&personal_data, &page, charset, piece).is_some(),
                    "{wanted}, {piece}"
                );
            }
        }
    }

    #[test]
    fn a_name_that_an_app_escapes_is_found_where_it_does_not() {
        let mut personal_data = PersonalData::default();
        personal_data.user(b"Pat O&#39;Brien");
        personal_data.user(b"Ren&Eacute;e B");
        personal_data.attribute(b"ann%40shop.example");
        let found = |page: &str| found_in(&personal_data, page.as_bytes(), UTF_8, 7);
        for page in ["hi, pat o'brien!", "<b>Pat O&#39;Brien</b>", "RENÉE B", "ren&eacute;e b"] {
            assert_eq!(found(page), Some(LeakKind::LeakUser), "{page}");
        }
        assert_eq!(found("to ann@shop.example."), Some(LeakKind::LeakAttribute));
        assert_eq!(found("pat o brien, renee b, ann at shop.example"), None);
    }

    #[test]
    fn each_visitor_s_own_is_looked_for_where_many_come_again() {
        let names: Vec<_> = (0..3 * SIEVES_MAX).map(|n| format!("visitor{n:03}")).collect();
        for _ in 0..2 {
            for (n, name) in names.iter().enumerate() {
                let mut personal_data = PersonalData::default();
                personal_data.user(name.as_bytes());
                let found = |page: &str| found_in(&personal_data, page.as_bytes(), UTF_8, 64);
                assert_eq!(found(&format!("hi, {name}!")), Some(LeakKind::LeakUser));
                assert_eq!(found(&format!("hi, {}!", names[(n + 1) % names.len()])), None);
            }
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
            // An invalid reference is read as plain letters.
            let expected = if page.starts_with("&alice") { Some(LeakKind::LeakUser) } else { None };
            assert_eq!(found, expected, "{page}");
        }
    }

    #[test]
    fn other_charsets_are_read_as_they_write_the_name() {
        let latin = b"Zo\xeb.M\xfcller";
        let label = |label: &str| Encoding::for_label(label.as_bytes()).unwrap();
        assert_eq!(seen_in(latin, label("latin1"), 4), Some(LeakKind::LeakUser));
        assert_eq!(seen_in(latin, UTF_8, 4), None);
        assert_eq!(seen_in("zoë.müller".as_bytes(), label("latin1"), 99), Some(LeakKind::LeakUser));
    }

    #[test]
    fn fields_are_looked_through_but_for_those_of_the_protocol() {
        let mut personal_data = PersonalData::default();
        personal_data.user(b"html");
        for (name, value, is_found) in [
            ("content-type", "text/html", false),
            ("x-user", "html", true),
            ("link", "</u/html>; rel=me", true),
            ("set-cookie", "html=1", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            assert_eq!(personal_data.search_fields(&headers).is_err(), is_found, "{name}");
        }
    }

    #[test]
    fn a_secret_that_is_long_is_found_by_its_start() {
        let mut personal_data = PersonalData::default();
        let secret = "x1".repeat(4_096);
        personal_data.token(secret.as_bytes());
        let mut window = Window::default();
        window.add(secret.as_bytes());
        assert!(Search::new(&personal_data, UTF_8).look(&window, true).is_err());
        for n in 0..1_000 {
            personal_data.token(format!("secret-{n}").as_bytes());
        }
        assert_eq!(personal_data.texts.len(), SEARCH_TEXTS_MAX);
    }

    #[test]
    fn nothing_of_it_is_shown() {
        assert!(!format!("{:?}", alice()).contains("alice"));
    }

    /// Whether one of the texts is found in the whole page, in literal form or with its escapes undone.
    fn stands_in(search: &Search<'_>, page: &str) -> bool {
        let (raw, mut plain) = (page.to_ascii_lowercase(), Vec::new());
        unescape(raw.as_bytes(), true, &mut plain);
        let whole = |bytes| LowercaseText { bytes, skipped: 0, is_last: true };
        let found = search.look_at(&whole(raw.as_bytes())).is_err();
        found || search.look_at(&whole(&plain)).is_err()
    }

    /// Escapes and letters, with more letters of the texts than chance would bring.
    fn confusing() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            4 => proptest::sample::select(vec![
                "zoë", "a.b", "ann", "an", "n", "a", "zo", "ë", "&euml;", "&Euml;", "%c3%ab", "\\u00eb",
                "&#97;", "&#x6E", "%61", "%6e", "\\x6e", "\\n", "%20", "&period;", "&nbsp;", "&amp;", "\\",
                "&", "%", "#", ";", "<", ">", "=\"", "\"", " ", "&#0000000097;", "s&o", "&amp;o", "z%o",
            ]).prop_map(str::to_owned),
            1 => "[a-z0-9 &%;#\\\\<>]{1,8}",
        ];
        proptest::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn escapes_are_undone_where_they_may_matter(
            before in confusing(), behind in confusing(), filling in 0_usize..3, piece in 1_usize..4_000,
            names in proptest::sample::subsequence(vec!["zoë", "a.b", "anna", "bob", "s&o!", "ann b", "z%oz"], 1..4),
        ) {
            let page = format!("{before}{}{behind}", "filling ".repeat(filling * 700));
            let mut personal_data = PersonalData::default();
            names.iter().for_each(|name| personal_data.user(name.as_bytes()));
            let mut search = Search::new(&personal_data, UTF_8);
            let wanted = stands_in(&search, &page);
            let mut window = Window::default();
            let pieces = page.as_bytes().chunks(piece).chain([&b""[..]]);
            let found = pieces.map(|piece| {
                window.add(piece);
                search.look(&window, piece.is_empty())
            });
            prop_assert_eq!(found.collect::<Result<(), _>>().is_err(), wanted, "{}", page);
        }

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
            prop_assert_eq!(seen_in(page.as_bytes(), UTF_8, piece), Some(LeakKind::LeakUser));
        }

        #[test]
        fn escapes_of_any_shape_are_read(page in "[&%\\\\#xu0-9a-f;]{0,60}", piece in 1_usize..9) {
            let whole = seen_in(page.as_bytes(), UTF_8, 1_000);
            prop_assert_eq!(seen_in(page.as_bytes(), UTF_8, piece), whole);
        }
    }
}
