//! A fresh connection to the origin: socket, TLS, and the protocol that is spoken on it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;

use super::OriginError;
use super::lanes::Lane;
use super::link::Link;
use super::meter::{Allowance, Metered};
use super::pool::Origin;
use super::progress::Uploads;
use super::protocol::{Http2, Protocol};
use super::sender::{Http1, Sender};
use super::settings::BUFFER;
use crate::telemetry::metrics::Count;

/// The socket of an origin connection.
pub(super) type OriginSocket = Metered<Link>;

/// A socket that speaks HTTP no more, and what was read of it behind the last response.
pub(super) type Switching = oneshot::Receiver<(OriginSocket, Bytes)>;

impl Origin {
    /// A fresh connection, HTTP/2 where that is allowed and spoken.
    pub(super) async fn connect(&self) -> Result<Sender, OriginError> {
        if self.lanes.wants_http1() {
            return self.connect_alone().await;
        }
        let usual = match self.settings.http2 {
            Http2::Always => Protocol::Http2,
            Http2::Auto | Http2::Never => Protocol::Http1,
        };
        let (link, agreed) = self.dial(false).await?;
        let protocol = agreed.unwrap_or(usual);
        self.lanes.speaks(protocol);
        match protocol {
            Protocol::Http1 => self.http1(link).await.map(Sender::Http1),
            Protocol::Http2 => {
                let lane = Lane::open(link, self.settings.http2_ping).await?;
                Ok(Sender::Http2(self.lanes.add(lane)))
            }
        }
    }

    /// A fresh connection of HTTP/1.1, which can belong to one client.
    pub(super) async fn connect_alone(&self) -> Result<Sender, OriginError> {
        let (link, _) = self.dial(true).await?;
        self.http1(link).await.map(Sender::Http1)
    }

    /// A fresh connection of HTTP/1.1 that no request is sent on again, and that is given back by hyper when
    /// the origin switches protocols. What it is then comes from the receiver.
    pub(super) async fn connect_to_switch(&self) -> Result<(Http1, Switching), OriginError> {
        let (link, _) = self.dial(true).await?;
        let allowance = Allowance::new();
        let socket = Metered::new(link, allowance.clone());
        let (requests, connection) = http1::Builder::new()
            .max_buf_size(BUFFER)
            .handshake(TokioIo::new(socket))
            .await
            .map_err(OriginError::Broken)?;
        let (hand_over, switching) = oneshot::channel();
        tokio::task::spawn_local(async move {
            match connection.without_shutdown().await {
                // Nobody waits for it where no other protocol was agreed on: then it ends here.
                Ok(parts) => drop(hand_over.send((parts.io.into_inner(), parts.read_buf))),
                Err(error) => tracing::debug!(%error, "an origin connection ended"),
            }
        });
        let (resting, uploads) = (Rc::default(), Rc::default());
        Ok((Http1 { requests, resting, allowance, uploads }, switching))
    }

    /// Socket and TLS within `connect_timeout`, and the protocol that was agreed upon there.
    async fn dial(&self, alone: bool) -> Result<(Link, Option<Protocol>), OriginError> {
        self.sheet.count(Count::OriginConnections);
        tokio::time::timeout(self.settings.connect_timeout, self.reach(alone))
            .await
            .map_err(|_| OriginError::ConnectTimedOut)?
    }

    async fn reach(&self, alone: bool) -> Result<(Link, Option<Protocol>), OriginError> {
        let settings = &self.settings;
        if let Some(path) = &settings.socket {
            let socket = UnixStream::connect(path).await.map_err(OriginError::Connect)?;
            return Ok((Link::Unix(socket), None));
        }
        let socket = TcpStream::connect((settings.host.as_str(), settings.port))
            .await
            .map_err(OriginError::Connect)?;
        socket.set_nodelay(true).map_err(OriginError::Connect)?;
        let Some(tls) = &settings.tls else { return Ok((Link::Tcp(socket), None)) };
        let offer = Arc::clone(if alone { &tls.alone } else { &tls.usual });
        let socket = TlsConnector::from(offer)
            .connect(tls.name.clone(), socket)
            .await
            .map_err(OriginError::Tls)?;
        let agreed = match socket.get_ref().1.alpn_protocol() {
            Some(b"h2") => Some(Protocol::Http2),
            Some(_) => Some(Protocol::Http1),
            None => None,
        };
        Ok((Link::Tls(Box::new(socket)), agreed))
    }

    async fn http1(&self, link: Link) -> Result<Http1, OriginError> {
        let allowance = Allowance::new();
        let socket = Metered::new(link, allowance.clone());
        let (requests, connection) = http1::Builder::new()
            .max_buf_size(BUFFER)
            .handshake(TokioIo::new(socket))
            .await
            .map_err(OriginError::Broken)?;
        let sheet = Arc::clone(&self.sheet);
        let resting = Rc::new(Cell::new(false));
        let rests = Rc::clone(&resting);
        let uploads = Rc::<Uploads>::default();
        let late = Rc::clone(&uploads);
        tokio::task::spawn_local(async move {
            let end = tokio::select! {
                end = connection => end,
                () = late.overdue() => return tracing::debug!("an upload behind its answer stopped"),
            };
            if let Err(error) = end {
                // A request in work gets an error of its own.
                if rests.get() {
                    sheet.count(Count::OriginIdleErrors);
                }
                tracing::debug!(%error, "an origin connection ended");
            }
        });
        Ok(Http1 { requests, resting, allowance, uploads })
    }
}
