//! The operator's program that sets records for dns-01.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::failure::{FailureKind, StepFailure};

/// How long the program may take: until the name servers have the record.
const TIMEOUT: Duration = Duration::from_secs(600);

/// What the program does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HookAction {
    /// It adds a record.
    Set,
    /// It removes it.
    Unset,
}

/// Runs the program for the record of a name, and waits for its end.
///
/// # Errors
/// If it cannot be run, takes too long, or ends with another code than 0.
pub(crate) async fn run(
    program: &Path,
    action: HookAction,
    name: &str,
    value: &str,
) -> Result<(), StepFailure> {
    let word = match action {
        HookAction::Set => "set",
        HookAction::Unset => "unset",
    };
    let record = format!("_acme-challenge.{}", name.trim_start_matches("*."));
    let failed = |text: String| StepFailure::new(FailureKind::Temporary, &text);
    let mut command = Command::new(program);
    command.args([word, record.as_str(), value]).kill_on_drop(true);
    // Standard output may be the access log.
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let shown = program.display();
    match timeout(TIMEOUT, command.status()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(failed(format!("dns_hook {shown} {word} ended with {status}"))),
        Ok(Err(error)) => Err(failed(format!("dns_hook {shown} cannot be run: {error}"))),
        Err(_) => Err(failed(format!("dns_hook {shown} {word} took over 10 minutes"))),
    }
}
