//! The handshake on a connection that was accepted, within the time that a request's head has.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use rustls::HandshakeKind;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::Tls;
use super::protocol::Protocol;
use crate::certificate;
use crate::clock::unix_now;
use crate::http::client_cert::ClientCertificate;
use crate::proxy::connection::client::Secured;

/// What every record of a handshake begins with (RFC 8446 §5.1).
const HANDSHAKE: u8 = 22;
/// The most that is read of a client that speaks no TLS, so that it reads our answer.
const PLAIN_MAX: u64 = 64 * 1024;

/// What a client that speaks http to a port of https is told.
const PLAIN_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 57\r\n\
    Cache-Control: no-store\r\n\
    Connection: close\r\n\r\n\
    400 Bad Request: http came to a port for https; use https";

/// A connection behind its handshake.
#[derive(Debug)]
pub(in crate::serve) struct Entered<S> {
    pub(in crate::serve) stream: TlsStream<Ahead<S>>,
    pub(in crate::serve) protocol: Protocol,
    pub(in crate::serve) secured: Secured,
    /// Cancelled when clients are asked for other certificates, where they are asked for any.
    pub(in crate::serve) outdated: Option<CancellationToken>,
}

/// Why there is none.
#[derive(Debug)]
pub(in crate::serve) enum Refusal {
    /// The client left before it said a word.
    DetachedTasks,
    /// It did not say enough in time.
    TimedOut,
    /// It spoke http, and was told so.
    Plain,
    /// It does not speak TLS as we do, has no certificate, or broke off.
    Failed(io::Error),
}

/// Carries out the handshake on `socket`, of which `ahead` was read already; all of it by `deadline`.
pub(in crate::serve) async fn enter<S: AsyncRead + AsyncWrite + Unpin>(
    tls: &Tls,
    socket: S,
    ahead: Bytes,
    deadline: Instant,
) -> Result<Entered<S>, Refusal> {
    match timeout_at(deadline, enter_patiently(tls, Ahead { socket, ahead })).await {
        Ok(entered) => entered,
        Err(_) => Err(Refusal::TimedOut),
    }
}

async fn enter_patiently<S: AsyncRead + AsyncWrite + Unpin>(
    tls: &Tls,
    mut socket: Ahead<S>,
) -> Result<Entered<S>, Refusal> {
    if socket.first_byte().await.map_err(Refusal::Failed)?.ok_or(Refusal::DetachedTasks)?
        != HANDSHAKE
    {
        // An alert is what TLS has for whoever speaks neither; nobody who sends garbage reads it.
        if socket.ahead[0].is_ascii_uppercase() {
            say_plainly(&mut socket).await.map_err(Refusal::Failed)?;
            return Err(Refusal::Plain);
        }
        return Err(Refusal::Failed(ErrorKind::InvalidData.into()));
    }
    let way = tls.way.load_full();
    let acceptor = TlsAcceptor::from(Arc::clone(&way.config));
    let stream = acceptor.accept(socket).await.map_err(Refusal::Failed)?;
    let (_, session) = stream.get_ref();
    let protocol = Protocol::chosen(session.alpn_protocol());
    let shown = session.peer_certificates().and_then(|chain| chain.first());
    // Who comes again by a ticket is not looked at anew, and gets another ticket.
    let is_resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
    if let Some(shown) = shown.filter(|_| is_resumed)
        && !certificate::is_in_time(shown, unix_now() as i64)
    {
        let expired = io::Error::other("the client's certificate is out of its time");
        return Err(Refusal::Failed(expired));
    }
    let secured = Secured {
        server_name: session.server_name().map(Into::into),
        certificate: shown.map(|der| ClientCertificate::new(der)),
        // One whose time nobody can read was let in by nobody.
        expires: shown.map(|der| certificate::times(der).map_or(0, |valid| *valid.end())),
        asks_clients: tls.asks_clients(),
    };
    let outdated = tls.asks_clients().then(|| way.outdated.clone());
    Ok(Entered { stream, protocol, secured, outdated })
}

/// Answers as http, and lets the client read it: closed with bytes unread, the connection would be reset.
async fn say_plainly<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut Ahead<S>) -> io::Result<()> {
    socket.write_all(PLAIN_ANSWER).await?;
    socket.shutdown().await?;
    let mut rest = [0; 1_024];
    let mut socket = socket.take(PLAIN_MAX);
    while socket.read(&mut rest).await? > 0 {}
    Ok(())
}

/// A socket of which something was read already.
#[derive(Debug)]
pub(in crate::serve) struct Ahead<S> {
    socket: S,
    ahead: Bytes,
}

impl<S> Ahead<S> {
    /// The socket itself.
    pub(in crate::serve) fn socket(&self) -> &S {
        &self.socket
    }
}

impl<S: AsyncRead + Unpin> Ahead<S> {
    /// The next byte, which is left to be read; `None` at the end.
    async fn first_byte(&mut self) -> io::Result<Option<u8>> {
        if self.ahead.is_empty() {
            let mut bytes = BytesMut::with_capacity(1_024);
            self.socket.read_buf(&mut bytes).await?;
            self.ahead = bytes.freeze();
        }
        Ok(self.ahead.first().copied())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ahead<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.socket).poll_read(cx, buf);
        }
        let length = self.ahead.len().min(buf.remaining());
        buf.put_slice(&self.ahead.split_to(length));
        if self.ahead.is_empty() {
            // The connection lives on for long, what it held does not.
            self.ahead = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Ahead<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_answer_is_as_long_as_it_says() {
        let text = std::str::from_utf8(PLAIN_ANSWER).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
    }
}
