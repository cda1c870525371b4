//! Accepting: caps in all and for each address, and patience when the system runs out of files.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{self, Settings};
use crate::metrics::{Count, Sheet};
use crate::request::Room;

/// How long to wait when accepting fails (out of file descriptors, mostly).
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(50);

/// How many connections may be open, over all threads.
#[derive(Debug)]
pub struct Caps {
    all: usize,
    per_address: usize,
    trusted: Vec<IpNet>,
    open: AtomicUsize,
    /// Connections by address. Guarded by a plain mutex: held for one look-up a connection.
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

impl Caps {
    /// At most `all` connections, and `per_address` from one address that is no `trusted` proxy.
    #[must_use]
    pub fn new(all: usize, per_address: usize, trusted: Vec<IpNet>) -> Self {
        Self { all, per_address, trusted, open: AtomicUsize::new(0), by_address: Mutex::default() }
    }

    /// Connections open now.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Room for one more from `address`; `None` at a cap.
    #[must_use]
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = address.to_canonical();
        let counted = !self.trusted.iter().any(|net| net.contains(&address));
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.all {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let mut place = Place { caps: Arc::clone(self), counted: None };
        if counted {
            let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
            let count = by_address.entry(address).or_default();
            if *count >= self.per_address {
                drop(by_address);
                return None;
            }
            *count += 1;
            place.counted = Some(address);
        }
        Some(place)
    }
}

/// One connection's place under the caps; given back when dropped.
#[derive(Debug)]
pub struct Place {
    caps: Arc<Caps>,
    counted: Option<IpAddr>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.caps.open.fetch_sub(1, Ordering::Relaxed);
        let Some(address) = self.counted else { return };
        let mut by_address = self.caps.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&address);
            }
        }
    }
}

/// What a thread needs to serve clients.
#[derive(Debug)]
pub struct Door {
    /// Caps, shared by all threads.
    pub caps: Arc<Caps>,
    /// Settings of each connection.
    pub settings: Settings,
    /// This thread's counters.
    pub sheet: Arc<Sheet>,
    /// Ends accepting, and lets open connections finish.
    pub drain: CancellationToken,
    /// The connections that are open.
    pub connections: TaskTracker,
}

/// Accepts on `listener` until told to drain; each connection is served in a task of its own.
pub async fn serve(listener: TcpListener, door: Rc<Door>, room: Rc<Room>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = door.drain.cancelled() => return,
        };
        match accepted {
            Ok((socket, peer)) => admit(socket, peer, &door, &room),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_BACK_OFF).await;
            }
        }
    }
}

/// Over a cap the connection is closed at once: an answer would cost what the cap protects.
fn admit(socket: TcpStream, peer: SocketAddr, door: &Rc<Door>, room: &Rc<Room>) {
    door.sheet.count(Count::Accepted);
    let Some(place) = door.caps.enter(peer.ip()) else {
        door.sheet.count(Count::ConnectionsRefused);
        return;
    };
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let (door, room) = (Rc::clone(door), Rc::clone(room));
    door.connections.clone().spawn_local(async move {
        let _place = place;
        let drain = door.drain.clone();
        connection::run(socket, peer, room, door.settings, &door.sheet, drain).await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caps_hold_in_all_and_for_each_address_and_give_back() {
        let trusted = vec!["10.0.0.0/8".parse().unwrap()];
        let caps = Arc::new(Caps::new(3, 1, trusted));
        let (one, two): (IpAddr, IpAddr) =
            ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let proxy: IpAddr = "10.1.2.3".parse().unwrap();
        let first = caps.enter(one).unwrap();
        assert!(caps.enter(one).is_none(), "one for each address");
        let _second = caps.enter(two).unwrap();
        let _third = caps.enter(proxy).unwrap();
        assert!(caps.enter(proxy).is_none(), "three in all");
        drop(first);
        let _again = caps.enter(one).unwrap();
        assert_eq!(caps.open(), 3);
    }

    #[test]
    fn a_mapped_address_counts_as_the_one_it_maps() {
        let caps = Arc::new(Caps::new(9, 1, Vec::new()));
        let _first = caps.enter("192.0.2.1".parse().unwrap()).unwrap();
        assert!(caps.enter("::ffff:192.0.2.1".parse().unwrap()).is_none());
    }
}
