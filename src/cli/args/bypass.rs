//! The arguments of the bypass command.

use std::time::Duration;

use anteroom::admin::{BYPASS_LASTS_MAX, BYPASS_LASTS_MIN};
use anteroom_config::duration;
use clap::{Args, Subcommand};

use super::OutputArgs;

pub(crate) const BYPASS_EXAMPLES: &str = "\
Examples:
  anteroom bypass on --for 1h
      In an emergency: every proxy on the store forwards every request to the app, within a second
  anteroom bypass on --for 15m --route shop
      Only requests on this route
  anteroom bypass
      Which switches are on, until when, and by which user's order
  anteroom bypass off
      Pages are served from the cache again

While a switch is on, nothing is served from the cache, and nothing is stored. Sessions, carts,
limits and purges go on, and what is changed meanwhile is purged. A switch ends by itself, at the
latest after 7 days. The exit code is 1 if the store does not take the command, which is then in
force in this proxy alone.";

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BypassArgs {
    #[command(subcommand)]
    pub(crate) command: Option<BypassCommand>,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum BypassCommand {
    /// Forward requests to the app, and use no cache
    #[command(after_help = BYPASS_EXAMPLES)]
    On {
        /// For how long, such as 15m or 1h; from 1s to 7d
        #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = lasts)]
        lasts: Duration,
        /// Only requests on the route of this name
        #[arg(long, value_name = "NAME")]
        route: Option<String>,
        #[command(flatten)]
        shown: OutputArgs,
    },
    /// Use the cache again
    #[command(after_help = BYPASS_EXAMPLES)]
    Off {
        /// Only the switch of the route of this name; without it, every switch
        #[arg(long, value_name = "NAME")]
        route: Option<String>,
        #[command(flatten)]
        shown: OutputArgs,
    },
}

fn lasts(text: &str) -> Result<Duration, String> {
    let bounds = BYPASS_LASTS_MIN..=BYPASS_LASTS_MAX;
    let told = duration(text).filter(|lasts| bounds.contains(lasts));
    told.ok_or_else(|| "expected a duration such as 15m or 1h, from 1s to 7d".to_owned())
}
