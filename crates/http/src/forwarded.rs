//! Forwarding fields (RFC 7239, RFC 9110 §7.6.3): the client's address and scheme as
//! trusted proxies report them, the fields that are removed, and the fields that this proxy writes.
//!
//! The trusted proxies are an argument; hop-by-hop fields are in `hop.rs`, traces in `trace_context.rs`.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

use ::http::header::{FORWARDED, VIA};
use ::http::{HeaderMap, HeaderName, HeaderValue, Version};

use super::host::{Host, Scheme};
use super::list::{divide, members, split, trim};
use super::peer::{Peer, Peers};
use super::remove::remove_fields;

/// `Anteroom-Login`: the user whom the origin has logged in.
pub static ANTEROOM_LOGIN: HeaderName = HeaderName::from_static("anteroom-login");
/// `x-forwarded-for`
pub static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// `x-forwarded-proto`
pub static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// `x-forwarded-host`
pub static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Whether two field names are the same to an origin that maps names as CGI and WSGI do: in any case, with
/// every byte other than a letter or digit read as `-`.
#[must_use]
pub fn same_name(name: &str, other: &str) -> bool {
    name.len() == other.len() && canonical(name).eq(canonical(other))
}

/// The bytes of a field name after the mapping of CGI and WSGI.
fn canonical(name: &str) -> impl Iterator<Item = u8> + '_ {
    name.bytes().map(|b| if b.is_ascii_alphanumeric() { b.to_ascii_lowercase() } else { b'-' })
}

fn begins(name: &str, start: &str) -> bool {
    name.len() >= start.len() && canonical(name).take(start.len()).eq(start.bytes())
}

fn is_listed(name: &str, names: &[&str], starts: &[&str]) -> bool {
    names.iter().any(|listed| same_name(name, listed))
        || starts.iter().any(|start| begins(name, start))
}

/// Whether a client is forbidden to send the field `name`: forwarding and client-certificate fields, the
/// proxy's `Anteroom-*`, and `Proxy`, which CGI turns into the variable `HTTP_PROXY` (CVE-2016-5385). The
/// name of the identity field is configurable: compare it with [`same_name`].
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    is_forwarding(name)
        || is_client_certificate(name)
        || is_set_by_the_proxy(name)
        || same_name(name, "proxy")
}

/// Whether the field `name` is one of this proxy's own.
#[must_use]
pub fn is_set_by_the_proxy(name: &str) -> bool {
    is_listed(name, &[], &["anteroom-", "x-anteroom-"])
}

/// Whether an origin could read the field `name` as a proxy's statement about client, scheme or host.
#[must_use]
pub fn is_forwarding(name: &str) -> bool {
    is_listed(name, FORWARDING, &["x-forwarded-", "x-original-", "forwarded-"])
}

/// Whether an origin could read the field `name` as a proxy's statement about a client certificate.
#[must_use]
pub fn is_client_certificate(name: &str) -> bool {
    is_listed(name, CLIENT_CERTIFICATE, CLIENT_CERTIFICATE_STARTS)
}

/// Whether an origin could let the field `name` override the path, host or method of the request. Such fields
/// are not part of the cache key, so they are removed from every request whose response may be shared.
#[must_use]
pub fn is_override(name: &str) -> bool {
    is_listed(name, OVERRIDES, &[])
}

/// Whether an origin could let the field `name` override the path or host of the request.
#[must_use]
pub fn is_detour(name: &str) -> bool {
    is_override(name) && !is_other_method(name)
}

/// Whether an origin could let the field `name` override the method of the request.
#[must_use]
pub fn is_other_method(name: &str) -> bool {
    is_override(name)
        && ["x-http-method", "x-method", "x-original-method"]
            .iter()
            .any(|start| begins(name, start))
}

/// Whether the name contains an underscore, which CGI and WSGI cannot distinguish from `-`.
#[must_use]
pub fn has_underscore(name: &str) -> bool {
    name.contains('_')
}

