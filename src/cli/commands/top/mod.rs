//! The command that shows what happens now, who takes the app's time, and the lists of viewed items and of cookies.

mod crowd;
mod input;
mod live;
mod rates;
mod screen;

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

use anteroom::admin::{self, STATUS, Status, TOP_COOKIES, Top, TopViews};
use anteroom_proxy::CookieReport;
use http::Method;

use super::socket;
use crate::cli::args::{SocketArgs, TopArgs, TopCommand};
use crate::cli::output::{failed, note, say, wrong_usage};
use crate::cli::progress::wait;
use rates::Rates;
use screen::View;

/// The time between two readings.
const READ_EVERY: Duration = Duration::from_secs(1);
/// The width of the text where there is no terminal.
const WIDTH: usize = 100;
/// `anteroom top --json` listed items before there was something else to list.
const JSON_OF_WHAT: &str = "`anteroom top --json` does not say of what: write `anteroom top items --json` for the most \
     viewed items, or `anteroom top --once --json` for one reading of the figures";

/// Shows what happens now, or one of the lists.
pub(crate) fn top(args: TopArgs) -> Result<(), u8> {
    let TopArgs { of, once, json, number, at } = args;
    match (of, number) {
        (Some(TopCommand::Crowd { once, json, at }), _) => return show_crowd(once, json, at),
        (Some(TopCommand::Cookies { json, at }), _) => return cookies(json, at),
        (Some(TopCommand::Items { number, json, at }), _) => return items(number, json, at),
        (None, Some(number)) => return items(number, json, at),
        (None, None) => {}
    }
    if json && !once {
        return Err(wrong_usage(JSON_OF_WHAT));
    }
    let socket = socket(at)?;
    if once || !is_terminal() { read_once(&socket, json) } else { live::run(&socket) }
}

fn is_terminal() -> bool {
    std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
}

/// Shows who takes the app's time.
fn show_crowd(once: bool, json: bool, at: SocketArgs) -> Result<(), u8> {
    let socket = socket(at)?;
    match json {
        true => crowd::print_json(&socket),
        false if once || !is_terminal() => crowd::read_once(&socket),
        false => crowd::run(&socket),
    }
}

/// Prints the most viewed items.
fn items(number: u32, json: bool, at: SocketArgs) -> Result<(), u8> {
    let target = format!("/top?most={number}");
    let reply =
        admin::send_command(&socket(at)?, Method::GET, &target, Vec::new()).map_err(failed)?;
    if json {
        say(&String::from_utf8_lossy(&reply));
        return Ok(());
    }
    let Top { items } = serde_json::from_slice(&reply).map_err(failed)?;
    if items.is_empty() {
        note("no item was viewed; a [[route]] names items, as match.path = \"/item/{item}\" does");
    }
    for (TopViews { item, views }, place) in items.iter().zip(1..) {
        say(&format!("{place:>6}  {views:>12.1}  {item}"));
    }
    Ok(())
}

/// Prints the cookies that visitors have and pages set.
fn cookies(json: bool, at: SocketArgs) -> Result<(), u8> {
    let reply =
        admin::send_command(&socket(at)?, Method::GET, TOP_COOKIES, Vec::new()).map_err(failed)?;
    if json {
        say(&String::from_utf8_lossy(&reply));
        return Ok(());
    }
    let report: CookieReport = serde_json::from_slice(&reply).map_err(failed)?;
    say(report.to_string().trim_end());
    Ok(())
}

/// Prints the figures of one second.
fn read_once(socket: &Path, json: bool) -> Result<(), u8> {
    let first = read(socket).map_err(failed)?;
    wait(READ_EVERY);
    let second = read(socket).map_err(failed)?;
    let rates = Rates::between(&first, &second)
        .ok_or_else(|| failed("the proxy was restarted meanwhile; call the command again"))?;
    if json {
        say(&serde_json::to_string(&rates).map_err(failed)?);
        return Ok(());
    }
    let view = View { rates: Some(rates), ..View::default() };
    say(&view.lines(WIDTH, usize::MAX).join("\n"));
    Ok(())
}

/// The figures of a running proxy.
fn read(socket: &Path) -> Result<Status, String> {
    let reply = admin::send_command(socket, Method::GET, STATUS, Vec::new())
        .map_err(|error| error.to_string())?;
    serde_json::from_slice(&reply).map_err(|error| error.to_string())
}
