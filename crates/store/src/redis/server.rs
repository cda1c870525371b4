//! One server of Redis: what the process has of it (an address and the pool), and what each thread has (its own
//! connections). It knows no keys.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ConnectionInfo, InfoDict, RedisError, RedisResult};
use tokio::time::{Instant, timeout};

use super::connection::Connection;
use super::fault::{CallError, RedisCall, RedisFault};
use super::link::Link;
use super::pool::Pool;
use crate::{OpenError, StoreCounters, StoreError, StoreLimits, StoreState};

/// How long a replica has to confirm a write, at most; less where the call has less left.
const CONFIRM: Duration = Duration::from_millis(500);
/// The same, shortly after a write that no replica has confirmed: many waits follow each other on a connection.
const CONFIRM_SOON: Duration = Duration::from_millis(50);
/// What a call keeps of its time, to find out why there was no confirmation.
const ASK_WHY: Duration = Duration::from_millis(50);
/// For how long no confirmation is waited for after the server had no replica, or for long after none was given.
const ALONE: Duration = Duration::from_secs(1);
/// A replica that has been silent for longer, in seconds, is none.
const SILENT: u64 = 5;

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
    /// The same, for the time in which a replica is taken to be silent.
    silent_until: AtomicU64,
}

impl Replicas {
    fn passed(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn are_waited_for(&self) -> bool {
        self.are_there.load(Ordering::Relaxed)
            && self.alone_until.load(Ordering::Relaxed) <= self.passed()
    }

    fn were_not_found(&self) {
        let until = self.passed() + ALONE.as_millis() as u64;
        self.alone_until.store(until, Ordering::Relaxed);
    }

    fn were_silent(&self) {
        let until = self.passed() + ALONE.as_millis() as u64;
        self.silent_until.store(until, Ordering::Relaxed);
    }

    /// How long a call waits that has so much time left.
    fn time_to_confirm(&self, left: Duration) -> Duration {
        let is_silent = self.silent_until.load(Ordering::Relaxed) > self.passed();
        let most = if is_silent { CONFIRM_SOON } else { CONFIRM };
        // 0 would wait for ever.
        most.min(left.saturating_sub(ASK_WHY)).max(Duration::from_millis(1))
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
            silent_until: AtomicU64::new(0),
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

    /// Returns once a replica has what was written over this connection. An error means that the write may be lost.
    async fn confirmed(&self, mut on: MultiplexedConnection, deadline: Instant) -> RedisResult<()> {
        // WAIT at a server without replicas takes all of its time, and holds up the calls behind it.
        if is_alone(&mut on).await? {
            self.replicas.were_not_found();
            return Ok(());
        }
        let mut wait = redis::cmd("WAIT");
        let left = deadline.saturating_duration_since(Instant::now());
        wait.arg(1).arg(self.replicas.time_to_confirm(left).as_millis() as u64);
        let have_it: u32 = wait.query_async(&mut on).await?;
        if have_it > 0 {
            return Ok(());
        }
        if is_alone(&mut on).await? {
            self.replicas.were_not_found();
            return Ok(());
        }
        self.replicas.were_silent();
        Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "no replica has confirmed the write")
            .into())
    }
}

/// Whether a server has no replica that confirms writes. A user without the right to ask takes it that there is one.
async fn is_alone(on: &mut MultiplexedConnection) -> RedisResult<bool> {
    let about: InfoDict = match redis::cmd("INFO").arg("replication").query_async(on).await {
        Ok(about) => about,
        Err(error) if RedisFault::of(&error) == RedisFault::Refused => return Ok(false),
        Err(error) => return Err(error),
    };
    let connected = about.get::<usize>("connected_slaves").unwrap_or_default();
    let replicas = (0..connected).filter_map(|index| about.get::<String>(&format!("slave{index}")));
    Ok(!replicas.into_iter().any(|replica| does_confirm(&replica)))
}

/// Whether a replica follows and answers, by `ip=…,port=…,state=online,offset=…,lag=0`: one that is being filled, or
/// is silent, confirms nothing.
fn does_confirm(replica: &str) -> bool {
    let field = |name: &str| {
        let mut fields = replica.split(',').filter_map(|field| field.split_once('='));
        fields.find_map(|(field, value)| (field == name).then_some(value))
    };
    let lag = field("lag").and_then(|lag| lag.parse::<u64>().ok());
    field("state") == Some("online") && lag.is_some_and(|lag| lag <= SILENT)
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
        path: Path,
        carriage: Carriage,
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
        Box::pin(self.call_elsewhere(path, carriage, call, budget, step)).await
    }

    async fn call_elsewhere<T, F>(
        &self,
        path: Path,
        carriage: Carriage,
        call: RedisCall,
        budget: Duration,
        step: impl FnOnce(Connection) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let deadline = Instant::now() + budget;
        let left = || deadline.saturating_duration_since(Instant::now());
        let waits = carriage == Carriage::Confirmed && self.server.replicas.are_waited_for();
        let step = |on: MultiplexedConnection| async move {
            let value = step(on.clone().into()).await?;
            if waits {
                self.server.confirmed(on, deadline).await?;
            }
            Ok(value)
        };
        match path {
            Path::Background if self.state() == StoreState::Away => Err(StoreError::Away.into()),
            Path::Background => {
                let answer = self.server.pool.call(call, budget, step).await;
                answer.inspect_err(|error| {
                    if let CallError::Store(error) = error {
                        self.server.counters.count(error);
                    }
                })
            }
            Path::Requests if carriage == Carriage::Large => {
                self.open(self.begin_large(), budget).await?.call(call, left(), step).await
            }
            // WAIT holds up what comes behind it on its connection.
            Path::Requests if waits => {
                let link = self.confirmed.get_or_init(|| self.server.link());
                self.open(link, budget).await?.call(call, left(), step).await
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_confirms_while_it_follows_and_answers() {
        for (replica, confirms) in [
            ("ip=10.0.0.2,port=6379,state=online,offset=9,lag=0", true),
            ("ip=10.0.0.2,port=6379,state=online,offset=9,lag=5", true),
            ("ip=10.0.0.2,port=6379,state=online,offset=9,lag=6", false),
            ("ip=10.0.0.2,port=6379,state=wait_bgsave,offset=0,lag=0", false),
            ("ip=10.0.0.2,port=6379,state=send_bulk,offset=0,lag=0", false),
            ("", false),
        ] {
            assert_eq!(does_confirm(replica), confirms, "{replica}");
        }
    }
}