/// The client's address. This is the address of `peer`, unless `peer` is a trusted proxy. Then it is the
/// right-most untrusted address of `X-Forwarded-For`, or of `Forwarded` if there is no `X-Forwarded-For`. The
/// search stops at a member that is not an address: everything to its left has an unknown author.
#[must_use]
pub fn client_address(peer: Peer, headers: &HeaderMap, trusted: &[Peers]) -> Option<IpAddr> {
    let mut nearest = peer.own_address();
    if !peer.is_among(trusted) {
        return nearest;
    }
    for found in claimed_addresses(headers).into_iter().rev() {
        let Some(address) = found else {
            break;
        };
        nearest = Some(address);
        if !Peer::at(address).is_among(trusted) {
            break;
        }
    }
    nearest
}

/// The scheme that the client used. This is the scheme of `connection`, unless `peer` is trusted and reports
/// another in the last member of `X-Forwarded-Proto` or the last `proto` of `Forwarded`.
#[must_use]
pub fn client_scheme(
    peer: Peer,
    connection: Scheme,
    headers: &HeaderMap,
    trusted: &[Peers],
) -> Scheme {
    if !peer.is_among(trusted) {
        return connection;
    }
    let plain = members(headers, &X_FORWARDED_PROTO).last().and_then(Scheme::parse);
    let standard = || {
        let element = members(headers, &FORWARDED).last()?;
        Scheme::parse(&forwarded_parameter(element, b"proto")?)
    };
    plain.or_else(standard).unwrap_or(connection)
}

/// The `X-Forwarded-For` for the origin: the client's address alone. The proxies between the client and this
/// one are left out.
#[must_use]
pub fn x_forwarded_for(client: IpAddr) -> HeaderValue {
    let mut text = String::with_capacity(ADDRESS_LENGTH);
    push_address(&mut text, client.to_canonical());
    value(text)
}

/// The usual length of an address, in bytes.
const ADDRESS_LENGTH: usize = "255.255.255.255".len();

/// Appends an address. PERF: its `Display` takes several times as long for IPv4.
fn push_address(text: &mut String, address: IpAddr) {
    let IpAddr::V4(address) = address else {
        // Writing to a string cannot fail.
        let _ = write!(text, "{address}");
        return;
    };
    for (at, octet) in address.octets().into_iter().enumerate() {
        if at > 0 {
            text.push('.');
        }
        text.push_str(itoa::Buffer::new().format(octet));
    }
}

/// The `X-Forwarded-Proto` for the origin.
#[must_use]
pub fn x_forwarded_proto(scheme: Scheme) -> HeaderValue {
    HeaderValue::from_static(scheme.as_str())
}

/// The `X-Forwarded-Host` and `Host` for the origin.
#[must_use]
pub fn host(host: &Host) -> HeaderValue {
    value(host.as_str().to_owned())
}

/// The `Forwarded` for the origin (RFC 7239 §4). IPv6 addresses are in brackets and quotes (§6), a client
/// without an address is `unknown` (§6.2), and a host with a port or brackets is in quotes.
#[must_use]
pub fn forwarded(client: Option<IpAddr>, host: &Host, scheme: Scheme) -> HeaderValue {
    let mut text = String::with_capacity(64 + host.as_str().len());
    text.push_str("for=");
    match client.map(|client| client.to_canonical()) {
        Some(address @ IpAddr::V4(_)) => push_address(&mut text, address),
        Some(address @ IpAddr::V6(_)) => {
            text.push_str("\"[");
            push_address(&mut text, address);
            text.push_str("]\"");
        }
        None => text.push_str("unknown"),
    }
    let quote = if host.as_str().contains([':', '[']) { "\"" } else { "" };
    for part in [";host=", quote, host.as_str(), quote, ";proto=", scheme.as_str()] {
        text.push_str(part);
    }
    value(text)
}

/// The fields for the origin that name a client and the host that it asked for.
#[derive(Clone, Debug)]
pub struct ForwardingFields {
    address: Option<IpAddr>,
    scheme: Scheme,
    /// `Host` and `X-Forwarded-Host`.
    pub host: HeaderValue,
    /// [`x_forwarded_for`], for a client with an address.
    pub x_forwarded_for: Option<HeaderValue>,
    /// [`forwarded`].
    pub forwarded: HeaderValue,
}

