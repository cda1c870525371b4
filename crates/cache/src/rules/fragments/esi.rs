//! Fragments that the app marks with ESI tags (<https://www.w3.org/TR/esi-lang/>), as far as caches commonly
//! support them: `<esi:include>`, `<esi:remove>`, `<esi:comment>` and `<!--esi … -->`. Other tags stay.
//!
//! Tags are found anywhere in the text, including scripts and attributes, as other caches do.

use std::collections::VecDeque;
use std::ops::Range;

use ::http::{HeaderMap, HeaderName};
use anteroom_http::list::{divide, members, split, trim};
use bytes::{Buf as _, Bytes, BytesMut};
use memchr::{memchr, memmem};

use super::PagePart;
use crate::rules::character_references::of_xml;

/// `surrogate-control`: in this field an app requests ESI processing (Edge Architecture Specification §2).
pub static SURROGATE_CONTROL: HeaderName = HeaderName::from_static("surrogate-control");
/// `surrogate-capability`: in this field the proxy announces to the app that it supports ESI.
pub static SURROGATE_CAPABILITY: HeaderName = HeaderName::from_static("surrogate-capability");

/// The longest tag, in bytes. Longer ones are text.
const TAG_MAX: usize = 16 * 1_024;
/// The most bytes removed between `<esi:remove>` and its end: they are held until the end has come. Longer
/// contents stay in the page.
const REMOVED_MAX: usize = 256 * 1_024;
/// The most whitespace before the `>` of `</esi:remove>`, in bytes.
const SPACE_MAX: usize = 16;

/// The sources of an include.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Include {
    /// The URL of the content.
    pub src: String,
    /// The URL to use if that fails.
    pub alt: Option<String>,
}

/// Whether a response asks for ESI processing.
#[must_use]
pub fn is_said(headers: &HeaderMap) -> bool {
    members(headers, &SURROGATE_CONTROL).any(|member| {
        let (name, value) = divide(member, b'=');
        trim(name).eq_ignore_ascii_case(b"content")
            && value.is_some_and(|value| {
                let value = trim(value);
                let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
                split(inner.unwrap_or(value), b' ').any(|token| trim(token) == b"ESI/1.0")
            })
    })
}

/// Cuts a text at ESI tags.
///
/// SECURITY: authors of page content must not be able to make parsing expensive. The part of a tag that has
/// been read is not read again when more of the page comes. A false tag is read again for at most two other
/// tags, see `Reach`. The ends of removals are searched once.
#[derive(Debug, Default)]
pub struct Tags {
    /// Bytes that may begin a tag, or that stand between `<esi:remove>` and its end.
    held: BytesMut,
    /// How far the tag at the start of the held bytes has been read.
    reach: Reach,
    /// The length of `<esi:remove>`, if the held bytes begin with it.
    removal: Option<usize>,
    /// Before this position in the held bytes no `</esi:remove>` begins.
    no_end_before: usize,
    /// Whether the text that comes next is inside `<!--esi`.
    in_comment: bool,
    /// How many bytes were searched for ends of tags and removals.
    #[cfg(test)]
    looked: usize,
}

/// What begins at a position.
enum TagStart {
    /// Plain text.
    Text,
    /// Possibly a tag: more text is needed.
    Open,
    /// A tag of this many bytes, with this meaning.
    Tag(usize, Meaning),
}

enum Meaning {
    Include(Option<Include>),
    Remove,
    Comment,
    EndComment,
    Nothing,
}

/// Where something ends.
enum ElementEnd {
    /// At this position.
    At(usize),
    /// Unknown: more text is needed.
    Open,
    /// It has no end.
    Never,
}

/// The beginnings of tags. `</esi:remove>` is looked for only after `<esi:remove>`.
const NAMES: [&[u8]; 6] = [
    b"<esi:include",
    b"<esi:remove",
    b"<esi:comment",
    b"</esi:include",
    b"</esi:comment",
    b"<!--esi",
];

