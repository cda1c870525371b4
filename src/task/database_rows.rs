//! A database as a source of rows.

use std::rc::Rc;

use bytes::Bytes;

use crate::database::{Database, QueryError, RowQuery};
use crate::row::FetchError;

/// The query for a source's rows.
#[derive(Debug)]
pub struct RowsQuery {
    /// The database, which other sources may share.
    pub database: Rc<Database>,
    /// The query.
    pub query: RowQuery,
}

impl RowsQuery {
    /// Reads the rows `ids` with one query.
    pub(super) async fn fetch(&self, ids: &[&str]) -> Vec<Result<Option<Bytes>, FetchError>> {
        let read = self.database.read(&self.query, ids).await;
        read.into_iter().map(|one| one.map(|json| json.map(Bytes::from)).map_err(failure)).collect()
    }
}

fn failure(why: QueryError) -> FetchError {
    match why {
        why if why.is_away() => FetchError::Away(Box::new(why)),
        why if why.is_time_out() => FetchError::TimedOut,
        why => FetchError::Source(Box::new(why)),
    }
}
