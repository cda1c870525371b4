//! The commands about learn mode.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anteroom::admin::{self, LEARN, LEARN_RESTART};
use anteroom_config::{LearnedLines, Overrides, learned_config};
use anteroom_learn::{LearnedPageReport, Report};
use http::Method;

use super::socket;
use crate::cli::args::{LearnCommand, OutputArgs};
use crate::cli::output::{self, counted, failed, note, say};

/// The most pages that the report shows.
const PAGES_SHOWN: usize = 20;
/// The most reasons of a route that it shows.
const REASONS_SHOWN: usize = 3;

/// Shows or forgets what was learned.
pub(crate) fn learn(command: LearnCommand) -> Result<(), u8> {
    match command {
        LearnCommand::Report { write, shown } => report(write.as_deref(), shown),
        LearnCommand::Restart { shown: OutputArgs { json, at } } => {
            let reply =
                admin::send_command(&socket(at)?, Method::POST, LEARN_RESTART, b"{}".to_vec());
            let reply = reply.map_err(failed)?;
            say(&if json {
                String::from_utf8_lossy(&reply).into_owned()
            } else {
                "forgotten: learning begins again".to_owned()
            });
            Ok(())
        }
    }
}

fn report(write: Option<&Path>, OutputArgs { json, at }: OutputArgs) -> Result<(), u8> {
    let config = at.config.clone();
    let reply =
        admin::send_command(&socket(at)?, Method::GET, LEARN, Vec::new()).map_err(failed)?;
    let report: Report = serde_json::from_slice(&reply).map_err(failed)?;
    if json {
        say(&String::from_utf8_lossy(&reply));
    } else {
        say(described(&report).trim_end());
    }
    write.map_or(Ok(()), |file| write_config(&report, config, file))
}

/// Writes the configuration with what was learned, and checks it.
fn write_config(report: &Report, config: Option<PathBuf>, to: &Path) -> Result<(), u8> {
    let Some(from) = output::file_or_usual(config) else {
        return Err(failed("there is no ./proxy.toml: name the file in force with --config FILE"));
    };
    let text = std::fs::read_to_string(&from)
        .map_err(|error| failed(format!("cannot read {}: {error}", from.display())))?;
    let lines = report.proposals.iter().map(|one| LearnedLines {
        reason: &one.reason,
        toml: &one.toml,
        route: one.route.as_deref(),
    });
    let learned = learned_config(&text, lines, report.serves_rest)
        .map_err(|error| failed(format!("{}: {error}", from.display())))?;
    let mut file = std::fs::File::create_new(to)
        .map_err(|error| failed(format!("cannot write {}: {error}", to.display())))?;
    std::io::Write::write_all(&mut file, learned.as_bytes())
        .map_err(|error| failed(format!("cannot write {}: {error}", to.display())))?;
    output::plan(Some(to), Overrides::default())?;
    note(&format!("wrote {}; the file in force is as it was", to.display()));
    Ok(())
}

/// The report in words.
fn described(report: &Report) -> String {
    let mut text = String::new();
    // Writing into a String cannot fail.
    let _ = head(&mut text, report);
    let _ = routes(&mut text, report);
    let _ = pages(&mut text, report);
    let _ = cookies(&mut text, report);
    let _ = proposals(&mut text, report);
    text
}

fn head(text: &mut String, report: &Report) -> std::fmt::Result {
    let Report { requests, hits, unknown, hit_percent, .. } = report;
    if report.mode == "serve" {
        writeln!(text, "no route learns: set [cache] mode = \"learn\", or mode in a [[route]]")?;
    }
    writeln!(
        text,
        "{} in {}; {hits} would have been hits: {hit_percent} %",
        counted(*requests as usize, "request"),
        lasted((report.at - report.since).max(0.0))
    )?;
    if *unknown > 0 {
        writeln!(
            text,
            "{unknown} are not among these: no answer showed what a visitor without cookies would get"
        )?;
    }
    if report.followed_percent < 100.0 {
        writeln!(text, "{:.1} % of the URLs are followed", report.followed_percent)?;
    }
    Ok(())
}

/// A time, in its largest unit.
fn lasted(seconds: f64) -> String {
    match seconds {
        0.0..3_600.0 => match format!("{:.0}", seconds / 60.0).as_str() {
            "1" => "1 minute".to_owned(),
            minutes => format!("{minutes} minutes"),
        },
        _ => format!("{:.1} hours", seconds / 3_600.0),
    }
}

