//! Holes that the app marks: the tags of ESI (<https://www.w3.org/TR/esi-lang/>), as far as caches carry
//! them out: `<esi:include>`, `<esi:remove>`, `<esi:comment>` and `<!--esi … -->`. Others stay.
//!
//! Tags are found anywhere in the text, in scripts and attributes, too, as other caches find them.

use std::collections::VecDeque;

use ::http::{HeaderMap, HeaderName};
use bytes::{Bytes, BytesMut};

use super::Cut;
use crate::http::list::{divide, members, split, trim};

/// By which an app says that its answer is to be processed (Edge Architecture Specification §2).
pub static SURROGATE_CONTROL: HeaderName = HeaderName::from_static("surrogate-control");
/// By which it is told that it can be.
pub static SURROGATE_CAPABILITY: HeaderName = HeaderName::from_static("surrogate-capability");

/// The longest tag, in bytes. What is longer is text.
const TAG_MAX: usize = 8 * 1_024;

/// What an include names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Include {
    /// Where its content is.
    pub src: String,
    /// Where it is when that fails.
    pub alt: Option<String>,
}

/// Whether an answer says that ESI is to be processed.
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

/// Cuts a text at the tags of ESI.
#[derive(Debug, Default)]
pub struct Tags {
    /// What may be the beginning of a tag.
    held: BytesMut,
    /// Whether what comes is within `<esi:remove>`.
    removes: bool,
    /// Whether it is within `<!--esi`.
    in_comment: bool,
}

/// What begins somewhere.
enum Mark {
    /// Nothing.
    Text,
    /// Something, maybe: more has to come first.
    Open,
    /// A tag of so many bytes, that means this.
    Tag(usize, Meaning),
}

enum Meaning {
    Include(Option<Include>),
    Remove,
    EndRemove,
    Comment,
    EndComment,
    Nothing,
}

/// Names of tags, as they begin.
const NAMES: [&[u8]; 7] = [
    b"<esi:include",
    b"<esi:remove",
    b"</esi:remove",
    b"<esi:comment",
    b"</esi:include",
    b"</esi:comment",
    b"<!--esi",
];

impl Tags {
    pub(super) fn cut(&mut self, part: Bytes, cuts: &mut VecDeque<Cut>) {
        let text = if self.held.is_empty() {
            part
        } else {
            let mut whole = self.held.split();
            whole.extend_from_slice(&part);
            whole.freeze()
        };
        let left = self.cut_whole(&text, cuts);
        self.held.extend_from_slice(&text[text.len() - left..]);
    }

    pub(super) fn end(&mut self, cuts: &mut VecDeque<Cut>) {
        let rest = self.held.split().freeze();
        self.push(rest, cuts);
    }

    /// Cuts what is there; how many bytes at its end have to wait for more.
    fn cut_whole(&mut self, text: &Bytes, cuts: &mut VecDeque<Cut>) -> usize {
        let (mut start, mut at) = (0, 0);
        while let Some(found) = self.next(&text[at..]) {
            at += found;
            match self.mark(&text[at..]) {
                Mark::Text => at += 1,
                Mark::Open => {
                    self.push(text.slice(start..at), cuts);
                    return text.len() - at;
                }
                Mark::Tag(length, meaning) => {
                    self.push(text.slice(start..at), cuts);
                    self.heed(meaning, cuts);
                    at += length;
                    start = at;
                }
            }
        }
        self.push(text.slice(start..), cuts);
        0
    }

    /// Where something may begin.
    fn next(&self, text: &[u8]) -> Option<usize> {
        let in_comment = self.in_comment;
        text.iter().position(|b| *b == b'<' || (in_comment && *b == b'-'))
    }

