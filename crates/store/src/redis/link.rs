//! One persistent connection to Redis: a cell that is empty while Redis is away, a task that
//! refills it, and the breaker.
//!
//! This is not redis-rs's own `ConnectionManager`: its calls wait for its reconnects, for seconds.
//! Here a call either finds a connection or fails at once. The link does not know the commands.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisError, RedisResult};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::fault::{CallError, RedisCall, RedisFault, denial, tell_denial};
use crate::{StoreCounters, StoreError, StoreLimits, StoreState};

/// This many calls in a row without an answer open the breaker.
pub(super) const TIMEOUTS_TO_OPEN: u32 = 5;
/// The time between two heartbeats, and so the least time that the breaker stays open.
pub(super) const BEAT: Duration = Duration::from_secs(1);
/// After this many heartbeats in a row without an answer the connection is replaced.
const BEATS_TO_RECONNECT: u32 = 3;
/// The first and the longest pause between two attempts to connect.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How long one attempt may take, including authentication.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Logged when a connection is unusable.
const BROKE: &str = "the connection to Redis broke: reconnecting";

/// A persistent connection. Clones share it; the keeper's task ends with the last of them.
#[derive(Clone, Debug)]
pub(super) struct Link {
    shared: Arc<LinkState>,
    _keeper: Arc<AbortOnDrop>,
}

#[derive(Debug)]
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug)]
struct LinkState {
    client: redis::Client,
    limits: StoreLimits,
    counters: Arc<StoreCounters>,
    cell: Mutex<ConnectionCell>,
    /// Calls in a row that used up their budget.
    timeouts: AtomicU32,
    /// Whether it was told that the server is a replica, and no write has been taken since.
    replica_told: AtomicBool,
    /// Wakes the keeper when the connection broke or the breaker opened.
    trouble: Notify,
    /// Wakes waiting callers when the store is connected.
    up: Notify,
}

/// The connection, under a lock that is never held across an await.
#[derive(Debug, Default)]
struct ConnectionCell {
    connection: Option<MultiplexedConnection>,
    /// Counts connections: an error of an earlier one must not close a later one.
    generation: u64,
    /// The breaker: while it is open, calls fail at once.
    open: bool,
    /// Whether the server refused a write as a replica. Reads go on until another connection is made, which may lead
    /// to the primary.
    is_replica: bool,
}

impl Link {
    /// Begins to connect, and retries. In a tokio runtime only.
    pub(super) fn start(
        client: redis::Client,
        limits: StoreLimits,
        counters: Arc<StoreCounters>,
    ) -> Self {
        let shared = Arc::new(LinkState {
            client,
            limits,
            counters,
            cell: Mutex::default(),
            timeouts: AtomicU32::new(0),
            replica_told: AtomicBool::new(false),
            trouble: Notify::new(),
            up: Notify::new(),
        });
        #[allow(
            clippy::disallowed_methods,
            reason = "the link owns its keeper and ends it on drop"
        )]
        let keeper = tokio::spawn(keep(Arc::clone(&shared)));
        Self { shared, _keeper: Arc::new(AbortOnDrop(keeper.abort_handle())) }
    }

    pub(super) fn state(&self) -> StoreState {
        self.shared.state()
    }

    /// Returns once the link is connected, at once if it is.
    pub(super) async fn connected(&self) {
        loop {
            let up = self.shared.up.notified();
            if self.state() == StoreState::Connected {
                return;
            }
            up.await;
        }
    }

    /// One step within its budget. `Away` means that nothing was changed; `TimedOut` and
    /// `Unanswered` of a write mean that the result is unknown; `Failed` is an error from the
    /// server.
    pub(super) async fn call<T, F>(
        &self,
        call: RedisCall,
        budget: Duration,
        step: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let shared = &self.shared;
        let Some((connection, generation)) = shared.connection() else {
            return Err(StoreError::Away.into());
        };
        let began = Instant::now();
        let answered = timeout(budget, step(connection)).await;
        shared.counters.took(began.elapsed());
        let answer = match answered {
            Ok(Ok(value)) => {
                shared.answered();
                if matches!(call, RedisCall::Write) {
                    shared.took_write();
                }
                return Ok(value);
            }
            Ok(Err(error)) => shared.failed(generation, call, error),
            Err(_elapsed) => shared.timed_out().into(),
        };
        if let CallError::Store(error) = &answer {
            shared.counters.count(error);
        }
        Err(answer)
    }
}

