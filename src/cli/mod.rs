//! The command line: arguments, the commands that ask a running proxy, and what is printed.

pub(crate) mod args;
pub(crate) mod commands;
pub(crate) mod output;
pub(crate) mod socket;
