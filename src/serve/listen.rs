//! Listening sockets: one for each thread on the same address, by `SO_REUSEPORT`.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that the kernel holds for us before we accept them.
const BACKLOG: i32 = 1024;

/// Opens `count` listeners on `address`. Port 0 takes a free port, the same for all.
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
            socket.listen(BACKLOG)?;
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
