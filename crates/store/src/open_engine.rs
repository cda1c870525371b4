//! The store of one engine, opened once for all threads.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::embedded::{EmbeddedStore, StoreMemory};
use super::engine::Engine;
use super::redis::{RedisAddress, RedisStore};
use super::sharded::ShardedStore;
use super::{Layout, OpenError, StoreCounters, StoreError, StoreLimits, StorePart, SuccessorUse};

/// What the store needs from `[store]`.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// Which store.
    pub url: Url,
    /// The prefix of every key in Redis, so that sites can share one. The embedded store belongs to
    /// one proxy and needs none.
    pub prefix: String,
    /// How the keys in Redis are laid out.
    pub layout: Layout,
    /// The bounds to keep.
    pub limits: StoreLimits,
}

/// Where the store is.
#[derive(Clone, PartialEq, Eq)]
pub enum Url {
    /// In a local folder.
    Embedded(PathBuf),
    /// `redis://`, `rediss://`, `redis+unix:`, `redis+cluster://`, `redis+sentinel://`; it may hold a password.
    Redis(String),
}

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Embedded(folder) => f.debug_tuple("Embedded").field(folder).finish(),
            // SECURITY: the address may hold a password.
            Self::Redis(_) => f.write_str("Redis(…)"),
        }
    }
}

/// An open store, before any move. Clones are the same store.
#[derive(Clone, Debug)]
pub struct OpenEngine {
    kind: Kind,
    layout: Layout,
    /// Where pages are, if in another Redis.
    pages: Option<Arc<RedisAddress>>,
    counters: Arc<StoreCounters>,
}

#[derive(Clone, Debug)]
enum Kind {
    Embedded(EmbeddedStore),
    Redis(Arc<RedisAddress>),
}

impl OpenEngine {
    /// As [`super::OpenStore::open`].
    pub(super) async fn open(settings: &StoreSettings) -> Result<Self, OpenError> {
        let counters = Arc::new(StoreCounters::default());
        let kind = match &settings.url {
            Url::Embedded(folder) => {
                let store =
                    EmbeddedStore::open(folder, settings.limits, Arc::clone(&counters)).await?;
                Kind::Embedded(store)
            }
            Url::Redis(url) => Kind::Redis(open_redis(url, settings, &counters)?),
        };
        Ok(Self { kind, layout: settings.layout, pages: None, counters })
    }

    /// As [`super::OpenStore::open_handed`].
    pub(super) async fn open_handed(
        settings: &StoreSettings,
        memory: StoreMemory,
    ) -> Result<Self, OpenError> {
        let Url::Embedded(folder) = &settings.url else { return Self::open(settings).await };
        let counters = Arc::new(StoreCounters::default());
        let (limits, counted) = (settings.limits, Arc::clone(&counters));
        let store = EmbeddedStore::open_handed(folder, limits, counted, memory).await?;
        Ok(Self { kind: Kind::Embedded(store), layout: settings.layout, pages: None, counters })
    }

    /// As [`super::OpenStore::with_pages_in`].
    pub(super) fn with_pages_in(
        self,
        url: &str,
        settings: &StoreSettings,
    ) -> Result<Self, OpenError> {
        let address = open_redis(url, settings, &self.counters)?;
        Ok(Self { pages: Some(address), ..self })
    }

    /// The store for the calling thread, in its runtime.
    pub(super) fn engine(&self) -> Engine {
        match &self.kind {
            Kind::Embedded(store) => Engine::Embedded(store.clone()),
            Kind::Redis(address) => {
                let store = RedisStore::start(address);
                let store = match &self.pages {
                    Some(pages) => store.with_pages_in(RedisStore::start(pages)),
                    None => store,
                };
                match self.layout {
                    Layout::Single => Engine::Redis(store),
                    Layout::Sharded => Engine::Sharded(ShardedStore::new(store)),
                }
            }
        }
    }

    pub(super) fn counters(&self) -> Arc<StoreCounters> {
        Arc::clone(&self.counters)
    }

    /// As [`super::OpenStore::drops_sessions`].
    pub(super) async fn drops_sessions(&self) -> Result<Option<String>, StoreError> {
        match &self.kind {
            Kind::Embedded(_) => Ok(None),
            Kind::Redis(address) => {
                let store = RedisStore::start(address);
                store.connected().await;
                let policy = store.eviction_policy().await?;
                Ok(policy.filter(|policy| may_drop_sessions(policy)))
            }
        }
    }

    /// As [`super::OpenStore::suspend`].
    pub(super) async fn suspend(&self) -> Result<(), StoreError> {
        match &self.kind {
            Kind::Embedded(store) => store.suspend().await,
            Kind::Redis(_) => Ok(()),
        }
    }

    /// As [`super::OpenStore::resume`].
    pub(super) async fn resume(&self, used: SuccessorUse) -> Result<(), StoreError> {
        match &self.kind {
            Kind::Embedded(store) => store.resume(used).await,
            Kind::Redis(_) => Ok(()),
        }
    }

    /// As [`super::OpenStore::parts`].
    pub(super) fn parts(
        &self,
        hot_pages: Option<Bytes>,
    ) -> impl Iterator<Item = StorePart> + use<> {
        let parts = match &self.kind {
            Kind::Embedded(store) => Some(store.parts(hot_pages)),
            Kind::Redis(_) => None,
        };
        parts.into_iter().flatten()
    }

    /// As [`super::OpenStore::close`].
    pub(super) async fn close(&self) {
        if let Kind::Embedded(store) = &self.kind {
            store.close().await;
        }
    }
}

fn open_redis(
    url: &str,
    settings: &StoreSettings,
    counters: &Arc<StoreCounters>,
) -> Result<Arc<RedisAddress>, OpenError> {
    let StoreSettings { prefix, layout, limits, .. } = settings;
    RedisAddress::parse(url, prefix, *layout, *limits, counters)
}

/// Whether a Redis with this `maxmemory-policy` may evict sessions.
#[must_use]
pub fn may_drop_sessions(policy: &str) -> bool {
    policy.starts_with("allkeys-")
}
