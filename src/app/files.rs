//! How many files the process may open: a connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What is open beside clients' connections and those to the origin: the store, listeners, logs.
const BESIDE: u64 = 256;

/// Raises the limit as far as the system lets us, and says where it is lower than `connections` need:
/// each may have one to the origin beside it, and as many again may be for requests of HTTP/2.
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
    let needed = 3 * connections as u64 + BESIDE;
    if let Some(allowed) = allowed.filter(|allowed| *allowed < needed) {
        tracing::warn!(
            allowed,
            needed,
            "fewer files may be open than [limits] connections needs: raise LimitNOFILE or ulimit -n"
        );
    }
}
