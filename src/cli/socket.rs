//! Where the commands find the running proxy.

use std::path::PathBuf;

use anteroom_config::AdminSocket;

use crate::cli::args::SocketArgs;
use crate::cli::output;

/// The variable that names the socket.
const VARIABLE: &str = "ANTEROOM_SOCKET";

/// Where a socket may be that no setting names: of a proxy that runs in this folder, or as a service.
const PLACES: [&str; 3] =
    ["./anteroom-data/admin.sock", "/run/anteroom/admin.sock", "/var/lib/anteroom/admin.sock"];

/// The socket of the running proxy: `--socket`, or that of `--config` or `./proxy.toml`; without a file, that
/// of the environment, or the first of [`PLACES`] that is there.
///
/// # Errors
/// The exit code, when there is none, or the file has problems.
pub(crate) fn find(at: SocketArgs) -> Result<PathBuf, u8> {
    if let Some(path) = at.socket {
        return Ok(path);
    }
    let file = output::file_or_usual(at.config);
    let variable = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    if let (None, Some(path)) = (&file, variable) {
        return Ok(path.into());
    }
    match output::socket(file.as_deref())? {
        AdminSocket::At(path) => Ok(path),
        AdminSocket::Default(path) if file.is_some() => Ok(path),
        AdminSocket::Default(_) => search(),
        AdminSocket::Off => {
            Err(output::failed("[admin] socket is \"off\": the running proxy accepts no commands"))
        }
    }
}

fn search() -> Result<PathBuf, u8> {
    // A folder that may not be searched may have the socket; connecting to it tells why it fails.
    let found =
        PLACES.map(PathBuf::from).into_iter().find(|path| path.try_exists().unwrap_or(true));
    found.ok_or_else(|| {
        let [own, run, state] = PLACES;
        output::failed(format!(
            "found no socket of a running proxy at {own}, {run} or {state}; give --config FILE, the \
             configuration of the running proxy, or its socket as --socket PATH or in {VARIABLE}"
        ))
    })
}
