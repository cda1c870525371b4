//! Fragments by selector: cuts out the contents of elements, which lol_html finds.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use lol_html::html_content::Element;
use lol_html::{
    AsciiCompatibleEncoding, ElementContentHandlers, HtmlRewriter, MemorySettings, Settings,
    streaming,
};

use super::{CutElement, PagePart};
use crate::rules::character_references::of_html;

/// The largest content of an element that is cut out, in bytes: it is held until the element ends. A larger
/// one stays in the page.
const OWN_MAX: usize = 256 * 1_024;
/// The longest attribute that is told, in bytes as it stands in the page.
const ATTRIBUTE_MAX: usize = 1_024;
/// Elements in whose content a browser decodes no character references (WHATWG HTML §13.2.5).
const RAW: [&str; 8] =
    ["script", "style", "xmp", "iframe", "noembed", "noframes", "noscript", "plaintext"];

/// Where the reader writes what it has read.
type Sink = Box<dyn FnMut(&[u8])>;

/// Cuts a page at elements.
pub struct Elements {
    /// `None`: the page has ended.
    reader: Option<HtmlRewriter<'static, Sink>>,
    bench: Arc<Mutex<CutState>>,
}

/// The state of cutting. The reader's callbacks follow the order of the page: text, the start of an element,
/// its content, its end. The lock is never contended; the library requires callbacks that can move between
/// threads.
#[derive(Debug, Default)]
struct CutState {
    text: BytesMut,
    /// The open element, if it is cut. Elements within it are part of its content.
    open: Option<OpenElement>,
    /// The number of elements that have begun.
    begun: usize,
    /// How many more elements may be cut out.
    left: usize,
    cuts: Vec<PagePart>,
}

#[derive(Debug)]
struct OpenElement {
    number: usize,
    /// The index of its selector.
    place: usize,
    attribute: Option<String>,
    /// Its content so far.
    own: BytesMut,
}

impl CutState {
    fn read(&mut self, bytes: &[u8]) {
        match &mut self.open {
            Some(open) => open.own.extend_from_slice(bytes),
            None => self.text.extend_from_slice(bytes),
        }
        if self.open.as_ref().is_some_and(|open| open.own.len() > OWN_MAX) {
            self.give_up();
        }
    }

    fn begin(&mut self, number: usize, place: usize, attribute: Option<String>) {
        if self.open.is_none() && self.left > 0 {
            self.left -= 1;
            self.open = Some(OpenElement { number, place, attribute, own: BytesMut::new() });
        }
    }

    fn end(&mut self, number: usize) {
        if let Some(open) = self.open.take_if(|open| open.number == number) {
            self.keep_text();
            let OpenElement { place, attribute, own, .. } = open;
            self.cuts.push(PagePart::Element { place, attribute, own: own.freeze() });
        }
    }

    /// Stops cutting the open element: it has no end, or is too large.
    fn give_up(&mut self) {
        if let Some(open) = self.open.take() {
            self.text.unsplit(open.own);
        }
    }

    fn keep_text(&mut self) {
        if !self.text.is_empty() {
            let text = self.text.split().freeze();
            self.cuts.push(PagePart::Text(text));
        }
    }
}

impl Elements {
    /// See [`super::FragmentCutter::elements`].
    pub(super) fn new<'s>(
        elements: impl Iterator<Item = CutElement<'s>>,
        most: usize,
        encoding: AsciiCompatibleEncoding,
        room: usize,
    ) -> Self {
        let bench = Arc::new(Mutex::new(CutState { left: most, ..CutState::default() }));
        // If several selectors match an element, the first in the list begins it, because each handler puts
        // its start before those of the others.
        let mut handlers: Vec<_> = elements
            .enumerate()
            .map(|(place, cut)| {
                let watch = ElementWatch {
                    place,
                    attribute: cut.attribute.map(str::to_owned),
                    is_text: cut.is_text,
                    bench: Arc::clone(&bench),
                };
                let handler = ElementContentHandlers::default()
                    .element(move |element: &mut Element<'_, '_>| watch.see(element));
                (std::borrow::Cow::Owned(cut.selector.parsed().clone()), handler)
            })
            .collect();
        handlers.reverse();
        let settings = handlers
            .into_iter()
            .fold(Settings::new(), Settings::append_element_content_handler)
            .with_encoding(encoding)
            .with_strict(false)
            .with_memory_settings(
                MemorySettings::new()
                    .with_max_allowed_memory_usage(room)
                    // A page that cannot be parsed goes out unchanged.
                    .with_graceful_bail_out_on_memory_limit_exceeded(true),
            );
        let into = Arc::clone(&bench);
        let sink: Sink = Box::new(move |bytes| lock(&into).read(bytes));
        Self { reader: Some(HtmlRewriter::new(settings, sink)), bench }
    }

    pub(super) fn cut(&mut self, part: &[u8], cuts: &mut VecDeque<PagePart>) {
        match &mut self.reader {
            Some(reader) => {
                if let Err(error) = reader.write(part) {
                    tracing::debug!(%error, "a page is too hard to read: the rest of it is not filled");
                    self.reader = None;
                    lock(&self.bench).give_up();
                }
            }
            None => lock(&self.bench).read(part),
        }
        self.deliver(cuts);
    }

    pub(super) fn end(&mut self, cuts: &mut VecDeque<PagePart>) {
        if let Some(reader) = self.reader.take()
            && let Err(error) = reader.end()
        {
            tracing::debug!(%error, "a page's end is too hard to read");
        }
        lock(&self.bench).give_up();
        self.deliver(cuts);
    }

    fn deliver(&mut self, cuts: &mut VecDeque<PagePart>) {
        let mut bench = lock(&self.bench);
        // The text before an open element goes out while its end is awaited.
        bench.keep_text();
        cuts.extend(bench.cuts.drain(..));
    }
}

