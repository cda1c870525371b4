//! How this process was started, so that it can start its successor.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The command that serves.
const RUN: &str = "run";
/// The option that makes a process a successor.
const TAKE_OVER: &str = "--take-over";
/// Variables by which a service manager speaks to this very process.
const OWN_VARIABLES: [&str; 4] = ["LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID", "WATCHDOG_PID"];

/// The command line of a proxy.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// That of this process. To be called at its start: later, the program may have been replaced, and its folder left.
    ///
    /// # Errors
    /// If the path of the program is not known.
    pub fn of_this_process() -> io::Result<Self> {
        let mut arguments = std::env::args_os();
        let called = PathBuf::from(arguments.next().unwrap_or_default());
        // A link stays one: it may lead to the next version when it is followed again.
        let path = match called.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => std::path::absolute(called)?,
            Some(_) | None => std::env::current_exe()?,
        };
        Ok(Self { path, arguments: arguments.collect() })
    }

    /// The command that starts a successor of the process behind `socket`, of the same program or of another.
    pub(super) fn successor(&self, program: Option<&Path>, socket: &Path) -> Command {
        let mut command = Command::new(program.unwrap_or(&self.path));
        command.args(successor_arguments(&self.arguments, socket));
        for variable in OWN_VARIABLES {
            command.env_remove(variable);
        }
        command
    }
}

/// The arguments of a successor of a process with these.
fn successor_arguments(own: &[OsString], socket: &Path) -> Vec<OsString> {
    let rest = match own {
        [first, rest @ ..] if first == RUN => rest,
        all => all,
    };
    let is_of_take_over = |one: &OsStr| one.as_encoded_bytes().starts_with(TAKE_OVER.as_bytes());
    let rest = rest.iter().filter(|one| !is_of_take_over(one)).cloned();
    let mut option = OsString::from(TAKE_OVER);
    option.push("=");
    option.push(socket);
    [RUN.into(), option].into_iter().chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_has_the_arguments_of_its_predecessor() {
        for own in [
            &["run", "--config", "/etc/proxy.toml"][..],
            &["--config", "/etc/proxy.toml"],
            &["run", "--take-over", "--config", "/etc/proxy.toml"],
            &["run", "--config", "/etc/proxy.toml", "--take-over=/old.sock"],
        ] {
            let own: Vec<OsString> = own.iter().map(OsString::from).collect();
            assert_eq!(
                successor_arguments(&own, Path::new("/run/admin.sock")),
                ["run", "--take-over=/run/admin.sock", "--config", "/etc/proxy.toml"]
            );
        }
        let only = successor_arguments(&[], Path::new("/run/admin.sock"));
        assert_eq!(only, ["run", "--take-over=/run/admin.sock"]);
    }
}
