//! The store of one engine and one layout, as one thread uses it.

use anteroom_http::ident::StoredToken;

use super::embedded::EmbeddedStore;
use super::redis::RedisStore;
use super::remote::RemoteStore;
use super::sharded::ShardedStore;
use super::{CounterReading, StoreState};

/// A store, as one thread uses it. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Engine {
    /// In a local folder.
    Embedded(EmbeddedStore),
    /// In Redis, in the chapter's layout.
    Redis(RedisStore),
    /// In Redis, in 64 shards.
    Sharded(ShardedStore),
    /// That of the process which has taken over from this one.
    Remote(RemoteStore),
}

impl Engine {
    /// The same store for tasks and administration, see [`super::AnyStore::background`].
    pub(super) fn background(&self) -> Self {
        match self {
            Self::Embedded(_) | Self::Remote(_) => self.clone(),
            Self::Redis(store) => Self::Redis(store.background()),
            Self::Sharded(store) => Self::Sharded(store.background()),
        }
    }

    /// The same store by connections of its own, without those to a Redis of pages.
    pub(super) fn separate(&self) -> Self {
        match self {
            Self::Embedded(_) | Self::Remote(_) => self.clone(),
            Self::Redis(store) => Self::Redis(store.separate()),
            Self::Sharded(store) => Self::Sharded(store.separate()),
        }
    }

    pub(super) fn state(&self) -> StoreState {
        match self {
            Self::Embedded(store) => store.state(),
            Self::Redis(store) => store.state(),
            Self::Sharded(store) => store.state(),
            Self::Remote(store) => store.state(),
        }
    }

    pub(super) fn counted(&self) -> CounterReading {
        match self {
            Self::Embedded(store) => store.counted(),
            Self::Redis(store) => store.counted(),
            Self::Sharded(store) => store.counted(),
            Self::Remote(_) => CounterReading::default(),
        }
    }

    pub(super) async fn purge_announced(&self) {
        match self {
            Self::Embedded(_) | Self::Remote(_) => std::future::pending().await,
            Self::Redis(store) => store.purge_announced().await,
            Self::Sharded(store) => store.purge_announced().await,
        }
    }

    pub(super) async fn ended_sessions(&self) -> Vec<StoredToken> {
        match self {
            Self::Embedded(_) | Self::Remote(_) => std::future::pending().await,
            Self::Redis(store) => store.ended_sessions().await,
            Self::Sharded(store) => store.ended_sessions().await,
        }
    }

    pub(super) async fn connected(&self) {
        match self {
            Self::Embedded(_) | Self::Remote(_) => {}
            Self::Redis(store) => store.connected().await,
            Self::Sharded(store) => store.connected().await,
        }
    }
}
