//! A real Redis Cluster of the test's own: three primaries, each with a replica, on free loopback ports.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::redis::RedisServer;

/// How long the Cluster may take to come up, or to come up again.
const PATIENCE: Duration = Duration::from_secs(60);
/// A node that is silent for so long has failed.
const NODE_TIMEOUT: &str = "1000";

/// The nodes.
#[derive(Debug)]
pub struct RedisCluster {
    pub nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts six nodes and returns when all slots are served, and every primary has its replica.
    pub fn start() -> Self {
        let arguments = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            NODE_TIMEOUT,
            "--repl-diskless-sync-delay",
            "0",
        ];
        let full = ["--cluster-require-full-coverage", "no"];
        let arguments = [&arguments[..], &full[..]].concat();
        let nodes: Vec<RedisServer> = (0..6).map(|_| RedisServer::start_with(&arguments)).collect();
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]);
        create.args(nodes.iter().map(address));
        create.args(["--cluster-replicas", "1", "--cluster-yes"]);
        let done = create.stdin(Stdio::null()).output().expect("redis-cli is installed");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        let cluster = Self { nodes };
        cluster.until("every replica follows, and all nodes know so", |cluster| {
            let up = |node: &&RedisServer| {
                node.say("INFO replication").contains("master_link_status:up")
            };
            let knows =
                |node: &RedisServer| node.say("CLUSTER NODES").matches("slave ").count() == 3;
            cluster.nodes.iter().filter(up).count() == 3
                && cluster.nodes.iter().all(knows)
                && cluster.is_whole()
        });
        cluster
    }

    /// The address for `[store] url`.
    pub fn url(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(address).collect();
        format!("redis+cluster://{}", nodes.join(","))
    }

    /// Whether every node that runs says that all slots are served.
    pub fn is_whole(&self) -> bool {
        self.nodes.iter().filter_map(RedisServer::try_info).all(|info| {
            info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
        })
    }

    /// The place of the primary that has this key's slot.
    pub fn primary_of(&self, key: &str) -> usize {
        let is_primary = |node: &RedisServer| {
            let is_running = node.try_info().is_some();
            is_running && !node.say(&format!("EXISTS {key}")).contains("MOVED")
        };
        self.nodes.iter().position(is_primary).expect("a node has the slot")
    }

    /// Kills the replicas of a primary, and returns when it knows of none.
    pub fn kill_replica_of(&mut self, primary: usize) {
        let follows = format!("master_port:{}\r", self.nodes[primary].port());
        for node in &mut self.nodes {
            if node.say("INFO replication").contains(&follows) {
                node.kill();
            }
        }
        self.until("the primary is alone", |cluster| {
            cluster.nodes[primary].say("INFO replication").contains("connected_slaves:0")
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

fn address(node: &RedisServer) -> String {
    format!("127.0.0.1:{}", node.port())
}
