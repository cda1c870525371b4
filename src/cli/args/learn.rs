//! The arguments of the commands about learn mode.

use std::path::PathBuf;

use clap::Subcommand;

use super::OutputArgs;

pub(crate) const LEARN_EXAMPLES: &str = "\
Examples:
  anteroom learn report
      What the cache would have done: hits by route, pages that differ between visitors, cookies
  anteroom learn report --write learned.toml
      The same, and the configuration with what was learned; the file in force stays as it is
  anteroom learn report --json
  anteroom learn restart
      Forgets what was learned

Routes learn with [cache] mode = \"learn\", or mode = \"learn\" in a [[route]]: every request is
forwarded, and nothing is served from the cache. What was learned is in the memory of the running
proxy, and gone when it stops.";

#[derive(Subcommand, Debug)]
pub(crate) enum LearnCommand {
    /// Show what was learned
    #[command(after_help = LEARN_EXAMPLES)]
    Report {
        /// Write the configuration with what was learned into this file, which must not be there
        #[arg(long, value_name = "FILE")]
        write: Option<PathBuf>,
        #[command(flatten)]
        shown: OutputArgs,
    },
    /// Forget what was learned
    #[command(after_help = LEARN_EXAMPLES)]
    Restart {
        #[command(flatten)]
        shown: OutputArgs,
    },
}
