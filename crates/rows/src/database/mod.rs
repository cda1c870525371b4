//! Rows read from a database: PostgreSQL, MySQL and MariaDB, SQLite.
//!
//! What is read becomes JSON here. When it is read, and where it is kept, is decided elsewhere.
#![cfg_attr(
    not(any(feature = "postgres", feature = "mysql", feature = "sqlite")),
    allow(
        dead_code,
        unused_imports,
        unused_variables,
        reason = "what all kinds share has no use in a build without any"
    )
)]

mod found;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod ids;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod json;
mod listener;
#[cfg(feature = "mysql")]
mod mysql;
mod pool;
#[cfg(feature = "postgres")]
mod postgres;
mod query;
mod server;
mod settings;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
mod sqlite_version;

pub use found::QueryError;
pub use listener::{Listener, Notice};
use pool::Pool;
pub use query::{RowContent, RowQuery};
pub use settings::DatabaseSettings;

use anteroom_policy::database::DatabaseKind;

/// A database with its connections, for one thread.
#[derive(Debug)]
pub struct Database(Kind);

#[derive(Debug)]
enum Kind {
    #[cfg(feature = "postgres")]
    Postgres(Pool<postgres::PostgresServer>),
    #[cfg(feature = "mysql")]
    Mysql(Pool<mysql::MysqlServer>),
    #[cfg(feature = "sqlite")]
    Sqlite(Pool<sqlite::SqliteServer>),
    /// It cannot be read, and why.
    Unusable(String),
}

/// Does `$work` with the pool of any kind.
macro_rules! with_pool {
    ($database:expr, $pool:ident => $work:expr) => {
        match &$database.0 {
            #[cfg(feature = "postgres")]
            Kind::Postgres($pool) => $work,
            #[cfg(feature = "mysql")]
            Kind::Mysql($pool) => $work,
            #[cfg(feature = "sqlite")]
            Kind::Sqlite($pool) => $work,
            Kind::Unusable(why) => Err(QueryError::Unfit(why.clone())),
        }
    };
}

impl Database {
    /// The database of these settings. It opens no connection yet. A URL that the driver does not take
    /// makes each read fail.
    #[must_use]
    pub fn new(settings: &DatabaseSettings) -> Self {
        Self(kind(settings).unwrap_or_else(Kind::Unusable))
    }

    /// Reads the rows with these ids, of which there are at most [`RowQuery::batch`]: the result of
    /// each, in order. A row whose value spoils the query of all is read apart.
    ///
    /// Cancel safe: the connection of a read that is dropped is closed.
    pub async fn read(
        &self,
        query: &RowQuery,
        ids: &[&str],
    ) -> Vec<Result<RowContent, QueryError>> {
        let mut open = vec![ids];
        let mut read = Vec::with_capacity(ids.len());
        while let Some(some) = open.pop() {
            let found = with_pool!(self, pool => pool.read(query, some).await);
            match found.map(|found| query.matched(some, found)) {
                Ok(matched) => read.extend(matched),
                Err(why) if some.len() > 1 && why.is_of_some_row() => {
                    let (first, second) = some.split_at(some.len() / 2);
                    open.extend([second, first]);
                }
                Err(why) => {
                    let why = std::sync::Arc::new(why);
                    let all = some.iter().map(|_| Err(QueryError::Shared(why.clone())));
                    read.extend(all);
                }
            }
        }
        read
    }

    /// The ids that a query lists in its first column, as texts. `NULL` is left out.
    ///
    /// # Errors
    /// If the database cannot be reached or refuses the query, or if it lists too many.
    pub async fn ids(&self, sql: &str) -> Result<Vec<String>, QueryError> {
        with_pool!(self, pool => pool.ids(sql).await)
    }

    /// Opens a connection over which the database announces changes on these channels.
    ///
    /// # Errors
    /// If the database cannot be reached, or cannot do that.
    pub async fn listen(&self, channels: &[&str]) -> Result<Listener, QueryError> {
        with_pool!(self, pool => pool.listen(channels).await)
    }

    /// Prepares a query, as it will be read.
    ///
    /// # Errors
    /// If the database cannot be reached, or the query does not fit it.
    pub async fn check(&self, query: &RowQuery) -> Result<(), QueryError> {
        with_pool!(self, pool => pool.check(query).await)
    }
}

fn kind(settings: &DatabaseSettings) -> Result<Kind, String> {
    let kind = DatabaseKind::of_url(&settings.url).ok_or("the URL is not one of a database")?;
    match kind {
        #[cfg(feature = "postgres")]
        DatabaseKind::Postgres => {
            let server = postgres::PostgresServer::new(settings)?;
            Ok(Kind::Postgres(Pool::new(server, settings.connections)))
        }
        #[cfg(feature = "mysql")]
        DatabaseKind::Mysql => {
            let server = mysql::MysqlServer::new(settings)?;
            Ok(Kind::Mysql(Pool::new(server, settings.connections)))
        }
        #[cfg(feature = "sqlite")]
        DatabaseKind::Sqlite => {
            let server = sqlite::SqliteServer::new(settings)?;
            Ok(Kind::Sqlite(Pool::new(server, settings.connections)))
        }
        #[cfg(not(all(feature = "postgres", feature = "mysql", feature = "sqlite")))]
        kind => Err(format!("this binary was built without the feature {:?}", kind.feature())),
    }
}
