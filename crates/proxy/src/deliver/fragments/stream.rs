//! A page on its way to one client: cut, and assembled with the visitor's contents.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use anteroom_cache::rules::fragments::esi::Include;
use anteroom_cache::rules::fragments::{FragmentCutter, PagePart};
use bytes::Bytes;
use http_body::Frame;

use super::content::{FragmentContent, PendingContent};
use super::gzip_writer::GzipWriter;
use crate::deliver::body::{Body, BodyError, FilledPage};

/// How much of a page is cut at a time, in bytes.
const STRIDE: usize = 32 * 1_024;
/// How much of a page is read ahead while a fragment is pending, in bytes.
const AHEAD: usize = 256 * 1_024;
/// The approximate limit on pieces that are queued ahead, because a page may consist of tags only.
const LINE_MAX: usize = 1_024;

/// The contents of fragments that are found by selector, by index.
#[derive(Default)]
pub(super) struct Contents(pub(super) Vec<ContentAt>);

impl Contents {
    /// Whether elements name contents of their own.
    fn are_named(&self) -> bool {
        self.0.iter().any(|at| at.slot.is_of_element())
    }
}

pub(super) struct ContentAt {
    pub(super) slot: ContentState,
    pub(super) fallback: Option<Bytes>,
}

/// The state of a content.
pub(super) enum ContentState {
    Coming(PendingContent),
    Come(Rc<FragmentContent>),
    /// The request for it failed.
    Failed,
    /// There is none for this visitor.
    None,
    /// Each element has a content of its own, which it names.
    OfElement,
}

impl ContentState {
    pub(super) fn of(coming: Option<PendingContent>) -> Self {
        coming.map_or(Self::Failed, Self::Coming)
    }

    fn is_of_element(&self) -> bool {
        matches!(self, Self::OfElement)
    }

    /// Waits until the content is complete or has failed.
    fn settle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::Coming(coming) = self {
            let content = ready!(coming.poll(cx));
            *self = content.map_or(Self::Failed, |content| Self::Come(Rc::new(content)));
        }
        Poll::Ready(())
    }
}

/// A queued piece of the page.
enum Piece {
    Text(Bytes),
    Element {
        place: usize,
        own: Bytes,
        /// Its own content, if it does not share that of its place.
        content: Option<ContentState>,
    },
    Include(ContentState),
}

/// Requests the contents that a page itself names.
pub(super) trait NamedContents {
    /// Starts to request what an include names. `None`: the limit is reached.
    fn include(&self, include: Include) -> Option<PendingContent>;

    /// Starts to read the row that an element names, whose selector has this index.
    fn row(&self, place: usize, id: Option<&str>) -> ContentState;
}

/// A page that is filled while it is sent.
pub(super) struct Filling {
    page: Body,
    /// Data of the page that has arrived and is not cut yet.
    rest: Bytes,
    is_read: bool,
    cutter: FragmentCutter,
    cuts: VecDeque<PagePart>,
    pieces: VecDeque<Piece>,
    /// Bytes of the page in the queue.
    in_line: usize,
    places: Contents,
    named: Box<dyn NamedContents>,
    zip: Option<GzipWriter>,
    is_over: bool,
}

impl Filling {
    pub(super) fn new(
        page: Body,
        cutter: FragmentCutter,
        places: Contents,
        named: Box<dyn NamedContents>,
        zip: Option<GzipWriter>,
    ) -> Self {
        Self {
            page,
            rest: Bytes::new(),
            is_read: false,
            cutter,
            cuts: VecDeque::new(),
            pieces: VecDeque::new(),
            in_line: 0,
            places,
            named,
            zip,
            is_over: false,
        }
    }

