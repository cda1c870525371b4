//! Converts a plan's `[log]` into the access log and its thread.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anteroom_policy::access_log::AccessLogTarget;
use anteroom_telemetry::access_log::{AccessLog, Style};
use anteroom_telemetry::shown_path::ShownPaths;

use super::start_error::StartError;

/// How long the end of the process waits for the last lines to be written.
const LAST_LINES: Duration = Duration::from_secs(1);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(10);

/// The access log and its thread.
pub(super) type RunningAccessLog = Option<(Arc<AccessLog>, JoinHandle<()>)>;

/// Opens it, and starts its thread.
pub(super) fn start(plan: &anteroom_config::LogConfig) -> Result<RunningAccessLog, StartError> {
    let Some(format) = plan.access else { return Ok(None) };
    let style = Style { format, paths: ShownPaths { redact: plan.redact_paths.clone() } };
    AccessLog::start(&plan.to, style).map(Some).map_err(|source| {
        let path = match &plan.to {
            AccessLogTarget::Stdout => PathBuf::new(),
            AccessLogTarget::File(path) => path.clone(),
        };
        StartError::Log { path, source }
    })
}

/// Ends its thread once it has written what waits. A reader that does not take the last lines does not keep the process.
pub(super) async fn end(running: RunningAccessLog) {
    let Some((log, writer)) = running else { return };
    log.stop();
    let written = async {
        while !writer.is_finished() {
            tokio::time::sleep(LOOK).await;
        }
    };
    if tokio::time::timeout(LAST_LINES, written).await.is_err() {
        tracing::warn!(
            "the last lines of the access log are lost: they cannot be written, or are not read"
        );
    } else if writer.join().is_err() {
        tracing::error!("the access log's thread panicked");
    }
}
