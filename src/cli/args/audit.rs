//! The arguments of the audit command.

use clap::{Args, Subcommand};

use super::OutputArgs;

pub(crate) const AUDIT_EXAMPLES: &str = "\
Examples:
  anteroom audit
      Pages that are not shared any more, and where they differ from what the app gives a visitor
  anteroom audit --json
  anteroom audit resume /price --host shop.example
      The pages are shared again, by every proxy on the store; without a pattern, all are

[cache] audit, or audit in a [[route]], says how many hits go to the app to be compared with the
stored page. Where visitors of two networks see something else, and neither time nor chance explains
it, no proxy on the store shares the page any more, nor its kind if several of it differ, until this
command says so or the rules of the route change. What was found is in the memory of the running
proxy; what was stopped is in the store.";

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    pub(crate) command: Option<AuditCommand>,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum AuditCommand {
    /// Share pages again that the audit has stopped
    #[command(after_help = AUDIT_EXAMPLES)]
    Resume {
        /// The path or pattern, as `anteroom audit` shows it, such as /item/*; without it, any
        pattern: Option<String>,
        /// Only pages of this site
        #[arg(long, value_name = "HOST")]
        host: Option<String>,
        /// Only pages of the route of this name
        #[arg(long, value_name = "NAME")]
        route: Option<String>,
        #[command(flatten)]
        shown: OutputArgs,
    },
}
