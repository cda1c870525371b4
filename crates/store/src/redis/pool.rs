//! Connections for tasks and administration: a few, each for one call at a time, opened on demand
//! and closed when idle. A slow call here, such as a large export, delays no request, because
//! requests have connections of their own. A check-out costs several times as much as a multiplexed
//! call.
//!
//! A call that gets no connection within its budget has changed nothing.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bb8::{ManageConnection, QueueStrategy};
use bb8_redis::RedisConnectionManager;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult};
use tokio::time::{Instant, timeout_at};

use super::fault::{CallError, RedisCall, RedisFault, tell_denial};
use super::link::{BEAT, TIMEOUTS_TO_OPEN};
use crate::{StoreCounters, StoreError, StoreLimits};

/// Connections at a time.
const SIZE: u32 = 4;
/// How long one may be idle before it is closed.
const REST: Duration = Duration::from_secs(30);
/// A connection that has been idle for this long is tested before use.
const TRUSTED: Duration = Duration::from_secs(1);

/// The pool.
#[derive(Debug)]
pub(super) struct Pool {
    connections: bb8::Pool<Manager>,
    breaker: Breaker,
}

impl Pool {
    /// Does not connect yet. In a tokio runtime only.
    pub(super) fn new(
        client: &redis::Client,
        limits: StoreLimits,
        counters: Arc<StoreCounters>,
    ) -> Result<Self, RedisError> {
        let budget = limits.write_timeout;
        let inner = RedisConnectionManager::new(client.get_connection_info().clone())?;
        let connections = bb8::Pool::builder()
            .max_size(SIZE)
            .connection_timeout(budget)
            .idle_timeout(Some(REST))
            // The connection that was used last need not be tested.
            .queue_strategy(QueueStrategy::Lifo)
            .build_unchecked(Manager { inner, budget });
        Ok(Self { connections, breaker: Breaker::new(counters) })
    }

    /// One step within the budget. Its errors are those of [`super::link::Link::call`].
    pub(super) async fn call<T, F>(
        &self,
        call: RedisCall,
        budget: Duration,
        step: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = RedisResult<T>>,
    {
        if self.breaker.is_open() {
            return Err(StoreError::Away.into());
        }
        let deadline = Instant::now() + budget;
        let Ok(Ok(mut pooled)) = timeout_at(deadline, self.connections.get()).await else {
            self.breaker.timed_out();
            return Err(StoreError::Away.into());
        };
        pooled.is_sound = false;
        let Ok(answer) = timeout_at(deadline, step(pooled.connection.clone())).await else {
            self.breaker.timed_out();
            return Err(StoreError::TimedOut.into());
        };
        let fault = answer.as_ref().err().map(RedisFault::of);
        match fault {
            Some(RedisFault::TimedOut) => self.breaker.timed_out(),
            Some(RedisFault::Broken | RedisFault::Demoted) => {}
            Some(
                RedisFault::NotReady
                | RedisFault::Refused
                | RedisFault::Redirected(_)
                | RedisFault::Split,
            )
            | None => {
                pooled.is_sound = true;
                pooled.used = Instant::now();
                self.breaker.answered();
            }
        }
        answer.map_err(|error| {
            tell_denial(&error);
            fault.unwrap_or(RedisFault::Refused).into_call_error(call, error)
        })
    }
}

/// A connection of the pool.
#[derive(Debug)]
struct PoolConnection {
    connection: MultiplexedConnection,
    /// Whether no answer is outstanding: the connection of an abandoned call is closed.
    is_sound: bool,
    used: Instant,
}

#[derive(Debug)]
struct Manager {
    inner: RedisConnectionManager,
    budget: Duration,
}

impl ManageConnection for Manager {
    type Connection = PoolConnection;
    type Error = RedisError;

    async fn connect(&self) -> Result<PoolConnection, RedisError> {
        let mut connection = self.inner.connect().await?;
        // Calls end within their budget; redis-rs would end them after half a second.
        connection.set_response_timeout(self.budget * 2);
        Ok(PoolConnection { connection, is_sound: true, used: Instant::now() })
    }

    async fn is_valid(&self, pooled: &mut PoolConnection) -> Result<(), RedisError> {
        if pooled.used.elapsed() < TRUSTED {
            return Ok(());
        }
        pooled.is_sound = false;
        self.inner.is_valid(&mut pooled.connection).await?;
        pooled.is_sound = true;
        Ok(())
    }

    fn has_broken(&self, pooled: &mut PoolConnection) -> bool {
        !pooled.is_sound
    }
}

/// Opens for a moment after calls in a row without an answer. After that one call tries.
#[derive(Debug)]
struct Breaker {
    timeouts: AtomicU32,
    open_until: Mutex<Option<Instant>>,
    counters: Arc<StoreCounters>,
}

impl Breaker {
    fn new(counters: Arc<StoreCounters>) -> Self {
        Self { timeouts: AtomicU32::new(0), open_until: Mutex::default(), counters }
    }

    fn open_until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.open_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_open(&self) -> bool {
        self.open_until().is_some_and(|end| Instant::now() < end)
    }

    fn answered(&self) {
        self.timeouts.store(0, Ordering::Relaxed);
    }

    fn timed_out(&self) {
        let timeouts = self.timeouts.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if timeouts < TIMEOUTS_TO_OPEN {
            return;
        }
        *self.open_until() = Some(Instant::now() + BEAT);
        if timeouts == TIMEOUTS_TO_OPEN {
            self.counters.opened();
            tracing::warn!("Redis does not answer background tasks in time: they are paused");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_breaker_opens_for_a_moment_and_again_until_a_call_is_answered() {
        let counters = Arc::<StoreCounters>::default();
        let breaker = Breaker::new(Arc::clone(&counters));
        for _ in 1..TIMEOUTS_TO_OPEN {
            breaker.timed_out();
        }
        assert!(!breaker.is_open());
        breaker.timed_out();
        assert!(breaker.is_open());
        tokio::time::advance(BEAT).await;
        assert!(!breaker.is_open(), "one call may try");
        breaker.timed_out();
        assert!(breaker.is_open());
        assert_eq!(counters.read().breaker_openings, 1, "it never closed");
        tokio::time::advance(BEAT).await;
        breaker.answered();
        breaker.timed_out();
        assert!(!breaker.is_open());
    }
}
