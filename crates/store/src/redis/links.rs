//! One thread's way to the servers: to the one that there is, or to the primary of a shard, which may move.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::RedisResult;
use tokio::time::{Instant, sleep, timeout};

use super::address::{RedisAddress, Route};
use super::connection::Connection;
use super::fault::{CallError, Redirection, RedisCall};
use super::server::{Carriage, Path, ServerLinks};
use super::topology::{ServerAddress, Table, Topology};
use crate::{StoreError, StoreState};

/// How often a call follows the servers' word.
const HOPS_MAX: usize = 8;
/// The pause before keys are asked for again that are on their way.
const SPLIT_PAUSE: Duration = Duration::from_millis(3);

/// The way to the servers.
#[derive(Debug)]
pub(super) enum Links {
    /// There is one server.
    One(ServerLinks),
    /// The table names the server.
    Many(ManyLinks),
}

impl Links {
    pub(super) fn start(address: &Arc<RedisAddress>) -> Self {
        match address.route() {
            Route::One(server) => Self::One(ServerLinks::start(server)),
            Route::Many(topology) => {
                let held = Mutex::default();
                Self::Many(ManyLinks {
                    topology: Arc::clone(topology),
                    address: Arc::clone(address),
                    held,
                })
            }
        }
    }

    /// Whether any server answers.
    pub(super) fn state(&self) -> StoreState {
        match self {
            Self::One(links) => links.state(),
            Self::Many(many) => many.state(),
        }
    }

    /// Returns once every server is connected.
    pub(super) async fn connected(&self) {
        match self {
            Self::One(links) => links.connected().await,
            Self::Many(many) => many.connected().await,
        }
    }

    /// Of the shards of each server the first, and those whose server is not known.
    pub(super) fn first_of_servers(&self, shards: usize) -> Vec<usize> {
        match self {
            Self::One(_) => vec![0],
            Self::Many(many) => {
                let mut met = HashSet::new();
                let is_first = |shard: &usize| {
                    many.links_of(*shard).is_none_or(|(_, address)| met.insert(address))
                };
                (0..shards).filter(is_first).collect()
            }
        }
    }

    /// Connects for large values of a shard: a call over it fails until it is connected.
    pub(super) fn begin_large(&self, shard: usize) {
        match self {
            Self::One(links) => {
                links.begin_large();
            }
            Self::Many(many) => {
                if let Some((links, _)) = many.links_of(shard) {
                    links.begin_large();
                }
            }
        }
    }
}

/// Connections to the servers of a table.
#[derive(Debug)]
pub(super) struct ManyLinks {
    topology: Arc<Topology>,
    address: Arc<RedisAddress>,
    held: Mutex<HeldLinks>,
}

/// The connections, as of a table.
#[derive(Debug, Default)]
struct HeldLinks {
    version: u64,
    by_address: HashMap<ServerAddress, Arc<ServerLinks>>,
    of_shard: Vec<Option<(Arc<ServerLinks>, ServerAddress)>>,
}

/// Where the next attempt of a call goes.
enum Target {
    /// To the server that the table names.
    Table,
    /// To this one, which has the keys from now on.
    Moved(ServerAddress),
    /// To this one, which is taking the keys over.
    Asks(ServerAddress),
}

