//! The Redis store: the chapter's keys, one multiplexed connection for each runtime thread.
//!
//! Here is which commands make a step. The connection and its faults are in `link`, names in
//! `keys`, the steps that look before they write in `script`.

mod keys;
mod link;
mod pool;
mod rows;
mod script;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use redis::pipe;
use tokio::time::timeout;

use self::keys::Keys;
use self::link::{Call, Link};
use super::any::{Counted, Counters, OpenError, StoreState};
use super::{Eviction, Limits, PageStore, Rotation, SessionStore, StoreError, ViewStore, Visit};
use crate::ident::{Item, PageKey, StoredToken, User};

/// Visits in one call of the script: longer ones would keep others waiting.
const TOUCH_BATCH: usize = 50;
/// Sessions that one call evicts at most, whatever is asked: Lua passes that many arguments.
const EVICT_BATCH: u32 = 1000;
/// Pages over this size, in bytes, are written over a connection of their own, so that a
/// look-up of a token does not wait behind them.
const BULK_SIZE: usize = 256 << 10;
/// The longest time to live that is passed on.
const TTL_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Where Redis is, and what every lane to it shares.
#[derive(Debug)]
pub(super) struct RedisAddress {
    client: redis::Client,
    pool: pool::Pool,
    keys: Keys,
    limits: Limits,
}

impl RedisAddress {
    /// Reads the address; connects nowhere.
    pub(super) fn parse(url: &str, prefix: &str, limits: Limits) -> Result<Self, OpenError> {
        if url.starts_with("rediss:") || url.starts_with("valkeys:") {
            // An error says that a provider is installed already: as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let client = redis::Client::open(url).map_err(|error| OpenError::BadUrl(error.into()))?;
        let pool = pool::Pool::new(&client).map_err(|error| OpenError::BadUrl(error.into()))?;
        Ok(Self { client, pool, keys: Keys::new(prefix), limits })
    }

    /// What Redis does when its memory is full; `None` where it does not tell.
    pub(super) async fn eviction_policy(&self) -> Result<Option<String>, StoreError> {
        self.pool.eviction_policy().await
    }

    fn link(&self, counters: &Arc<Counters>) -> Link {
        Link::start(self.client.clone(), self.limits, Arc::clone(counters))
    }
}

/// One thread's lane to Redis. Clones are the same lane.
#[derive(Clone, Debug)]
pub struct RedisStore(Arc<Lane>);

#[derive(Debug)]
struct Lane {
    address: Arc<RedisAddress>,
    counters: Arc<Counters>,
    link: Link,
    /// Connected when the first large page is written.
    bulk: OnceLock<Link>,
}

impl RedisStore {
    /// Begins to connect.
    pub(super) fn start(address: &Arc<RedisAddress>, counters: Arc<Counters>) -> Self {
        let link = address.link(&counters);
        Self(Arc::new(Lane { address: Arc::clone(address), counters, link, bulk: OnceLock::new() }))
    }

    pub(super) fn state(&self) -> StoreState {
        self.0.link.state()
    }

    pub(super) fn counted(&self) -> Counted {
        self.0.counters.read()
    }

    pub(super) async fn connected(&self) {
        self.0.link.connected().await;
    }

    fn keys(&self) -> &Keys {
        &self.0.address.keys
    }

    fn limits(&self) -> &Limits {
        &self.0.address.limits
    }

    /// Sends a pipeline whose replies nobody needs.
    async fn write(&self, pipeline: &redis::Pipeline) -> Result<(), StoreError> {
        let step = |mut on| async move { pipeline.exec_async(&mut on).await };
        self.0.link.call(Call::Write, step).await
    }

    async fn run(&self, script: &redis::ScriptInvocation<'_>) -> Result<usize, StoreError> {
        let step = |mut on| async move { script.invoke_async::<Option<usize>>(&mut on).await };
        Ok(self.0.link.call(Call::Write, step).await?.unwrap_or_default())
    }

    async fn touch_batch(&self, visits: &[Visit]) -> Result<usize, StoreError> {
        let mut script = script::TOUCH.prepare_invoke();
        script.key(&self.keys().login).key(&self.keys().recent);
        script.arg(self.limits().viewed_items);
        for visit in visits {
            script.key(self.keys().viewed(&visit.token));
            script.arg(visit.token.as_str()).arg(visit.user.as_bytes());
            script.arg(visit.seen).arg(visit.items.len());
            for (item, seen) in &visit.items {
                script.arg(*seen).arg(item.as_str());
            }
        }
        self.run(&script).await
    }

    /// The connection for large pages, once it is there.
    async fn bulk(&self) -> Result<&Link, StoreError> {
        if self.state() == StoreState::Away {
            return Err(StoreError::Away);
        }
        let link = self.0.bulk.get_or_init(|| self.0.address.link(&self.0.counters));
        let connected = timeout(self.limits().write_timeout, link.connected()).await;
        connected.map(|()| link).map_err(|_elapsed| StoreError::Away)
    }
}

impl SessionStore for RedisStore {
    async fn check_token(&self, token: &StoredToken) -> Result<Option<User>, StoreError> {
        let mut command = redis::cmd("HGET");
        command.arg(&self.keys().login).arg(token.as_str());
        let step = |mut on| async move { command.query_async::<Option<Vec<u8>>>(&mut on).await };
        let user = self.0.link.call(Call::Read, step).await?;
        Ok(user.and_then(|user| User::new(&user)))
    }

