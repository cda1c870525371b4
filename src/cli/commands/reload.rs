//! The command that has the running proxy read its configuration again.

use anteroom::admin::{self, RELOAD, ReloadReport};
use http::Method;

use super::socket;
use crate::cli::args::OutputArgs;
use crate::cli::output::{failed, note, say};

/// Reloads, and says what came of it.
pub(crate) fn reload(shown: OutputArgs) -> Result<(), u8> {
    let reply = admin::send_command(&socket(shown.at)?, Method::POST, RELOAD, Vec::new());
    let reply = reply.map_err(failed)?;
    if shown.json {
        say(&String::from_utf8_lossy(&reply));
        return Ok(());
    }
    let report: ReloadReport = serde_json::from_slice(&reply).map_err(failed)?;
    report.warnings.iter().for_each(|warning| note(&format!("warning: {warning}")));
    say("the new configuration is in force");
    Ok(())
}
