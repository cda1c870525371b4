//! Output of the commands, and their exit codes.

use std::io::Write;
use std::path::{Path, PathBuf};

use anteroom_config::{AdminSocket, ConfigSources, LoadedPlan, Overrides, Plan, Problem, Warning};
use anteroom_telemetry::message_log;

use crate::cli::args::PlanArgs;

/// `EX_USAGE` of sysexits.h: the configuration is wrong.
const BAD_CONFIGURATION: u8 = 64;
/// The exit code for wrong usage, as of the parser of the command line.
const WRONG_USAGE: u8 = 2;

/// Reads the plan; prints warnings and problems to standard error, one per line.
pub(crate) fn read(args: PlanArgs) -> Result<Plan, u8> {
    load(args).map(|loaded| loaded.plan)
}

/// As [`read`], and keeps the warnings.
pub(crate) fn load(args: PlanArgs) -> Result<LoadedPlan, u8> {
    load_or_problems(args).map_err(|_problems| BAD_CONFIGURATION)
}

/// As [`load`], and returns the problems that it prints.
pub(crate) fn load_or_problems(args: PlanArgs) -> Result<LoadedPlan, Vec<String>> {
    let (plan, warnings) =
        read_plan(args.config.as_deref(), args.overrides).map_err(|problems| {
            bad_configuration(&problems);
            problems.iter().map(ToString::to_string).collect::<Vec<_>>()
        })?;
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    for warning in &warnings {
        complain(&format!("warning: {warning}"));
    }
    Ok(LoadedPlan { plan, warnings })
}

/// Reads the plan. Warnings that make the check fail count as problems.
pub(crate) fn check(args: PlanArgs) -> Result<(), u8> {
    let (_, warnings) = plan(file_or_usual(args.config).as_deref(), args.overrides)?;
    let (fatal, light): (Vec<_>, Vec<_>) = warnings.into_iter().partition(|one| one.fails_check);
    for warning in light {
        complain(&format!("warning: {warning}"));
    }
    if fatal.is_empty() { Ok(()) } else { Err(bad_configuration(&fatal)) }
}

/// The named file; without a name, `./proxy.toml` if it is there, with a note of that.
pub(crate) fn file_or_usual(file: Option<PathBuf>) -> Option<PathBuf> {
    file.or_else(|| {
        let usual = ConfigSources::usual_file()?;
        complain(&format!("the configuration is ./{}", usual.display()));
        Some(usual)
    })
}

/// Reads the plan and its warnings; prints problems to standard error, one per line.
///
/// # Errors
/// The exit code, if there are problems.
pub(crate) fn plan(file: Option<&Path>, overrides: Overrides) -> Result<(Plan, Vec<Warning>), u8> {
    read_plan(file, overrides).map_err(|problems| bad_configuration(&problems))
}

fn read_plan(
    file: Option<&Path>,
    overrides: Overrides,
) -> Result<(Plan, Vec<Warning>), Vec<Problem>> {
    let sources = ConfigSources::gather(file, overrides).map_err(|problem| vec![problem])?;
    Plan::read(&sources).inspect_err(|problems| {
        if file.is_none() && problems.iter().any(|problem| problem.setting == "origin.url") {
            complain(
                "no configuration file was read: there is no ./proxy.toml, and no --config FILE",
            );
        }
    })
}

/// The location of the socket of the data commands.
///
/// # Errors
/// The exit code, if there are problems.
pub(crate) fn socket(file: Option<&Path>) -> Result<AdminSocket, u8> {
    let sources = ConfigSources::gather(file, Overrides::default())
        .map_err(|problem| bad_configuration(&[problem]))?;
    Plan::socket(&sources).map_err(|problems| bad_configuration(&problems))
}

/// Prints a line for each mistake in what an operator wrote; returns the exit code.
pub(crate) fn bad_configuration(problems: &[impl std::fmt::Display]) -> u8 {
    for problem in problems {
        complain(&problem.to_string());
    }
    BAD_CONFIGURATION
}

/// How to call this program again from any folder: its name if the shell found it by that, otherwise its
/// path.
pub(crate) fn program() -> String {
    let called = std::env::args_os().next().unwrap_or_default();
    let path = if called.as_encoded_bytes().contains(&b'/') {
        std::env::current_exe().unwrap_or_else(|_| called.into())
    } else {
        called.into()
    };
    path.to_string_lossy().into_owned()
}

/// Prints why a command failed; returns its exit code.
pub(crate) fn failed(error: impl std::fmt::Display) -> u8 {
    complain(&format!("anteroom: {error}"));
    1
}

/// Prints why a call makes no sense; returns the exit code of wrong usage.
pub(crate) fn wrong_usage(why: &str) -> u8 {
    complain(&format!("anteroom: {why}"));
    WRONG_USAGE
}

/// Prints to standard output. A closed pipe is not an error.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _closed = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Prints to standard error what is no part of the result.
pub(crate) fn note(text: &str) {
    complain(text);
}

/// Text that a client may have chosen, in printable ASCII: nothing in it steers a terminal, or looks like what it is
/// not.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' '..='~' if c != '\\' => shown.push(c),
            _ => shown.extend(c.escape_default()),
        }
    }
    shown
}

/// `1 page`, `3 pages`.
pub(crate) fn counted(number: usize, thing: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{ending}")
}

/// A proxy that runs must not wait for the reader of standard error.
fn complain(text: &str) {
    if !message_log::write_line(text) {
        let _closed = writeln!(std::io::stderr().lock(), "{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_steers_a_terminal() {
        let text = "a b\u{1b}]0;x\u{7}\u{9b}2J\u{202e}é\\\"";
        let shown = printable(text);
        assert_eq!(shown, r#"a b\u{1b}]0;x\u{7}\u{9b}2J\u{202e}\u{e9}\\""#);
    }
}
