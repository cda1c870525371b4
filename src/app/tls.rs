//! Converts a plan's `[listen.tls]` into the TLS of a listener, and watches its files.

use std::sync::Arc;
use std::time::Duration;

use ::http::HeaderValue;
use anteroom_config::{self, ClientCerts, Listen, Plan, TlsVersion};
use anteroom_policy::listener::{AwaitedCertificates, ListenerRules, Redirect};
use anteroom_proxy::serve::tls::{ClientTls, ClientTlsError, Clients, TlsSettings};
use anteroom_telemetry::metrics::Metrics;
use anteroom_tls::{TicketKeys, TicketSecret};
use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

/// How often the files are checked. A change is adopted when they have been stable for one check.
const LOOK: Duration = Duration::from_secs(2);

/// The TLS of all listeners that use it; a reload changes it.
pub(super) type All = Arc<ArcSwap<Vec<Arc<ClientTls>>>>;

/// The TLS of a listener, if it has any. The `old` one is kept if at most its files may have changed.
pub(super) fn open(
    listen: &Listen,
    old: Option<&Arc<ClientTls>>,
    ticket_keys: &Arc<TicketKeys>,
) -> Result<Option<Arc<ClientTls>>, ClientTlsError> {
    if !listen.is_secured() {
        return Ok(None);
    }
    let tls = &listen.tls;
    // The check of the plan has verified that a required file is set.
    let authorities = || tls.client_ca.clone().unwrap_or_default();
    let settings = TlsSettings {
        sources: tls.sources(),
        default: tls.default.clone(),
        clients: match tls.client_certs {
            ClientCerts::Off => Clients::NotRequested,
            ClientCerts::Optional => Clients::Optional(authorities()),
            ClientCerts::Required => Clients::Required(authorities()),
        },
        only_1_3: tls.min_version == TlsVersion::V1_3,
        h2: listen.h2,
        ticket_secrets: tls
            .ticket_secret
            .iter()
            .map(|secret| TicketSecret::new(secret.expose()))
            .collect(),
        answers_challenges: tls.is_auto(),
    };
    if let Some(old) = old.filter(|old| *old.settings() == settings) {
        old.reload();
        return Ok(Some(Arc::clone(old)));
    }
    ClientTls::open(settings, ticket_keys).map(Some)
}

/// Whether a listener seals tickets by keys that it has alike with the proxies on its store.
pub(super) fn shares_ticket_keys(plan: &Plan) -> bool {
    plan.listen.iter().any(|listen| {
        let tls = &listen.tls;
        let is_private = tls.client_certs != ClientCerts::Off || !tls.ticket_secret.is_empty();
        listen.is_secured() && !is_private
    })
}

/// The rules for all requests that arrive at a listener.
pub(super) fn entry(listen: &Listen, awaited: &Arc<AwaitedCertificates>) -> Arc<ListenerRules> {
    let redirect =
        listen.redirect.map(|port| Redirect { port, except: listen.redirect_except.clone() });
    let awaited = Arc::clone(awaited);
    Arc::new(ListenerRules { redirect, hsts: hsts(&listen.tls), awaited })
}

fn hsts(tls: &anteroom_config::TlsConfig) -> Option<HeaderValue> {
    let seconds = tls.hsts?.as_secs();
    let below = if tls.hsts_subdomains { "; includeSubDomains" } else { "" };
    HeaderValue::try_from(format!("max-age={seconds}{below}")).ok()
}

/// Registers the metrics that are read at each scrape.
pub(super) fn register(all: &All, metrics: &Metrics) {
    let own = Arc::clone(all);
    metrics.gauge(
        "anteroom_tls_certificate_expires",
        "Unix time at which the first certificate in a file expires; 0: there is none",
        move || {
            let own = own.load();
            let kept = own.iter().filter(|tls| !tls.settings().answers_challenges);
            let first = kept.map(|tls| tls.expires()).min();
            first.and_then(|first| u64::try_from(first).ok()).unwrap_or(0)
        },
    );
    let own = Arc::clone(all);
    metrics.counter(
        "anteroom_tls_file_errors",
        "Files of certificates that could not be read again",
        move || own.load().iter().map(|tls| tls.faults()).sum(),
    );
}

/// Checks the files until `stop`, in parallel with everything else.
pub(super) async fn watch(all: All, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.cancelled() => return,
        }
        let own = all.load_full();
        if own.is_empty() {
            continue;
        }
        let look = tokio::task::spawn_blocking(move || own.iter().for_each(|tls| tls.look()));
        if let Err(error) = look.await {
            tracing::error!(%error, "cannot check the certificate files");
        }
    }
}
