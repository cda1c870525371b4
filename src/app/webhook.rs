//! Converts a plan's `on_expire = "webhook:…"` into the task that reports abandoned carts.

use std::sync::Arc;

use anteroom_config::{OnExpire, Plan};
use anteroom_origin::ServerSettings;
use anteroom_store::AnyStore;
use anteroom_telemetry::metrics::ThreadMetrics;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::receiver;
use super::shared_state::SharedState;
use super::start_error::StartError;
use crate::task::{self, Deliver, Webhook, WebhookKeys};

/// Starts the task on this thread's runtime, if there is a webhook.
pub(super) fn start(
    plan: &Plan,
    settings: Option<&ServerSettings>,
    shared: &SharedState,
    thread_metrics: &Arc<ThreadMetrics>,
    store: &AnyStore,
    stop: &CancellationToken,
) -> Option<JoinHandle<()>> {
    let OnExpire::Webhook(url) = &plan.session.on_expire else { return None };
    let settings = settings?;
    let keys = plan.session.webhook_secret.iter().map(|key| key.expose().as_bytes().to_vec());
    let deliver = Deliver {
        store: store.background(),
        webhook: Webhook {
            receiver: receiver::receiver(&url.server, &url.target, settings),
            keys: WebhookKeys(keys.collect()),
        },
        process_id: fastrand::u64(..),
        waiting: Arc::clone(&shared.events_waiting),
        thread_metrics: Arc::clone(thread_metrics),
        refusals: Default::default(),
        taken: Default::default(),
        done: Default::default(),
    };
    Some(tokio::task::spawn_local(task::drive(deliver, Arc::clone(thread_metrics), stop.clone())))
}

/// How to reach the webhook of a plan, if it has one. Reads the trusted certificates: without any, carts
/// would enter the queue and never leave it.
pub(super) fn settings(plan: &Plan) -> Result<Option<ServerSettings>, StartError> {
    match &plan.session.on_expire {
        OnExpire::Webhook(url) => {
            receiver::reached(&url.server).map(Some).map_err(StartError::WebhookTls)
        }
        OnExpire::None | OnExpire::Stream | OnExpire::File(_) => Ok(None),
    }
}
