//! The Redis store: the chapter's keys, one multiplexed connection for each runtime thread, and a pool of
//! connections for tasks and administration.
//!
//! Here is how a call gets to Redis. The connections are in `link` and `pool`, what their errors mean in
//! `fault`, names in `keys`, the steps that look before they write in `script`; what each trait does is in a
//! file of its own.

mod answers;
mod barred;
mod carts;
mod ear;
mod events;
mod expiry;
mod fault;
mod keys;
mod link;
mod listing;
mod log_in;
mod pages;
mod pool;
mod purges;
mod rows;
mod script;
mod tokens;
mod views;
mod visitors;
mod visits;

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisResult, pipe};
use tokio::time::timeout;

use self::keys::Keys;
use self::link::{Call, Link};
use self::pool::Pool;
use self::script::{Invocation, Script};
use super::{Counted, Counters, Limits, OpenError, StoreError, StoreState};
use crate::ident::StoredToken;

/// Visits in one call of a script: longer ones would keep others waiting.
const TOUCH_BATCH: usize = 50;
/// Members that one call evicts at most, whatever is asked: Lua passes that many arguments.
const EVICT_BATCH: u32 = 1000;
/// Pages and rows over this size, in bytes, go over a connection of their own, so that a look-up of a token
/// does not wait behind them.
const BULK_SIZE: usize = 256 << 10;
/// The longest time to live that is passed on.
const TTL_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Where Redis is, and what every lane to it shares.
#[derive(Debug)]
pub(super) struct RedisAddress {
    client: redis::Client,
    pool: Pool,
    keys: Keys,
    limits: Limits,
    counters: Arc<Counters>,
    full: pages::Refused,
}

impl RedisAddress {
    /// Reads the address; connects nowhere. In a tokio runtime only.
    pub(super) fn parse(
        url: &str,
        prefix: &str,
        limits: Limits,
        counters: &Arc<Counters>,
    ) -> Result<Self, OpenError> {
        if url.starts_with("rediss:") || url.starts_with("valkeys:") {
            // An error says that a provider is installed already: as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let client = redis::Client::open(url).map_err(|error| OpenError::BadUrl(error.into()))?;
        let counters = Arc::clone(counters);
        let pool = Pool::new(&client, limits, Arc::clone(&counters))
            .map_err(|error| OpenError::BadUrl(error.into()))?;
        let (keys, full) = (Keys::new(prefix), pages::Refused::default());
        Ok(Self { client, pool, keys, limits, counters, full })
    }

    /// What Redis does when its memory is full; `None` where it does not tell.
    pub(super) async fn eviction_policy(&self) -> Result<Option<String>, StoreError> {
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg("maxmemory-policy");
        let step = |mut on| async move { command.query_async(&mut on).await };
        let policy: Vec<String> = self.pool.call(Call::Read, step).await?;
        Ok(policy.into_iter().nth(1))
    }

    fn link(&self) -> Link {
        Link::start(self.client.clone(), self.limits, Arc::clone(&self.counters))
    }
}

/// Fields with their values, as another program may have written them.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Members of `recent:` with their scores, the lowest first.
type Oldest = Vec<(Vec<u8>, f64)>;

/// A time to live for Redis, which refuses nothing as one.
fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.min(TTL_MAX).as_millis().max(1)).unwrap_or(u64::MAX)
}

/// One thread's lane to Redis. Clones are the same lane.
#[derive(Clone, Debug)]
pub struct RedisStore {
    lane: Arc<Lane>,
    path: Path,
}

/// Which connections carry the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    /// The lane's own: nothing slow goes over them.
    Requests,
    /// Those of the pool.
    Background,
}

#[derive(Debug)]
struct Lane {
    address: Arc<RedisAddress>,
    link: Link,
    /// Connected when the first large page or row is written or read.
    bulk: OnceLock<Link>,
    large: rows::Large,
    /// Subscribed when it is first waited for.
    ear: OnceLock<ear::Ear>,
    /// The lane to the Redis that has the pages, if that is another one.
    pages: OnceLock<RedisStore>,
}

impl RedisStore {
    /// Begins to connect.
    pub(super) fn start(address: &Arc<RedisAddress>) -> Self {
        let lane = Arc::new(Lane {
            address: Arc::clone(address),
            link: address.link(),
            bulk: OnceLock::new(),
            large: rows::Large::default(),
            ear: OnceLock::new(),
            pages: OnceLock::new(),
        });
        Self { lane, path: Path::Requests }
    }

    /// The same, with pages in another Redis.
    pub(super) fn with_pages_in(self, pages: Self) -> Self {
        self.lane.pages.get_or_init(|| pages);
        self
    }

