//! The arguments of the commands about ordered certificates.

use clap::Subcommand;

use super::OutputArgs;

pub(crate) const CERTIFICATES_EXAMPLES: &str = "\
Examples:
  anteroom certificates list
      Each name with its certificate: until when, when it is renewed, and why an order failed
  anteroom certificates renew shop.example.com
      Orders another certificate now, such as after a key was stolen
  anteroom certificates renew --all --config /etc/anteroom/proxy.toml

They are for listeners with tls = \"auto\". Certificates are renewed by themselves, and an
authority limits how many are ordered in a week. The exit code of list is 1 if an order has failed
since the last certificate.";

#[derive(Subcommand, Debug)]
pub(crate) enum CertificatesCommand {
    /// List the names that certificates are ordered for, and the certificates in files
    #[command(after_help = CERTIFICATES_EXAMPLES)]
    List {
        #[command(flatten)]
        shown: OutputArgs,
    },
    /// Order other certificates now
    #[command(after_help = CERTIFICATES_EXAMPLES)]
    Renew {
        /// The names
        #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
        names: Vec<String>,
        /// All names
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        shown: OutputArgs,
    },
}
