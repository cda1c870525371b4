//! The commands about sessions and users: each asks the running proxy, and prints the answer.

use std::path::Path;

use anteroom::admin::{
    self, ExportedSession, LISTED_MAX, ListedSession, RemovalCounts, SessionExport, SessionFilter,
    SessionListRequest, SessionsListing,
};
use anteroom_http::clock::unix_now;
use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::socket;
use crate::cli::args::{SessionsCommand, UserCommand};
use crate::cli::output::{counted, failed, note, say};

/// How often a deletion is repeated until nothing of the user is left.
const LOOKS: usize = 10;

/// The list of a user's sessions is empty.
const NO_SESSION_OF_USER: &str = "the index of users has no session of this user; without --user, the list also has those \
                          that an app wrote into Redis itself";

/// Lists, shows or revokes sessions.
pub(crate) fn sessions(command: SessionsCommand) -> Result<(), u8> {
    match command {
        SessionsCommand::List { user, limit, shown } => {
            list(&socket(shown.at)?, user, limit, shown.json)
        }
        SessionsCommand::Show { id, shown } => {
            let meant = SessionFilter { id: Some(id), ..SessionFilter::default() };
            show(&socket(shown.at)?, meant, shown.json)
        }
        SessionsCommand::Revoke { which, shown } => {
            let meant =
                SessionFilter { id: which.id, user: which.user, all: which.all, from: None };
            revoke(&socket(shown.at)?, meant, shown.json)
        }
    }
}

/// Exports or deletes the stored data of a user.
pub(crate) fn user(command: UserCommand) -> Result<(), u8> {
    match command {
        UserCommand::Export { name, at } => export(&socket(at)?, &name),
        UserCommand::Delete { name, shown } => delete(&socket(shown.at)?, &name, shown.json),
    }
}

fn ask<T: DeserializeOwned>(path: &Path, target: &str, order: &impl Serialize) -> Result<T, u8> {
    let order = serde_json::to_vec(order).map_err(failed)?;
    let reply = admin::send_command(path, Method::POST, target, order).map_err(failed)?;
    serde_json::from_slice(&reply).map_err(failed)
}

fn say_json(value: &impl Serialize) -> Result<(), u8> {
    serde_json::to_string(value).map(|text| say(&text)).map_err(failed)
}

/// Prints each part as it arrives: a line for each session, or a JSON object.
fn list(path: &Path, user: Option<String>, limit: u64, json: bool) -> Result<(), u8> {
    let if_empty = if user.is_some() { NO_SESSION_OF_USER } else { "there are no sessions" };
    let (mut left, mut wanted) =
        (limit, SessionListRequest { user, ..SessionListRequest::default() });
    loop {
        wanted.limit = u32::try_from(left).unwrap_or(u32::MAX).min(LISTED_MAX);
        let listing: SessionsListing = ask(path, "/sessions/list", &wanted)?;
        for session in listing.sessions.iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
            if json { say_json(session)? } else { say(&line(session)) }
        }
        left = left.saturating_sub(listing.sessions.len() as u64);
        if left == limit && listing.next.is_none() && !json {
            note(if_empty);
        }
        match listing.next {
            Some(next) if left > 0 => wanted.from = Some(next),
            Some(_) if !json => {
                say("… there may be more: use --limit");
                return Ok(());
            }
            Some(_) | None => return Ok(()),
        }
    }
}

/// A session on one line. A name may contain any bytes, so control characters are escaped.
fn line(session: &ListedSession) -> String {
    let now = unix_now();
    let ago = |what: &str, at: f64| format!("{what} {:.0} s ago", (now - at).max(0.0));
    let (user, over) = (session.user.escape_debug(), if session.over { "  over" } else { "" });
    let label = if session.confirmed { "" } else { " (unconfirmed)" };
    // A session that another app wrote has no time of its login.
    let since =
        session.since.map_or_else(|| "login time unknown".to_owned(), |at| ago("logged in", at));
    let seen = session.seen.map_or_else(|| "not seen".to_owned(), |at| ago("seen", at));
    format!("{}  {user}{label}  {since}, {seen}{over}", session.id)
}

