//! SQLite: a file, opened for reading only.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{
    AssertSqlSafe, Column as _, ConnectOptions as _, Connection as _, Executor as _, Row as _,
    SqlSafeStr as _, Statement as _, TypeInfo as _, ValueRef as _,
};
use tokio::time::Instant;

use super::found::{ErrorClass, FoundRow, QueryError, sorted};
use super::ids;
use super::json;
use super::listener::Listener;
use super::query::RowQuery;
use super::server::{DatabaseServer, found_rows};
use super::settings::DatabaseSettings;
use super::sqlite_version::SqliteVersion;

/// Virtual-machine steps between two looks at the time: a fraction of a millisecond.
const STEPS: i32 = 10_000;

/// A file of SQLite.
#[derive(Debug)]
pub(super) struct SqliteServer {
    options: SqliteConnectOptions,
    timeout: Duration,
}

/// A connection, and when its query is ended.
pub(super) struct SqliteReader {
    connection: SqliteConnection,
    /// The thread of the connection reads it; the lock is held for one assignment.
    deadline: Arc<Mutex<Instant>>,
}

impl fmt::Debug for SqliteReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteReader").finish_non_exhaustive()
    }
}

impl SqliteServer {
    pub(super) fn new(settings: &DatabaseSettings) -> Result<Self, String> {
        let path = settings.url.strip_prefix("sqlite:").filter(|path| !path.is_empty());
        let path = path.ok_or("not an SQLite file, such as sqlite:/var/lib/shop/shop.db")?;
        let options = SqliteConnectOptions::new()
            .filename(Path::new(path))
            .read_only(true)
            .create_if_missing(false)
            .busy_timeout(settings.timeout)
            .disable_statement_logging();
        Ok(Self { options, timeout: settings.timeout })
    }
}

impl SqliteReader {
    fn end_at(&self, deadline: Instant) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }
}

impl Drop for SqliteReader {
    fn drop(&mut self) {
        // Its thread may still run a query for a read that was given up.
        self.end_at(Instant::now());
    }
}

impl DatabaseServer for SqliteServer {
    type Connection = SqliteReader;

    async fn connect(&self) -> Result<SqliteReader, QueryError> {
        let away = |error: sqlx::Error| QueryError::Away(error.into());
        let mut connection = SqliteConnection::connect_with(&self.options).await.map_err(away)?;
        let deadline = Arc::new(Mutex::new(Instant::now() + self.timeout));
        let seen = Arc::clone(&deadline);
        let mut handle = connection.lock_handle().await.map_err(away)?;
        handle.set_progress_handler(STEPS, move || {
            Instant::now() < *seen.lock().unwrap_or_else(PoisonError::into_inner)
        });
        drop(handle);
        Ok(SqliteReader { connection, deadline })
    }

    async fn read(
        &self,
        reader: &mut SqliteReader,
        query: &RowQuery,
        ids: &[&str],
    ) -> Result<Vec<FoundRow>, QueryError> {
        reader.end_at(Instant::now() + self.timeout);
        found_rows(&mut reader.connection, query, ids, value, failure).await
    }

    async fn check(&self, reader: &mut SqliteReader, query: &RowQuery) -> Result<(), QueryError> {
        let sql = AssertSqlSafe(query.statement().to_owned()).into_sql_str();
        let prepared = reader.connection.prepare(sql).await.map_err(failure)?;
        let count = match prepared.parameters() {
            Some(sqlx::Either::Right(count)) => count,
            Some(sqlx::Either::Left(types)) => types.len(),
            None => 0,
        };
        query.check_parameters(count)?;
        let names: Vec<&str> = prepared.columns().iter().map(|column| column.name()).collect();
        query.check_columns(&names)
    }

    async fn ids(&self, reader: &mut SqliteReader, sql: &str) -> Result<Vec<String>, QueryError> {
        reader.end_at(Instant::now() + self.timeout);
        ids::listed(&mut reader.connection, sql, failure).await
    }

    async fn listen(&self, _: &[&str]) -> Result<Listener, QueryError> {
        let connection = SqliteConnection::connect_with(&self.options).await.map_err(failure)?;
        Ok(Listener::new(SqliteVersion::new(connection).await?))
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// A value by how it is stored: SQLite's columns have no types that bind.
fn value(row: &SqliteRow, index: usize) -> Result<String, sqlx::Error> {
    let stored = row.try_get_raw(index)?;
    if stored.is_null() {
        return Ok("null".to_owned());
    }
    let kind = stored.type_info().name().to_owned();
    Ok(match kind.as_str() {
        "INTEGER" | "BOOLEAN" => json::integer(row.try_get_unchecked::<i64, _>(index)?.into()),
        "REAL" => json::float(row.try_get_unchecked(index)?),
        "BLOB" => json::base64(row.try_get_unchecked(index)?),
        _ => json::text(row.try_get_unchecked(index)?),
    })
}

fn failure(error: sqlx::Error) -> QueryError {
    sorted(error, class)
}

/// What a code means: <https://sqlite.org/rescode.html>. The lowest byte is the primary code.
fn class(error: &dyn DatabaseError) -> ErrorClass {
    let code = error.code().and_then(|code| code.parse::<u32>().ok()).unwrap_or_default();
    match code & 0xff {
        // SQLITE_BUSY, SQLITE_LOCKED, SQLITE_INTERRUPT
        5 | 6 | 9 => ErrorClass::TimedOut,
        // SQLITE_IOERR, SQLITE_CORRUPT, SQLITE_CANTOPEN, SQLITE_NOTADB
        10 | 11 | 14 | 26 => ErrorClass::Away,
        // SQLITE_TOOBIG, SQLITE_MISMATCH
        18 | 20 => ErrorClass::Value,
        _ => ErrorClass::Refused,
    }
}
