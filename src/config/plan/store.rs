//! `[store]`: where sessions and pages are stored.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::secret::Secret;
use crate::ident::TokenStorage;

/// The default location of data, in the folder of the configuration file. Without a file, in the working
/// directory.
pub(in crate::config) const DATA: &str = "./anteroom-data";

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
        }
    }
}

/// The kind and location of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// `embedded:<dir>`
    Embedded(PathBuf),
    /// `redis://`, `rediss://` or `redis+unix:`; the URL may hold a password.
    Redis(Secret),
}

impl StoreUrl {
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
