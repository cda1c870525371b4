//! TLS to the origin: trusted authorities, the proxy's own certificate, and the offered protocols.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, WantsClientCert};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use anteroom_policy::origin::Http2;

/// The settings of TLS to an origin.
#[derive(Clone, Debug, Default)]
pub struct TlsRules {
    /// The authorities that sign its certificates; `None`: those that the system trusts.
    pub ca: Option<PathBuf>,
    /// The name required in its certificate; `None`: the host that is connected to.
    pub server_name: Option<String>,
    /// The proxy's certificate and its key, for an origin that requests one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Whether any certificate of the origin is accepted.
    pub blind: bool,
}

/// Why TLS to an origin cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum OriginTlsError {
    /// A file cannot be used.
    #[error("{path:?} cannot be used: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The system trusts no authority.
    #[error(
        "the system trusts no certificate authority; install ca-certificates, or name one in [origin] tls.ca or [acme] ca"
    )]
    NoRoots,
    /// The name is invalid in a certificate.
    #[error("{0:?} is not a valid certificate name")]
    Name(String),
    /// The files do not fit together.
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
}

/// TLS to one origin.
#[derive(Clone, Debug)]
pub struct OriginTlsConnector {
    pub(super) name: ServerName<'static>,
    /// Offers the protocols that the configuration allows.
    pub(super) usual: Arc<ClientConfig>,
    /// Offers HTTP/1.1 only, for connections that belong to one client.
    pub(super) alone: Arc<ClientConfig>,
}

/// Two loaded settings are never equal, because a file may have changed.
impl PartialEq for OriginTlsConnector {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.usual, &other.usual)
    }
}

impl Eq for OriginTlsConnector {}

impl OriginTlsConnector {
    /// Reads the files that the rules name, for an origin at `host`.
    ///
    /// # Errors
    /// If a file cannot be used, or there is no trusted authority.
    pub fn load(rules: &TlsRules, host: &str, http2: Http2) -> Result<Self, OriginTlsError> {
        let name = rules.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| OriginTlsError::Name(name.to_owned()))?;
        let mut alone = client_config(rules)?;
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

/// The settings of a client that keeps to these rules. Its protocol is not negotiated.
///
/// # Errors
/// If a file cannot be used, or there is no trusted authority.
pub fn client_config(rules: &TlsRules) -> Result<ClientConfig, OriginTlsError> {
    let provider = anteroom_tls::provider();
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder: ConfigBuilder<ClientConfig, WantsClientCert> = if rules.blind {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(UnverifiedCertificates(provider)))
    } else {
        builder.with_root_certificates(match &rules.ca {
            Some(path) => named_roots(path)?,
            None => system_roots()?,
        })
    };
    let Some((cert, key)) = &rules.identity else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(cert)?;
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|why| OriginTlsError::File { path: key.clone(), why: why.to_string() })?;
    Ok(builder.with_client_auth_cert(chain, key)?)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, OriginTlsError> {
    let refused = |why: String| OriginTlsError::File { path: path.to_owned(), why };
    let read = CertificateDer::pem_file_iter(path).map_err(|why| refused(why.to_string()))?;
    let found: Vec<_> = read.collect::<Result<_, _>>().map_err(|why| refused(why.to_string()))?;
    if found.is_empty() {
        return Err(refused("contains no certificate".to_owned()));
    }
    Ok(found)
}

fn named_roots(path: &Path) -> Result<RootCertStore, OriginTlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|why| OriginTlsError::File { path: path.to_owned(), why: why.to_string() })?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, OriginTlsError> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!(%error, "a certificate of the system could not be read");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() { Err(OriginTlsError::NoRoots) } else { Ok(roots) }
}

/// Accepts any certificate, if the operator configured that explicitly. The check that the peer holds the key
/// of its certificate remains.
#[derive(Debug)]
struct UnverifiedCertificates(Arc<CryptoProvider>);

impl ServerCertVerifier for UnverifiedCertificates {
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
