//! Listening sockets. TCP has one for each thread on the same address, by `SO_REUSEPORT`; a Unix socket or an
//! inherited one is a single socket for all threads, with a shared queue.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use anteroom_http::peer::Peers;
use anteroom_policy::listener::ListenerRules;
use arc_swap::ArcSwap;
use listenfd::ListenFd;
use socket2::{Domain, Protocol, Socket, Type};
use tokio_util::sync::CancellationToken;

use super::tls::ClientTls;

/// Connections that the kernel queues before they are accepted.
pub(super) const BACKLOG: u16 = 1024;

/// A listening socket that is on no runtime yet.
#[derive(Debug)]
pub enum Listener {
    /// A TCP socket.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

impl Listener {
    /// A second handle on the same queue of connections.
    ///
    /// # Errors
    /// If the system has no room for it.
    pub fn another(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(listener) => listener.try_clone().map(Self::Tcp),
            Self::Unix(listener) => listener.try_clone().map(Self::Unix),
        }
    }

    /// Its address, if it is a TCP socket.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
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

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

/// A file of another process. Fails unless it is a stream socket that listens.
impl TryFrom<OwnedFd> for Listener {
    type Error = io::Error;

    fn try_from(file: OwnedFd) -> io::Result<Self> {
        let other = || io::Error::new(io::ErrorKind::InvalidInput, "this is no listening socket");
        let socket = Socket::from(file);
        if !socket.is_listener()? || socket.r#type()? != Type::STREAM {
            return Err(other());
        }
        match socket.domain()? {
            Domain::IPV4 | Domain::IPV6 => Self::Tcp(socket.into()).set_nonblocking(),
            Domain::UNIX => Self::Unix(socket.into()).set_nonblocking(),
            _ => Err(other()),
        }
    }
}

/// Where one thread accepts connections.
#[derive(Debug)]
pub struct ThreadListener {
    /// The socket.
    pub listener: Listener,
    /// The rules; listeners on the same address share them.
    pub terms: Arc<ArcSwap<ConnectionRules>>,
    /// Closes it when cancelled.
    pub closed: CancellationToken,
}

/// How clients are served at a listener. Connections keep the rules under which they came; those end when
/// clients are asked for other certificates.
#[derive(Debug, Default)]
pub struct ConnectionRules {
    /// The peers whose connections begin with a PROXY protocol header. All others are clients themselves.
    pub balancers: Vec<Peers>,
    /// Whether HTTP/2 is offered as well.
    pub h2: bool,
    /// The TLS settings; `None`: clear text.
    pub tls: Option<Arc<ClientTls>>,
    /// Cancelled when clients are newly asked for certificates.
    pub outdated: CancellationToken,
    /// The rules for all requests that come in here.
    pub entry: Arc<ListenerRules>,
}

impl ConnectionRules {
    /// Whether clients are asked for certificates.
    #[must_use]
    pub fn requests_client_certs(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.requests_client_certs())
    }

    /// Ends the connections whose client certificate, or lack of one, is no longer valid under `next`;
    /// `None`: the listener is gone.
    pub fn give_way(&self, next: Option<&Self>) {
        let next_tls = next.and_then(|next| next.tls.as_ref());
        if let Some(tls) = &self.tls
            && !next_tls.is_some_and(|next| Arc::ptr_eq(tls, next))
        {
            tls.give_way();
        }
        if next.is_some_and(Self::requests_client_certs) {
            self.outdated.cancel();
        }
    }
}

/// Opens `count` listeners on `address`. Port 0 takes a free port, the same for all; `[::]` serves IPv4 as
/// well, whatever the system's default is, and IPv4 alone where the kernel has no IPv6.
///
/// Another process that listens there with `SO_REUSEPORT` would silently share the port, so the address is
/// first bound without it. It is not listened on: a client that comes in that moment would be reset.
///
/// # Errors
/// If the address is in use or not local.
pub fn open(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    let probe = bind(address, false).or_else(|error| match without_ipv6(address, &error) {
        Some(address) => {
            tracing::info!(%address, "this system has no IPv6: listening on IPv4 alone");
            bind(address, false)
        }
        None => Err(error),
    })?;
    let address = probe.local_addr()?.as_socket().unwrap_or(address);
    drop(probe);
    join(address, count)
}

fn join(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    (0..count).map(|_| BoundSocket::new(address)?.listen()).collect()
}

/// One more socket on an address where this process listens already, which [`open`] would take for another process. It
/// does not listen so far: the kernel sends no connection there.
#[derive(Debug)]
pub struct BoundSocket(Socket);

