//! A real `redis-server` of the test's own: free loopback port, temporary folder, gone on drop.
//!
//! What it holds survives [`RedisServer::kill`] and [`RedisServer::restart`] (it writes an
//! append-only file); [`RedisServer::restart_empty`] is the other case. Nothing here knows the proxy.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{DEADLINE, free_port};

/// How long a server may take to come up before the test fails.
const START_PATIENCE: Duration = Duration::from_secs(15);

/// The Unix socket, in the server's folder.
const SOCKET: &str = "redis.sock";

/// A running (or paused, or killed) server.
#[derive(Debug)]
pub struct RedisServer {
    port: u16,
    folder: TempDir,
    child: Child,
    arguments: Vec<String>,
}

impl RedisServer {
    /// Starts a server and returns when it answers.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one with more arguments.
    pub fn start_with(arguments: &[&str]) -> Self {
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        let folder = tempfile::tempdir().unwrap();
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            // Another test may take the port between our look and the server's bind: try again.
            let port = free_port();
            let mut child = spawn(port, &folder, &arguments);
            if answers(port, &mut child, deadline) {
                return Self { port, folder, child, arguments };
            }
            assert!(Instant::now() < deadline, "redis-server did not come up");
        }
    }

    /// A Cluster of one node, which has all slots: it refuses what a larger one would refuse.
    pub fn start_cluster() -> Self {
        let server = Self::start_with(&["--cluster-enabled", "yes"]);
        server.say("CLUSTER ADDSLOTSRANGE 0 16383");
        let deadline = Instant::now() + START_PATIENCE;
        while !server.say("CLUSTER INFO").contains("cluster_state:ok") {
            assert!(Instant::now() < deadline, "the Cluster did not come up");
            pause();
        }
        server
    }

    /// What the server answers to a line of words.
    pub fn say(&self, words: &str) -> String {
        say(self.port, words).expect("the server answers")
    }

    /// What it says of its Cluster, if it runs.
    pub fn try_info(&self) -> Option<String> {
        say(self.port, "CLUSTER INFO")
    }

    /// The address for `[store] url`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The same by its Unix socket.
    pub fn unix_url(&self) -> String {
        format!("redis+unix:{}", self.folder.path().join(SOCKET).display())
    }

    /// A connection of the test's own, for raw commands.
    pub async fn connection(&self) -> redis::aio::MultiplexedConnection {
        connect(&self.url()).await
    }

    /// Stops the process in its tracks (SIGSTOP): connections stay open, nothing is answered.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets a paused process go on (SIGCONT).
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Kills the process (SIGKILL), paused or not.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Kills it if it still runs, and starts it on the same port with what it held.
    pub fn restart(&mut self) {
        self.kill();
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            self.child = spawn(self.port, &self.folder, &self.arguments);
            if answers(self.port, &mut self.child, deadline) {
                return;
            }
            assert!(Instant::now() < deadline, "redis-server did not come up again");
        }
    }

    /// Like [`Self::restart`], but everything it held is gone.
    pub fn restart_empty(&mut self) {
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

/// The server to start: the one that `ANTEROOM_REDIS_SERVER` names, such as a valkey-server, or the installed one.
pub fn program() -> String {
    std::env::var("ANTEROOM_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

fn spawn(port: u16, folder: &TempDir, arguments: &[String]) -> Child {
    Command::new(program())
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir"])
        .arg(folder.path())
        .arg("--unixsocket")
        .arg(folder.path().join(SOCKET))
        .args(["--save", "", "--appendonly", "yes", "--appendfsync", "no"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is installed and in PATH")
}

/// The pause between two looks at a condition.
#[expect(clippy::disallowed_methods, reason = "the pause between two looks at the condition")]
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

/// A connection for raw commands. The library waits half a second for an answer unless it is told otherwise, which a
/// busy machine takes longer for.
pub async fn connect(url: &str) -> redis::aio::MultiplexedConnection {
    let patient = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(DEADLINE))
        .set_response_timeout(Some(DEADLINE));
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection_with_config(&patient).await.unwrap()
}

/// Waits until this very child answers; false when it ended instead (the port was taken).
fn answers(port: u16, child: &mut Child, deadline: Instant) -> bool {
    let ours = format!("process_id:{}\r\n", child.id());
    while Instant::now() < deadline {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        if process_line(port).is_some_and(|line| line == ours) {
            return true;
        }
        pause();
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

/// The `process_id` line of the server that answers `INFO server` on the port and has loaded its data.
fn process_line(port: u16) -> Option<String> {
    let answer = say(port, "INFO server\r\nPING")?;
    if !answer.contains("+PONG") {
        return None;
    }
    answer.split_inclusive('\n').find(|line| line.starts_with("process_id:")).map(str::to_owned)
}

/// The answer of the server on this port to a line of words.
fn say(port: u16, words: &str) -> Option<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let patience = Duration::from_secs(1);
    let mut stream = TcpStream::connect_timeout(&address, patience).ok()?;
    stream.set_read_timeout(Some(patience)).ok()?;
    stream.write_all(format!("{words}\r\nQUIT\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}
