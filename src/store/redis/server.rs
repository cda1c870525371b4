//! One server of Redis: what the process has of it (an address and the pool), and what each thread has (its own
//! connections). It knows no keys.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ConnectionInfo, InfoDict, RedisError, RedisResult, Value};
use tokio::time::{Instant, timeout};

use super::connection::Connection;
use super::fault::{CallError, RedisCall, RedisFault};
use super::link::Link;
use super::pool::Pool;
use crate::store::{OpenError, StoreCounters, StoreError, StoreLimits, StoreState};

/// How long a replica has to confirm a write.
const CONFIRM: Duration = Duration::from_millis(500);
/// For how long no confirmation is waited for after the server had no replica.
const ALONE: Duration = Duration::from_secs(1);

/// A server, for the whole process.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) client: redis::Client,
    pool: Pool,
    limits: StoreLimits,
    counters: Arc<StoreCounters>,
    replicas: Replicas,
}

/// Whether acknowledged writes wait for a replica.
#[derive(Debug)]
struct Replicas {
    are_there: AtomicBool,
    began: Instant,
    /// Until when, in milliseconds since `began`, the server is taken to have none.
    alone_until: AtomicU64,
}

impl Replicas {
    fn passed(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn are_waited_for(&self) -> bool {
        self.are_there.load(Ordering::Relaxed)
            && self.alone_until.load(Ordering::Relaxed) <= self.passed()
    }

    fn is_alone(&self) {
        let until = self.passed() + ALONE.as_millis() as u64;
        self.alone_until.store(until, Ordering::Relaxed);
    }
}

impl Server {
    /// Does not connect yet. In a tokio runtime only.
    pub(super) fn new(
        login: &ConnectionInfo,
        limits: StoreLimits,
        counters: &Arc<StoreCounters>,
    ) -> Result<Self, OpenError> {
        let bad_url = |error: RedisError| OpenError::BadUrl(error.into());
        let client = redis::Client::open(login.clone()).map_err(bad_url)?;
        let pool = Pool::new(&client, limits, Arc::clone(counters)).map_err(bad_url)?;
        let replicas = Replicas {
            are_there: AtomicBool::new(false),
            began: Instant::now(),
            alone_until: AtomicU64::new(0),
        };
        Ok(Self { client, pool, limits, counters: Arc::clone(counters), replicas })
    }

    /// Whether the server is known to have a replica.
    pub(super) fn set_replicas(&self, are_there: bool) {
        self.replicas.are_there.store(are_there, Ordering::Relaxed);
    }

    fn link(&self) -> Link {
        Link::start(self.client.clone(), self.limits, Arc::clone(&self.counters))
    }

    /// Whether a replica follows the server. One that is still copying everything cannot confirm for a long time. A user
    /// without the right to ask takes it that there is one.
    async fn has_followers(&self, on: &mut MultiplexedConnection) -> RedisResult<bool> {
        match redis::cmd("ROLE").query_async::<Value>(on).await {
            Ok(role) => Ok(followers_in(&role) != Some(0)),
            Err(error) if RedisFault::of(&error) == RedisFault::Refused => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Returns once a replica has what was written over this connection. An error means that nobody can say so:
    /// the write may be lost.
    async fn confirmed(&self, mut on: MultiplexedConnection) -> RedisResult<()> {
        // A WAIT holds up all calls behind it on its connection, so where nothing follows there is none.
        if !self.has_followers(&mut on).await? {
            self.replicas.is_alone();
            return Ok(());
        }
        let mut wait = redis::cmd("WAIT");
        wait.arg(1).arg(CONFIRM.as_millis() as u64);
        let have_it: u32 = wait.query_async(&mut on).await?;
        if have_it > 0 {
            return Ok(());
        }
        let about: InfoDict = redis::cmd("INFO").arg("replication").query_async(&mut on).await?;
        if about.get::<u32>("connected_slaves") == Some(0) {
            self.replicas.is_alone();
            return Ok(());
        }
        Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "no replica has confirmed the write")
            .into())
    }
}

/// How many replicas a reply to ROLE lists: `master`, the offset, and each replica that has all up to some offset.
fn followers_in(role: &Value) -> Option<usize> {
    match role {
        Value::Array(parts) => match parts.get(2)? {
            Value::Array(replicas) => Some(replicas.len()),
            _ => None,
        },
        _ => None,
    }
}

/// What a call needs of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carriage {
    /// Nothing.
    Plain,
    /// It carries much: look-ups do not wait behind it.
    Large,
    /// The answer means that a replica has it, where there are replicas.
    Confirmed,
}

