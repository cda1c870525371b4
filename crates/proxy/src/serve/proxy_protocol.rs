//! The PROXY protocol, versions 1 and 2: the header by which a load balancer names its client before any
//! other data.
//!
//! Pure: bytes in, client out. Which peers send the header is decided elsewhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest header of version 1, with its line end.
const LINE_MAX: usize = 107;
/// What a header of version 2 begins with.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family, and length.
const FIXED: usize = 16;
/// The longest addresses: those of two Unix sockets.
const ADDRESSES_MAX: usize = 216;
/// The most bytes of extensions (TLVs), which are ignored.
const TLV_BYTES_MAX: usize = 2048;

/// The longest accepted header.
pub const HEADER_MAX: usize = FIXED + ADDRESSES_MAX + TLV_BYTES_MAX;

/// The client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxiedClient {
    /// The load balancer itself, for a health check.
    LoadBalancer,
    /// A client at this address.
    Client(IpAddr),
    /// A client at an unknown address.
    Unknown,
}

/// The meaning of the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// A header of so many bytes.
    Whole(ProxiedClient, usize),
    /// The beginning of one.
    Partial,
    /// Not a header, nor the beginning of one.
    Malformed,
}

/// Reads the header at the beginning of `bytes`. Never [`Header::Partial`] at [`HEADER_MAX`] bytes.
#[must_use]
pub fn read(bytes: &[u8]) -> Header {
    let begins = |with: &[u8]| bytes.iter().zip(with).all(|(one, other)| one == other);
    let found = if begins(SIGNATURE) {
        binary(bytes)
    } else if begins(b"PROXY ") {
        line(bytes)
    } else {
        None
    };
    found.unwrap_or(Header::Malformed)
}

/// Version 1: a line such as `PROXY TCP4 192.0.2.1 198.51.100.1 56324 443`.
fn line(bytes: &[u8]) -> Option<Header> {
    let within = &bytes[..bytes.len().min(LINE_MAX)];
    let Some(end) = within.iter().position(|byte| *byte == b'\n') else {
        return (bytes.len() < LINE_MAX).then_some(Header::Partial);
    };
    let text = std::str::from_utf8(bytes[..end].strip_suffix(b"\r")?).ok()?;
    let words = text.strip_prefix("PROXY ")?;
    let source = match words.split_once(' ') {
        _ if words == "UNKNOWN" => ProxiedClient::Unknown,
        Some(("UNKNOWN", _)) => ProxiedClient::Unknown,
        Some(("TCP4", ends)) => ProxiedClient::Client(client::<Ipv4Addr>(ends)?),
        Some(("TCP6", ends)) => ProxiedClient::Client(client::<Ipv6Addr>(ends)?),
        _ => return None,
    };
    Some(Header::Whole(source, end + 1))
}

/// The first of two addresses, which two ports follow.
fn client<T: std::str::FromStr + Into<IpAddr>>(ends: &str) -> Option<IpAddr> {
    let mut words = ends.split(' ');
    let client: T = words.next()?.parse().ok()?;
    let _: T = words.next()?.parse().ok()?;
    let ports = [words.next()?, words.next()?];
    let fits = ports.into_iter().all(is_port) && words.next().is_none();
    fits.then(|| client.into().to_canonical())
}

fn is_port(text: &str) -> bool {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    digits && (text == "0" || !text.starts_with('0')) && text.parse::<u16>().is_ok()
}