impl ForwardingFields {
    /// The fields of such a client.
    #[must_use]
    pub fn new(address: Option<IpAddr>, host: &Host, scheme: Scheme) -> Self {
        Self {
            address,
            scheme,
            host: self::host(host),
            x_forwarded_for: address.map(x_forwarded_for),
            forwarded: forwarded(address, host, scheme),
        }
    }

    /// Whether they are those of this client and host.
    #[must_use]
    pub fn are_of(&self, address: Option<IpAddr>, host: &Host, scheme: Scheme) -> bool {
        self.address == address
            && self.scheme == scheme
            && self.host.as_bytes() == host.as_str().as_bytes()
    }
}

/// Adds this proxy to `Via` under the pseudonym `anteroom` (RFC 9110 §7.6.3), with the HTTP version in which
/// the message was received.
pub fn append_via(headers: &mut HeaderMap, received: Version) {
    let entry = match received {
        Version::HTTP_09 => "0.9 anteroom",
        Version::HTTP_10 => "1.0 anteroom",
        Version::HTTP_2 => "2.0 anteroom",
        Version::HTTP_3 => "3.0 anteroom",
        _ => "1.1 anteroom",
    };
    headers.append(VIA, HeaderValue::from_static(entry));
}

/// The addresses in the forwarding fields, from the farthest hop to the nearest; `None` for a member that is
/// not an address.
fn claimed_addresses(headers: &HeaderMap) -> Vec<Option<IpAddr>> {
    if headers.contains_key(&X_FORWARDED_FOR) {
        return headers
            .get_all(&X_FORWARDED_FOR)
            .iter()
            .flat_map(|line| line.as_bytes().split(|&b| b == b','))
            .map(|member| address(trim(member)))
            .collect();
    }
    members(headers, &FORWARDED)
        .map(|element| address(&forwarded_parameter(element, b"for")?))
        .collect()
}

/// The value of `name` in one element of `Forwarded`, without quotes.
fn forwarded_parameter(element: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let value = split(element, b';').find_map(|pair| {
        let (found, value) = divide(pair, b'=');
        value.filter(|_| trim(found).eq_ignore_ascii_case(name))
    })?;
    match trim(value) {
        [b'"', inner @ .., b'"'] => Some(inner.iter().copied().filter(|&b| b != b'\\').collect()),
        plain => Some(plain.to_vec()),
    }
}

/// Parses an address as proxies write it: bare, or for IPv6 in brackets, optionally with a port.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (inner, port) = rest.split_once(']')?;
        let address = inner.parse::<Ipv6Addr>().ok()?;
        return is_port_or_nothing(port).then(|| IpAddr::V6(address).to_canonical());
    }
    let (host, port) = text.split_once(':')?;
    port.parse::<u16>().ok()?;
    host.parse().ok().map(IpAddr::V4)
}

fn is_port_or_nothing(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
}

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("addresses, checked hosts and hex digits are visible ASCII")
}

const FORWARDING: &[&str] = &[
    "forwarded",
    "x-forwarded",
    "x-real-ip",
    "x-client-ip",
    "client-ip",
    "x-clientip",
    "true-client-ip",
    "x-true-client-ip",
    "x-cluster-client-ip",
    "x-remote-ip",
    "x-remote-addr",
    "remote-addr",
    "x-originating-ip",
    "x-proxyuser-ip",
    "x-real-port",
    "x-scheme",
    "x-url-scheme",
    "x-protocol",
    "front-end-https",
    "x-https",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-pseudo-ipv4",
    "cf-visitor",
    "fastly-client-ip",
    "fastly-ssl",
    "fly-client-ip",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-appengine-user-ip",
    "x-appengine-remote-addr",
    "x-envoy-external-address",
    "x-nf-client-connection-ip",
    "cloudfront-viewer-address",
    "cloudfront-forwarded-proto",
    "wl-proxy-client-ip",
    "proxy-client-ip",
    "x-arr-ssl",
    "x-arr-log-id",
];

