//! Accepting: caps in all and for each address, and patience when the system runs out of files.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt as _;
use tokio::task::coop::unconstrained;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{self, Arrival, Settings};
use super::listen::{BACKLOG, Entrance, Terms};
use super::stream::{Listener, Stream};
use crate::http::peer::{Peer, Peers};
use crate::proxy::WorkerContext;
use crate::proxy::connection::counter;
use crate::proxy::connection::counter::ConnectionCounter;
use crate::telemetry::metrics::{Count, Sheet};

/// How long to wait when accepting fails (out of file descriptors, mostly).
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(50);

/// How many connections and requests may be open, over all threads.
#[derive(Debug)]
pub struct Caps {
    most: ArcSwap<Most>,
    connections: Arc<ConnectionCounter>,
    /// Those of HTTP/2, which stand side by side on a connection.
    requests: Arc<ConnectionCounter>,
}

/// How many may be open.
#[derive(Clone, Debug)]
pub struct Most {
    /// In all: connections, and requests of HTTP/2 as well.
    pub all: usize,
    /// Connections from one address.
    pub per_address: usize,
    /// Requests of HTTP/2 from one address.
    pub requests_per_address: usize,
    /// Proxies, of which each may have as many as there may be in all.
    pub trusted: Vec<Peers>,
}

impl Caps {
    /// At most so many.
    #[must_use]
    pub fn new(most: Most) -> Self {
        let most = ArcSwap::from_pointee(most);
        Self { most, connections: Arc::default(), requests: Arc::default() }
    }

    /// So many from now on. Those that are open stay.
    pub fn change(&self, most: Most) {
        self.most.store(Arc::new(most));
    }

    /// Connections open now.
    #[must_use]
    pub fn open(&self) -> usize {
        self.connections.open()
    }

    /// WorkerContext for one more connection, whoever it is; `None` at the cap.
    #[must_use]
    pub fn enter(self: &Arc<Self>) -> Option<Place> {
        let place = self.connections.enter(self.most.load().all)?;
        Some(Place { caps: Arc::clone(self), place })
    }

    /// WorkerContext for one more request beside others on a connection of `peer`; `None` at a cap.
    #[must_use]
    pub fn enter_request(&self, peer: Peer) -> Option<counter::Place> {
        let most = self.most.load();
        let mut place = self.requests.enter(most.all)?;
        let is_free = peer.is_among(&most.trusted);
        (is_free || place.count_for(peer, most.requests_per_address)).then_some(place)
    }
}

/// One connection's place under the caps; given back when dropped.
#[derive(Debug)]
pub struct Place {
    caps: Arc<Caps>,
    place: counter::Place,
}

impl Place {
    /// Counts it for `peer`, once that is known; false where it has as many as it may.
    #[must_use]
    pub fn count_for(&mut self, peer: Peer) -> bool {
        let most = self.caps.most.load();
        peer.is_among(&most.trusted) || self.place.count_for(peer, most.per_address)
    }
}

/// What a thread needs to serve clients.
#[derive(Debug)]
pub struct Door {
    /// Caps, shared by all threads.
    pub caps: Arc<Caps>,
    /// This thread's counters.
    pub sheet: Arc<Sheet>,
    /// Ends accepting, and lets open connections finish.
    pub drain: CancellationToken,
    /// The connections that are open.
    pub connections: TaskTracker,
    /// What is behind it.
    pub inside: Inside,
}

/// What is behind the door, until a reload puts something else there.
#[derive(Debug)]
pub struct Inside {
    room: RefCell<Rc<WorkerContext>>,
    settings: Cell<Settings>,
}

impl Inside {
    /// This room, and these settings of each connection.
    #[must_use]
    pub fn new(room: Rc<WorkerContext>, settings: Settings) -> Self {
        Self { room: RefCell::new(room), settings: Cell::new(settings) }
    }

    /// Puts another room there: the next request of each connection is answered in it.
    pub fn change(&self, room: Rc<WorkerContext>, settings: Settings) {
        self.room.replace(room);
        self.settings.set(settings);
    }

    /// Where requests are answered now.
    #[must_use]
    pub fn room(&self) -> Rc<WorkerContext> {
        Rc::clone(&self.room.borrow())
    }

    /// The settings of a connection that begins now.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.settings.get()
    }
}

/// Accepts at `entrance` until told to drain; each connection is served in a task of its own.
pub async fn serve(entrance: Entrance, door: Rc<Door>) {
    let Entrance { listener, terms, closed } = entrance;
    let listener = match Listener::new(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "a worker cannot listen"),
    };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = door.drain.cancelled() => return,
            () = closed.cancelled() => return let_in_the_rest(&listener, &terms, &door),
        };
        match accepted {
            Ok((socket, peer)) => admit(Arrival::new(socket, peer, &terms), &door),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_BACK_OFF).await;
            }
        }
    }
}

/// Who stands in the queue of a listener that closes would be turned away by a reset.
fn let_in_the_rest(listener: &Listener, terms: &ArcSwap<Terms>, door: &Rc<Door>) {
    // No more than were in it: whoever goes on connecting would keep us here.
    for (socket, peer) in waiting(listener).take(usize::from(BACKLOG) + 1) {
        admit(Arrival::new(socket, peer, terms), door);
    }
}