fn routes(text: &mut String, report: &Report) -> std::fmt::Result {
    if report.routes.is_empty() {
        return Ok(());
    }
    let (hits, time) = ("hits", "app time saved");
    writeln!(text, "\n{:<32} {:>9} {hits:>8}  {time:>14}  why others miss", "route", "requests")?;
    for route in &report.routes {
        let reasons = route.reasons.iter().take(REASONS_SHOWN);
        let reasons: Vec<String> =
            reasons.map(|(reason, count)| format!("{reason} {count}")).collect();
        writeln!(
            text,
            "{:<32} {:>9} {:>6.1} %  {:>12.1} s  {}",
            shown(&route.name),
            route.requests,
            route.hit_percent,
            route.saved_seconds,
            reasons.join(", ")
        )?;
    }
    Ok(())
}

fn pages(text: &mut String, report: &Report) -> std::fmt::Result {
    write!(
        text,
        "\n{} compared between visitors; {} the same for all",
        counted(report.compared_pages as usize, "page"),
        report.same_pages
    )?;
    if report.undecided_pages > 0 {
        write!(text, "; {} not decided", report.undecided_pages)?;
    }
    if report.uncompared_pages > 0 {
        write!(text, "; {} more were asked for by one visitor alone", report.uncompared_pages)?;
    }
    text.push('\n');
    for page in report.pages.iter().take(PAGES_SHOWN) {
        let names = page.parameters.iter().map(|name| format!("{name}=")).collect::<Vec<_>>();
        let query = if names.is_empty() { String::new() } else { format!("?{}", names.join("&")) };
        writeln!(
            text,
            "  {}{}{}: {}",
            shown(&page.host),
            shown(&page.path),
            shown(&query),
            meaning(page)
        )?;
    }
    let more = report.pages.len().saturating_sub(PAGES_SHOWN);
    if more > 0 {
        writeln!(text, "  … and {more} more; --json has them")?;
    }
    Ok(())
}

/// What a verdict means.
fn meaning(page: &LearnedPageReport) -> String {
    let cookie = page.cookie.as_deref().unwrap_or("?");
    match page.verdict.as_str() {
        "own-words" => "would be shared, and shows a visitor's own words".to_owned(),
        "by-visitor" => "would be shared, and differs by visitor".to_owned(),
        "by-cookie" => format!("would be shared, and differs by the cookie {}", shown(cookie)),
        "by-field" if page.field.as_deref() == Some("address") => {
            "would be shared, and differs by the client's address".to_owned()
        }
        "by-field" => {
            let field = page.field.as_deref().unwrap_or("?");
            format!("would be shared, and differs by {field}")
        }
        "several-causes" => {
            "would be shared, and differs by several causes, or by one of several that come together"
                .to_owned()
        }
        "undecided" => {
            let missing = page.missing.as_deref().unwrap_or("more answers");
            format!("differs, and it is not decided by what; {missing} would tell")
        }
        "differs" => "would be shared, and differs; by what is not known yet".to_owned(),
        _ => "differs each time, even for one visitor: a nonce or a clock".to_owned(),
    }
}

fn cookies(text: &mut String, report: &Report) -> std::fmt::Result {
    if report.cookies.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n{:<32} {:>9}  {:<9} {:<9} why", "cookie", "requests", "class", "learned")?;
    for cookie in &report.cookies {
        writeln!(
            text,
            "{:<32} {:>9}  {:<9} {:<9} {}",
            shown(&cookie.name),
            cookie.requests,
            cookie.class,
            cookie.verdict,
            cookie.text
        )?;
    }
    Ok(())
}

fn proposals(text: &mut String, report: &Report) -> std::fmt::Result {
    if report.proposals.is_empty() {
        return Ok(());
    }
    writeln!(text, "\nproposed for proxy.toml (--write FILE writes it):")?;
    for proposal in &report.proposals {
        writeln!(text, "\n# {}\n{}", shown(&proposal.reason), proposal.toml)?;
    }
    let rest =
        if report.serves_rest { "is served" } else { "learns on: too little is known of it" };
    writeln!(text, "\nwhat no [[route]] matches {rest}")?;
    Ok(())
}

/// A text of a visitor's request, without what controls a terminal.
fn shown(text: &str) -> String {
    text.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_counts_in_the_singular_and_in_the_plural() {
        assert_eq!(
            [lasted(29.0), lasted(60.0), lasted(120.0)],
            ["0 minutes", "1 minute", "2 minutes"]
        );
        assert_eq!(lasted(5_400.0), "1.5 hours");
        let report = Report { requests: 1, at: 60.0, followed_percent: 100.0, ..Report::default() };
        let text = described(&report);
        assert!(text.starts_with("1 request in 1 minute; 0 would have been hits: 0 %\n"), "{text}");
    }
}