impl LinkState {
    fn cell(&self) -> MutexGuard<'_, ConnectionCell> {
        // No code that can panic runs under this lock.
        self.cell.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> StoreState {
        match *self.cell() {
            ConnectionCell { connection: Some(_), open: false, .. } => StoreState::Connected,
            _ => StoreState::Away,
        }
    }

    fn connection(&self) -> Option<(MultiplexedConnection, u64)> {
        let cell = self.cell();
        if cell.open {
            return None;
        }
        Some((cell.connection.clone()?, cell.generation))
    }

    fn answered(&self) {
        if self.timeouts.load(Ordering::Relaxed) != 0 {
            self.timeouts.store(0, Ordering::Relaxed);
        }
    }

    fn timed_out(&self) -> StoreError {
        let timeouts = self.timeouts.fetch_add(1, Ordering::Relaxed) + 1;
        if timeouts >= TIMEOUTS_TO_OPEN {
            let mut cell = self.cell();
            if !cell.open {
                cell.open = true;
                self.counters.opened();
                self.trouble.notify_one();
                tracing::warn!("Redis does not answer in time: continuing without it");
            }
        }
        StoreError::TimedOut
    }

    fn failed(&self, generation: u64, call: RedisCall, error: RedisError) -> CallError {
        let fault = RedisFault::of(&error);
        match fault {
            RedisFault::TimedOut => return self.timed_out().into(),
            RedisFault::Demoted => self.demoted(generation),
            RedisFault::Broken => self.hang_up(generation, BROKE),
            RedisFault::NotReady
            | RedisFault::Refused
            | RedisFault::Redirected(_)
            | RedisFault::Split => self.answered(),
        }
        tell_denial(&error);
        fault.into_call_error(call, error)
    }

    /// Drops a connection, unless it has been replaced already.
    fn hang_up(&self, generation: u64, why: &str) {
        let mut cell = self.cell();
        if cell.generation == generation && cell.connection.take().is_some() {
            self.trouble.notify_one();
            tracing::warn!("{why}");
        }
    }

    /// Has a connection replaced that leads to a replica, unless it has been already.
    fn demoted(&self, generation: u64) {
        let mut cell = self.cell();
        if cell.generation == generation && !cell.is_replica {
            cell.is_replica = true;
            self.trouble.notify_one();
            if !self.replica_told.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "Redis is a replica and takes no writes: reading on, and looking for the primary"
                );
            }
        }
    }

    fn took_write(&self) {
        if self.replica_told.load(Ordering::Relaxed) {
            self.replica_told.store(false, Ordering::Relaxed);
            tracing::info!("Redis takes writes again");
        }
    }

    fn install(&self, connection: MultiplexedConnection) {
        let mut cell = self.cell();
        cell.connection = Some(connection);
        cell.generation += 1;
        cell.is_replica = false;
        drop(cell);
        self.close_breaker();
    }

    fn close_breaker(&self) {
        self.timeouts.store(0, Ordering::Relaxed);
        self.cell().open = false;
        self.up.notify_waiters();
    }
}

/// The keeper's task: connects, watches, and reconnects, for ever.
async fn keep(shared: Arc<LinkState>) {
    let (shortest, longest) = BACK_OFF;
    let (mut pause, mut was_lost) = (shortest, false);
    loop {
        let (connection, is_late) = connect(&shared).await;
        shared.install(connection);
        // Each thread has connections of its own: only what ends a warning is said.
        if was_lost || is_late {
            tracing::info!("connected to Redis");
        }
        let began = Instant::now();
        was_lost = watch(&shared).await == WatchEnd::Lost;
        // Do not storm a server that is up but unusable, such as a replica.
        if began.elapsed() < longest {
            sleep(jittered(pause)).await;
            pause = (pause * 2).min(longest);
        } else {
            pause = shortest;
        }
    }
}

