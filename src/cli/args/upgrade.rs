//! The arguments of the upgrade command.

use std::path::PathBuf;

use clap::Args;

use super::SocketArgs;

pub(super) const UPGRADE_EXAMPLES: &str = "\
Examples:
  anteroom upgrade --config /etc/anteroom/proxy.toml
      After the program, or proxy.toml, has been replaced
  anteroom upgrade --binary /opt/anteroom-0.2.0/anteroom

The running proxy starts the new program with its own arguments, and hands its listening sockets to
it. When the new process accepts connections, the old one answers what it has, and ends. No
connection is refused or lost, and systemd follows. When anything fails, the old process serves on,
and the command says why. An embedded store changes hands, too.

Exit codes: 0 a new process serves, 1 the old one serves on";

#[derive(Args, Debug)]
pub(crate) struct UpgradeArgs {
    /// The program to start, instead of the file that the running proxy was started from
    #[arg(long, value_name = "PATH")]
    pub(crate) binary: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) at: SocketArgs,
}
