//! Certificates made on the spot, and a visitor's end of TLS.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, NamedGroup,
    ProtocolVersion, SignatureScheme, SupportedProtocolVersion, version,
};
use tokio_rustls::TlsConnector;

use super::DEADLINE;
use super::client::Client;

/// A certificate with its key.
pub struct CertificateWithKey {
    pub cert: String,
    pub key: String,
    der: CertificateDer<'static>,
    key_der: Vec<u8>,
}

impl CertificateWithKey {
    /// Writes both into one file.
    pub fn write(&self, path: &Path) {
        fs::write(path, self.cert.clone() + &self.key).unwrap();
    }

    /// What a handshake shows of it.
    pub fn der(&self) -> CertificateDer<'static> {
        self.der.clone()
    }
}

/// An authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub cert: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), cert }
    }

    /// Its key.
    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A certificate for a site.
    pub fn site(&self, names: &[&str]) -> CertificateWithKey {
        self.issue(&Self::params(names))
    }

    /// One that has expired.
    pub fn expired(&self, names: &[&str]) -> CertificateWithKey {
        let mut params = Self::params(names);
        params.not_after = date_time_ymd(2001, 2, 3);
        self.issue(&params)
    }

    /// A certificate that names a visitor.
    pub fn person(&self, name: &str) -> CertificateWithKey {
        self.issue(&Self::person_params(name))
    }

    /// The same, until a moment in Unix time.
    pub fn person_until(&self, name: &str, end: Duration) -> CertificateWithKey {
        let mut params = Self::person_params(name);
        params.not_after = date_time_ymd(1970, 1, 1) + end;
        self.issue(&params)
    }

    fn person_params(name: &str) -> CertificateParams {
        let mut params = Self::params(&[]);
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params
    }

    fn params(names: &[&str]) -> CertificateParams {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
    }

    fn issue(&self, params: &CertificateParams) -> CertificateWithKey {
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        CertificateWithKey {
            cert: cert.pem(),
            key: key.serialize_pem(),
            der: cert.der().clone(),
            key_der: key.serialize_der(),
        }
    }
}

/// What a handshake came to.
#[derive(Debug)]
pub struct HandshakeResult {
    pub shown: Option<CertificateDer<'static>>,
    pub version: Option<ProtocolVersion>,
    pub protocol: Option<Vec<u8>>,
    pub key_exchange: Option<NamedGroup>,
    /// In how many round trips, and whether by a ticket.
    pub kind: Option<HandshakeKind>,
    pub resumed: bool,
}

/// A browser: what it remembers of sessions it keeps from one visit to the next.
pub struct Browser(ClientConfig);

impl Browser {
    /// One that takes any certificate, and speaks 1.2 and 1.3.
    pub fn new() -> Self {
        Self::speaking(&[&version::TLS13, &version::TLS12], None)
    }

