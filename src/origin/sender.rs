//! What carries a request: an HTTP/1.1 connection of its own, or a stream on a shared HTTP/2 connection.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use ::http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use ::http::uri::{Authority, Parts, PathAndQuery, Scheme};
use ::http::{HeaderMap, Request, Response, Uri};
use futures_util::future::Either;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};

use super::http2_pool::OriginStream;
use super::meter::Allowance;
use super::progress::Uploads;
use super::{OriginError, UploadBody};

/// An HTTP/1.1 connection that is free for a request.
#[derive(Debug)]
pub(super) struct Http1 {
    pub(super) requests: http1::SendRequest<UploadBody>,
    /// Whether it is idle in the pool. Whatever arrives on it then is unsolicited.
    pub(super) resting: Rc<Cell<bool>>,
    /// How much may be read from it.
    pub(super) allowance: Allowance,
    /// The uploads sent on it.
    pub(super) uploads: Rc<Uploads>,
}

impl Drop for Http1 {
    fn drop(&mut self) {
        self.uploads.answer_is_over();
    }
}

/// What carries a request.
#[derive(Debug)]
pub(super) enum Sender {
    Http1(Http1),
    Http2(OriginStream),
}

impl Sender {
    /// Sends a request and returns the future of its response's head.
    pub(super) fn send(
        &mut self,
        request: Request<UploadBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<UploadBody>>>> + use<>
    {
        match self {
            Self::Http1(one) => {
                one.allowance.heads();
                if let UploadBody::Upload(upload) = request.body() {
                    one.uploads.begin(upload.progress());
                }
                Either::Left(one.requests.try_send_request(request))
            }
            Self::Http2(stream) => Either::Right(stream.send(request)),
        }
    }

    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    /// The response has begun.
    pub(super) fn answered(&self) {
        if let Self::Http1(one) = self {
            one.allowance.body();
        }
    }

    /// The origin has ended its side, cleanly or not.
    pub(super) fn over(&self) {
        match self {
            Self::Http1(one) => one.uploads.answer_is_over(),
            Self::Http2(stream) => stream.over(),
        }
    }

    /// A request timed out or broke here: no further request follows on this connection.
    pub(super) fn doubt(&self) {
        if let Self::Http2(stream) = self {
            stream.doubt();
        }
    }
}

/// A request in the form of HTTP/2 (RFC 9113 §8.2.2, §8.3.1): the Host moves to `:authority`, and
/// connection-specific fields are removed. `TE: trailers` may stay, and so may cookies in one line.
///
/// # Errors
/// If the Host is not a valid authority.
pub(super) fn to_http2(
    request: &mut Request<UploadBody>,
    over_tls: bool,
) -> Result<(), OriginError> {
    let no_host = OriginError::Unsendable("its Host is no authority");
    let Some(host) = request.headers_mut().remove(HOST) else { return Err(no_host) };
    let Ok(authority) = Authority::try_from(host.as_bytes()) else { return Err(no_host) };
    strip(request.headers_mut());
    let mut parts = Parts::default();
    parts.scheme = Some(if over_tls { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = Some(authority);
    let path = request.uri().path_and_query().cloned();
    parts.path_and_query = Some(path.unwrap_or(PathAndQuery::from_static("/")));
    *request.uri_mut() = Uri::from_parts(parts)
        .map_err(|_| OriginError::Unsendable("its target is none for HTTP/2"))?;
    *request.version_mut() = ::http::Version::HTTP_2;
    Ok(())
}

fn strip(headers: &mut HeaderMap) {
    for name in [CONNECTION, TRANSFER_ENCODING] {
        headers.remove(name);
    }
}
