//! The handshake on an accepted connection, within the time limit for a request's head.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anteroom_config::certificate;
use anteroom_http::client_cert::ClientCertificate;
use anteroom_http::clock::unix_now;
use bytes::{Bytes, BytesMut};
use rustls::HandshakeKind;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::ClientTls;
use super::challenge::{StoredChallenges, accept_or_prove};
use super::protocol::Protocol;
use crate::connection::client::HandshakeResult;

/// The first byte of every handshake record (RFC 8446 §5.1).
const HANDSHAKE: u8 = 22;
/// The most that is read from a client that speaks no TLS, so that it reads the response.
const PLAIN_MAX: u64 = 64 * 1024;

/// The response to a client that speaks http to an https port.
const PLAIN_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 57\r\n\
    Cache-Control: no-store\r\n\
    Connection: close\r\n\r\n\
    400 Bad Request: http came to a port for https; use https";

/// A connection after its handshake.
#[derive(Debug)]
pub(in crate::serve) struct TlsConnection<S> {
    pub(in crate::serve) stream: TlsStream<PrefixedSocket<S>>,
    pub(in crate::serve) protocol: Protocol,
    pub(in crate::serve) secured: HandshakeResult,
    /// Cancelled when clients are asked for other certificates; `None` if they are asked for none.
    pub(in crate::serve) outdated: Option<CancellationToken>,
}

/// Why the handshake failed.
#[derive(Debug)]
pub(in crate::serve) enum HandshakeError {
    /// The client closed before it sent anything.
    ClosedEarly,
    /// It did not send enough in time.
    TimedOut,
    /// It spoke http, and got a response that says so.
    Plain,
    /// An authority checked that a name is ours, and wants nothing else.
    Challenge,
    /// It does not support the offered TLS, has no certificate, or broke off.
    Failed(io::Error),
}

/// Performs the handshake on `socket`, from which `ahead` was already read; all of it by `deadline`.
pub(in crate::serve) async fn enter<S: AsyncRead + AsyncWrite + Unpin>(
    tls: &ClientTls,
    socket: S,
    ahead: Bytes,
    deadline: Instant,
    challenges: Option<StoredChallenges<'_>>,
) -> Result<TlsConnection<S>, HandshakeError> {
    let socket = PrefixedSocket { socket, ahead };
    match timeout_at(deadline, enter_patiently(tls, socket, challenges)).await {
        Ok(entered) => entered,
        Err(_) => Err(HandshakeError::TimedOut),
    }
}

async fn enter_patiently<S: AsyncRead + AsyncWrite + Unpin>(
    tls: &ClientTls,
    mut socket: PrefixedSocket<S>,
    challenges: Option<StoredChallenges<'_>>,
) -> Result<TlsConnection<S>, HandshakeError> {
    if socket
        .first_byte()
        .await
        .map_err(HandshakeError::Failed)?
        .ok_or(HandshakeError::ClosedEarly)?
        != HANDSHAKE
    {
        // An alert would be the answer to garbage, but a client that sends garbage does not read it.
        if socket.ahead[0].is_ascii_uppercase() {
            say_plainly(&mut socket).await.map_err(HandshakeError::Failed)?;
            return Err(HandshakeError::Plain);
        }
        return Err(HandshakeError::Failed(ErrorKind::InvalidData.into()));
    }
    let way = tls.acceptors.load_full();
    let config = Arc::clone(&way.config);
    let accepted = match challenges.filter(|_| tls.settings().answers_challenges) {
        Some(challenges) => accept_or_prove(socket, config, challenges).await,
        None => TlsAcceptor::from(config).accept(socket).await.map(Some),
    };
    let stream = accepted.map_err(HandshakeError::Failed)?.ok_or(HandshakeError::Challenge)?;
    let (_, session) = stream.get_ref();
    let protocol = Protocol::chosen(session.alpn_protocol());
    // SECURITY: a ticket may hold a certificate, and at a listener that asks for none, others can have the keys of tickets.
    let shown = session
        .peer_certificates()
        .filter(|_| tls.requests_client_certs())
        .and_then(|chain| chain.first());
    // A client that resumes with a ticket is not verified again, and gets another ticket.
    let is_resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
    if let Some(shown) = shown.filter(|_| is_resumed)
        && !certificate::is_in_time(shown, unix_now() as i64)
    {
        let expired = io::Error::other("the client's certificate is out of its time");
        return Err(HandshakeError::Failed(expired));
    }
    let secured = HandshakeResult {
        server_name: session.server_name().map(Into::into),
        certificate: shown.map(|der| ClientCertificate::new(der)),
        // A certificate whose expiry cannot be parsed was never accepted.
        expires: shown.map(|der| certificate::times(der).map_or(0, |valid| *valid.end())),
        requests_client_certs: tls.requests_client_certs(),
    };
    let outdated = tls.requests_client_certs().then(|| way.outdated.clone());
    Ok(TlsConnection { stream, protocol, secured, outdated })
}

/// Answers in http, and lets the client read it: a close with unread bytes would reset the connection.
async fn say_plainly<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut PrefixedSocket<S>,
) -> io::Result<()> {
    socket.write_all(PLAIN_ANSWER).await?;
    socket.shutdown().await?;
    let mut rest = [0; 1_024];
    let mut socket = socket.take(PLAIN_MAX);
    while socket.read(&mut rest).await? > 0 {}
    Ok(())
}

