//! TLS towards clients: the certificates of a listener, renewed while it runs, and the handshake.
//!
//! All threads share one [`ClientTls`] per listener. Each handshake selects its certificate. Everything else
//! is in a rustls configuration, which is replaced when the client authorities change. The connections whose
//! clients were asked for certificates end with it, and so do the tickets that they got, because a client with a
//! ticket is not asked again. Other tickets outlive it, and the process.

mod challenge;
mod handshake;
mod protocol;
mod settings;
mod watch;

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anteroom_http::clock::unix_now;
use anteroom_tls::TicketKeys;
use arc_swap::ArcSwap;
use rustls::server::{
    ClientHello, NoClientAuth, ProducesTickets, ResolvesServerCert, ServerSessionMemoryCache,
    WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, version};
use tokio_util::sync::CancellationToken;

use anteroom_config::certificate::{Certificate, CertificateTable, Fault};
use watch::WatchedFiles;

pub(super) use challenge::StoredChallenges;
pub(super) use handshake::{HandshakeError, PrefixedSocket, enter};
pub use protocol::Protocol;
pub use settings::{Clients, TlsSettings};

/// The offered protocols (ALPN), in order of preference.
const PROTOCOLS: [Protocol; 2] = [Protocol::Http2, Protocol::Http1];

/// Sessions stored here, for clients of TLS 1.2 without ticket support. No other process knows them.
const SESSIONS_MAX: usize = 4_096;

/// Why a listener has no TLS.
#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    /// Its files have problems.
    #[error("{}", sentence(.0))]
    Files(Vec<Fault>),
    /// What they hold does not do.
    #[error("{0}")]
    Unusable(String),
}

