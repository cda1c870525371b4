//! The command that lists the proxies on the store.

use anteroom::admin::{self, FLEET, FleetReport, ListedProxy};
use anteroom_http::clock::unix_now;
use http::Method;

use super::socket;
use crate::cli::args::OutputArgs;
use crate::cli::output::{counted, failed, note, say};

/// Lists the proxies on the store. Fails if they differ in what must be alike, or in their time.
pub(crate) fn fleet(shown: OutputArgs) -> Result<(), u8> {
    let reply = admin::send_command(&socket(shown.at)?, Method::GET, FLEET, Vec::new());
    let reply = reply.map_err(failed)?;
    let report: FleetReport = serde_json::from_slice(&reply).map_err(failed)?;
    if shown.json {
        say(&String::from_utf8_lossy(&reply));
    } else {
        show(&report);
    }
    let differs =
        report.mismatched().next().is_some() || report.with_another_time().next().is_some();
    if differs || report.other_layout { Err(1) } else { Ok(()) }
}

fn show(report: &FleetReport) {
    for proxy in &report.proxies {
        say(&line(proxy));
        if !proxy.must_match.is_empty() {
            let settings = words(&proxy.must_match);
            say(&format!("    must be as here: {settings}"));
        }
        if proxy.has_another_time() {
            say("    its clock or that of the store is wrong: it ends no session by its age");
        }
        if !proxy.differs.is_empty() {
            say(&format!("    another configuration: {}", words(&proxy.differs)));
        }
    }
    if report.other_layout {
        note(
            "the store also has keys of the other layout, which these proxies do not see: see [store] layout",
        );
    }
    if !report.other_prefixes.is_empty() {
        // Sites may share a Redis. It is of interest if a proxy is missing above.
        let prefixes: Vec<_> = report.other_prefixes.iter().map(|one| format!("{one:?}")).collect();
        note(&format!(
            "proxies with another [store] prefix use the same Redis: {}",
            prefixes.join(", ")
        ));
    }
}

/// A proxy on one line. Another program may have written any text, so control characters are escaped.
fn line(proxy: &ListedProxy) -> String {
    let ListedProxy { id, host, version, config, age, clock, .. } = proxy;
    let (host, version) = (host.escape_debug(), version.escape_debug());
    let up = uptime((unix_now() - proxy.since).max(0.0));
    let purges = match proxy.purges_behind {
        Some(behind) => format!("{} behind", counted(behind as usize, "purge")),
        None => "purges unknown".to_owned(),
    };
    let own = if proxy.own { "  (this proxy)" } else { "" };
    format!(
        "{id}  {host}  {version}  configuration {config}  up {up}, written {age:.0} s ago  {purges}  clock {clock:+.1} s{own}"
    )
}

fn words(names: &[String]) -> String {
    names.iter().map(|name| name.escape_debug().to_string()).collect::<Vec<_>>().join(", ")
}

/// A time in its largest unit.
pub(super) fn uptime(seconds: f64) -> String {
    let units = [(86_400.0, "d"), (3_600.0, "h"), (60.0, "min")];
    let unit = units.into_iter().find(|(length, _)| seconds >= 2.0 * length);
    let (length, unit) = unit.unwrap_or((1.0, "s"));
    format!("{:.0} {unit}", (seconds / length).floor())
}
