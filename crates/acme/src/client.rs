//! Requests to an authority: one connection each, with a bound on time and size.

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::http::header::HOST;
use ::http::response::Parts;
use ::http::{HeaderValue, Request, Uri};
use anteroom_http::clock::unix_now;
use anteroom_http::retry_after;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// How long one request may take, with its answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest answer, in bytes: a chain has some thousands.
const ANSWER_MAX: usize = 1 << 20;

type Failure = Box<dyn StdError + Send + Sync>;

/// Sends requests to an authority. Clones share what it last asked for.
#[derive(Clone)]
pub(crate) struct CaClient {
    config: Arc<ClientConfig>,
    /// How long the authority wants to be left alone, as its last answer says.
    wait: Arc<Mutex<Option<Duration>>>,
}

impl CaClient {
    /// Trusts the authorities of `config`.
    pub(crate) fn new(config: Arc<ClientConfig>) -> Self {
        Self { config, wait: Arc::default() }
    }

    /// How long the authority wants to be left alone, by its last answer.
    pub(crate) fn wanted_wait(&self) -> Option<Duration> {
        *self.wait.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpClient for CaClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let this = self.clone();
        Box::pin(async move {
            *this.wait.lock().unwrap_or_else(PoisonError::into_inner) = None;
            let answer = match timeout(TIMEOUT, exchange(this.config, request)).await {
                Ok(answer) => answer.map_err(Error::Other)?,
                Err(_) => return Err(Error::Other("the authority did not answer in time".into())),
            };
            let (parts, body) = answer;
            // Other answers have the field for other reasons.
            let refuses = matches!(parts.status.as_u16(), 429 | 503);
            let wait = retry_after::wanted(&parts.headers, unix_now() as u64);
            let wait = wait.filter(|_| refuses);
            *this.wait.lock().unwrap_or_else(PoisonError::into_inner) = wait;
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}

/// Sends a request over a connection of its own, and reads all of the answer.
async fn exchange(
    config: Arc<ClientConfig>,
    mut request: Request<BodyWrapper<Bytes>>,
) -> Result<(Parts, Bytes), Failure> {
    let url = std::mem::take(request.uri_mut());
    let authority = url.authority().filter(|_| url.scheme_str() == Some("https"));
    let authority = authority.ok_or_else(|| format!("{url} is no https URL"))?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned())?;
    let socket = TcpStream::connect((host, authority.port_u16().unwrap_or(443)))
        .await
        .map_err(|error| format!("cannot connect to {authority}: {error}"))?;
    let stream = TlsConnector::from(config)
        .connect(name, socket)
        .await
        .map_err(|error| format!("no TLS with {authority}: {error}{}", remedy(&error)))?;
    request.headers_mut().insert(HOST, HeaderValue::from_str(authority.as_str())?);
    *request.uri_mut() = target_of(&url)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut answer = pin!(async move {
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, ANSWER_MAX).collect().await?.to_bytes();
        Ok::<_, Failure>((parts, body))
    });
    tokio::select! {
        biased;
        answer = &mut answer => return answer,
        // It may end before the answer has been taken out of it, and what came before is whole or says so.
        ended = connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection to the authority broke");
            }
        }
    }
    answer.await
}

/// What helps where the certificate of the authority itself is not trusted.
fn remedy(error: &io::Error) -> &'static str {
    match error.to_string().contains("UnknownIssuer") {
        true => "; [acme] ca is the root that signs the certificate of the directory",
        false => "",
    }
}

/// The target of a request, as it stands in its first line.
fn target_of(url: &Uri) -> Result<Uri, Failure> {
    let target = url.path_and_query().map_or("/", |target| target.as_str());
    Ok(target.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_root_leads_to_the_key_that_names_it() {
        let unknown = io::Error::other("invalid peer certificate: UnknownIssuer");
        assert!(remedy(&unknown).contains("[acme] ca"));
        assert_eq!(remedy(&io::ErrorKind::ConnectionReset.into()), "");
    }
}
