//! MySQL and MariaDB.

use std::str::FromStr as _;
use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::mysql::{MySql, MySqlConnectOptions, MySqlConnection, MySqlDatabaseError, MySqlRow};
use sqlx::{
    AssertSqlSafe, Column as _, ConnectOptions as _, Connection as _, Executor as _, Row as _,
    SqlSafeStr as _, Statement as _, Type, TypeInfo as _, ValueRef as _,
};

use super::found::{ErrorClass, FoundRow, QueryError, sorted};
use super::ids;
use super::json;
use super::listener::Listener;
use super::query::RowQuery;
use super::server::{DatabaseServer, found_rows};
use super::settings::DatabaseSettings;

/// A server of MySQL or MariaDB.
#[derive(Debug)]
pub(super) struct MysqlServer {
    options: MySqlConnectOptions,
    timeout: Duration,
}

impl MysqlServer {
    pub(super) fn new(settings: &DatabaseSettings) -> Result<Self, String> {
        let options = MySqlConnectOptions::from_str(&settings.url)
            .map_err(|_| "not a MySQL URL, such as mysql://user:password@host/database")?;
        let options = options.timezone("+00:00".to_owned()).disable_statement_logging();
        Ok(Self { options, timeout: settings.timeout })
    }

    /// Makes the session one that only reads, and that ends long queries.
    async fn limit(&self, connection: &mut MySqlConnection) -> Result<(), QueryError> {
        let version = connection.fetch_one("select version()").await.map_err(failure)?;
        let version: String = version.try_get(0).map_err(failure)?;
        let seconds = self.timeout.as_secs_f64();
        let limit = match version.contains("MariaDB") {
            true => format!("max_statement_time = {seconds}"),
            false => format!("max_execution_time = {}", self.timeout.as_millis()),
        };
        let lock = seconds.ceil();
        let settings = format!(
            "set session {limit}, session lock_wait_timeout = {lock}, \
             session innodb_lock_wait_timeout = {lock}"
        );
        connection.execute(AssertSqlSafe(settings)).await.map_err(failure)?;
        connection.execute("set session transaction read only").await.map_err(failure)?;
        Ok(())
    }
}

impl DatabaseServer for MysqlServer {
    type Connection = MySqlConnection;

    async fn connect(&self) -> Result<MySqlConnection, QueryError> {
        let connected = MySqlConnection::connect_with(&self.options).await;
        let mut connection = connected.map_err(|error| QueryError::Away(error.into()))?;
        self.limit(&mut connection).await?;
        Ok(connection)
    }

    async fn read(
        &self,
        connection: &mut MySqlConnection,
        query: &RowQuery,
        ids: &[&str],
    ) -> Result<Vec<FoundRow>, QueryError> {
        found_rows(connection, query, ids, value, failure).await
    }

    async fn check(
        &self,
        connection: &mut MySqlConnection,
        query: &RowQuery,
    ) -> Result<(), QueryError> {
        let sql = AssertSqlSafe(query.statement().to_owned()).into_sql_str();
        let prepared = connection.prepare(sql).await.map_err(failure)?;
        let count = match prepared.parameters() {
            Some(sqlx::Either::Right(count)) => count,
            Some(sqlx::Either::Left(types)) => types.len(),
            None => 0,
        };
        query.check_parameters(count)?;
        let names: Vec<&str> = prepared.columns().iter().map(|column| column.name()).collect();
        query.check_columns(&names)
    }

    async fn ids(
        &self,
        connection: &mut MySqlConnection,
        sql: &str,
    ) -> Result<Vec<String>, QueryError> {
        ids::listed(connection, sql, failure).await
    }

