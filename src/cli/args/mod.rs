//! The command line: commands, options, and the help that shows them.

mod audit;
mod bypass;
mod certificates;
mod learn;
mod live;
mod order;
mod sessions;
mod store;
mod upgrade;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anteroom::admin::{EVERY_MAX, EVERY_MIN};
use anteroom_config::{Overrides, duration};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use audit::{AuditArgs, AuditCommand};
pub(crate) use bypass::{BypassArgs, BypassCommand};
pub(crate) use certificates::CertificatesCommand;
pub(crate) use learn::LearnCommand;
pub(crate) use live::{LogArgs, TopArgs, TopCommand};
pub(crate) use order::{options_last, with_tip};
pub(crate) use sessions::{OutputArgs, SessionsCommand, UserCommand};
pub(crate) use store::{BackupArgs, LayoutWord, MigrateArgs, Place, RestoreArgs, StoreCommand};
pub(crate) use upgrade::UpgradeArgs;

const EXAMPLES: &str = "\
Examples:
  anteroom demo
      A small shop with Anteroom in front of it, to try things; nothing to install
  anteroom run --listen 127.0.0.1:8080 --origin http://127.0.0.1:3000
      In front of an app on port 3000, without a configuration file
  anteroom run --config /etc/anteroom/proxy.toml
  anteroom check --config proxy.toml

Exit codes: 0 fine, 1 failed, 2 wrong usage, 64 bad configuration";

const RUN_EXAMPLES: &str = "\
Examples:
  anteroom run --config proxy.toml
  anteroom run --listen 127.0.0.1:8080 --origin http://127.0.0.1:3000
  anteroom run --config proxy.toml --store redis://127.0.0.1/0 --threads 4
  anteroom run --config proxy.toml --take-over
      In place of the proxy that runs with this file: no connection is refused or lost

Options override environment variables (ANTEROOM__SECTION__KEY, such as
ANTEROOM__CACHE__DEFAULT_TTL=60s), and these override the file. ANTEROOM_LOG=debug prints more to
standard error. TERM and INT stop the proxy after open requests are answered; HUP reloads the
configuration.";

const DEMO_EXAMPLES: &str = "\
Examples:
  anteroom demo
  anteroom demo --listen 127.0.0.1:9000 --data ./demo-data
  anteroom demo --learn
      In learn mode: nothing is served from the cache, and the dashboard says what would have been";

const CHECK_EXAMPLES: &str = "\
Examples:
  anteroom check --config proxy.toml
  ANTEROOM__ORIGIN__URL=http://127.0.0.1:3000 anteroom check
  anteroom check --config proxy.toml --connect
      Also tries the origins, the store, the certificates, the log and the admin socket

All problems are printed, each with its place and what to write instead. The exit code is 64
after a problem, and 1 if something that --connect tries does not work.";

const TEST_EXAMPLES: &str = "\
Examples:
  anteroom test cases.toml --config proxy.toml

