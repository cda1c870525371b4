//! The command that switches routes to bypass.

use anteroom::admin::{self, BYPASS, BypassOrder, BypassReport, ListedBypass};
use anteroom_http::clock::unix_now;
use http::Method;

use super::socket;
use crate::cli::args::{BypassArgs, BypassCommand, OutputArgs};
use crate::cli::output::{failed, say};

/// Changes the switches, or shows them.
pub(crate) fn bypass(args: BypassArgs) -> Result<(), u8> {
    let BypassArgs { command, shown } = args;
    match command {
        None => show(Method::GET, Vec::new(), shown),
        Some(BypassCommand::On { lasts, route, shown }) => {
            let lasts = Some(lasts.as_secs_f64());
            change(&BypassOrder { on: true, lasts, route, by: operator() }, shown)
        }
        Some(BypassCommand::Off { route, shown }) => {
            change(&BypassOrder { on: false, lasts: None, route, by: operator() }, shown)
        }
    }
}

fn change(order: &BypassOrder, shown: OutputArgs) -> Result<(), u8> {
    show(Method::POST, serde_json::to_vec(order).map_err(failed)?, shown)
}

/// Sends a command, and prints the switches that it answers with.
fn show(method: Method, body: Vec<u8>, shown: OutputArgs) -> Result<(), u8> {
    let reply = admin::send_command(&socket(shown.at)?, method, BYPASS, body).map_err(failed)?;
    if shown.json {
        say(&String::from_utf8_lossy(&reply));
        return Ok(());
    }
    let report: BypassReport = serde_json::from_slice(&reply).map_err(failed)?;
    if report.bypasses.is_empty() {
        say("off: every route uses the cache");
    }
    let now = unix_now();
    for bypass in &report.bypasses {
        say(&line(bypass, now));
    }
    Ok(())
}

/// A switch on one line. Another program may have written any text, so control characters are escaped.
fn line(bypass: &ListedBypass, now: f64) -> String {
    let what = match &bypass.route {
        Some(route) => format!("route {}", route.escape_debug()),
        None => "all routes".to_owned(),
    };
    let here = if bypass.only_here { "  in this proxy alone" } else { "" };
    let (left, by) = (left(bypass.until - now), bypass.by.escape_debug());
    format!("on: {what}  for {left} more  by {by}{here}")
}

/// The rest of a time, in its two largest units.
fn left(seconds: f64) -> String {
    let seconds = seconds.max(0.0).ceil() as u64;
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

/// The user who calls, as the system's variables have it: for other operators, not a proof.
fn operator() -> Option<String> {
    let named = |name| std::env::var(name).ok().filter(|name| !name.is_empty());
    ["SUDO_USER", "USER", "LOGNAME"].into_iter().find_map(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_time_is_told_in_two_units() {
        for (seconds, told) in [
            (-1.0, "0 s"),
            (58.2, "59 s"),
            (61.0, "1 min 1 s"),
            (3_600.0, "1 h 0 min"),
            (604_800.0, "7 d 0 h"),
        ] {
            assert_eq!(left(seconds), told);
        }
    }

    #[test]
    fn a_switch_is_told_on_one_line() {
        let route = Some("shop\n".to_owned());
        let bypass = ListedBypass { route, until: 160.0, by: "ann".to_owned(), only_here: true };
        let expected = "on: route shop\\n  for 1 min 0 s more  by ann  in this proxy alone";
        assert_eq!(line(&bypass, 100.0), expected);
    }
}
