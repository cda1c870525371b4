//! The address of a Redis, of a Cluster or of Sentinels, and what all handles to it share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use redis::ConnectionInfo;
use tokio::task::AbortHandle;

use super::RedisStore;
use super::ended::EndedTokens;
use super::keys::{Keys, SHARDS};
use super::pages::PageRefused;
use super::server::Server;
use super::topology::cluster::ClusterKeeper;
use super::topology::sentinel::SentinelKeeper;
use super::topology::slot::slot_of;
use super::topology::{ServerAddress, Topology};
use super::url::{RedisUrl, Servers};
use crate::{Layout, OpenError, StoreCounters, StoreLimits};

/// The address, and what all handles to it share.
#[derive(Debug)]
pub(crate) struct RedisAddress {
    route: Route,
    is_cluster: bool,
    login: ConnectionInfo,
    /// The servers that have been used, until no handle has connections to them.
    servers: Mutex<HashMap<ServerAddress, Arc<Server>>>,
    /// The key names of each shard; one of them in the chapter's layout.
    shards: Box<[Keys]>,
    pub(super) limits: StoreLimits,
    pub(super) counters: Arc<StoreCounters>,
    pub(super) full: PageRefused,
    pub(super) ended: EndedTokens,
    /// Keeps the table; ends with the address.
    keeper: Option<AbortHandle>,
}

impl Drop for RedisAddress {
    fn drop(&mut self) {
        if let Some(keeper) = &self.keeper {
            keeper.abort();
        }
    }
}

/// How the server of a shard is found.
#[derive(Debug)]
pub(super) enum Route {
    /// There is one.
    One(Arc<Server>),
    /// The table names it.
    Many(Arc<Topology>),
}

impl RedisAddress {
    /// Reads the address; begins to ask which server has which shard, if that may change. In a tokio runtime only.
    pub(crate) fn parse(
        url: &str,
        prefix: &str,
        layout: Layout,
        limits: StoreLimits,
        counters: &Arc<StoreCounters>,
    ) -> Result<Arc<Self>, OpenError> {
        let RedisUrl { servers, login } = RedisUrl::parse(url)?;
        let shards: Box<[Keys]> = match layout {
            Layout::Single => Box::new([Keys::new(prefix)]),
            Layout::Sharded => (0..SHARDS).map(|shard| Keys::of_shard(prefix, shard)).collect(),
        };
        let is_cluster = matches!(servers, Servers::Cluster(_));
        let topology = Arc::<Topology>::default();
        let route = match &servers {
            Servers::One => Route::One(Arc::new(Server::new(&login, limits, counters)?)),
            Servers::Cluster(_) | Servers::Sentinel { .. } => Route::Many(Arc::clone(&topology)),
        };
        Ok(Arc::new_cyclic(|this| {
            let keeper = spawn_keeper(servers, &login, &shards, topology, this.clone());
            let counters = Arc::clone(counters);
            let (full, ended) = (PageRefused::default(), EndedTokens::default());
            let servers = Mutex::default();
            Self {
                route,
                is_cluster,
                login,
                servers,
                shards,
                limits,
                counters,
                full,
                ended,
                keeper,
            }
        }))
    }

    pub(super) fn route(&self) -> &Route {
        &self.route
    }

    /// Whether the keys of one command must be in one slot.
    pub(super) fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    pub(super) fn shards(&self) -> &[Keys] {
        &self.shards
    }

    fn servers(&self) -> MutexGuard<'_, HashMap<ServerAddress, Arc<Server>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A server of the Cluster. `None` if its address cannot be used.
    pub(super) fn server(&self, address: &ServerAddress) -> Option<Arc<Server>> {
        let mut servers = self.servers();
        if let Some(server) = servers.get(address) {
            return Some(Arc::clone(server));
        }
        let login = self.login.clone().set_addr(address.like(self.login.addr()));
        let server = Arc::new(Server::new(&login, self.limits, &self.counters).ok()?);
        servers.retain(|_, server| Arc::strong_count(server) > 1);
        servers.insert(address.clone(), Arc::clone(&server));
        Some(server)
    }

    /// A client of any server that can be listened to: each time another one, if there are several.
    pub(super) fn client_to_listen(&self) -> Option<redis::Client> {
        match &self.route {
            Route::One(server) => Some(server.client.clone()),
            Route::Many(topology) => {
                let table = topology.table();
                let primary = fastrand::choice(&table.primaries)?;
                Some(self.server(&primary.address)?.client.clone())
            }
        }
    }
}

/// Starts the task that keeps the table, if there is one to keep.
fn spawn_keeper(
    servers: Servers,
    login: &ConnectionInfo,
    shards: &[Keys],
    topology: Arc<Topology>,
    address: Weak<RedisAddress>,
) -> Option<AbortHandle> {
    #[allow(
        clippy::disallowed_methods,
        reason = "it ends by itself within a time limit, has no code that panics, and holds up no keeper"
    )]
    let on_moved = move |moved: Vec<usize>| {
        if let Some(address) = address.upgrade() {
            tokio::spawn(async move { RedisStore::start(&address).end_again(&moved).await });
        }
    };
    #[allow(
        clippy::disallowed_methods,
        reason = "the address owns its keeper and ends it on drop; it has no code that panics"
    )]
    let keeper = match servers {
        Servers::One => return None,
        Servers::Cluster(seeds) => {
            let slots = shards.iter().map(|keys| slot_of(keys.login.as_bytes())).collect();
            let keeper = ClusterKeeper { seeds, login: login.clone(), slots };
            tokio::spawn(keeper.keep(topology, on_moved))
        }
        Servers::Sentinel { sentinels, master, login: at_sentinels } => {
            let keeper = SentinelKeeper::new(sentinels, master, login, at_sentinels, shards.len());
            tokio::spawn(keeper.keep(topology, on_moved))
        }
    };
    Some(keeper.abort_handle())
}
