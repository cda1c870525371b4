//! Rows that the proxy reads from a database.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::support::client::Answer;
use crate::support::database::PostgresServer;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, anteroom};
use crate::support::tls::Authority;
use crate::support::{holds_within, wait_until};

const SEED: &str = "
    create table items (id int primary key, name text, qty int);
    insert into items select g, 'item ' || g, 0 from generate_series(1, 3000) g;
";

pub(crate) fn settings(url: &str, rows: &str) -> String {
    format!(
        "[databases.shop]\nurl = \"{url}\"\n[[rows]]\nname = \"inventory\"\ndatabase = \"shop\"\n{rows}\n\
         [[route]]\nmatch.path = \"/api/stock/{{item}}\"\nrows = \"inventory\"\n"
    )
}

pub(crate) fn app() -> Origin {
    Origin::always(Reply::unstored("from the app"))
}

pub(crate) fn rows(proxy: &Proxy, words: &[&str]) -> Output {
    let mut command = anteroom();
    command.arg("rows").args(words).args(["--config", "proxy.toml"]);
    let output = command.current_dir(proxy.folder()).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

pub(crate) fn stock(proxy: &Proxy, id: &str) -> Answer {
    proxy.get(&format!("/api/stock/{id}")).send()
}

#[test]
fn a_row_follows_the_database_and_outlasts_its_failures() {
    let mut server = PostgresServer::start(SEED);
    let query = "query = \"select id, qty from items where id = $1\"\nevery = \"200ms\"";
    let app = app();
    let proxy = Proxy::with_settings(&app, &settings(&server.url(), query));
    rows(&proxy, &["schedule", "inventory", "7", "8", "no-number"]);
    wait_until("the row is there", || stock(&proxy, "7").text() == r#"{"id":7,"qty":0}"#);
    server.run("update items set qty = 5 where id = 7; delete from items where id = 8");
    wait_until("the change is there", || stock(&proxy, "7").text() == r#"{"id":7,"qty":5}"#);
    wait_until("the deleted row is not", || stock(&proxy, "8").text() == "from the app");
    assert_eq!(stock(&proxy, "no-number").text(), "from the app");
    let log = proxy.complaints();
    let said = log.lines().filter(|line| line.contains("there is no such row"));
    assert_eq!(said.count(), 2, "{log}");

    let failed = proxy.metric("anteroom_rows_failed_total");
    server.kill();
    wait_until("reads fail", || proxy.metric("anteroom_rows_failed_total") > failed + 5.0);
    let kept = stock(&proxy, "7");
    assert_eq!(kept.text(), r#"{"id":7,"qty":5}"#);
    assert!(holds_within(Duration::from_secs(5), || {
        stock(&proxy, "7").header("age").unwrap().parse::<u64>().unwrap() >= 1
    }));
    server.restart();
    server.run("update items set qty = 6 where id = 7");
    let fresh = || stock(&proxy, "7").text() == r#"{"id":7,"qty":6}"#;
    assert!(holds_within(Duration::from_secs(3), fresh), "it is read again soon");
}

#[test]
fn rows_that_are_due_together_are_read_together() {
    let server = PostgresServer::start(SEED);
    let query =
        "query = \"select id, qty from items where id = any($1)\"\nbatch = 500\nevery = \"1s\"";
    let app = app();
    let proxy = Proxy::with_settings(&app, &settings(&server.url(), query));
    let ids: Vec<String> = (1..=3_000).map(|id: u32| id.to_string()).collect();
    let words = ["schedule", "inventory"].into_iter().chain(ids.iter().map(String::as_str));
    rows(&proxy, &words.collect::<Vec<_>>());
    let fetched = || proxy.metric("anteroom_rows_fetched_total");
    wait_until("each row was read some times", || fetched() >= 12_000.0);
    let (rows, queries) = (fetched(), server.count("from items where id = any($1)"));
    println!("{rows} rows by {queries} queries");
    assert!((queries as f64) < rows / 50.0, "{rows} rows by {queries} queries");
    for id in ["1", "500", "2999"] {
        assert_eq!(stock(&proxy, id).text(), format!("{{\"id\":{id},\"qty\":0}}"));
    }
}

#[test]
fn a_reload_changes_the_query() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("shop.db");
    let seed =
        "create table items (id integer primary key, qty int); insert into items values (7, 5);";
    let made = Command::new("sqlite3").arg(&file).arg(seed).stdin(Stdio::null()).status().unwrap();
    assert!(made.success());
    let query = "query = \"select qty from items where id = $1\"\nevery = \"200ms\"";
    let url = format!("sqlite:{}", file.display());
    let app = app();
    let proxy = Proxy::with_settings(&app, &settings(&url, query));
    rows(&proxy, &["schedule", "inventory", "7"]);
    wait_until("the row is there", || stock(&proxy, "7").text() == r#"{"qty":5}"#);
    proxy.edit(|config| config.replace("select qty", "select qty + 1 as more"));
    assert!(proxy.reload());
    wait_until("the row is another", || stock(&proxy, "7").text() == r#"{"more":6}"#);
}

#[test]
fn the_connect_check_prepares_each_query() {
    let server = PostgresServer::start(SEED);
    let folder = TempDir::new().unwrap();
    let check = |rows: &str| {
        let config =
            format!("origin.url = \"http://127.0.0.1:1\"\n{}", settings(&server.url(), rows));
        std::fs::write(folder.path().join("proxy.toml"), config).unwrap();
        let mut command = anteroom();
        command.args(["check", "--connect", "--config", "proxy.toml"]).current_dir(folder.path());
        let output = command.stdin(Stdio::null()).output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let fine = check("query = \"select * from items where id = $1\"");
    assert!(
        fine.contains("fine     rows         inventory: [databases.shop] has prepared"),
        "{fine}"
    );
    let wrong = check("query = \"select * from itms where id = $1\"");
    assert!(wrong.contains("failed   rows         inventory"), "{wrong}");
    assert!(wrong.contains("\"itms\" does not exist"), "{wrong}");
}

/// They are those of the machine, and not a list that is compiled in.
#[test]
fn the_authorities_of_the_system_are_trusted() {
    let server = PostgresServer::start(SEED);
    let (folder, authority) = (TempDir::new().unwrap(), Authority::new("the machine's"));
    let trusted = folder.path().join("trusted.pem");
    std::fs::write(&trusted, &authority.cert).unwrap();
    let url = server.speak_tls("localhost", &authority.site(&["localhost"]));
    let rows = settings(
        &format!("{url}?sslmode=verify-full"),
        "query = \"select * from items where id = $1\"",
    );
    let config = format!("origin.url = \"http://127.0.0.1:1\"\n{rows}");
    std::fs::write(folder.path().join("proxy.toml"), config).unwrap();
    let check = || {
        let mut command = anteroom();
        command.args(["check", "--connect", "--config", "proxy.toml"]).current_dir(folder.path());
        command.stdin(Stdio::null()).env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR");
        command
    };
    let said = |mut command: Command| {
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let mut on_the_machine = check();
    on_the_machine.env("SSL_CERT_FILE", &trusted);
    let fine = said(on_the_machine);
    assert!(fine.contains("fine     rows         inventory"), "{fine}");
    let elsewhere = said(check());
    assert!(elsewhere.contains("failed   rows         inventory"), "{elsewhere}");
}
