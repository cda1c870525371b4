//! Converts `[traces]` of a plan into the rules for requests, and into the task that sends traces.

use std::rc::Rc;
use std::sync::Arc;

use ::http::HeaderValue;
use anteroom_config::{Plan, TracesConfig};
use anteroom_origin::ServerSettings;
use anteroom_telemetry::metrics::{Count, ThreadMetrics};
use anteroom_telemetry::traces::{TraceQueue, TraceRules, Traces};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::receiver;
use super::shared_state::SharedState;
use super::start_error::StartError;
use crate::task::{self, ExportTraces, TraceReceiver};

/// Which requests are traced, if there is a receiver.
pub(super) fn traces(plan: &TracesConfig, queue: &Arc<TraceQueue>) -> Option<Arc<Traces>> {
    plan.endpoint.as_ref()?;
    let rules = TraceRules { sample: plan.sample, parent: plan.parent, slow: plan.slow };
    Some(Arc::new(Traces { rules, queue: Arc::clone(queue) }))
}

/// How to reach the receiver of a plan, if it has one. Reads the trusted certificates.
pub(super) fn settings(plan: &TracesConfig) -> Result<Option<ServerSettings>, StartError> {
    let Some(endpoint) = &plan.endpoint else { return Ok(None) };
    receiver::reached(&endpoint.server).map(Some).map_err(StartError::TracesTls)
}

/// Starts the task on this thread's runtime, if there is a receiver. Otherwise traces of an earlier configuration
/// are dropped.
pub(super) fn start(
    plan: &Plan,
    settings: Option<&ServerSettings>,
    shared: &SharedState,
    thread_metrics: &Arc<ThreadMetrics>,
    stop: &CancellationToken,
) -> Option<JoinHandle<()>> {
    let Some(receiver) = receiver(&plan.traces, settings) else {
        thread_metrics.add(Count::TraceSpansDropped, shared.traces.clear() as u64);
        return None;
    };
    let export = || ExportTraces {
        queue: Arc::clone(&shared.traces),
        receiver: Rc::clone(&receiver),
        thread_metrics: Arc::clone(thread_metrics),
        failures: Default::default(),
    };
    let (usual, last) = (export(), export());
    let (thread_metrics, stop) = (Arc::clone(thread_metrics), stop.clone());
    Some(tokio::task::spawn_local(async move {
        task::drive(usual, thread_metrics, stop).await;
        last.flush().await;
    }))
}

fn receiver(plan: &TracesConfig, settings: Option<&ServerSettings>) -> Option<Rc<TraceReceiver>> {
    let (endpoint, settings) = (plan.endpoint.as_ref()?, settings?);
    let headers = plan.headers.iter().filter_map(|(name, value)| {
        // The form has checked that it is a field value.
        let mut value = HeaderValue::from_str(value.expose()).ok()?;
        value.set_sensitive(true);
        Some((name.clone(), value))
    });
    let path = format!("{}/v1/traces", endpoint.path);
    Some(Rc::new(TraceReceiver {
        receiver: receiver::receiver(&endpoint.server, &path, settings),
        headers: headers.collect(),
        service: plan.service_name.clone(),
    }))
}