/// Which connections carry the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// The thread's own: nothing slow uses them.
    Requests,
    /// The pool's.
    Background,
}

/// One thread's connections to a server.
#[derive(Debug)]
pub(super) struct ServerLinks {
    pub(super) server: Arc<Server>,
    link: Link,
    /// Connected when the first large page or row is written or read.
    large: OnceLock<Link>,
    /// Connected when the first write waits for a replica.
    confirmed: OnceLock<Link>,
}

impl ServerLinks {
    /// Begins to connect.
    pub(super) fn start(server: &Arc<Server>) -> Self {
        let link = server.link();
        let server = Arc::clone(server);
        Self { server, link, large: OnceLock::new(), confirmed: OnceLock::new() }
    }

    pub(super) fn state(&self) -> StoreState {
        self.link.state()
    }

    pub(super) async fn connected(&self) {
        self.link.connected().await;
    }

    /// Connects for large values. A call over it fails until it is connected.
    pub(super) fn begin_large(&self) -> &Link {
        self.large.get_or_init(|| self.server.link())
    }

    /// One step within the budget, over the connections of this path. If the thread's own connection finds the
    /// server away, the pool is not used.
    pub(super) async fn call<T, F>(
        &self,
        (path, carriage): (Path, Carriage),
        call: RedisCall,
        budget: Duration,
        step: impl FnOnce(Connection) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = RedisResult<T>>,
    {
        if (path, carriage) == (Path::Requests, Carriage::Plain) {
            return self.link.call(call, budget, |on| step(on.into())).await;
        }
        // On the heap, so that a request's future does not grow.
        Box::pin(self.call_elsewhere((path, carriage), call, budget, step)).await
    }

    async fn call_elsewhere<T, F>(
        &self,
        (path, carriage): (Path, Carriage),
        call: RedisCall,
        budget: Duration,
        step: impl FnOnce(Connection) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let waits = carriage == Carriage::Confirmed && self.server.replicas.are_waited_for();
        let step = |on: MultiplexedConnection| async move {
            let value = step(on.clone().into()).await?;
            if waits {
                self.server.confirmed(on).await?;
            }
            Ok(value)
        };
        match path {
            Path::Background if self.state() == StoreState::Away => Err(StoreError::Away.into()),
            Path::Background => {
                let answer = self.server.pool.call(call, step).await;
                answer.inspect_err(|error| {
                    if let CallError::Store(error) = error {
                        self.server.counters.count(error);
                    }
                })
            }
            Path::Requests if carriage == Carriage::Large => {
                self.open(self.begin_large(), budget).await?.call(call, budget, step).await
            }
            // WAIT holds up what comes behind it on its connection.
            Path::Requests if waits => {
                let link = self.confirmed.get_or_init(|| self.server.link());
                self.open(link, budget).await?.call(call, budget, step).await
            }
            Path::Requests => self.link.call(call, budget, step).await,
        }
    }

    /// This link, once it is connected.
    async fn open<'a>(&self, link: &'a Link, budget: Duration) -> Result<&'a Link, StoreError> {
        if self.state() == StoreState::Away {
            return Err(StoreError::Away);
        }
        let connected = timeout(budget, link.connected()).await;
        connected.map(|()| link).map_err(|_elapsed| StoreError::Away)
    }
}
