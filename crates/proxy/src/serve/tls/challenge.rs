//! The handshake by which an authority checks that a name is ours (tls-alpn-01, RFC 8737).
//!
//! The answer is looked up while the first message of the handshake is in hand, so that every proxy of a fleet has it.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use anteroom_acme::{ALPN_PROTOCOL, ChallengeLookup, ChallengeName, challenge_certificate};
use anteroom_http::clock::unix_now;
use anteroom_store::AnyStore;
use rustls::ServerConfig;
use rustls::server::Acceptor;
use rustls::sign::SingleCertAndKey;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// Where answers to challenges are found: in this process, and in the store.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve) struct StoredChallenges<'a> {
    pub(in crate::serve) lookup: &'a ChallengeLookup,
    pub(in crate::serve) store: &'a AnyStore,
}

/// Performs the handshake with `config`; with an authority, that which proves a name instead: `None`, it wants nothing
/// else.
pub(super) async fn accept_or_prove<S: AsyncRead + AsyncWrite + Unpin>(
    socket: S,
    config: Arc<ServerConfig>,
    challenges: StoredChallenges<'_>,
) -> io::Result<Option<TlsStream<S>>> {
    let start = LazyConfigAcceptor::new(Acceptor::default(), socket);
    let start = start.await?;
    let asked = {
        let hello = start.client_hello();
        let mut offered = hello.alpn().into_iter().flatten();
        // It offers this protocol, and no other (RFC 8737 §3).
        let is_alone = offered.next() == Some(ALPN_PROTOCOL) && offered.next().is_none();
        is_alone.then(|| hello.server_name().and_then(ChallengeName::host))
    };
    let Some(name) = asked else { return start.into_stream(config).await.map(Some) };
    let config = proof(name, challenges).await?;
    let mut stream = start.into_stream(config).await?;
    // It has seen the certificate, and may have left already.
    let _left = stream.shutdown().await;
    Ok(None)
}

/// The settings of a handshake that shows the certificate for a challenge.
async fn proof(
    name: Option<ChallengeName>,
    challenges: StoredChallenges<'_>,
) -> io::Result<Arc<ServerConfig>> {
    let none = || io::Error::new(ErrorKind::NotFound, "no challenge of this name is known");
    let name = name.ok_or_else(none)?;
    let StoredChallenges { lookup, store } = challenges;
    let answer = lookup.find(store, &name, unix_now() as i64).await.ok_or_else(none)?;
    let ChallengeName::Host(host) = name else { return Err(none()) };
    let keyed = challenge_certificate(&host, &answer).map_err(io::Error::other)?;
    let mut config = ServerConfig::builder_with_provider(anteroom_tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(keyed)));
    config.alpn_protocols = vec![ALPN_PROTOCOL.to_vec()];
    Ok(Arc::new(config))
}
