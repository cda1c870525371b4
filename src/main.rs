//! The command `anteroom`: reads the command line, prints, and ends with an exit code.
//!
//! Exit codes: 0 fine, 1 failed, 2 usage, 64 bad configuration.

mod cli;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use anteroom::app::{App, Demo};
use anteroom::config::{Plan, Sources, print};
use clap::Parser;
use cli::{Cli, Command, ConfigCommand, PlanArgs};
use tracing_subscriber::EnvFilter;

/// `EX_USAGE` of sysexits.h: the configuration is wrong.
const BAD_CONFIGURATION: u8 = 64;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Some(Command::Run(args)) => run(args),
        None => run(cli.run),
        Some(Command::Demo(args)) => demonstrate(&args),
        Some(Command::Check(args)) => read(args).map(|_| say("the configuration is fine")),
        Some(Command::Config { command: ConfigCommand::Print(args) }) => {
            read(args).map(|plan| say(print(&plan).trim_end()))
        }
    };
    done.map_or_else(ExitCode::from, |()| ExitCode::SUCCESS)
}

fn run(args: PlanArgs) -> Result<(), u8> {
    let plan = read(args)?;
    log_to_stderr("info");
    let app = App::open(plan).map_err(failed)?;
    for address in app.addresses() {
        tracing::info!("visitors are served at http://{address}");
    }
    if let Some(address) = app.admin_address() {
        tracing::info!("health and metrics are at http://{address}");
    }
    app.run().map_err(failed)
}

fn demonstrate(args: &cli::DemoArgs) -> Result<(), u8> {
    log_to_stderr("warn");
    let demo = Demo::open(args.listen, args.data.as_deref()).map_err(failed)?;
    say(&demo.invitation());
    demo.run().map_err(failed)
}

/// Reads the plan; its warnings and problems go to standard error, a line each.
fn read(args: PlanArgs) -> Result<Plan, u8> {
    let sources = Sources::gather(args.config.as_deref(), args.overrides)
        .map_err(|problem| bad_configuration(&[problem]))?;
    let (plan, warnings) = Plan::read(&sources).map_err(|problems| bad_configuration(&problems))?;
    for warning in warnings {
        complain(&format!("warning: {warning}"));
    }
    Ok(plan)
}

fn bad_configuration(problems: &[impl std::fmt::Display]) -> u8 {
    for problem in problems {
        complain(&problem.to_string());
    }
    BAD_CONFIGURATION
}

fn failed(error: impl std::fmt::Display) -> u8 {
    complain(&format!("anteroom: {error}"));
    1
}

/// Prints to standard output; whoever reads it may have left.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _closed = writeln!(out, "{text}").and_then(|()| out.flush());
}

fn complain(text: &str) {
    let _closed = writeln!(std::io::stderr().lock(), "{text}");
}

/// Messages for operators go to standard error; `ANTEROOM_LOG` chooses how much of them.
fn log_to_stderr(level: &str) {
    let filter = EnvFilter::try_from_env("ANTEROOM_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}