    pub fn speaking(
        versions: &[&'static SupportedProtocolVersion],
        person: Option<&CertificateWithKey>,
    ) -> Self {
        Self::made_with(aws_lc_rs::default_provider(), versions, person)
    }

    /// One that knows these key exchanges, in its order of preference, and no others.
    pub fn exchanging(groups: &[&'static dyn SupportedKxGroup]) -> Self {
        let provider =
            CryptoProvider { kx_groups: groups.to_vec(), ..aws_lc_rs::default_provider() };
        Self::made_with(provider, &[&version::TLS13, &version::TLS12], None)
    }

    fn made_with(
        provider: CryptoProvider,
        versions: &[&'static SupportedProtocolVersion],
        person: Option<&CertificateWithKey>,
    ) -> Self {
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(versions)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(PermissiveVerifier));
        let config = match person {
            None => config.with_no_client_auth(),
            Some(person) => {
                let key = PrivateKeyDer::try_from(person.key_der.clone()).unwrap();
                config.with_client_auth_cert(vec![person.der()], key).unwrap()
            }
        };
        Self(config)
    }

    /// A browser with a client certificate.
    pub fn of(person: &CertificateWithKey) -> Self {
        Self::speaking(&[&version::TLS13, &version::TLS12], Some(person))
    }

    /// One that shows the certificate of another visitor, and signs by its own key.
    pub fn impostor(
        version: &'static SupportedProtocolVersion,
        shown: &CertificateWithKey,
        own: &CertificateWithKey,
    ) -> Self {
        let key = PrivateKeyDer::try_from(own.key_der.clone()).unwrap();
        let key = aws_lc_rs::default_provider().key_provider.load_private_key(key).unwrap();
        let identity = CertifiedKey::new(vec![shown.der()], key);
        let mut browser = Self::speaking(&[version], None);
        browser.0.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(identity));
        browser
    }

    /// Asks for no site by name.
    pub fn nameless(mut self) -> Self {
        self.0.enable_sni = false;
        self
    }

    /// Offers protocols (ALPN).
    pub fn offering(mut self, protocols: &[&[u8]]) -> Self {
        self.0.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        self
    }

    /// Sends a request before the handshake is over, where a ticket allows it.
    pub fn hasty(mut self) -> Self {
        self.0.enable_early_data = true;
        self
    }

    /// Whether a ticket allows that at a connection for `name`. It uses one up.
    pub fn may_be_hasty(&self, name: &str) -> bool {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut session = ClientConnection::new(Arc::new(self.0.clone()), name).unwrap();
        session.early_data().is_some()
    }

    /// Makes a connection for `name`.
    pub fn visit(&self, address: SocketAddr, name: &str) -> (Client, HandshakeResult) {
        self.try_visit(address, name, b"").expect("a handshake")
    }

    /// The same, where there may be no handshake; `before` goes before it.
    pub fn try_visit(
        &self,
        address: SocketAddr,
        name: &str,
        before: &[u8],
    ) -> Option<(Client, HandshakeResult)> {
        let (near, greeted) = self.try_carry(address, name, before)?;
        Some((Client::over(near), greeted))
    }

    /// A socket on which whatever is said goes over TLS, for clients of other protocols.
    pub fn carry(&self, address: SocketAddr, name: &str) -> UnixStream {
        self.try_carry(address, name, b"").expect("a handshake").0
    }

    fn try_carry(
        &self,
        address: SocketAddr,
        name: &str,
        before: &[u8],
    ) -> Option<(UnixStream, HandshakeResult)> {
        let (near, far) = UnixStream::pair().unwrap();
        let connector = TlsConnector::from(Arc::new(self.0.clone()));
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let (tell, told) = mpsc::channel();
        let before = before.to_vec();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(carry(far, address, connector, name, &before, &tell));
        });
        let greeted = told.recv_timeout(DEADLINE).expect("an end of the handshake")?;
        Some((near, greeted))
    }
}

/// Carries bytes between a visitor's end and the proxy's.
async fn carry(
    far: UnixStream,
    address: SocketAddr,
    connector: TlsConnector,
    name: ServerName<'static>,
    before: &[u8],
    tell: &mpsc::Sender<Option<HandshakeResult>>,
) {
    use tokio::io::{AsyncWriteExt as _, copy_bidirectional};

    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    socket.write_all(before).await.unwrap();
    let Ok(mut stream) = connector.connect(name, socket).await else {
        // The caller may have given up.
        return drop(tell.send(None));
    };
    let (_, session) = stream.get_ref();
    let greeted = HandshakeResult {
        shown: session.peer_certificates().and_then(|chain| chain.first().cloned()),
        version: session.protocol_version(),
        protocol: session.alpn_protocol().map(<[u8]>::to_vec),
        key_exchange: session.negotiated_key_exchange_group().map(|group| group.name()),
        kind: session.handshake_kind(),
        resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
    };
    drop(tell.send(Some(greeted)));
    far.set_nonblocking(true).unwrap();
    let mut far = tokio::net::UnixStream::from_std(far).unwrap();
    // It ends when either side does; how is what a case looks at.
    drop(copy_bidirectional(&mut far, &mut stream).await);
}

/// Takes any certificate: which one is shown is what the cases look at.
#[derive(Debug)]
struct PermissiveVerifier;

impl ServerCertVerifier for PermissiveVerifier {
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
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = aws_lc_rs::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signed, &known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = aws_lc_rs::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signed, &known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
