//! The command `anteroom`: reads the command line, prints, and ends with an exit code.
//!
//! Exit codes: 0 fine, 1 failed, 2 usage, 64 bad configuration.

mod cli;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anteroom::app::{
    Application, ConnectResult, Demo, Program, RuleTestError, case_reasons, connect_check,
    run_cases,
};
use anteroom_config::{CaseWords, json_schema, print, read_cases};
use anteroom_telemetry::message_log::{MessageLog, StartMessageLogError};
use clap::Parser;
use cli::args::{
    CheckArgs, Cli, Command, ConfigCommand, PlanArgs, TestArgs, options_last, with_tip,
};
use cli::output::{failed, file_or_usual, load, load_or_problems, read, say};
use cli::{commands, manual, output};
use tikv_jemallocator::Jemalloc;
use tracing::field;
use tracing_subscriber::EnvFilter;

/// PERF: what a crowd of connections leaves goes back to the system within seconds; the system's own
/// allocator keeps every page that one small block still lives on. 10,000 connections that fell idle
/// at once hold a third of the memory, and a request costs the same CPU time (`benches/idle.py`,
/// `benches/compare.py`).
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    let words = options_last(std::env::args_os());
    let cli = Cli::try_parse_from(&words).unwrap_or_else(|error| with_tip(error).exit());
    let done = match cli.command {
        Some(Command::Run(args)) => run(words, &args.plan, args.take_over),
        None => run(words, &cli.run, None),
        Some(Command::Demo(args)) => demonstrate(&args),
        Some(Command::Check(args)) => check(args),
        Some(Command::Test(args)) => test(args),
        Some(Command::Config { command: ConfigCommand::Print(args) }) => {
            let args = PlanArgs { config: file_or_usual(args.config.clone()), ..args };
            read(args).map(|plan| say(print(&plan).trim_end()))
        }
        Some(Command::Config { command: ConfigCommand::Schema }) => {
            say(&format!("{:#}", json_schema()));
            Ok(())
        }
        Some(Command::Rows { command }) => commands::rows(command),
        Some(Command::Purge(args)) => commands::purge::purge(args),
        Some(Command::Learn { command }) => commands::learn::learn(command),
        Some(Command::Audit(args)) => commands::audit::audit(args),
        Some(Command::Bypass(args)) => commands::bypass::bypass(args),
        Some(Command::Warm(args)) => commands::warm::warm(args),
        Some(Command::Explain(args)) => commands::explain(args),
        Some(Command::Store { command }) => commands::store::store(command),
        Some(Command::Certificates { command }) => commands::certificates::certificates(command),
        Some(Command::Fleet(args)) => commands::fleet::fleet(args),
        Some(Command::Log(args)) => commands::log::log(args),
        Some(Command::Upgrade(args)) => commands::upgrade::upgrade(args),
        Some(Command::Reload(args)) => commands::reload::reload(args),
        Some(Command::Status(args)) => commands::status::status(args),
        Some(Command::Top(args)) => commands::top::top(args),
        Some(Command::Sessions { command }) => commands::sessions::sessions(command),
        Some(Command::User { command }) => commands::sessions::user(command),
        Some(Command::Completions { shell }) => {
            manual::completions(shell);
            Ok(())
        }
        Some(Command::Man { folder }) => manual::write_pages(&folder),
    };
    done.map_or_else(ExitCode::from, |()| ExitCode::SUCCESS)
}

/// `words`: those of the command line. `take_over`: from the running proxy behind this socket, or behind that of the
/// configuration.
fn run(
    words: Vec<OsString>,
    args: &PlanArgs,
    take_over: Option<Option<PathBuf>>,
) -> Result<(), u8> {
    let _log = log_messages("info").map_err(failed)?;
    let program = Program::of_this_process(words);
    // A reload reads the same file again: one that is gone is an error then, and one that has appeared is not read.
    let args = PlanArgs { config: file_or_usual(args.config.clone()), ..args.clone() };
    let loaded = load(args.clone())?;
    let app = match take_over {
        Some(socket) => Application::take_over(loaded, socket),
        None => Application::open(loaded),
    };
    let app = app.map_err(failed)?.with_program(program);
    app.run(|| load_or_problems(args.clone())).map_err(failed)
}

/// Checks the configuration, and with `--connect` tries what it names.
fn check(args: CheckArgs) -> Result<(), u8> {
    let CheckArgs { connect, json, mut plan } = args;
    if !connect {
        return output::check(plan).map(|()| say("the configuration is valid"));
    }
    // A certificate that has expired is a warning here, and a failure below.
    plan.config = file_or_usual(plan.config);
    let findings = connect_check(&read(plan)?).map_err(failed)?;
    if json {
        say(&serde_json::to_string(&findings).map_err(failed)?);
    } else {
        say("the configuration is valid");
        findings.iter().for_each(|finding| say(&finding.to_string()));
    }
    let has_failed = findings.iter().any(|finding| finding.result == ConnectResult::Failed);
    if has_failed { Err(1) } else { Ok(()) }
}

/// Runs a table of requests through the rules of the configuration.
fn test(args: TestArgs) -> Result<(), u8> {
    let TestArgs { cases, json, mut plan } = args;
    plan.config = file_or_usual(plan.config);
    let plan = read(plan)?;
    let mut routes: Vec<String> = plan.routes.iter().map(|route| route.name.to_string()).collect();
    routes.push("default".to_owned());
    let routes: Vec<&str> = routes.iter().map(String::as_str).collect();
    let words = CaseWords { reasons: &case_reasons(), routes: &routes };
    let cases = read_cases(&cases, &words).map_err(|found| output::bad_configuration(&found))?;
    let results = run_cases(plan, &cases).map_err(|error| match error {
        RuleTestError::Case { .. } => output::bad_configuration(&[error]),
        RuleTestError::Start(error) => failed(error),
    })?;
    let lost: Vec<_> = results.iter().filter(|result| !result.mismatches.is_empty()).collect();
    let (all, passed) = (results.len(), results.len() - lost.len());
    if json {
        let report =
            serde_json::json!({ "passed": passed, "failed": lost.len(), "cases": results });
        say(&report.to_string());
    } else {
        lost.iter().for_each(|result| say(&result.to_string()));
        say(&format!("{all} cases: {passed} passed, {} failed", lost.len()));
    }
    if lost.is_empty() { Ok(()) } else { Err(1) }
}

fn demonstrate(args: &cli::args::DemoArgs) -> Result<(), u8> {
    let _log = log_messages("warn").map_err(failed)?;
    let demo = Demo::open(args.listen, args.data.as_deref(), args.learn, &output::program());
    let demo = demo.map_err(failed)?;
    say(&demo.invitation());
    demo.run().map_err(failed)
}

/// Messages for operators go to standard error; `ANTEROOM_LOG` chooses how much of them.
fn log_messages(level: &str) -> Result<MessageLog, StartMessageLogError> {
    let filter = EnvFilter::try_from_env("ANTEROOM_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let log = MessageLog::start(filter, std::io::stderr().is_terminal())?;
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or_default();
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let trace = Backtrace::capture();
        let trace = (trace.status() == BacktraceStatus::Captured).then_some(trace);
        tracing::error!(place, trace = trace.map(field::display), "a thread panicked: {message}");
    }));
    Ok(log)
}
