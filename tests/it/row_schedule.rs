//! Rows that the configuration, requests or the database itself bring into the schedule.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::database_rows::{app, rows, settings, stock};
use crate::support::database::PostgresServer;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage};
use crate::support::{holds_within, wait_until};

const SEED: &str = "
    create table items (id int primary key, qty int, active bool not null default false);
    insert into items select g, 0 from generate_series(1, 3000) g;
    create function item_changed() returns trigger language plpgsql as $$
        begin perform pg_notify('item_changed', new.id::text); return new; end $$;
    create trigger item_changed after update on items for each row execute function item_changed();
";
const QUERY: &str = "query = \"select id, qty from items where id = any($1)\"\nbatch = 500";

fn listed(proxy: &Proxy) -> Vec<Value> {
    let listing: Value = serde_json::from_slice(&rows(proxy, &["list", "--json"]).stdout).unwrap();
    listing["rows"].as_array().unwrap().clone()
}

fn ids(proxy: &Proxy) -> Vec<String> {
    let mut ids: Vec<String> =
        listed(proxy).iter().map(|row| row["row"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}

fn qty(proxy: &Proxy, id: &str) -> Option<i64> {
    serde_json::from_str::<Value>(&stock(proxy, id).text()).ok()?["qty"].as_i64()
}

#[test]
fn rows_of_the_configuration_and_of_a_query_are_scheduled() {
    let server = PostgresServer::start(SEED);
    server.run("update items set active = true where id in (11, 12)");
    let app = app();
    let keys = format!(
        "{QUERY}\nevery = \"200ms\"\nrows = [\"1..3\", \"7\"]\n\
         rows_query = \"select id from items where active order by id\"\nrows_every = \"1s\""
    );
    let proxy = Proxy::with_settings(&app, &settings(&server.url(), &keys));
    wait_until("they are scheduled", || ids(&proxy) == ["1", "11", "12", "2", "3", "7"]);
    wait_until("they are fetched", || qty(&proxy, "12") == Some(0) && qty(&proxy, "2") == Some(0));
    server.run("update items set active = true where id = 13");
    wait_until("a new one is listed", || ids(&proxy).contains(&"13".to_owned()));

    // A query that fails takes nothing away.
    server.run("alter table items rename column active to was_active");
    wait_until("it is logged", || proxy.complaints().contains("rows_query failed"));
    assert_eq!(ids(&proxy).len(), 7);
    server.run("alter table items rename column was_active to active");
    wait_until("it works again", || proxy.complaints().contains("rows_query works again"));
}

#[test]
fn a_row_is_scheduled_when_it_is_asked_for_and_dropped_when_it_is_not() {
    let server = PostgresServer::start(SEED);
    let app = app();
    let keys = format!("{QUERY}\nevery = \"500ms\"\non_demand = true\nidle = \"6s\"");
    let proxy = Proxy::with_settings(&app, &settings(&server.url(), &keys));
    // The first request gets the row already.
    assert_eq!(qty(&proxy, "7"), Some(0));
    assert_eq!(ids(&proxy), ["7"]);
    server.run("update items set qty = 5 where id = 7");
    wait_until("it is refreshed", || qty(&proxy, "7") == Some(5));

    // Ids that do not exist cost a query once, and no place in the schedule.
    let queries = || proxy.metric("anteroom_rows_on_demand_total");
    let before = queries();
    for _ in 0..20 {
        assert_eq!(stock(&proxy, "99999").text(), "from the app");
        assert_eq!(stock(&proxy, "no-number").text(), "from the app");
    }
    assert_eq!(queries() - before, 2.0);
    assert_eq!(ids(&proxy), ["7"]);

    // A row that is used stays; the other one goes.
    assert_eq!(qty(&proxy, "8"), Some(0));
    let alone = || {
        assert_eq!(qty(&proxy, "7"), Some(5));
        ids(&proxy) == ["7"]
    };
    assert!(holds_within(Duration::from_secs(60), alone));
    assert!(holds_within(Duration::from_secs(60), || ids(&proxy).is_empty()));
}

#[test]
fn rows_on_demand_stay_below_their_bound() {
    let server = PostgresServer::start(SEED);
    let app = app();
    let keys = format!("{QUERY}\nevery = \"1h\"\non_demand = true\non_demand_max = 5");
    let proxy = Proxy::with_settings(&app, &settings(&server.url(), &keys));
    for id in 1..=20 {
        assert_eq!(qty(&proxy, &id.to_string()), Some(0), "it is answered all the same");
    }
    assert_eq!(ids(&proxy).len(), 5);
}

#[test]
fn rows_of_an_app_are_scheduled_when_they_are_asked_for() {
    let app = Origin::start(|request| match request.path() {
        "/rows/7" => Reply::typed("application/json", "{\"qty\":3}"),
        "/rows/8" => Reply::status("404 Not Found"),
        _ => Reply::unstored("from the app"),
    });
    let settings = "[[rows]]\nname = \"inventory\"\npath = \"/rows/{row}\"\non_demand = true\n\
                    [[route]]\nmatch.path = \"/api/stock/{item}\"\nrows = \"inventory\"\n";
    let proxy = Proxy::with_settings(&app, settings);
    assert_eq!(qty(&proxy, "7"), Some(3));
    assert_eq!(stock(&proxy, "8").text(), "from the app");
    assert_eq!(ids(&proxy), ["7"]);
}

fn hits(app: &Origin, path: &str) -> usize {
    app.seen().iter().filter(|request| request.path() == path).count()
}

fn listening(server: &PostgresServer) -> usize {
    let sql = "select count(*) from pg_stat_activity where query ilike 'listen %'";
    server.run(sql).trim().parse().unwrap()
}

#[test]
fn a_change_that_the_database_announces_is_read_at_once() {
    let mut server = PostgresServer::start(SEED);
    let app = app();
    let keys = format!("{QUERY}\nevery = \"1h\"\nrows = [\"1..3000\"]\nlisten = \"item_changed\"");
    let proxy = Proxy::with_settings(&app, &settings(&server.url(), &keys));
    wait_until("all are fetched", || proxy.metric("anteroom_rows_fetched_total") >= 3_000.0);
    wait_until("it listens", || listening(&server) == 1);
    server.run("update items set qty = 5 where id = 7");
    wait_until("the change is there", || qty(&proxy, "7") == Some(5));

    // A flood is gathered: three thousand notifications are few queries.
    let queries = proxy.metric("anteroom_rows_queries_total");
    server.run("update items set qty = 6");
    for id in ["1", "7", "1500", "3000"] {
        wait_until("the change is there", || qty(&proxy, id) == Some(6));
    }
    assert_eq!(proxy.metric("anteroom_rows_notices_total"), 3_001.0);
    let queries = proxy.metric("anteroom_rows_queries_total") - queries;
    assert!(queries < 100.0, "{queries} queries");

    // What changes while nothing can be announced is read when the connection is back.
    server.kill();
    wait_until("it is logged", || proxy.complaints().contains("are not announced"));
    assert_eq!(qty(&proxy, "7"), Some(6), "the last good row");
    server.restart();
    server.run("alter table items disable trigger all; update items set qty = 7");
    assert!(holds_within(Duration::from_secs(10), || qty(&proxy, "7") == Some(7)));
}

#[test]
fn a_database_purges_only_what_it_may() {
    let server = PostgresServer::start(SEED);
    let app = Origin::start(|request| {
        let tag = if request.path() == "/news" { "news" } else { "item-7" };
        Reply::html(request.path())
            .header("cache-control", "max-age=600")
            .header("surrogate-key", tag)
    });
    let keys = format!(
        "{QUERY}\nlisten = \"item_changed\"\nlisten_purges = [\"tag:item-*\", \"url:/list/*\"]"
    );
    let proxy = Proxy::with_settings(&app, &settings(&server.url(), &keys));
    wait_until("it listens", || listening(&server) == 1);
    let outcome = |path: &str| proxy.get(path).send().header("cache-status").unwrap().to_owned();
    for path in ["/item/7", "/list/all", "/news"] {
        wait_until("it is stored", || outcome(path).contains("hit"));
    }
    server.run("notify item_changed, 'tag:news'");
    server.run("notify item_changed, 'url:/news'");
    server.run("select pg_notify('item_changed', 'tag:item-' || repeat('x', 5000))");
    server.run("select pg_notify('item_changed', 'tag:item-a\nb')");
    server.run("notify item_changed, 'url:/list/all'");
    wait_until("they have arrived", || proxy.metric("anteroom_rows_notices_total") == 5.0);
    assert!((3.0..=4.0).contains(&proxy.metric("anteroom_rows_notices_refused_total")));
    wait_until("the list is fetched again", || {
        hits(&app, "/list/all") == 2 || {
            outcome("/list/all");
            false
        }
    });
    assert!(outcome("/item/7").contains("hit") && outcome("/news").contains("hit"));
    server.run("notify item_changed, 'tag:item-7'");
    wait_until("the item is fetched again", || {
        hits(&app, "/item/7") == 2 || {
            outcome("/item/7");
            false
        }
    });
    assert_eq!(hits(&app, "/news"), 1);
}

#[test]
fn one_proxy_of_a_fleet_listens_and_another_takes_over() {
    let server = PostgresServer::start(SEED);
    let (app, storage) = (app(), Storage::redis());
    let keys = format!("{QUERY}\nevery = \"1h\"\nrows = [\"1..3\"]\nlisten = \"item_changed\"");
    let settings = settings(&server.url(), &keys);
    let mut first = Proxy::start(&app, &storage, &settings);
    wait_until("it listens", || listening(&server) == 1);
    let second = Proxy::start(&app, &storage, &settings);
    wait_until("the rows are there", || qty(&second, "2") == Some(0));
    server.run("update items set qty = 5 where id = 2");
    wait_until("the change is there", || qty(&second, "2") == Some(5));
    assert_eq!(listening(&server), 1);
    first.kill9();
    server.run("update items set qty = 6 where id = 2");
    wait_until("the other one listens", || second.metric("anteroom_rows_queries_total") >= 1.0);
    assert!(holds_within(Duration::from_secs(20), || qty(&second, "2") == Some(6)));
}

#[test]
fn a_file_of_sqlite_is_watched() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("shop.db");
    let run = |sql: &str| {
        let done = Command::new("sqlite3").arg(&file).arg(sql).status().unwrap();
        assert!(done.success());
    };
    run("create table items (id integer primary key, qty int); insert into items values (7, 5);");
    let app = app();
    let keys = "query = \"select qty from items where id = $1\"\nevery = \"1h\"\nrows = [\"7\"]\n\
                listen = \"data_version\"";
    let proxy = Proxy::with_settings(&app, &settings(&format!("sqlite:{}", file.display()), keys));
    wait_until("the row is there", || qty(&proxy, "7") == Some(5));
    run("update items set qty = 6");
    wait_until("the change is there", || qty(&proxy, "7") == Some(6));
}

#[test]
fn the_listing_tells_what_fails_and_what_is_late() {
    let mut server = PostgresServer::start(SEED);
    let app = app();
    let keys = format!("{QUERY}\nevery = \"200ms\"\nrows = [\"7\"]");
    let proxy = Proxy::with_settings(&app, &settings(&server.url(), &keys));
    wait_until("the row is there", || qty(&proxy, "7") == Some(0));
    assert_eq!(listed(&proxy)[0]["failures"], 0);
    server.kill();
    wait_until("it is late", || listed(&proxy)[0]["late"].as_f64().unwrap() > 1.0);
    let row = &listed(&proxy)[0];
    assert!(row["failures"].as_u64().unwrap() > 0, "{row}");
    assert!(row["failure"].as_str().unwrap().contains("the database is away"), "{row}");
    let shown = String::from_utf8(rows(&proxy, &["list"]).stdout).unwrap();
    assert!(shown.contains("late by") && shown.contains("in a row: the source failed"), "{shown}");
}