impl Tags {
    pub(super) fn cut(&mut self, part: &Bytes, cuts: &mut VecDeque<PagePart>) {
        if self.held.is_empty() {
            let left = self.cut_whole(part, false, |range| part.slice(range), cuts);
            self.held.extend_from_slice(&part[part.len() - left..]);
        } else {
            self.held.extend_from_slice(part);
            self.cut_held(false, cuts);
        }
    }

    pub(super) fn end(&mut self, cuts: &mut VecDeque<PagePart>) {
        self.cut_held(true, cuts);
    }

    fn cut_held(&mut self, is_over: bool, cuts: &mut VecDeque<PagePart>) {
        let mut held = std::mem::take(&mut self.held);
        // PERF: copied, so that the held bytes need not move each time more text comes.
        let copied = |range| Bytes::copy_from_slice(&held[range]);
        let left = self.cut_whole(&held, is_over, copied, cuts);
        if left > 0 {
            held.advance(held.len() - left);
            self.held = held;
        }
    }

    /// Cuts the available text. Returns how many bytes at its end must wait for more, unless the page
    /// `is_over`.
    fn cut_whole(
        &mut self,
        text: &[u8],
        is_over: bool,
        slice: impl Fn(Range<usize>) -> Bytes,
        cuts: &mut VecDeque<PagePart>,
    ) -> usize {
        let push = |cuts: &mut VecDeque<PagePart>, range: Range<usize>| {
            if !range.is_empty() {
                cuts.push_back(PagePart::Text(slice(range)));
            }
        };
        let (mut start, mut at) = (0, 0);
        let end = loop {
            let Some(found) = self.next(&text[at..]) else { break text.len() };
            at += found;
            match self.mark(&text[at..]) {
                TagStart::Open if !is_over => break at,
                TagStart::Open | TagStart::Text => {
                    self.reach = Reach::default();
                    at += 1;
                }
                TagStart::Tag(length, Meaning::Remove) => {
                    match self.end_of_removal(text, at + length, is_over) {
                        ElementEnd::At(end) => {
                            push(cuts, start..at);
                            (start, at) = (end, end);
                        }
                        ElementEnd::Open => {
                            self.removal = Some(length);
                            break at;
                        }
                        ElementEnd::Never => {
                            tracing::debug!("<esi:remove> has no end, or a late one: it is text");
                            at += length;
                        }
                    }
                }
                TagStart::Tag(length, meaning) => {
                    push(cuts, start..at);
                    at += length;
                    start = at;
                    if let Some(include) = self.heed(meaning) {
                        cuts.push_back(PagePart::Include(include));
                    }
                }
            }
        };
        push(cuts, start..end);
        self.no_end_before = self.no_end_before.saturating_sub(end);
        text.len() - end
    }

    /// The position where a tag may begin.
    fn next(&self, text: &[u8]) -> Option<usize> {
        match self.in_comment {
            true => memchr::memchr2(b'<', b'-', text),
            false => memchr(b'<', text),
        }
    }

    fn mark(&mut self, text: &[u8]) -> TagStart {
        if let Some(length) = self.removal.take() {
            return TagStart::Tag(length, Meaning::Remove);
        }
        if text[0] == b'-' {
            return match text {
                [b'-', b'-', b'>', ..] => TagStart::Tag(3, Meaning::EndComment),
                [b'-'] | [b'-', b'-'] => TagStart::Open,
                _ => TagStart::Text,
            };
        }
        let Some(name) = NAMES.iter().find(|name| text.starts_with(name)) else {
            let is_open = NAMES.iter().any(|name| name.starts_with(text));
            return if is_open { TagStart::Open } else { TagStart::Text };
        };
        let Some(next) = text.get(name.len()) else { return TagStart::Open };
        if *name == b"<!--esi" {
            let is_one = next.is_ascii_whitespace() || *next == b'<';
            return if is_one {
                TagStart::Tag(name.len(), Meaning::Comment)
            } else {
                TagStart::Text
            };
        }
        if !(next.is_ascii_whitespace() || matches!(next, b'/' | b'>')) {
            return TagStart::Text;
        }
        #[cfg(test)]
        let before = self.reach.at;
        let end = self.reach.read(text, name.len());
        #[cfg(test)]
        {
            self.looked += self.reach.at.saturating_sub(before);
        }
        let length = match end {
            ElementEnd::At(length) => length,
            ElementEnd::Open => return TagStart::Open,
            ElementEnd::Never => return TagStart::Text,
        };
        self.reach = Reach::default();
        let inside = &text[name.len()..length - 1];
        let is_closed = inside.ends_with(b"/");
        let meaning = match *name {
            b"<esi:include" => Meaning::Include(include(inside)),
            b"<esi:remove" if !is_closed => Meaning::Remove,
            _ => Meaning::Nothing,
        };
        TagStart::Tag(length, meaning)
    }

