//! The data commands: each asks the running proxy over its socket, and prints the answer.

pub(crate) mod audit;
pub(crate) mod bypass;
pub(crate) mod certificates;
pub(crate) mod fleet;
pub(crate) mod learn;
pub(crate) mod log;
pub(crate) mod migrate_store;
pub(crate) mod purge;
pub(crate) mod reload;
pub(crate) mod sessions;
pub(crate) mod status;
pub(crate) mod store;
pub(crate) mod top;
pub(crate) mod upgrade;
pub(crate) mod warm;

use std::path::PathBuf;
use std::time::Duration;

use anteroom::admin::{self, ListedRow, Listing, RowsRequest};
use anteroom_http::clock::unix_now;
use anteroom_proxy::{Explanation, Question};
use http::Method;

use crate::cli::args::{ExplainArgs, RowArgs, RowsCommand, SocketArgs};
use crate::cli::output::{counted, failed, note, say};
use crate::cli::socket;

/// Schedules, lists or stops rows.
pub(crate) fn rows(command: RowsCommand) -> Result<(), u8> {
    let order = |rows: RowArgs, every: Option<Duration>| {
        let every = every.map(|every| every.as_secs_f64());
        let request = RowsRequest { name: rows.name, rows: rows.rows, every };
        serde_json::to_vec(&request).map_err(failed)
    };
    match command {
        RowsCommand::Schedule { rows, every, at } => {
            let order = order(rows, every)?;
            admin::send_command(&socket(at)?, Method::POST, "/rows/schedule", order)
                .map_err(failed)?;
        }
        RowsCommand::Stop { rows, at } => {
            let order = order(rows, None)?;
            admin::send_command(&socket(at)?, Method::POST, "/rows/stop", order).map_err(failed)?;
        }
        RowsCommand::List { json, at } => {
            let listing = admin::send_command(&socket(at)?, Method::GET, "/rows", Vec::new())
                .map_err(failed)?;
            if json {
                say(&String::from_utf8_lossy(&listing));
            } else {
                show_rows(&serde_json::from_slice(&listing).map_err(failed)?);
            }
        }
    }
    Ok(())
}

/// Prints the rows as a table.
fn show_rows(listing: &Listing) {
    let now = unix_now();
    if listing.rows.is_empty() {
        note("no row is scheduled");
    }
    for listed in &listing.rows {
        let ListedRow { name, row, every, .. } = listed;
        say(&format!("{name}  {row}  every {every} s  {}", row_state(listed, now)));
    }
    if listing.more {
        say("… and more");
    }
}

/// How old a row is, whether it is late, and how it fails.
fn row_state(listed: &ListedRow, now: f64) -> String {
    let mut state = listed.refreshed.map_or_else(
        || "not fetched yet".to_owned(),
        |at| format!("fetched {:.0} s ago", (now - at).max(0.0)),
    );
    if listed.late >= 1.0 {
        state += &format!("  late by {:.0} s", listed.late);
    }
    if let Some(why) = &listed.failure {
        state += &format!("  failed {} in a row: {why}", counted(listed.failures as usize, "time"));
    }
    state
}

/// Prints what the cache would do with a request.
pub(crate) fn explain(args: ExplainArgs) -> Result<(), u8> {
    let ExplainArgs { url, cookie, header, method, from, json, at } = args;
    let cookies = cookie.into_iter().map(|cookie| cookie.0).collect();
    let headers = header.into_iter().map(|(name, value)| (name, value.0)).collect();
    // A method has capitals; `get` would be one of the app's own.
    let method = method.to_ascii_uppercase();
    let question = Question { url, method, cookies, headers, from };
    let question = serde_json::to_vec(&question).map_err(failed)?;
    let reply =
        admin::send_command(&socket(at)?, Method::POST, "/explain", question).map_err(failed)?;
    if json {
        say(&String::from_utf8_lossy(&reply));
        return Ok(());
    }
    let reply: Explanation = serde_json::from_slice(&reply).map_err(failed)?;
    say(reply.to_string().trim_end());
    Ok(())
}

/// Where the running proxy listens for data commands.
fn socket(at: SocketArgs) -> Result<PathBuf, u8> {
    socket::find(at)
}
