//! Converts a plan's `on_expire = "webhook:…"` into the task that reports abandoned carts.

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderValue, Uri};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::shared_state::SharedState;
use super::start_error::StartError;
use crate::config::{OnExpire, Plan, WebhookUrl};
use crate::http::host::Scheme;
use crate::origin::{
    OriginTlsConnector, OriginTlsError, ServerConnections, ServerSettings, TlsRules,
};
use crate::policy::origin::Http2;
use crate::store::AnyStore;
use crate::task::{self, Deliver, Webhook, WebhookKeys};
use crate::telemetry::metrics::ThreadMetrics;

/// The timeout of a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The timeout of a response, to its head and between two parts; the task's own limit is shorter.
const ANSWER: Duration = Duration::from_secs(30);

/// Starts the task on this thread's runtime, if there is a webhook.
pub(super) fn start(
    (plan, settings): (&Plan, Option<&ServerSettings>),
    shared: &SharedState,
    thread_metrics: &Arc<ThreadMetrics>,
    store: &AnyStore,
    stop: &CancellationToken,
) -> Option<JoinHandle<()>> {
    let OnExpire::Webhook(url) = &plan.session.on_expire else { return None };
    let settings = settings?.clone();
    let keys = plan.session.webhook_secret.iter().map(|key| key.expose().as_bytes().to_vec());
    let deliver = Deliver {
        store: store.background(),
        webhook: Webhook {
            // A webhook is not an origin, so the origin counters do not count it.
            receiver: ServerConnections::new(settings, Arc::default()),
            host: host(url),
            target: Uri::try_from(&url.target).unwrap_or_default(),
            keys: WebhookKeys(keys.collect()),
        },
        who: fastrand::u64(..),
        waiting: Arc::clone(&shared.events_waiting),
        thread_metrics: Arc::clone(thread_metrics),
        refusals: Default::default(),
        taken: Default::default(),
        done: Default::default(),
    };
    Some(tokio::task::spawn_local(task::drive(deliver, Arc::clone(thread_metrics), stop.clone())))
}

fn host(url: &WebhookUrl) -> HeaderValue {
    let server = &url.server;
    let usual = match server.scheme {
        Scheme::Http => 80,
        Scheme::Https => 443,
    };
    let authority = match server.port {
        port if port == usual => server.host.clone(),
        port => format!("{}:{port}", server.host),
    };
    // A host of the plan is a valid field value.
    HeaderValue::try_from(authority).unwrap_or(HeaderValue::from_static("localhost"))
}

/// How to reach the webhook of a plan, if it has one. Reads the trusted certificates: without any, carts
/// would enter the queue and never leave it.
pub(super) fn settings(plan: &Plan) -> Result<Option<ServerSettings>, StartError> {
    match &plan.session.on_expire {
        OnExpire::Webhook(url) => reached(url).map(Some).map_err(StartError::WebhookTls),
        OnExpire::None | OnExpire::Stream | OnExpire::File(_) => Ok(None),
    }
}

fn reached(url: &WebhookUrl) -> Result<ServerSettings, OriginTlsError> {
    let server = &url.server;
    let host = server.host.trim_start_matches('[').trim_end_matches(']');
    let tls = match server.scheme {
        Scheme::Http => None,
        Scheme::Https => Some(OriginTlsConnector::load(&TlsRules::default(), host, Http2::Never)?),
    };
    Ok(ServerSettings {
        host: host.to_owned(),
        port: server.port,
        socket: None,
        tls,
        http2: Http2::Never,
        http2_ping: ANSWER,
        stream_timeout: ANSWER,
        connect_timeout: CONNECT,
        first_byte_timeout: ANSWER,
        between_bytes_timeout: ANSWER,
        keep_idle: 1,
        idle_timeout: ANSWER,
        head_reuse: true,
        has_peers: false,
    })
}
