//! An operator's question: a request to explain, which is never sent.

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use ::http::header::{CONTENT_LENGTH, COOKIE, HOST, TRANSFER_ENCODING};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use anteroom_http::forwarded::{X_FORWARDED_FOR, X_FORWARDED_PROTO, x_forwarded_for};
use anteroom_http::host::{Host, Scheme};
use anteroom_http::host_pattern::first_host;
use anteroom_http::peer::{Peer, Peers};
use anteroom_http::reference::{absolute, resolve};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::connection::client::{Client, HandshakeResult};
use crate::connection_state::ConnectionState;
use crate::settings::ProxySettings;

/// The most fields of a request, with all cookies as one field.
const FIELDS_MAX: usize = 256;
/// The largest question in bytes: twice the default limit of a request's head. The limit protects the
/// thread that explains, which also serves requests.
const BYTES_MAX: usize = 64 * 1024;
/// A client at a documentation address (RFC 5737), which is never trusted by default.
const UNSPECIFIED_CLIENT: Peer = Peer::Address(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
/// The local address at which that client is accepted.
const LOCAL_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A request to explain.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Question {
    /// `http://host/path?query`, or `/path?query` on the first of `[origin] hosts`.
    pub url: String,
    /// The method; empty: GET.
    pub method: String,
    /// Cookies: `name=value`.
    pub cookies: Vec<String>,
    /// Fields: a name and a value.
    pub headers: Vec<(String, String)>,
    /// The client's address; `None`: the address is not specified.
    pub from: Option<IpAddr>,
}

/// Leaves out cookies and fields, which may be secrets.
impl std::fmt::Debug for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Question").field("method", &self.method).finish_non_exhaustive()
    }
}

/// Why a question cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    /// The URL is invalid: its part before the query.
    #[error(
        "{0:?}: write a complete URL such as http://example.com/path, percent-encoded; a path alone works \
         where [origin] hosts has a name without a wildcard"
    )]
    Url(String),
    /// The method is invalid.
    #[error("invalid method; expected one such as GET")]
    Method,
    /// A cookie is invalid. The error does not quote it, because it may be a secret.
    #[error("invalid cookie; write one NAME=VALUE for each cookie")]
    Cookie,
    /// A field is invalid.
    #[error("invalid field; write \"Name: value\"")]
    Field,
    /// A `Host` was given.
    #[error("the URL already names the Host; leave the field out")]
    Host,
    /// There are too many fields.
    #[error("too many fields or cookies; at most {FIELDS_MAX} of each are allowed")]
    TooMany,
    /// The question is too large.
    #[error("the request is too large; at most {BYTES_MAX} bytes are allowed")]
    TooLarge,
}

/// The request as it would arrive.
pub(super) struct ImaginedRequest {
    pub(super) head: Parts,
    pub(super) client: Rc<Client>,
    /// The length of the body, if known.
    pub(super) length: Option<u64>,
    pub(super) has_body: bool,
    /// Whether the request should come by https but no proxy is trusted to say so.
    pub(super) lost_https: bool,
    /// `scheme://host`, as the question has it.
    pub(super) site: String,
}

