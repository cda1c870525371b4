//! The commands about the store.

use std::path::{Path, PathBuf};

use anteroom::admin::{BACKUP, BackupOrder, BackupState, ClientError, send_command};
use anteroom::app::{
    MigrationReport, StorePlace, back_up_store, migrate_store, restore_store, verify_store,
};
use anteroom_config::{StoreLayout, StoreUrl};
use anteroom_http::ident::TokenStorage;
use http::Method;

use super::migrate_store::migrate_running;
use crate::cli::args::{BackupArgs, LayoutWord, MigrateArgs, Place, RestoreArgs, StoreCommand};
use crate::cli::output::{self, failed, note, say};
use crate::cli::progress::{SESSIONS, ShownProgress, pause};

/// Runs a command about the store.
pub(crate) fn store(command: StoreCommand) -> Result<(), u8> {
    match command {
        StoreCommand::Migrate(args) => migrate(args),
        StoreCommand::Backup(args) => backup(args),
        StoreCommand::Restore(args) => restore(args),
        StoreCommand::Verify { path } => verify(&path),
    }
}

fn migrate(args: MigrateArgs) -> Result<(), u8> {
    let (Some(from), Some(to)) = (args.from, args.to) else {
        return migrate_running(args.replace, args.json, args.at);
    };
    let from = place(from, args.from_layout, args.from_prefix);
    let to = place(to, args.to_layout, args.to_prefix);
    let mut shown = ShownProgress::of(SESSIONS);
    let moved = migrate_store(&from, &to, args.replace, |progress| {
        shown.show(progress.done(), progress.of())
    });
    shown.end();
    let report = moved.map_err(failed)?;
    if args.json {
        say(&json(&report).to_string());
    } else {
        show(&report);
        advise(&from.url, &to);
    }
    let is_whole = differing(&report).next().is_none();
    if is_whole { Ok(()) } else { Err(failed("the target does not hold as much as the source")) }
}

fn backup(args: BackupArgs) -> Result<(), u8> {
    let file = std::path::absolute(&args.file).map_err(failed)?;
    let mut shown = ShownProgress::of(SESSIONS);
    let written = match args.from {
        Some(from) => {
            let from = place(from, args.layout, args.prefix);
            back_up_store(&from, &file, |progress| shown.show(progress.done(), progress.of()))
                .map(|counts| (counts.sessions, counts.visitors, counts.others))
                .map_err(|error| error.to_string())
        }
        None => by_the_proxy(&super::socket(args.at)?, file.clone(), &mut shown),
    };
    shown.end();
    let (sessions, visitors, others) = written.map_err(failed)?;
    let held = held(sessions, visitors, others);
    say(&format!("{}: {held}", file.display()));
    Ok(())
}

/// The running proxy writes the file.
fn by_the_proxy(
    socket: &Path,
    file: PathBuf,
    shown: &mut ShownProgress,
) -> Result<(u64, u64, u64), String> {
    let told = |reply: Result<bytes::Bytes, ClientError>| -> Result<BackupState, String> {
        let reply = reply.map_err(|error| error.to_string())?;
        serde_json::from_slice(&reply).map_err(|error| error.to_string())
    };
    let order = serde_json::to_vec(&BackupOrder { file }).map_err(|error| error.to_string())?;
    let begun = told(send_command(socket, Method::POST, BACKUP, order))?;
    loop {
        let state = told(send_command(socket, Method::GET, BACKUP, Vec::new()))?;
        if state.number != begun.number {
            return Err("the proxy was restarted, and the backup is not whole".to_owned());
        }
        shown.show(state.done, state.of);
        match (state.error, state.written) {
            (Some(error), _) => return Err(error),
            (None, Some(written)) => return Ok(written),
            (None, None) => pause(),
        }
    }
}
fn restore(args: RestoreArgs) -> Result<(), u8> {
    let to = place(args.to, args.layout, args.prefix);
    let mut shown = ShownProgress::of(SESSIONS);
    let restored = restore_store(&args.file, &to, args.replace, |progress| {
        shown.show(progress.done(), progress.of());
    });
    shown.end();
    let counts = restored.map_err(failed)?;
    say(&format!("restored {}", held(counts.sessions, counts.visitors, counts.others)));
    Ok(())
}