/// A socket from which some bytes were already read.
#[derive(Debug)]
pub(in crate::serve) struct PrefixedSocket<S> {
    socket: S,
    ahead: Bytes,
}

impl<S> PrefixedSocket<S> {
    /// The socket itself.
    pub(in crate::serve) fn socket(&self) -> &S {
        &self.socket
    }
}

impl<S: AsyncRead + Unpin> PrefixedSocket<S> {
    /// Peeks at the next byte; `None` at the end.
    async fn first_byte(&mut self) -> io::Result<Option<u8>> {
        if self.ahead.is_empty() {
            let mut bytes = BytesMut::with_capacity(1_024);
            self.socket.read_buf(&mut bytes).await?;
            self.ahead = bytes.freeze();
        }
        Ok(self.ahead.first().copied())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PrefixedSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.socket).poll_read(cx, buf);
        }
        let length = self.ahead.len().min(buf.remaining());
        buf.put_slice(&self.ahead.split_to(length));
        if self.ahead.is_empty() {
            // The connection may live long; the buffer is freed now.
            self.ahead = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PrefixedSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use anteroom_config::certificate::CertificateSources;
    use anteroom_tls::{TicketSecret, provider, secret_ticketer};
    use rcgen::{CertifiedKey, KeyPair};
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::server::WebPkiClientVerifier;
    use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion, version};
    use tokio::io::{DuplexStream, duplex};
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::serve::tls::{Clients, TlsSettings};

    const SITE: &str = "shop.test";
    const ANSWER: &[u8] = b"hello";

    type Identity = CertifiedKey<KeyPair>;

    fn identity() -> Identity {
        rcgen::generate_simple_self_signed(vec![SITE.to_owned()]).unwrap()
    }

    fn key(identity: &Identity) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(identity.signing_key.serialize_der()).unwrap()
    }

    fn roots(identity: &Identity) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(identity.cert.der().clone()).unwrap();
        roots
    }

    /// A client that shows a certificate where one is asked for.
    fn client(
        site: &Identity,
        person: &Identity,
        version: &'static SupportedProtocolVersion,
    ) -> Arc<ClientConfig> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots(site))
            .with_client_auth_cert(vec![person.cert.der().clone()], key(person));
        Arc::new(config.unwrap())
    }

    /// Another server that seals tickets by the same secret, and asks for certificates.
    fn other_server(site: &Identity, person: &Identity, secret: &TicketSecret) -> TlsAcceptor {
        let people = Arc::new(roots(person));
        let verifier = WebPkiClientVerifier::builder_with_provider(people, provider()).build();
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.unwrap())
            .with_single_cert(vec![site.cert.der().clone()], key(site))
            .unwrap();
        config.ignore_client_order = true;
        config.ticketer = secret_ticketer(std::slice::from_ref(secret), unix_now).unwrap();
        TlsAcceptor::from(Arc::new(config))
    }

    /// Reads what the server sends; tickets come before it.
    async fn visit(client: &Arc<ClientConfig>, near: DuplexStream) {
        let name = ServerName::try_from(SITE).unwrap();
        let connected = TlsConnector::from(Arc::clone(client)).connect(name, near).await;
        let mut read = Vec::new();
        connected.unwrap().read_to_end(&mut read).await.unwrap();
        assert_eq!(read, ANSWER);
    }

    async fn answer(stream: &mut (impl AsyncWrite + Unpin)) {
        stream.write_all(ANSWER).await.unwrap();
        stream.shutdown().await.unwrap();
    }

    #[tokio::test]
    async fn a_certificate_in_a_ticket_does_not_count_where_none_is_asked_for() {
        let (site, person) = (identity(), identity());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("site.pem");
        fs::write(&file, site.cert.pem() + &site.signing_key.serialize_pem()).unwrap();
        let secret = TicketSecret::new("0123456789abcdef0123456789abcdef");
        let settings = TlsSettings {
            sources: CertificateSources {
                certificates: vec![file.display().to_string()],
                key: None,
            },
            default: None,
            clients: Clients::NotRequested,
            only_1_3: false,
            h2: false,
            ticket_secrets: vec![secret.clone()],
            answers_challenges: false,
        };
        let tls = ClientTls::open(settings, &Arc::default()).unwrap();
        let other = other_server(&site, &person, &secret);
        for version in [&version::TLS12, &version::TLS13] {
            let client = client(&site, &person, version);
            let (near, far) = duplex(64 * 1024);
            tokio::join!(visit(&client, near), async {
                let mut stream = other.accept(far).await.unwrap();
                answer(&mut stream).await;
                assert!(stream.get_ref().1.peer_certificates().is_some(), "{version:?}");
            });
            let (near, far) = duplex(64 * 1024);
            tokio::join!(visit(&client, near), async {
                let deadline = Instant::now() + Duration::from_secs(60);
                let mut entered = enter(&tls, far, Bytes::new(), deadline, None).await.unwrap();
                answer(&mut entered.stream).await;
                let session = entered.stream.get_ref().1;
                assert_eq!(session.handshake_kind(), Some(HandshakeKind::Resumed), "{version:?}");
                assert!(session.peer_certificates().is_some(), "the ticket holds it: {version:?}");
                assert!(entered.secured.certificate.is_none(), "{version:?}");
                assert_eq!(entered.secured.expires, None, "{version:?}");
            });
        }
    }

    #[test]
    fn the_plain_answer_is_as_long_as_it_says() {
        let text = std::str::from_utf8(PLAIN_ANSWER).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
    }
}
