//! The body of a response to a client, from any source. The end of the body is the end of the request.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::http::header::SET_COOKIE;
use ::http::{HeaderMap, HeaderName};
use anteroom_cache::flight::{BodyCutOff, FlightReader};
use anteroom_http::set_cookie::CLEAR_SITE_DATA;
use anteroom_http::{forwarded, hop};
use anteroom_origin::{OriginBody, OriginError};
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::record::RequestRecord;

/// The body of a response. PERF: small, because each response moves with it through several layers.
#[derive(Debug)]
pub struct Body {
    from: BodySource,
    record: Option<Box<RequestRecord>>,
}

#[derive(Debug)]
enum BodySource {
    Nothing,
    Bytes(Bytes),
    Parts(VecDeque<Bytes>),
    /// With the fields that are cut from its trailers.
    Origin(OriginBody, Option<Arc<[HeaderName]>>),
    Flight {
        reader: Box<FlightReader>,
        left: Option<u64>,
    },
    Begun(Box<StartedBody>),
    Filled(Box<dyn FilledPage>),
}

/// A page whose fragments are filled while it is sent.
pub(crate) trait FilledPage: std::fmt::Debug {
    /// The next part to send to the client.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>>;
}

/// A body whose first frame was read ahead.
#[derive(Debug)]
struct StartedBody {
    /// The first frame; `None`: the body has ended.
    first: Option<Frame<Bytes>>,
    rest: BodySource,
}

impl BodySource {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(match self {
            Self::Nothing => None,
            Self::Bytes(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Nothing;
                Some(Ok(Frame::data(bytes)))
            }
            Self::Parts(parts) => parts.pop_front().map(|part| Ok(Frame::data(part))),
            Self::Origin(body, cut) => ready!(http_body::Body::poll_frame(Pin::new(body), cx))
                .map(|frame| Ok(without(frame?, cut.as_deref()))),
            Self::Flight { reader, left } => match ready!(Pin::new(&mut **reader).poll_part(cx)) {
                Some(Ok(part)) => {
                    if let Some(left) = left {
                        *left = left.saturating_sub(part.len() as u64);
                    }
                    Some(Ok(Frame::data(part)))
                }
                Some(Err(cut)) => Some(Err(cut.into())),
                None => None,
            },
            Self::Begun(begun) => {
                let first = begun.first.take();
                let rest = std::mem::replace(&mut begun.rest, Self::Nothing);
                *self = if first.is_some() { rest } else { Self::Nothing };
                first.map(Ok)
            }
            Self::Filled(page) => ready!(page.poll_part(cx)),
        })
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Nothing => SizeHint::with_exact(0),
            Self::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Parts(parts) => {
                SizeHint::with_exact(parts.iter().map(|part| part.len() as u64).sum())
            }
            Self::Origin(body, _) => http_body::Body::size_hint(body),
            Self::Flight { left: Some(left), .. } => SizeHint::with_exact(*left),
            Self::Flight { left: None, .. } | Self::Filled(_) => SizeHint::default(),
            Self::Begun(begun) => {
                let first = begun.first.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len);
                let rest = begun.rest.size_hint().exact();
                rest.map_or_else(SizeHint::default, |rest| {
                    SizeHint::with_exact(rest + first as u64)
                })
            }
        }
    }
}