    /// The end of the removal whose content begins at `inside`. The result also serves removals that begin
    /// later.
    fn end_of_removal(&mut self, text: &[u8], inside: usize, is_over: bool) -> ElementEnd {
        let last = inside + REMOVED_MAX;
        let mut at = self.no_end_before.max(inside);
        #[cfg(test)]
        let before = at;
        let end = loop {
            let Some(found) = text.get(at..).and_then(|rest| memchr(b'<', rest)) else {
                at = text.len().max(at);
                break if is_over || at > last { ElementEnd::Never } else { ElementEnd::Open };
            };
            at += found;
            if at > last {
                break ElementEnd::Never;
            }
            match end_tag(&text[at..]) {
                ElementEnd::At(length) => break ElementEnd::At(at + length),
                ElementEnd::Open if !is_over => break ElementEnd::Open,
                ElementEnd::Open | ElementEnd::Never => at += 1,
            }
        };
        self.no_end_before = at;
        #[cfg(test)]
        {
            self.looked += at - before;
        }
        if let ElementEnd::At(_) = end {
            // A comment that ends inside the removal has ended.
            self.in_comment &= memmem::find(&text[inside..at], b"-->").is_none();
        }
        end
    }

    fn heed(&mut self, meaning: Meaning) -> Option<Include> {
        match meaning {
            Meaning::Include(include) => return include,
            Meaning::Comment => self.in_comment = true,
            Meaning::EndComment => self.in_comment = false,
            Meaning::Remove | Meaning::Nothing => {}
        }
        None
    }
}

/// How far a tag without a known end has been read.
///
/// A `>` inside quotes does not end a tag. A `<` outside quotes begins another tag, and the text before it is
/// then not a tag. So of the tags to which one byte may belong, one is outside quotes there, one inside
/// double and one inside single quotes: each byte is read for at most three tags.
#[derive(Debug, Default)]
struct Reach {
    /// How much has been read, in bytes.
    at: usize,
    /// The quote that is open at that position.
    quote: Option<u8>,
}

impl Reach {
    /// Reads on. `text` begins with the tag; `name` is the length of its name.
    fn read(&mut self, text: &[u8], name: usize) -> ElementEnd {
        self.at = self.at.max(name);
        let length = text.len().min(TAG_MAX);
        while self.at < length {
            let byte = text[self.at];
            match (self.quote, byte) {
                (None, b'<') => return ElementEnd::Never,
                (None, b'>') => return ElementEnd::At(self.at + 1),
                (None, b'"' | b'\'') => self.quote = Some(byte),
                (Some(open), byte) if byte == open => self.quote = None,
                _ => {}
            }
            self.at += 1;
        }
        if length == TAG_MAX { ElementEnd::Never } else { ElementEnd::Open }
    }
}

/// The length of the `</esi:remove>` at the start of `text`.
fn end_tag(text: &[u8]) -> ElementEnd {
    const NAME: &[u8] = b"</esi:remove";
    let Some(behind) = text.strip_prefix(NAME) else {
        return if NAME.starts_with(text) { ElementEnd::Open } else { ElementEnd::Never };
    };
    let space = behind.iter().take(SPACE_MAX).take_while(|byte| byte.is_ascii_whitespace()).count();
    match behind.get(space) {
        Some(b'>') => ElementEnd::At(NAME.len() + space + 1),
        Some(_) => ElementEnd::Never,
        None => ElementEnd::Open,
    }
}