/// The jitter keeps many proxies from reconnecting in the same instant.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// Connects, and says whether there was a failure before.
async fn connect(shared: &LinkState) -> (MultiplexedConnection, bool) {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        // The call's own budget is shorter; this only bounds calls that were given up.
        .set_response_timeout(Some(shared.limits.write_timeout * 2));
    let (mut pause, longest) = BACK_OFF;
    let mut logged = false;
    loop {
        let attempt = open(&shared.client, &config);
        let reason = match timeout(CONNECT_TIMEOUT, attempt).await {
            Ok(Ok(connection)) => return (connection, logged),
            Ok(Err(error)) => denial(&error).unwrap_or_else(|| error.to_string()),
            Err(_elapsed) => "it does not answer".to_owned(),
        };
        if !logged {
            tracing::warn!(reason, "cannot connect to Redis: retrying");
            logged = true;
        }
        sleep(jittered(pause)).await;
        pause = (pause * 2).min(longest);
    }
}

/// Connects to a server that takes commands. One that wants a password takes the connection all the same, and closes it
/// at the first long command.
async fn open(
    client: &redis::Client,
    config: &AsyncConnectionConfig,
) -> RedisResult<MultiplexedConnection> {
    let mut connection = client.get_multiplexed_async_connection_with_config(config).await?;
    let Err(error) = redis::cmd("PING").exec_async(&mut connection).await else {
        return Ok(connection);
    };
    match RedisFault::of(&error) {
        RedisFault::Broken | RedisFault::TimedOut => Err(error),
        _ if error.code() == Some("NOAUTH") => Err(error),
        // An error is an answer: Redis is loading, or PING is forbidden. The calls will show it.
        _ => Ok(connection),
    }
}

/// Why a connection is to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchEnd {
    /// It is gone.
    Lost,
    /// It leads to a replica, and is used until there is another.
    Replica,
}

/// Sends a heartbeat each second, which detects a dead idle connection and closes the breaker when
/// Redis answers again. Returns when the connection is gone, or leads to a replica.
async fn watch(shared: &LinkState) -> WatchEnd {
    let mut missed = 0;
    loop {
        let woken = timeout(BEAT, shared.trouble.notified()).await.is_ok();
        let (connection, generation) = {
            let cell = shared.cell();
            let Some(connection) = cell.connection.clone() else { return WatchEnd::Lost };
            if cell.is_replica {
                return WatchEnd::Replica;
            }
            (connection, cell.generation)
        };
        if woken {
            // The breaker has just opened: send nothing for a whole beat.
            continue;
        }
        match beat(connection, shared.limits.read_timeout).await {
            Heartbeat::Answered => {
                missed = 0;
                shared.close_breaker();
            }
            Heartbeat::Broken => shared.hang_up(generation, BROKE),
            Heartbeat::Missed => {
                missed += 1;
                shared.timed_out();
                if missed >= BEATS_TO_RECONNECT {
                    shared.hang_up(generation, BROKE);
                }
            }
        }
    }
}

enum Heartbeat {
    Answered,
    Missed,
    Broken,
}

async fn beat(mut connection: MultiplexedConnection, budget: Duration) -> Heartbeat {
    match timeout(budget, redis::cmd("PING").exec_async(&mut connection)).await {
        Ok(Ok(())) => Heartbeat::Answered,
        Ok(Err(error))
            if matches!(RedisFault::of(&error), RedisFault::Broken | RedisFault::TimedOut) =>
        {
            Heartbeat::Broken
        }
        // An error is an answer: Redis is loading, or PING is forbidden. The calls will show it.
        Ok(Err(_)) => Heartbeat::Answered,
        Err(_elapsed) => Heartbeat::Missed,
    }
}
