//! PostgreSQL. The server makes the JSON: it knows all of its types.
//!
//! A read is one read-only transaction, and nothing of it stays on the connection, so that poolers
//! such as PgBouncer may give each transaction another server.

use std::cell::RefCell;
use std::collections::HashMap;
use std::str::FromStr as _;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::LocalBoxFuture;
use sqlx::encode::{Encode, IsNull};
use sqlx::error::{BoxDynError, DatabaseError};
use sqlx::postgres::{
    PgArgumentBuffer, PgArguments, PgConnectOptions, PgConnection, PgListener, PgPoolOptions,
    PgTypeInfo, PgTypeKind, Postgres,
};
use sqlx::{
    Arguments as _, AssertSqlSafe, Column as _, ConnectOptions as _, Connection as _,
    Executor as _, Row as _, SqlSafeStr as _, Statement as _, Type, TypeInfo as _,
};
use tokio::time::Instant;

use super::found::{ErrorClass, FOUND_MAX, FoundRow, FoundRows, QueryError, sorted};
use super::ids;
use super::listener::{Listener, Notice, NoticeSource};
use super::query::RowQuery;
use super::server::DatabaseServer;
use super::settings::DatabaseSettings;

/// How long a description of a query is believed. A table may get a column.
const DESCRIBED: Duration = Duration::from_secs(60);
/// The most characters of a row's JSON that are read: somewhat more than a row may have.
const JSON_MAX: usize = (1 << 20) + 1;
/// The integers that every reader of JSON takes exactly: up to 2^53 - 1.
const EXACT_MAX: i64 = (1 << 53) - 1;

/// How long a listening connection may be quiet before it is checked.
const QUIET: Duration = Duration::from_secs(10);
/// How long the answer to that check may take.
const CHECK_TIME: Duration = Duration::from_secs(5);

/// A PostgreSQL server.
#[derive(Debug)]
pub(super) struct PostgresServer {
    options: PgConnectOptions,
    timeout: Duration,
    /// What each query returns, and when it was described.
    described: RefCell<HashMap<String, (DescribedQuery, Instant)>>,
}

/// A query as it is sent.
#[derive(Clone, Debug)]
struct DescribedQuery {
    sql: String,
    parameter: PgTypeInfo,
}

impl PostgresServer {
    pub(super) fn new(settings: &DatabaseSettings) -> Result<Self, String> {
        let options = PgConnectOptions::from_str(&settings.url)
            .map_err(|_| "not a PostgreSQL URL, such as postgres://user:password@host/database")?;
        let options = options
            .application_name("anteroom")
            // PgBouncer refuses a setting at the start that it does not know.
            .extra_float_digits(None)
            .disable_statement_logging();
        Ok(Self { options, timeout: settings.timeout, described: RefCell::default() })
    }

    /// Begins a transaction that cannot write, with limits that end with it.
    async fn begin(&self, connection: &mut PgConnection) -> Result<(), QueryError> {
        let timeout = self.timeout.as_millis();
        let begin = format!(
            "begin read only; set local statement_timeout = {timeout}; \
             set local lock_timeout = {timeout}; \
             set local idle_in_transaction_session_timeout = {}; set local timezone = 'UTC'; \
             set local datestyle = 'ISO'; set local intervalstyle = 'postgres'",
            2 * timeout
        );
        connection.execute(AssertSqlSafe(begin)).await.map_err(failure)?;
        Ok(())
    }

    async fn described(
        &self,
        connection: &mut PgConnection,
        query: &RowQuery,
    ) -> Result<DescribedQuery, QueryError> {
        let known = self.described.borrow().get(&query.sql).cloned();
        if let Some((described, at)) = known
            && at.elapsed() < DESCRIBED
        {
            return Ok(described);
        }
        let described = describe(connection, query).await?;
        let known = (described.clone(), Instant::now());
        self.described.borrow_mut().insert(query.sql.clone(), known);
        Ok(described)
    }

