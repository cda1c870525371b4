//! `anteroom check --connect`: what the configuration names is tried, and nothing is left behind.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::NamedGroup;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::cluster::RedisCluster;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, anteroom};
use crate::support::redis::RedisServer;
use crate::support::sentinel::SentinelGroup;
use crate::support::tls;
use crate::support::upstream::{Authority, Upstream};
use crate::support::{free_port, unix_now};

/// What a check came to.
struct CheckOutput {
    code: Option<i32>,
    /// Standard output.
    out: String,
    /// All that was printed.
    text: String,
}

impl CheckOutput {
    /// Whether a line begins with the result and contains all `parts`.
    #[track_caller]
    fn says(&self, result: &str, parts: &[&str]) {
        let is_it =
            |line: &str| line.starts_with(result) && parts.iter().all(|part| line.contains(part));
        assert!(self.text.lines().any(is_it), "{result} {parts:?} in:\n{}", self.text);
    }
}

fn check_with(folder: &Path, config: &str, options: &[&str]) -> CheckOutput {
    fs::write(folder.join("proxy.toml"), config).unwrap();
    let output = anteroom()
        .args(["check", "--config", "proxy.toml", "--connect"])
        .args(options)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    CheckOutput { code: output.status.code(), text: format!("{out}{err}"), out }
}

#[test]
fn the_next_store_is_tried_too() {
    let origin = Origin::always(Reply::unstored("page"));
    let (next, nothing) = (RedisServer::start(), free_port());
    let config = |port| {
        format!(
            "origin.url = \"http://{}\"\nstore.next.url = \"redis://127.0.0.1:{port}\"",
            origin.address()
        )
    };
    check(&config(next.port())).says("fine", &["next store", &next.port().to_string()]);
    check(&config(nothing)).says("failed", &["next store", &nothing.to_string()]);
}

fn check(config: &str) -> CheckOutput {
    check_with(TempDir::new().unwrap().path(), config, &[])
}

fn origin_at(address: SocketAddr) -> String {
    format!("origin.url = \"http://{address}\"\n")
}

#[test]
fn all_that_works_is_fine_and_nothing_is_left_behind() {
    let origin = Origin::always(Reply::status("404 Not Found").body(""));
    let folder = TempDir::new().unwrap();
    let config = origin_at(origin.address())
        + "store.url = \"embedded:./new/data\"\nadmin.socket = \"./new/admin.sock\"\nlog.to = \"./access.log\"\nadmin.audit_log = \"./audit.log\"\n";
    let checked = check_with(folder.path(), &config, &[]);
    assert_eq!(checked.code, Some(0), "{}", checked.text);
    checked.says("fine", &["origin", &origin.address().to_string(), "HEAD / was answered 404"]);
    checked.says("fine", &["store", "new/data", "can be created"]);
    checked.says("fine", &["log", "access.log", "append"]);
    checked.says("fine", &["socket", "new/admin.sock", "can be written"]);
    checked.says("fine", &["log", "audit.log", "can be opened"]);
    assert_eq!(origin.last().method, "HEAD");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "proxy.toml alone");
}

#[test]
fn json_lists_what_was_tried() {
    let origin = Origin::always(Reply::unstored("hello"));
    let folder = TempDir::new().unwrap();
    let checked = check_with(folder.path(), &origin_at(origin.address()), &["--json"]);
    let list: Value = serde_json::from_str(&checked.out).unwrap();
    let first = &list.as_array().unwrap()[0];
    assert_eq!(first["what"], "origin");
    assert_eq!(first["target"], format!("http://{}", origin.address()));
    assert_eq!(first["result"], "fine");
    assert_eq!(first["detail"], "HEAD / was answered 200");
}

#[test]
fn each_server_of_each_origin_is_tried() {
    let well = Origin::always(Reply::unstored("hello"));
    let broken = Origin::always(Reply::status("503 Service Unavailable").body(""));
    let config = format!(
        "origin.urls = [\"http://{}\", \"http://127.0.0.1:{}\"]\n[origins.blog]\nurl = \"http://{}\"\n",
        well.address(),
        free_port(),
        broken.address()
    );
    let checked = check(&config);
    assert_eq!(checked.code, Some(1), "{}", checked.text);
    checked.says("fine", &["origin", &well.address().to_string()]);
    checked.says("failed", &["origin", "no connection", "start the app"]);
    checked.says("warning", &["origins.blog", "503"]);
}

#[test]
fn an_answer_that_visitors_seldom_get_has_a_remark() {
    for (status, remark) in [("401 Unauthorized", "credentials"), ("403 Forbidden", "refuses")] {
        let origin = Origin::always(Reply::status(status).body(""));
        let checked = check(&origin_at(origin.address()));
        assert_eq!(checked.code, Some(0), "{}", checked.text);
        checked
            .says("fine", &["origin", &format!("HEAD / was answered {}: ", &status[..3]), remark]);
    }
}

#[test]
fn a_warning_does_not_fail() {
    let broken = Origin::always(Reply::status("500 Internal Server Error").body(""));
    let checked = check(&origin_at(broken.address()));
    assert_eq!(checked.code, Some(0), "{}", checked.text);
}

