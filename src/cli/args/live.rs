//! The commands about what happens now.

use anteroom::admin::{RequestFilter, TOP_MAX};
use clap::{Args, Subcommand};

use super::SocketArgs;

pub(super) const LOG_EXAMPLES: &str = "\
Examples:
  anteroom log
      Each request as it ends, and when it came to which step
  anteroom log --short --where 'reason = unknown-cookie and ms > 200'
  anteroom log --where 'result != hit and path ~ /shop/' --count 10
  anteroom log --where 'not (status < 500 or aborted)' --json

Fields of a filter: reason, result, status, method, host, path, route, visitor, ms, origin_ms,
bytes, aborted. Operators: = != < <= > >= and ~ (contains); and, or, not and parentheses.
`result = hit` is each result that is a hit. A value with spaces or signs stands in quotes. A
field that a request does not have is unequal to each value.

Shown are requests that begin after the command. Tokens, cookies, query values and users are not
shown. The filter is applied in the proxy. At most 4 commands watch at once; one that is too
slow is told how many requests it has missed. Ctrl-C ends the command with exit code 0, the end
of the proxy with 1.";

pub(super) const TOP_EXAMPLES: &str = "\
Examples:
  anteroom top
      Requests, hits, times and routes, once a second. Keys: q ends, s sorts, r turns the order
      round, p pauses, m shows the most missed URLs instead of routes, ? helps
  anteroom top --once
      One reading of a second, as text
  anteroom top --once --json --socket /var/lib/anteroom/admin.sock
  anteroom top items --number 100
      The most viewed items
  anteroom top crowd
      What takes the app's time: networks, user agents, paths, classes
  anteroom top cookies
      Cookies: why pages are not served from the cache

Figures are those of the second between two readings. Where standard output is no terminal,
--once is the default.";

pub(super) const RELOAD_EXAMPLES: &str = "\
Examples:
  anteroom reload --config /etc/anteroom/proxy.toml
      Puts the changes of the file into force; open requests go on
  anteroom reload --socket /run/anteroom/admin.sock --json

The running proxy reads the file again that it was started with, as after the signal HUP, and
reopens its log files. A configuration with a problem changes nothing.

Exit codes: 0 the new configuration is in force, 1 the old one";

pub(super) const STATUS_EXAMPLES: &str = "\
Examples:
  anteroom status
      Since when the proxy runs, its hits, the servers of the app, the store, memory
  anteroom status --json --config /etc/anteroom/proxy.toml

Figures count from the start of the process; `anteroom top` shows those of a second.

Exit codes: 0 all is well, 1 no proxy answers, or the store is away, or an app has no server that
is up";

const ITEMS_EXAMPLES: &str = "\
Examples:
  anteroom top items
  anteroom top items --number 100 --config /etc/anteroom/proxy.toml
  anteroom top items --json --socket /var/lib/anteroom/admin.sock

Views by all visitors are counted. [views] rescale_every and rescale_percent say how old views
lose weight.";

const CROWD_EXAMPLES: &str = "\
Examples:
  anteroom top crowd
      What takes the app's time, once a second, with the lines of proxy.toml that would stop it.
      q ends
  anteroom top crowd --once
      One reading, as text
  anteroom top crowd --json --socket /var/lib/anteroom/admin.sock

Figures are of the last minutes: after each minute, half of them is left. `s/s` is how many
seconds of the app are taken in a second. A path is endless if nearly all requests for it are
for URLs that the app was not asked for before. Addresses are shown as networks, and queries by
the names of their parameters. Where standard output is no terminal, --once is the default.";

const COOKIES_EXAMPLES: &str = "\
Examples:
  anteroom top cookies
  anteroom top cookies --json --config /etc/anteroom/proxy.toml

Only names are shown, never values, and only those seen by this proxy since its start. 64 names
are counted one by one, all others together.";

#[derive(Args, Debug)]
pub(crate) struct LogArgs {
    /// Only requests that match the filter, such as 'reason = miss and ms > 200'
    #[arg(long = "where", value_name = "FILTER", value_parser = filter)]
    pub(crate) filter: Option<String>,
    /// One line a request, without its steps
    #[arg(long, conflicts_with = "json")]
    pub(crate) short: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// End after this many requests
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) at: SocketArgs,
}

/// A filter that the proxy will understand.
fn filter(text: &str) -> Result<String, String> {
    RequestFilter::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct TopArgs {
    #[command(subcommand)]
    pub(crate) of: Option<TopCommand>,
    /// Print one reading of a second, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Before `top items` was a command of its own, this was its option.
    #[arg(long, short, hide = true, conflicts_with = "once", value_parser = number())]
    pub(crate) number: Option<u32>,
    #[command(flatten)]
    pub(crate) at: SocketArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum TopCommand {
    /// Show the most viewed items
    #[command(after_help = ITEMS_EXAMPLES)]
    Items {
        /// The number of items
        #[arg(long, short, value_name = "N", default_value_t = 25, value_parser = number())]
        number: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: SocketArgs,
    },
    /// Show what takes the app's time, and what would stop it
    #[command(after_help = CROWD_EXAMPLES)]
    Crowd {
        /// Print one reading, and end
        #[arg(long)]
        once: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: SocketArgs,
    },
    /// Show the cookies of visitors and pages, and what helps where they prevent caching
    #[command(after_help = COOKIES_EXAMPLES)]
    Cookies {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: SocketArgs,
    },
}

/// How many items there may be in a list.
fn number() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(TOP_MAX))
}
