//! A client that does nothing but TLS 1.3 handshakes, for benches/tls.py.
//!
//!     handshakes PORT SECONDS full|resumed hybrid|x25519|p256
//!
//! Each of some threads makes one connection after the other, until the server has sent a ticket, and then closes it.
//! It prints how many there were in how many seconds. It ends with an error where one was of another kind than wanted.
//! Against a server without the hybrid, `hybrid` is X25519: what was agreed on is printed. Certificates are
//! not verified: that would be this client's time.

use std::error::Error;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, ClientConnection, Resumption};
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, HandshakeKind, NamedGroup, SignatureScheme, version};

/// More than a server of one thread keeps busy.
const THREADS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(10);

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, seconds, kind, exchange] = arguments.as_slice() else {
        return Err("handshakes PORT SECONDS full|resumed hybrid|x25519|p256".into());
    };
    let (port, time) = (port.parse()?, Duration::from_secs(seconds.parse()?));
    let resumes = match kind.as_str() {
        "full" => false,
        "resumed" => true,
        _ => return Err("full or resumed".into()),
    };
    let groups = match exchange.as_str() {
        "hybrid" => vec![kx_group::X25519MLKEM768, kx_group::X25519],
        "x25519" => vec![kx_group::X25519],
        "p256" => vec![kx_group::SECP256R1],
        _ => return Err("hybrid, x25519 or p256".into()),
    };
    // A ticket is for one connection: each thread has its own.
    let configs = (0..THREADS).map(|_| config(&groups, resumes)).collect::<Result<Vec<_>, _>>()?;
    let mut group = None;
    for config in &configs {
        group = Some(handshake(config, port)?.0);
    }
    let made = AtomicU64::new(0);
    let (since, count) = (Instant::now(), &made);
    thread::scope(|scope| {
        let threads: Vec<_> = configs
            .iter()
            .map(|config| scope.spawn(move || repeat(config, port, resumes, since + time, count)))
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok::<_, Failure>(())
    })?;
    let group = group.ok_or("no handshake")?;
    println!("{} in {:.3} s by {group:?}", made.into_inner(), since.elapsed().as_secs_f64());
    Ok(())
}

fn repeat(
    config: &Arc<ClientConfig>,
    port: u16,
    resumes: bool,
    end: Instant,
    made: &AtomicU64,
) -> Result<(), Failure> {
    let wanted = if resumes { HandshakeKind::Resumed } else { HandshakeKind::Full };
    while Instant::now() < end {
        let (_, kind) = handshake(config, port)?;
        if kind != wanted {
            return Err(format!("{kind:?} where {wanted:?} was wanted").into());
        }
        made.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn handshake(
    config: &Arc<ClientConfig>,
    port: u16,
) -> Result<(NamedGroup, HandshakeKind), Failure> {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut session =
        ClientConnection::new(Arc::clone(config), ServerName::try_from("bench.test")?)?;
    while session.is_handshaking() || session.wants_write() || session.tls13_tickets_received() == 0
    {
        if session.wants_write() {
            session.write_tls(&mut socket)?;
        } else if session.read_tls(&mut socket)? == 0 {
            return Err("the server closed a connection".into());
        } else {
            session.process_new_packets()?;
        }
    }
    session.send_close_notify();
    session.write_tls(&mut socket)?;
    let group = session.negotiated_key_exchange_group().ok_or("no key exchange")?.name();
    Ok((group, session.handshake_kind().ok_or("no kind")?))
}

fn config(
    groups: &[&'static dyn SupportedKxGroup],
    resumes: bool,
) -> Result<Arc<ClientConfig>, Failure> {
    let provider = CryptoProvider { kx_groups: groups.to_vec(), ..default_provider() };
    let schemes = provider.signature_verification_algorithms.supported_schemes();
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PermissiveVerifier(schemes)))
        .with_no_client_auth();
    if !resumes {
        config.resumption = Resumption::disabled();
    }
    Ok(Arc::new(config))
}

/// Accepts all, and so takes no time.
#[derive(Debug)]
struct PermissiveVerifier(Vec<SignatureScheme>);

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
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}