/// Version 2: lengths and addresses as bytes.
fn binary(bytes: &[u8]) -> Option<Header> {
    let Some((head, rest)) = bytes.split_first_chunk::<FIXED>() else {
        return Some(Header::Partial);
    };
    let [.., command, family, high, low] = *head;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > ADDRESSES_MAX + TLV_BYTES_MAX {
        return None;
    }
    // Family and transport: the least bytes of their addresses.
    let least = match (command, family) {
        (0x20, _) | (0x21, 0x00) => 0,
        (0x21, 0x11) => 12,
        (0x21, 0x21) => 36,
        (0x21, 0x31) => ADDRESSES_MAX,
        _ => return None,
    };
    if length < least {
        return None;
    }
    let Some(said) = rest.get(..length) else {
        return Some(Header::Partial);
    };
    let source = match (command, family) {
        (0x20, _) => ProxiedClient::LoadBalancer,
        (_, 0x11) => ProxiedClient::Client(Ipv4Addr::from(*said.first_chunk::<4>()?).into()),
        (_, 0x21) => {
            let address = IpAddr::from(Ipv6Addr::from(*said.first_chunk::<16>()?));
            ProxiedClient::Client(address.to_canonical())
        }
        _ => ProxiedClient::Unknown,
    };
    Some(Header::Whole(source, FIXED + length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> ProxiedClient {
        ProxiedClient::Client(text.parse().unwrap())
    }

    fn v2(command: u8, family: u8, said: &[u8]) -> Vec<u8> {
        let length = u16::try_from(said.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, said].concat()
    }

    #[test]
    fn a_line_tells_the_client() {
        for (line, source) in [
            ("PROXY TCP4 192.0.2.1 198.51.100.1 56324 443", at("192.0.2.1")),
            ("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535", at("255.255.255.255")),
            ("PROXY TCP4 192.0.2.1 198.51.100.1 0 0", at("192.0.2.1")),
            ("PROXY TCP6 2001:db8::1 ::1 1 2", at("2001:db8::1")),
            ("PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2", at("192.0.2.1")),
            ("PROXY UNKNOWN", ProxiedClient::Unknown),
            ("PROXY UNKNOWN ffff::1 anything at all", ProxiedClient::Unknown),
        ] {
            let bytes = format!("{line}\r\nGET / HTTP/1.1\r\n");
            assert_eq!(read(bytes.as_bytes()), Header::Whole(source, line.len() + 2), "{line}");
            for end in 0..line.len() + 2 {
                assert_eq!(read(&bytes.as_bytes()[..end]), Header::Partial, "{line} {end}");
            }
        }
    }

    #[test]
    fn a_line_that_is_not_exact_tells_nothing() {
        for line in [
            "PROXY",
            "PROXY ",
            "PROXY  TCP4 192.0.2.1 198.51.100.1 1 2",
            "PROXY TCP4 192.0.2.1 198.51.100.1 1",
            "PROXY TCP4 192.0.2.1 198.51.100.1 1 2 ",
            "PROXY TCP4 192.0.2.1 198.51.100.1 1 2 3",
            "PROXY TCP4 192.0.2.1  198.51.100.1 1 2",
            "PROXY TCP4 192.0.2.01 198.51.100.1 1 2",
            "PROXY TCP4 192.0.2 198.51.100.1 1 2",
            "PROXY TCP4 192.0.2.1 somewhere 1 2",
            "PROXY TCP4 192.0.2.1 198.51.100.1 +1 2",
            "PROXY TCP4 192.0.2.1 198.51.100.1 01 2",
            "PROXY TCP4 192.0.2.1 198.51.100.1 1 65536",
            "PROXY TCP4 192.0.2.1 198.51.100.1 1 ",
            "PROXY TCP4 2001:db8::1 ::1 1 2",
            "PROXY TCP6 192.0.2.1 198.51.100.1 1 2",
            "PROXY UDP4 192.0.2.1 198.51.100.1 1 2",
            "PROXY UNKNOWNS",
            "proxy TCP4 192.0.2.1 198.51.100.1 1 2",
            "PROXY TCP4 192.0.2.1 198.51.100.1 1 2\n",
            "PROXY UNKNOWN\nPROXY UNKNOWN",
            "GET / HTTP/1.1",
        ] {
            assert_eq!(read(format!("{line}\r\n").as_bytes()), Header::Malformed, "{line:?}");
        }
        assert_eq!(read(b"PROXY TCP4 192.0.2.1 198.51.100.1 1 2\nGET"), Header::Malformed);
    }

    #[test]
    fn a_line_has_a_bound() {
        let line = |length: usize| format!("PROXY UNKNOWN {}\r\n", "x".repeat(length - 16));
        let longest = line(LINE_MAX);
        assert_eq!(read(longest.as_bytes()), Header::Whole(ProxiedClient::Unknown, LINE_MAX));
        assert_eq!(read(line(LINE_MAX + 1).as_bytes()), Header::Malformed);
        assert_eq!(read(&line(400).as_bytes()[..LINE_MAX]), Header::Malformed);
    }

    #[test]
    fn bytes_tell_the_client() {
        let v4 = [192, 0, 2, 1, 198, 51, 100, 1, 0, 1, 0, 2];
        let mut v6 = [0; 36];
        v6[..16].copy_from_slice(&"2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        let with_words = [&v4[..], &[3, 0, 2, 7, 7]].concat();
        let most = [&[0; ADDRESSES_MAX][..], &[0; TLV_BYTES_MAX]].concat();
        for (bytes, source) in [
            (v2(0x21, 0x11, &v4), at("192.0.2.1")),
            (v2(0x21, 0x11, &with_words), at("192.0.2.1")),
            (v2(0x21, 0x21, &v6), at("2001:db8::1")),
            (v2(0x21, 0x31, &[7; 216]), ProxiedClient::Unknown),
            (v2(0x21, 0x31, &most), ProxiedClient::Unknown),
            (v2(0x21, 0x00, &[]), ProxiedClient::Unknown),
            (v2(0x21, 0x00, &v4), ProxiedClient::Unknown),
            (v2(0x20, 0x00, &[]), ProxiedClient::LoadBalancer),
            (v2(0x20, 0x11, &v4), ProxiedClient::LoadBalancer),
        ] {
            assert_eq!(read(&[&bytes[..], b"GET"].concat()), Header::Whole(source, bytes.len()));
            assert!(bytes.len() <= HEADER_MAX);
            for end in 0..bytes.len() {
                assert_eq!(read(&bytes[..end]), Header::Partial, "{end}");
            }
        }
    }

    #[test]
    fn bytes_that_are_not_exact_tell_nothing() {
        let too_long = [0; ADDRESSES_MAX + TLV_BYTES_MAX + 1];
        for bytes in [
            v2(0x11, 0x11, &[0; 12]),
            v2(0x22, 0x11, &[0; 12]),
            v2(0x21, 0x11, &[0; 11]),
            v2(0x21, 0x21, &[0; 35]),
            v2(0x21, 0x31, &[0; 215]),
            v2(0x21, 0x12, &[0; 12]),
            v2(0x21, 0x41, &[0; 12]),
            v2(0x21, 0x01, &[0; 12]),
            v2(0x21, 0x11, &too_long),
        ] {
            assert_eq!(read(&bytes), Header::Malformed);
            assert_eq!(read(&bytes[..FIXED]), Header::Malformed, "before the rest is waited for");
        }
    }

    proptest! {
        #[test]
        fn bytes_after_the_header_change_nothing(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
            more in prop::collection::vec(any::<u8>(), 0..64),
            begin in 0_usize..3,
        ) {
            let begin: &[u8] = [&b"PROXY "[..], &SIGNATURE[..], b""][begin];
            let bytes = [begin, &bytes].concat();
            let all = [&bytes[..], &more].concat();
            match read(&bytes) {
                Header::Partial => {}
                known => prop_assert_eq!(read(&all), known),
            }
        }
    }
}
