//! The Redis store: the chapter's keys, one multiplexed connection for each runtime thread, and a
//! pool of connections for tasks and administration.
//!
//! This file is how a call gets to Redis. The connections are in `link` and `pool`, the meaning of
//! their errors in `fault`, names in `keys`, the steps that read before they write in `script`;
//! each trait is in a file of its own.

mod answers;
mod carts;
mod events;
mod expiry;
mod fault;
mod keys;
mod link;
mod listing;
mod log_in;
mod pages;
mod pool;
mod probe;
mod purges;
mod revoked;
mod rows;
mod script;
mod subscriber;
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

use self::fault::RedisCall;
use self::keys::Keys;
use self::link::Link;
use self::pool::Pool;
pub use self::probe::{ProbeError, RedisReport, label, probe};
use self::script::{Invocation, Script};
use super::{Counted, OpenError, StoreCounters, StoreError, StoreLimits, StoreState};
use crate::ident::StoredToken;

/// Visits in one call of a script: longer calls would delay others.
const TOUCH_BATCH: usize = 50;
/// The most members that one call evicts: Lua passes no more arguments.
const EVICT_BATCH: u32 = 1000;
/// Pages and rows over this size, in bytes, use a connection of their own, so that the look-up of a
/// token does not wait behind them.
const BULK_SIZE: usize = 256 << 10;
/// The longest time to live that is sent.
const TTL_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The address of Redis, and what all handles to it share.
#[derive(Debug)]
pub(super) struct RedisAddress {
    client: redis::Client,
    pool: Pool,
    keys: Keys,
    limits: StoreLimits,
    counters: Arc<StoreCounters>,
    full: pages::PageRefused,
}

impl RedisAddress {
    /// Reads the address; does not connect. In a tokio runtime only.
    pub(super) fn parse(
        url: &str,
        prefix: &str,
        limits: StoreLimits,
        counters: &Arc<StoreCounters>,
    ) -> Result<Self, OpenError> {
        let client = open_client(url)?;
        let counters = Arc::clone(counters);
        let pool = Pool::new(&client, limits, Arc::clone(&counters))
            .map_err(|error| OpenError::BadUrl(error.into()))?;
        let (keys, full) = (Keys::new(prefix), pages::PageRefused::default());
        Ok(Self { client, pool, keys, limits, counters, full })
    }

    /// What Redis does when its memory is full; `None` if unknown.
    pub(super) async fn eviction_policy(&self) -> Result<Option<String>, StoreError> {
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg("maxmemory-policy");
        let step = |mut on| async move { command.query_async(&mut on).await };
        let policy: Vec<String> = self.pool.call(RedisCall::Read, step).await?;
        Ok(policy.into_iter().nth(1))
    }

    fn link(&self) -> Link {
        Link::start(self.client.clone(), self.limits, Arc::clone(&self.counters))
    }
}

/// A client for an address. It connects to nothing yet.
fn open_client(url: &str) -> Result<redis::Client, OpenError> {
    if url.starts_with("rediss:") || url.starts_with("valkeys:") {
        // An error means that a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    redis::Client::open(url).map_err(|error| OpenError::BadUrl(error.into()))
}

/// Fields with their values, as another program may have written them.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Members of `recent:` with their scores, the lowest first.
type Oldest = Vec<(Vec<u8>, f64)>;

/// A time to live in the range that Redis accepts.
fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.min(TTL_MAX).as_millis().max(1)).unwrap_or(u64::MAX)
}

/// One thread's handle to Redis. Clones are the same handle.
#[derive(Clone, Debug)]
pub struct RedisStore {
    handle: Arc<ThreadHandle>,
    path: Path,
}

/// Which connections carry the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    /// The handle's own: nothing slow uses them.
    Requests,
    /// The pool's.
    Background,
}

#[derive(Debug)]
struct ThreadHandle {
    address: Arc<RedisAddress>,
    link: Link,
    /// Connected when the first large page or row is written or read.
    bulk: OnceLock<Link>,
    large: rows::LargeRows,
    /// Subscribed when it is first waited for.
    subscriber: OnceLock<subscriber::Subscriber>,
    /// The handle to the Redis that has the pages, if another one.
    pages: OnceLock<RedisStore>,
}

impl RedisStore {
    /// Begins to connect.
    pub(super) fn start(address: &Arc<RedisAddress>) -> Self {
        let handle = Arc::new(ThreadHandle {
            address: Arc::clone(address),
            link: address.link(),
            bulk: OnceLock::new(),
            large: rows::LargeRows::default(),
            subscriber: OnceLock::new(),
            pages: OnceLock::new(),
        });
        Self { handle, path: Path::Requests }
    }

    /// The same, with pages in another Redis.
    pub(super) fn with_pages_in(self, pages: Self) -> Self {
        self.handle.pages.get_or_init(|| pages);
        self
    }

