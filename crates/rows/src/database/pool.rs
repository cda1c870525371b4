//! The connections to one database: a few, and none that is in doubt.
//!
//! A connection belongs to a read while that runs. It comes back only after an answer that was read
//! to its end; so a read that is dropped, times out or breaks off closes its connection. The
//! drivers' own pools return such connections, after they have read what still arrives.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::found::{FoundRow, QueryError};
use super::listener::Listener;
use super::query::RowQuery;
use super::server::DatabaseServer;

/// A connection that is older is not used again: names and servers change.
const AGE_MAX: Duration = Duration::from_secs(30 * 60);
/// The pause after the first connection that failed.
const FIRST_REST: Duration = Duration::from_millis(100);
/// The longest pause between two attempts to connect. Rows are due again within their interval.
const LONGEST_REST: Duration = Duration::from_secs(1);
/// How much longer than the server a query is waited for.
const SPARE: Duration = Duration::from_millis(500);

/// The connections to one database.
pub(super) struct Pool<S: DatabaseServer> {
    server: S,
    permits: Semaphore,
    /// Connections not in use, and when each was opened.
    idle: RefCell<Vec<(S::Connection, Instant)>>,
    /// Attempts to connect that failed, one after another.
    failures: Cell<u32>,
    /// When the next attempt may begin.
    rests_until: Cell<Option<Instant>>,
}

impl<S: DatabaseServer> fmt::Debug for Pool<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("failures", &self.failures).finish_non_exhaustive()
    }
}

impl<S: DatabaseServer> Pool<S> {
    pub(super) fn new(server: S, most: usize) -> Self {
        Self {
            server,
            permits: Semaphore::new(most),
            idle: RefCell::default(),
            failures: Cell::default(),
            rests_until: Cell::default(),
        }
    }

    /// Runs the query for some ids, over an idle connection or a new one.
    pub(super) async fn read(
        &self,
        query: &RowQuery,
        ids: &[&str],
    ) -> Result<Vec<FoundRow>, QueryError> {
        let _permit =
            self.permits.acquire().await.map_err(|error| QueryError::Away(error.into()))?;
        let used = self.take();
        let was_used = used.is_some();
        let read = self.read_over(used, query, ids).await;
        match read {
            // The server closed it meanwhile, perhaps at a restart.
            Err(why) if was_used && why.is_away() => {
                self.idle.borrow_mut().clear();
                self.read_over(None, query, ids).await
            }
            read => read,
        }
    }

    async fn read_over(
        &self,
        used: Option<(S::Connection, Instant)>,
        query: &RowQuery,
        ids: &[&str],
    ) -> Result<Vec<FoundRow>, QueryError> {
        let (mut connection, opened) = match used {
            Some(used) => used,
            None => (self.connect().await?, Instant::now()),
        };
        let read = self.server.read(&mut connection, query, ids);
        let read = tokio::time::timeout(self.server.timeout() + SPARE, read).await;
        let read = read.unwrap_or(Err(QueryError::TimedOut));
        if read.as_ref().map_or_else(QueryError::leaves_connection, |_| true) {
            self.idle.borrow_mut().push((connection, opened));
        }
        read
    }

    /// The ids that a query lists.
    pub(super) async fn ids(&self, sql: &str) -> Result<Vec<String>, QueryError> {
        let mut connection = self.connect().await?;
        let ids = self.server.ids(&mut connection, sql);
        tokio::time::timeout(self.server.timeout() + SPARE, ids)
            .await
            .unwrap_or(Err(QueryError::TimedOut))
    }

    /// Opens a connection over which changes are announced. It is not one of the pool's.
    pub(super) async fn listen(&self, channels: &[&str]) -> Result<Listener, QueryError> {
        tokio::time::timeout(self.server.timeout(), self.server.listen(channels))
            .await
            .unwrap_or(Err(QueryError::TimedOut))
    }

    /// Prepares the query over a connection of its own.
    pub(super) async fn check(&self, query: &RowQuery) -> Result<(), QueryError> {
        let mut connection = self.connect().await?;
        let check = self.server.check(&mut connection, query);
        tokio::time::timeout(self.server.timeout(), check)
            .await
            .unwrap_or(Err(QueryError::TimedOut))
    }

    fn take(&self) -> Option<(S::Connection, Instant)> {
        let mut idle = self.idle.borrow_mut();
        idle.retain(|(_, opened)| opened.elapsed() < AGE_MAX);
        idle.pop()
    }

    async fn connect(&self) -> Result<S::Connection, QueryError> {
        if self.rests_until.get().is_some_and(|until| Instant::now() < until) {
            return Err(QueryError::Resting);
        }
        let connected = tokio::time::timeout(self.server.timeout(), self.server.connect()).await;
        let connected = connected.unwrap_or_else(|_| {
            Err(QueryError::Away("it did not accept a connection in time".into()))
        });
        if connected.is_ok() {
            self.failures.set(0);
            self.rests_until.set(None);
        } else {
            let failures = self.failures.get();
            self.failures.set(failures.saturating_add(1));
            self.rests_until.set(Some(Instant::now() + rest(failures, fastrand::f64())));
        }
        connected
    }
}