fn verify(path: &Path) -> Result<(), u8> {
    match verify_store(path).map_err(failed)? {
        Some(counts) => {
            let held = held(counts.sessions, counts.visitors, counts.others);
            say(&format!("the backup is whole: {held}"));
        }
        None => say("the store is whole"),
    }
    Ok(())
}

fn held(sessions: u64, visitors: u64, others: u64) -> String {
    let counted = |number: u64, thing: &str| output::counted(number as usize, thing);
    format!(
        "{}, {} without a login, {}",
        counted(sessions, "session"),
        counted(visitors, "visitor"),
        counted(others, "other record")
    )
}

fn place(Place(url): Place, layout: Option<LayoutWord>, prefix: String) -> StorePlace {
    let layout = layout.map_or_else(|| url.usual_layout(), StoreLayout::from);
    StorePlace { url, layout, prefix }
}

/// What was counted, by its name: at the source, then at the target.
fn counted(report: &MigrationReport) -> [(&'static str, u64, u64); 7] {
    let (from, to) = (&report.from, &report.to);
    [
        ("sessions", from.sessions, to.sessions),
        ("visitors", from.visitors, to.visitors),
        ("items with views", from.items, to.items),
        ("rows", from.rows, to.rows),
        ("events", from.events, to.events),
        ("carts for the file", from.outbox, to.outbox),
        ("entries of expired:", from.stream, to.stream),
    ]
}

/// What the target has less of, but for what it cannot hold.
fn differing(report: &MigrationReport) -> impl Iterator<Item = &'static str> {
    let left_out = report.rest.left_out;
    counted(report)
        .into_iter()
        .filter(move |(_, from, to)| *to + left_out < *from)
        .map(|(name, _, _)| name)
}

fn show(report: &MigrationReport) {
    for (name, from, to) in counted(report) {
        if from > 0 || to > 0 {
            say(&format!("{name:<20} {from:>10} -> {to}"));
        }
    }
    if report.removed > 0 {
        say(&format!("{:<20} {:>10}", "removed at the target", report.removed));
    }
    if report.rest.left_out > 0 {
        note(&format!("the target cannot hold {} of these records", report.rest.left_out));
    }
    say(&format!("copied in {:.1} s", report.took.as_secs_f64()));
}

fn json(report: &MigrationReport) -> serde_json::Value {
    let mut counts = serde_json::Map::new();
    for (name, from, to) in counted(report) {
        counts.insert(name.to_owned(), serde_json::json!({ "from": from, "to": to }));
    }
    serde_json::json!({
        "counts": counts,
        "removed": report.removed,
        "left_out": report.rest.left_out,
        "seconds": report.took.as_secs_f64(),
    })
}

/// What to write into the configuration.
fn advise(from: &StoreUrl, to: &StorePlace) {
    let mut lines = Vec::new();
    match &to.url {
        StoreUrl::Embedded(folder) => {
            lines.push(format!("url = \"embedded:{}\"", folder.display()))
        }
        StoreUrl::Redis(_) => lines.push("url = …, the URL of --to".to_owned()),
    }
    if !to.prefix.is_empty() {
        lines.push(format!("prefix = {:?}", to.prefix));
    }
    if to.layout != to.url.usual_layout() {
        let sharded = to.layout == StoreLayout::Sharded;
        lines.push(format!("layout = \"{}\"", if sharded { "sharded" } else { "single" }));
    }
    say(&format!("now write, below [store]: {}", lines.join("; ")));
    if from.usual_token_storage() != to.url.usual_token_storage() {
        let kept = match from.usual_token_storage() {
            TokenStorage::Plain => "plain",
            TokenStorage::Sha256 => "sha256",
        };
        say(&format!(
            "and below [session], unless token_storage is there already: token_storage = \"{kept}\"; the \
             tokens came along in this form"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_backup_holds_is_in_the_singular_where_it_is_one() {
        assert_eq!(held(1, 1, 1), "1 session, 1 visitor without a login, 1 other record");
        assert_eq!(held(0, 2, 3), "0 sessions, 2 visitors without a login, 3 other records");
    }
}