/// Those who stand in the queue.
fn waiting(listener: &Listener) -> impl Iterator<Item = (Stream, Peer)> {
    // A task's budget would end before a long queue does.
    let next = || unconstrained(listener.accept()).now_or_never()?.ok();
    std::iter::from_fn(next)
}

/// Over a cap the connection is closed at once: an answer would cost what the cap protects.
fn admit(arrival: Arrival, door: &Rc<Door>) {
    door.sheet.count(Count::Accepted);
    // Who comes through a load balancer is looked at when that has told who it is.
    if !arrival.is_from_balancer() && !door.inside.room().settings.may_connect(arrival.peer) {
        return door.sheet.count(Count::ConnectionsDenied);
    }
    let place = door.caps.enter().and_then(|mut place| {
        // Who comes through a load balancer is counted when that has told who it is.
        (arrival.is_from_balancer() || place.count_for(arrival.peer)).then_some(place)
    });
    let Some(place) = place else {
        door.sheet.count(Count::ConnectionsRefused);
        return;
    };
    let door = Rc::clone(door);
    door.connections.clone().spawn_local(async move {
        connection::run(arrival, place, &door).await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Peer {
        Peer::at(text.parse().unwrap())
    }

    /// So many in all, and one from each address.
    fn at_most(all: usize, trusted: Vec<Peers>) -> Caps {
        Caps::new(Most { all, per_address: 1, requests_per_address: 2, trusted })
    }

    fn enter(caps: &Arc<Caps>, peer: Peer) -> Option<Place> {
        let mut place = caps.enter()?;
        place.count_for(peer).then_some(place)
    }

    #[test]
    fn caps_hold_in_all_and_for_each_address_and_give_back() {
        let trusted = vec![Peers::Network("10.0.0.0/8".parse().unwrap())];
        let caps = Arc::new(at_most(3, trusted));
        let (one, two, proxy) = (at("192.0.2.1"), at("192.0.2.2"), at("10.1.2.3"));
        let first = enter(&caps, one).unwrap();
        assert!(enter(&caps, one).is_none(), "one for each address");
        let _second = enter(&caps, two).unwrap();
        let _third = enter(&caps, proxy).unwrap();
        assert!(enter(&caps, proxy).is_none(), "three in all");
        drop(first);
        let _again = enter(&caps, one).unwrap();
        assert_eq!(caps.open(), 3);
    }

    #[test]
    fn requests_have_caps_of_their_own() {
        let caps = Arc::new(at_most(4, vec![Peers::Network("10.0.0.0/8".parse().unwrap())]));
        let one = at("192.0.2.1");
        let _connection = enter(&caps, one).unwrap();
        let first = caps.enter_request(one).unwrap();
        let _second = caps.enter_request(one).unwrap();
        assert!(caps.enter_request(one).is_none(), "two for each address");
        drop(first);
        let _third = caps.enter_request(one).unwrap();
        let _proxy = caps.enter_request(at("10.1.2.3")).unwrap();
        let _balancer = caps.enter_request(Peer::Carried(one.address())).unwrap();
        assert!(caps.enter_request(at("10.1.2.3")).is_none(), "four in all");
        assert_eq!(caps.open(), 1);
    }

    #[test]
    fn those_without_an_address_of_their_own_are_counted_in_all_only() {
        let balancer = Peer::Carried(at("192.0.2.1").address());
        for peer in [Peer::Unix, Peer::Carried(None), balancer] {
            let caps = Arc::new(at_most(3, Vec::new()));
            let _some: Vec<_> = (0..3).map(|_| enter(&caps, peer).unwrap()).collect();
            assert!(enter(&caps, peer).is_none(), "three in all");
            let _asked: Vec<_> = (0..3).map(|_| caps.enter_request(peer).unwrap()).collect();
            assert!(caps.enter_request(peer).is_none(), "three in all");
        }
    }

    #[test]
    fn of_those_who_wait_so_many_are_let_in_as_there_are_places() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = socket.local_addr().unwrap();
            socket.set_nonblocking(true).unwrap();
            let listener = Listener::new(crate::serve::Listener::Tcp(socket)).unwrap();
            let come = || std::net::TcpStream::connect(address).unwrap();
            let _clients: Vec<_> = (0..6).map(|_| come()).collect();
            let _first = listener.accept().await.unwrap();
            assert_eq!(waiting(&listener).take(3).count(), 3);
            assert_eq!(waiting(&listener).count(), 2);
        });
    }

    #[test]
    fn whoever_holds_an_address_is_one() {
        for (address, other, is_one) in [
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("2001:db8::1", "2001:db8::ffff:2", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
        ] {
            let caps = Arc::new(at_most(9, Vec::new()));
            let _first = enter(&caps, at(address)).unwrap();
            assert_eq!(enter(&caps, at(other)).is_none(), is_one, "{other}");
            let _some: Vec<_> = (0..2).map(|_| caps.enter_request(at(address)).unwrap()).collect();
            assert_eq!(caps.enter_request(at(other)).is_none(), is_one, "{other}");
        }
    }
}