    /// The lane to the Redis that has the pages.
    pub(super) fn of_pages(&self) -> &Self {
        self.lane.pages.get().unwrap_or(self)
    }

    /// The same lane for calls that no request waits for. They go over the pool.
    pub(super) fn background(&self) -> Self {
        Self { path: Path::Background, ..self.clone() }
    }

    /// The same lane for calls that must not wait for others.
    fn foreground(&self) -> Self {
        Self { path: Path::Requests, ..self.clone() }
    }

    pub(super) fn state(&self) -> StoreState {
        self.lane.link.state()
    }

    pub(super) fn counted(&self) -> Counted {
        self.lane.address.counters.read()
    }

    pub(super) async fn connected(&self) {
        self.lane.link.connected().await;
    }

    /// Returns when a purge is told, or may have been missed.
    pub(super) async fn purge_told(&self) {
        self.ear().told().await;
    }

    /// Tokens that others have made nobody's.
    pub(super) async fn gone_told(&self) -> Vec<StoredToken> {
        self.ear().gone().await
    }

    fn ear(&self) -> &ear::Ear {
        let (client, keys) = (&self.lane.address.client, self.keys());
        let channels = [keys.purge_channel.as_str(), keys.gone_channel.as_str()];
        self.lane.ear.get_or_init(|| ear::Ear::start(client.clone(), channels))
    }

    fn keys(&self) -> &Keys {
        &self.lane.address.keys
    }

    fn limits(&self) -> &Limits {
        &self.lane.address.limits
    }

    /// One step within its budget, over the connections of this path. Where the lane's own connection finds
    /// Redis away, the pool is not asked.
    async fn call<T, F>(
        &self,
        call: Call,
        step: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = RedisResult<T>>,
    {
        match self.path {
            Path::Requests => self.lane.link.call(call, step).await,
            Path::Background if self.state() == StoreState::Away => Err(StoreError::Away),
            Path::Background => {
                let lane = &self.lane;
                // On the heap, so that a request's call is not larger for it.
                let answer = Box::pin(lane.address.pool.call(call, step)).await;
                answer.inspect_err(|error| lane.address.counters.count(error))
            }
        }
    }

    /// A call of a script, to be given what is its own.
    fn script(&self, script: &'static Script) -> Invocation {
        script.on(self.keys())
    }

    async fn invoke<T: FromRedisValue>(
        &self,
        call: Call,
        script: &Invocation,
    ) -> Result<T, StoreError> {
        let script = script.complete();
        let step = |mut on| async move { script.invoke_async(&mut on).await };
        self.call(call, step).await
    }

    /// A script that writes so many bytes. A request's go over a connection of their own where they are many.
    async fn invoke_with<T: FromRedisValue>(
        &self,
        bytes: usize,
        script: &Invocation,
    ) -> Result<T, StoreError> {
        if bytes <= BULK_SIZE || self.path == Path::Background {
            return self.invoke(Call::Write, script).await;
        }
        let script = script.complete();
        let step = |mut on| async move { script.invoke_async(&mut on).await };
        self.bulk().await?.call(Call::Write, step).await
    }

    /// A script that writes, and returns a number or nothing.
    async fn run(&self, script: &Invocation) -> Result<usize, StoreError> {
        Ok(self.invoke::<Option<usize>>(Call::Write, script).await?.unwrap_or_default())
    }

    async fn query<T: FromRedisValue>(
        &self,
        call: Call,
        command: &redis::Cmd,
    ) -> Result<T, StoreError> {
        let step = |mut on| async move { command.query_async(&mut on).await };
        self.call(call, step).await
    }

    async fn query_all<T: FromRedisValue>(
        &self,
        call: Call,
        commands: &redis::Pipeline,
    ) -> Result<T, StoreError> {
        let step = |mut on| async move { commands.query_async(&mut on).await };
        self.call(call, step).await
    }

    /// Sends commands whose replies are not needed.
    async fn write(&self, commands: &redis::Pipeline) -> Result<(), StoreError> {
        let step = |mut on| async move { commands.exec_async(&mut on).await };
        self.call(Call::Write, step).await
    }

    /// The connection for what is large. A call over it fails while it is not there yet.
    fn begin_bulk(&self) -> &Link {
        self.lane.bulk.get_or_init(|| self.lane.address.link())
    }

    /// The connection for large pages, once it is there.
    async fn bulk(&self) -> Result<&Link, StoreError> {
        if self.state() == StoreState::Away {
            return Err(StoreError::Away);
        }
        let link = self.begin_bulk();
        let connected = timeout(self.limits().write_timeout, link.connected()).await;
        connected.map(|()| link).map_err(|_elapsed| StoreError::Away)
    }
}
