//! Limits on open connections and requests, in total and per address.

use std::sync::Arc;

use anteroom_http::peer::{Peer, Peers};

use crate::connection::counter;
use crate::connection::counter::ConnectionCounter;

/// The limits on open connections and requests, over all threads.
#[derive(Debug)]
pub struct Caps {
    most: Most,
    connections: Arc<ConnectionCounter>,
    /// Requests of HTTP/2, which share a connection.
    requests: Arc<ConnectionCounter>,
}

/// The limits.
#[derive(Clone, Debug)]
pub struct Most {
    /// In total: connections, and HTTP/2 requests as well.
    pub all: usize,
    /// Connections from one address, once more than half of `all` are open.
    pub per_address: usize,
    /// Requests of HTTP/2 from one address.
    pub requests_per_address: usize,
    /// Trusted proxies; each may use the total limit.
    pub trusted: Vec<Peers>,
}

impl Caps {
    /// Limits `connections` and HTTP/2 `requests`.
    #[must_use]
    pub fn new(
        most: Most,
        connections: Arc<ConnectionCounter>,
        requests: Arc<ConnectionCounter>,
    ) -> Self {
        Self { most, connections, requests }
    }

    /// A slot for one more connection of any client; `None` at the cap.
    #[must_use]
    pub fn enter(self: &Arc<Self>) -> Option<CappedConnection> {
        let place = self.connections.enter(self.most.all)?;
        Some(CappedConnection { caps: Arc::clone(self), slot: place })
    }

    /// A slot for one more concurrent request of `peer`; `None` at a cap.
    #[must_use]
    pub fn enter_request(&self, peer: Peer) -> Option<counter::ReservedSlot> {
        let most = &self.most;
        let mut place = self.requests.enter(most.all)?;
        let is_free = peer.is_among(&most.trusted);
        (is_free || place.count_for(peer, most.requests_per_address)).then_some(place)
    }
}

/// The slot of one connection under the caps; released when dropped.
#[derive(Debug)]
pub struct CappedConnection {
    caps: Arc<Caps>,
    slot: counter::ReservedSlot,
}

impl CappedConnection {
    /// Counts the connection for `peer`, once that is known; false at the cap of the address.
    ///
    /// Many clients may share an address: an office, or all of them behind a load balancer that the configuration
    /// does not name. So the cap holds only while connections are scarce, and never for this machine itself.
    #[must_use]
    pub fn count_for(&mut self, peer: Peer) -> bool {
        let most = &self.caps.most;
        let is_local =
            peer.own_address().is_some_and(|address| address.to_canonical().is_loopback());
        let is_scarce = self.caps.connections.open() > most.all / 2;
        let limit = if is_scarce { most.per_address } else { usize::MAX };
        is_local || peer.is_among(&most.trusted) || self.slot.count_for(peer, limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Peer {
        Peer::at(text.parse().unwrap())
    }

    /// So many in all, and one from each address.
    fn at_most(all: usize, trusted: Vec<Peers>) -> Caps {
        let most = Most { all, per_address: 1, requests_per_address: 2, trusted };
        Caps::new(most, Arc::default(), Arc::default())
    }

    fn enter(caps: &Arc<Caps>, peer: Peer) -> Option<CappedConnection> {
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
        assert_eq!(caps.connections.open(), 3);
    }

    #[test]
    fn the_cap_of_an_address_holds_once_more_than_half_of_all_are_open() {
        let caps = Arc::new(at_most(6, Vec::new()));
        let (one, two) = (at("192.0.2.1"), at("192.0.2.2"));
        let mut open: Vec<_> = (0..3).map(|_| enter(&caps, one).unwrap()).collect();
        assert!(enter(&caps, one).is_none(), "it has three of six");
        open.push(enter(&caps, two).unwrap());
        assert!(enter(&caps, two).is_none());
        open.truncate(2);
        let _third = enter(&caps, one).unwrap();
    }

    #[test]
    fn this_machine_is_counted_in_all_only() {
        for address in ["127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1"] {
            let caps = Arc::new(at_most(3, Vec::new()));
            let _all: Vec<_> = (0..3).map(|_| enter(&caps, at(address)).unwrap()).collect();
            assert!(enter(&caps, at(address)).is_none(), "three in all");
        }
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
        assert_eq!(caps.connections.open(), 1);
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
    fn addresses_of_one_client_count_as_one() {
        for (address, other, is_one) in [
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("2001:db8::1", "2001:db8::ffff:2", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
        ] {
            let caps = Arc::new(at_most(3, Vec::new()));
            let _first = enter(&caps, at(address)).unwrap();
            assert_eq!(enter(&caps, at(other)).is_none(), is_one, "{other}");
            let _some: Vec<_> = (0..2).map(|_| caps.enter_request(at(address)).unwrap()).collect();
            assert_eq!(caps.enter_request(at(other)).is_none(), is_one, "{other}");
        }
    }
}
