//! Converts a plan's `[acme]` into the task that orders certificates, and provides their files before a listener reads
//! them.

use std::collections::HashMap;
use std::sync::Arc;

use anteroom_acme::{
    CertificateBoard, CertificateFolder, Certifier, CertifierSettings, ChallengeLookup, NameStatus,
    Sealer, Share,
};
use anteroom_config::{Plan, StoreUrl};
use anteroom_origin::{TlsRules, client_config};
use anteroom_store::AnyStore;
use anteroom_telemetry::metrics::{Metrics, Reading, ThreadMetrics};
use rustls::ClientConfig;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::certificate_parts::CertificateParts;
use super::shared_state::SharedState;
use super::start_error::StartError;
use crate::task::{self, KeepCertificates};

/// Provides a certificate for each name that one is ordered for: a self-signed one where there is none yet. `serves`:
/// this process does, so that its files are its own. Returns the names, each with whether it has only such a one. Waits
/// for the disk.
pub(super) fn prepare(plan: &Plan, serves: bool) -> Result<HashMap<String, bool>, StartError> {
    if !plan.orders_certificates() {
        return Ok(HashMap::new());
    }
    let folder = CertificateFolder::open(&plan.acme.folder)?;
    let names = plan.certificate_names().wanted;
    // The process that serves until this one does may write at the same time.
    let may_replace = serves || !folder.is_in_use();
    let hosts = names.iter().map(|wanted| wanted.name.as_str());
    let unissued = folder.prepare(hosts, may_replace)?;
    if !unissued.is_empty() {
        let names = unissued.join(", ");
        tracing::warn!(
            names,
            "a self-signed certificate is shown until the first one is issued; until then there is neither a \
             redirect to https nor Strict-Transport-Security"
        );
    }
    let names = names.into_iter().map(|wanted| wanted.name);
    let is_awaited = |name: String| {
        let is_awaited = unissued.contains(&name);
        (name, is_awaited)
    };
    Ok(names.map(is_awaited).collect())
}

/// Where answers to challenges are looked up, if certificates are ordered.
pub(super) fn lookup(plan: &Plan, board: &CertificateBoard) -> Option<ChallengeLookup> {
    let answers = Arc::clone(&board.answers);
    plan.orders_certificates().then(|| ChallengeLookup { answers, sealer: sealer(plan) })
}

/// What seals values that proxies share, if they share any.
fn sealer(plan: &Plan) -> Option<Arc<Sealer>> {
    let secret = plan.acme.secret.as_ref();
    let secret = secret.filter(|_| matches!(plan.store.url, StoreUrl::Redis(_)))?;
    match Sealer::new(secret.expose().as_bytes()) {
        Ok(sealer) => Some(Arc::new(sealer)),
        Err(error) => {
            tracing::error!(%error, "certificates are not shared");
            None
        }
    }
}

/// TLS towards the authority, if certificates are ordered. Reads the trusted certificates.
pub(super) fn authority_tls(plan: &Plan) -> Result<Option<Arc<ClientConfig>>, StartError> {
    if !plan.orders_certificates() {
        return Ok(None);
    }
    let rules = TlsRules { ca: plan.acme.ca.clone(), ..TlsRules::default() };
    let config = client_config(&rules).map_err(StartError::AuthorityTls)?;
    Ok(Some(Arc::new(config)))
}

/// Starts the task on this thread's runtime, if certificates are ordered.
pub(super) fn start(
    plan: &Plan,
    authority: Option<&Arc<ClientConfig>>,
    shared: &SharedState,
    store: &AnyStore,
    thread_metrics: &Arc<ThreadMetrics>,
    stop: &CancellationToken,
) -> Option<JoinHandle<()>> {
    let Some(authority) = authority else {
        // What an earlier configuration has ordered is not told any more.
        shared.certificates.board.expect(HashMap::new());
        return None;
    };
    let folder = match CertificateFolder::open(&plan.acme.folder) {
        Ok(folder) => folder,
        Err(error) => {
            tracing::error!(%error, "no certificates are ordered");
            return None;
        }
    };
    let settings = CertifierSettings {
        names: plan.certificate_names().wanted,
        directory: plan.acme.directory.clone(),
        email: plan.acme.email.clone(),
        profile: plan.acme.profile.clone(),
        dns_hook: plan.acme.dns_hook.clone(),
        tls: Arc::clone(authority),
    };
    let process_id = shared.pages.purged.process_id;
    let share = sealer(plan).map(|sealer| Share::new(store.background(), sealer, process_id));
    let CertificateParts { board, tls } = shared.certificates.clone();
    let reload = Box::new(move || tls.load().iter().for_each(|tls| tls.reload()));
    let certifier = Certifier::new(settings, folder, share, Arc::clone(&board), reload);
    let keep = KeepCertificates { certifier, board, rest: Default::default() };
    Some(tokio::task::spawn_local(task::drive(keep, Arc::clone(thread_metrics), stop.clone())))
}

/// Registers the metrics that are read at each scrape.
pub(super) fn register(board: &Arc<CertificateBoard>, metrics: &Metrics) {
    let help = "Unix time at which the certificate ordered for a name expires; 0: none yet";
    let expires = of_names(board, |status| status.not_after.unwrap_or_default());
    metrics.gauges("anteroom_ordered_certificate_expires", help, expires);
    let help = "Unix time before which a name is not tried again; 0: at any time";
    let next_try = of_names(board, |status| status.next_try.unwrap_or_default());
    metrics.gauges("anteroom_ordered_certificate_next_try", help, next_try);
    let help = "Failures to order a certificate for a name since the last one";
    let failures = of_names(board, |status| i64::from(status.failures));
    metrics.gauges("anteroom_ordered_certificate_failures", help, failures);
    let help = "Unix time of the last failure to order a certificate for a name; 0: none";
    let failed_at = of_names(board, |status| status.failed_at.unwrap_or_default());
    metrics.gauges("anteroom_ordered_certificate_last_failure", help, failed_at);
    let own = Arc::clone(board);
    let help = "Certificates that were issued to this proxy";
    metrics.counter("anteroom_certificates_issued", help, move || own.issued());
    let own = Arc::clone(board);
    let help = "Steps of ordering a certificate that failed";
    metrics.counter("anteroom_certificate_order_errors", help, move || own.failed());
}

/// Reads a value of each name.
fn of_names(
    board: &Arc<CertificateBoard>,
    value: fn(&NameStatus) -> i64,
) -> impl Fn() -> Vec<Reading> + Send + Sync + use<> {
    let board = Arc::clone(board);
    move || {
        let reading = |status: &NameStatus| Reading {
            labels: vec![("name", status.name.clone())],
            value: u64::try_from(value(status)).unwrap_or_default(),
        };
        board.statuses().iter().map(reading).collect()
    }
}
