//! The limit of open files; each connection takes one.

use std::io;
use std::os::fd::AsFd as _;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files besides the connections of clients and to the origin: store, listeners, logs.
const BESIDE: u64 = 256;

/// Files that a client's connection may take: itself, one to the origin, and one for its HTTP/2 requests.
const FILES_EACH: u64 = 3;

/// Files that a process must be able to open beside those that it has, to serve anything at all.
const ROOM: usize = 64;

/// Fails unless some more files can be opened now. A process without them would accept no connection.
pub(super) fn have_room() -> io::Result<()> {
    let errors = io::stderr();
    let more = (0..ROOM).map(|_| errors.as_fd().try_clone_to_owned());
    more.collect::<io::Result<Vec<_>>>().map(drop)
}

/// How many connections so many open files suffice for.
fn connections_of(files: u64) -> u64 {
    (files.saturating_sub(BESIDE) / FILES_EACH).max(1)
}

/// Raises the limit as far as the system allows, and says so if it is below the need of `connections`: each
/// may have one to the origin, and as many again may serve HTTP/2 requests. Only a limit below the connections
/// themselves is a warning.
pub(super) fn allow(connections: usize) {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let allowed = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::debug!(%error, "the limit of open files cannot be raised");
            limit.current
        }
    };
    let needed = FILES_EACH * connections as u64 + BESIDE;
    let Some(allowed) = allowed.filter(|allowed| *allowed < needed) else { return };
    let text = format!(
        "{allowed} files may be open, and [limits] connections = {connections} may take up to {needed}; for all of \
         them, set LimitNOFILE={needed} in the service, run `ulimit -n {needed}`, or write connections = {}",
        connections_of(allowed)
    );
    if allowed < connections as u64 + BESIDE {
        tracing::warn!("{text}");
    } else {
        tracing::info!("{text}");
    }
}
