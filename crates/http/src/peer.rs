//! The other end of a client connection, and the peers that an operator names in the settings.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// The other end of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// An IP address: the socket's, or the one that a load balancer sent in the PROXY protocol.
    Address(IpAddr),
    /// A process on this machine, connected over a Unix socket. It has no IP address.
    Unix,
    /// A load balancer that forwards a client without naming its address; the balancer's own address where it
    /// has one. The client could be anyone, so it is in no network, the balancer's included.
    Carried(Option<IpAddr>),
}

impl Peer {
    /// The peer at an address. An IPv4-mapped IPv6 address counts as the IPv4 address.
    #[must_use]
    pub fn at(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }

    /// The address for logging and for counting connections.
    #[must_use]
    pub fn address(self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(address),
            Self::Unix => None,
            Self::Carried(by) => by,
        }
    }

    /// The address, if it identifies the peer itself.
    #[must_use]
    pub fn own_address(self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(address),
            // The client that the balancer forwards is not the balancer.
            Self::Unix | Self::Carried(_) => None,
        }
    }

    /// Whether the peer is one of `named`.
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

/// Peers that an operator names in the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Peers with an address in this network.
    Network(IpNet),
    /// Peers on Unix sockets.
    Unix,
}

impl Peers {
    /// The network, if this is one.
    #[must_use]
    pub fn network(&self) -> Option<&IpNet> {
        match self {
            Self::Network(net) => Some(net),
            Self::Unix => None,
        }
    }

    /// An example peer of those named.
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

/// Address rules: which clients are served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRules {
    /// Networks that are served; if empty, all are.
    pub allow: Vec<IpNet>,
    /// Networks that are refused; this list takes precedence over `allow`.
    pub deny: Vec<IpNet>,
}

impl AddressRules {
    /// Whether a client with this address is served. A client without an address is in no network: it is
    /// refused if `allow` has entries, and served if only `deny` has.
    #[must_use]
    pub fn may_come(&self, address: Option<IpAddr>) -> bool {
        !is_in(address, &self.deny) && (self.allow.is_empty() || is_in(address, &self.allow))
    }
}

/// Whether an address is in one of the networks. An IPv4-mapped IPv6 address counts as the IPv4 address.
#[must_use]
pub fn is_in(address: Option<IpAddr>, networks: &[IpNet]) -> bool {
    let address = address.map(|address| address.to_canonical());
    address.is_some_and(|address| networks.iter().any(|net| net.contains(&address)))
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

    #[test]
    fn a_denied_or_not_allowed_address_is_not_served() {
        let nets =
            |text: &str| text.split_terminator(' ').map(|net| net.parse().unwrap()).collect();
        for (allow, deny, address, expected) in [
            ("", "", "192.0.2.1", true),
            ("", "", "", true),
            ("", "192.0.2.0/24", "192.0.2.1", false),
            ("", "192.0.2.0/24", "::ffff:192.0.2.1", false),
            ("", "192.0.2.0/24", "198.51.100.1", true),
            ("", "0.0.0.0/0", "2001:db8::1", true),
            ("", "0.0.0.0/0 ::/0", "", true),
            ("10.0.0.0/8 2001:db8::/32", "", "10.1.2.3", true),
            ("10.0.0.0/8 2001:db8::/32", "", "2001:db8::1", true),
            ("10.0.0.0/8", "", "192.0.2.1", false),
            ("0.0.0.0/0 ::/0", "", "", false),
            ("10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", false),
            ("10.0.0.0/8", "10.1.0.0/16", "10.2.2.3", true),
        ] {
            let rules = AddressRules { allow: nets(allow), deny: nets(deny) };
            assert_eq!(rules.may_come(address.parse().ok()), expected, "{rules:?} {address}");
        }
    }
}
