//! The ids that a query lists.

use anteroom_store::ROWS_MAX;
use futures_util::StreamExt as _;
use sqlx::{AssertSqlSafe, ColumnIndex, Decode, Executor, Row as _};

use super::found::QueryError;

/// The first column of what a query without parameters returns, as texts. It is sent by the protocol that
/// returns texts, so that no type needs a decoder.
pub(super) async fn listed<'c, D, C>(
    connection: C,
    sql: &str,
    failure: impl Fn(sqlx::Error) -> QueryError,
) -> Result<Vec<String>, QueryError>
where
    D: sqlx::Database,
    C: Executor<'c, Database = D>,
    Option<String>: for<'r> Decode<'r, D> + sqlx::Type<D>,
    usize: ColumnIndex<D::Row>,
{
    let mut rows = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch(connection);
    let mut ids = Vec::new();
    while let Some(row) = rows.next().await {
        let id: Option<String> = row.and_then(|row| row.try_get_unchecked(0)).map_err(&failure)?;
        if ids.len() >= ROWS_MAX {
            return Err(QueryError::Unfit(format!("it lists more than {ROWS_MAX} rows")));
        }
        ids.extend(id);
    }
    Ok(ids)
}
