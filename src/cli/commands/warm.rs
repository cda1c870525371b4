//! The command that requests pages, so that they are in the cache.

use anteroom::app::{self, WarmOrder, WarmReport};
use anteroom_config::Overrides;

use crate::cli::args::WarmArgs;
use crate::cli::output::{counted, failed, file_or_usual, note, plan, say};
use crate::cli::progress::ShownProgress;

/// Requests the pages, and prints what became of them. Fails if a request failed.
pub(crate) fn warm(args: WarmArgs) -> Result<(), u8> {
    let WarmArgs { of, to, at_once, header, json, config } = args;
    // With an address, a configuration only says which hosts are served.
    let file = if to.is_some() { config } else { file_or_usual(config) };
    let plan = match &file {
        Some(file) => Some(plan(Some(file), Overrides::default())?.0),
        None => None,
    };
    let fields = header.into_iter().map(|(name, value)| (name, value.0)).collect();
    let order = WarmOrder { of, to, fields, at_once: at_once.into() };
    let mut shown = ShownProgress::of("pages");
    let report = app::warm(&order, plan.as_ref(), |done, of| shown.show(done, of));
    shown.end();
    let report = report.map_err(failed)?;
    if json {
        say(&serde_json::to_string(&report).map_err(failed)?);
    } else {
        show(&report);
    }
    if report.failed > 0 { Err(1) } else { Ok(()) }
}

fn show(report: &WarmReport) {
    let WarmReport { stored, fresh, not_cacheable, failed, failures } = report;
    say(&format!("stored: {}", counted(*stored, "page")));
    say(&format!("fresh already: {}", counted(*fresh, "page")));
    for (reason, count) in not_cacheable {
        // Another program may have written the reason.
        say(&format!("not cacheable ({}): {}", reason.escape_debug(), counted(*count, "page")));
    }
    say(&format!("failed: {}", counted(*failed, "page")));
    for failure in failures {
        note(&format!("{}: {}", failure.url.escape_debug(), failure.why.escape_debug()));
    }
    if *failed > failures.len() {
        note("… and more");
    }
}
