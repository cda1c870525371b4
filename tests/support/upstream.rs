//! Origins that speak TLS and HTTP/2: hyper, or what a case does with each connection, on a thread of
//! its own.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, IsCa,
    KeyPair, date_time_ymd,
};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// The signer of certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub struct CertificateWithKey {
    pub cert: rcgen::Certificate,
    pub key: KeyPair,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        let name = format!("authority {}", fastrand::u64(..));
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate for `name`; `over`: until the year 2000.
    pub fn issue(&self, name: &str, over: bool) -> CertificateWithKey {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        if over {
            params.not_before = date_time_ymd(1999, 1, 1);
            params.not_after = date_time_ymd(2000, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        CertificateWithKey { cert: params.signed_by(&key, &self.0).unwrap(), key }
    }

    /// Issues a certificate for a request (a CSR in DER), valid in this time since 1970; in PEM.
    pub fn sign(&self, request: &[u8], from: Duration, until: Duration) -> String {
        let mut request = CertificateSigningRequestParams::from_der(&request.into()).unwrap();
        let params = &mut request.params;
        params.not_before = date_time_ymd(1970, 1, 1) + from;
        params.not_after = date_time_ymd(1970, 1, 1) + until;
        params.use_authority_key_identifier_extension = true;
        request.signed_by(&self.0).unwrap().pem()
    }

    /// Its own certificate as a file.
    pub fn file(&self, folder: &Path) -> PathBuf {
        let path = folder.join("ca.pem");
        std::fs::write(&path, self.0.pem()).unwrap();
        path
    }

    /// TLS with `issued`, offering `protocols`. `asks`: clients without a certificate of ours are refused.
    pub fn server(
        &self,
        issued: &CertificateWithKey,
        protocols: &[&str],
        asks: bool,
    ) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if asks {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(CertificateDer::clone(self.0.der())).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::try_from(issued.key.serialize_der()).unwrap();
        let chain = vec![CertificateDer::clone(issued.cert.der())];
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// TLS of a server that shows the certificate of another, and signs by a key of its own.
pub fn impostor(
    shown: &CertificateWithKey,
    version: &'static SupportedProtocolVersion,
) -> Arc<ServerConfig> {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let own = PrivateKeyDer::try_from(KeyPair::generate().unwrap().serialize_der()).unwrap();
    let key = provider.key_provider.load_private_key(own).unwrap();
    let identity = CertifiedKey::new(vec![CertificateDer::clone(shown.cert.der())], key);
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(identity)));
    Arc::new(config)
}

/// A connection's socket.
pub trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

/// What is known of a connection.
#[derive(Clone, Debug, Default)]
pub struct UpstreamConnection {
    /// The how-many-eth it is, from 0.
    pub nth: usize,
    pub protocol: Option<String>,
    /// The name that was asked for.
    pub name: Option<String>,
    pub key_exchange: Option<rustls::NamedGroup>,
    pub resumed: bool,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct UpstreamRequest {
    pub met: UpstreamConnection,
    pub version: Version,
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
}

type ServeFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The running origin; it ends on Drop.
pub struct Upstream {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<UpstreamRequest>>>,
    connections: Arc<AtomicUsize>,
    stop: CancellationToken,
}

impl Upstream {
    /// Starts one that does `serve` with each connection.
    pub fn start<F>(tls: Option<Arc<ServerConfig>>, serve: F) -> Self
    where
        F: Fn(UpstreamConnection, Pin<Box<dyn Socket>>) -> ServeFuture + Send + Sync + 'static,
    {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let this = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
            connections: Arc::default(),
            stop: CancellationToken::new(),
        };
        let (connections, stop) = (Arc::clone(&this.connections), this.stop.clone());
        thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(stop.run_until_cancelled(accept(listener, tls, connections, serve)));
        });
        this
    }

    /// Starts one that answers each request as `handler` says, whole; `prior`: HTTP/2 in clear text.
    pub fn http(
        tls: Option<Arc<ServerConfig>>,
        prior: bool,
        handler: impl Fn(&UpstreamRequest) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let seen = Arc::<Mutex<Vec<UpstreamRequest>>>::default();
        let (kept, handler) = (Arc::clone(&seen), Arc::new(handler));
        let mut this = Self::start(tls, move |met, socket| {
            let (seen, handler) = (Arc::clone(&kept), Arc::clone(&handler));
            let is_http2 = prior || met.protocol.as_deref() == Some("h2");
            let service = service_fn(move |request: Request<Incoming>| {
                let (seen, handler, met) = (Arc::clone(&seen), Arc::clone(&handler), met.clone());
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await?.to_bytes();
                    let came = UpstreamRequest {
                        met,
                        version: head.version,
                        method: head.method,
                        uri: head.uri,
                        headers: head.headers,
                        body,
                    };
                    seen.lock().unwrap().push(came.clone());
                    // It may block, and others are served meanwhile.
                    let answer = tokio::task::spawn_blocking(move || handler(&came)).await.unwrap();
                    Ok::<_, hyper::Error>(answer)
                }
            });
            Box::pin(async move {
                let socket = TokioIo::new(socket);
                // An error is a proxy that went away.
                if is_http2 {
                    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    drop(builder.serve_connection(socket, service).await);
                } else {
                    let builder = hyper::server::conn::http1::Builder::new();
                    drop(builder.serve_connection(socket, service).await);
                }
            })
        });
        this.seen = seen;
        this
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Every request so far.
    pub fn seen(&self) -> Vec<UpstreamRequest> {
        self.seen.lock().unwrap().clone()
    }

    /// The newest request.
    pub fn last(&self) -> UpstreamRequest {
        self.seen().pop().expect("the origin saw a request")
    }

    /// How many connections came so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Ends the thread of an origin.
impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn accept<F>(
    listener: std::net::TcpListener,
    tls: Option<Arc<ServerConfig>>,
    connections: Arc<AtomicUsize>,
    serve: F,
) where
    F: Fn(UpstreamConnection, Pin<Box<dyn Socket>>) -> ServeFuture + Send + Sync + 'static,
{
    let listener = TcpListener::from_std(listener).unwrap();
    let serve = Arc::new(serve);
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        let nth = connections.fetch_add(1, Ordering::SeqCst);
        let (serve, tls) = (Arc::clone(&serve), tls.clone());
        tokio::runtime::Handle::current().spawn(async move {
            let Some(tls) = tls else {
                return serve(
                    UpstreamConnection { nth, ..UpstreamConnection::default() },
                    Box::pin(socket),
                )
                .await;
            };
            let Ok(socket) = TlsAcceptor::from(tls).accept(socket).await else { return };
            let session = socket.get_ref().1;
            let met = UpstreamConnection {
                nth,
                protocol: session.alpn_protocol().map(|p| String::from_utf8_lossy(p).into_owned()),
                name: session.server_name().map(str::to_owned),
                key_exchange: session.negotiated_key_exchange_group().map(|group| group.name()),
                resumed: session.handshake_kind() == Some(rustls::HandshakeKind::Resumed),
            };
            serve(met, Box::pin(socket)).await;
        });
    }
}
