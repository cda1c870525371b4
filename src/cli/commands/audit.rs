//! The command that shows what the audit of hits has found, and lets pages be shared again.

use std::fmt::Write as _;

use anteroom::admin::{self, CACHE_AUDIT, CACHE_AUDIT_RESUME, ResumeOrder};
use anteroom_learn::audit::{
    AuditReport, AuditTotals, AuditedPatternReport, DifferingPlace, PlaceKind, StoppedPattern,
};
use http::Method;

use super::socket;
use crate::cli::args::{AuditArgs, AuditCommand, OutputArgs};
use crate::cli::output::{counted, failed, say};

/// The most patterns that are shown.
const PATTERNS_SHOWN: usize = 20;
/// The most places of a page that are shown.
const PLACES_SHOWN: usize = 8;

/// Shows what was found, or shares pages again.
pub(crate) fn audit(args: AuditArgs) -> Result<(), u8> {
    match args.command {
        None => show(Method::GET, CACHE_AUDIT, Vec::new(), args.shown),
        Some(AuditCommand::Resume { pattern, host, route, shown }) => {
            let order =
                serde_json::to_vec(&ResumeOrder { host, pattern, route }).map_err(failed)?;
            show(Method::POST, CACHE_AUDIT_RESUME, order, shown)
        }
    }
}

/// Sends a command, and prints the report that it answers with.
fn show(
    method: Method,
    path: &str,
    body: Vec<u8>,
    OutputArgs { json, at }: OutputArgs,
) -> Result<(), u8> {
    let reply = admin::send_command(&socket(at)?, method, path, body).map_err(failed)?;
    if json {
        say(&String::from_utf8_lossy(&reply));
        return Ok(());
    }
    let report: AuditReport = serde_json::from_slice(&reply).map_err(failed)?;
    say(described(&report).trim_end());
    Ok(())
}

fn described(report: &AuditReport) -> String {
    let AuditTotals { compared, same, noise, differed, leaks, unknown } = report.totals;
    let mut text = String::new();
    // Writing into a String cannot fail.
    let _ = writeln!(
        text,
        "{} compared with the app's answer: {same} the same, {noise} different by noise or an \
         edit, {differed} different for a visitor, {leaks} with a visitor's own words; {unknown} could \
         not be compared",
        counted(compared as usize, "hit")
    );
    if compared + unknown == 0 {
        text.push_str(
            "[cache] audit, or audit in a [[route]], says how many hits are compared: by default, \
             one of a thousand\n",
        );
    }
    if !report.stopped.is_empty() {
        text.push_str(
            "\nnot shared any more, until anteroom audit resume or another configuration:\n",
        );
    }
    for stopped in &report.stopped {
        text.push_str(&described_stop(stopped));
    }
    let differing = report.patterns.iter().filter(|pattern| pattern.totals.any_differed());
    for pattern in differing.clone().take(PATTERNS_SHOWN) {
        text.push_str(&described_pattern(pattern));
    }
    let more = differing.count().saturating_sub(PATTERNS_SHOWN);
    if more > 0 {
        let _ = writeln!(text, "… and {more} more; --json has them");
    }
    text
}

fn described_stop(stopped: &StoppedPattern) -> String {
    let StoppedPattern { host, pattern, route, by, only_here } = stopped;
    let pages = match pattern.as_str() {
        "**" => "all pages".to_owned(),
        pattern => format!("{}{}", shown(host), shown(pattern)),
    };
    let here = if *only_here { ", in this proxy alone" } else { "" };
    format!("  {pages} (route {}): {}{here}\n", shown(route), shown(by))
}

fn described_pattern(pattern: &AuditedPatternReport) -> String {
    let AuditedPatternReport { host, pattern: path, route, totals, .. } = pattern;
    let AuditTotals { compared, differed, leaks, .. } = *totals;
    let mut text = format!(
        "\n{}{} (route {}): {differed} of {} differed\n",
        shown(host),
        shown(path),
        shown(route),
        counted(compared as usize, "hit")
    );
    if leaks > 0 {
        let pages = counted(leaks as usize, "stored page");
        let _ = writeln!(text, "  {pages} held a visitor's own words");
    }
    if let Some(path) = &pattern.path {
        let _ = writeln!(text, "  last in {}:", shown(path));
    }
    for place in pattern.places.iter().take(PLACES_SHOWN) {
        let _ = writeln!(text, "    {}", described_place(place));
    }
    if !pattern.causes.is_empty() {
        let causes: Vec<String> = pattern.causes.iter().map(|cause| shown(cause)).collect();
        let _ = writeln!(text, "  explained by {}", causes.join(", or by "));
    }
    for line in pattern.toml.iter().flat_map(|toml| toml.lines()) {
        let _ = writeln!(text, "    {}", shown_line(line));
    }
    text
}

fn described_place(place: &DifferingPlace) -> String {
    match place.kind {
        PlaceKind::Head => "the status, Content-Type, Content-Language or Location".to_owned(),
        PlaceKind::Field => "another header field".to_owned(),
        PlaceKind::Body => {
            let bytes = counted(place.stored as usize, "byte");
            format!("the body at byte {}, {bytes} of the stored page", place.at)
        }
    }
}

/// A line of TOML, whose quotes stay.
fn shown_line(line: &str) -> String {
    line.chars().filter(|letter| !letter.is_control()).collect()
}

/// A text of a visitor's request, without what controls a terminal.
fn shown(text: &str) -> String {
    text.escape_debug().to_string()
}
