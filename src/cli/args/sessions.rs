//! The commands about sessions and their users.

use clap::{Args, Subcommand};

use super::SocketArgs;

pub(super) const SESSIONS_EXAMPLES: &str = "\
Examples:
  anteroom sessions list
      The sessions that were seen last
  anteroom sessions list --user alice --json
  anteroom sessions show 0b14d501a594442a
      All that is held of this session: its cart and what it viewed
  anteroom sessions revoke 0b14d501a594442a
  anteroom sessions revoke --user alice
      Alice is logged out everywhere
  anteroom sessions revoke --all --config /etc/anteroom/proxy.toml

A session goes by its id, the first 16 hex digits of its token's SHA-256; no token is ever shown. To
revoke is to log out: cart and views go with it. It holds at once here, and within a second in every proxy
on the same store; a WebSocket or an answer that is open already is not cut. All sessions are looked
through to find one by its id where tokens are stored plain, and for --user and --all: some seconds for
millions of them. Only list --user asks the index alone, which does not know what an app has written into
Redis itself. They speak to the running proxy, over the socket of [admin] socket.";

pub(super) const USER_EXAMPLES: &str = "\
Examples:
  anteroom user export alice > alice.json
      Her sessions, with their carts and what was viewed in them
  anteroom user delete alice
      Removes it, counts what that was, and looks again
  anteroom user delete alice --json --config /etc/anteroom/proxy.toml

All sessions are looked through: some seconds for millions of them. Carts that were handed on to the
stream expired:, or wait for the webhook, are removed, too. A file of [session] on_expire, what the webhook
was told, the access log, and what the app holds are yours, and are left. Pages that were kept for her, and
what the app said of her cookies ([session.verify]), are shown to nobody any more and expire by themselves.
An export has no carts that were handed on: read those where they went.
They speak to the running proxy, over the socket of [admin] socket.";

#[derive(Subcommand, Debug)]
pub(crate) enum SessionsCommand {
    /// List sessions, those that were seen last in front
    #[command(after_help = SESSIONS_EXAMPLES)]
    List {
        /// Only this user's, the oldest log-in in front
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// How many
        #[arg(long, short, value_name = "N", default_value_t = 100)]
        limit: u64,
        #[command(flatten)]
        shown: Shown,
    },
    /// Show all that is held of a session
    #[command(after_help = SESSIONS_EXAMPLES)]
    Show {
        /// Its id
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        shown: Shown,
    },
    /// End sessions, in every proxy on the store
    #[command(after_help = SESSIONS_EXAMPLES)]
    Revoke {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        shown: Shown,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum UserCommand {
    /// Print all that is held of a user, as JSON
    #[command(after_help = USER_EXAMPLES)]
    Export {
        /// The user's name
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        at: SocketArgs,
    },
    /// Remove all that is held of a user
    #[command(after_help = USER_EXAMPLES)]
    Delete {
        /// The user's name
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        shown: Shown,
    },
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// The session with this id
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// All sessions of this user
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// All sessions
    #[arg(long)]
    pub(crate) all: bool,
}

/// How the answer is shown, and who gives it.
#[derive(Args, Debug)]
pub(crate) struct Shown {
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) at: SocketArgs,
}