impl Question {
    /// Builds the request that the question describes.
    pub(super) fn imagine(
        &self,
        settings: &ProxySettings,
    ) -> Result<ImaginedRequest, QuestionError> {
        if self.bytes() > BYTES_MAX {
            return Err(QuestionError::TooLarge);
        }
        let (scheme, host, target) = self.url_parts(settings)?;
        let site = format!("{}://{}", scheme.as_str(), host.as_str());
        let mut headers = self.fields()?;
        let host = HeaderValue::from_str(host.as_str()).map_err(|_| self.wrong_url())?;
        headers.insert(HOST, host);
        let is_https = scheme == Scheme::Https;
        let expects_proxy = is_https && !settings.has_tls;
        let proxy = settings.trusted_proxies.first().filter(|_| expects_proxy);
        if proxy.is_some() && !headers.contains_key(&X_FORWARDED_PROTO) {
            headers.insert(&X_FORWARDED_PROTO, HeaderValue::from_static("https"));
        }
        let secured = (is_https && settings.has_tls).then(HandshakeResult::default);
        if let (Some(from), true) = (self.from, proxy.is_some())
            && !headers.contains_key(&X_FORWARDED_FOR)
        {
            headers.insert(&X_FORWARDED_FOR, x_forwarded_for(from));
        }
        let peer = proxy.map_or_else(|| self.from.map_or(UNSPECIFIED_CLIENT, Peer::at), Peers::one);
        let (mut head, ()) = self.request(&target)?.into_parts();
        let is_chunked = headers.contains_key(TRANSFER_ENCODING);
        let length =
            headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        head.headers = headers;
        Ok(ImaginedRequest {
            head,
            client: Client::entering(
                peer,
                LOCAL_ADDRESS,
                ConnectionState::new(),
                settings.listener_of(scheme),
                CancellationToken::new(),
                secured,
            ),
            length: if is_chunked { None } else { Some(length.unwrap_or(0)) },
            has_body: is_chunked || length.is_some_and(|length| length > 0),
            lost_https: expects_proxy && proxy.is_none(),
            site,
        })
    }

    fn bytes(&self) -> usize {
        let cookies = self.cookies.iter().map(String::len);
        let fields = self.headers.iter().map(|(name, line)| name.len() + line.len());
        self.url.len() + self.method.len() + cookies.chain(fields).sum::<usize>()
    }

    fn url_parts(&self, settings: &ProxySettings) -> Result<(Scheme, Host, String), QuestionError> {
        if let (None, target) = resolve("/", &self.url)
            && self.url.starts_with('/')
            && let Some(site) = first_host(&settings.hosts)
        {
            let host = Host::parse(site.as_bytes()).map_err(|_| self.wrong_url())?;
            return Ok((Scheme::Http, host, target));
        }
        absolute(&self.url).ok_or_else(|| self.wrong_url())
    }

    /// The error about the URL. The query may hold a secret.
    fn wrong_url(&self) -> QuestionError {
        let (before_query, _) = self.url.split_once('?').unwrap_or((&self.url, ""));
        QuestionError::Url(before_query.to_owned())
    }

    fn request(&self, target: &str) -> Result<Request<()>, QuestionError> {
        let method = if self.method.is_empty() { "GET" } else { &self.method };
        let mut request = Request::new(());
        *request.method_mut() =
            Method::from_bytes(method.as_bytes()).map_err(|_| QuestionError::Method)?;
        *request.uri_mut() = target.parse::<Uri>().map_err(|_| self.wrong_url())?;
        Ok(request)
    }

    fn fields(&self) -> Result<HeaderMap, QuestionError> {
        if self.headers.len() > FIELDS_MAX || self.cookies.len() > FIELDS_MAX {
            return Err(QuestionError::TooMany);
        }
        let mut headers = HeaderMap::new();
        for (name, line) in &self.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| QuestionError::Field)?;
            let value = HeaderValue::from_bytes(line.trim().as_bytes())
                .map_err(|_| QuestionError::Field)?;
            if name == HOST {
                return Err(QuestionError::Host);
            }
            // A pair without a name would be shown whole, as if it were a name.
            let is_nameless = |pair: &str| !pair.trim().is_empty() && !is_cookie(pair.trim());
            if name == COOKIE && line.split(';').any(is_nameless) {
                return Err(QuestionError::Cookie);
            }
            headers.append(name, value);
        }
        if self.cookies.iter().any(|cookie| !is_cookie(cookie)) {
            return Err(QuestionError::Cookie);
        }
        if !self.cookies.is_empty() {
            let line = HeaderValue::from_bytes(self.cookies.join("; ").as_bytes());
            headers.append(COOKIE, line.map_err(|_| QuestionError::Cookie)?);
        }
        Ok(headers)
    }
}

/// Whether the text is exactly one cookie.
fn is_cookie(text: &str) -> bool {
    let is_named = text.split_once('=').is_some_and(|(name, _)| !name.is_empty());
    is_named && !text.contains(|c: char| c == ';' || c.is_control())
}
