//! Opens connections to the origin: socket, TLS and the choice of protocol.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use anteroom_policy::origin::Http2;
use anteroom_telemetry::metrics::Count;
use bytes::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;

use super::OriginError;
use super::broken_upload::AnswerBeforeBreak;
use super::http2_pool::Http2Connection;
use super::link::OriginLink;
use super::meter::{Allowance, HeadLimitedIo};
use super::pool::ServerConnections;
use super::progress::Uploads;
use super::protocol::OriginProtocol;
use super::sender::{Sender, TaskConnection};
use super::settings::{BUFFER, RESPONSE_FIELDS};

/// The socket of an origin connection.
pub(super) type OriginSocket = HeadLimitedIo<OriginLink>;

/// A socket that no longer speaks HTTP, and the bytes read from it after the last response.
pub(super) type PendingUpgrade = oneshot::Receiver<(OriginSocket, Bytes)>;

impl ServerConnections {
    /// Opens a connection, with HTTP/2 where it is allowed and negotiated.
    pub(super) async fn connect(&self) -> Result<Sender, OriginError> {
        if self.http2_pool.wants_http1() {
            return self.connect_alone().await;
        }
        let usual = match self.settings.http2 {
            Http2::Always => OriginProtocol::Http2,
            Http2::Auto | Http2::Never => OriginProtocol::Http1,
        };
        // PERF: boxed, so that the state of a request on a kept connection stays small.
        let (link, agreed) = Box::pin(self.dial(false)).await?;
        let protocol = agreed.unwrap_or(usual);
        self.http2_pool.speaks(protocol);
        match protocol {
            OriginProtocol::Http1 => Ok(Sender::http1(link, self.settings.response_fields)),
            OriginProtocol::Http2 => {
                let connection = Http2Connection::open(link, self.settings.http2_ping).await?;
                Ok(self.http2_pool.add(connection).into())
            }
        }
    }

    /// Opens an HTTP/1.1 connection, which can belong to one client.
    pub(super) async fn connect_alone(&self) -> Result<Sender, OriginError> {
        let (link, _) = Box::pin(self.dial(true)).await?;
        Ok(Sender::http1(link, self.settings.response_fields))
    }

    /// hyper's client for HTTP/1.1, with the limits of a head.
    fn http1_builder(&self) -> http1::Builder {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(BUFFER);
        // PERF: hyper reads fields without an allocation where no number is set.
        if self.settings.response_fields != RESPONSE_FIELDS {
            builder.max_headers(self.settings.response_fields);
        }
        builder
    }

    /// Opens an HTTP/1.1 connection that carries one request only. When the origin switches protocols, hyper
    /// hands the socket back; it arrives through the receiver.
    pub(super) async fn connect_to_switch(
        &self,
    ) -> Result<(TaskConnection, PendingUpgrade), OriginError> {
        let (link, _) = self.dial(true).await?;
        let allowance = Allowance::new();
        let socket = HeadLimitedIo::new(link, allowance.clone());
        let (requests, connection) = self
            .http1_builder()
            .handshake(TokioIo::new(socket))
            .await
            .map_err(OriginError::broken)?;
        let (hand_over, switching) = oneshot::channel();
        tokio::task::spawn_local(async move {
            match connection.without_shutdown().await {
                // If no other protocol was agreed on, the receiver is gone, and the socket closes here.
                Ok(parts) => drop(hand_over.send((parts.io.into_inner(), parts.read_buf))),
                Err(error) => tracing::debug!(%error, "an origin connection ended"),
            }
        });
        let (resting, uploads) = (Rc::default(), Rc::default());
        Ok((TaskConnection { requests, resting, allowance, uploads }, switching))
    }

    /// Opens socket and TLS within `connect_timeout`; returns the negotiated protocol.
    async fn dial(&self, alone: bool) -> Result<(OriginLink, Option<OriginProtocol>), OriginError> {
        self.thread_metrics.count(Count::OriginConnections);
        tokio::time::timeout(self.settings.connect_timeout, self.reach(alone))
            .await
            .map_err(|_| OriginError::ConnectTimedOut)?
    }

    async fn reach(
        &self,
        alone: bool,
    ) -> Result<(OriginLink, Option<OriginProtocol>), OriginError> {
        let settings = &self.settings;
        if let Some(path) = &settings.socket {
            let socket = UnixStream::connect(path).await.map_err(OriginError::Connect)?;
            return Ok((OriginLink::Unix(socket), None));
        }
        let socket = TcpStream::connect((settings.host.as_str(), settings.port))
            .await
            .map_err(OriginError::Connect)?;
        socket.set_nodelay(true).map_err(OriginError::Connect)?;
        let Some(tls) = &settings.tls else { return Ok((OriginLink::Tcp(socket), None)) };
        let offer = Arc::clone(if alone { &tls.alone } else { &tls.usual });
        let socket = TlsConnector::from(offer)
            .connect(tls.name.clone(), socket)
            .await
            .map_err(OriginError::Tls)?;
        let agreed = match socket.get_ref().1.alpn_protocol() {
            Some(b"h2") => Some(OriginProtocol::Http2),
            Some(_) => Some(OriginProtocol::Http1),
            None => None,
        };
        Ok((OriginLink::Tls(Box::new(socket)), agreed))
    }

    /// Has a task of hyper's client drive a connection.
    pub(super) async fn begin_task(&self, link: OriginLink) -> Result<TaskConnection, OriginError> {
        let allowance = Allowance::new();
        let socket = HeadLimitedIo::new(AnswerBeforeBreak::new(link), allowance.clone());
        let (requests, connection) = self
            .http1_builder()
            .handshake(TokioIo::new(socket))
            .await
            .map_err(OriginError::broken)?;
        let thread_metrics = Arc::clone(&self.thread_metrics);
        let resting = Rc::new(Cell::new(false));
        let rests = Rc::clone(&resting);
        let uploads = Rc::<Uploads>::default();
        let late = Rc::clone(&uploads);
        tokio::task::spawn_local(async move {
            let end = tokio::select! {
                end = connection => end,
                () = late.overdue() => return tracing::debug!("an upload stalled after its response"),
            };
            if let Err(error) = end {
                // A request in progress gets an error of its own.
                if rests.get() {
                    thread_metrics.count(Count::OriginIdleErrors);
                }
                tracing::debug!(%error, "an origin connection ended");
            }
        });
        Ok(TaskConnection { requests, resting, allowance, uploads })
    }
}