fn exported_sessions(path: &Path, mut meant: SessionFilter) -> Result<Vec<ExportedSession>, u8> {
    let mut sessions: Vec<ExportedSession> = Vec::new();
    loop {
        let piece: SessionExport = ask(path, "/sessions/show", &meant)?;
        for session in piece.sessions {
            if !sessions.iter().any(|known| known.listed.id == session.listed.id) {
                sessions.push(session);
            }
        }
        match piece.next {
            Some(next) => meant.from = Some(next),
            None => return Ok(sessions),
        }
    }
}

fn show(path: &Path, meant: SessionFilter, json: bool) -> Result<(), u8> {
    let found = exported_sessions(path, meant)?;
    let [session] = found.as_slice() else {
        return Err(failed("there is no session with that id"));
    };
    if json {
        return say_json(session);
    }
    say(&line(&session.listed));
    for (name, value) in &session.attributes {
        say(&format!("  {name} = {}", value.escape_debug()));
    }
    for item in &session.cart {
        say(&format!("  in the cart: {} × {}", item.count, item.item));
    }
    for view in &session.viewed {
        say(&format!("  viewed {:.0} s ago: {}", (unix_now() - view.at).max(0.0), view.item));
    }
    Ok(())
}

/// Removes part by part, until the last.
fn removed(path: &Path, target: &str, mut meant: SessionFilter) -> Result<RemovalCounts, u8> {
    let mut all = RemovalCounts::default();
    loop {
        let piece: RemovalCounts = ask(path, target, &meant)?;
        all.sessions += piece.sessions;
        all.cart_items += piece.cart_items;
        all.views += piece.views;
        all.handed_on += piece.handed_on;
        match piece.next {
            Some(next) => meant.from = Some(next),
            None => return Ok(all),
        }
    }
}

fn revoke(path: &Path, meant: SessionFilter, json: bool) -> Result<(), u8> {
    let is_one = meant.id.is_some();
    let RemovalCounts { sessions, .. } = removed(path, "/sessions/revoke", meant)?;
    if is_one && sessions == 0 {
        return Err(failed("there is no session with that id"));
    }
    if json {
        return say_json(&serde_json::json!({ "revoked": sessions }));
    }
    say(&format!(
        "revoked: {}; in effect on every proxy on the store within a second",
        counted(sessions, "session")
    ));
    Ok(())
}

fn export(path: &Path, name: &str) -> Result<(), u8> {
    let meant = SessionFilter { user: Some(name.to_owned()), ..SessionFilter::default() };
    let sessions = exported_sessions(path, meant)?;
    say_json(&serde_json::json!({ "user": name, "sessions": sessions }))
}

/// Removes until nothing is found, because the user may log in meanwhile.
fn delete(path: &Path, name: &str, json: bool) -> Result<(), u8> {
    let meant = SessionFilter { user: Some(name.to_owned()), ..SessionFilter::default() };
    let mut all = RemovalCounts::default();
    for _ in 0..LOOKS {
        let found = removed(path, "/user/delete", meant.clone())?;
        if found == RemovalCounts::default() {
            let RemovalCounts { sessions, cart_items, views, handed_on, .. } = all;
            if json {
                return say_json(&serde_json::json!({
                    "user": name, "sessions": sessions, "cart_items": cart_items,
                    "views": views, "handed_on": handed_on, "left": 0,
                }));
            }
            say(&format!(
                "removed: {}, {} in carts, {}, {} handed on; nothing is left",
                counted(sessions, "session"),
                counted(cart_items, "item"),
                counted(views, "view"),
                counted(handed_on, "cart"),
            ));
            return Ok(());
        }
        all.sessions += found.sessions;
        all.cart_items += found.cart_items;
        all.views += found.views;
        all.handed_on += found.handed_on;
    }
    Err(failed("the user keeps logging in; lock the account in the app first"))
}
