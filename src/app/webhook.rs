//! From a plan's `on_expire = "webhook:…"` to the task that tells it of abandoned carts.

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderValue, Uri};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::StartError;
use super::parts::Shared;
use super::turn::Turn;
use crate::config::{OnExpire, Plan, WebhookUrl};
use crate::http::host::Scheme;
use crate::origin::{Http2, Origin, Settings, Tls, TlsError, TlsRules};
use crate::store::AnyStore;
use crate::task::{self, Deliver, Webhook, WebhookKeys};
use crate::telemetry::metrics::Sheet;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer may take, to its head and between two parts: the task has less patience.
const ANSWER: Duration = Duration::from_secs(30);

/// Starts the telling on this thread's runtime; nothing where nobody is to be told.
pub(super) fn start(
    (plan, turn): (&Plan, &Turn),
    shared: &Shared,
    sheet: &Arc<Sheet>,
    lane: &AnyStore,
    stop: &CancellationToken,
) -> Option<JoinHandle<()>> {
    let OnExpire::Webhook(url) = &plan.session.on_expire else { return None };
    let settings = turn.webhook.clone()?;
    let keys = plan.session.webhook_secret.iter().map(|key| key.expose().as_bytes().to_vec());
    let deliver = Deliver {
        store: lane.background(),
        webhook: Webhook {
            // It is no origin: what is counted of those is not of it.
            receiver: Origin::new(settings, Arc::default()),
            host: host(url),
            target: Uri::try_from(&url.target).unwrap_or_default(),
            keys: WebhookKeys(keys.collect()),
        },
        who: fastrand::u64(..),
        waiting: Arc::clone(&shared.events_waiting),
        sheet: Arc::clone(sheet),
        refusals: Default::default(),
        taken: Default::default(),
        done: Default::default(),
    };
    Some(tokio::task::spawn_local(task::drive(deliver, Arc::clone(sheet), stop.clone())))
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
    // A host of the plan is a field value.
    HeaderValue::try_from(authority).unwrap_or(HeaderValue::from_static("localhost"))
}

/// How the webhook of a plan is reached, if it has one. Reads the certificates that are trusted: without any
/// carts would come into the queue, and none would ever leave it.
pub(super) fn settings(plan: &Plan) -> Result<Option<Settings>, StartError> {
    match &plan.session.on_expire {
        OnExpire::Webhook(url) => reached(url).map(Some).map_err(StartError::WebhookTls),
        OnExpire::None | OnExpire::Stream | OnExpire::File(_) => Ok(None),
    }
}

fn reached(url: &WebhookUrl) -> Result<Settings, TlsError> {
    let server = &url.server;
    let host = server.host.trim_start_matches('[').trim_end_matches(']');
    let tls = match server.scheme {
        Scheme::Http => None,
        Scheme::Https => Some(Tls::load(&TlsRules::default(), host, Http2::Never)?),
    };
    Ok(Settings {
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
