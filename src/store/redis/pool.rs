//! Connections for tasks and administration: a few, each for one call at a time, made when they are wanted
//! and closed when they rest. What is slow here, a large export for one, keeps no request waiting, for
//! requests have connections of their own. A check-out costs several times a multiplexed call.
//!
//! Every call has the budget of a write. What does not get a connection within it has changed nothing.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bb8::{ManageConnection, QueueStrategy};
use bb8_redis::RedisConnectionManager;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult};
use tokio::time::{Instant, timeout_at};

use super::fault::Fault;
use super::link::{BEAT, Call, TIMEOUTS_TO_OPEN};
use crate::store::Counters;
use crate::store::{Limits, StoreError};

/// Connections at a time.
const SIZE: u32 = 4;
/// How long one may rest until it is closed.
const REST: Duration = Duration::from_secs(30);
/// A connection that has rested for this long is tried before it is used.
const TRUSTED: Duration = Duration::from_secs(1);

/// The pool.
#[derive(Debug)]
pub(super) struct Pool {
    connections: bb8::Pool<Manager>,
    breaker: Breaker,
    budget: Duration,
}

impl Pool {
    /// Connects nowhere yet. In a tokio runtime only.
    pub(super) fn new(
        client: &redis::Client,
        limits: Limits,
        counters: Arc<Counters>,
    ) -> Result<Self, RedisError> {
        let budget = limits.write_timeout;
        let inner = RedisConnectionManager::new(client.get_connection_info().clone())?;
        let connections = bb8::Pool::builder()
            .max_size(SIZE)
            .connection_timeout(budget)
            .idle_timeout(Some(REST))
            // The one that was used last is the one that need not be tried.
            .queue_strategy(QueueStrategy::Lifo)
            .build_unchecked(Manager { inner, budget });
        Ok(Self { connections, breaker: Breaker::new(counters), budget })
    }

    /// One step within the budget. What its errors mean is as for [`super::link::Link::call`].
    pub(super) async fn call<T, F>(
        &self,
        call: Call,
        step: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = RedisResult<T>>,
    {
        if self.breaker.is_open() {
            return Err(StoreError::Away);
        }
        let deadline = Instant::now() + self.budget;
        let Ok(Ok(mut seat)) = timeout_at(deadline, self.connections.get()).await else {
            self.breaker.timed_out();
            return Err(StoreError::Away);
        };
        seat.is_sound = false;
        let Ok(answer) = timeout_at(deadline, step(seat.connection.clone())).await else {
            self.breaker.timed_out();
            return Err(StoreError::TimedOut);
        };
        let fault = answer.as_ref().err().map(Fault::of);
        match fault {
            Some(Fault::TimedOut) => self.breaker.timed_out(),
            Some(Fault::Broken | Fault::Demoted) => {}
            Some(Fault::NotReady | Fault::Refused) | None => {
                seat.is_sound = true;
                seat.used = Instant::now();
                self.breaker.answered();
            }
        }
        answer.map_err(|error| fault.unwrap_or(Fault::Refused).into_store_error(call, error))
    }
}

/// A connection of the pool.
#[derive(Debug)]
struct Seat {
    connection: MultiplexedConnection,
    /// Whether it owes no answer: one whose call was given up is closed.
    is_sound: bool,
    used: Instant,
}

#[derive(Debug)]
struct Manager {
    inner: RedisConnectionManager,
    budget: Duration,
}

impl ManageConnection for Manager {
    type Connection = Seat;
    type Error = RedisError;

    async fn connect(&self) -> Result<Seat, RedisError> {
        let mut connection = self.inner.connect().await?;
        // Calls end within their budget; redis-rs would end them after half a second.
        connection.set_response_timeout(self.budget * 2);
        Ok(Seat { connection, is_sound: true, used: Instant::now() })
    }

    async fn is_valid(&self, seat: &mut Seat) -> Result<(), RedisError> {
        if seat.used.elapsed() < TRUSTED {
            return Ok(());
        }
        seat.is_sound = false;
        self.inner.is_valid(&mut seat.connection).await?;
        seat.is_sound = true;
        Ok(())
    }

    fn has_broken(&self, seat: &mut Seat) -> bool {
        !seat.is_sound
    }
}

/// Opens for a moment after calls in a row without an answer. After it one call tries.
#[derive(Debug)]
struct Breaker {
    timeouts: AtomicU32,
    open_until: Mutex<Option<Instant>>,
    counters: Arc<Counters>,
}

impl Breaker {
    fn new(counters: Arc<Counters>) -> Self {
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
            tracing::warn!("Redis does not answer tasks in time: they wait");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_breaker_opens_for_a_moment_and_again_until_a_call_is_answered() {
        let counters = Arc::<Counters>::default();
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