/// The pause after a failure that `failures` others came before: doubled by each. The jitter, 0 to
/// 1, keeps proxies apart.
fn rest(failures: u32, jitter: f64) -> Duration {
    let doubled = FIRST_REST.saturating_mul(1 << failures.min(16));
    doubled.min(LONGEST_REST).mul_f64(0.5 + jitter / 2.0)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    /// Fails as set; counts connections, opened and alive.
    #[derive(Default)]
    struct ScriptedServer {
        opened: Cell<usize>,
        alive: Rc<Cell<usize>>,
        away: Cell<bool>,
        hangs: Cell<bool>,
    }

    struct ScriptedConnection(Rc<Cell<usize>>);

    impl Drop for ScriptedConnection {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }

    impl DatabaseServer for ScriptedServer {
        type Connection = ScriptedConnection;

        async fn connect(&self) -> Result<ScriptedConnection, QueryError> {
            self.opened.set(self.opened.get() + 1);
            if self.away.get() {
                return Err(QueryError::Away("refused".into()));
            }
            self.alive.set(self.alive.get() + 1);
            Ok(ScriptedConnection(Rc::clone(&self.alive)))
        }

        async fn read(
            &self,
            _: &mut ScriptedConnection,
            _: &RowQuery,
            _: &[&str],
        ) -> Result<Vec<FoundRow>, QueryError> {
            if self.hangs.get() {
                std::future::pending::<()>().await;
            }
            tokio::task::yield_now().await;
            if self.away.get() { Err(QueryError::Away("broken".into())) } else { Ok(Vec::new()) }
        }

        async fn check(&self, _: &mut ScriptedConnection, _: &RowQuery) -> Result<(), QueryError> {
            Ok(())
        }

        async fn ids(
            &self,
            _: &mut ScriptedConnection,
            _: &str,
        ) -> Result<Vec<String>, QueryError> {
            Ok(Vec::new())
        }

        async fn listen(&self, _: &[&str]) -> Result<Listener, QueryError> {
            Err(QueryError::Resting)
        }

        fn timeout(&self) -> Duration {
            Duration::from_secs(2)
        }
    }

    fn query() -> RowQuery {
        let (sql, id_column) = (String::new(), String::new());
        RowQuery { sql, id_column, many: false, batch: None }
    }

    async fn read(pool: &Pool<ScriptedServer>) -> Result<Vec<FoundRow>, QueryError> {
        pool.read(&query(), &["1"]).await
    }

    #[tokio::test(start_paused = true)]
    async fn connections_are_used_again_and_bounded() {
        let pool = Pool::new(ScriptedServer::default(), 2);
        for _ in 0..3 {
            read(&pool).await.unwrap();
        }
        assert_eq!(pool.server.opened.get(), 1);
        let four = tokio::join!(read(&pool), read(&pool), read(&pool), read(&pool));
        assert!(four.0.is_ok() && four.3.is_ok());
        assert_eq!(pool.server.opened.get(), 2);
        tokio::time::advance(AGE_MAX).await;
        read(&pool).await.unwrap();
        assert_eq!((pool.server.opened.get(), pool.server.alive.get()), (3, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_ends_early_closes_its_connection() {
        let pool = Pool::new(ScriptedServer::default(), 1);
        read(&pool).await.unwrap();
        pool.server.hangs.set(true);
        assert!(matches!(read(&pool).await, Err(QueryError::TimedOut)));
        assert_eq!(pool.server.alive.get(), 0);
        let dropped = tokio::time::timeout(Duration::from_millis(1), read(&pool)).await;
        assert!(dropped.is_err());
        assert_eq!(pool.server.alive.get(), 0);
        pool.server.hangs.set(false);
        read(&pool).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_database_that_is_away_is_asked_rarely() {
        let pool = Pool::new(ScriptedServer::default(), 1);
        pool.server.away.set(true);
        for _ in 0..1_000 {
            assert!(read(&pool).await.unwrap_err().is_away());
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        let opened = pool.server.opened.get();
        assert!((10..=30).contains(&opened), "{opened} in ten seconds");
        pool.server.away.set(false);
        tokio::time::advance(LONGEST_REST).await;
        read(&pool).await.unwrap();
    }

    #[test]
    fn rests_grow_to_their_bound() {
        let longest = |failures| rest(failures, 1.0).as_millis();
        assert_eq!([0, 1, 2, 3, 4, 99].map(longest), [100, 200, 400, 800, 1_000, 1_000]);
    }
}
