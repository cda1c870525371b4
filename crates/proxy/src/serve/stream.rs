//! The sockets of clients: TCP, or Unix, and either with TLS on it.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::task::{Context, Poll};

use anteroom_http::peer::Peer;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::server::TlsStream;

use super::listen;
use super::tls::PrefixedSocket;

/// A listener on a thread's runtime.
#[derive(Debug)]
pub(super) enum StreamListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl StreamListener {
    /// Puts a listener onto this thread's runtime.
    pub(super) fn new(listener: listen::Listener) -> io::Result<Self> {
        Ok(match listener {
            listen::Listener::Tcp(listener) => Self::Tcp(TcpListener::from_std(listener)?),
            listen::Listener::Unix(listener) => Self::Unix(UnixListener::from_std(listener)?),
        })
    }

    /// The next connection and its peer.
    pub(super) async fn accept(&self) -> io::Result<(ClientStream, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (socket, peer) = listener.accept().await?;
                if let Err(error) = socket.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY could not be set");
                }
                Ok((ClientStream::Tcp(socket), Peer::at(peer.ip())))
            }
            Self::Unix(listener) => {
                let (socket, _) = listener.accept().await?;
                Ok((ClientStream::Unix(socket), Peer::Unix))
            }
        }
    }
}

/// A client's socket.
#[derive(Debug)]
pub(super) enum ClientStream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<PrefixedSocket<Self>>>),
}

impl ClientStream {
    /// The innermost socket.
    fn base(&self) -> &Self {
        match self {
            Self::Tcp(_) | Self::Unix(_) => self,
            Self::Tls(secured) => secured.get_ref().0.socket().base(),
        }
    }

    /// Whether it is a TCP socket.
    pub(super) fn is_tcp(&self) -> bool {
        matches!(self.base(), Self::Tcp(_))
    }

    /// The local address; for a Unix socket, this machine's.
    pub(super) fn local(&self) -> io::Result<IpAddr> {
        match self.base() {
            Self::Tcp(socket) => Ok(socket.local_addr()?.ip()),
            Self::Unix(_) | Self::Tls(_) => Ok(Ipv4Addr::LOCALHOST.into()),
        }
    }

    /// Returns when data can be read.
    pub(super) async fn readable(&self) -> io::Result<()> {
        match self.base() {
            Self::Tcp(socket) => socket.readable().await,
            Self::Unix(socket) => socket.readable().await,
            // The inner socket is never TLS.
            Self::Tls(_) => Ok(()),
        }
    }

    /// The socket, for its options.
    pub(super) fn options(&self) -> SockRef<'_> {
        match self {
            Self::Tcp(socket) => SockRef::from(socket),
            Self::Unix(socket) => SockRef::from(socket),
            Self::Tls(secured) => secured.get_ref().0.socket().options(),
        }
    }

    fn reader(self: Pin<&mut Self>) -> Pin<&mut (dyn AsyncRead + Unpin)> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket),
            Self::Unix(socket) => Pin::new(socket),
            Self::Tls(secured) => Pin::new(&mut **secured),
        }
    }

    fn writer(self: Pin<&mut Self>) -> Pin<&mut (dyn AsyncWrite + Unpin)> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket),
            Self::Unix(socket) => Pin::new(socket),
            Self::Tls(secured) => Pin::new(&mut **secured),
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.reader().poll_read(cx, buf)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writer().poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writer().poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(socket) => socket.is_write_vectored(),
            Self::Unix(socket) => socket.is_write_vectored(),
            Self::Tls(secured) => secured.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_shutdown(cx)
    }
}
