//! The first bytes of a load balancer's connection.

use anteroom_proxy::serve::proxy_protocol::{HEADER_MAX, Header, ProxiedClient, read};

/// Headers: known is what they tell at their last byte and not before, nothing behind them changes that,
/// and none is waited for beyond the bound.
pub(crate) fn proxy_protocol(data: &[u8]) {
    let found = read(data);
    let mut known = None;
    for end in 0..=data.len() {
        match (read(&data[..end]), known) {
            (Header::Partial, None) => assert!(end < HEADER_MAX),
            (now, None) => known = Some(now),
            (now, Some(before)) => assert_eq!(now, before),
        }
        if let (Some(Header::Whole(_, length)), true) = (known, end > 0) {
            assert!(length <= end && length <= HEADER_MAX);
        }
    }
    assert_eq!(known.unwrap_or(Header::Partial), found);
    if let Header::Whole(ProxiedClient::Client(address), _) = found {
        assert_eq!(address, address.to_canonical());
    }
}
