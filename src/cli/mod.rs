//! The command line: arguments, the commands that ask a running proxy, what is printed, and the manual.

pub(crate) mod args;
pub(crate) mod commands;
pub(crate) mod manual;
pub(crate) mod output;
mod progress;
pub(crate) mod socket;
mod terminal;
