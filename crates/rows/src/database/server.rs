//! What a kind of database must be able to do.

#[cfg(any(feature = "mysql", feature = "sqlite"))]
use futures_util::StreamExt as _;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
use sqlx::{Column as _, Row as _};

#[cfg(any(feature = "mysql", feature = "sqlite"))]
use super::found::FoundRows;
use super::found::{FoundRow, QueryError};
#[cfg(any(feature = "mysql", feature = "sqlite"))]
use super::json::{self, JsonObject};
use super::listener::Listener;
use super::query::RowQuery;

/// A database server, or a file that is one.
pub(super) trait DatabaseServer {
    /// A connection. Dropping it closes it, whatever runs on it.
    type Connection;

    /// Opens a connection for reading only.
    async fn connect(&self) -> Result<Self::Connection, QueryError>;

    /// Runs the query for some ids.
    async fn read(
        &self,
        connection: &mut Self::Connection,
        query: &RowQuery,
        ids: &[&str],
    ) -> Result<Vec<FoundRow>, QueryError>;

    /// Prepares the query.
    async fn check(
        &self,
        connection: &mut Self::Connection,
        query: &RowQuery,
    ) -> Result<(), QueryError>;

    /// The ids that a query without parameters lists in its first column.
    async fn ids(
        &self,
        connection: &mut Self::Connection,
        sql: &str,
    ) -> Result<Vec<String>, QueryError>;

    /// Opens a connection over which changes are announced on these channels.
    async fn listen(&self, channels: &[&str]) -> Result<Listener, QueryError>;

    /// How long a connection may take to open, and a query to run.
    fn timeout(&self) -> std::time::Duration;
}

/// What a query finds, by a driver that binds the ids as one text.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(super) async fn found_rows<'c, D, C>(
    connection: C,
    query: &RowQuery,
    ids: &[&str],
    value: impl Fn(&D::Row, usize) -> Result<String, sqlx::Error>,
    failure: impl Fn(sqlx::Error) -> QueryError,
) -> Result<Vec<FoundRow>, QueryError>
where
    D: sqlx::Database,
    C: sqlx::Executor<'c, Database = D>,
    D::Arguments: sqlx::IntoArguments<D>,
    String: for<'q> sqlx::Encode<'q, D> + sqlx::Type<D>,
{
    let sql = sqlx::AssertSqlSafe(query.statement().to_owned());
    let mut rows = sqlx::query::<D>(sql).bind(query.bound_text(ids)).fetch(connection);
    let mut found = FoundRows::default();
    while let Some(row) = rows.next().await {
        let row = row.map_err(&failure)?;
        let (mut id, mut object) = (None, JsonObject::default());
        for (index, column) in row.columns().iter().enumerate() {
            let value = value(&row, index).map_err(&failure)?;
            if column.name() == query.id_column {
                id = Some(json::as_text(&value));
            }
            object.add(column.name(), &value);
        }
        found.add(FoundRow { id, json: object.done() })?;
    }
    Ok(found.done())
}