const CLIENT_CERTIFICATE: &[&str] = &[
    // RFC 9440
    "client-cert",
    "client-cert-chain",
    "x-arr-clientcert",
    "x-clientcert",
    "wl-proxy-client-cert",
    "x-client-verify",
    "x-client-dn",
    "x-client-s-dn",
    "x-client-i-dn",
    "client-certificate",
    "ssl-cert",
    "x-ssl",
];

const CLIENT_CERTIFICATE_STARTS: &[&str] = &[
    "x-client-cert",
    "x-ssl-",
    "ssl-client-",
    "x-mtls-",
    "x-tls-client-",
    "tls-client-",
    "x-amzn-mtls-",
    "cf-client-cert",
    "cf-cert-",
];

const OVERRIDES: &[&str] = &[
    "x-original-url",
    "x-original-uri",
    "x-original-host",
    "x-original-method",
    "x-rewrite-url",
    "x-rewrite-uri",
    "x-override-url",
    "x-host",
    "x-http-host-override",
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-http-path-override",
];

/// Removes from a response the fields that the origin addresses to this proxy.
pub fn remove_own(headers: &mut HeaderMap) {
    remove_fields(headers, |name| is_set_by_the_proxy(name.as_str()));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(lines: &[(&str, &str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| {
                (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
            })
            .collect()
    }

    fn at(text: &str) -> Peer {
        Peer::at(text.parse().unwrap())
    }

    fn trusted() -> Vec<Peers> {
        ["10.0.0.0/8", "fd00::/8"].map(|net| Peers::Network(net.parse().unwrap())).to_vec()
    }

    #[test]
    fn names_that_speak_for_a_proxy_are_reserved_however_they_are_written() {
        for name in [
            "forwarded",
            "x-forwarded-for",
            "x_forwarded_for",
            "x-forwarded_proto",
            "X-FORWARDED-HOST",
            "x-forwarded-anything",
            "x.forwarded.for",
            "x-real-ip",
            "x_real_ip",
            "true-client-ip",
            "cf-connecting-ip",
            "x-cluster-client-ip",
            "x-original-url",
            "x-original-forwarded-for",
            "client-cert",
            "client_cert",
            "Client-Cert-Chain",
            "X.Anteroom.Client.Cert.Subject",
            "x_anteroom_client_cert_fingerprint",
            "x-ssl-cert",
            "X-SSL-Issuer",
            "x_client_certificate",
            "x-ssl-client-verify",
            "ssl_client_s_dn",
            "x-client-cert-chain",
            "x-amzn-mtls-clientcert",
            "cf-cert-verified",
            "cf-client-cert",
            "x-forwarded-client-cert",
            "anteroom-login",
            "anteroom_login",
            "anteroom~x",
            "x-anteroom-user",
            "x_anteroom_user",
            "x-anteroom_session",
            "proxy",
            "PROXY",
        ] {
            assert!(is_reserved(name), "{name}");
        }
    }

    #[test]
    fn other_names_are_not_reserved() {
        for name in [
            "host",
            "cookie",
            "via",
            "accept",
            "user-agent",
            "x-requested-with",
            "proxy-authorization",
            "x-forward",
            "x-real",
            "xforwardedfor",
            "anteroom",
            "x-client-version",
            "traceparent",
            "x",
            "",
        ] {
            assert!(!is_reserved(name), "{name}");
        }
    }

    #[test]
    fn overrides_are_known() {
        for name in [
            "x-original-url",
            "X_Rewrite_URL",
            "x-host",
            "x-http-method-override",
            "x-method-override",
        ] {
            assert!(is_override(name), "{name}");
        }
        for name in ["host", "x-hosts", "x-http", "x-requested-with"] {
            assert!(!is_override(name), "{name}");
        }
    }

    #[test]
    fn the_client_is_the_right_most_address_that_is_not_trusted() {
        for (peer, lines, expected) in [
            ("192.0.2.1", &[][..], "192.0.2.1"),
            ("192.0.2.1", &[("x-forwarded-for", "198.51.100.1")], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &[("x-forwarded-for", "198.51.100.1")], "198.51.100.1"),
            ("::ffff:10.0.0.1", &[("x-forwarded-for", "198.51.100.1")], "198.51.100.1"),
            ("10.0.0.1", &[("x-forwarded-for", "6.6.6.6, 198.51.100.1, 10.0.0.2")], "198.51.100.1"),
            (
                "10.0.0.1",
                &[("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "198.51.100.1")],
                "198.51.100.1",
            ),
            ("10.0.0.1", &[("x-forwarded-for", "10.0.0.3, 10.0.0.2")], "10.0.0.3"),
            ("10.0.0.1", &[("x-forwarded-for", "6.6.6.6, garbage, 10.0.0.2")], "10.0.0.2"),
            ("10.0.0.1", &[("x-forwarded-for", "6.6.6.6,, 10.0.0.2")], "10.0.0.2"),
            ("10.0.0.1", &[("x-forwarded-for", "garbage")], "10.0.0.1"),
            ("10.0.0.1", &[("x-forwarded-for", "")], "10.0.0.1"),
            ("10.0.0.1", &[("x-forwarded-for", "198.51.100.1:5000")], "198.51.100.1"),
            ("10.0.0.1", &[("x-forwarded-for", "198.51.100.1:x")], "10.0.0.1"),
            ("10.0.0.1", &[("x-forwarded-for", "2001:db8::1")], "2001:db8::1"),
            ("10.0.0.1", &[("x-forwarded-for", "[2001:db8::1]")], "2001:db8::1"),
            ("fd00::1", &[("x-forwarded-for", "[2001:db8::1]:443")], "2001:db8::1"),
            ("10.0.0.1", &[("forwarded", "for=198.51.100.1;proto=https")], "198.51.100.1"),
            ("10.0.0.1", &[("forwarded", "For=\"[2001:db8::1]:4711\"")], "2001:db8::1"),
            (
                "10.0.0.1",
                &[("forwarded", "for=6.6.6.6, for=198.51.100.1, for=10.0.0.2")],
                "198.51.100.1",
            ),
            ("10.0.0.1", &[("forwarded", "for=6.6.6.6, for=unknown, for=10.0.0.2")], "10.0.0.2"),
            ("10.0.0.1", &[("forwarded", "for=6.6.6.6, proto=https")], "10.0.0.1"),
            ("10.0.0.1", &[("forwarded", "for=\"_a,for=6.6.6.6\"")], "10.0.0.1"),
            (
                "10.0.0.1",
                &[("forwarded", "for=6.6.6.6"), ("x-forwarded-for", "198.51.100.1")],
                "198.51.100.1",
            ),
        ] {
            let found = client_address(at(peer), &request(lines), &trusted());
            assert_eq!(found, expected.parse().ok(), "{peer} {lines:?}");
        }
    }

    #[test]
    fn a_peer_without_an_address_is_believed_where_it_is_trusted_by_name() {
        let claim = request(&[("x-forwarded-for", "198.51.100.1"), ("x-forwarded-proto", "https")]);
        let claimed = "198.51.100.1".parse().ok();
        for (peer, trusted, address, scheme) in [
            (Peer::Unix, trusted(), None, Scheme::Http),
            (Peer::Unix, vec![Peers::Unix], claimed, Scheme::Https),
            (Peer::Carried(None), vec![Peers::Unix], None, Scheme::Http),
            (Peer::Carried(at("10.0.0.1").address()), trusted(), None, Scheme::Http),
        ] {
            assert_eq!(client_address(peer, &claim, &trusted), address, "{peer:?}");
            assert_eq!(client_scheme(peer, Scheme::Http, &claim, &trusted), scheme, "{peer:?}");
        }
        assert_eq!(client_address(Peer::Unix, &HeaderMap::new(), &[Peers::Unix]), None);
    }

    #[test]
    fn the_scheme_is_believed_of_trusted_peers_only() {
        for (peer, lines, expected) in [
            ("10.0.0.1", &[][..], Scheme::Http),
            ("10.0.0.1", &[("x-forwarded-proto", "https")], Scheme::Https),
            ("10.0.0.1", &[("x-forwarded-proto", "HTTPS")], Scheme::Https),
            ("10.0.0.1", &[("x-forwarded-proto", "http, https")], Scheme::Https),
            ("10.0.0.1", &[("x-forwarded-proto", "garbage")], Scheme::Http),
            ("10.0.0.1", &[("forwarded", "for=1.2.3.4;Proto=\"https\"")], Scheme::Https),
            ("10.0.0.1", &[("forwarded", "proto=https, for=1.2.3.4")], Scheme::Http),
            ("192.0.2.1", &[("x-forwarded-proto", "https")], Scheme::Http),
        ] {
            let found = client_scheme(at(peer), Scheme::Http, &request(lines), &trusted());
            assert_eq!(found, expected, "{peer} {lines:?}");
        }
    }

    #[test]
    fn our_fields_follow_their_grammar() {
        for (client, text, scheme, expected) in [
            ("192.0.2.1", "a.test", Scheme::Http, "for=192.0.2.1;host=a.test;proto=http"),
            ("::ffff:192.0.2.1", "a.test", Scheme::Http, "for=192.0.2.1;host=a.test;proto=http"),
            (
                "2001:db8::1",
                "a.test:81",
                Scheme::Https,
                "for=\"[2001:db8::1]\";host=\"a.test:81\";proto=https",
            ),
            ("192.0.2.1", "[::1]", Scheme::Http, "for=192.0.2.1;host=\"[::1]\";proto=http"),
        ] {
            let site = Host::parse(text.as_bytes()).unwrap();
            assert_eq!(forwarded(client.parse().ok(), &site, scheme), expected);
            assert_eq!(host(&site), text);
        }
        assert_eq!(x_forwarded_for("2001:db8::1".parse().unwrap()), "2001:db8::1");
        assert_eq!(x_forwarded_proto(Scheme::Https), "https");
    }

    #[test]
    fn via_keeps_earlier_proxies() {
        let mut headers = request(&[("via", "1.0 fred")]);
        append_via(&mut headers, Version::HTTP_11);
        let lines: Vec<_> = headers.get_all(VIA).iter().collect();
        assert_eq!(lines, ["1.0 fred", "1.1 anteroom"]);
    }

    proptest! {
        #[test]
        fn no_claim_makes_an_untrusted_peer_another(claim in "[ -~]{0,48}", peer: u32) {
            let peer = Peer::at(IpAddr::V4((peer | 0x8000_0000).into()));
            let headers = request(&[("x-forwarded-for", &claim), ("forwarded", &claim)]);
            prop_assert_eq!(client_address(peer, &headers, &trusted()), peer.address());
        }

        #[test]
        fn no_claim_breaks_a_trusted_peer(claim in "[ -~]{0,48}", name in "\\PC{0,24}") {
            let peer = at("10.0.0.1");
            for field in ["x-forwarded-for", "forwarded", "x-forwarded-proto"] {
                let headers = request(&[(field, &claim)]);
                let _ = client_address(peer, &headers, &trusted());
                let _ = client_scheme(peer, Scheme::Http, &headers, &trusted());
            }
            let _ = (is_reserved(&name), is_override(&name));
        }

        #[test]
        fn a_written_forwarded_field_reads_back(address: u128, port in 1_u16..) {
            let client = IpAddr::V6(address.into());
            let site = Host::parse(format!("a.test:{port}").as_bytes()).unwrap();
            let line = forwarded(Some(client), &site, Scheme::Https);
            let headers: HeaderMap = [(FORWARDED, line)].into_iter().collect();
            let peer = at("10.0.0.1");
            prop_assert_eq!(client_address(peer, &headers, &trusted()), Some(client.to_canonical()));
            prop_assert_eq!(client_scheme(peer, Scheme::Http, &headers, &trusted()), Scheme::Https);
        }
    }
}