    fn mark(&self, text: &[u8]) -> Mark {
        if text[0] == b'-' {
            return match text {
                [b'-', b'-', b'>', ..] => Mark::Tag(3, Meaning::EndComment),
                [b'-'] | [b'-', b'-'] => Mark::Open,
                _ => Mark::Text,
            };
        }
        let Some(name) = NAMES.iter().find(|name| text.starts_with(name)) else {
            let is_open = NAMES.iter().any(|name| name.starts_with(text));
            return if is_open { Mark::Open } else { Mark::Text };
        };
        let behind = &text[name.len()..];
        let Some(next) = behind.first() else { return Mark::Open };
        if *name == b"<!--esi" {
            let is_one = next.is_ascii_whitespace() || *next == b'<';
            return if is_one { Mark::Tag(name.len(), Meaning::Comment) } else { Mark::Text };
        }
        if !(next.is_ascii_whitespace() || matches!(next, b'/' | b'>')) {
            return Mark::Text;
        }
        let Some(length) = end_of_tag(behind) else {
            return if text.len() > TAG_MAX { Mark::Text } else { Mark::Open };
        };
        let inside = &behind[..length - 1];
        let is_closed = inside.ends_with(b"/");
        let meaning = match *name {
            b"<esi:include" => Meaning::Include(include(inside)),
            b"<esi:remove" if is_closed => Meaning::Nothing,
            b"<esi:remove" => Meaning::Remove,
            b"</esi:remove" => Meaning::EndRemove,
            _ => Meaning::Nothing,
        };
        Mark::Tag(name.len() + length, meaning)
    }

    fn heed(&mut self, meaning: Meaning, cuts: &mut VecDeque<Cut>) {
        match meaning {
            Meaning::Include(Some(include)) if !self.removes => {
                cuts.push_back(Cut::Include(include))
            }
            Meaning::Include(_) | Meaning::Nothing => {}
            Meaning::Remove => self.removes = true,
            Meaning::EndRemove => self.removes = false,
            Meaning::Comment => self.in_comment = true,
            Meaning::EndComment => self.in_comment = false,
        }
    }

    fn push(&self, text: Bytes, cuts: &mut VecDeque<Cut>) {
        if !self.removes && !text.is_empty() {
            cuts.push_back(Cut::Text(text));
        }
    }
}

/// How far it is to the end of a tag, of which `text` is what stands behind its name. A `>` within quotes
/// is none.
fn end_of_tag(text: &[u8]) -> Option<usize> {
    let mut quote = None;
    for (at, b) in text.iter().enumerate().take(TAG_MAX) {
        match (quote, *b) {
            (None, b'>') => return Some(at + 1),
            (None, b'"' | b'\'') => quote = Some(*b),
            (Some(open), b) if b == open => quote = None,
            _ => {}
        }
    }
    None
}

/// What the attributes of an include say; `None`: it names no source.
fn include(attributes: &[u8]) -> Option<Include> {
    let text = std::str::from_utf8(attributes).ok()?;
    let (mut src, mut alt) = (None, None);
    let mut rest = text;
    while let Some((name, behind)) = rest.split_once('=') {
        let behind = behind.trim_start();
        let quote = behind.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let (value, further) = behind[1..].split_once(quote)?;
        match name.trim() {
            "src" if src.is_none() => src = Some(unescaped(value)),
            "alt" if alt.is_none() => alt = Some(unescaped(value)),
            _ => {}
        }
        rest = further;
    }
    Some(Include { src: src.filter(|src| !src.is_empty())?, alt })
}

/// The five references of XML, decoded.
fn unescaped(value: &str) -> String {
    let mut plain = value.trim().to_owned();
    for (reference, character) in
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")]
    {
        plain = plain.replace(reference, character);
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text with each include as `[src|alt]`, read in pieces of `size` bytes.
    fn cut_in(text: &str, size: usize) -> String {
        let (mut tags, mut cuts) = (Tags::default(), VecDeque::new());
        for piece in text.as_bytes().chunks(size) {
            tags.cut(Bytes::copy_from_slice(piece), &mut cuts);
        }
        tags.end(&mut cuts);
        let shown: Vec<u8> = cuts
            .into_iter()
            .flat_map(|cut| match cut {
                Cut::Text(text) => text.to_vec(),
                Cut::Include(Include { src, alt: None }) => format!("[{src}]").into(),
                Cut::Include(Include { src, alt: Some(alt) }) => format!("[{src}|{alt}]").into(),
                Cut::Element { .. } => panic!("no element is cut"),
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
            ("a<esi:remove>b", "a"),
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
        fn pieces_change_nothing(text in "(<esi:include src=\"/a\"/>|<esi:remove>|</esi:remove>|<!--esi |-->|<|esi:|[a-c \"']){0,24}", size in 1_usize..7) {
            prop_assert_eq!(cut_in(&text, size), cut_in(&text, 10_000));
        }
    }
}