impl BoundSocket {
    /// Binds one.
    ///
    /// # Errors
    /// If the address is in use without `SO_REUSEPORT`, or by another user.
    pub fn new(address: SocketAddr) -> io::Result<Self> {
        let socket = bind(address, true)?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// A second handle on it.
    ///
    /// # Errors
    /// If the system has no room for it.
    pub fn another(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Listens, if another handle does not yet. From now on, new connections are spread over this socket, too; those
    /// that wait at another stay there.
    ///
    /// # Errors
    /// If the address was given to another user meanwhile.
    pub fn listen(self) -> io::Result<TcpListener> {
        self.0.listen(BACKLOG.into())?;
        Ok(self.0.into())
    }
}

/// All addresses of IPv4, if `address` is all addresses of both and the kernel has no IPv6.
fn without_ipv6(address: SocketAddr, error: &io::Error) -> Option<SocketAddr> {
    let is_missing = error.raw_os_error() == Some(libc::EAFNOSUPPORT);
    let is_all = address.is_ipv6() && address.ip().is_unspecified();
    (is_missing && is_all).then(|| (Ipv4Addr::UNSPECIFIED, address.port()).into())
}

fn bind(address: SocketAddr, share: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_port(share)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// The listening sockets inherited from systemd, or from a parent that uses the same protocol.
pub struct InheritedSockets {
    sockets: ListenFd,
    names: Vec<String>,
}

impl fmt::Debug for InheritedSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InheritedSockets").field("names", &self.names).finish_non_exhaustive()
    }
}

impl InheritedSockets {
    /// Those that the environment names (`LISTEN_FDS`, `LISTEN_PID`), with `names` (`LISTEN_FDNAMES`: joined
    /// by colons). To be called once, before there are threads: it removes the first two from the
    /// environment.
    #[must_use]
    pub fn new(names: &str) -> Self {
        let names = names.split(':').map(str::to_owned).collect();
        Self { sockets: ListenFd::from_env(), names }
    }

    /// Those called `name`, or all. Each is taken once.
    ///
    /// # Errors
    /// If there is none, or one is not a listening stream socket.
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
            let text = "systemd passed no such socket, or it is already in use";
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        Ok(taken)
    }

    /// Those with a name that begins with `prefix`, each with its name. Each is taken once.
    pub fn take_named(&mut self, prefix: &str) -> Vec<(String, Listener)> {
        let mut taken = Vec::new();
        for index in 0..self.sockets.len() {
            let Some(name) = self.names.get(index).filter(|name| name.starts_with(prefix)) else {
                continue;
            };
            let name = name.clone();
            let one = self.take_one(index);
            match one.and_then(|one| one.map(Listener::set_nonblocking).transpose()) {
                Ok(Some(listener)) => taken.push((name, listener)),
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, called = name, "a socket cannot be used"),
            }
        }
        taken
    }

    fn take_one(&mut self, index: usize) -> io::Result<Option<Listener>> {
        // The first call leaves the socket in place if it is of the other kind.
        match self.sockets.take_tcp_listener(index) {
            Ok(listener) => Ok(listener.map(Listener::Tcp)),
            Err(_) => Ok(self.sockets.take_unix_listener(index)?.map(Listener::Unix)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use socket2::SockRef;

    use super::*;

    #[test]
    fn threads_share_a_port_and_strangers_do_not() {
        let ours = open("127.0.0.1:0".parse().unwrap(), 2).unwrap();
        let address = ours[0].local_addr().unwrap();
        assert_eq!(address, ours[1].local_addr().unwrap());
        assert!(open(address, 1).is_err(), "a second process would take half of the clients");
        let more = join(address, 2).unwrap();
        assert!(more.iter().all(|one| one.local_addr().unwrap() == address));
    }

    #[test]
    fn a_socket_that_is_only_bound_gets_no_connection() {
        let ours = open("127.0.0.1:0".parse().unwrap(), 1).unwrap().pop().unwrap();
        let address = ours.local_addr().unwrap();
        let bound: Vec<_> = (0..4).map(|_| BoundSocket::new(address).unwrap()).collect();
        let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
        drop(bound);
        // The kernel may put a connection into the queue a moment after its client has it.
        ours.set_nonblocking(false).unwrap();
        SockRef::from(&ours).set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert!(clients.iter().all(|_| ours.accept().is_ok()));
    }

    #[test]
    fn without_ipv6_all_addresses_are_those_of_ipv4() {
        let [missing, in_use] = [libc::EAFNOSUPPORT, libc::EADDRINUSE];
        for (address, error, expected) in [
            ("[::]:80", missing, Some("0.0.0.0:80")),
            ("[::]:80", in_use, None),
            ("[::1]:80", missing, None),
            ("0.0.0.0:80", missing, None),
        ] {
            let error = io::Error::from_raw_os_error(error);
            let chosen = without_ipv6(address.parse().unwrap(), &error);
            assert_eq!(chosen, expected.map(|text| text.parse().unwrap()), "{address}: {error}");
        }
    }

    fn read(file: impl Into<OwnedFd>) -> io::Result<Listener> {
        Listener::try_from(file.into())
    }

    #[test]
    fn only_a_file_that_listens_is_a_listener() {
        let folder = tempfile::tempdir().unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let unix = UnixListener::bind(folder.path().join("socket")).unwrap();
        let plain = std::fs::File::create(folder.path().join("file")).unwrap();
        assert!(matches!(read(tcp), Ok(Listener::Tcp(_))));
        assert!(matches!(read(unix), Ok(Listener::Unix(_))));
        assert!(read(client).is_err());
        assert!(read(plain).is_err());
    }

    #[test]
    fn a_client_that_comes_before_the_listeners_is_refused_and_not_reset() {
        // Not 127.0.0.1: a client with the same address and port would be connected with itself.
        let probe = bind("127.0.0.77:0".parse().unwrap(), false).unwrap();
        let address = probe.local_addr().unwrap().as_socket().unwrap();
        let refused = TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