    /// The handle to the Redis that has the pages.
    pub(super) fn of_pages(&self) -> &Self {
        self.handle.pages.get().unwrap_or(self)
    }

    /// The same handle for calls that no request waits for. They use the pool.
    pub(super) fn background(&self) -> Self {
        Self { path: Path::Background, ..self.clone() }
    }

    /// The same handle for calls that must not wait for others.
    fn foreground(&self) -> Self {
        Self { path: Path::Requests, ..self.clone() }
    }

    pub(super) fn state(&self) -> StoreState {
        self.handle.link.state()
    }

    pub(super) fn counted(&self) -> Counted {
        self.handle.address.counters.read()
    }

    pub(super) async fn connected(&self) {
        self.handle.link.connected().await;
    }

    /// Returns when a purge is reported, or may have been missed.
    pub(super) async fn purge_announced(&self) {
        self.subscriber().purge_reported().await;
    }

    /// Tokens that other processes have revoked.
    pub(super) async fn ended_sessions(&self) -> Vec<StoredToken> {
        self.subscriber().gone().await
    }

    fn subscriber(&self) -> &subscriber::Subscriber {
        let (client, keys) = (&self.handle.address.client, self.keys());
        let channels = [keys.purge_channel.as_str(), keys.gone_channel.as_str()];
        self.handle
            .subscriber
            .get_or_init(|| subscriber::Subscriber::start(client.clone(), channels))
    }

    fn keys(&self) -> &Keys {
        &self.handle.address.keys
    }

    fn limits(&self) -> &StoreLimits {
        &self.handle.address.limits
    }

    /// One step within its budget, over the connections of this path. If the handle's own
    /// connection finds Redis away, the pool is not used.
    async fn call<T, F>(
        &self,
        call: RedisCall,
        step: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = RedisResult<T>>,
    {
        match self.path {
            Path::Requests => self.handle.link.call(call, step).await,
            Path::Background if self.state() == StoreState::Away => Err(StoreError::Away),
            Path::Background => {
                let handle = &self.handle;
                // On the heap, so that a request's future does not grow.
                let answer = Box::pin(handle.address.pool.call(call, step)).await;
                answer.inspect_err(|error| handle.address.counters.count(error))
            }
        }
    }

    /// A call of a script, without its own arguments.
    fn script(&self, script: &'static Script) -> Invocation {
        script.on(self.keys())
    }

    async fn invoke<T: FromRedisValue>(
        &self,
        call: RedisCall,
        script: &Invocation,
    ) -> Result<T, StoreError> {
        let script = script.complete();
        let step = |mut on| async move { script.invoke_async(&mut on).await };
        self.call(call, step).await
    }

    /// A script that writes this many bytes. For a request, a large write uses a connection of its
    /// own.
    async fn invoke_with<T: FromRedisValue>(
        &self,
        bytes: usize,
        script: &Invocation,
    ) -> Result<T, StoreError> {
        if bytes <= BULK_SIZE || self.path == Path::Background {
            return self.invoke(RedisCall::Write, script).await;
        }
        let script = script.complete();
        let step = |mut on| async move { script.invoke_async(&mut on).await };
        self.bulk().await?.call(RedisCall::Write, step).await
    }

    /// A script that writes, and returns a number or nothing.
    async fn run(&self, script: &Invocation) -> Result<usize, StoreError> {
        Ok(self.invoke::<Option<usize>>(RedisCall::Write, script).await?.unwrap_or_default())
    }

    async fn query<T: FromRedisValue>(
        &self,
        call: RedisCall,
        command: &redis::Cmd,
    ) -> Result<T, StoreError> {
        let step = |mut on| async move { command.query_async(&mut on).await };
        self.call(call, step).await
    }

    async fn query_all<T: FromRedisValue>(
        &self,
        call: RedisCall,
        commands: &redis::Pipeline,
    ) -> Result<T, StoreError> {
        let step = |mut on| async move { commands.query_async(&mut on).await };
        self.call(call, step).await
    }

    /// Sends commands whose replies are not needed.
    async fn write(&self, commands: &redis::Pipeline) -> Result<(), StoreError> {
        let step = |mut on| async move { commands.exec_async(&mut on).await };
        self.call(RedisCall::Write, step).await
    }

    /// The connection for large values. A call over it fails until it is connected.
    fn begin_bulk(&self) -> &Link {
        self.handle.bulk.get_or_init(|| self.handle.address.link())
    }

    /// The connection for large pages, once it is connected.
    async fn bulk(&self) -> Result<&Link, StoreError> {
        if self.state() == StoreState::Away {
            return Err(StoreError::Away);
        }
        let link = self.begin_bulk();
        let connected = timeout(self.limits().write_timeout, link.connected()).await;
        connected.map(|()| link).map_err(|_elapsed| StoreError::Away)
    }
}
