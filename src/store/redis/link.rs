//! One connection to Redis, kept: a cell that is empty while Redis is away, a task that fills it
//! again, and the breaker.
//!
//! Not redis-rs's own `ConnectionManager`: its calls wait for its reconnects, for seconds. Here a
//! call either finds a connection or learns at once that there is none. Which commands are sent
//! is not known here.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisError, RedisResult};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::fault::Fault;
use crate::store::{Counters, StoreState};
use crate::store::{Limits, StoreError};

/// This many calls in a row without an answer open the breaker.
pub(super) const TIMEOUTS_TO_OPEN: u32 = 5;
/// Between two heartbeats, and so how long an open breaker stays open at least.
pub(super) const BEAT: Duration = Duration::from_secs(1);
/// After this many heartbeats in a row without an answer the connection is made anew.
const BEATS_TO_RECONNECT: u32 = 3;
/// The first and the longest pause between two attempts to connect.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How long one attempt may take, log-in to Redis included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// What is said of a connection that is of no more use.
const BROKE: &str = "the connection to Redis broke: connecting again";

/// What a call may cost, and what its failure means.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    /// Changes nothing: may be taken as not asked when the connection breaks.
    Read,
    /// Changes something: when the connection breaks, nobody knows whether it did.
    Write,
}

/// A kept connection. Clones are the same one; with the last of them the keeper's task ends.
#[derive(Clone, Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
    _keeper: Arc<Keeper>,
}

#[derive(Debug)]
struct Keeper(AbortHandle);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug)]
struct Shared {
    client: redis::Client,
    limits: Limits,
    counters: Arc<Counters>,
    line: Mutex<Line>,
    /// Calls in a row that used up their budget.
    timeouts: AtomicU32,
    /// Tells the keeper that the connection broke or the breaker opened.
    trouble: Notify,
    /// Tells those who wait for it that the store is connected.
    up: Notify,
}

/// The connection, under a lock that is never held across an await.
#[derive(Debug, Default)]
struct Line {
    connection: Option<MultiplexedConnection>,
    /// Counts connections: an error of an earlier one must not end a later one.
    generation: u64,
    /// The breaker: while it is open, calls fail at once.
    open: bool,
}

impl Link {
    /// Begins to connect, and keeps at it. In a tokio runtime only.
    pub(super) fn start(client: redis::Client, limits: Limits, counters: Arc<Counters>) -> Self {
        let shared = Arc::new(Shared {
            client,
            limits,
            counters,
            line: Mutex::default(),
            timeouts: AtomicU32::new(0),
            trouble: Notify::new(),
            up: Notify::new(),
        });
        #[allow(
            clippy::disallowed_methods,
            reason = "the link owns its keeper and ends it on drop"
        )]
        let keeper = tokio::spawn(keep(Arc::clone(&shared)));
        Self { shared, _keeper: Arc::new(Keeper(keeper.abort_handle())) }
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

    /// One step within its budget. `Away` means that nothing was changed; `TimedOut` and `Unanswered`
    /// of a write mean that nobody knows; `Failed` is what the server said.
    pub(super) async fn call<T, F>(
        &self,
        call: Call,
        step: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let shared = &self.shared;
        let Some((connection, generation)) = shared.connection() else {
            return Err(StoreError::Away);
        };
        let budget = match call {
            Call::Read => shared.limits.read_timeout,
            Call::Write => shared.limits.write_timeout,
        };
        let answer = match timeout(budget, step(connection)).await {
            Ok(Ok(value)) => {
                shared.answered();
                return Ok(value);
            }
            Ok(Err(error)) => shared.failed(generation, call, error),
            Err(_elapsed) => shared.timed_out(),
        };
        shared.counters.count(&answer);
        Err(answer)
    }
}