A case is a request, and what it must get:
  [[case]]
  name = \"the front page is shared\"
  url = \"https://shop.example/\"
  cookies = [\"_ga=1\"]
  expect = { share = \"anonymous\", verdict = \"cacheable\" }

Nothing is sent: the app, the store and the listeners are not needed. The exit code is 1 if a case
failed, and 64 if the file or the configuration is wrong.";

const PRINT_EXAMPLES: &str = "\
Examples:
  anteroom config print --config proxy.toml
  anteroom config print --origin http://127.0.0.1:3000 > proxy.toml";

const SCHEMA_EXAMPLES: &str = "\
Examples:
  anteroom config schema > proxy.schema.json
      An editor that knows TOML schemas (taplo, Even Better TOML) reads the file when the first
      line of proxy.toml is: #:schema ./proxy.schema.json";

const ROWS_EXAMPLES: &str = "\
Examples:
  anteroom rows schedule inventory 7 8 9
      Rows 7, 8 and 9 of [[rows]] inventory are refreshed from now on
  anteroom rows schedule inventory 7 --every 30s --config /etc/anteroom/proxy.toml
  anteroom rows list --json
  anteroom rows stop inventory 7 --socket /var/lib/anteroom/admin.sock";

const PURGE_EXAMPLES: &str = "\
Examples:
  anteroom purge https://example.com/item/mug
      The page and all its variants become stale; the next request revalidates them
  anteroom purge --tag product-7 --tag product-8
      Pages with one of these tags from the app (Surrogate-Key, Cache-Tag, xkey, X-Cache-Tags)
  anteroom purge --prefix https://example.com/shop/ --hard
      Removes all pages below this URL; they are not served while the app fails, either
  anteroom purge --glob 'https://example.com/item/*/reviews'
      All pages below /item: more than the pattern matches, and never less
  anteroom purge --tag product-7 --prefix /shop/ --dry-run
      Purges nothing, and tells how many pages each of them would hit
  anteroom purge --all --json --config /etc/anteroom/proxy.toml

A path without a host stands for that path at every host. When the command returns, the purge is
in force in every proxy on the same store; it reports when a proxy has not confirmed it.";

const WARM_EXAMPLES: &str = "\
Examples:
  anteroom warm https://example.com/ https://example.com/item/mug
      Two pages, by the listeners of ./proxy.toml
  anteroom warm https://example.com/sitemap.xml --config /etc/anteroom/proxy.toml
      Each page of a sitemap, or of each sitemap in an index; .xml.gz as well
  anteroom warm ./sitemap.xml --to http://127.0.0.1:8080 --at-once 4
  anteroom warm https://example.com/ --header 'Accept-Language: de' --json

The proxy is requested without a cookie, as a stranger requests it, and stores a page only if its
rules allow it. URLs have the scheme and host that visitors use; a path alone stands for the first
of [origin] hosts that is no wildcard. Hosts that are not in [origin] hosts are refused; where any
host is served, a sitemap lists pages of its own host only.
The proxy has to send Cache-Status, which is its default. The exit code is 1 if a page failed.";

const FLEET_EXAMPLES: &str = "\
Examples:
  anteroom fleet
      Each proxy on the same store: id, machine, version, configuration, uptime, purges, clock
  anteroom fleet --json --config /etc/anteroom/proxy.toml

Each proxy writes itself into the store every 5 s. One that ends is gone at once, one that crashed
after a minute. Configurations are compared by hashes, without [[listen]], [admin], [log], threads,
the place of the store, files and secrets. The exit code is 1 if proxies differ in settings that must
be alike, or if a clock is over 30 s from the store's.";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  anteroom completions bash > /usr/share/bash-completion/completions/anteroom
  anteroom completions zsh > /usr/local/share/zsh/site-functions/_anteroom
  anteroom completions fish > ~/.config/fish/completions/anteroom.fish

The packages bring these files with them.";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  anteroom explain https://example.com/item/mug
      What a visitor without cookies would get, and why
  anteroom explain https://example.com/ --cookie consent=1 --cookie _ga=GA1.1.2
      Which cookie keeps the request from the cache, and what would help
  anteroom explain /item/mug --header 'Accept-Language: de' --json
  anteroom explain https://example.com/wp-admin/ --from 192.0.2.1
      Whether a client at this address is served
  anteroom explain http://example.com/cart --method POST --config /etc/anteroom/proxy.toml

The command only looks: nothing is sent to the app, no visit is recorded, and nothing in the cache
changes. Values of cookies are not shown, but other users of this machine can see the command line
while it runs. A path without a host stands for the first of [origin] hosts that is no wildcard.";

/// A caching reverse proxy for web apps with logins: it recognises visitors, and shows
/// none of them another one's page
#[derive(Parser, Debug)]
#[command(version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: PlanArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run the proxy (the default)
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Run a small demo shop with Anteroom in front of it
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Check the configuration and print all problems
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Check rules: what requests of a table would get
    #[command(after_help = TEST_EXAMPLES)]
    Test(TestArgs),
    /// Show the configuration
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Schedule, list and stop rows that the running proxy refreshes
    #[command(after_help = ROWS_EXAMPLES)]
    Rows {
        #[command(subcommand)]
        command: RowsCommand,
    },
    /// Make pages stale, or remove them, in every proxy on the same store
    #[command(after_help = PURGE_EXAMPLES)]
    Purge(PurgeArgs),
    /// In an emergency: forward requests to the app for a time, in every proxy on the store
    #[command(after_help = bypass::BYPASS_EXAMPLES)]
    Bypass(BypassArgs),
    /// Show what the cache would have done on routes in learn mode
    #[command(after_help = learn::LEARN_EXAMPLES)]
    Learn {
        #[command(subcommand)]
        command: LearnCommand,
    },
    /// Show what differed between stored pages and the app's own answers
    #[command(after_help = audit::AUDIT_EXAMPLES)]
    Audit(AuditArgs),
    /// Request pages as a stranger, so that the next visitor finds them in the cache
    #[command(after_help = WARM_EXAMPLES)]
    Warm(WarmArgs),
    /// Show what the cache would do with a request, step by step, and what would help
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// List, show or revoke sessions
    #[command(after_help = sessions::SESSIONS_EXAMPLES)]
    Sessions {
        #[command(subcommand)]
        command: SessionsCommand,
    },
    /// Export or delete the stored data of a user
    #[command(after_help = sessions::USER_EXAMPLES)]
    User {
        #[command(subcommand)]
        command: UserCommand,
    },
    /// Move, back up or restore what the store holds
    Store {
        #[command(subcommand)]
        command: StoreCommand,
    },
    /// List the certificates, or order others
    #[command(after_help = certificates::CERTIFICATES_EXAMPLES)]
    Certificates {
        #[command(subcommand)]
        command: CertificatesCommand,
    },
    /// List the proxies on the store, and what differs between them
    #[command(after_help = FLEET_EXAMPLES)]
    Fleet(OutputArgs),
    /// Show requests as they end, with their steps
    #[command(after_help = live::LOG_EXAMPLES)]
    Log(LogArgs),
    /// Show what happens now: rates, times and routes
    #[command(after_help = live::TOP_EXAMPLES)]
    Top(TopArgs),
    /// Replace the running process, or its version, without a lost connection
    #[command(after_help = upgrade::UPGRADE_EXAMPLES)]
    Upgrade(UpgradeArgs),
    /// Read the configuration again, and say what came of it
    #[command(after_help = live::RELOAD_EXAMPLES)]
    Reload(OutputArgs),
    /// Show whether the proxy serves, and what it works with
    #[command(after_help = live::STATUS_EXAMPLES)]
    Status(OutputArgs),
    /// Print the completions for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the man pages into a folder
    #[command(hide = true)]
    Man {
        /// The folder
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// The URL of the page
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// A cookie of the request (may be repeated)
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) cookie: Vec<SecretArg>,
    /// A header field of the request (may be repeated)
    #[arg(long, value_name = "'NAME: VALUE'", value_parser = field)]
    pub(crate) header: Vec<(String, SecretArg)>,
    /// The method
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    pub(crate) method: String,
    /// The client's address, for allow, deny and allow_from
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) from: Option<std::net::IpAddr>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) at: SocketArgs,
}

