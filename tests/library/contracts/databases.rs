//! Rows of real databases: their types, their limits, and what an id must not do.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anteroom_rows::database::{Database, DatabaseSettings, QueryError, RowContent, RowQuery};
use anteroom_tests::database::{MariadbServer, Pgbouncer, PostgresServer};
use anteroom_tests::tls::Authority;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::store_contract::until;

fn database(url: &str) -> Database {
    let timeout = Duration::from_secs(2);
    Database::new(&DatabaseSettings { url: url.to_owned(), connections: 2, timeout })
}

fn one(sql: &str) -> RowQuery {
    RowQuery { sql: sql.to_owned(), id_column: "id".to_owned(), many: false, batch: None }
}

fn batch(sql: &str) -> RowQuery {
    RowQuery { batch: Some(500), ..one(sql) }
}

async fn read_one(
    database: &Database,
    query: &RowQuery,
    id: &str,
) -> Result<RowContent, QueryError> {
    database.read(query, &[id]).await.pop().unwrap()
}

/// The row as JSON; null if there is none.
async fn row(database: &Database, query: &RowQuery, id: &str) -> Value {
    let content = read_one(database, query, id).await.unwrap();
    content.map_or(Value::Null, |json| serde_json::from_str(&json).unwrap())
}

async fn failure(database: &Database, query: &RowQuery, id: &str) -> String {
    read_one(database, query, id).await.unwrap_err().to_string()
}

async fn complaint(database: &Database, query: &RowQuery) -> String {
    database.check(query).await.unwrap_err().to_string()
}

/// Ids that are no rows, whatever they try.
const HOSTILE: [&str; 9] = [
    "7 or 1=1",
    "7; drop table items; --",
    "' or ''='",
    "7abc",
    "07",
    "$1",
    "?",
    "\\' or 1=1 -- ",
    "99999999999999999999",
];

/// That no id of another form is a row, and that each row of a batch is the one that was asked for.
async fn only_the_row_asked_for(database: &Database, single: &RowQuery, several: &RowQuery) {
    assert_eq!(row(database, single, "7").await["name"], "seven");
    for id in HOSTILE {
        assert_eq!(row(database, single, id).await, Value::Null, "{id}");
    }
    let mut ids = HOSTILE.to_vec();
    ids.extend(["8", "7"]);
    let read = database.read(several, &ids).await;
    let found: Vec<Option<String>> = read.into_iter().map(Result::unwrap).collect();
    assert!(found[..HOSTILE.len()].iter().all(Option::is_none), "{found:?}");
    assert!(found[HOSTILE.len()].as_deref().unwrap().contains("eight"));
    assert!(found[HOSTILE.len() + 1].as_deref().unwrap().contains("seven"));
    assert_eq!(row(database, single, "8").await["name"], "eight", "the table is still there");
}

/// What a query that takes too long, returns too much or is wrong does.
async fn bounded(database: &Database, sleeps: &str, million: &str, wrong: &str) {
    let begun = Instant::now();
    assert!(failure(database, &one(sleeps), "1").await.contains("too long"));
    assert!(begun.elapsed() < Duration::from_secs(5));
    let many = RowQuery { many: true, ..one(million) };
    assert!(failure(database, &many, "1").await.contains("more than 10000 rows"));
    assert!(failure(database, &one(wrong), "1").await.contains("refused the query"));
    assert!(complaint(database, &one(wrong)).await.contains("refused the query"));
}

const POSTGRES_SEED: &str = "
    create type mood as enum ('sad', 'ok');
    create table items (id int primary key, name text);
    insert into items values (7, 'seven'), (8, 'eight');
    create table kinds (
        id bigint primary key, small smallint, big bigint, huge bigint, money numeric(20, 4),
        rate double precision, yes boolean, name text, fixed char(5), raw bytea, day date,
        at timestamptz, local timestamp, clock time, span interval, code uuid, doc jsonb,
        numbers bigint[], mood mood, net inet, nothing text
    );
    insert into kinds values (
        1, -7, 9007199254740991, 9007199254740993, 12345678901234.5000, 0.1, true, 'Zo\u{eb} \"q\"',
        'ab', '\\xff00'::bytea, '2026-11-25', '2026-11-25 10:11:12.5+02', '2026-11-25 10:11:12',
        '10:11:12', '1 day 02:03', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', '{\"a\": [1, null]}',
        '{1,9007199254740993}', 'ok', '10.0.0.1', null
    );
    create table codes (id uuid primary key, name text);
    insert into codes values ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'it');
    create table days (id date primary key, name text);
    insert into days values ('2026-11-25', 'today');
";

