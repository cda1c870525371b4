//! The command that shows whether the proxy serves, and what it works with.

use anteroom::admin::{
    self, ListedBypass, ListedOrigin, ListedServer, ORIGINS, OriginsReport, Outcome, RefusedReload,
    STATUS, Status,
};
use http::Method;

use super::fleet::uptime;
use super::socket;
use crate::cli::args::OutputArgs;
use crate::cli::output::{counted, failed, printable, say};

/// Shows the state of the running proxy. Fails where it lacks its store or an app.
pub(crate) fn status(shown: OutputArgs) -> Result<(), u8> {
    let socket = socket(shown.at)?;
    let read = |target: &str| {
        admin::send_command(&socket, Method::GET, target, Vec::new()).map_err(failed)
    };
    let status: Status = serde_json::from_slice(&read(STATUS)?).map_err(failed)?;
    let report: OriginsReport = serde_json::from_slice(&read(ORIGINS)?).map_err(failed)?;
    let origins = report.origins;
    if shown.json {
        say(&serde_json::json!({ "status": status, "origins": origins }).to_string());
    } else {
        say(&lines(&status, &origins).join("\n"));
    }
    if status.store.connected && origins.iter().all(has_server) { Ok(()) } else { Err(1) }
}

fn has_server(origin: &ListedOrigin) -> bool {
    origin.servers.iter().any(|server| server.up)
}

fn lines(status: &Status, origins: &[ListedOrigin]) -> Vec<String> {
    let (version, mode) = (printable(&status.version), printable(&status.mode));
    let up = uptime((status.at - status.since).max(0.0));
    let store = match status.store.connected {
        true => "connected",
        false => "away: visitors with a cookie are forwarded",
    };
    let mut lines =
        vec![line("proxy", &format!("version {version}, up {up}, mode {mode}")), requests(status)];
    for origin in origins {
        let servers = origin.servers.iter().map(|server| origin_line(origin, server));
        lines.extend(servers);
    }
    lines.push(line("store", store));
    lines.push(line("memory", &memory(status)));
    lines.extend(status.refused_reload.iter().map(|refused| reload(refused, status.at)));
    lines.extend(status.bypasses.iter().map(bypass));
    if status.stopped > 0 {
        let stopped = counted(status.stopped as usize, "kind");
        lines.push(line("audit", &format!("{stopped} of pages not shared: see anteroom audit")));
    }
    lines
}

fn line(name: &str, text: &str) -> String {
    format!("{name:<9}  {text}")
}

fn requests(status: &Status) -> String {
    let count = |is_counted: fn(Outcome) -> bool| -> u64 {
        let outcomes = status.results.iter().filter_map(|(word, times)| {
            Outcome::parse(word).filter(|outcome| is_counted(*outcome)).map(|_| times.count)
        });
        outcomes.sum()
    };
    let (all, pages, hits) = (count(|_| true), count(Outcome::is_of_page), count(Outcome::is_hit));
    // Of no page there is no share.
    let share = (hits * 100).checked_div(pages);
    let share = share.map_or_else(String::new, |share| format!(", {share} % from the cache"));
    line("requests", &format!("{all}{share}"))
}

fn origin_line(origin: &ListedOrigin, server: &ListedServer) -> String {
    let (name, address) = (printable(&origin.name), printable(&server.address));
    let state = if server.up { "up" } else { "down" };
    let busy = if server.has_queue { ", has more to do than it can" } else { "" };
    line("app", &format!("{name} {address} is {state}{busy}"))
}

fn memory(status: &Status) -> String {
    const MIB: u64 = 1 << 20;
    let memory = &status.memory;
    let pages = counted(memory.page_count as usize, "page");
    format!("{pages} in {} MiB of {} MiB", memory.pages.div_ceil(MIB), memory.pages_max / MIB)
}

fn reload(refused: &RefusedReload, now: f64) -> String {
    let ago = uptime((now - refused.at).max(0.0));
    let first = refused.problems.first().map(|problem| printable(problem)).unwrap_or_default();
    let more = match refused.problems.len() {
        0 | 1 => String::new(),
        several => format!(" (and {} more)", several - 1),
    };
    line(
        "reload",
        &format!("refused {ago} ago, the configuration before is in force: {first}{more}"),
    )
}

fn bypass(bypass: &ListedBypass) -> String {
    let what = match &bypass.route {
        Some(route) => format!("route {}", printable(route)),
        None => "all routes".to_owned(),
    };
    line("bypass", &format!("{what}: see anteroom bypass"))
}
