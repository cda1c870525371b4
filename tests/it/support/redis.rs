//! A real `redis-server` of the test's own: free loopback port, temporary folder, gone on drop.
//!
//! What it holds survives [`RedisServer::kill`] and [`RedisServer::restart`] (it writes an
//! append-only file); [`RedisServer::restart_empty`] is the other case. Nothing here knows the proxy.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a server may take to come up before the test fails.
const START_PATIENCE: Duration = Duration::from_secs(15);

/// The Unix socket, in the server's folder.
const SOCKET: &str = "redis.sock";

/// A running (or paused, or killed) server.
#[derive(Debug)]
pub(crate) struct RedisServer {
    port: u16,
    folder: TempDir,
    child: Child,
}

impl RedisServer {
    /// Starts a server and returns when it answers.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            // Another test may take the port between our look and the server's bind: try again.
            let port = free_port();
            let mut child = spawn(port, &folder);
            if answers(port, &mut child, deadline) {
                return Self { port, folder, child };
            }
            assert!(Instant::now() < deadline, "redis-server did not come up");
        }
    }

    /// The address for `[store] url`.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The same by its Unix socket.
    pub(crate) fn unix_url(&self) -> String {
        format!("redis+unix:{}", self.folder.path().join(SOCKET).display())
    }

    /// A connection of the test's own, for raw commands.
    pub(crate) async fn connection(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(self.url()).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }

    /// Stops the process in its tracks (SIGSTOP): connections stay open, nothing is answered.
    pub(crate) fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets a paused process go on (SIGCONT).
    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    /// Kills the process (SIGKILL), paused or not.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Kills it if it still runs, and starts it on the same port with what it held.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            self.child = spawn(self.port, &self.folder);
            if answers(self.port, &mut self.child, deadline) {
                return;
            }
            assert!(Instant::now() < deadline, "redis-server did not come up again");
        }
    }

    /// Like [`Self::restart`], but everything it held is gone.
    pub(crate) fn restart_empty(&mut self) {
        self.kill();
        self.folder = tempfile::tempdir().unwrap();
        self.restart();
    }

    fn signal(&self, name: &str) {
        // The shell's builtin: no unsafe call of ours, and no package that may be missing.
        let line = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may be dead already; then there is nothing left to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

fn spawn(port: u16, folder: &TempDir) -> Child {
    Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir"])
        .arg(folder.path())
        .arg("--unixsocket")
        .arg(folder.path().join(SOCKET))
        .args(["--save", "", "--appendonly", "yes", "--appendfsync", "no"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is installed and in PATH")
}

/// Waits until this very child answers; false when it ended instead (the port was taken).
#[expect(clippy::disallowed_methods, reason = "the pause between two looks at the condition")]
fn answers(port: u16, child: &mut Child, deadline: Instant) -> bool {
    let ours = format!("process_id:{}\r\n", child.id());
    while Instant::now() < deadline {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        if process_line(port).is_some_and(|line| line == ours) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

/// The `process_id` line of the server that answers `INFO server` on the port and has loaded its data.
fn process_line(port: u16) -> Option<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let patience = Duration::from_secs(1);
    let mut stream = TcpStream::connect_timeout(&address, patience).ok()?;
    stream.set_read_timeout(Some(patience)).ok()?;
    stream.write_all(b"INFO server\r\nPING\r\nQUIT\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    if !answer.contains("+PONG") {
        return None;
    }
    answer.split_inclusive('\n').find(|line| line.starts_with("process_id:")).map(str::to_owned)
}
