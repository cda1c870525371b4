//! Who is at the other end of a connection, and whom an operator names.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// The other end of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// An address: the socket's, or the one that a load balancer told (the PROXY protocol).
    Address(IpAddr),
    /// A process on this machine, over a Unix socket. As an address it is nobody.
    Unix,
    /// A load balancer, with its address where it has one, that carries somebody and does not say
    /// whom. He could be anyone, so he is in no network, not even in that of the balancer.
    Carried(Option<IpAddr>),
}

impl Peer {
    /// The peer at an address; one of IPv4 that is mapped into IPv6 counts as itself.
    #[must_use]
    pub fn at(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }

    /// Its address, for the log and for counting.
    #[must_use]
    pub fn address(self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(address),
            Self::Unix => None,
            Self::Carried(by) => by,
        }
    }

    /// Whether one of `named` means it.
    #[must_use]
    pub fn is_among(self, named: &[Peers]) -> bool {
        named.iter().any(|peers| match (peers, self) {
            (Peers::Network(net), Self::Address(address)) => net.contains(&address),
            (Peers::Unix, Self::Unix) => true,
            _ => false,
        })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) | Self::Carried(Some(address)) => address.fmt(f),
            Self::Unix | Self::Carried(None) => f.write_str("unix"),
        }
    }
}

/// Peers as an operator names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Those with an address in a network.
    Network(IpNet),
    /// Those on Unix sockets.
    Unix,
}

impl Peers {
    /// The network, where it is one.
    #[must_use]
    pub fn network(&self) -> Option<&IpNet> {
        match self {
            Self::Network(net) => Some(net),
            Self::Unix => None,
        }
    }

    /// One of those that are meant.
    #[must_use]
    pub fn one(&self) -> Peer {
        match self {
            Self::Network(net) => Peer::at(net.addr()),
            Self::Unix => Peer::Unix,
        }
    }
}

impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(net) => net.fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_meant_by_its_own_name_only() {
        let all = Peers::Network("0.0.0.0/0".parse().unwrap());
        let ours = Peers::Network("10.0.0.0/8".parse().unwrap());
        let at = |text: &str| Peer::at(text.parse().unwrap());
        let balancer = Peer::Carried(at("10.0.0.1").address());
        for (peer, named, expected) in [
            (at("10.0.0.1"), &[ours][..], true),
            (at("::ffff:10.0.0.1"), &[ours], true),
            (at("192.0.2.1"), &[ours], false),
            (at("192.0.2.1"), &[ours, all], true),
            (at("192.0.2.1"), &[Peers::Unix], false),
            (at("192.0.2.1"), &[], false),
            (Peer::Unix, &[all], false),
            (Peer::Unix, &[ours, Peers::Unix], true),
            (balancer, &[ours, all, Peers::Unix], false),
            (Peer::Carried(None), &[all, Peers::Unix], false),
        ] {
            assert_eq!(peer.is_among(named), expected, "{peer:?} {named:?}");
        }
    }
}
