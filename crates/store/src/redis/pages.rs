//! Pages in Redis: `cache:<hash>`, and `pagebytes:`, which counts their bytes for the whole fleet.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anteroom_http::clock::unix_now;
use anteroom_http::ident::PageKey;
use bytes::Bytes;

use super::{BULK_SIZE, RedisCall, RedisStore, milliseconds, script};
use crate::page::nearly;
use crate::{Lease, PAGE_HEAD, PageStore, RequestFrequency, StoreError};

/// The part of the limit, one in this many, that is for new versions of stored pages.
const RENEWED: u64 = 20;

/// The second in which Redis had no memory for any page, and in which the limit had no room for a
/// page requested once: no others are sent there within it.
#[derive(Debug, Default)]
pub(super) struct PageRefused {
    any: AtomicU64,
    once: AtomicU64,
}

impl PageRefused {
    fn look(&self, demand: RequestFrequency, now: u64) -> Result<(), StoreError> {
        if self.any.load(Ordering::Relaxed) == now {
            return Err(StoreError::Full);
        }
        if demand == RequestFrequency::Once && self.once.load(Ordering::Relaxed) == now {
            return Err(StoreError::NearlyFull);
        }
        Ok(())
    }
}

/// Pages may be in another Redis.
impl PageStore for RedisStore {
    async fn page(&self, key: &PageKey) -> Result<Option<Bytes>, StoreError> {
        let pages = self.of_pages();
        // GETRANGE, not GET: another program's value of any size must not fill our memory.
        let max = pages.limits().max_page;
        let mut command = redis::cmd("GETRANGE");
        command.arg(pages.keys().page(key)).arg(0).arg(max);
        let page: Vec<u8> = pages.query(RedisCall::Read, &command).await?;
        Ok((!page.is_empty() && page.len() as u64 <= max).then(|| page.into()))
    }

    async fn put_page(
        &self,
        key: &PageKey,
        page: Bytes,
        ttl: Duration,
        demand: RequestFrequency,
    ) -> Result<(), StoreError> {
        let pages = self.of_pages();
        if page.len() as u64 > pages.limits().max_page {
            return Err(StoreError::TooLarge);
        }
        let (refused, now) = (&pages.handle.address.full, unix_now() as u64);
        refused.look(demand, now)?;
        let bound = pages.limits().pages / pages.shards() as u64;
        // A renewed page finds room that new pages may not take.
        let bound_of_new = match demand {
            RequestFrequency::Once => nearly(bound),
            RequestFrequency::Again => bound - bound / RENEWED,
        };
        let mut script = pages.script(&script::PUT_PAGE);
        script.key("page", pages.keys().page(key)).arg("head", &PAGE_HEAD);
        script.arg("body", page.as_ref()).arg("ttl_ms", milliseconds(ttl));
        script.arg("bound", bound).arg("bound_of_new", bound_of_new);
        let (outcome, used): (u8, u64) = pages.invoke_with(page.len(), &script).await?;
        pages.handle.address.counters.holds(pages.index(), used);
        match outcome {
            0 => Ok(()),
            1 if demand == RequestFrequency::Once => {
                // A refused large page says nothing about smaller ones.
                if used + BULK_SIZE as u64 > bound_of_new {
                    refused.once.store(now, Ordering::Relaxed);
                }
                Err(StoreError::NearlyFull)
            }
            1 | 2 => Err(StoreError::Full),
            _ => {
                refused.any.store(now, Ordering::Relaxed);
                Err(StoreError::Full)
            }
        }
    }

    async fn delete_pages(&self, keys: &[PageKey]) -> Result<(), StoreError> {
        let pages = self.of_pages();
        if keys.is_empty() {
            return Ok(());
        }
        let mut script = pages.script(&script::DELETE_PAGES);
        script.arg("head", &PAGE_HEAD);
        for key in keys {
            script.another_key(pages.keys().page(key));
        }
        let used = pages.invoke(RedisCall::Write, &script).await?;
        pages.handle.address.counters.holds(pages.index(), used);
        Ok(())
    }

    async fn lease(&self, key: &PageKey, holder: u64, time: Duration) -> Result<Lease, StoreError> {
        let pages = self.of_pages();
        let mut script = pages.script(&script::LEASE);
        script.key("lease", pages.keys().lease(key));
        script.arg("who", holder).arg("ms", milliseconds(time));
        Ok(match pages.invoke::<u8>(RedisCall::Read, &script).await? {
            0 => Lease::Theirs,
            1 => Lease::Ours,
            _ => Lease::Unshareable,
        })
    }

    async fn end_lease(
        &self,
        key: &PageKey,
        holder: u64,
        is_shareable: bool,
    ) -> Result<(), StoreError> {
        let pages = self.of_pages();
        let mut script = pages.script(&script::END_LEASE);
        script.key("lease", pages.keys().lease(key));
        script.arg("who", holder).arg("is_shareable", u8::from(is_shareable));
        pages.run(&script).await.map(drop)
    }
}
