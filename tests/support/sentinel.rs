//! A real primary with its replica, and three Sentinels that watch them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::free_port;
use super::redis::{RedisServer, program};

/// How long the Sentinels may take to know each other, or to fail over.
const PATIENCE: Duration = Duration::from_secs(60);
/// The name of the primary.
pub const NAME: &str = "mymaster";

/// The servers, the first primary before its replica, and the Sentinels.
#[derive(Debug)]
pub struct SentinelGroup {
    pub servers: [RedisServer; 2],
    sentinels: Vec<Sentinel>,
}

#[derive(Debug)]
struct Sentinel {
    port: u16,
    child: Child,
    _folder: TempDir,
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sentinel {
    fn start(primary: u16) -> Self {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let file = folder.path().join("sentinel.conf");
        let config = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {NAME} 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds {NAME} 1000\nsentinel failover-timeout {NAME} 3000\n",
            folder.path().display()
        );
        fs::write(&file, config).unwrap();
        let mut sentinel = Command::new(program());
        sentinel.arg(&file).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null());
        Self { port, child: sentinel.spawn().unwrap(), _folder: folder }
    }
}

impl Sentinel {
    /// What it answers to a line of words within a moment: it does not know QUIT, and closes no connection.
    fn say(&self, words: &str) -> String {
        let mut answer = Vec::new();
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            stream.write_all(format!("{words}\r\n").as_bytes()).unwrap();
            // It ends by the timeout.
            let _ = stream.read_to_end(&mut answer);
        }
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl SentinelGroup {
    /// Starts all, and returns when each Sentinel knows the replica and the other Sentinels.
    pub fn start() -> Self {
        let primary = RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]);
        let of = primary.port().to_string();
        let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &of]);
        let sentinels = (0..3).map(|_| Sentinel::start(primary.port())).collect();
        let watched = Self { servers: [primary, replica], sentinels };
        watched.until("the Sentinels know each other", |watched| {
            let knows = |sentinel: &Sentinel| {
                let said = sentinel.say(&format!("SENTINEL MASTER {NAME}"));
                let is = |field: &str, value: &str| {
                    let mut lines = said.lines().skip_while(|line| *line != field);
                    lines.nth(2).is_some_and(|found| found == value)
                };
                is("num-slaves", "1") && is("num-other-sentinels", "2")
            };
            let info = watched.servers[1].say("INFO replication");
            info.contains("master_link_status:up") && watched.sentinels.iter().all(knows)
        });
        watched
    }

    /// The address for `[store] url`.
    pub fn url(&self) -> String {
        self.url_of(NAME)
    }

    /// The address of a primary of another name.
    pub fn url_of(&self, name: &str) -> String {
        let sentinels: Vec<String> =
            self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        format!("redis+sentinel://{}/{name}", sentinels.join(","))
    }

    /// Makes the replica the primary, as an operator does.
    pub fn fail_over(&self) {
        let said = self.sentinels[0].say(&format!("SENTINEL FAILOVER {NAME}"));
        assert!(said.starts_with("+OK"), "{said:?}");
        self.until("the replica is the primary", |watched| {
            watched.servers[1].say("ROLE").contains("master")
        });
    }

    /// Waits until something is so.
    #[expect(clippy::disallowed_methods, reason = "the pause between two looks at the condition")]
    pub fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition(self) {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