#[derive(Args, Debug)]
pub(crate) struct WarmArgs {
    /// URLs of pages; sitemaps, as URLs or files that end in .xml or .xml.gz
    #[arg(value_name = "URL|SITEMAP", required = true)]
    pub(crate) of: Vec<String>,
    /// Where the proxy is; without it, at the first listeners of the configuration
    #[arg(long, value_name = "URL")]
    pub(crate) to: Option<String>,
    /// How many pages are requested at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) at_once: u8,
    /// A header field of the requests, such as 'Accept-Language: de' (may be repeated)
    #[arg(long, value_name = "'NAME: VALUE'", value_parser = field)]
    pub(crate) header: Vec<(String, SecretArg)>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The configuration file; without it, ./proxy.toml is read if it is there
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// An argument that may be a secret.
#[derive(Clone)]
pub(crate) struct SecretArg(pub(crate) String);

impl From<String> for SecretArg {
    fn from(word: String) -> Self {
        Self(word)
    }
}

impl std::fmt::Debug for SecretArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretArg(…)")
    }
}

/// A header field, as `Name: value`.
fn field(text: &str) -> Result<(String, SecretArg), String> {
    let field = text.split_once(':').filter(|(name, _)| !name.is_empty());
    let (name, value) =
        field.ok_or_else(|| "expected a field such as 'Accept-Language: de'".to_owned())?;
    Ok((name.to_owned(), SecretArg(value.trim().to_owned())))
}

