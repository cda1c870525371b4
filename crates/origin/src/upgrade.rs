//! Requests for another protocol. Each is sent to the origin on a connection of its own, which is handed over
//! once the origin has agreed (RFC 9110 §7.8).

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use ::http::{HeaderMap, Method, Request, Response, StatusCode, Version, header};
use anteroom_http::hop::{self, TransferEncoding};
use anteroom_http::upgrade::UpgradeProtocol;
use anteroom_telemetry::metrics::Count;
use bytes::{Buf, Bytes};
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connect::{OriginSocket, PendingUpgrade};
use super::pool::ServerConnections;
use super::sender::{HyperSender, Sender};
use super::servers::ServerSlot;
use super::{ConnectionReuse, OriginError, OriginResponse, UploadBody};

/// The result of a request for another protocol.
#[derive(Debug)]
pub enum UpgradeAnswer {
    /// The origin uses that protocol from here on.
    Switched(UpgradedConnection),
    /// The origin answered in HTTP.
    Http(OriginResponse),
}

/// An origin connection that no longer speaks HTTP. Bytes that came with the response are read first.
#[derive(Debug)]
pub struct UpgradedConnection {
    /// The fields of the 101 as they came.
    pub fields: HeaderMap,
    early: Bytes,
    socket: OriginSocket,
    /// The server counts as busy with the tunnel until it ends.
    server_slot: Option<ServerSlot>,
}

impl UpgradedConnection {
    /// Holds the place at the server until the tunnel has ended.
    pub(super) fn hold(&mut self, place: ServerSlot) {
        self.server_slot = Some(place);
    }
}

impl ServerConnections {
    /// Sends a request for `protocol` that has no body, on a connection of its own. It is never sent twice.
    ///
    /// # Errors
    /// See [`OriginError`]; a 101 that does not agree on that protocol is malformed.
    pub async fn upgrade(
        self: &Rc<Self>,
        request: Request<UploadBody>,
        protocol: &UpgradeProtocol,
    ) -> Result<UpgradeAnswer, OriginError> {
        self.thread_metrics.count(Count::OriginRequests);
        self.tell_span(request.extensions());
        let result = self.request_upgrade(request, protocol).await;
        if result.is_err() {
            self.thread_metrics.count(Count::OriginErrors);
        }
        result
    }

    async fn request_upgrade(
        self: &Rc<Self>,
        request: Request<UploadBody>,
        protocol: &UpgradeProtocol,
    ) -> Result<UpgradeAnswer, OriginError> {
        let (mut sender, switching) = self.connect_to_switch().await?;
        let is_head = request.method() == Method::HEAD;
        let asked = request.headers().clone();
        sender.allowance.heads();
        let sending = sender.requests.try_send_request(request);
        let limit = self.settings.first_byte_timeout;
        let response = tokio::time::timeout(limit, sending)
            .await
            .map_err(|_| OriginError::FirstByteTimedOut)?
            .map_err(|failed| match failed.into_error() {
                error if error.is_parse_too_large() => self.large_head(),
                error => OriginError::broken(error),
            })?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let sender = Sender::Hyper(HyperSender::Task(sender));
            let came = self.accept(response.map(Some), sender, is_head, &ConnectionReuse::Alone)?;
            return Ok(UpgradeAnswer::Http(came));
        }
        check(&response, &asked, protocol)?;
        sender.allowance.body();
        let (socket, read) = hand_over(switching).await?;
        // A copy, because what hyper has read keeps a buffer of its own alive.
        let early = Bytes::copy_from_slice(&read);
        let fields = response.into_parts().0.headers;
        Ok(UpgradeAnswer::Switched(UpgradedConnection { fields, early, socket, server_slot: None }))
    }
}

/// Whether a 101 has all required fields, and none that is ambiguous.
fn check(
    response: &Response<Incoming>,
    asked: &HeaderMap,
    protocol: &UpgradeProtocol,
) -> Result<(), OriginError> {
    let fields = response.headers();
    // RFC 9110 §8.6, RFC 9112 §6.1: it has no body. Some servers send a length of zero.
    let has_length = fields.contains_key(header::CONTENT_LENGTH)
        && !matches!(hop::content_length(fields), Ok(Some(0)));
    if has_length || hop::transfer_encoding(fields) != Ok(TransferEncoding::None) {
        return Err(OriginError::Malformed("it switches protocols with a body"));
    }
    if response.version() != Version::HTTP_11 || !protocol.is_agreed(asked, fields) {
        return Err(OriginError::Malformed("it does not switch to what was asked for"));
    }
    Ok(())
}

/// hyper releases the connection in the same poll in which it hands the head over.
async fn hand_over(switching: PendingUpgrade) -> Result<(OriginSocket, Bytes), OriginError> {
    switching.await.map_err(|_| OriginError::Malformed("it broke off while it switched protocols"))
}

impl AsyncRead for UpgradedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.early.has_remaining() {
            let length = self.early.len().min(buf.remaining());
            buf.put_slice(&self.early.split_to(length));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for UpgradedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
