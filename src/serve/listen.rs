//! Listening sockets. Of TCP, one for each thread on the same address, by `SO_REUSEPORT`; a Unix
//! socket, or one that was opened for us, is one for all, and its queue is shared.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use arc_swap::ArcSwap;
use listenfd::ListenFd;
use socket2::{Domain, Protocol, Socket, Type};
use tokio_util::sync::CancellationToken;

use super::tls::Tls;
use crate::http::peer::Peers;
use crate::proxy::connection::client::Entry;

/// Connections that the kernel holds for us before we accept them.
pub(super) const BACKLOG: u16 = 1024;

/// A listening socket that is on no runtime yet.
#[derive(Debug)]
pub enum Listener {
    /// Of TCP.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

impl Listener {
    /// Another on the same queue of connections.
    ///
    /// # Errors
    /// When the system has no room for it.
    pub fn another(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(listener) => listener.try_clone().map(Self::Tcp),
            Self::Unix(listener) => listener.try_clone().map(Self::Unix),
        }
    }

    fn set_nonblocking(self) -> io::Result<Self> {
        match &self {
            Self::Tcp(listener) => listener.set_nonblocking(true)?,
            Self::Unix(listener) => listener.set_nonblocking(true)?,
        }
        Ok(self)
    }
}

/// Where one thread takes connections.
#[derive(Debug)]
pub struct Entrance {
    /// The socket.
    pub listener: Listener,
    /// On what terms; those of the same address have them in common.
    pub terms: Arc<ArcSwap<Terms>>,
    /// Ends it.
    pub closed: CancellationToken,
}

/// On what terms clients are served at an entrance. Connections keep those that they came under; those are
/// over where clients are asked for other certificates now.
#[derive(Debug, Default)]
pub struct Terms {
    /// The peers that begin with a header of the PROXY protocol. All others are clients themselves.
    pub balancers: Vec<Peers>,
    /// Whether HTTP/2 is spoken, too.
    pub h2: bool,
    /// How connections are secured; `None`: they are not.
    pub tls: Option<Arc<Tls>>,
    /// Cancelled when clients are asked for certificates who were not before.
    pub outdated: CancellationToken,
    /// What goes for all requests that come in here.
    pub entry: Arc<Entry>,
}

impl Terms {
    /// Whether clients are asked for certificates.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.asks_clients())
    }

    /// Ends the connections on which was shown, or not asked for, what counts no more where `next` is in
    /// force; `None`: nobody is let in there any more.
    pub fn give_way(&self, next: Option<&Self>) {
        let next_tls = next.and_then(|next| next.tls.as_ref());
        if let Some(tls) = &self.tls
            && !next_tls.is_some_and(|next| Arc::ptr_eq(tls, next))
        {
            tls.give_way();
        }
        if next.is_some_and(Self::asks_clients) {
            self.outdated.cancel();
        }
    }
}

/// Opens `count` listeners on `address`. Port 0 takes a free port, the same for all; `[::]` serves
/// IPv4, too, whatever the system's own default is.
///
/// Another process that listens there with `SO_REUSEPORT` would share the port silently, so the
/// address is first bound without it.
///
/// # Errors
/// When the address is in use or not ours.
pub fn open(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    let probe = bind(address, false)?;
    let address = probe.local_addr()?.as_socket().unwrap_or(address);
    drop(probe);
    (0..count)
        .map(|_| {
            let socket = bind(address, true)?;
            socket.listen(BACKLOG.into())?;
            socket.set_nonblocking(true)?;
            Ok(socket.into())
        })
        .collect()
}

fn bind(address: SocketAddr, share: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    if share {
        socket.set_reuse_port(true)?;
    } else {
        // Without listening, two sockets with SO_REUSEADDR may bind the same address.
        socket.bind(&address.into())?;
        socket.listen(1)?;
        return Ok(socket);
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// The listening sockets that whoever started us opened for us: systemd, or another that does as it.
pub struct Inherited {
    sockets: ListenFd,
    names: Vec<String>,
}

impl fmt::Debug for Inherited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inherited").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Inherited {
    /// Those that the environment tells of (`LISTEN_FDS`, `LISTEN_PID`), with `names`
    /// (`LISTEN_FDNAMES`: joined by colons). To be asked once, before there are threads: it takes the
    /// first two out of the environment.
    #[must_use]
    pub fn new(names: &str) -> Self {
        let names = names.split(':').map(str::to_owned).collect();
        Self { sockets: ListenFd::from_env(), names }
    }

    /// Those called `name`, or all. Each is taken once.
    ///
    /// # Errors
    /// When there is none, or one is no listening stream socket.
    pub fn take(&mut self, name: Option<&str>) -> io::Result<Vec<Listener>> {
        let mut taken = Vec::new();
        for index in 0..self.sockets.len() {
            let is_meant = |name| self.names.get(index).is_some_and(|own| own == name);
            if name.is_none_or(is_meant)
                && let Some(listener) = self.take_one(index)?
            {
                taken.push(listener.set_nonblocking()?);
            }
        }
        if taken.is_empty() {
            let text = "systemd has passed no such socket that is not taken already";
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        Ok(taken)
    }

    fn take_one(&mut self, index: usize) -> io::Result<Option<Listener>> {
        // The first call leaves it where it is when it is of the other kind.
        match self.sockets.take_tcp_listener(index) {
            Ok(listener) => Ok(listener.map(Listener::Tcp)),
            Err(_) => Ok(self.sockets.take_unix_listener(index)?.map(Listener::Unix)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::open;

    #[test]
    fn threads_share_a_port_and_strangers_do_not() {
        let ours = open("127.0.0.1:0".parse().unwrap(), 2).unwrap();
        let address = ours[0].local_addr().unwrap();
        assert_eq!(address, ours[1].local_addr().unwrap());
        assert!(open(address, 1).is_err(), "a second process would take half of the clients");
    }
}
