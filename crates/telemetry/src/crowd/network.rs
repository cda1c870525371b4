//! The network of a visitor, which is all that is kept of an address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A /24 of IPv4, or a /48 of IPv6, by its first address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Network(IpAddr);

/// The network of an address.
pub(super) fn network(address: IpAddr) -> Network {
    Network(match address.to_canonical() {
        IpAddr::V4(address) => Ipv4Addr::from(u32::from(address) & !0xff).into(),
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 80 << 80).into(),
    })
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = if self.0.is_ipv4() { 24 } else { 48 };
        write!(f, "{}/{bits}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_whole_address_is_kept() {
        for (address, of) in [
            ("192.0.2.77", "192.0.2.0/24"),
            ("::ffff:192.0.2.77", "192.0.2.0/24"),
            ("2001:db8:1:2::3", "2001:db8:1::/48"),
        ] {
            assert_eq!(network(address.parse().unwrap()).to_string(), of);
        }
    }
}