/// Why a body broke off. The client sees a broken connection.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The origin failed.
    #[error(transparent)]
    Origin(#[from] OriginError),
    /// The origin failed, in a fetch shared with other requests.
    #[error(transparent)]
    Flight(#[from] BodyCutOff),
    /// Compression failed while fragments were filled.
    #[error("compressing the page failed")]
    Recompressor(#[source] std::io::Error),
}

impl Body {
    fn new(from: BodySource) -> Self {
        Self { from, record: None }
    }

    /// An empty body.
    pub(crate) fn empty() -> Self {
        Self::new(BodySource::Nothing)
    }

    /// A body of these bytes.
    pub(crate) fn full(bytes: Bytes) -> Self {
        Self::new(if bytes.is_empty() { BodySource::Nothing } else { BodySource::Bytes(bytes) })
    }

    /// A body of these chunks, in order. None of them is empty.
    pub(crate) fn parts(parts: VecDeque<Bytes>) -> Self {
        Self::new(BodySource::Parts(parts))
    }

    /// Whether the body is the origin's response to one visitor's own request.
    pub(crate) fn is_ones_own(&self) -> bool {
        match &self.from {
            BodySource::Origin(..) => true,
            BodySource::Begun(begun) => matches!(begun.rest, BodySource::Origin(..)),
            BodySource::Nothing
            | BodySource::Bytes(_)
            | BodySource::Parts(_)
            | BodySource::Flight { .. }
            | BodySource::Filled(_) => false,
        }
    }

    /// The body of an origin's response. The fields of `cut` are removed from its trailers.
    pub(crate) fn origin(body: OriginBody, cut: &[HeaderName]) -> Self {
        Self::new(BodySource::Origin(body, (!cut.is_empty()).then(|| cut.into())))
    }

    /// The body of a page in flight. `length` is its length, if known.
    pub(crate) fn flight(reader: FlightReader, length: Option<u64>) -> Self {
        Self::new(BodySource::Flight { reader: Box::new(reader), left: length })
    }

    /// A page whose fragments are filled while it is sent.
    pub(crate) fn filled(page: impl FilledPage + 'static) -> Self {
        Self::new(BodySource::Filled(Box::new(page)))
    }

    /// Checks whether a body from the origin has broken off before its first byte. The client can still
    /// get an error response then. Otherwise hyper would drop the head together with the body, and the
    /// client would get no response. The check does not wait for data.
    ///
    /// # Errors When the body has broken off.
    pub(crate) async fn begin(&mut self) -> Result<(), BodyError> {
        let comes = matches!(self.from, BodySource::Origin(..) | BodySource::Flight { .. });
        if !comes || http_body::Body::is_end_stream(self) {
            return Ok(());
        }
        let looked = poll_fn(|cx| Poll::Ready(self.from.poll_frame(cx))).await;
        let Poll::Ready(first) = looked else { return Ok(()) };
        let first = first.transpose()?;
        let rest = std::mem::replace(&mut self.from, BodySource::Nothing);
        self.from = BodySource::Begun(Box::new(StartedBody { first, rest }));
        Ok(())
    }

    /// Removes the proxy's own body and returns its length if there was one and it is known. A body from
    /// the origin stays: it is the response to the same HEAD, and it is not ended early.
    pub(crate) fn leave_out(&mut self) -> Option<u64> {
        if matches!(self.from, BodySource::Nothing | BodySource::Origin(..) | BodySource::Begun(_))
        {
            return None;
        }
        let length = http_body::Body::size_hint(self).exact();
        self.from = BodySource::Nothing;
        length
    }

    /// Ties the request's record to the end of the body.
    pub(crate) fn tie(&mut self, mut record: Box<RequestRecord>) {
        if http_body::Body::is_end_stream(self) {
            record.whole();
        }
        self.record = Some(record);
    }

    fn sent(&mut self, bytes: usize) {
        let ended = http_body::Body::is_end_stream(self);
        let Some(record) = &mut self.record else { return };
        record.sent(bytes as u64);
        if ended {
            record.whole();
        }
    }

    /// Subtracts bytes that were handed over and will not be sent.
    pub fn take_back(&mut self, bytes: usize) {
        if let Some(record) = &mut self.record {
            record.take_back(bytes as u64);
        }
    }

    fn ended(&mut self) {
        if let Some(record) = &mut self.record {
            record.whole();
        }
    }
}

/// The frame without the fields of `cut`, if it is trailers.
fn without(mut frame: Frame<Bytes>, cut: Option<&[HeaderName]>) -> Frame<Bytes> {
    if let (Some(cut), Some(trailers)) = (cut, frame.trailers_mut()) {
        for name in cut {
            trailers.remove(name);
        }
    }
    frame
}

/// Removes the fields that trailers must not carry: those that are removed from heads, and those that
/// change the browser's state (RFC 9110 §6.5.1).
fn clean(trailers: &mut HeaderMap) {
    hop::strip_hop_by_hop(trailers);
    trailers.remove(SET_COOKIE);
    trailers.remove(&CLEAR_SITE_DATA);
    let own: Vec<_> = trailers
        .keys()
        .filter(|name| forwarded::is_set_by_the_proxy(name.as_str()))
        .cloned()
        .collect();
    for name in own {
        trailers.remove(name);
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        match ready!(this.from.poll_frame(cx)) {
            Some(Ok(frame)) => {
                let frame = match frame.into_trailers() {
                    Ok(mut trailers) => {
                        clean(&mut trailers);
                        Frame::trailers(trailers)
                    }
                    Err(frame) => frame,
                };
                this.sent(frame.data_ref().map_or(0, Bytes::len));
                Poll::Ready(Some(Ok(frame)))
            }
            None => {
                this.ended();
                Poll::Ready(None)
            }
            broken @ Some(Err(_)) => {
                if let Some(record) = &mut this.record {
                    record.broke_off();
                }
                Poll::Ready(broken)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.from {
            BodySource::Nothing => true,
            BodySource::Bytes(_) | BodySource::Filled(_) => false,
            // An empty chunked body: the server sends its length, 0, and never asks for a frame.
            BodySource::Begun(begun) => begun.first.is_none(),
            BodySource::Parts(parts) => parts.is_empty(),
            BodySource::Origin(body, _) => http_body::Body::is_end_stream(body),
            BodySource::Flight { left, .. } => *left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.from.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server sends `Content-Length: 0`, and asks for no frame. So the body has to say that it has ended,
    /// or the log says that it broke off.
    #[test]
    fn a_body_that_was_found_empty_when_it_began_has_ended() {
        let begun = StartedBody { first: None, rest: BodySource::Nothing };
        let body = Body::new(BodySource::Begun(Box::new(begun)));
        assert!(http_body::Body::is_end_stream(&body));
    }
}