    async fn listen(&self, _: &[&str]) -> Result<Listener, QueryError> {
        Err(QueryError::Unfit("MySQL and MariaDB announce no changes".to_owned()))
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// A value by the type of its column. The values are those of the protocol for prepared statements.
fn value(row: &MySqlRow, index: usize) -> Result<String, sqlx::Error> {
    let stored = row.try_get_raw(index)?;
    let kind = stored.type_info().into_owned();
    // Zero dates, such as 0000-00-00, are null to the driver.
    if stored.is_null() {
        return Ok("null".to_owned());
    }
    let raw = || row.try_get_unchecked::<&[u8], _>(index);
    Ok(match kind.name() {
        "TINYINT UNSIGNED" | "SMALLINT UNSIGNED" | "INT UNSIGNED" | "MEDIUMINT UNSIGNED"
        | "BIGINT UNSIGNED" | "BIT" | "YEAR" => {
            json::integer(row.try_get_unchecked::<u64, _>(index)?.into())
        }
        "BOOLEAN" | "TINYINT" | "SMALLINT" | "INT" | "MEDIUMINT" | "BIGINT" => {
            json::integer(row.try_get_unchecked::<i64, _>(index)?.into())
        }
        "FLOAT" => json::short_float(row.try_get_unchecked(index)?),
        "DOUBLE" => json::float(row.try_get_unchecked(index)?),
        "DECIMAL" | "SET" => json::text(row.try_get_unchecked(index)?),
        "DATE" => json::text(&date(raw()?)),
        "DATETIME" => json::text(&date_time(raw()?)),
        "TIMESTAMP" => json::text(&format!("{}Z", date_time(raw()?))),
        "TIME" => json::text(&time(raw()?)),
        "JSON" => row.try_get_unchecked(index)?,
        // The name of a text with a binary collation is that of a blob.
        _ if <str as Type<MySql>>::compatible(&kind) => json::text(row.try_get_unchecked(index)?),
        _ => json::base64(raw()?),
    })
}

/// The parts of a time, of which the encoding leaves out zeros at the end.
struct Parts<'b>(&'b [u8]);

impl Parts<'_> {
    /// The next number, of `size` bytes with the lowest first.
    fn next(&mut self, size: usize) -> u32 {
        let (part, rest) = self.0.split_at(size.min(self.0.len()));
        self.0 = rest;
        part.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
    }

    fn clock(&mut self, hours: u32) -> String {
        let (hours, minutes, seconds) = (hours + self.next(1), self.next(1), self.next(1));
        let clock = format!("{hours:02}:{minutes:02}:{seconds:02}");
        match self.next(4) {
            0 => clock,
            micros => format!("{clock}.{micros:06}"),
        }
    }

    fn date(&mut self) -> String {
        let (year, month, day) = (self.next(2), self.next(1), self.next(1));
        format!("{year:04}-{month:02}-{day:02}")
    }
}

/// What follows the byte with the length.
fn parts(encoded: &[u8]) -> Parts<'_> {
    Parts(encoded.get(1..).unwrap_or_default())
}

fn date(encoded: &[u8]) -> String {
    parts(encoded).date()
}

/// RFC 3339 without an offset: the database does not say one.
fn date_time(encoded: &[u8]) -> String {
    let mut parts = parts(encoded);
    let date = parts.date();
    format!("{date}T{}", parts.clock(0))
}

/// Up to 838 hours, and negative ones.
fn time(encoded: &[u8]) -> String {
    let mut parts = parts(encoded);
    let sign = if parts.next(1) == 1 { "-" } else { "" };
    let days = parts.next(4);
    format!("{sign}{}", parts.clock(days.saturating_mul(24)))
}

fn failure(error: sqlx::Error) -> QueryError {
    sorted(error, class)
}

/// What a number means: "Server Error Message Reference" of MySQL, "Error Codes" of MariaDB.
fn class(error: &dyn DatabaseError) -> ErrorClass {
    let number =
        error.try_downcast_ref::<MySqlDatabaseError>().map_or(0, MySqlDatabaseError::number);
    match number {
        // A lock, MySQL's and MariaDB's time-outs, a query that was killed.
        1205 | 3024 | 1969 | 1317 => ErrorClass::TimedOut,
        // Connections, logins and shut-downs.
        1040 | 1043 | 1044 | 1045 | 1053 | 1077 | 1129 | 1130 | 1203 | 1226 | 1927 => {
            ErrorClass::Away
        }
        // Values that are out of range, truncated or not of their type, and JSON that is none.
        1264 | 1292 | 1366 | 1406 | 1690 | 3140 | 3141 | 4038 | 4042 => ErrorClass::Value,
        _ => ErrorClass::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_encoded() {
        assert_eq!(date(&[4, 0xea, 0x07, 11, 25]), "2026-11-25");
        assert_eq!(date_time(&[4, 0xea, 0x07, 11, 25]), "2026-11-25T00:00:00");
        assert_eq!(date_time(&[7, 0xea, 0x07, 11, 25, 9, 8, 7]), "2026-11-25T09:08:07");
        let micros = [11, 0xea, 0x07, 11, 25, 9, 8, 7, 0x3f, 0x42, 0x0f, 0];
        assert_eq!(date_time(&micros), "2026-11-25T09:08:07.999999");
        assert_eq!(time(&[0]), "00:00:00");
        assert_eq!(time(&[8, 1, 34, 0, 0, 0, 22, 59, 59]), "-838:59:59");
        assert_eq!(time(&[12, 0, 0, 0, 0, 0, 1, 2, 3, 5, 0, 0, 0]), "01:02:03.000005");
        // Cut short, it is no panic.
        assert_eq!(time(&[8, 1, 34]), "-816:00:00");
    }
}
