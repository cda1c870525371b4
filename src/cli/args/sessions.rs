//! The commands about sessions and their users.

use clap::{Args, Subcommand};

use super::SocketArgs;

pub(super) const SESSIONS_EXAMPLES: &str = "\
Examples:
  anteroom sessions list
      The most recently seen sessions
  anteroom sessions list --user alice --json
  anteroom sessions show 0b14d501a594442a
      The stored data of this session: its cart and its views
  anteroom sessions revoke 0b14d501a594442a
  anteroom sessions revoke --user alice
      Logs alice out everywhere
  anteroom sessions revoke --all --config /etc/anteroom/proxy.toml

The id of a session is the first 16 hex digits of the SHA-256 of its token; a token is never
shown. Revoking a session logs it out and removes its views and its cart (see [session]
on_expire), at once in this proxy, and within a second in every proxy on the same store. A
WebSocket or an answer that is already open is not interrupted. Commands with --user or --all, and
with an id when tokens are stored plain, read all sessions: some seconds for millions of them.
list --user reads only the index, which lacks sessions that an app wrote into Redis itself.";

pub(super) const USER_EXAMPLES: &str = "\
Examples:
  anteroom user export alice > alice.json
      The user's sessions, with their carts and views
  anteroom user delete alice
      Removes the same data, prints counts, and checks that nothing is left
  anteroom user delete alice --json --config /etc/anteroom/proxy.toml

Both commands read all sessions: some seconds for millions of them. delete also removes the user's
carts from the stream expired: and from the queue of the webhook. It does not touch a file of
[session] on_expire, events that the webhook has received, the access log, or the data of the app.
Pages that were stored for the user, and answers of [session.verify], are no longer used and
expire by themselves. export has no carts that were sent on: read them at their destination.";

#[derive(Subcommand, Debug)]
pub(crate) enum SessionsCommand {
    /// List sessions, the most recently seen first
    #[command(after_help = SESSIONS_EXAMPLES)]
    List {
        /// Only sessions of this user, the oldest login first
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// The most sessions to list
        #[arg(long, short, value_name = "N", default_value_t = 100)]
        limit: u64,
        #[command(flatten)]
        shown: OutputArgs,
    },
    /// Show the stored data of a session
    #[command(after_help = SESSIONS_EXAMPLES)]
    Show {
        /// The id of the session
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        shown: OutputArgs,
    },
    /// End sessions, in every proxy on the same store
    #[command(after_help = SESSIONS_EXAMPLES)]
    Revoke {
        #[command(flatten)]
        which: SessionSelectorArgs,
        #[command(flatten)]
        shown: OutputArgs,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum UserCommand {
    /// Print the stored data of a user as JSON
    #[command(after_help = USER_EXAMPLES)]
    Export {
        /// The user's name
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        at: SocketArgs,
    },
    /// Remove the stored data of a user
    #[command(after_help = USER_EXAMPLES)]
    Delete {
        /// The user's name
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        shown: OutputArgs,
    },
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct SessionSelectorArgs {
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

/// The form of the output, and the proxy that is asked.
#[derive(Args, Debug)]
pub(crate) struct OutputArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) at: SocketArgs,
}