impl Shared {
    fn line(&self) -> MutexGuard<'_, Line> {
        // No code that can panic runs under this lock.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> StoreState {
        match *self.line() {
            Line { connection: Some(_), open: false, .. } => StoreState::Connected,
            _ => StoreState::Away,
        }
    }

    fn connection(&self) -> Option<(MultiplexedConnection, u64)> {
        let line = self.line();
        if line.open {
            return None;
        }
        Some((line.connection.clone()?, line.generation))
    }

    fn answered(&self) {
        if self.timeouts.load(Ordering::Relaxed) != 0 {
            self.timeouts.store(0, Ordering::Relaxed);
        }
    }

    fn timed_out(&self) -> StoreError {
        let timeouts = self.timeouts.fetch_add(1, Ordering::Relaxed) + 1;
        if timeouts >= TIMEOUTS_TO_OPEN {
            let mut line = self.line();
            if !line.open {
                line.open = true;
                self.counters.opened();
                self.trouble.notify_one();
                tracing::warn!("Redis does not answer in time: doing without it");
            }
        }
        StoreError::TimedOut
    }

    fn failed(&self, generation: u64, call: Call, error: RedisError) -> StoreError {
        let fault = Fault::of(&error);
        match fault {
            Fault::TimedOut => return self.timed_out(),
            Fault::Demoted => self.hang_up(generation, "Redis takes no writes: connecting again"),
            Fault::Broken => self.hang_up(generation, BROKE),
            Fault::NotReady | Fault::Refused => self.answered(),
        }
        fault.into_store_error(call, error)
    }

    /// Gives up a connection, unless it has been replaced already.
    fn hang_up(&self, generation: u64, why: &str) {
        let mut line = self.line();
        if line.generation == generation && line.connection.take().is_some() {
            self.trouble.notify_one();
            tracing::warn!("{why}");
        }
    }

    fn install(&self, connection: MultiplexedConnection) {
        let mut line = self.line();
        line.connection = Some(connection);
        line.generation += 1;
        drop(line);
        self.close_breaker();
    }

    fn close_breaker(&self) {
        self.timeouts.store(0, Ordering::Relaxed);
        self.line().open = false;
        self.up.notify_waiters();
    }
}

/// The keeper's task: connects, watches, and connects again, for ever.
async fn keep(shared: Arc<Shared>) {
    let (shortest, longest) = BACK_OFF;
    let mut pause = shortest;
    loop {
        let connection = connect(&shared).await;
        shared.install(connection);
        tracing::info!("connected to Redis");
        let began = Instant::now();
        watch(&shared).await;
        // A server that is there but of no use, such as a replica, is not stormed.
        if began.elapsed() < longest {
            sleep(jittered(pause)).await;
            pause = (pause * 2).min(longest);
        } else {
            pause = shortest;
        }
    }
}

/// The jitter keeps many proxies from coming back in the same instant.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}

async fn connect(shared: &Shared) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        // Our own budgets end a call sooner; this only bounds what nobody waits for any more.
        .set_response_timeout(Some(shared.limits.write_timeout * 2));
    let (mut pause, longest) = BACK_OFF;
    let mut said = false;
    loop {
        let attempt = shared.client.get_multiplexed_async_connection_with_config(&config);
        let reason = match timeout(CONNECT_TIMEOUT, attempt).await {
            Ok(Ok(connection)) => return connection,
            Ok(Err(error)) => error.to_string(),
            Err(_elapsed) => "it does not answer".to_owned(),
        };
        if !said {
            tracing::warn!(reason, "cannot connect to Redis: trying on");
            said = true;
        }
        sleep(jittered(pause)).await;
        pause = (pause * 2).min(longest);
    }
}

/// Sends a heartbeat each second, which finds a dead connection that nobody uses and closes the
/// breaker when Redis answers again. Returns when the connection is gone.
async fn watch(shared: &Shared) {
    let mut missed = 0;
    loop {
        let told = timeout(BEAT, shared.trouble.notified()).await.is_ok();
        let (connection, generation) = {
            let line = shared.line();
            let Some(connection) = line.connection.clone() else { return };
            (connection, line.generation)
        };
        if told {
            // The breaker has just opened: leave Redis alone for a whole beat.
            continue;
        }
        match beat(connection, shared.limits.read_timeout).await {
            Beat::Answered => {
                missed = 0;
                shared.close_breaker();
            }
            Beat::Broken => shared.hang_up(generation, BROKE),
            Beat::Missed => {
                missed += 1;
                shared.timed_out();
                if missed >= BEATS_TO_RECONNECT {
                    shared.hang_up(generation, BROKE);
                }
            }
        }
    }
}

enum Beat {
    Answered,
    Missed,
    Broken,
}

async fn beat(mut connection: MultiplexedConnection, budget: Duration) -> Beat {
    match timeout(budget, redis::cmd("PING").exec_async(&mut connection)).await {
        Ok(Ok(())) => Beat::Answered,
        Ok(Err(error)) if matches!(Fault::of(&error), Fault::Broken | Fault::TimedOut) => {
            Beat::Broken
        }
        // It answered, though with an error: it is loading, or we may not ping. The calls tell.
        Ok(Err(_)) => Beat::Answered,
        Err(_elapsed) => Beat::Missed,
    }
}