#[test]
fn an_origin_that_never_answers_fails_within_the_limit() {
    let silent = Origin::always(Reply::silence());
    let checked = check(&origin_at(silent.address()));
    assert_eq!(checked.code, Some(1), "{}", checked.text);
    checked.says("failed", &["origin", "no answer to HEAD / within 5 s"]);
}

#[test]
fn tls_to_the_origin_is_tried() {
    let folder = TempDir::new().unwrap();
    let authority = Authority::new();
    let server = authority.server(&authority.issue("localhost", false), &[], false);
    let hello = |_: &_| Response::new(Full::new(Bytes::from_static(b"hello")));
    let upstream = Upstream::http(Some(server), false, hello);
    let url = format!("origin.url = \"https://localhost:{}\"\n", upstream.port());
    let checked = check(&url);
    assert_eq!(checked.code, Some(1), "{}", checked.text);
    checked.says("failed", &["origin", "TLS", "[origin.tls] ca"]);

    let ca = authority.file(folder.path());
    let checked = check(&format!("{url}origin.tls.ca = \"{}\"\n", ca.display()));
    assert_eq!(checked.code, Some(0), "{}", checked.text);
    checked.says("fine", &["https://localhost", "200"]);
}

#[test]
fn a_folder_that_a_running_proxy_has_is_a_warning() {
    let origin = Origin::always(Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "");
    let data = proxy.folder().join("data");
    let config =
        origin_at(origin.address()) + &format!("store = \"embedded:{}\"\n", data.display());
    let checked = check(&config);
    assert_eq!(checked.code, Some(0), "{}", checked.text);
    checked.says("warning", &["store", "a running proxy has the folder"]);
    assert_eq!(proxy.get("/").send().status, 200);
}

#[test]
fn places_that_cannot_be_written_fail() {
    let origin = Origin::always(Reply::unstored("hello"));
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let config = origin_at(origin.address())
        + "store.url = \"embedded:./file/data\"\nadmin.socket = \"./file/admin.sock\"\nlog.to = \"./missing/access.log\"\n";
    let checked = check_with(folder.path(), &config, &[]);
    assert_eq!(checked.code, Some(1), "{}", checked.text);
    checked.says("failed", &["store", "file/data", "[store] url"]);
    checked.says("failed", &["log", "missing/access.log"]);
    checked.says("failed", &["socket", "file/admin.sock"]);
}

#[tokio::test]
async fn redis_is_tried_and_its_password_is_not_shown() {
    let origin = Origin::always(Reply::unstored("hello"));
    let server = RedisServer::start();
    let with = |url: &str| check(&(origin_at(origin.address()) + &format!("store = \"{url}\"\n")));
    let checked = with(&server.url());
    assert_eq!(checked.code, Some(0), "{}", checked.text);
    let port = server.port().to_string();
    checked.says("fine", &["store", &port, "Redis ", "maxmemory-policy is noeviction"]);

    let mut on = server.connection().await;
    let set = |key: &str, value: &str| {
        let mut command = redis::cmd("CONFIG");
        command.arg("SET").arg(key).arg(value);
        command
    };
    set("maxmemory-policy", "allkeys-lru").exec_async(&mut on).await.unwrap();
    let checked = with(&server.url());
    assert_eq!(checked.code, Some(0), "{}", checked.text);
    checked.says("warning", &["store", "allkeys-lru", "volatile-lru"]);

    set("requirepass", "right-secret").exec_async(&mut on).await.unwrap();
    for (url, code) in [
        (server.url(), 1),
        (format!("redis://:wrong-secret@127.0.0.1:{port}"), 1),
        (format!("redis://:right-secret@127.0.0.1:{port}"), 0),
    ] {
        let checked = with(&url);
        assert_eq!(checked.code, Some(code), "{url}: {}", checked.text);
        assert!(!checked.text.contains("-secret"), "{}", checked.text);
        let result = if code == 1 { "failed" } else { "warning" };
        checked.says(result, &["store", &port]);
    }
}

#[test]
fn a_redis_that_is_away_or_hangs_fails() {
    let origin = Origin::always(Reply::unstored("hello"));
    let with = |url: &str| check(&(origin_at(origin.address()) + &format!("store = \"{url}\"\n")));
    let checked = with(&format!("redis://127.0.0.1:{}", free_port()));
    assert_eq!(checked.code, Some(1), "{}", checked.text);
    checked.says("failed", &["store", "refused"]);

    let server = RedisServer::start();
    server.pause();
    let checked = with(&server.url());
    server.resume();
    assert_eq!(checked.code, Some(1), "{}", checked.text);
    checked.says("failed", &["store", "no answer to PING within 5 s"]);
}

/// A certificate that is valid for this many days from now.
fn certificate_for(days: u64) -> String {
    let now = Duration::from_secs_f64(unix_now());
    let mut params = CertificateParams::new(vec!["shop.example".to_owned()]).unwrap();
    params.not_after = date_time_ymd(1970, 1, 1) + now + Duration::from_secs(days * 86_400 + 60);
    let key = KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().pem() + &key.serialize_pem()
}