#[derive(Args, Debug)]
pub(crate) struct PurgeArgs {
    /// URLs of pages
    #[arg(value_name = "URL")]
    pub(crate) urls: Vec<String>,
    /// Pages with this tag (may be repeated)
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Vec<String>,
    /// This page and all pages below it (may be repeated)
    #[arg(long, value_name = "URL")]
    pub(crate) prefix: Vec<String>,
    /// Pages that match this URL with *: everything below the folder before the first * (may be repeated)
    #[arg(long, value_name = "URL")]
    pub(crate) glob: Vec<String>,
    /// All pages
    #[arg(long)]
    pub(crate) all: bool,
    /// Remove the pages instead of making them stale
    #[arg(long)]
    pub(crate) hard: bool,
    /// Purge nothing, and tell which pages in memory would be hit
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) at: SocketArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum RowsCommand {
    /// Start to refresh rows
    #[command(after_help = ROWS_EXAMPLES)]
    Schedule {
        #[command(flatten)]
        rows: RowArgs,
        /// The time between two refreshes, such as 5s or 1m; without it, as configured
        #[arg(long, value_name = "TIME", value_parser = every)]
        every: Option<Duration>,
        #[command(flatten)]
        at: SocketArgs,
    },
    /// List the scheduled rows
    #[command(after_help = ROWS_EXAMPLES)]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: SocketArgs,
    },
    /// Stop refreshing rows, and remove them
    #[command(after_help = ROWS_EXAMPLES)]
    Stop {
        #[command(flatten)]
        rows: RowArgs,
        #[command(flatten)]
        at: SocketArgs,
    },
}

#[derive(Args, Debug)]
pub(crate) struct RowArgs {
    /// The name of a [[rows]] section
    pub(crate) name: String,
    /// Ids of rows
    #[arg(required = true, value_name = "ROW")]
    pub(crate) rows: Vec<String>,
}

/// Where the running proxy is.
#[derive(Args, Debug)]
pub(crate) struct SocketArgs {
    /// The configuration file; without it, ./proxy.toml is read if it is there
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The admin socket of the running proxy, open to its own user and root; without it, the one of the
    /// file, else of ANTEROOM_SOCKET, else admin.sock in ./anteroom-data, /run/anteroom or
    /// /var/lib/anteroom
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    pub(crate) socket: Option<PathBuf>,
}

fn every(text: &str) -> Result<Duration, String> {
    let told = duration(text).filter(|every| (EVERY_MIN..=EVERY_MAX).contains(every));
    told.ok_or_else(|| "expected a duration such as 5s, 1m or 1h, from 100ms to 365d".to_owned())
}

#[derive(Subcommand, Debug)]
pub(crate) enum ConfigCommand {
    /// Print the effective configuration as TOML, without its secrets
    #[command(after_help = PRINT_EXAMPLES)]
    Print(PlanArgs),
    /// Print the JSON Schema of proxy.toml, for editors
    #[command(after_help = SCHEMA_EXAMPLES)]
    Schema,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PlanArgs {
    /// The configuration file; without it, ./proxy.toml is read if it is there
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Take over from the proxy that runs: at SOCKET, or at the admin socket of the configuration. Where
    /// none runs, this is a usual start
    #[arg(long, value_name = "SOCKET", require_equals = true)]
    pub(crate) take_over: Option<Option<PathBuf>>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct CheckArgs {
    /// Also try what the configuration names: origins, store, certificates, log, admin socket
    #[arg(long)]
    pub(crate) connect: bool,
    /// Print the results of --connect as JSON
    #[arg(long, requires = "connect")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
}

#[derive(Args, Debug)]
pub(crate) struct TestArgs {
    /// The file with the requests
    #[arg(value_name = "CASES")]
    pub(crate) cases: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
}

#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// The address of the shop; without it, 127.0.0.1:8080 or the next free port
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    /// The folder for sessions; without it, a folder in the system's temporary folder
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Learn what the cache would do, and forward everything
    #[arg(long)]
    pub(crate) learn: bool,
}