    async fn update_token(
        &self,
        token: &StoredToken,
        user: &User,
        item: Option<&Item>,
        now: f64,
    ) -> Result<(), StoreError> {
        let keys = self.keys();
        let mut step = pipe();
        step.atomic();
        step.cmd("HSET").arg(&keys.login).arg(token.as_str()).arg(user.as_bytes());
        step.cmd("ZADD").arg(&keys.recent).arg("GT").arg(now).arg(token.as_str());
        if let Some(item) = item {
            let viewed = keys.viewed(token);
            let cut = -1 - i64::from(self.limits().viewed_items);
            step.cmd("ZADD").arg(&viewed).arg("GT").arg(now).arg(item.as_str());
            step.cmd("ZREMRANGEBYRANK").arg(&viewed).arg(0).arg(cut);
            step.cmd("ZINCRBY").arg(&keys.popularity).arg(-1).arg(item.as_str());
        }
        self.write(&step).await
    }

    async fn touch_tokens(&self, visits: &[Visit]) -> Result<usize, StoreError> {
        let mut known = 0;
        for batch in visits.chunks(TOUCH_BATCH) {
            known += self.touch_batch(batch).await?;
        }
        Ok(known)
    }

    async fn rotate_token(&self, rotation: &Rotation) -> Result<(), StoreError> {
        let Rotation { old, new, user, now } = rotation;
        let keys = self.keys();
        let mut script = script::ROTATE.prepare_invoke();
        script.key(&keys.login).key(&keys.recent).key(keys.viewed(new)).key(keys.cart(new));
        script.arg(new.as_str()).arg(user.as_bytes()).arg(*now);
        if let Some(old) = old.as_ref().filter(|old| *old != new) {
            script.key(keys.viewed(old)).key(keys.cart(old)).arg(old.as_str());
        }
        self.run(&script).await.map(drop)
    }

    async fn revoke_token(&self, token: &StoredToken) -> Result<(), StoreError> {
        let keys = self.keys();
        let mut step = pipe();
        step.atomic();
        step.cmd("HDEL").arg(&keys.login).arg(token.as_str());
        step.cmd("ZREM").arg(&keys.recent).arg(token.as_str());
        step.cmd("UNLINK").arg(keys.viewed(token)).arg(keys.cart(token));
        self.write(&step).await
    }

    async fn evict_oldest(&self, how: Eviction) -> Result<usize, StoreError> {
        let keys = self.keys();
        let mut script = script::EVICT.prepare_invoke();
        script.key(&keys.login).key(&keys.recent);
        script.arg(how.keep).arg(how.batch.min(EVICT_BATCH)).arg(keys.viewed_prefix());
        script.arg(if how.carts { keys.cart_prefix() } else { String::new() });
        self.run(&script).await
    }

    async fn add_to_cart(
        &self,
        token: &StoredToken,
        item: &Item,
        count: i64,
    ) -> Result<(), StoreError> {
        let cart = self.keys().cart(token);
        let mut step = pipe();
        if count > 0 {
            step.cmd("HSET").arg(cart).arg(item.as_str()).arg(count);
        } else {
            step.cmd("HDEL").arg(cart).arg(item.as_str());
        }
        self.write(&step).await
    }
}

impl ViewStore for RedisStore {
    async fn count_views(&self, views: &[(Item, u64)]) -> Result<(), StoreError> {
        if views.is_empty() {
            return Ok(());
        }
        let mut step = pipe();
        step.atomic();
        for (item, count) in views {
            let score = format!("-{count}");
            step.cmd("ZINCRBY").arg(&self.keys().popularity).arg(score).arg(item.as_str());
        }
        self.write(&step).await
    }
}

impl PageStore for RedisStore {
    async fn page(&self, key: &PageKey) -> Result<Option<Bytes>, StoreError> {
        // GETRANGE, not GET: another program's value of any size must not fill our memory.
        let max = self.limits().max_page;
        let mut command = redis::cmd("GETRANGE");
        command.arg(self.keys().page(key)).arg(0).arg(max);
        let step = |mut on| async move { command.query_async::<Vec<u8>>(&mut on).await };
        let page = self.0.link.call(Call::Read, step).await?;
        Ok((!page.is_empty() && page.len() as u64 <= max).then(|| page.into()))
    }

    async fn put_page(&self, key: &PageKey, page: Bytes, ttl: Duration) -> Result<(), StoreError> {
        if page.len() as u64 > self.limits().max_page {
            return Err(StoreError::Full);
        }
        // Redis refuses a time to live of nothing.
        let ttl_ms = ttl.min(TTL_MAX).as_millis().max(1);
        let ttl_ms = u64::try_from(ttl_ms).expect("TTL_MAX is within range");
        let link = if page.len() > BULK_SIZE { self.bulk().await? } else { &self.0.link };
        let mut command = redis::cmd("SET");
        command.arg(self.keys().page(key)).arg(page.as_ref()).arg("PX").arg(ttl_ms);
        let step = |mut on| async move {
            match command.exec_async(&mut on).await {
                // Over `maxmemory`, and nothing that may be evicted.
                Err(error) if error.code() == Some("OOM") => Ok(Err(StoreError::Full)),
                answer => answer.map(Ok),
            }
        };
        link.call(Call::Write, step).await?
    }

    async fn delete_pages(&self, keys: &[PageKey]) -> Result<(), StoreError> {
        if keys.is_empty() {
            return Ok(());
        }
        let mut step = pipe();
        let command = step.cmd("UNLINK");
        for key in keys {
            command.arg(self.keys().page(key));
        }
        self.write(&step).await
    }
}
