//! Requests of a stranger, sent to the proxy as a browser sends them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{ACCEPT, ACCEPT_ENCODING, HOST, USER_AGENT};
use ::http::{HeaderMap, HeaderValue, Request, Response};
use anteroom_config::{Address, Plan};
use anteroom_http::host::{Host, Scheme};
use anteroom_http::reference::absolute;
use anteroom_origin::{TlsRules, client_config};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::WarmError;

/// How long one request may take, with its body.
const TIMEOUT: Duration = Duration::from_secs(60);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A page to request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) scheme: Scheme,
    pub(super) host: Host,
    pub(super) target: String,
}

impl Page {
    /// The page at an absolute URL.
    pub(super) fn parse(url: &str) -> Option<Self> {
        let (scheme, host, target) = absolute(url)?;
        Some(Self { scheme, host, target })
    }

    /// The host, with its port unless that is the usual one.
    pub(super) fn site(&self) -> String {
        self.host.normalised(self.scheme).into_owned()
    }
}

/// Where requests are sent: the addresses for http and for https.
#[derive(Clone, Debug)]
pub(super) struct Destination {
    plain: Option<SocketAddr>,
    tls: Option<SocketAddr>,
    config: Option<Arc<ClientConfig>>,
}

impl Destination {
    /// The proxy at a URL without a path.
    pub(super) async fn at(url: &str) -> Result<Self, WarmError> {
        let wrong = || WarmError::Destination(url.to_owned());
        let (scheme, host, _) = absolute(url).ok_or_else(wrong)?;
        let port = host.port().unwrap_or_else(|| scheme.default_port());
        let name = host.name().trim_start_matches('[').trim_end_matches(']').to_owned();
        let mut found = tokio::net::lookup_host((name, port)).await.map_err(|_| wrong())?;
        let address = found.next().ok_or_else(wrong)?;
        Ok(match scheme {
            Scheme::Http => Self { plain: Some(address), tls: None, config: None },
            Scheme::Https => {
                Self { plain: None, tls: Some(address), config: Some(tls_config(false)?) }
            }
        })
    }

    /// The listeners of a plan. This machine's own proxy need not prove its name.
    pub(super) fn of_plan(plan: &Plan) -> Result<Self, WarmError> {
        let address = |is_secured: bool| {
            plan.listen.iter().filter(|one| one.is_secured() == is_secured).find_map(|one| {
                match &one.address {
                    Address::Tcp(address) if one.balancers.is_empty() => Some(reachable(*address)),
                    Address::Tcp(_) | Address::Unix(_) | Address::Systemd(_) => None,
                }
            })
        };
        let (plain, tls) = (address(false), address(true));
        if plain.is_none() && tls.is_none() {
            return Err(WarmError::NoListener);
        }
        let config = tls.map(|_| tls_config(true)).transpose()?;
        Ok(Self { plain, tls, config })
    }

    /// The URL of a path on a host: with TLS, if there is an address for it.
    pub(super) fn url(&self, host: &str, path: &str) -> String {
        let scheme = if self.tls.is_some() { Scheme::Https } else { Scheme::Http };
        format!("{}://{host}{path}", scheme.as_str())
    }

    /// Requests a page, without the body yet.
    async fn send(&self, page: &Page, fields: &HeaderMap) -> Result<Response<Incoming>, Failure> {
        let is_https = page.scheme == Scheme::Https;
        match (self.tls, &self.config, self.plain) {
            (Some(address), Some(config), plain) if is_https || plain.is_none() => {
                let name = page.host.name().trim_start_matches('[').trim_end_matches(']');
                let name = ServerName::try_from(name.to_owned())?;
                let socket = TcpStream::connect(address).await?;
                let connector = TlsConnector::from(Arc::clone(config));
                exchange(connector.connect(name, socket).await?, request(page, fields)?).await
            }
            (_, _, Some(address)) => {
                exchange(TcpStream::connect(address).await?, request(page, fields)?).await
            }
            _ => Err("there is no address for this scheme".into()),
        }
    }

    /// Requests a page, and reads all of it.
    pub(super) async fn visit(
        &self,
        page: &Page,
        fields: &HeaderMap,
    ) -> Result<Response<()>, Failure> {
        timeout(TIMEOUT, async {
            let (head, mut body) = self.send(page, fields).await?.into_parts();
            // The page is stored only when it is whole.
            while let Some(frame) = body.frame().await {
                drop(frame?);
            }
            Ok(Response::from_parts(head, ()))
        })
        .await?
    }

    /// Requests a document of at most `max` bytes.
    pub(super) async fn fetch(&self, page: &Page, max: usize) -> Result<Bytes, Failure> {
        timeout(TIMEOUT, async {
            let mut fields = HeaderMap::new();
            fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            let response = self.send(page, &fields).await?;
            if !response.status().is_success() {
                return Err(format!("the answer is {}", response.status()).into());
            }
            Ok(Limited::new(response.into_body(), max).collect().await?.to_bytes())
        })
        .await?
    }
}

/// An address to connect to, where a listener is at all addresses.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        IpAddr::V4(_) | IpAddr::V6(_) => {}
    }
    address
}

fn tls_config(blind: bool) -> Result<Arc<ClientConfig>, WarmError> {
    let config = client_config(&TlsRules { blind, ..TlsRules::default() });
    Ok(Arc::new(config.map_err(|error| WarmError::Tls(error.to_string()))?))
}

fn request(page: &Page, fields: &HeaderMap) -> Result<Request<Empty<Bytes>>, Failure> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = page.target.parse()?;
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::try_from(page.host.as_str())?);
    headers.insert(USER_AGENT, HeaderValue::from_static("anteroom-warm"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/html,*/*;q=0.8"));
    // Believed only where the proxy trusts this client as it does a load balancer that ends TLS.
    headers.insert("x-forwarded-proto", HeaderValue::from_static(page.scheme.as_str()));
    for (name, value) in fields {
        headers.insert(name, value.clone());
    }
    Ok(request)
}

async fn exchange(
    socket: impl AsyncRead + AsyncWrite + Unpin + 'static,
    request: Request<Empty<Bytes>>,
) -> Result<Response<Incoming>, Failure> {
    let (mut requests, connection) = http1::handshake(TokioIo::new(socket)).await?;
    tokio::task::spawn_local(connection);
    Ok(requests.send_request(request).await?)
}