    async fn found(
        &self,
        connection: &mut PgConnection,
        query: &RowQuery,
        ids: &[&str],
    ) -> Result<Vec<FoundRow>, QueryError> {
        let DescribedQuery { sql, parameter } = self.described(connection, query).await?;
        let Some(bound) = QueryParameter::new(&parameter, ids)? else { return Ok(Vec::new()) };
        let mut arguments = PgArguments::default();
        arguments.add(bound).map_err(QueryError::Refused)?;
        let sent = sqlx::query_with(AssertSqlSafe(sql), arguments).persistent(false);
        let mut rows = sent.fetch(connection);
        let mut found = FoundRows::default();
        while let Some(row) = rows.next().await {
            let row = row.map_err(failure)?;
            let json = row.try_get(0).map_err(failure)?;
            found.add(FoundRow { id: row.try_get(1).map_err(failure)?, json })?;
        }
        Ok(found.done())
    }
}

impl DatabaseServer for PostgresServer {
    type Connection = PgConnection;

    async fn connect(&self) -> Result<PgConnection, QueryError> {
        PgConnection::connect_with(&self.options).await.map_err(|error| match failure(error) {
            QueryError::TimedOut => QueryError::TimedOut,
            QueryError::Refused(why) | QueryError::Value(why) => QueryError::Away(why),
            why => why,
        })
    }

    async fn read(
        &self,
        connection: &mut PgConnection,
        query: &RowQuery,
        ids: &[&str],
    ) -> Result<Vec<FoundRow>, QueryError> {
        self.begin(connection).await?;
        let found = self.found(connection, query, ids).await;
        match &found {
            Ok(_) => {
                connection.execute("commit").await.map_err(failure)?;
            }
            Err(why) => {
                self.described.borrow_mut().remove(&query.sql);
                if why.leaves_connection() {
                    connection.execute("rollback").await.map_err(failure)?;
                }
            }
        }
        found
    }

    async fn check(
        &self,
        connection: &mut PgConnection,
        query: &RowQuery,
    ) -> Result<(), QueryError> {
        self.begin(connection).await?;
        let described = describe(connection, query).await?;
        // Also what is sent for a row.
        connection.prepare(AssertSqlSafe(described.sql).into_sql_str()).await.map_err(failure)?;
        Ok(())
    }

    async fn ids(
        &self,
        connection: &mut PgConnection,
        sql: &str,
    ) -> Result<Vec<String>, QueryError> {
        self.begin(connection).await?;
        let ids = ids::listed(&mut *connection, sql, failure).await?;
        connection.execute("commit").await.map_err(failure)?;
        Ok(ids)
    }

