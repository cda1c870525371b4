//! The command that shows what the audit of hits has found.

use std::fmt::Write as _;

use anteroom::admin::{self, CACHE_AUDIT};
use anteroom_learn::audit::{
    AuditReport, AuditTotals, AuditedPatternReport, DifferingPlace, PlaceKind,
};
use http::Method;

use super::socket;
use crate::cli::args::Shown;
use crate::cli::output::{counted, failed, say};

/// The most patterns that are shown.
const PATTERNS_SHOWN: usize = 20;
/// The most places of a page that are shown.
const PLACES_SHOWN: usize = 8;

/// Shows what was found.
pub(crate) fn audit(Shown { json, at }: Shown) -> Result<(), u8> {
    let reply = admin::send_command(&socket(at)?, Method::GET, CACHE_AUDIT, Vec::new());
    let reply = reply.map_err(failed)?;
    if json {
        say(&String::from_utf8_lossy(&reply));
        return Ok(());
    }
    let report: AuditReport = serde_json::from_slice(&reply).map_err(failed)?;
    say(described(&report).trim_end());
    Ok(())
}

fn described(report: &AuditReport) -> String {
    let AuditTotals { compared, same, noise, differed, unknown } = report.totals;
    let mut text = String::new();
    // Writing into a String cannot fail.
    let _ = writeln!(
        text,
        "{} compared with the app's answer: {same} the same, {noise} different by noise or an \
         edit, {differed} different for a visitor; {unknown} could not be compared",
        counted(compared as usize, "hit")
    );
    if compared + unknown == 0 {
        text.push_str(
            "set [cache] audit = \"1/1000\", or audit in a [[route]], to compare one hit of a \
             thousand\n",
        );
    }
    let differing = report.patterns.iter().filter(|pattern| pattern.differed > 0);
    for pattern in differing.clone().take(PATTERNS_SHOWN) {
        text.push_str(&described_pattern(pattern));
    }
    let more = differing.count().saturating_sub(PATTERNS_SHOWN);
    if more > 0 {
        let _ = writeln!(text, "… and {more} more; --json has them");
    }
    text
}

fn described_pattern(pattern: &AuditedPatternReport) -> String {
    let AuditedPatternReport { host, pattern: path, route, compared, differed, .. } = pattern;
    let mut text = format!(
        "\n{}{} (route {}): {differed} of {} differed, for visitors of {}\n",
        shown(host),
        shown(path),
        shown(route),
        counted(*compared as usize, "hit"),
        counted(pattern.networks as usize, "network")
    );
    if let Some(path) = &pattern.path {
        let _ = writeln!(text, "  last in {}:", shown(path));
    }
    for place in pattern.places.iter().take(PLACES_SHOWN) {
        let _ = writeln!(text, "    {}", described_place(place));
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

/// A text of a visitor's request, without what controls a terminal.
fn shown(text: &str) -> String {
    text.escape_debug().to_string()
}
