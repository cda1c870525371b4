//! Opening a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::embedded::EmbeddedStore;
use super::redis::{RedisAddress, RedisStore};
use super::{AnyStore, Counters, Limits, StoreError};

/// What `[store]` says, as far as the store needs it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which store.
    pub url: Url,
    /// Goes before every key in Redis, so that sites can share one. The embedded store belongs
    /// to one proxy and needs none.
    pub prefix: String,
    /// The bounds to keep.
    pub limits: Limits,
}

/// Where the store is.
#[derive(Clone)]
pub enum Url {
    /// A folder of our own.
    Embedded(PathBuf),
    /// `redis://`, `rediss://` or `redis+unix:`; it may hold a password.
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

/// Why a store cannot be opened: for the operator, with what mends it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address of the Redis server cannot be used.
    #[error(
        "the store's address cannot be used; write redis://host:port, rediss://host:port or redis+unix:/path"
    )]
    BadUrl(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Another process has the folder.
    #[error("the store's folder {} is in use by another process: stop that one, or give this one a folder of its own with [store] url", .0.display())]
    InUse(PathBuf),
    /// The folder cannot be made or written.
    #[error("the store's folder {} cannot be written: create it for this user, or name another with [store] url", .folder.display())]
    NotWritable {
        /// Which folder.
        folder: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// What is in the folder is not a store of ours, or is damaged.
    #[error("the store in {} cannot be read: move the folder away, or name another with [store] url", .folder.display())]
    Unreadable {
        /// Which folder.
        folder: PathBuf,
        /// What was wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Its data was written by another version of this program.
    #[error("the store in {} has format {found}, this program reads format {known}: use the version that wrote it, or another folder", .folder.display())]
    Format {
        /// Which folder.
        folder: PathBuf,
        /// The format found there.
        found: u64,
        /// The format that we read and write.
        known: u64,
    },
}

impl OpenError {
    pub(super) fn io(folder: &Path, source: std::io::Error) -> Self {
        Self::NotWritable { folder: folder.to_owned(), source }
    }
}

/// An open store. Clones are the same store.
#[derive(Clone, Debug)]
pub struct OpenStore {
    kind: Kind,
    /// Where pages are, if that is another Redis.
    pages: Option<Arc<RedisAddress>>,
    counters: Arc<Counters>,
}

#[derive(Clone, Debug)]
enum Kind {
    Embedded(EmbeddedStore),
    Redis(Arc<RedisAddress>),
}

impl OpenStore {
    /// Opens the store. Does not wait for Redis, nor fail because it is down: each lane keeps
    /// trying to reach it.
    ///
    /// # Errors
    /// An address that cannot be used; a folder that cannot be written, is in use by another
    /// process, or holds something else.
    pub async fn open(settings: &Settings) -> Result<Self, OpenError> {
        let counters = Arc::new(Counters::default());
        let kind = match &settings.url {
            Url::Embedded(folder) => {
                let store =
                    EmbeddedStore::open(folder, settings.limits, Arc::clone(&counters)).await?;
                Kind::Embedded(store)
            }
            Url::Redis(url) => {
                let Settings { prefix, limits, .. } = settings;
                Kind::Redis(Arc::new(RedisAddress::parse(url, prefix, *limits, &counters)?))
            }
        };
        Ok(Self { kind, pages: None, counters })
    }

    /// Keeps the pages of a store in Redis in another one. In a runtime only.
    ///
    /// # Errors
    /// An address that cannot be used.
    pub fn with_pages_in(self, url: &str, settings: &Settings) -> Result<Self, OpenError> {
        let Settings { prefix, limits, .. } = settings;
        let address = RedisAddress::parse(url, prefix, *limits, &self.counters)?;
        Ok(Self { pages: Some(Arc::new(address)), ..self })
    }

    /// The store for the calling thread: call it once on each runtime thread, in the runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime, for a Redis lane keeps its connection with a task.
    #[must_use]
    pub fn lane(&self) -> AnyStore {
        match &self.kind {
            Kind::Embedded(store) => AnyStore::Embedded(store.clone()),
            Kind::Redis(address) => {
                let store = RedisStore::start(address);
                AnyStore::Redis(match &self.pages {
                    Some(pages) => store.with_pages_in(RedisStore::start(pages)),
                    None => store,
                })
            }
        }
    }

    /// What went wrong so far, over all lanes.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// What the store does with sessions when its memory is full: the name of a policy that drops
    /// any key it likes; `None` where sessions are safe, or where it does not tell.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn drops_sessions(&self) -> Result<Option<String>, StoreError> {
        match &self.kind {
            Kind::Embedded(_) => Ok(None),
            Kind::Redis(address) => {
                let policy = address.eviction_policy().await?;
                Ok(policy.filter(|policy| policy.starts_with("allkeys-")))
            }
        }
    }

    /// Makes everything durable and lets the folder go. Calls that come later find it away.
    pub async fn close(self) {
        if let Kind::Embedded(store) = self.kind {
            store.close().await;
        }
    }
}
