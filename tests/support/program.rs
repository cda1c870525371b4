//! A server program that others wrote, as it is installed, with a folder of its own.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::wait_until;

/// A running program; it is ended on Drop.
pub struct Program {
    child: Child,
    folder: TempDir,
}

impl Program {
    /// Starts one that listens at this address. `folder` holds its files.
    pub fn start(folder: TempDir, command: &mut Command, address: SocketAddr) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        Self::start_until(folder, command, &format!("{name} listens"), || {
            TcpStream::connect(address).is_ok()
        })
    }

    /// The same, with another sign of its being ready.
    pub fn start_until(
        folder: TempDir,
        command: &mut Command,
        what: &str,
        mut is_ready: impl FnMut() -> bool,
    ) -> Self {
        let said = folder.path().join("said");
        let output = fs::File::create(&said).unwrap();
        let command = command.stdin(Stdio::null());
        let command = command.stdout(output.try_clone().unwrap()).stderr(output);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut program = Self { child, folder };
        wait_until(what, || {
            let ended = program.child.try_wait().unwrap();
            assert!(ended.is_none(), "{}", fs::read_to_string(&said).unwrap());
            is_ready()
        });
        program
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Told to end, it ends the processes that it has begun.
        let told = Command::new("kill").arg(self.child.id().to_string()).status();
        drop((told, self.child.wait()));
    }
}

/// Writes a file of this name and text, in which `{folder}` stands for the folder; its path.
pub fn write(folder: &TempDir, name: &str, text: &str) -> std::path::PathBuf {
    let path = folder.path().join(name);
    let text = text.replace("{folder}", folder.path().to_str().unwrap());
    fs::write(&path, text).unwrap();
    path
}
