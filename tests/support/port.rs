//! Loopback ports of the tests, each for one process of tests at a time.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, PoisonError};

/// The ports that this process was given, each with a socket of its number: processes of tests run at once, and between a
/// look and the bind of a server another one would find the port free, too. An abstract name leaves no file, and ends
/// with the process.
static GIVEN: Mutex<BTreeMap<u16, UnixDatagram>> = Mutex::new(BTreeMap::new());

/// A loopback port without a listener, which no other test that runs was given. It lies below the range from which the
/// kernel takes ports for outgoing connections, so that a process that is restarted finds it free again.
pub fn free_port() -> u16 {
    (0..1_000)
        .map(|_| fastrand::u16(10_000..32_000))
        .find(|port| is_free(*port))
        .expect("one of a thousand ports is free")
}

fn is_free(port: u16) -> bool {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let name = SocketAddr::from_abstract_name(format!("anteroom-test-port-{port}")).unwrap();
    // Also refused where this process has it.
    let Ok(claim) = UnixDatagram::bind_addr(&name) else { return false };
    let is_free = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    if is_free {
        given.insert(port, claim);
    }
    is_free
}
