//! The commands about the store.

use std::path::PathBuf;

use anteroom_config::{StoreLayout, StoreUrl, read_store_url};
use clap::{Args, Subcommand, ValueEnum};

use super::SocketArgs;

pub(super) const MIGRATE_EXAMPLES: &str = "\
Examples:
  anteroom store migrate --config /etc/anteroom/proxy.toml
      The running proxies go to the store in [store.next], and no visitor is logged out
  anteroom store migrate --from embedded:/var/lib/anteroom/data --to redis://127.0.0.1/0
      From the embedded store to Redis; the proxy is stopped
  anteroom store migrate --from redis://127.0.0.1/0 --to redis+cluster://10.0.0.1,10.0.0.2
      From the chapter's layout to the 64 shards of a Cluster
  anteroom store migrate --from redis://127.0.0.1/0 --to redis://127.0.0.1/0 --to-layout sharded

Sessions, carts, views, popularity, rows, revoked tokens and carts that wait are copied; pages are
fetched again. A target that holds something is refused without --replace.

Without --from and --to, the proxies on the store go over together, while they serve; changes wait
for a part of a second. The move goes on in the proxy when this command is stopped. Afterwards, make
[store.next] the [store] of each proxy.

With --from and --to, no proxy may use either store, and nothing changes at the source. Other users
of this machine can see a password on the command line while it runs. Then write the new [store]
url, and start the proxy.

Exit codes: 0 moved, 1 not moved";

pub(super) const BACKUP_EXAMPLES: &str = "\
Examples:
  anteroom store backup /var/backups/anteroom.backup --config /etc/anteroom/proxy.toml
      The running proxy writes the file: its user needs the right to write there
  anteroom store backup site.backup --from embedded:/var/lib/anteroom/data
      The proxy is stopped

Sessions, carts, views, popularity, rows, revoked tokens and carts that wait are in the file; pages
are not. If tokens are stored plain, a reader of the file can act as any visitor: only its owner may
read it. The file is written under another name, and renamed when it is whole. A visit during the
backup is in it or not.";

pub(super) const RESTORE_EXAMPLES: &str = "\
Examples:
  anteroom store restore site.backup --to embedded:/var/lib/anteroom/data
  anteroom store restore site.backup --to redis://127.0.0.1/0 --replace

The whole file is read and checked before anything changes. No proxy may use the store. A store that
holds something is refused without --replace, which removes that first. Sessions that have ended
since the backup are there again.";

pub(super) const VERIFY_EXAMPLES: &str = "\
Examples:
  anteroom store verify site.backup
  anteroom store verify /var/lib/anteroom/data

The exit code is 1 if something is damaged, or a proxy uses the folder.";

#[derive(Subcommand, Debug)]
pub(crate) enum StoreCommand {
    /// Move what the store holds to another store, so that no visitor is logged out
    #[command(after_help = MIGRATE_EXAMPLES)]
    Migrate(MigrateArgs),
    /// Write a backup of the store into a file
    #[command(after_help = BACKUP_EXAMPLES)]
    Backup(BackupArgs),
    /// Restore a backup into a store that no proxy uses
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(RestoreArgs),
    /// Read a backup, or the folder of an embedded store, to its end, and find damage
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify {
        /// The file of a backup, or the folder of an embedded store that no proxy uses
        #[arg(value_name = "FILE|DIR")]
        path: PathBuf,
    },
}

#[derive(Args, Debug)]
pub(crate) struct BackupArgs {
    /// The file to write; one that is there is replaced when the backup is whole
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The store, as in [store] url, if no proxy uses it; without it the running proxy writes the file
    #[arg(long, value_name = "URL", value_parser = store_url, conflicts_with_all = ["config", "socket"])]
    pub(crate) from: Option<Place>,
    /// The layout of keys; without it single, or sharded in a Cluster
    #[arg(long, value_name = "LAYOUT", requires = "from")]
    pub(crate) layout: Option<LayoutWord>,
    /// The prefix of keys, as in [store] prefix
    #[arg(long, value_name = "PREFIX", requires = "from", default_value = "")]
    pub(crate) prefix: String,
    #[command(flatten)]
    pub(crate) at: SocketArgs,
}

#[derive(Args, Debug)]
pub(crate) struct RestoreArgs {
    /// The backup
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The store, as in [store] url; a folder that is missing is made
    #[arg(long, value_name = "URL", value_parser = store_url)]
    pub(crate) to: Place,
    /// The layout of keys; without it single, or sharded in a Cluster
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) layout: Option<LayoutWord>,
    /// The prefix of keys, as in [store] prefix
    #[arg(long, value_name = "PREFIX", default_value = "")]
    pub(crate) prefix: String,
    /// Remove first what the store holds
    #[arg(long)]
    pub(crate) replace: bool,
}

#[derive(Args, Debug)]
pub(crate) struct MigrateArgs {
    /// The store to copy from, as in [store] url
    #[arg(long, value_name = "URL", requires = "to", value_parser = store_url, conflicts_with_all = ["config", "socket"])]
    pub(crate) from: Option<Place>,
    /// The store to copy to
    #[arg(long, value_name = "URL", requires = "from", value_parser = store_url)]
    pub(crate) to: Option<Place>,
    /// The layout of keys at the source; without it single, or sharded in a Cluster
    #[arg(long, value_name = "LAYOUT", requires = "from")]
    pub(crate) from_layout: Option<LayoutWord>,
    /// The layout of keys at the target; without it single, or sharded in a Cluster
    #[arg(long, value_name = "LAYOUT", requires = "to")]
    pub(crate) to_layout: Option<LayoutWord>,
    /// The prefix of keys at the source, as in [store] prefix
    #[arg(long, value_name = "PREFIX", requires = "from", default_value = "")]
    pub(crate) from_prefix: String,
    /// The prefix of keys at the target
    #[arg(long, value_name = "PREFIX", requires = "to", default_value = "")]
    pub(crate) to_prefix: String,
    /// Replace what the target holds; also to go on after a copy that broke off
    #[arg(long)]
    pub(crate) replace: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) at: SocketArgs,
}

/// A store on the command line. It may hold a password, so it is not printed.
#[derive(Clone)]
pub(crate) struct Place(pub(crate) StoreUrl);

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Place(…)")
    }
}

fn store_url(text: &str) -> Result<Place, String> {
    read_store_url(text).map(Place)
}

/// A layout of keys.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LayoutWord {
    /// The keys of Redis in Action, chapter 2
    Single,
    /// 64 shards
    Sharded,
}

impl From<LayoutWord> for StoreLayout {
    fn from(word: LayoutWord) -> Self {
        match word {
            LayoutWord::Single => Self::Single,
            LayoutWord::Sharded => Self::Sharded,
        }
    }
}