#[test]
fn certificates_are_judged_by_their_end() {
    let origin = Origin::always(Reply::unstored("hello"));
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("site.pem");
    let config = origin_at(origin.address())
        + &format!("[[listen]]\naddress = \"127.0.0.1:8443\"\ntls.cert = \"{}\"\n", file.display());
    for (days, result) in [(30, "fine"), (7, "warning")] {
        fs::write(&file, certificate_for(days)).unwrap();
        let checked = check(&config);
        assert_eq!(checked.code, Some(0), "{}", checked.text);
        checked.says(result, &["certificate", "site.pem", "for shop.example", "the key matches"]);
    }
    tls::Authority::new("an authority").expired(&["shop.example"]).write(&file);
    let checked = check(&config);
    assert_eq!(checked.code, Some(1), "{}", checked.text);
    checked.says("failed", &["certificate", "site.pem", "expired on 2001-02-03"]);
}

#[test]
fn a_configuration_that_is_wrong_is_not_tried() {
    let checked = check("[orgin]\nurl = \"http://127.0.0.1:1\"\n");
    assert_eq!(checked.code, Some(64), "{}", checked.text);
    assert!(!checked.text.contains("HEAD"), "{}", checked.text);
}

/// The result of a check of this store behind an app that answers.
fn check_store(url: &str) -> CheckOutput {
    let origin = Origin::always(Reply::unstored("hello"));
    let layout = "store.layout = \"sharded\"";
    check(&format!("{}store.url = \"{url}\"\n{layout}\n", origin_at(origin.address())))
}

#[test]
fn a_cluster_is_tried_and_its_settings_too() {
    let cluster = RedisCluster::start();
    let checked = check_store(&cluster.url());
    assert_eq!(checked.code, Some(0), "{}", checked.text);
    checked.says("fine", &["store", "a Cluster of 3 primaries"]);

    for node in &cluster.nodes {
        node.say("CONFIG SET cluster-require-full-coverage yes");
        node.say("CONFIG SET cluster-node-timeout 15000");
    }
    let checked = check_store(&cluster.url());
    assert_eq!(checked.code, Some(0), "{}", checked.text);
    let warning =
        &["store", "cluster-require-full-coverage is yes", "cluster-node-timeout is 15000 ms"];
    checked.says("warning", warning);
}

#[test]
fn a_cluster_without_replicas_is_warned_of_and_one_server_is_none() {
    let alone = RedisServer::start_cluster();
    let checked = check_store(&format!("redis+cluster://127.0.0.1:{}", alone.port()));
    assert_eq!(checked.code, Some(0), "{}", checked.text);
    checked.says("warning", &["store", &alone.port().to_string(), "has no replica"]);

    let server = RedisServer::start();
    let checked = check_store(&format!("redis+cluster://127.0.0.1:{}", server.port()));
    assert_eq!(checked.code, Some(1), "{}", checked.text);
    let port = server.port().to_string();
    checked.says("failed", &["store", &port, "none of", "a node of a Cluster"]);
}

#[test]
fn sentinels_are_tried_and_the_primary_that_they_name() {
    let mut watched = SentinelGroup::start();
    let checked = check_store(&watched.url());
    assert_eq!(checked.code, Some(0), "{}", checked.text);
    let primary = format!("the primary is 127.0.0.1:{}", watched.servers[0].port());
    checked.says("fine", &["store", "mymaster at", &primary]);

    let checked = check_store(&watched.url_of("other"));
    assert_eq!(checked.code, Some(1), "{}", checked.text);
    checked.says("failed", &["store", "other at", "a Sentinel that knows the primary"]);

    // Or the Sentinels make the replica the primary meanwhile.
    watched.servers[1].pause();
    watched.servers[0].kill();
    let checked = check_store(&watched.url());
    assert_eq!(checked.code, Some(1), "{}", checked.text);
}

#[test]
fn keys_with_redis_are_exchanged_as_with_all_others() {
    let (folder, authority) = (TempDir::new().unwrap(), Authority::new());
    let tls = authority.server(&authority.issue("127.0.0.1", false), &[], false);
    let (tell, told) = mpsc::channel();
    let redis = Upstream::start(Some(tls), move |met, _| {
        tell.send(met.key_exchange).unwrap();
        Box::pin(async {})
    });
    let port = redis.port();
    let config =
        format!("origin.url = \"http://127.0.0.1:1\"\nstore.url = \"rediss://127.0.0.1:{port}\"\n");
    fs::write(folder.path().join("proxy.toml"), config).unwrap();
    let output = anteroom()
        .args(["check", "--config", "proxy.toml", "--connect"])
        .env("SSL_CERT_FILE", authority.file(folder.path()))
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    // It is no Redis, and says nothing.
    assert!(!output.status.success());
    let agreed = told.recv_timeout(Duration::from_secs(10));
    assert_eq!(agreed, Ok(Some(NamedGroup::X25519MLKEM768)), "{output:?}");
}
