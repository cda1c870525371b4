//! Which server has which shard, where that may change: in a Redis Cluster, and behind Sentinel. One keeper for the
//! whole process asks the servers, in `cluster` and `sentinel`; the threads read the table. It knows no keys and no
//! calls.

pub(super) mod cluster;
pub(super) mod cluster_nodes;
pub(super) mod sentinel;
pub(super) mod slot;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::ConnectionAddr;
use tokio::sync::Notify;
use tokio::time::sleep;

/// The time between two questions while nothing is wrong.
const CALM: Duration = Duration::from_secs(5);
/// The least time between two questions.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a server has to answer a question.
const ANSWER: Duration = Duration::from_millis(500);

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ServerAddress {
    pub(super) host: String,
    pub(super) port: u16,
}

impl ServerAddress {
    pub(super) fn new(host: &str, port: u16) -> Self {
        Self { host: host.to_owned(), port }
    }

    /// Reads `host:port`. The host of a redirection may be missing: it is then the `asked` server's.
    pub(super) fn parse(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let host = if host.is_empty() || host == "?" { asked.host.as_str() } else { host };
        Some(Self::new(host, port.parse().ok().filter(|port| *port > 0)?))
    }

    /// This address in the form of another: with or without TLS.
    pub(super) fn like(&self, template: &ConnectionAddr) -> ConnectionAddr {
        match template {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host: self.host.clone(),
                port: self.port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(self.host.clone(), self.port),
        }
    }

    /// The server of a TCP address.
    pub(super) fn of(address: &ConnectionAddr) -> Option<Self> {
        match address {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(Self::new(host, *port))
            }
            _ => None,
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// A primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Primary {
    pub(super) address: ServerAddress,
    /// Whether it has a replica that is not known to have failed.
    pub(super) has_replicas: bool,
}

/// The primary of each shard, as it was last known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    /// Counts the tables of this process.
    pub(super) version: u64,
    pub(super) primaries: Vec<Primary>,
    /// The index of each shard's primary; `None` if no server has the slot.
    pub(super) of_shard: Vec<Option<usize>>,
}

impl Table {
    pub(super) fn primary_of(&self, shard: usize) -> Option<&Primary> {
        self.primaries.get((*self.of_shard.get(shard)?)?)
    }

    /// The shards that have another primary than before.
    fn moved_since(&self, before: &Self) -> Vec<usize> {
        let address = |table: &Self, shard| table.primary_of(shard).map(|it| it.address.clone());
        let shards = 0..self.of_shard.len();
        shards
            .filter(|shard| {
                let earlier = address(before, *shard);
                earlier.is_some() && earlier != address(self, *shard)
            })
            .collect()
    }
}

/// The table, and what makes the keeper ask.
#[derive(Debug, Default)]
pub(super) struct Topology {
    table: ArcSwap<Table>,
    /// Shards that have moved, until the keeper hears of them. Under its lock the table changes.
    moved: Mutex<BTreeSet<usize>>,
    wanted: Notify,
    changed: Notify,
}

impl Topology {
    pub(super) fn table(&self) -> arc_swap::Guard<Arc<Table>> {
        self.table.load()
    }

    /// Asks the servers soon: a call found something else than the table says.
    pub(super) fn refresh(&self) {
        self.wanted.notify_one();
    }

    /// A server said that this shard is elsewhere.
    pub(super) fn moved(&self, shard: usize, to: &ServerAddress) {
        self.change(|table| {
            let known = table.primaries.iter().position(|primary| primary.address == *to);
            let index = known.unwrap_or(table.primaries.len());
            if known.is_none() {
                let primary = Primary { address: to.clone(), has_replicas: false };
                table.primaries.push(primary);
            }
            if let Some(place) = table.of_shard.get_mut(shard) {
                *place = Some(index);
            }
        });
        self.refresh();
    }

    /// Puts a table in force if it says something else. Returns the shards that moved since the last call, also those
    /// that a redirection moved.
    fn install(&self, table: Table) -> Vec<usize> {
        self.change(|held| *held = table);
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *moved).into_iter().collect()
    }

    /// One change at a time, so that each table has a version of its own and none is lost.
    fn change(&self, change: impl FnOnce(&mut Table)) {
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.table.load_full();
        let mut table = Table::clone(&before);
        change(&mut table);
        table.version = before.version;
        if table == *before {
            return;
        }
        table.version += 1;
        moved.extend(table.moved_since(&before));
        self.table.store(Arc::new(table));
        drop(moved);
        self.changed.notify_waiters();
    }

    /// Returns once the table is another one than `version`.
    pub(super) async fn changed_since(&self, version: u64) {
        loop {
            let changed = self.changed.notified();
            if self.table().version != version {
                return;
            }
            changed.await;
        }
    }

    /// Returns when the keeper should ask again.
    async fn pause(&self) {
        sleep(PAUSE).await;
        tokio::select! {
            () = sleep(CALM) => {}
            () = self.wanted.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(addresses: &[u16], of_shard: &[Option<usize>]) -> Table {
        let primary =
            |port: &u16| Primary { address: ServerAddress::new("r", *port), has_replicas: true };
        let primaries = addresses.iter().map(primary).collect();
        Table { version: 0, primaries, of_shard: of_shard.to_vec() }
    }

    #[test]
    fn a_table_says_which_shards_moved() {
        let topology = Topology::default();
        assert_eq!(topology.install(table(&[1, 2], &[Some(0), Some(1), None])), [0; 0]);
        assert_eq!(topology.table().version, 1);
        assert_eq!(topology.install(table(&[1, 2], &[Some(0), Some(1), None])), [0; 0]);
        assert_eq!(topology.table().version, 1, "nothing changed");
        assert_eq!(topology.install(table(&[3, 2], &[Some(0), Some(1), Some(1)])), [0]);
        topology.moved(1, &ServerAddress::new("r", 9));
        assert_eq!(topology.table().primary_of(1).unwrap().address.port, 9);
        assert_eq!(topology.table().version, 3);
        assert_eq!(topology.install(table(&[3, 9], &[Some(0), Some(1), Some(1)])), [1, 2]);
    }

    #[test]
    fn an_address_without_a_host_is_the_asked_servers() {
        let asked = ServerAddress::new("10.0.0.1", 6379);
        let parse = |text| ServerAddress::parse(text, &asked).map(|it| it.to_string());
        assert_eq!(parse("10.0.0.2:7000").as_deref(), Some("10.0.0.2:7000"));
        assert_eq!(parse(":7000").as_deref(), Some("10.0.0.1:7000"));
        assert_eq!(parse("fe80::1:7000").as_deref(), Some("[fe80::1]:7000"));
        assert_eq!(parse("10.0.0.2:0"), None);
        assert_eq!(parse("x"), None);
    }
}
