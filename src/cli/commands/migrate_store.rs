//! The command that moves the store of the running proxies: it begins the move, and shows how it goes.

use std::path::Path;

use anteroom::admin::{self, MOVE, MigrationRequest, MigrationStatus};
use http::Method;

use super::socket;
use crate::cli::args::SocketArgs;
use crate::cli::output::{counted, failed, note, say};
use crate::cli::progress::{SESSIONS, ShownProgress, pause};

/// Moves the store, and returns when the move has ended. It goes on in the proxy if this process is stopped.
pub(super) fn migrate_running(replace: bool, json: bool, at: SocketArgs) -> Result<(), u8> {
    let socket = socket(at)?;
    let request = serde_json::to_vec(&MigrationRequest { replace }).map_err(failed)?;
    admin::send_command(&socket, Method::POST, MOVE, request).map_err(failed)?;
    let (mut shown, mut said) = (ShownProgress::of(SESSIONS), (String::new(), Vec::new()));
    let (report, text) = loop {
        pause();
        let (report, text) = ask(&socket)?;
        if json {
            // The result is all that is shown.
        } else if (&report.step, &report.missing) != (&said.0, &said.1) {
            shown.end();
            note(&line(&report));
            said = (report.step.clone(), report.missing.clone());
        } else if report.step == "copying" {
            shown.show(report.done, report.of);
        }
        if report.ended {
            break (report, text);
        }
    };
    shown.end();
    if json {
        say(&text);
    }
    if let Some(error) = report.error {
        return Err(failed(format!(
            "{error}. Nothing has changed: the proxies use the store that they had"
        )));
    }
    if !json {
        summary(&report);
    }
    Ok(())
}

fn ask(socket: &Path) -> Result<(MigrationStatus, String), u8> {
    let reply = admin::send_command(socket, Method::GET, MOVE, Vec::new()).map_err(failed)?;
    let report = serde_json::from_slice(&reply).map_err(failed)?;
    Ok((report, String::from_utf8_lossy(&reply).into_owned()))
}

fn summary(report: &MigrationStatus) {
    let MigrationStatus { done, again, swept, seconds, held, missing, advice, unfinished, .. } =
        report;
    say(&format!("the store has been moved in {seconds:.1} s; changes waited for {held:.2} s"));
    say(&format!(
        "{} and visitor tokens copied, {again} once more, because they changed meanwhile; {swept} over since, and removed",
        counted(*done as usize, "session")
    ));
    if !missing.is_empty() {
        note(&format!("these proxies have not come to the next store yet: {}", missing.join(", ")));
    }
    if let Some(error) = unfinished {
        note(&format!(
            "sessions that ended during the move may go on at the next store, because looking for them failed: {error}"
        ));
    }
    say(
        "now make [store.next] the [store] in the configuration of each proxy, before its next restart",
    );
    if let Some(advice) = advice {
        say(&format!("and write there: {advice}"));
    }
}

/// One line about a step.
fn line(MigrationStatus { step, seconds, missing, .. }: &MigrationStatus) -> String {
    if missing.is_empty() {
        return format!("{step}, {seconds:.0} s");
    }
    format!("{step}: {}, {seconds:.0} s", missing.join(", "))
}
