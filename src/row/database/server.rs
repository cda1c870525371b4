//! What a kind of database must be able to do.

use super::found::{FoundRow, QueryError};
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
