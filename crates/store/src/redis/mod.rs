//! The Redis store: the chapter's keys, one multiplexed connection for each runtime thread and server, and a pool of
//! connections for tasks and administration.
//!
//! This file is how a call gets to Redis: at one shard, which is all of the chapter's layout. The connections are in
//! `links`, `server`, `link` and `pool`; which server has a shard in `topology`; the meaning of errors in `fault`,
//! names in `keys`, the steps that read before they write in `script`; each trait is in a file of its own.

mod address;
mod answers;
mod bypass;
mod carts;
mod certificates;
mod connection;
mod ended;
mod events;
mod expiry;
mod fault;
mod fleet;
mod handover;
mod hot_pages;
mod keys;
mod link;
mod links;
mod listing;
mod log_in;
mod overload;
mod pages;
mod pool;
mod probe;
mod purges;
mod revoked;
mod rights;
mod rows;
mod script;
mod server;
mod subscriber;
mod ticket_keys;
mod tokens;
mod topology;
mod transfer;
mod url;
mod views;
mod visitors;
mod visits;

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anteroom_http::ident::StoredToken;
use redis::{FromRedisValue, RedisResult, pipe};

pub(super) use self::address::RedisAddress;
use self::address::Route;
use self::connection::Connection;
pub(super) use self::expiry::OldestOf;
use self::fault::{CallError, RedisCall};
pub use self::handover::{Handover, TakenOver};
use self::keys::Keys;
pub use self::keys::shard_of;
use self::links::Links;
pub use self::probe::{ProbeError, RedisReport, label, probe};
pub use self::rights::{Denials, RedisContent, RedisUse};
use self::script::{Invocation, Script};
use self::server::{Carriage, Path};
use super::{CounterReading, StoreError, StoreLimits, StoreState};

/// Visits in one call of a script: longer calls would delay others.
const TOUCH_BATCH: usize = 50;
/// The most members that one call evicts: Lua passes no more arguments.
pub(super) const EVICT_BATCH: u32 = 1000;
/// Pages and rows over this size, in bytes, use a connection of their own, so that the look-up of a
/// token does not wait behind them.
const BULK_SIZE: usize = 256 << 10;
/// The longest time to live that is sent.
const TTL_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Fields with their values, as another program may have written them.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Members of `recent:` with their scores, the lowest first.
type ScoredMembers = Vec<(Vec<u8>, f64)>;

/// A time to live in the range that Redis accepts.
fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.min(TTL_MAX).as_millis().max(1)).unwrap_or(u64::MAX)
}

/// One thread's handle to a shard in Redis. Clones are the same handle.
#[derive(Clone, Debug)]
pub struct RedisStore {
    handle: Arc<ThreadHandle>,
    path: Path,
    /// The index of the shard; 0 in the chapter's layout.
    shard: usize,
}