/// Parses the attributes of an include; `None` if there is no `src`.
fn include(attributes: &[u8]) -> Option<Include> {
    let text = std::str::from_utf8(attributes).ok()?;
    let (mut src, mut alt) = (None, None);
    let mut rest = text;
    while let Some((name, behind)) = rest.split_once('=') {
        let behind = behind.trim_start();
        let quote = behind.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let (value, further) = behind[1..].split_once(quote)?;
        match name.trim() {
            "src" if src.is_none() => src = Some(of_xml(value.trim()).into_owned()),
            "alt" if alt.is_none() => alt = Some(of_xml(value.trim()).into_owned()),
            _ => {}
        }
        rest = further;
    }
    Some(Include { src: src.filter(|src| !src.is_empty())?, alt })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text with each include as `[src|alt]`, read in pieces of `size` bytes.
    fn cut_in(text: &str, size: usize) -> String {
        let (mut tags, mut cuts) = (Tags::default(), VecDeque::new());
        for piece in text.as_bytes().chunks(size) {
            tags.cut(&Bytes::copy_from_slice(piece), &mut cuts);
        }
        tags.end(&mut cuts);
        let shown: Vec<u8> = cuts
            .into_iter()
            .flat_map(|cut| match cut {
                PagePart::Text(text) => text.to_vec(),
                PagePart::Include(Include { src, alt: None }) => format!("[{src}]").into(),
                PagePart::Include(Include { src, alt: Some(alt) }) => {
                    format!("[{src}|{alt}]").into()
                }
                PagePart::Element { .. } => panic!("no element is cut"),
            })
            .collect();
        String::from_utf8_lossy(&shown).into_owned()
    }

    #[test]
    fn tags_are_found_however_the_text_comes() {
        for (text, expected) in [
            ("a<esi:include src=\"/x\"/>b", "a[/x]b"),
            (
                "<esi:include src='/x?a=1&amp;b=&lt;' alt=\"/y\" onerror=\"continue\" />",
                "[/x?a=1&b=<|/y]",
            ),
            ("<esi:include\nsrc=\"/x>y\"></esi:include>z", "[/x>y]z"),
            ("<a href=\"<esi:include src='/x'/>\">", "<a href=\"[/x]\">"),
            ("a<esi:remove>b<esi:include src=\"/x\"/></esi:remove>c", "ac"),
            ("a<esi:remove\n>b</esi:remove ></esi:remove>c", "a</esi:remove>c"),
            ("<esi:remove>a<esi:remove>b</esi:remove>c", "c"),
            ("<esi:remove/>a</esi:remove>", "a</esi:remove>"),
            // A removal without an end stays as it is, and so does the text after it.
            ("a<esi:remove>b", "a<esi:remove>b"),
            (
                "<esi:remove>a<esi:include src=\"/x\"/></esi:removed>",
                "<esi:remove>a[/x]</esi:removed>",
            ),
            ("a<esi:remove>b</esi:remove", "a<esi:remove>b</esi:remove"),
            ("<esi:remove a<esi:include src='/x'/></esi:remove>", "<esi:remove a[/x]</esi:remove>"),
            ("<!--esi a<esi:include src='/x'/>", " a[/x]"),
            ("<!--esi a<esi:remove>--></esi:remove>b-->", " ab-->"),
            ("<esi:include <esi:include src='/x'/>", "<esi:include [/x]"),
            ("<esi:comment text=\"a < b\"/>c", "c"),
            ("<esi:include src=\"/x<esi:include src='/y'/>", "<esi:include src=\"/x[/y]"),
            ("a<esi:comment text=\"b > c\"/>d", "ad"),
            ("a<!--esi <p><esi:include src=\"/x\"/></p>-->b", "a <p>[/x]</p>b"),
            ("<!--esi a --><!-- b -->", " a <!-- b -->"),
            ("a - b -- c <!--esign--> <!-- esi -->", "a - b -- c <!--esign--> <!-- esi -->"),
            ("<esi:include/><esi:include src=\"\"/><esi:include src=x/>", ""),
            ("<esi:includes src=\"/x\"/>", "<esi:includes src=\"/x\"/>"),
            ("<ESI:include src=\"/x\"/>", "<ESI:include src=\"/x\"/>"),
            ("<esi:choose><esi:vars>$(X)</esi:vars>", "<esi:choose><esi:vars>$(X)</esi:vars>"),
            ("<esi:include src=\"/x", "<esi:include src=\"/x"),
            ("<<esi:include src=\"/x\"/>", "<[/x]"),
            ("<es", "<es"),
        ] {
            for size in [1, 2, 5, 1_000] {
                assert_eq!(cut_in(text, size), expected, "by {size}");
            }
        }
    }

    #[test]
    fn a_tag_without_an_end_is_text() {
        let long = format!("<esi:include src=\"{}\"/>!", "x".repeat(TAG_MAX));
        assert!(cut_in(&long, 1_000) == long);
    }

    #[test]
    fn so_much_is_removed_and_no_more() {
        for (length, is_removed) in [(REMOVED_MAX, true), (REMOVED_MAX + 1, false)] {
            let inside = "x".repeat(length);
            // A later removal still has its end.
            let text = format!("<esi:remove>{inside}</esi:remove>a<esi:remove>b</esi:remove>c");
            let kept = format!("<esi:remove>{inside}</esi:remove>ac");
            let expected = if is_removed { "ac" } else { &kept };
            for size in [1_000, 100_000, 1_000_000] {
                assert!(cut_in(&text, size) == expected, "{length} by {size}");
            }
        }
        let late = format!("<esi:remove>{}<esi:remove>b</esi:remove>c", "x".repeat(REMOVED_MAX));
        assert!(cut_in(&late, 1_000) == late.replace("<esi:remove>b</esi:remove>", ""));
    }

    #[test]
    fn no_byte_is_looked_at_more_than_a_few_times() {
        for repeated in [
            "<esi:include ",
            "<esi:include \"",
            "<esi:include '",
            "<esi:include \"<esi:include '",
            "<esi:include \"'<esi:include ",
            "<esi:comment '\"<esi:include \"<esi:remove '",
            "<esi:remove>",
            "<esi:remove></esi:remove ",
            "<esi:remove>-->",
            "<!--esi <esi:remove>--",
            "<",
        ] {
            // More than what may be removed.
            let text = repeated.repeat(300_000 / repeated.len());
            for size in [1, 1_000, 1_000_000] {
                let (mut tags, mut cuts) = (Tags::default(), VecDeque::new());
                for piece in text.as_bytes().chunks(size) {
                    tags.cut(&Bytes::copy_from_slice(piece), &mut cuts);
                    assert!(tags.held.len() <= TAG_MAX + REMOVED_MAX + 64 + size, "{repeated}");
                }
                tags.end(&mut cuts);
                assert!(tags.looked <= 4 * text.len(), "{repeated} by {size}: {}", tags.looked);
            }
        }
    }

    #[test]
    fn only_what_the_app_says_is_processed() {
        for (line, expected) in [
            ("content=\"ESI/1.0\"", true),
            ("no-store, content=\"ESI/1.0\"", true),
            ("max-age=3600, Content=\"ESI/1.0 ESI-INL/1.0\"", true),
            ("content=\"ESI-INL/1.0\"", false),
            ("content=\"ESI/2.0\"", false),
            ("ESI/1.0", false),
            ("max-age=60", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(&SURROGATE_CONTROL, line.parse().unwrap());
            assert_eq!(is_said(&headers), expected, "{line}");
        }
        assert!(!is_said(&HeaderMap::new()));
    }

    proptest! {
        #[test]
        fn pieces_change_nothing(text in "(<esi:include src=\"/a\"/>|<esi:include |<esi:remove>|</esi:remove>|</esi:remove|<!--esi |-->|<|>|esi:|[a-c \"']){0,24}", size in 1_usize..7) {
            prop_assert_eq!(cut_in(&text, size), cut_in(&text, 10_000));
        }
    }
}
