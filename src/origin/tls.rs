//! TLS to the origin: whom we believe, who we say we are, and which protocols we offer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, WantsClientCert};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::{ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::protocol::Http2;

/// What TLS to an origin hangs on.
#[derive(Clone, Debug, Default)]
pub struct TlsRules {
    /// Who signs its certificates; `None`: whom the system trusts.
    pub ca: Option<PathBuf>,
    /// The name that its certificate must have; `None`: the host that is connected to.
    pub server_name: Option<String>,
    /// Our certificate and its key, for an origin that asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Whether the origin's certificate is believed unseen.
    pub blind: bool,
}

/// Why TLS to an origin cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file.
    #[error("{path:?} cannot be used: {why}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The system names nobody.
    #[error("the system trusts no certificate authority: name one with [origin] tls.ca")]
    NoRoots,
    /// The name is none that a certificate could have.
    #[error("{0:?} is no name that a certificate could have")]
    Name(String),
    /// What was read does not fit.
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
}

/// TLS to one origin.
#[derive(Clone, Debug)]
pub struct Tls {
    pub(super) name: ServerName<'static>,
    /// Offers what the plan allows.
    pub(super) usual: Arc<ClientConfig>,
    /// Offers HTTP/1.1 alone, for connections that belong to one client.
    pub(super) alone: Arc<ClientConfig>,
}

/// What was read anew is never the same: it may have changed since.
impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.usual, &other.usual)
    }
}

impl Eq for Tls {}

impl Tls {
    /// Reads what the rules name, for an origin at `host`.
    ///
    /// # Errors
    /// When a file cannot be used, or nobody is there to be trusted.
    pub fn load(rules: &TlsRules, host: &str, http2: Http2) -> Result<Self, TlsError> {
        let name = rules.server_name.as_deref().unwrap_or(host);
        let name =
            ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name(name.to_owned()))?;
        let mut alone = config(rules)?;
        let mut usual = alone.clone();
        alone.alpn_protocols = vec![b"http/1.1".to_vec()];
        usual.alpn_protocols = match http2 {
            Http2::Auto => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Http2::Always => vec![b"h2".to_vec()],
            Http2::Never => alone.alpn_protocols.clone(),
        };
        Ok(Self { name, usual: Arc::new(usual), alone: Arc::new(alone) })
    }
}

fn config(rules: &TlsRules) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder: ConfigBuilder<ClientConfig, WantsClientCert> = if rules.blind {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Blind(provider)))
    } else {
        builder.with_root_certificates(match &rules.ca {
            Some(path) => named_roots(path)?,
            None => system_roots()?,
        })
    };
    let Some((cert, key)) = &rules.identity else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(cert)?;
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|why| TlsError::File { path: key.clone(), why: why.to_string() })?;
    Ok(builder.with_client_auth_cert(chain, key)?)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let refused = |why: String| TlsError::File { path: path.to_owned(), why };
    let read = CertificateDer::pem_file_iter(path).map_err(|why| refused(why.to_string()))?;
    let found: Vec<_> = read.collect::<Result<_, _>>().map_err(|why| refused(why.to_string()))?;
    if found.is_empty() {
        return Err(refused("no certificate is in it".to_owned()));
    }
    Ok(found)
}

fn named_roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|why| TlsError::File { path: path.to_owned(), why: why.to_string() })?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!(%error, "a certificate of the system could not be read");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() { Err(TlsError::NoRoots) } else { Ok(roots) }
}

/// Believes any certificate, where the operator says so in as many words. That the peer holds the key
/// of the certificate which it shows is looked at all the same.
#[derive(Debug)]
struct Blind(Arc<CryptoProvider>);

impl ServerCertVerifier for Blind {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
