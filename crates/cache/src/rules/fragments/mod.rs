//! Fragments: the places of a page that are filled when it is delivered, found while the page streams.
//!
//! This module is pure. The contents are fetched elsewhere; here a page is cut into shared text and
//! fragments.

mod elements;
pub mod esi;

use std::collections::VecDeque;

use anteroom_http::coding::Coding;
use anteroom_http::media;
use anteroom_http::selector::Selector;
use bytes::{Bytes, BytesMut};
use encoding_rs::{Encoding, UTF_8};
use lol_html::AsciiCompatibleEncoding;

use self::elements::Elements;
use self::esi::{Include, Tags};
use crate::entry::Entry;
use crate::recoded;

/// A part of a page that has been cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PagePart {
    /// Bytes of the shared page.
    Text(Bytes),
    /// The content of an element.
    Element {
        /// The index of the matching selector.
        place: usize,
        /// The value of the attribute that was asked for.
        attribute: Option<String>,
        /// The original content of the element.
        own: Bytes,
    },
    /// An `<esi:include>`.
    Include(Include),
}

/// Elements that are cut out.
#[derive(Clone, Copy, Debug)]
pub struct CutElement<'s> {
    /// Which elements.
    pub selector: &'s Selector,
    /// The attribute whose value is told, if any.
    pub attribute: Option<&'s str>,
    /// Whether escaped text is put in. Elements whose content is not decoded, such as a script, are not cut
    /// then.
    pub is_text: bool,
}

impl<'s> From<&'s Selector> for CutElement<'s> {
    fn from(selector: &'s Selector) -> Self {
        Self { selector, attribute: None, is_text: false }
    }
}

/// Cuts a page, part by part.
#[derive(Debug)]
pub enum FragmentCutter {
    /// At elements that match selectors.
    Elements(Box<Elements>),
    /// At ESI tags.
    Tags(Tags),
}

impl FragmentCutter {
    /// A cutter for elements, at most `most` of them, in a page in `encoding`.
    /// `room` limits how much of an unparsable page is kept, in bytes.
    #[must_use]
    pub fn elements<'s>(
        elements: impl Iterator<Item = CutElement<'s>>,
        most: usize,
        encoding: AsciiCompatibleEncoding,
        room: usize,
    ) -> Self {
        Self::Elements(Box::new(Elements::new(elements, most, encoding, room)))
    }

    /// A cutter for ESI tags.
    #[must_use]
    pub fn tags() -> Self {
        Self::Tags(Tags::default())
    }

    /// Cuts the next part of the page.
    pub fn cut(&mut self, part: &Bytes, cuts: &mut VecDeque<PagePart>) {
        match self {
            Self::Elements(elements) => elements.cut(part, cuts),
            Self::Tags(tags) => tags.cut(part, cuts),
        }
    }

    /// Ends the page.
    pub fn end(&mut self, cuts: &mut VecDeque<PagePart>) {
        match self {
            Self::Elements(elements) => elements.end(cuts),
            Self::Tags(tags) => tags.end(cuts),
        }
    }
}

/// A page without the contents of the elements that match `selectors`, and without content coding. `None`: it
/// cannot be read, or is larger than `max` bytes after decoding.
#[must_use]
pub fn emptied<'s>(
    page: &Entry,
    selectors: impl Iterator<Item = &'s Selector>,
    max: usize,
) -> Option<Entry> {
    let body = recoded::decode(&page.body, page.fields.coding?, max)?;
    let ascii = AsciiCompatibleEncoding::new(encoding(&page.fields.map())?)?;
    let (mut cutter, mut cuts) = (
        FragmentCutter::elements(selectors.map(CutElement::from), usize::MAX, ascii, max),
        VecDeque::new(),
    );
    cutter.cut(&body, &mut cuts);
    cutter.end(&mut cuts);
    let mut left = BytesMut::new();
    for cut in cuts {
        if let PagePart::Text(text) = cut {
            left.extend_from_slice(&text);
        }
    }
    Some(recoded::with_body(page, Coding::Identity, left.freeze()))
}

/// The charset of a response, if it lets tags be distinguished from text. A response without a charset is
/// read as UTF-8.
#[must_use]
pub fn encoding(headers: &::http::HeaderMap) -> Option<&'static Encoding> {
    let label = media::charset(headers).filter(|label| !label.is_empty());
    let encoding = label.map_or(Some(UTF_8), |label| Encoding::for_label(label.as_bytes()))?;
    AsciiCompatibleEncoding::new(encoding).map(|_| encoding)
}