impl ManyLinks {
    fn held(&self) -> MutexGuard<'_, HeldLinks> {
        // Under this lock connections are only begun.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let table = self.topology.table();
        if held.version != table.version {
            self.follow(&mut held, &table);
        }
        held
    }

    /// Begins connections to new servers, and drops those to servers that have no shard.
    fn follow(&self, held: &mut HeldLinks, table: &Table) {
        let mut by_address = HashMap::new();
        for primary in &table.primaries {
            let earlier = held.by_address.remove(&primary.address);
            let Some(links) = earlier.or_else(|| self.begin(&primary.address)) else { continue };
            links.server.set_replicas(primary.has_replicas);
            by_address.insert(primary.address.clone(), links);
        }
        let link_of = |index: &Option<usize>| {
            let address = &table.primaries.get((*index)?)?.address;
            Some((Arc::clone(by_address.get(address)?), address.clone()))
        };
        held.of_shard = table.of_shard.iter().map(link_of).collect();
        held.by_address = by_address;
        held.version = table.version;
    }

    fn begin(&self, address: &ServerAddress) -> Option<Arc<ServerLinks>> {
        Some(Arc::new(ServerLinks::start(&self.address.server(address)?)))
    }

    fn links_of(&self, shard: usize) -> Option<(Arc<ServerLinks>, ServerAddress)> {
        self.held().of_shard.get(shard)?.clone()
    }

    /// Connections to a server that another one named; it may be new.
    fn links_to(&self, address: &ServerAddress) -> Option<Arc<ServerLinks>> {
        let mut held = self.held();
        if let Some(links) = held.by_address.get(address) {
            return Some(Arc::clone(links));
        }
        let links = self.begin(address)?;
        // It stays until the table changes next.
        held.by_address.insert(address.clone(), Arc::clone(&links));
        Some(links)
    }

    fn state(&self) -> StoreState {
        let held = self.held();
        let is_up = held.by_address.values().any(|links| links.state() == StoreState::Connected);
        if is_up { StoreState::Connected } else { StoreState::Away }
    }

    async fn connected(&self) {
        loop {
            let version = self.topology.table().version;
            let links: Vec<_> = self.held().of_shard.iter().flatten().cloned().collect();
            let all = async {
                for (links, _) in &links {
                    links.connected().await;
                }
            };
            tokio::select! {
                () = all, if !links.is_empty() => return,
                // A server that is gone for good is in no later table.
                () = self.topology.changed_since(version) => {}
            }
        }
    }

    /// One step at the server that has the shard, within the budget. It is repeated where a server says that it has
    /// done nothing, because another one has the keys or they are on their way.
    pub(super) async fn call<T, F>(
        &self,
        shard: usize,
        path: Path,
        carriage: Carriage,
        call: RedisCall,
        budget: Duration,
        step: impl Fn(Connection) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let deadline = Instant::now() + budget;
        let mut target = Target::Table;
        let mut hops = 0;
        while hops < HOPS_MAX {
            let left = deadline.saturating_duration_since(Instant::now());
            let asks = matches!(target, Target::Asks(_));
            let at = match &target {
                Target::Table => self.links_of(shard),
                Target::Moved(address) | Target::Asks(address) => {
                    self.links_to(address).map(|links| (links, address.clone()))
                }
            };
            let Some((links, address)) = at else { break };
            if !matches!(target, Target::Table) && timeout(left, links.connected()).await.is_err() {
                break;
            }
            let asking = |on: Connection| step(Connection { asks, ..on });
            match links.call(path, carriage, call, left, asking).await {
                Ok(value) => return Ok(value),
                Err(CallError::Store(error)) => {
                    if !error.is_refusal() {
                        self.topology.refresh();
                    }
                    return Err(error);
                }
                Err(CallError::Split) => {
                    target = Target::Table;
                    sleep(SPLIT_PAUSE.min(left)).await;
                }
                Err(CallError::Redirected(redirection)) => {
                    hops += 1;
                    target = self.redirected(shard, redirection, &address);
                }
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        self.topology.refresh();
        Err(StoreError::Away)
    }

    fn redirected(&self, shard: usize, to: Redirection, asked: &ServerAddress) -> Target {
        match to {
            Redirection::Moved(to) => match ServerAddress::parse(&to, asked) {
                Some(to) => {
                    self.topology.moved(shard, &to);
                    Target::Moved(to)
                }
                None => Target::Table,
            },
            Redirection::Ask(to) => {
                ServerAddress::parse(&to, asked).map_or(Target::Table, Target::Asks)
            }
        }
    }
}
