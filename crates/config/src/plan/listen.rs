//! `[[listen]]` and `[client]`: where clients are served, and which ones.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ::http::HeaderName;
use anteroom_http::path::PathPattern;
use anteroom_http::peer::Peers;
use ipnet::IpNet;

use super::OriginUrl;
use crate::certificate::CertificateSources;
use crate::secret::Secret;

/// A `[[listen]]`: where clients are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// `address`. Required.
    pub address: Address,
    /// `mode`, 0660: the permissions of the file of a Unix socket.
    pub mode: u32,
    /// `proxy_protocol.from`: the peers that send a PROXY protocol header.
    pub balancers: Vec<Peers>,
    /// `h2`, true: whether HTTP/2 is offered, in clear text to clients that begin with its preface.
    pub h2: bool,
    /// `redirect`: the https port to which visitors are redirected; `None` (`"off"`): they are served
    /// here.
    pub redirect: Option<u16>,
    /// `redirect_except`, `["/.well-known/acme-challenge/**"]`: the paths that are served here despite
    /// `redirect`.
    pub redirect_except: Vec<PathPattern>,
    /// `tls`
    pub tls: TlsConfig,
}

impl Listen {
    /// A listener at a TCP address, otherwise with defaults.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self {
            address: Address::Tcp(address),
            mode: USUAL_MODE,
            balancers: Vec::new(),
            h2: true,
            redirect: None,
            redirect_except: PathPattern::parse(ACME).into_iter().collect(),
            tls: TlsConfig::default(),
        }
    }

    /// Whether the listener serves https.
    #[must_use]
    pub fn is_secured(&self) -> bool {
        !self.tls.cert.is_empty()
    }
}

/// Where certificate authorities look for the challenge response (RFC 8555 §8.3), always by http.
const ACME: &str = "/.well-known/acme-challenge/**";

/// The mode of a Unix socket for visitors: the proxy's user and group may connect.
pub(crate) const USUAL_MODE: u32 = 0o660;

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Address and port; `[::]` means all addresses, including IPv4.
    Tcp(SocketAddr),
    /// `unix:<path>`
    Unix(PathBuf),
    /// `systemd` or `systemd:<name>`: all sockets passed by systemd, or those with a name.
    Systemd(Option<String>),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Systemd(None) => f.write_str("systemd"),
            Self::Systemd(Some(name)) => write!(f, "systemd:{name}"),
        }
    }
}

impl Address {
    /// Address and port, if it is a TCP address.
    #[must_use]
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) | Self::Systemd(_) => None,
        }
    }

    /// Whether two different addresses conflict.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        let (Self::Tcp(one), Self::Tcp(other)) = (self, other) else { return false };
        // Port 0 gives a different port each time.
        let same_port = one.port() == other.port() && one.port() != 0;
        same_port && (covers_address(one.ip(), other.ip()) || covers_address(other.ip(), one.ip()))
    }
}

/// The one of these addresses at which a connection to `url` certainly arrives. That other names and addresses are this
/// machine's is not known here.
pub(crate) fn leads_to<'a>(url: &OriginUrl, addresses: &'a [Address]) -> Option<&'a Address> {
    if let Some(socket) = &url.socket {
        return addresses.iter().find(|one| matches!(one, Address::Unix(path) if path == socket));
    }
    let at = |host: IpAddr| {
        let is_there = |listener: SocketAddr| {
            listener.port() == url.port
                && (host == listener.ip()
                    || covers_address(listener.ip(), host)
                        && (host.is_loopback() || host.is_unspecified()))
        };
        addresses.iter().find(|one| one.tcp().is_some_and(is_there))
    };
    let host = url.host.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(host) => at(host.to_canonical()),
        // The name has an address of each family, and the app may listen at one of them.
        Err(_) if host == "localhost" => {
            at(Ipv6Addr::LOCALHOST.into()).and_then(|_| at(Ipv4Addr::LOCALHOST.into()))
        }
        Err(_) => None,
    }
}

/// Whether a listener on all addresses of `wide` includes `narrow`: `[::]` serves IPv4.
fn covers_address(wide: IpAddr, narrow: IpAddr) -> bool {
    wide.is_unspecified() && (wide.is_ipv6() || narrow.is_ipv4())
}

/// `[listen.tls]`: how https is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// `cert`: certificate files, or patterns of them; [`Self::AUTO`] alone: certificates that the proxy orders.
    /// Empty: no TLS here.
    pub cert: Vec<String>,
    /// The files of the certificates that the proxy orders. They follow from `[acme]`.
    pub auto_files: Vec<String>,
    /// `key`: the file of their key, if it is neither in the certificate's file nor beside it.
    pub key: Option<PathBuf>,
    /// `default`: the name of the certificate for clients that send no host name; `None`: the first.
    pub default: Option<String>,
    /// `client_certs`, `"off"`: whether clients present certificates.
    pub client_certs: ClientCerts,
    /// `client_ca`: the file of the authorities that issue client certificates.
    pub client_ca: Option<PathBuf>,
    /// `min_version`, `"1.2"`.
    pub min_version: TlsVersion,
    /// `ticket_secret`: what the keys of tickets are derived from, two at most; the first seals. Empty: the keys are those
    /// of the store.
    pub ticket_secret: Vec<Secret>,
    /// `hsts`: how long browsers use https only; `None` (`"off"`): the field is not sent.
    pub hsts: Option<Duration>,
    /// `hsts_subdomains`, false: whether `hsts` includes all subdomains.
    pub hsts_subdomains: bool,
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            cert: Vec::new(),
            auto_files: Vec::new(),
            key: None,
            default: None,
            client_certs: ClientCerts::Off,
            client_ca: None,
            min_version: TlsVersion::V1_2,
            ticket_secret: Vec::new(),
            hsts: None,
            hsts_subdomains: false,
        }
    }
}

impl TlsConfig {
    /// The word for certificates that the proxy orders itself.
    pub const AUTO: &str = "auto";

    /// Whether the proxy orders the certificates itself.
    #[must_use]
    pub fn is_auto(&self) -> bool {
        self.cert == [Self::AUTO]
    }

    /// The locations of the certificates.
    #[must_use]
    pub fn sources(&self) -> CertificateSources {
        let certificates = if self.is_auto() { &self.auto_files } else { &self.cert };
        CertificateSources { certificates: certificates.clone(), key: self.key.clone() }
    }
}

/// Whether clients present certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCerts {
    /// They are not requested.
    Off,
    /// They are requested.
    Optional,
    /// They are required.
    Required,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// 1.2, RFC 5246
    V1_2,
    /// 1.3, RFC 8446
    V1_3,
}

/// `[client]`: which clients are served, and which of their fields are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientConfig {
    /// `allow`: the networks that are served; empty: all.
    pub allow: Vec<IpNet>,
    /// `deny`: the networks that are not served, even if `allow` has them.
    pub deny: Vec<IpNet>,
    /// `trusted_proxies`: peers with trusted forwarding headers.
    pub trusted_proxies: Vec<Peers>,
    /// `underscore_headers`: whether request fields with `_` in their names are passed on (`"pass"`) or
    /// dropped (`"drop"`, the default).
    pub pass_underscore_headers: bool,
    /// `request_id`: the field that carries an id of each request; `None` is `"off"`.
    pub request_id: Option<HeaderName>,
}