#[derive(Debug)]
struct ThreadHandle {
    address: Arc<RedisAddress>,
    links: Links,
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
            links: Links::start(address),
            large: rows::LargeRows::default(),
            subscriber: OnceLock::new(),
            pages: OnceLock::new(),
        });
        Self { handle, path: Path::Requests, shard: 0 }
    }

    /// The same store by connections of its own.
    pub(super) fn separate(&self) -> Self {
        Self { path: self.path, ..Self::start(&self.handle.address) }
    }

    /// The same, with pages in another Redis.
    pub(super) fn with_pages_in(self, pages: Self) -> Self {
        self.handle.pages.get_or_init(|| pages);
        self
    }

    /// The handle to the Redis that has the pages, for this shard.
    pub(super) fn of_pages(&self) -> Self {
        match self.handle.pages.get() {
            Some(pages) => pages.of_shard(self.shard % pages.shards()),
            None => self.clone(),
        }
    }

    /// The same handle for another shard.
    pub(super) fn of_shard(&self, shard: usize) -> Self {
        Self { shard, ..self.clone() }
    }

    /// How many shards there are.
    pub(super) fn shards(&self) -> usize {
        self.handle.address.shards().len()
    }

    /// The index of this shard.
    pub(super) fn index(&self) -> usize {
        self.shard
    }

    /// Whether a shard may come to another server.
    fn moves(&self) -> bool {
        matches!(self.handle.address.route(), Route::Many(_))
    }

    /// The same handle for calls that no request waits for. They use the pool.
    pub(super) fn background(&self) -> Self {
        Self { path: Path::Background, ..self.clone() }
    }

    /// The same handle for calls that must not wait for others.
    fn foreground(&self) -> Self {
        Self { path: Path::Requests, ..self.clone() }
    }

    /// Whether any server answers.
    pub(super) fn state(&self) -> StoreState {
        self.handle.links.state()
    }

    pub(super) fn counted(&self) -> CounterReading {
        self.handle.address.counters.read()
    }

    pub(super) async fn connected(&self) {
        self.handle.links.connected().await;
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
        let keys = self.keys();
        let channels = [keys.purge_channel.as_str(), keys.gone_channel.as_str()];
        self.handle
            .subscriber
            .get_or_init(|| subscriber::Subscriber::start(&self.handle.address, channels))
    }

    fn keys(&self) -> &Keys {
        &self.handle.address.shards()[self.shard]
    }

    pub(super) fn limits(&self) -> &StoreLimits {
        &self.handle.address.limits
    }

    /// One step within its budget, over the connections of this path.
    async fn call<T, F>(
        &self,
        call: RedisCall,
        step: impl Fn(Connection) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = RedisResult<T>>,
    {
        self.call_over(Carriage::Plain, call, step).await
    }

    async fn call_over<T, F>(
        &self,
        carriage: Carriage,
        call: RedisCall,
        step: impl Fn(Connection) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let limits = self.limits();
        let budget = match (self.path, call) {
            (Path::Requests, RedisCall::Read) => limits.read_timeout,
            (Path::Requests, RedisCall::Write) | (Path::Background, _) => limits.write_timeout,
        };
        match &self.handle.links {
            Links::One(links) => {
                let called = links.call(self.path, carriage, call, budget, step).await;
                called.map_err(CallError::at_one_server)
            }
            // On the heap, so that a request's future does not grow.
            Links::Many(many) => {
                Box::pin(many.call(self.shard, self.path, carriage, call, budget, step)).await
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
        self.invoke_over(Carriage::Plain, call, script).await
    }

    async fn invoke_over<T: FromRedisValue>(
        &self,
        carriage: Carriage,
        call: RedisCall,
        script: &Invocation,
    ) -> Result<T, StoreError> {
        let script = script.complete();
        let step = |mut on| async move { script.invoke_async(&mut on).await };
        self.call_over(carriage, call, step).await
    }

    /// A script that writes this many bytes. For a request, a large write uses a connection of its
    /// own.
    async fn invoke_with<T: FromRedisValue>(
        &self,
        bytes: usize,
        script: &Invocation,
    ) -> Result<T, StoreError> {
        let carriage = if bytes <= BULK_SIZE { Carriage::Plain } else { Carriage::Large };
        self.invoke_over(carriage, RedisCall::Write, script).await
    }

    /// A script that writes, and returns a number or nothing.
    async fn run(&self, script: &Invocation) -> Result<usize, StoreError> {
        Ok(self.invoke::<Option<usize>>(RedisCall::Write, script).await?.unwrap_or_default())
    }

    /// A script that writes what is acknowledged: where there are replicas, one of them has it then.
    async fn acknowledge<T: FromRedisValue>(&self, script: &Invocation) -> Result<T, StoreError> {
        self.invoke_over(Carriage::Confirmed, RedisCall::Write, script).await
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
        self.write_over(Carriage::Plain, commands).await
    }

    async fn write_over(
        &self,
        carriage: Carriage,
        commands: &redis::Pipeline,
    ) -> Result<(), StoreError> {
        let step = |mut on| async move { commands.exec_async(&mut on).await };
        self.call_over(carriage, RedisCall::Write, step).await
    }

    /// What Redis does when its memory is full; `None` if unknown.
    pub(super) async fn eviction_policy(&self) -> Result<Option<String>, StoreError> {
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg("maxmemory-policy");
        let command = &command;
        let step = |mut on| async move {
            match command.query_async::<Vec<String>>(&mut on).await {
                // Access rules need not allow it.
                Err(error) if fault::denial(&error).is_some() => Ok(Vec::new()),
                answer => answer,
            }
        };
        let policy = self.call(RedisCall::Write, step).await?;
        Ok(policy.into_iter().nth(1))
    }
}