    async fn listen(&self, channels: &[&str]) -> Result<Listener, QueryError> {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .acquire_timeout(self.timeout)
            .connect_with(self.options.clone())
            .await
            .map_err(failure)?;
        let mut listener = PgListener::connect_with(&pool).await.map_err(failure)?;
        listener.eager_reconnect(false);
        listener.listen_all(channels.iter().copied()).await.map_err(failure)?;
        Ok(Listener::new(PostgresListener(listener)))
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// A connection on which the server notifies.
struct PostgresListener(PgListener);

impl PostgresListener {
    async fn notified(&mut self) -> Result<Notice, QueryError> {
        loop {
            match tokio::time::timeout(QUIET, self.0.try_recv()).await {
                Ok(Ok(Some(notification))) => {
                    return Ok(Notice {
                        channel: notification.channel().to_owned(),
                        payload: notification.payload().to_owned(),
                    });
                }
                Ok(Ok(None)) => return Err(QueryError::Away("the connection was closed".into())),
                Ok(Err(error)) => return Err(failure(error)),
                Err(_) => self.check().await?,
            }
        }
    }

    /// Finds a connection whose other end has gone without a word.
    async fn check(&mut self) -> Result<(), QueryError> {
        match tokio::time::timeout(CHECK_TIME, self.0.execute("select 1")).await {
            Ok(checked) => checked.map(drop).map_err(failure),
            Err(_) => Err(QueryError::Away("the connection does not answer".into())),
        }
    }
}

impl NoticeSource for PostgresListener {
    /// The next notification.
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Notice, QueryError>> {
        Box::pin(self.notified())
    }
}

/// Prepares the query as it is written, and makes the one that is sent.
async fn describe(
    connection: &mut PgConnection,
    query: &RowQuery,
) -> Result<DescribedQuery, QueryError> {
    let sql = AssertSqlSafe(query.statement().to_owned()).into_sql_str();
    let prepared = connection.prepare(sql).await.map_err(failure)?;
    // The next transaction may run on another server.
    connection.clear_cached_statements().await.map_err(failure)?;
    let parameters = match prepared.parameters() {
        Some(sqlx::Either::Left(types)) => types,
        _ => &[],
    };
    query.check_parameters(parameters.len())?;
    let parameter = parameters[0].clone();
    check_parameter(query, &parameter)?;
    let columns = prepared.columns();
    let names: Vec<&str> = columns.iter().map(|column| column.name()).collect();
    query.check_columns(&names)?;
    let rendered: Vec<String> =
        columns.iter().map(|column| rendered(column.name(), column.type_info())).collect();
    let id = match names.contains(&query.id_column.as_str()) {
        true => format!("t.{}::text", quoted(&query.id_column)),
        false => "null::text".to_owned(),
    };
    let sql = format!(
        "select left((select row_to_json(r)::text from (select {}) r), {JSON_MAX}), {id} \
         from ({}\n) t limit {}",
        rendered.join(", "),
        query.statement(),
        FOUND_MAX + 1
    );
    Ok(DescribedQuery { sql, parameter })
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// How a column is put into JSON: what other readers of JSON would round becomes text.
fn rendered(name: &str, kind: &PgTypeInfo) -> String {
    let name = quoted(name);
    let column = format!("t.{name}");
    let value = match kind.name() {
        "INT8" => format!(
            "case when {column} between -{EXACT_MAX} and {EXACT_MAX} then to_json({column}) \
             else to_json({column}::text) end"
        ),
        "NUMERIC" => format!("{column}::text"),
        "INT8[]" | "NUMERIC[]" => format!("{column}::text[]"),
        // Lines of base64 would end after 76 characters.
        "BYTEA" => format!("translate(encode({column}, 'base64'), E'\\n', '')"),
        _ => column,
    };
    format!("{value} as {name}")
}

/// How an id is sent. The server infers the type of the parameter from the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdForm {
    /// An integer of so many bytes.
    Integer(usize),
    Uuid,
    Text,
}

impl IdForm {
    fn of(kind: &PgTypeInfo) -> Option<Self> {
        match (kind.name(), kind.kind()) {
            ("INT2", _) => Some(Self::Integer(2)),
            ("INT4", _) => Some(Self::Integer(4)),
            ("INT8", _) => Some(Self::Integer(8)),
            ("UUID", _) => Some(Self::Uuid),
            ("TEXT" | "VARCHAR" | "CHAR" | "NAME" | "UNKNOWN" | "citext", _) => Some(Self::Text),
            (_, PgTypeKind::Enum(_)) => Some(Self::Text),
            _ => None,
        }
    }

    /// The id in the binary form of its type; `None`: no row has this id.
    fn bytes(self, id: &str) -> Option<Vec<u8>> {
        match self {
            Self::Text if id.contains('\0') => None,
            Self::Text => Some(id.as_bytes().to_vec()),
            Self::Uuid => uuid(id),
            Self::Integer(size) => {
                let number: i64 = id.parse().ok()?;
                // "+7" and "07" are other texts than the 7 that is in the database.
                if number.to_string() != id {
                    return None;
                }
                match size {
                    2 => Some(i16::try_from(number).ok()?.to_be_bytes().to_vec()),
                    4 => Some(i32::try_from(number).ok()?.to_be_bytes().to_vec()),
                    _ => Some(number.to_be_bytes().to_vec()),
                }
            }
        }
    }
}

/// A UUID as the server writes it.
fn uuid(id: &str) -> Option<Vec<u8>> {
    let groups: Vec<usize> = id.split('-').map(str::len).collect();
    let digits = id.replace('-', "");
    let is_lower = digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if groups != [8, 4, 4, 4, 12] || !is_lower {
        return None;
    }
    u128::from_str_radix(&digits, 16).ok().map(|number| number.to_be_bytes().to_vec())
}

/// The type of an id, whether it stands alone or in an array.
fn id_type(parameter: &PgTypeInfo) -> (&PgTypeInfo, bool) {
    match parameter.kind() {
        PgTypeKind::Array(element) => (element, true),
        _ => (parameter, false),
    }
}

fn check_parameter(query: &RowQuery, parameter: &PgTypeInfo) -> Result<(), QueryError> {
    let (kind, is_array) = id_type(parameter);
    let unfit = |why: String| Err(QueryError::Unfit(why));
    match (query.batch, is_array) {
        (None, true) => {
            return unfit("its parameter is an array; write batch = 500, or = $1".to_owned());
        }
        (Some(_), false) => {
            return unfit("with batch, its parameter is an array; write = any($1)".to_owned());
        }
        _ => {}
    }
    if IdForm::of(kind).is_none() {
        let name = kind.name().to_lowercase();
        return unfit(match is_array {
            true => format!("its parameter has the type {name}[]; write any($1::text[]::{name}[])"),
            false => format!("its parameter has the type {name}; write $1::text::{name}"),
        });
    }
    Ok(())
}

/// The parameter of a query.
struct QueryParameter {
    kind: PgTypeInfo,
    bytes: Vec<u8>,
}

impl QueryParameter {
    /// `None` if no row can have any of `ids`.
    fn new(parameter: &PgTypeInfo, ids: &[&str]) -> Result<Option<Self>, QueryError> {
        let (kind, is_array) = id_type(parameter);
        let form = IdForm::of(kind)
            .ok_or_else(|| QueryError::Unfit("its parameter has another type".to_owned()))?;
        let mut ids: Vec<Vec<u8>> = ids.iter().filter_map(|id| form.bytes(id)).collect();
        if ids.is_empty() {
            return Ok(None);
        }
        let bytes = match (is_array, kind.oid()) {
            (false, _) => ids.swap_remove(0),
            (true, Some(oid)) => array(oid.0, &ids),
            (true, None) => return Err(QueryError::Unfit("its type has no number".to_owned())),
        };
        Ok(Some(Self { kind: parameter.clone(), bytes }))
    }
}

/// The binary form of an array with one dimension: its header, then each element behind its length.
fn array(element: u32, ids: &[Vec<u8>]) -> Vec<u8> {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes();
    let (dimensions, nulls, first) = (1, 0, 1);
    let mut bytes = Vec::new();
    for part in [number(dimensions), number(nulls), element.to_be_bytes()] {
        bytes.extend(part);
    }
    bytes.extend(number(ids.len()));
    bytes.extend(number(first));
    for id in ids {
        bytes.extend(number(id.len()));
        bytes.extend(id);
    }
    bytes
}

impl Type<Postgres> for QueryParameter {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("text")
    }
}

impl Encode<'_, Postgres> for QueryParameter {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend(&self.bytes);
        Ok(IsNull::No)
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(self.kind.clone())
    }
}

