//! A database as a source of rows.

use std::rc::Rc;
use std::sync::Arc;

use anteroom_telemetry::metrics::{Count, ThreadMetrics};
use bytes::Bytes;

use anteroom_rows::FetchError;
use anteroom_rows::database::{Database, QueryError, RowQuery};

/// The query for a source's rows.
#[derive(Debug)]
pub struct RowsQuery {
    /// The database, which other sources may share.
    pub database: Rc<Database>,
    /// The query.
    pub query: RowQuery,
    /// Where queries are counted.
    pub thread_metrics: Arc<ThreadMetrics>,
}

impl RowsQuery {
    /// The ids that `sql` lists.
    pub(super) async fn ids(&self, sql: &str) -> Result<Vec<String>, QueryError> {
        self.thread_metrics.add(Count::RowQueries, 1);
        let listed = self.database.ids(sql).await;
        if listed.is_err() {
            self.thread_metrics.add(Count::RowQueriesFailed, 1);
        }
        listed
    }

    /// Reads the rows `ids` with one query.
    pub(super) async fn fetch(&self, ids: &[&str]) -> Vec<Result<Option<Bytes>, FetchError>> {
        self.thread_metrics.add(Count::RowQueries, 1);
        let read = self.database.read(&self.query, ids).await;
        if read.iter().all(Result::is_err) {
            self.thread_metrics.add(Count::RowQueriesFailed, 1);
        }
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
