//! TLS towards clients: the certificates of a listener, renewed while it runs, and the handshake.
//!
//! All threads share one [`Tls`] of a listener. Its certificates are chosen anew by each handshake; what
//! else there is to it stands in a configuration of rustls, which is replaced when the authorities of
//! clients change: with it go the tickets that were given out, for whoever shows one is not asked again,
//! and the connections on which clients were asked.

mod handshake;
mod protocol;
mod settings;
mod watch;

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use rustls::crypto::ring;
use rustls::server::{
    ClientHello, NoClientAuth, ResolvesServerCert, ServerSessionMemoryCache, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, version};
use tokio_util::sync::CancellationToken;

use crate::certificate::{Certificate, Fault, Table};
use crate::clock::unix_now;
use watch::State;

pub(super) use handshake::{Ahead, Refusal, enter};
pub use protocol::Protocol;
pub use settings::{Clients, Settings};

/// The protocols that are offered (ALPN), the most liked first.
const PROTOCOLS: [Protocol; 2] = [Protocol::Http2, Protocol::Http1];

/// Sessions that are remembered here, for clients that take no tickets.
const SESSIONS_MAX: usize = 4_096;

/// Why a listener has no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Something is wrong with its files.
    #[error("{}", told(.0))]
    Files(Vec<Fault>),
    /// What they hold does not do.
    #[error("{0}")]
    Unusable(String),
}

fn told(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The TLS of a listener.
pub struct Tls {
    settings: Settings,
    way: ArcSwap<Way>,
    /// Cancelled when another takes its place.
    replaced: CancellationToken,
    shown: Arc<Shown>,
    /// What was read last. Held while files are read, never by a handshake.
    state: Mutex<State>,
    /// Unix time at which the first of the certificates that are shown expires.
    expires: AtomicI64,
    faults: AtomicU64,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files of a listener.
    ///
    /// # Errors
    /// When one of them cannot be used. Their time is not looked at: an expired certificate is better than
    /// none.
    pub fn open(settings: Settings) -> Result<Arc<Self>, TlsError> {
        let (state, faults) = State::read(&settings, None);
        if !faults.is_empty() {
            return Err(TlsError::Files(faults));
        }
        let shown = Arc::new(Shown { table: ArcSwap::from_pointee(state.table(&settings)) });
        let config = config(&settings, state.authorities.as_ref(), &shown)?;
        let replaced = CancellationToken::new();
        Ok(Arc::new(Self {
            way: ArcSwap::from_pointee(Way::new(config, &replaced)),
            replaced,
            shown,
            expires: AtomicI64::new(state.expires()),
            state: Mutex::new(state),
            settings,
            faults: AtomicU64::new(0),
        }))
    }

    /// What it is made of.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Unix time at which the first of the certificates expires.
    #[must_use]
    pub fn expires(&self) -> i64 {
        self.expires.load(Ordering::Relaxed)
    }

    /// How often something was wrong with a file.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Another takes its place: what clients showed here counts no more.
    pub fn give_way(&self) {
        self.replaced.cancel();
    }

    /// Whether clients are asked for certificates.
    pub(super) fn asks_clients(&self) -> bool {
        self.settings.clients.authorities().is_some()
    }

    /// Reads the files anew where they have changed, and lie still since the last look: whoever renews
    /// them writes several. Blocks.
    pub fn look(&self) {
        let mut state = self.lock();
        let stamps = watch::stamps(&self.settings);
        let is_still = state.seen == stamps;
        // What went wrong may come right without a trace on the files.
        if is_still && (state.stamps != stamps || !state.told.is_empty()) {
            self.renew(&mut state);
        }
        state.seen = stamps;
    }

    /// Reads the files anew. What is wrong with one is logged, and the last good one stays in its place.
    /// Blocks.
    pub fn reload(&self) {
        self.renew(&mut self.lock());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // The state is replaced as a whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn renew(&self, state: &mut State) {
        let (next, faults) = State::read(&self.settings, Some(state));
        // It is read again and again until it is right, and told of once.
        if next.told == state.told && next.stamps == state.stamps {
            return;
        }
        for fault in &faults {
            tracing::error!(%fault, "the last good certificate stays in use");
        }
        self.faults.fetch_add(faults.len() as u64, Ordering::Relaxed);
        let now = unix_now() as i64;
        for fault in next.certificates.iter().filter_map(|one| one.out_of_time(now)) {
            tracing::warn!(%fault, "a certificate is shown out of its time");
        }
        if !next.asks_as(state) {
            match config(&self.settings, next.authorities.as_ref(), &self.shown) {
                Ok(config) => {
                    let next = Arc::new(Way::new(config, &self.replaced));
                    self.way.swap(next).outdated.cancel();
                }
                Err(error) => {
                    tracing::error!(%error, "the last good authorities stay in use");
                    self.faults.fetch_add(1, Ordering::Relaxed);
                    state.stamps = next.stamps;
                    return;
                }
            }
        }
        self.shown.table.store(Arc::new(next.table(&self.settings)));
        self.expires.store(next.expires(), Ordering::Relaxed);
        tracing::info!(certificates = next.certificates.len(), "certificates were read anew");
        let seen = std::mem::take(&mut state.seen);
        *state = State { seen, ..next };
    }
}

/// How handshakes are carried out, until clients are asked for other certificates.
struct Way {
    config: Arc<ServerConfig>,
    /// Cancelled then.
    outdated: CancellationToken,
}

impl Way {
    fn new(config: ServerConfig, replaced: &CancellationToken) -> Self {
        Self { config: Arc::new(config), outdated: replaced.child_token() }
    }
}

/// What new handshakes show.
struct Shown {
    table: ArcSwap<Table>,
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let readable = |one: &Certificate| one.keyed.key.choose_scheme(schemes).is_some();
        let table = self.table.load();
        let chosen = table.choose(hello.server_name(), unix_now() as i64, readable)?;
        Some(Arc::clone(&chosen.keyed))
    }
}

/// A configuration with tickets of its own: one that was given out by another, where other authorities
/// were asked for, opens nothing here.
fn config(
    settings: &Settings,
    authorities: Option<&Arc<RootCertStore>>,
    shown: &Arc<Shown>,
) -> Result<ServerConfig, TlsError> {
    let unusable = |error: &dyn fmt::Display| TlsError::Unusable(error.to_string());
    let provider = Arc::new(ring::default_provider());
    let versions: &[_] =
        if settings.only_1_3 { &[&version::TLS13] } else { &[&version::TLS13, &version::TLS12] };
    let verifier = match authorities {
        None => Arc::new(NoClientAuth),
        Some(roots) => {
            let roots = Arc::clone(roots);
            let all = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
            let all = match settings.clients {
                Clients::Optional(_) => all.allow_unauthenticated(),
                Clients::Unasked | Clients::Required(_) => all,
            };
            all.build().map_err(|error| unusable(&error))?
        }
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|error| unusable(&error))?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::clone(shown) as Arc<dyn ResolvesServerCert>);
    // Each that we offer is strong; the order is that of the strongest, and what scanners ask for.
    config.ignore_client_order = true;
    let offered = PROTOCOLS.iter().filter(|one| settings.h2 || **one != Protocol::Http2);
    config.alpn_protocols = offered.map(|protocol| protocol.name().to_vec()).collect();
    config.ticketer = ring::Ticketer::new().map_err(|error| unusable(&error))?;
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
    // What came early may come again: it would be asked of the app twice.
    config.max_early_data_size = 0;
    Ok(config)
}
