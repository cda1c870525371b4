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
    /// Its file, or why that is not known.
    path: Result<PathBuf, String>,
    arguments: Vec<OsString>,
}

impl Program {
    /// That of this process, from the words of its command line. To be called at its start: later, the program may have
    /// been replaced, and its folder left.
    #[must_use]
    pub fn of_this_process(words: Vec<OsString>) -> Self {
        let mut arguments = words.into_iter();
        let called = PathBuf::from(arguments.next().unwrap_or_default());
        Self::called(&called, arguments.collect(), std::env::current_exe)
    }

    /// One that was called like this. `current` says which file the process runs: where `/proc` is not mounted, that is
    /// not known. A proxy starts all the same, because only a successor needs it.
    fn called(
        called: &Path,
        arguments: Vec<OsString>,
        current: impl FnOnce() -> io::Result<PathBuf>,
    ) -> Self {
        // A link stays one: it may lead to the next version when it is followed again.
        let path = match called.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => std::path::absolute(called),
            Some(_) | None => current(),
        };
        Self { path: path.map_err(|error| error.to_string()), arguments }
    }

    /// The command that starts a successor of the process behind `socket`, of the same program or of another; or why
    /// there is none.
    pub(super) fn successor(
        &self,
        program: Option<&Path>,
        socket: &Path,
    ) -> Result<Command, String> {
        let path = match (program, &self.path) {
            (Some(program), _) => program,
            (None, Ok(own)) => own.as_path(),
            (None, Err(why)) => {
                return Err(format!(
                    "this process does not know its own file ({why}): name one with --binary"
                ));
            }
        };
        let mut command = Command::new(path);
        command.args(successor_arguments(&self.arguments, socket));
        for variable in OWN_VARIABLES {
            command.env_remove(variable);
        }
        Ok(command)
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

    const SOCKET: &str = "/run/admin.sock";

    fn without_proc() -> io::Result<PathBuf> {
        Err(io::Error::new(io::ErrorKind::NotFound, "no /proc/self/exe"))
    }

    fn started(program: &Program, other: Option<&str>) -> Result<OsString, String> {
        let command = program.successor(other.map(Path::new), Path::new(SOCKET))?;
        Ok(command.get_program().to_owned())
    }

    #[test]
    fn a_program_that_was_called_by_its_path_needs_no_proc() {
        let program = Program::called(Path::new("/opt/anteroom"), Vec::new(), without_proc);
        assert_eq!(started(&program, None).unwrap(), "/opt/anteroom");
        assert_eq!(started(&program, Some("/opt/next")).unwrap(), "/opt/next");
    }

    #[test]
    fn one_that_does_not_know_its_file_has_the_successor_that_is_named() {
        for called in ["anteroom", ""] {
            let program = Program::called(Path::new(called), Vec::new(), without_proc);
            assert_eq!(started(&program, Some("/opt/next")).unwrap(), "/opt/next");
            let refused = started(&program, None).unwrap_err();
            assert!(refused.contains("/proc") && refused.contains("--binary"), "{refused}");
        }
        let current = || Ok(PathBuf::from("/usr/bin/anteroom"));
        let program = Program::called(Path::new("anteroom"), Vec::new(), current);
        assert_eq!(started(&program, None).unwrap(), "/usr/bin/anteroom");
    }

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
