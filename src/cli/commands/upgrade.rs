//! The command that puts a new process in the place of the running one.

use std::ops::ControlFlow;
use std::path::Path;

use anteroom::admin::{self, STATUS, StreamEnd, UPGRADE, UpgradeLine, UpgradeOrder};
use http::Method;
use serde_json::Value;

use super::socket;
use crate::cli::args::UpgradeArgs;
use crate::cli::output::{failed, note, printable, say};

/// Has the running proxy start its successor, and waits until that serves.
pub(crate) fn upgrade(args: UpgradeArgs) -> Result<(), u8> {
    let UpgradeArgs { binary, at } = args;
    let binary = binary.map(std::path::absolute).transpose().map_err(failed)?;
    let order = serde_json::to_vec(&UpgradeOrder { binary }).map_err(failed)?;
    let socket = socket(at)?;
    let before = start_of_process(&socket);
    let mut last = None;
    let each = |lines: &[u8]| {
        for line in lines.split(|byte| *byte == b'\n') {
            let Ok(line) = serde_json::from_slice(line) else { continue };
            if let UpgradeLine::Started { process } = &line {
                note(&format!("process {process} starts"));
            }
            last = Some(line);
        }
        ControlFlow::Continue(())
    };
    let read = admin::stream_lines(&socket, Method::POST, UPGRADE, order, each);
    let end = read.map_err(failed)?;
    match last {
        Some(UpgradeLine::Done { process, version }) => {
            say(&format!("process {process} serves, version {}", printable(&version)));
            Ok(())
        }
        Some(UpgradeLine::Failed { why }) => {
            let why: Vec<_> = why.lines().map(printable).collect();
            Err(failed(why.join("\n")))
        }
        Some(UpgradeLine::Started { .. }) | None if end == StreamEnd::Signal => {
            Err(failed("the upgrade goes on: the log of the proxy says how it ends"))
        }
        // The old process has ended before its answer. What counts is whether another one serves.
        Some(UpgradeLine::Started { .. }) | None => match start_of_process(&socket) {
            Some(now) if before != Some(now) => {
                say("a new process serves");
                Ok(())
            }
            Some(_) | None => Err(failed("the running proxy did not say how the upgrade ended")),
        },
    }
}

/// When the process that serves was started.
fn start_of_process(socket: &Path) -> Option<f64> {
    let status = admin::send_command(socket, Method::GET, STATUS, Vec::new()).ok()?;
    serde_json::from_slice::<Value>(&status).ok()?["since"].as_f64()
}