impl std::fmt::Debug for Elements {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elements").field("bench", &self.bench).finish_non_exhaustive()
    }
}

fn lock(bench: &Mutex<CutState>) -> MutexGuard<'_, CutState> {
    bench.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sees the elements of one selector.
struct ElementWatch {
    place: usize,
    attribute: Option<String>,
    is_text: bool,
    bench: Arc<Mutex<CutState>>,
}

impl ElementWatch {
    /// Tells the bench when an element's content begins and ends in the output.
    fn see(&self, element: &mut Element<'_, '_>) -> lol_html::HandlerResult {
        if !element.can_have_content()
            || (self.is_text && RAW.contains(&element.tag_name().as_str()))
        {
            return Ok(());
        }
        let number = {
            let mut bench = lock(&self.bench);
            bench.begun += 1;
            bench.begun
        };
        let (at_start, at_end) = (Arc::clone(&self.bench), Arc::clone(&self.bench));
        let (place, attribute) = (self.place, self.value(element));
        element.streaming_prepend(streaming!(move |_| {
            lock(&at_start).begin(number, place, attribute);
            Ok(())
        }));
        element.streaming_append(streaming!(move |_| {
            lock(&at_end).end(number);
            Ok(())
        }));
        Ok(())
    }

    /// The value of the element's attribute, with its character references decoded.
    fn value(&self, element: &Element<'_, '_>) -> Option<String> {
        let raw = element.get_attribute(self.attribute.as_deref()?)?;
        (raw.len() <= ATTRIBUTE_MAX).then(|| of_html(&raw).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use encoding_rs::UTF_8;
    use proptest::prelude::*;

    use anteroom_http::selector::Selector;
    use bytes::Bytes;

    use super::*;
    use crate::rules::fragments::FragmentCutter;

    fn cutter(selectors: &[&str]) -> FragmentCutter {
        let selectors: Vec<_> =
            selectors.iter().map(|text| Selector::parse(text).unwrap()).collect();
        let utf8 = AsciiCompatibleEncoding::new(UTF_8).unwrap();
        let elements = selectors.iter().map(|selector| CutElement {
            attribute: Some("data-row"),
            ..CutElement::from(selector)
        });
        FragmentCutter::elements(elements, 32, utf8, 64 * 1_024)
    }

    /// The page with each fragment as `[place:own]`, read in pieces of `size` bytes.
    fn cut_in(page: &[u8], selectors: &[&str], size: usize) -> String {
        let (mut cutter, mut cuts) = (cutter(selectors), VecDeque::new());
        for piece in page.chunks(size.max(1)) {
            cutter.cut(&Bytes::copy_from_slice(piece), &mut cuts);
        }
        cutter.end(&mut cuts);
        cuts.into_iter()
            .map(|cut| match cut {
                PagePart::Text(text) => String::from_utf8_lossy(&text).into_owned(),
                PagePart::Element { place, attribute, own } => {
                    let attribute = attribute.map(|value| format!("{value}=")).unwrap_or_default();
                    format!("[{place}:{attribute}{}]", String::from_utf8_lossy(&own))
                }
                PagePart::Include(include) => panic!("{include:?}"),
            })
            .collect()
    }

    #[test]
    fn the_insides_of_elements_are_cut_out() {
        for (page, selectors, expected) in [
            ("<p id=a>x<b>y</b></p>z", &["#a"][..], "<p id=a>[0:x<b>y</b>]</p>z"),
            ("<p id=a></p><p id=b>y</p>", &["#b", "#a"], "<p id=a>[1:]</p><p id=b>[0:y]</p>"),
            (
                "<i class=a>1</i><i class=a>2</i>",
                &[".a"],
                "<i class=a>[0:1]</i><i class=a>[0:2]</i>",
            ),
            // Fragments do not nest.
            (
                "<p id=a>x<b>y</b></p><b>z</b>",
                &["#a", "b"],
                "<p id=a>[0:x<b>y</b>]</p><b>[1:z]</b>",
            ),
            ("<p id=a class=b>x</p>", &["#a", ".b"], "<p id=a class=b>[0:x]</p>"),
            ("<p id=a class=b>x</p>", &[".b", "#a"], "<p id=a class=b>[0:x]</p>"),
            // Lookalikes in text, comments and attributes are ignored.
            ("<!--<p id=a>--></p>", &["#a"], "<!--<p id=a>--></p>"),
            ("<script>'<p id=a>x</p>'</script>", &["#a"], "<script>'<p id=a>x</p>'</script>"),
            ("<p title='<b id=a>x</b>'>y</p>", &["#a"], "<p title='<b id=a>x</b>'>y</p>"),
            // An element without an end is not cut.
            ("<p id=a>x", &["#a"], "<p id=a>x"),
            ("<br id=a>x", &["#a"], "<br id=a>x"),
            ("<P ID=a>x</P>", &["#a"], "<P ID=a>[0:x]</P>"),
        ] {
            for size in [1, 3, 1_000] {
                assert_eq!(cut_in(page.as_bytes(), selectors, size), expected, "by {size}");
            }
        }
    }

    #[test]
    fn an_element_tells_its_attribute() {
        let long = "7".repeat(ATTRIBUTE_MAX + 1);
        for (attributes, expected) in [
            ("data-row=7", "7="),
            ("DATA-ROW='7'", "7="),
            ("data-row=\"a&amp;b&#45;c &quot;\"", "a&b-c \"="),
            ("data-row=\"../x:7\"", "../x:7="),
            ("data-row", "="),
            ("data-row=7 data-row=8", "7="),
            ("data-rows=7", ""),
            (&format!("data-row={long}"), ""),
        ] {
            for size in [1, 10_000] {
                let page = format!("<i {attributes}>x</i>");
                let cut = cut_in(page.as_bytes(), &["i"], size);
                assert_eq!(cut, format!("<i {attributes}>[0:{expected}x]</i>"), "by {size}");
            }
        }
    }

    #[test]
    fn text_is_put_in_only_where_it_is_read_as_text() {
        let selector = Selector::parse(".a").unwrap();
        let utf8 = AsciiCompatibleEncoding::new(UTF_8).unwrap();
        for (page, count) in [
            ("<script class=a>x</script><STYLE class=a>x</STYLE><iframe class=a></iframe>", 0),
            ("<p class=a>x</p><textarea class=a></textarea><title class=a></title>", 3),
        ] {
            let element = CutElement { is_text: true, ..CutElement::from(&selector) };
            let mut cutter = FragmentCutter::elements([element].into_iter(), 9, utf8, 64 * 1_024);
            let mut cuts = VecDeque::new();
            cutter.cut(&Bytes::from_static(page.as_bytes()), &mut cuts);
            cutter.end(&mut cuts);
            let elements = cuts.iter().filter(|cut| matches!(cut, PagePart::Element { .. }));
            assert_eq!(elements.count(), count, "{page}");
        }
    }

    #[test]
    fn so_many_and_so_large_holes_are_cut_and_no_more() {
        let many = "<i>x</i>".repeat(40);
        assert_eq!(cut_in(many.as_bytes(), &["i"], 100).matches("[0:x]").count(), 32);
        let large = format!("<i>{}</i><b>x</b>", "y".repeat(OWN_MAX + 1));
        let cut = cut_in(large.as_bytes(), &["i", "b"], 10_000);
        assert!(cut == large.replace("<b>x", "<b>[1:x]"), "{}", cut.len());
        let hard = format!("<i>x</i><i title='{}'></i><i>y</i>", "z".repeat(100_000));
        let cut = cut_in(hard.as_bytes(), &["i"], 10_000);
        assert!(cut == hard.replace("<i>x", "<i>[0:x]"), "{}", cut.len());
    }

    #[test]
    fn text_before_an_open_element_is_sent() {
        let (mut cutter, mut cuts) = (cutter(&["#a"]), VecDeque::new());
        cutter.cut(&Bytes::from_static(b"before<p id=a>in"), &mut cuts);
        assert_eq!(cuts, [PagePart::Text(Bytes::from_static(b"before<p id=a>"))]);
    }

    proptest! {
        #[test]
        fn nothing_of_a_page_is_lost(page in "[a<>/ p='\"!-]{0,60}(<p id=a>|</p>|<b>|é|\u{0}){0,8}[a<>/p]{0,20}", size in 1_usize..9) {
            let (mut cutter, mut cuts) = (cutter(&["#a", "b"]), VecDeque::new());
            for piece in page.as_bytes().chunks(size) {
                cutter.cut(&Bytes::copy_from_slice(piece), &mut cuts);
            }
            cutter.end(&mut cuts);
            let whole: Vec<u8> = cuts.into_iter().flat_map(|cut| match cut {
                PagePart::Text(text) => text,
                PagePart::Element { own, .. } => own,
                PagePart::Include(include) => panic!("{include:?}"),
            }).collect();
            prop_assert_eq!(String::from_utf8_lossy(&whole), page);
        }
    }
}
