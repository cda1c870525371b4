//! `[store]`: where sessions and pages are stored.

use std::path::PathBuf;
use std::time::Duration;

use anteroom_http::ident::TokenStorage;

use crate::secret::Secret;

/// The default location of data, in the folder of the configuration file. Without a file, in the working
/// directory.
pub(crate) const DATA: &str = "./anteroom-data";

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// `[store]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// `url`, `embedded:./anteroom-data`.
    pub url: StoreUrl,
    /// `pages_url`: another Redis, for pages alone.
    pub pages_url: Option<StoreUrl>,
    /// `timeout`, 50 ms: the budget of one read.
    pub timeout: Duration,
    /// `pages`, 1 GiB: the most bytes of pages in the store.
    pub pages: u64,
    /// `max_page`, 1 MiB: larger pages stay in memory only.
    pub max_page: u64,
    /// `prefix`, `""`: the prefix of every key.
    pub prefix: String,
    /// `layout`: how keys are laid out in Redis; default: sharded in a Cluster, the chapter's elsewhere.
    pub layout: StoreLayout,
    /// `[store.next]`: where `anteroom store migrate` moves the store.
    pub next: NextStore,
}

/// `[store.next]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NextStore {
    /// `url`: no default; without it, the store stays where it is.
    pub url: Option<StoreUrl>,
    /// `pages_url`: another Redis, for pages alone.
    pub pages_url: Option<StoreUrl>,
    /// `prefix`: default as in `[store]`.
    pub prefix: Option<String>,
    /// `layout`: default as that of `[store]` for such a store.
    pub layout: Option<StoreLayout>,
}

/// How keys are laid out in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreLayout {
    /// `"single"`: the keys of Redis in Action, chapter 2. One server has all of them.
    Single,
    /// `"sharded"`: in 64 shards, which a Cluster spreads over its nodes.
    Sharded,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            url: StoreUrl::Embedded(PathBuf::from(DATA)),
            pages_url: None,
            timeout: Duration::from_millis(50),
            pages: GIB,
            max_page: MIB,
            prefix: String::new(),
            layout: StoreLayout::Single,
            next: NextStore::default(),
        }
    }
}

/// The kind and location of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// `embedded:<dir>`
    Embedded(PathBuf),
    /// `redis://`, `rediss://`, `redis+unix:`, `redis+cluster://` or `redis+sentinel://`; the URL may hold a
    /// password.
    Redis(Secret),
}

impl Store {
    /// The store that `[store.next]` names, with the bounds of this one.
    #[must_use]
    pub fn next(&self) -> Option<Self> {
        let NextStore { url, pages_url, prefix, layout } = self.next.clone();
        let url = url?;
        Some(Self {
            layout: layout.unwrap_or_else(|| url.usual_layout()),
            prefix: prefix.unwrap_or_else(|| self.prefix.clone()),
            url,
            pages_url,
            next: NextStore::default(),
            ..*self
        })
    }
}

impl StoreUrl {
    /// Whether this is a Redis Cluster.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        match self {
            Self::Embedded(_) => false,
            Self::Redis(url) => {
                let url = url.expose();
                url.starts_with("redis+cluster:") || url.starts_with("rediss+cluster:")
            }
        }
    }

    /// The default of `layout` for this store.
    #[must_use]
    pub fn usual_layout(&self) -> StoreLayout {
        if self.is_cluster() { StoreLayout::Sharded } else { StoreLayout::Single }
    }

    /// The default of `token_storage` for this store: plain on Redis, which an app may share; hashed in
    /// the embedded store, which only the proxy reads.
    #[must_use]
    pub fn usual_token_storage(&self) -> TokenStorage {
        match self {
            Self::Embedded(_) => TokenStorage::Sha256,
            Self::Redis(_) => TokenStorage::Plain,
        }
    }
}