#[tokio::test]
async fn postgres_rows_have_their_values_and_nothing_else() {
    let server = PostgresServer::start(POSTGRES_SEED);
    let database = database(&server.url());
    let kinds = row(&database, &one("select * from kinds where id = $1;"), "1").await;
    assert_eq!(
        kinds,
        json!({
            "id": 1, "small": -7, "big": 9_007_199_254_740_991_i64, "huge": "9007199254740993",
            "money": "12345678901234.5000", "rate": 0.1, "yes": true, "name": "Zo\u{eb} \"q\"",
            "fixed": "ab   ", "raw": "/wA=", "day": "2026-11-25",
            "at": "2026-11-25T08:11:12.5+00:00", "local": "2026-11-25T10:11:12",
            "clock": "10:11:12", "span": "1 day 02:03:00",
            "code": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "doc": {"a": [1, null]},
            "numbers": ["1", "9007199254740993"], "mood": "ok", "net": "10.0.0.1", "nothing": null,
        })
    );
    // Its own client says the same.
    for column in ["small", "big", "huge", "money", "rate", "day", "clock", "span", "code", "net"] {
        let value = kinds[column].as_str().map_or_else(|| kinds[column].to_string(), str::to_owned);
        assert_eq!(server.run(&format!("select {column} from kinds")), value, "{column}");
    }
    let long =
        one("select id, convert_to(repeat('x', 300), 'UTF8') as raw from items where id = $1");
    let raw = row(&database, &long, "7").await["raw"].as_str().unwrap().to_owned();
    assert_eq!((raw.len(), raw.contains('\n')), (400, false));

    only_the_row_asked_for(
        &database,
        &one("select id, name from items where id = $1"),
        &batch("select id, name from items where id = any($1)"),
    )
    .await;
    let code = one("select * from codes where id = $1");
    assert_eq!(row(&database, &code, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11").await["name"], "it");
    assert_eq!(row(&database, &code, "x").await, Value::Null);
    let by_name = one("select name from items where name = $1 -- the end");
    assert_eq!(row(&database, &by_name, "seven").await, json!({"name": "seven"}));

    bounded(
        &database,
        "select pg_sleep(30) where $1 = 'x' or true",
        "select g from generate_series(1, 1000000) g where $1 <> ''",
        "select nothing from nowhere where id = $1",
    )
    .await;
}

#[tokio::test]
async fn postgres_queries_that_do_not_fit_say_what_to_write() {
    let server = PostgresServer::start(POSTGRES_SEED);
    let database = database(&server.url());
    let says = async |query: RowQuery, part: &str| {
        let why = complaint(&database, &query).await;
        assert!(why.contains(part), "{why}");
    };
    database.check(&one("select * from kinds where id = $1")).await.unwrap();
    database.check(&batch("select * from kinds where id = any($1)")).await.unwrap();
    says(one("select * from days where id = $1"), "write $1::text::date").await;
    says(batch("select * from days where id = any($1)"), "any($1::text[]::date[])").await;
    says(batch("select * from items where id = $1"), "write = any($1)").await;
    says(one("select * from items where id = any($1)"), "write batch = 500").await;
    says(batch("select name from items where id = any($1)"), "no column \"id\"").await;
    says(one("select 1 as a, 2 as a where $1 = 'x'"), "two columns are called \"a\"").await;
    says(one("select * from items where id = $1 and name = $2"), "2 parameters").await;
    says(one("select 1"), "0 parameters").await;
    says(one("delete from items where id = $1 returning id"), "refused the query").await;
    says(one("select 1; select $1"), "refused the query").await;
    assert_eq!(server.run("select count(*) from items"), "2");

    // An id that the query's own cast does not take fails alone, and with a reason.
    let days = batch("select id, name from days where id = any($1::text[]::date[])");
    let read = database.read(&days, &["2026-11-25", "x", "2026-11-26"]).await;
    assert!(read[0].as_ref().unwrap().as_deref().unwrap().contains("today"));
    assert!(read[1].as_ref().unwrap_err().to_string().contains("invalid input syntax"));
    assert!(read[2].as_ref().unwrap().is_none());
    // Several rows.
    let several = one("select name from items where $1 <> ''");
    assert!(failure(&database, &several, "1").await.contains("write many = true"));
    let many = RowQuery { many: true, ..several };
    assert_eq!(row(&database, &many, "1").await, json!([{"name": "seven"}, {"name": "eight"}]));
    // A value that cannot be read: the failure names it, and the next query works.
    let fails = one("select (name || 'x')::int from items where id = $1");
    assert!(
        failure(&database, &fails, "7").await.contains("invalid input syntax for type integer")
    );
    // A table that has changed.
    server.run("alter table items add column more int default 5");
    let items = one("select * from items where id = $1");
    assert_eq!(row(&database, &items, "7").await["more"], 5);
}

#[tokio::test]
async fn a_database_that_comes_back_is_read_again() {
    let mut server = PostgresServer::start(POSTGRES_SEED);
    let database = database(&server.url());
    let items = one("select * from items where id = $1");
    assert_eq!(row(&database, &items, "7").await["name"], "seven");
    server.kill();
    assert!(read_one(&database, &items, "7").await.unwrap_err().is_away());
    server.restart();
    until("it is read again", async || read_one(&database, &items, "7").await.is_ok()).await;
    // A connection that the server has closed meanwhile costs no failure.
    server.kill();
    server.restart();
    assert_eq!(row(&database, &items, "7").await["name"], "seven");
}

#[tokio::test]
async fn a_server_is_known_by_its_certificate() {
    let server = PostgresServer::start(POSTGRES_SEED);
    let folder = TempDir::new().unwrap();
    let authority_file = |name: &str, authority: &Authority| {
        let file = folder.path().join(name);
        std::fs::write(&file, &authority.cert).unwrap();
        format!("sslmode=verify-full&sslrootcert={}", file.display())
    };
    let authority = Authority::new("the database's");
    let known = authority_file("known.pem", &authority);
    let other = authority_file("other.pem", &Authority::new("another"));
    let url = server.speak_tls("localhost", &authority.site(&["localhost"]));
    let encrypted =
        one("select 7 as id, ssl from pg_stat_ssl where pid = pg_backend_pid() and $1::int = 7");
    assert_eq!(row(&database(&format!("{url}?{known}")), &encrypted, "7").await["ssl"], true);
    assert_eq!(row(&database(&url), &encrypted, "7").await["ssl"], true, "it is used if offered");
    for wrong in [format!("{url}?{other}"), url.replace("localhost", "127.0.0.1") + "?" + &known] {
        let why = read_one(&database(&wrong), &encrypted, "7").await.unwrap_err();
        assert!(why.is_away(), "{why}");
        assert!(complaint(&database(&wrong), &encrypted).await.contains("certificate"), "{wrong}");
    }
    let plain = database(&format!("{url}?sslmode=disable"));
    assert!(read_one(&plain, &encrypted, "7").await.is_err());
}

#[tokio::test]
async fn a_pooler_may_give_each_transaction_another_server() {
    let server = PostgresServer::start(POSTGRES_SEED);
    let bouncer = Pgbouncer::start(&server);
    let databases = [database(&bouncer.url()), database(&bouncer.url())];
    let single = one("select * from items where id = $1");
    let several = batch("select id, name from items where id = any($1)");
    for database in &databases {
        database.check(&several).await.unwrap();
        for _ in 0..10 {
            assert_eq!(row(database, &single, "7").await["name"], "seven");
            assert!(database.read(&several, &["8"]).await[0].as_ref().unwrap().is_some());
            let fails = one("select (name || 'x')::int from items where id = $1");
            assert!(failure(database, &fails, "7").await.contains("invalid input syntax"));
        }
    }
    // Nothing is left for others on the same connections.
    for _ in 0..2 {
        let left = "select current_setting('statement_timeout'), current_setting('transaction_read_only'), \
                    (select count(*) from pg_prepared_statements)";
        assert_eq!(bouncer.run(left), "0|off|0");
    }
}

const MARIADB_SEED: &str = "
    create table items (id int primary key, name varchar(50));
    insert into items values (7, 'seven'), (8, 'eight');
    create table kinds (
        id bigint primary key, small smallint, big bigint, huge bigint unsigned,
        money decimal(20, 4), rate double, short_rate float, yes tinyint(1), bits bit(10),
        name varchar(50), strict varchar(50) collate utf8mb4_bin, raw varbinary(10), data blob,
        body text, day date, at timestamp(1), local datetime, clock time, born year,
        mood enum('sad', 'ok'), marks set('a', 'b'), nothing text
    ) character set utf8mb4;
    set time_zone = '+02:00';
    insert into kinds values (
        1, -7, 9007199254740991, 18446744073709551615, 12345678901234.5, 0.1, 0.1, 1, b'1000000001',
        'Zo\u{eb} \"q\"', 'strict', x'ff00', x'ff00', 'text', '2026-11-25', '2026-11-25 10:11:12.5',
        '2026-11-25 10:11:12', '-100:11:12', 2026, 'ok', 'a,b', null
    );
    create table numbers (seq int);
    insert into numbers select seq from seq_1_to_1000000;
    create table words (id varchar(20) primary key, name varchar(20)) character set utf8mb4;
    insert into words values ('seven', 'it'), ('a\\'b', 'quoted');
";

#[tokio::test]
async fn mariadb_rows_have_their_values_and_nothing_else() {
    let server = MariadbServer::start(MARIADB_SEED);
    let database = database(&server.url());
    let query = one("select * from kinds where id = ?;");
    database.check(&query).await.unwrap();
    let kinds = row(&database, &query, "1").await;
    assert_eq!(
        kinds,
        json!({
            "id": 1, "small": -7, "big": 9_007_199_254_740_991_i64, "huge": "18446744073709551615",
            "money": "12345678901234.5000", "rate": 0.1, "short_rate": 0.1, "yes": 1, "bits": 513,
            "name": "Zo\u{eb} \"q\"", "strict": "strict", "raw": "/wA=", "data": "/wA=",
            "body": "text", "day": "2026-11-25", "at": "2026-11-25T08:11:12.500000Z",
            "local": "2026-11-25T10:11:12", "clock": "-100:11:12", "born": 2026, "mood": "ok",
            "marks": "a,b", "nothing": null,
        })
    );
    for column in [
        "small",
        "big",
        "huge",
        "money",
        "rate",
        "short_rate",
        "yes",
        "strict",
        "day",
        "clock",
        "born",
    ] {
        let value = kinds[column].as_str().map_or_else(|| kinds[column].to_string(), str::to_owned);
        assert_eq!(server.run(&format!("select {column} from kinds")), value, "{column}");
    }
    let several = "select id, name from items where id in \
                   (select id from json_table(?, '$[*]' columns (id bigint path '$')) as asked)";
    only_the_row_asked_for(
        &database,
        &one("select id, name from items where id = ?"),
        &batch(several),
    )
    .await;
    let words = "select id, name from words where id in \
                 (select id from json_table(?, '$[*]' columns (id varchar(20) path '$')) as asked)";
    let read = database.read(&batch(words), &["a'b", "SEVEN", "seven"]).await;
    let read: Vec<bool> = read.into_iter().map(|one| one.unwrap().is_some()).collect();
    assert_eq!(read, [true, false, true]);
    let writes = failure(&database, &one("insert into items values (?, 'x')"), "9").await;
    assert!(writes.contains("refused the query"), "{writes}");
    assert_eq!(server.run("select count(*) from items"), "2");

    bounded(
        &database,
        "select sleep(30) from items where ? <> ''",
        "select seq from shop.numbers where ? <> ''",
        "select nothing from nowhere where id = ?",
    )
    .await;
}

const SQLITE_SEED: &str = "
    create table items (id integer primary key, name text);
    insert into items values (7, 'seven'), (8, 'eight');
    create table kinds (id integer primary key, big integer, huge integer, rate real, money numeric,
        yes boolean, name text, raw blob, at datetime, absent text);
    insert into kinds values (1, 9007199254740991, 9007199254740993, 0.1, 12.5, true,
        'Zo\u{eb} \"q\"', x'ff00', '2026-11-25 10:11:12', null);
";

fn sqlite_file(folder: &Path, sql: &str) -> String {
    let file = folder.join("shop.db");
    let client = Command::new("sqlite3").arg(&file).arg(sql).stdin(Stdio::null()).output().unwrap();
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    String::from_utf8(client.stdout).unwrap().trim_end().to_owned()
}

#[tokio::test]
async fn sqlite_rows_have_their_values_and_nothing_else() {
    let folder = TempDir::new().unwrap();
    sqlite_file(folder.path(), SQLITE_SEED);
    let database = database(&format!("sqlite:{}", folder.path().join("shop.db").display()));
    let query = one("select * from kinds where id = $1;");
    database.check(&query).await.unwrap();
    assert_eq!(
        row(&database, &query, "1").await,
        json!({
            "id": 1, "big": 9_007_199_254_740_991_i64, "huge": "9007199254740993", "rate": 0.1,
            "money": 12.5, "yes": 1, "name": "Zo\u{eb} \"q\"", "raw": "/wA=",
            "at": "2026-11-25 10:11:12", "absent": null,
        })
    );
    assert_eq!(sqlite_file(folder.path(), "select huge from kinds"), "9007199254740993");
    only_the_row_asked_for(
        &database,
        &one("select id, name from items where id = ?"),
        &batch("select id, name from items where id in (select value from json_each($1))"),
    )
    .await;
    let writes = failure(&database, &one("insert into items values ($1, 'x')"), "9").await;
    assert!(writes.contains("readonly"), "{writes}");
    let count = "with recursive n(i) as (select 1 union all select i + 1 from n";
    bounded(
        &database,
        &format!("{count}) select max(i) from n where $1 <> ''"),
        &format!("{count} limit 1000000) select i from n where $1 <> ''"),
        "select nothing from nowhere where id = $1",
    )
    .await;
    assert!(complaint(&database, &one("select 1")).await.contains("0 parameters"));
}

#[tokio::test]
async fn a_file_that_is_not_there_is_not_made() {
    let folder = TempDir::new().unwrap();
    let database = database(&format!("sqlite:{}", folder.path().join("shop.db").display()));
    let why = database.check(&one("select $1")).await.unwrap_err();
    assert!(why.is_away(), "{why}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
