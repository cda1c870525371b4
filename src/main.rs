//! The command `anteroom`: reads the command line, prints, and ends with an exit code.
//!
//! Exit codes: 0 fine, 1 failed, 2 usage, 64 bad configuration.

mod cli;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anteroom::admin::{self, ListedRow, Listing, Order};
use anteroom::app::{App, Demo};
use anteroom::clock::unix_now;
use anteroom::config::{Overrides, Plan, Sources, Warning, print};
use clap::Parser;
use cli::{Cli, Command, ConfigCommand, PlanArgs, RowArgs, RowsCommand, SocketArgs};
use http::Method;
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
        Some(Command::Rows { command }) => rows(command),
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

/// Asks the running proxy.
fn rows(command: RowsCommand) -> Result<(), u8> {
    let order = |rows: RowArgs, every: Option<Duration>| {
        let every = every.map(|every| every.as_secs_f64());
        let order = Order { name: rows.name, rows: rows.rows, every };
        serde_json::to_vec(&order).map_err(failed)
    };
    match command {
        RowsCommand::Schedule { rows, every, at } => {
            let order = order(rows, every)?;
            admin::call(&socket(at)?, Method::POST, "/rows/schedule", order).map_err(failed)?;
        }
        RowsCommand::Stop { rows, at } => {
            let order = order(rows, None)?;
            admin::call(&socket(at)?, Method::POST, "/rows/stop", order).map_err(failed)?;
        }
        RowsCommand::List { json, at } => {
            let listing =
                admin::call(&socket(at)?, Method::GET, "/rows", Vec::new()).map_err(failed)?;
            if json {
                say(&String::from_utf8_lossy(&listing));
            } else {
                show(&serde_json::from_slice(&listing).map_err(failed)?);
            }
        }
    }
    Ok(())
}

/// Shows the rows as a table for people.
fn show(listing: &Listing) {
    let now = unix_now();
    for ListedRow { name, row, every, refreshed, .. } in &listing.rows {
        let age = refreshed.map_or_else(
            || "not fetched yet".to_owned(),
            |at| format!("fetched {:.0} s ago", (now - at).max(0.0)),
        );
        say(&format!("{name}  {row}  every {every} s  {age}"));
    }
    if listing.more {
        say("… and more");
    }
}

/// Where the running proxy listens for data commands.
fn socket(at: SocketArgs) -> Result<PathBuf, u8> {
    if let Some(path) = at.socket {
        return Ok(path);
    }
    // Without a file the rest is as usual; which app the proxy is before does not matter here.
    let origin = at.config.is_none().then(|| "http://127.0.0.1".to_owned());
    let overrides = Overrides { origin, ..Overrides::default() };
    let plan = plan(at.config.as_deref(), overrides)?.0;
    let off = "[admin] socket is \"off\", so that the running proxy takes no commands";
    plan.admin.socket.ok_or_else(|| failed(off))
}

/// Reads the plan; its warnings and problems go to standard error, a line each.
fn read(args: PlanArgs) -> Result<Plan, u8> {
    let (plan, warnings) = plan(args.config.as_deref(), args.overrides)?;
    for warning in warnings {
        complain(&format!("warning: {warning}"));
    }
    Ok(plan)
}

fn plan(file: Option<&Path>, overrides: Overrides) -> Result<(Plan, Vec<Warning>), u8> {
    let sources =
        Sources::gather(file, overrides).map_err(|problem| bad_configuration(&[problem]))?;
    Plan::read(&sources).map_err(|problems| bad_configuration(&problems))
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