    /// Reads the page while there is nothing to send, or while a fragment is pending. What the page itself
    /// names is searched for ahead, so that it is requested concurrently.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        let reads_ahead = matches!(self.cutter, FragmentCutter::Tags(_)) || self.places.are_named();
        while !self.is_read
            && self.in_line < AHEAD
            && self.pieces.len() < LINE_MAX
            && (reads_ahead || !matches!(self.pieces.front(), Some(Piece::Text(_))))
        {
            if self.rest.is_empty() {
                match http_body::Body::poll_frame(Pin::new(&mut self.page), cx) {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(Some(frame)) => {
                        // Trailers describe the unfilled page and are dropped.
                        self.rest = frame?.into_data().unwrap_or_default();
                    }
                    Poll::Ready(None) => {
                        self.is_read = true;
                        self.cutter.end(&mut self.cuts);
                    }
                }
            }
            let part = self.rest.split_to(self.rest.len().min(STRIDE));
            if !part.is_empty() {
                self.cutter.cut(&part, &mut self.cuts);
            }
            while let Some(cut) = self.cuts.pop_front() {
                let piece = self.piece(cut);
                self.pieces.extend(piece);
            }
        }
        Ok(())
    }

    /// Starts to request what a part of the page names. `None`: nothing is sent for it.
    fn piece(&mut self, cut: PagePart) -> Option<Piece> {
        match cut {
            PagePart::Text(text) => {
                self.in_line += text.len();
                Some(Piece::Text(text))
            }
            PagePart::Element { place, attribute, own } => {
                self.in_line += own.len();
                let is_named = self.places.0.get(place).is_some_and(|at| at.slot.is_of_element());
                let content = is_named.then(|| self.named.row(place, attribute.as_deref()));
                Some(Piece::Element { place, own, content })
            }
            PagePart::Include(include) => {
                let coming = self.named.include(include)?;
                Some(Piece::Include(ContentState::Coming(coming)))
            }
        }
    }

    /// The output for the next piece; empty if the compressor keeps it.
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, BodyError>> {
        match self.pieces.front_mut() {
            Some(Piece::Text(_)) => {}
            Some(Piece::Element { content: Some(slot), .. }) => ready!(slot.settle(cx)),
            Some(Piece::Element { place, content: None, .. }) => {
                if let Some(place) = self.places.0.get_mut(*place) {
                    ready!(place.slot.settle(cx));
                }
            }
            Some(Piece::Include(slot)) => ready!(slot.settle(cx)),
            None if self.is_read => {
                self.is_over = true;
                return Poll::Ready(self.coded(|zip, out| zip.end(out)));
            }
            None => return Poll::Pending,
        }
        Poll::Ready(match self.pieces.pop_front() {
            Some(Piece::Text(text)) => self.text(text),
            Some(Piece::Element { place, own, content }) => {
                self.element(place, own, content.as_ref())
            }
            Some(Piece::Include(ContentState::Come(content))) => self.insert_content(&content),
            Some(Piece::Include(_)) | None => Ok(Bytes::new()),
        })
    }

    fn element(
        &mut self,
        place: usize,
        own: Bytes,
        content: Option<&ContentState>,
    ) -> Result<Bytes, BodyError> {
        let Some(place) = self.places.0.get(place) else { return self.text(own) };
        match (content.unwrap_or(&place.slot), &place.fallback) {
            (ContentState::Come(content), _) => {
                self.in_line -= own.len();
                let content = Rc::clone(content);
                self.insert_content(&content)
            }
            (ContentState::Failed, Some(fallback)) => {
                self.in_line -= own.len();
                let fallback = fallback.clone();
                self.insert(&fallback)
            }
            (
                ContentState::Failed
                | ContentState::None
                | ContentState::Coming(_)
                | ContentState::OfElement,
                _,
            ) => self.text(own),
        }
    }

    /// Sends text of the page.
    fn text(&mut self, text: Bytes) -> Result<Bytes, BodyError> {
        self.in_line -= text.len();
        if self.zip.is_none() {
            return Ok(text);
        }
        self.coded(|zip, out| zip.text(&text, out))
    }

    /// Sends a content. What is the same for every visitor is compressed with the page.
    fn insert_content(&mut self, content: &FragmentContent) -> Result<Bytes, BodyError> {
        match content.is_public {
            true if self.zip.is_some() => self.coded(|zip, out| zip.text(&content.bytes, out)),
            _ => self.insert(&content.bytes),
        }
    }

    /// Sends a text of the visitor's own, uncompressed.
    fn insert(&mut self, content: &Bytes) -> Result<Bytes, BodyError> {
        if self.zip.is_none() {
            return Ok(content.clone());
        }
        self.coded(|zip, out| zip.insert_content(content, out))
    }

    fn coded(
        &mut self,
        work: impl FnOnce(&mut GzipWriter, &mut Vec<u8>) -> std::io::Result<()>,
    ) -> Result<Bytes, BodyError> {
        let Some(zip) = &mut self.zip else { return Ok(Bytes::new()) };
        let mut out = Vec::new();
        work(zip, &mut out).map_err(BodyError::Recompressor)?;
        Ok(out.into())
    }
}

impl FilledPage for Filling {
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        while !self.is_over {
            self.read(cx)?;
            let part = match self.next(cx) {
                Poll::Ready(part) => part?,
                Poll::Pending => {
                    // Data from before the pause is sent now.
                    let part = self.coded(|zip, out| zip.flush(out))?;
                    if part.is_empty() {
                        return Poll::Pending;
                    }
                    part
                }
            };
            if !part.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(part))));
            }
        }
        Poll::Ready(None)
    }
}

impl std::fmt::Debug for Filling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filling").field("page", &self.page).finish_non_exhaustive()
    }
}