fn failure(error: sqlx::Error) -> QueryError {
    sorted(error, class)
}

/// What a code means: "PostgreSQL Error Codes", appendix A of its manual.
fn class(error: &dyn DatabaseError) -> ErrorClass {
    let code = error.code().unwrap_or_default();
    match &*code {
        // Canceled by the time-out, and a lock that was not available in time.
        "57014" | "55P03" => ErrorClass::TimedOut,
        code if code.starts_with("22") => ErrorClass::Value,
        // Connections, logins, resources, an operator's intervention.
        code if ["08", "28", "53", "57", "58"].iter().any(|class| code.starts_with(class)) => {
            ErrorClass::Away
        }
        _ => ErrorClass::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_sent_in_the_form_of_its_type_or_not_at_all() {
        assert_eq!(IdForm::Integer(4).bytes("-7"), Some((-7_i32).to_be_bytes().to_vec()));
        assert_eq!(IdForm::Integer(2).bytes("32767"), Some(vec![0x7f, 0xff]));
        for id in ["", "07", "+7", "7 ", "1 or 1=1", "2147483648", "7.0", "٧"] {
            assert_eq!(IdForm::Integer(4).bytes(id), None, "{id}");
        }
        assert_eq!(IdForm::Text.bytes("' or ''='"), Some(b"' or ''='".to_vec()));
        let id = "00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(IdForm::Uuid.bytes(id).map(|bytes| bytes[15]), Some(0xff));
        for id in
            ["", &id.to_uppercase(), &id.replace('-', ""), "+0112233-4455-6677-8899-aabbccddeeff"]
        {
            assert_eq!(IdForm::Uuid.bytes(id), None, "{id}");
        }
    }

    #[test]
    fn a_column_name_stays_a_name() {
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }
}
