//! A page on its way to one client: cut, and assembled with the visitor's contents.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;

use super::content::{Coming, Content};
use super::zip::Zip;
use crate::cache::rules::fragments::esi::Include;
use crate::cache::rules::fragments::{Cut, Knife};
use crate::proxy::deliver::body::{Body, BodyError, Filled};

/// How much of a page is cut at a time, in bytes.
const STRIDE: usize = 32 * 1_024;
/// How much of a page is read ahead while a fragment is pending, in bytes.
const AHEAD: usize = 256 * 1_024;
/// The approximate limit on pieces that are queued ahead, because a page may consist of tags only.
const LINE_MAX: usize = 1_024;

/// The contents of fragments that are found by selector, by index.
#[derive(Default)]
pub(super) struct Places(pub(super) Vec<Place>);

pub(super) struct Place {
    pub(super) slot: Slot,
    pub(super) fallback: Option<Bytes>,
}

/// The state of a content.
pub(super) enum Slot {
    Coming(Coming),
    Come(Rc<Content>),
    /// The request for it failed.
    Failed,
    /// There is none for this visitor.
    None,
}

impl Slot {
    pub(super) fn of(coming: Option<Coming>) -> Self {
        coming.map_or(Self::Failed, Self::Coming)
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
    Element { place: usize, own: Bytes },
    Include(Slot),
}

/// Fills the includes of a page.
pub(super) trait Includes {
    /// Starts to request what an include names. `None`: the limit is reached.
    fn include(&self, include: Include) -> Option<Coming>;
}

/// A page that is filled while it is sent.
pub(super) struct Filling {
    page: Body,
    /// Data of the page that has arrived and is not cut yet.
    rest: Bytes,
    is_read: bool,
    knife: Knife,
    cuts: VecDeque<Cut>,
    line: VecDeque<Piece>,
    /// Bytes of the page in the queue.
    in_line: usize,
    places: Places,
    includes: Box<dyn Includes>,
    zip: Option<Zip>,
    is_over: bool,
}

impl Filling {
    pub(super) fn new(
        page: Body,
        knife: Knife,
        places: Places,
        includes: Box<dyn Includes>,
        zip: Option<Zip>,
    ) -> Self {
        Self {
            page,
            rest: Bytes::new(),
            is_read: false,
            knife,
            cuts: VecDeque::new(),
            line: VecDeque::new(),
            in_line: 0,
            places,
            includes,
            zip,
            is_over: false,
        }
    }

    /// Reads the page while there is nothing to send, or while a fragment is pending. Tags are searched
    /// for ahead, so that their contents are requested concurrently.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        let by_tags = matches!(self.knife, Knife::Tags(_));
        while !self.is_read
            && self.in_line < AHEAD
            && self.line.len() < LINE_MAX
            && (by_tags || !matches!(self.line.front(), Some(Piece::Text(_))))
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
                        self.knife.end(&mut self.cuts);
                    }
                }
            }
            let part = self.rest.split_to(self.rest.len().min(STRIDE));
            if !part.is_empty() {
                self.knife.cut(&part, &mut self.cuts);
            }
            while let Some(cut) = self.cuts.pop_front() {
                let piece = match cut {
                    Cut::Text(text) => {
                        self.in_line += text.len();
                        Piece::Text(text)
                    }
                    Cut::Element { place, own } => {
                        self.in_line += own.len();
                        Piece::Element { place, own }
                    }
                    Cut::Include(include) => match self.includes.include(include) {
                        Some(coming) => Piece::Include(Slot::Coming(coming)),
                        None => continue,
                    },
                };
                self.line.push_back(piece);
            }
        }
        Ok(())
    }

    /// The output for the next piece; empty if the compressor keeps it.
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, BodyError>> {
        match self.line.front_mut() {
            Some(Piece::Text(_)) => {}
            Some(Piece::Element { place, .. }) => {
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
        Poll::Ready(match self.line.pop_front() {
            Some(Piece::Text(text)) => self.text(text),
            Some(Piece::Element { place, own }) => self.element(place, own),
            Some(Piece::Include(Slot::Come(content))) => self.apart(&content.bytes),
            Some(Piece::Include(_)) | None => Ok(Bytes::new()),
        })
    }

    fn element(&mut self, place: usize, own: Bytes) -> Result<Bytes, BodyError> {
        let Some(place) = self.places.0.get(place) else { return self.text(own) };
        match (&place.slot, &place.fallback) {
            (Slot::Come(content), _) => {
                self.in_line -= own.len();
                let content = content.bytes.clone();
                self.apart(&content)
            }
            (Slot::Failed, Some(fallback)) => {
                self.in_line -= own.len();
                let fallback = fallback.clone();
                self.apart(&fallback)
            }
            (Slot::Failed | Slot::None | Slot::Coming(_), _) => self.text(own),
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

    /// Sends a content of the visitor's.
    fn apart(&mut self, content: &Bytes) -> Result<Bytes, BodyError> {
        if self.zip.is_none() {
            return Ok(content.clone());
        }
        self.coded(|zip, out| zip.apart(content, out))
    }

    fn coded(
        &mut self,
        work: impl FnOnce(&mut Zip, &mut Vec<u8>) -> std::io::Result<()>,
    ) -> Result<Bytes, BodyError> {
        let Some(zip) = &mut self.zip else { return Ok(Bytes::new()) };
        let mut out = Vec::new();
        work(zip, &mut out).map_err(BodyError::Recompressor)?;
        Ok(out.into())
    }
}

impl Filled for Filling {
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
