//! Whether an SQLite file has changed: other programs write it, and tell only by its version.

use std::time::Duration;

use anteroom_policy::database::SQLITE_CHANNEL;
use futures_util::future::LocalBoxFuture;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Executor as _, Row as _};

use super::found::QueryError;
use super::listener::{Notice, NoticeSource};

/// The time between two looks. A look costs some ten microseconds.
const EVERY: Duration = Duration::from_millis(100);

/// The version of an SQLite file, as one connection sees it
/// (<https://sqlite.org/pragma.html#pragma_data_version>).
#[derive(Debug)]
pub(super) struct SqliteVersion {
    connection: SqliteConnection,
    last: i64,
}

impl SqliteVersion {
    pub(super) async fn new(connection: SqliteConnection) -> Result<Self, QueryError> {
        let mut version = Self { connection, last: 0 };
        version.last = version.read().await?;
        Ok(version)
    }

    async fn read(&mut self) -> Result<i64, QueryError> {
        let row = self.connection.fetch_one("pragma data_version").await;
        let version = row.and_then(|row| row.try_get(0));
        version.map_err(|error| QueryError::Away(error.into()))
    }

    async fn changed(&mut self) -> Result<Notice, QueryError> {
        loop {
            tokio::time::sleep(EVERY).await;
            let version = self.read().await?;
            if version != self.last {
                self.last = version;
                return Ok(Notice { channel: SQLITE_CHANNEL.to_owned(), payload: String::new() });
            }
        }
    }
}

impl NoticeSource for SqliteVersion {
    /// Returns when another program has changed the file.
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Notice, QueryError>> {
        Box::pin(self.changed())
    }
}