fn sentence(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The TLS of a listener.
pub struct ClientTls {
    settings: TlsSettings,
    acceptors: ArcSwap<TlsAcceptors>,
    /// Cancelled when another one replaces it.
    replaced: CancellationToken,
    certificates: Arc<CertificateResolver>,
    ticket_keys: Arc<TicketKeys>,
    /// The content that was read last. The lock is held while files are read, never by a handshake.
    state: Mutex<WatchedFiles>,
    /// The Unix time of the first expiry among the certificates in use.
    expires: AtomicI64,
    faults: AtomicU64,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl ClientTls {
    /// Reads the files of a listener. `ticket_keys` are those that it shares with other proxies.
    ///
    /// # Errors
    /// If a file cannot be used. The validity period is not checked: an expired certificate is better than
    /// none.
    pub fn open(
        settings: TlsSettings,
        ticket_keys: &Arc<TicketKeys>,
    ) -> Result<Arc<Self>, ClientTlsError> {
        let (state, faults) = WatchedFiles::read(&settings, None);
        if !faults.is_empty() {
            return Err(ClientTlsError::Files(faults));
        }
        let shown =
            Arc::new(CertificateResolver { table: ArcSwap::from_pointee(state.table(&settings)) });
        let config = config(&settings, state.authorities.as_ref(), &shown, ticket_keys)?;
        let replaced = CancellationToken::new();
        Ok(Arc::new(Self {
            acceptors: ArcSwap::from_pointee(TlsAcceptors::new(config, &replaced)),
            replaced,
            certificates: shown,
            ticket_keys: Arc::clone(ticket_keys),
            expires: AtomicI64::new(state.expires()),
            state: Mutex::new(state),
            settings,
            faults: AtomicU64::new(0),
        }))
    }

    /// The settings that it was made from.
    #[must_use]
    pub fn settings(&self) -> &TlsSettings {
        &self.settings
    }

    /// The Unix time of the first expiry among the certificates.
    #[must_use]
    pub fn expires(&self) -> i64 {
        self.expires.load(Ordering::Relaxed)
    }

    /// The certificates that clients are shown.
    #[must_use]
    pub fn certificates(&self) -> Vec<Arc<Certificate>> {
        self.certificates.table.load().all().to_vec()
    }

    /// The number of problems with files.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Ends it, because another one replaces it: earlier client authentication is void.
    pub fn give_way(&self) {
        self.replaced.cancel();
    }

    /// Whether clients are asked for certificates.
    pub(super) fn requests_client_certs(&self) -> bool {
        self.settings.clients.authorities().is_some()
    }

    /// Reads the files again if they have changed and been stable since the last check, because a renewal
    /// writes several. Blocks.
    pub fn look(&self) {
        let mut state = self.lock();
        let stamps = watch::stamps(&self.settings);
        let is_still = state.seen == stamps;
        // A problem may disappear without a change of the files.
        if is_still && (state.stamps != stamps || !state.reported.is_empty()) {
            self.renew(&mut state);
        }
        state.seen = stamps;
    }

    /// Reads the files again. A problem is logged, and the last good content is kept. Blocks.
    pub fn reload(&self) {
        self.renew(&mut self.lock());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, WatchedFiles> {
        // The state is replaced as a whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn renew(&self, state: &mut WatchedFiles) {
        let (next, faults) = WatchedFiles::read(&self.settings, Some(state));
        // A broken file is read again until it is valid, and reported once.
        if next.reported == state.reported && next.stamps == state.stamps {
            return;
        }
        for fault in &faults {
            tracing::error!(%fault, "the last good certificate stays in use");
        }
        self.faults.fetch_add(faults.len() as u64, Ordering::Relaxed);
        let now = unix_now() as i64;
        for fault in next.certificates.iter().filter_map(|one| one.out_of_time(now)) {
            tracing::warn!(%fault, "a certificate outside its validity period is in use");
        }
        if !next.requests_same_authorities(state) {
            let (shown, keys) = (&self.certificates, &self.ticket_keys);
            match config(&self.settings, next.authorities.as_ref(), shown, keys) {
                Ok(config) => {
                    let next = Arc::new(TlsAcceptors::new(config, &self.replaced));
                    self.acceptors.swap(next).outdated.cancel();
                }
                Err(error) => {
                    tracing::error!(%error, "the last good authorities stay in use");
                    self.faults.fetch_add(1, Ordering::Relaxed);
                    state.stamps = next.stamps;
                    return;
                }
            }
        }
        self.certificates.table.store(Arc::new(next.table(&self.settings)));
        self.expires.store(next.expires(), Ordering::Relaxed);
        let renewed = next.read_since(state);
        if renewed > 0 {
            tracing::info!(certificates = renewed, "certificates were reloaded");
        }
        let seen = std::mem::take(&mut state.seen);
        *state = WatchedFiles { seen, ..next };
    }
}

/// The handshake settings, until clients are asked for other certificates.
struct TlsAcceptors {
    config: Arc<ServerConfig>,
    /// Cancelled at that time.
    outdated: CancellationToken,
}

impl TlsAcceptors {
    fn new(config: ServerConfig, replaced: &CancellationToken) -> Self {
        Self { config: Arc::new(config), outdated: replaced.child_token() }
    }
}

/// Selects the certificate of new handshakes.
struct CertificateResolver {
    table: ArcSwap<CertificateTable>,
}

impl fmt::Debug for CertificateResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateResolver").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let readable = |one: &Certificate| one.keyed.key.choose_scheme(schemes).is_some();
        let table = self.table.load();
        let chosen = table.choose(hello.server_name(), unix_now() as i64, readable)?;
        Some(Arc::clone(&chosen.keyed))
    }
}

/// How a listener issues tickets.
///
/// SECURITY: a ticket holds the client's certificate, and the client that resumes is not verified again. So where
/// certificates are asked for, tickets are those of this configuration alone: one that was issued for other authorities,
/// or without a certificate, is invalid here, and what reads the store cannot make one. Listeners that ask for none
/// accept each other's tickets: they belong to one site, and a session is resumed for the name only that it was made for.
fn ticketer(
    settings: &TlsSettings,
    requests_client_certs: bool,
    keys: &Arc<TicketKeys>,
) -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
    match settings.ticket_secrets.as_slice() {
        _ if requests_client_certs => anteroom_tls::private_ticketer(),
        [] => Ok(keys.ticketer(unix_now)),
        secrets => anteroom_tls::secret_ticketer(secrets, unix_now),
    }
}

fn config(
    settings: &TlsSettings,
    authorities: Option<&Arc<RootCertStore>>,
    shown: &Arc<CertificateResolver>,
    ticket_keys: &Arc<TicketKeys>,
) -> Result<ServerConfig, ClientTlsError> {
    let unusable = |error: &dyn fmt::Display| ClientTlsError::Unusable(error.to_string());
    let provider = anteroom_tls::provider();
    let versions: &[_] =
        if settings.only_1_3 { &[&version::TLS13] } else { &[&version::TLS13, &version::TLS12] };
    let verifier = match authorities {
        None => Arc::new(NoClientAuth),
        Some(roots) => {
            let roots = Arc::clone(roots);
            let all = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
            let all = match settings.clients {
                Clients::Optional(_) => all.allow_unauthenticated(),
                Clients::NotRequested | Clients::Required(_) => all,
            };
            all.build().map_err(|error| unusable(&error))?
        }
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|error| unusable(&error))?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::clone(shown) as Arc<dyn ResolvesServerCert>);
    // All offered suites are strong; the order prefers the strongest, as scanners expect.
    config.ignore_client_order = true;
    let offered = PROTOCOLS.iter().filter(|one| settings.h2 || **one != Protocol::Http2);
    config.alpn_protocols = offered.map(|protocol| protocol.name().to_vec()).collect();
    config.ticketer =
        ticketer(settings, authorities.is_some(), ticket_keys).map_err(|error| unusable(&error))?;
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
    // Early data can be replayed, and the app would then receive the request twice.
    config.max_early_data_size = 0;
    Ok(config)
}
