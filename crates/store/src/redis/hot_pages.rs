//! The list of the pages in use, `hotpages:`, beside the pages.

use std::time::Duration;

use anteroom_http::ident::PageKey;
use bytes::Bytes;

use super::{RedisCall, RedisStore, milliseconds};
use crate::StoreError;
use crate::hot_pages::{HOT_LIST_MAX, HotPageStore};

impl RedisStore {
    /// The handle to the Redis that has the pages, over the connections of this handle's path.
    fn of_pages_by_same_path(&self) -> Self {
        Self { path: self.path, ..self.of_pages() }
    }
}

impl HotPageStore for RedisStore {
    async fn put_hot_pages(&self, list: Bytes, ttl: Duration) -> Result<(), StoreError> {
        if list.len() > HOT_LIST_MAX {
            return Err(StoreError::TooLarge);
        }
        let pages = self.of_pages_by_same_path();
        let mut command = redis::cmd("SET");
        command.arg(&pages.keys().hot_pages).arg(list.as_ref()).arg("PX").arg(milliseconds(ttl));
        pages.query(RedisCall::Write, &command).await
    }

    async fn hot_pages(&self) -> Result<Option<Bytes>, StoreError> {
        let pages = self.of_pages_by_same_path();
        // GETRANGE, not GET: another program's value of any size must not fill our memory.
        let mut command = redis::cmd("GETRANGE");
        command.arg(&pages.keys().hot_pages).arg(0).arg(HOT_LIST_MAX - 1);
        let list: Vec<u8> = pages.query(RedisCall::Read, &command).await?;
        Ok((!list.is_empty()).then(|| list.into()))
    }

    async fn pages(&self, keys: &[PageKey]) -> Result<Vec<Option<Bytes>>, StoreError> {
        // An empty pipeline is an error.
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let pages = self.of_pages_by_same_path();
        let max = pages.limits().max_page;
        let mut commands = redis::pipe();
        for key in keys {
            commands.cmd("GETRANGE").arg(pages.keys().page(key)).arg(0).arg(max);
        }
        let found: Vec<Vec<u8>> = pages.query_all(RedisCall::Read, &commands).await?;
        let is_whole = |page: &Vec<u8>| !page.is_empty() && page.len() as u64 <= max;
        Ok(found.into_iter().map(|page| Some(page).filter(is_whole).map(Bytes::from)).collect())
    }
}
