//! Certificates that the proxy orders itself, from a real authority.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::acme::{AcmeScript, ScriptedAuthority};
use crate::support::acme2certifier::Acme2Certifier;
use crate::support::client::{Ask, SITE};
use crate::support::origin::{Origin, Reply};
use crate::support::pebble::{Pebble, PebbleSettings};
use crate::support::proxy::{Proxy, Storage, anteroom, on_both_stores};
use crate::support::tls::Browser;
use crate::support::{free_port, holds_within, unix_now, wait_within};

/// How long an order may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a process may end while it orders, in the order of the steps.
const PLACES: [&str; 10] = [
    "acme-begun",
    "acme-key",
    "acme-account",
    "acme-made",
    "acme-saved",
    "acme-answered",
    "acme-told",
    "acme-requested",
    "acme-checked",
    "acme-installed",
];

const DAY: f64 = 86_400.0;

on_both_stores!(
    a_successor_answers_what_the_authority_was_told_before,
    a_successor_shows_the_same_certificate_and_orders_the_next,
);

fn hello() -> Origin {
    Origin::always(Reply::unstored("hello"))
}

/// Runs a command about certificates.
fn certificates(proxy: &Proxy, words: &[&str]) -> Output {
    let mut command = anteroom();
    command.arg("certificates").args(words).args(["--config", "proxy.toml"]);
    command.current_dir(proxy.folder()).output().unwrap()
}

/// What is told of a name.
fn told(proxy: &Proxy, name: &str) -> Value {
    let output = certificates(proxy, &["list", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let ordered = report["ordered"].as_array().unwrap();
    ordered.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{report}")).clone()
}

fn wait_for_certificate(proxy: &Proxy, name: &str) {
    wait_within(PATIENCE, "a certificate is in use", || told(proxy, name)["state"] == "in-use");
}

/// The certificate that visitors are shown.
fn shown(pebble: &Pebble, name: &str) -> CertificateDer<'static> {
    Browser::new().visit(pebble.https, name).1.shown.unwrap()
}

/// A request by http.
fn plain(pebble: &Pebble) -> Ask {
    Ask::new(pebble.http, "GET", "/")
}

/// A file of ordered certificates, on the embedded store.
fn file(proxy: &Proxy, name: &str) -> PathBuf {
    proxy.folder().join("data/acme").join(name)
}

#[test]
fn without_an_authority_a_site_is_served_by_http_and_a_self_signed_certificate_is_shown() {
    let (pebble, origin) = (Pebble::start(), hello());
    let away = format!("acme.directory = \"https://127.0.0.1:{}/dir\"", free_port());
    let settings = pebble.settings(&[SITE], "acme.challenge = \"http-01\"");
    let own = settings.lines().find(|line| line.starts_with("acme.directory")).unwrap();
    let proxy = Proxy::embedded(&origin, &settings.replace(own, &away));
    assert_eq!(plain(&pebble).send().status, 200, "there is no redirect");
    let (mut client, greeted) = Browser::new().visit(pebble.https, SITE);
    let answer = plain(&pebble).send_on(&mut client);
    assert_eq!((answer.status, answer.header("strict-transport-security")), (200, None));
    let der = CertificateDer::from_pem_file(file(&proxy, "shop.test.pem")).unwrap();
    assert_eq!(greeted.shown, Some(der));
    wait_within(PATIENCE, "a failure is told", || told(&proxy, SITE)["failures"] == 1);
    let one = told(&proxy, SITE);
    assert_eq!((&one["state"], &one["not_after"]), (&"self-signed".into(), &Value::Null));
    assert!(one["last_error"].as_str().unwrap().contains("cannot connect"), "{one}");
    assert!(!certificates(&proxy, &["list"]).status.success());
    proxy.wait_for_complaint("a self-signed certificate is shown until the first one is issued");
}

#[test]
fn a_name_is_proved_by_each_challenge() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let (pebble, origin) = (Pebble::start(), hello());
        let more = format!("acme.challenge = \"{challenge}\"\nacme.email = \"a@shop.test\"");
        let proxy = Proxy::embedded(&origin, &pebble.settings(&[SITE, "www.shop.test"], &more));
        for name in [SITE, "www.shop.test"] {
            wait_for_certificate(&proxy, name);
            let der = CertificateDer::from_pem_file(file(&proxy, &format!("{name}.pem"))).unwrap();
            assert_eq!(shown(&pebble, name), der, "{challenge}");
        }
        // From now on browsers are sent there.
        assert_eq!(plain(&pebble).send().status, 308);
        let (mut client, _) = Browser::new().visit(pebble.https, SITE);
        let answer = plain(&pebble).send_on(&mut client);
        assert_eq!(answer.header("strict-transport-security"), Some("max-age=86400"));
        for name in ["_account_.json", "shop.test.json", "shop.test.pem"] {
            let mode = fs::metadata(file(&proxy, name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        assert!(certificates(&proxy, &["list"]).status.success());
    }
}

#[test]
fn a_wildcard_is_proved_by_the_hook() {
    let (pebble, origin) = (Pebble::start(), hello());
    let proxy = Proxy::embedded(&origin, &pebble.settings(&["*.shop.test"], &pebble.hook()));
    wait_for_certificate(&proxy, "*.shop.test");
    let der = CertificateDer::from_pem_file(file(&proxy, "_wildcard_.shop.test.pem")).unwrap();
    assert_eq!(shown(&pebble, "any.shop.test"), der);
}

#[test]
fn what_is_no_challenge_of_ours_goes_to_the_app() {
    let (pebble, origin) = (Pebble::start(), hello());
    let _proxy =
        Proxy::embedded(&origin, &pebble.settings(&[SITE], "acme.challenge = \"http-01\""));
    let path = "/.well-known/acme-challenge/0123456789abcdef";
    assert_eq!(Ask::new(pebble.http, "GET", path).send().text(), "hello");
    let asks = Browser::new().offering(&[b"acme-tls/1"]);
    assert!(asks.try_visit(pebble.https, SITE, b"").is_none(), "there is none by TLS");
}

#[test]
fn used_nonces_do_not_stop_an_order() {
    let pebble = Pebble::with(&PebbleSettings { refused_nonces: 20, ..Default::default() });
    let origin = hello();
    let proxy = Proxy::embedded(&origin, &pebble.settings(&[SITE], "acme.challenge = \"http-01\""));
    wait_for_certificate(&proxy, SITE);
    assert_eq!(proxy.metric("anteroom_certificate_order_errors_total"), 0.0);
}

#[test]
fn a_certificate_is_renewed_while_visitors_come() {
    let pebble = Pebble::with(&PebbleSettings { validity: 20, ..Default::default() });
    let origin = hello();
    let proxy = Proxy::embedded(&origin, &pebble.settings(&[SITE], "acme.challenge = \"http-01\""));
    wait_for_certificate(&proxy, SITE);
    let mut all = vec![shown(&pebble, SITE)];
    wait_within(3 * PATIENCE, "it is renewed three times", || {
        let (mut client, greeted) = Browser::new().visit(pebble.https, SITE);
        assert_eq!(plain(&pebble).send_on(&mut client).text(), "hello");
        let shown = greeted.shown.unwrap();
        if all.last() != Some(&shown) {
            assert!(!all.contains(&shown), "an old certificate is shown again");
            all.push(shown);
        }
        all.len() > 3
    });
    assert_eq!(proxy.metric("anteroom_certificate_order_errors_total"), 0.0);
}

#[test]
fn an_operator_renews_a_certificate() {
    let (pebble, origin) = (Pebble::start(), hello());
    let proxy = Proxy::embedded(&origin, &pebble.settings(&[SITE], "acme.challenge = \"http-01\""));
    wait_for_certificate(&proxy, SITE);
    let first = shown(&pebble, SITE);
    let refused = certificates(&proxy, &["renew", "other.test"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("other.test"), "{said}");
    assert!(certificates(&proxy, &["renew", SITE]).status.success());
    wait_within(PATIENCE, "another certificate is shown", || shown(&pebble, SITE) != first);
}

#[test]
fn a_kill_at_any_step_of_an_order_loses_nothing() {
    let (pebble, origin) = (Pebble::start(), hello());
    let settings = pebble.settings(&[SITE], "acme.challenge = \"http-01\"");
    let mut proxy = Proxy::embedded(&origin, &settings);
    wait_for_certificate(&proxy, SITE);
    for place in PLACES {
        proxy.kill9();
        fs::remove_dir_all(proxy.folder().join("data/acme")).unwrap();
        // There is no process to take over from.
        let mut killed = proxy.successor().env("ANTEROOM_CRASH", place).spawn().unwrap();
        let ended = holds_within(PATIENCE, || killed.try_wait().unwrap().is_some());
        drop(killed.kill());
        assert!(ended && !killed.wait().unwrap().success(), "{place}");
        proxy.restart();
        wait_within(PATIENCE, place, || {
            let one = told(&proxy, SITE);
            // The authority may have found no process: the name would wait for a minute.
            if one["failures"] != 0 {
                assert!(certificates(&proxy, &["renew", SITE]).status.success());
            }
            let der = CertificateDer::from_pem_file(file(&proxy, "shop.test.pem")).unwrap();
            one["state"] == "in-use" && shown(&pebble, SITE) == der
        });
    }
}

#[test]
fn a_damaged_certificate_is_ordered_again() {
    let (pebble, origin) = (Pebble::start(), hello());
    let settings = pebble.settings(&[SITE], "acme.challenge = \"http-01\"");
    let mut proxy = Proxy::embedded(&origin, &settings);
    wait_for_certificate(&proxy, SITE);
    proxy.kill9();
    for (name, text) in [("shop.test.pem", "damaged"), ("_account_.json", "{")] {
        fs::write(file(&proxy, name), text).unwrap();
    }
    proxy.restart();
    wait_for_certificate(&proxy, SITE);
    let der = CertificateDer::from_pem_file(file(&proxy, "shop.test.pem")).unwrap();
    assert_eq!(shown(&pebble, SITE), der);
}

#[test]
fn proxies_on_one_redis_order_once_and_all_show_it() {
    let (pebble, origin, storage) = (Pebble::start(), hello(), Storage::redis());
    let more = format!("acme.challenge = \"http-01\"\n{}", pebble.shared_secret());
    let one = Proxy::start(&origin, &storage, &pebble.settings(&[SITE], &more));
    let [http, https] =
        [free_port(), free_port()].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let two = Proxy::start(&origin, &storage, &pebble.settings_at(http, https, &[SITE], &more));
    for proxy in [&one, &two] {
        wait_for_certificate(proxy, SITE);
    }
    let issued = |proxy: &Proxy| proxy.metric("anteroom_certificates_issued_total");
    assert_eq!(issued(&one) + issued(&two), 1.0);
    let shown_at = |address| Browser::new().visit(address, SITE).1.shown;
    assert_eq!(shown_at(pebble.https), shown_at(https));
    // A renewal by hand reaches the one that orders, and then both.
    let first = shown_at(https);
    for proxy in [&one, &two] {
        let before = issued(&one) + issued(&two);
        assert!(certificates(proxy, &["renew", SITE]).status.success());
        wait_within(PATIENCE, "it is renewed", || issued(&one) + issued(&two) > before);
    }
    wait_within(PATIENCE, "both show it", || {
        let (here, there) = (shown_at(pebble.https), shown_at(https));
        here == there && here != first
    });
}

#[test]
fn what_redis_has_lost_of_a_certificate_is_shared_again() {
    let (pebble, origin, storage) = (Pebble::start(), hello(), Storage::redis());
    let Storage::Redis(redis) = &storage else { unreachable!("opened on redis") };
    let more = format!("acme.challenge = \"http-01\"\n{}", pebble.shared_secret());
    let one = Proxy::start(&origin, &storage, &pebble.settings(&[SITE], &more));
    wait_for_certificate(&one, SITE);
    // A Redis that is full evicts single keys.
    for lost in ["acme:*cert:shop.test", "acme:*index", "acme:*account"] {
        wait_within(PATIENCE, "it is shared", || !redis.keys(lost).is_empty());
        for key in redis.keys(lost) {
            redis.command::<()>(&["DEL", &key]);
        }
        wait_within(PATIENCE, "it is shared again", || !redis.keys(lost).is_empty());
    }
    redis.command::<()>(&["FLUSHALL"]);
    wait_within(PATIENCE, "all is shared again", || !redis.keys("acme:*index").is_empty());
    let at = [free_port(), free_port()].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let two = Proxy::start(&origin, &storage, &pebble.settings_at(at[0], at[1], &[SITE], &more));
    wait_for_certificate(&two, SITE);
    assert_eq!(Browser::new().visit(at[1], SITE).1.shown, Some(shown(&pebble, SITE)));
    assert_eq!(two.metric("anteroom_certificates_issued_total"), 0.0);
}

#[test]
fn an_authority_that_takes_its_time_is_asked_once() {
    let (pebble, origin) = (Pebble::start(), hello());
    // It finds this listener, which does not answer, and waits for longer than the proxy between two looks at the order.
    let _silent = TcpListener::bind(pebble.http).unwrap();
    let [http, https] =
        [free_port(), free_port()].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let more = "acme.challenge = \"http-01\"";
    let proxy = Proxy::embedded(&origin, &pebble.settings_at(http, https, &[SITE], more));
    wait_within(PATIENCE, "it gives up", || told(&proxy, SITE)["failures"] == 1);
    let said = proxy.complaints();
    assert_eq!(said.matches("the authority was asked to check the name").count(), 1, "{said}");
}

/// The path that an authority asks for, which finds this listener in place of the proxy.
fn asked_path(listener: &TcpListener) -> String {
    listener.set_nonblocking(true).unwrap();
    let mut asked = None;
    wait_within(PATIENCE, "the authority asks", || {
        asked = listener.accept().ok();
        asked.is_some()
    });
    let (socket, _) = asked.unwrap();
    socket.set_nonblocking(false).unwrap();
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).unwrap();
    line.split(' ').nth(1).unwrap().to_owned()
}

fn a_successor_answers_what_the_authority_was_told_before(storage: &Storage) {
    let (pebble, origin) = (Pebble::start(), hello());
    let there = TcpListener::bind(pebble.http).unwrap();
    let [http, https] =
        [free_port(), free_port()].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let more = "acme.challenge = \"http-01\"";
    let mut proxy = Proxy::start(&origin, storage, &pebble.settings_at(http, https, &[SITE], more));
    let path = asked_path(&there);
    let answer = || Ask::new(http, "GET", &path).send();
    let first = answer();
    assert_eq!(first.status, 200);
    let token = path.rsplit('/').next().unwrap();
    assert!(first.text().starts_with(&format!("{token}.")), "{}", first.text());
    let mut old = proxy.take_over();
    assert_eq!(answer().text(), first.text());
    assert_eq!(old.exit_code(), Some(0));
}

fn a_successor_shows_the_same_certificate_and_orders_the_next(storage: &Storage) {
    let (pebble, origin) = (Pebble::start(), hello());
    let settings = pebble.settings(&[SITE], "acme.challenge = \"http-01\"");
    let mut proxy = Proxy::start(&origin, storage, &settings);
    wait_for_certificate(&proxy, SITE);
    let first = shown(&pebble, SITE);
    let mut old = proxy.take_over();
    assert_eq!(shown(&pebble, SITE), first);
    assert_eq!(told(&proxy, SITE)["state"], "in-use");
    assert!(certificates(&proxy, &["renew", SITE]).status.success());
    wait_within(PATIENCE, "the successor has ordered", || shown(&pebble, SITE) != first);
    assert_eq!(old.exit_code(), Some(0));
}

/// The settings of a proxy with one listener, which no authority asks.
fn one_listener(more: &str) -> String {
    format!(
        "listen = [{{ address = \"{{listen}}\", tls = \"auto\" }}]\norigin.hosts = [{SITE:?}]\n\
         acme.challenge = \"http-01\"\n{more}"
    )
}

/// A proxy before an authority that does what a case says. Names count as proved.
fn before(authority: &ScriptedAuthority, origin: &Origin, more: &str) -> Proxy {
    Proxy::embedded(origin, &one_listener(&format!("{}{more}", authority.settings())))
}

#[test]
fn a_window_in_the_past_renews_soon_and_says_what_is_replaced() {
    let (folder, origin) = (TempDir::new().unwrap(), hello());
    let script = AcmeScript { validity: 40, hurries: true, ..AcmeScript::default() };
    let authority = ScriptedAuthority::start(folder.path(), script);
    let proxy = before(&authority, &origin, "acme.profile = \"shortlived\"");
    wait_within(PATIENCE, "it is renewed", || {
        proxy.metric("anteroom_certificates_issued_total") >= 2.0
    });
    let orders = authority.orders();
    assert_eq!(orders.len(), 2, "the second has a later window: {orders:?}");
    assert!(orders.iter().all(|order| order["profile"] == "shortlived"), "{orders:?}");
    assert_eq!(orders[0].get("replaces"), None);
    assert!(orders[1]["replaces"].as_str().unwrap().contains('.'), "{orders:?}");
}

#[test]
fn an_order_that_cannot_replace_is_made_without() {
    let (folder, origin) = (TempDir::new().unwrap(), hello());
    let script = AcmeScript { validity: 40, hurries: true, refuses_replacing: true, refusal: None };
    let authority = ScriptedAuthority::start(folder.path(), script);
    let proxy = before(&authority, &origin, "");
    wait_within(PATIENCE, "it is renewed", || {
        proxy.metric("anteroom_certificates_issued_total") >= 2.0
    });
    let replaces: Vec<_> =
        authority.orders().iter().map(|order| order.get("replaces").is_some()).collect();
    assert_eq!(replaces, [false, true, false]);
    assert_eq!(proxy.metric("anteroom_certificate_order_errors_total"), 0.0);
}

#[test]
fn a_limit_of_the_authority_is_kept_and_the_certificate_in_use_stays() {
    let (folder, origin) = (TempDir::new().unwrap(), hello());
    let authority = ScriptedAuthority::start(folder.path(), AcmeScript::default());
    let proxy = before(&authority, &origin, "");
    wait_for_certificate(&proxy, SITE);
    let shown = || Browser::new().visit(proxy.address(), SITE).1.shown;
    let first = shown();
    authority.change(|script| script.refusal = Some((429, "rateLimited", 7_200)));
    assert!(certificates(&proxy, &["renew", SITE]).status.success());
    wait_within(PATIENCE, "the refusal is told", || told(&proxy, SITE)["failures"] == 1);
    let one = told(&proxy, SITE);
    let wait = one["next_try"].as_f64().unwrap() - unix_now();
    assert!((7_000.0..7_300.0).contains(&wait), "{one}");
    assert!(one["last_error"].as_str().unwrap().contains("rateLimited"), "{one}");
    assert_eq!((shown(), authority.orders().len()), (first.clone(), 2));
    // An operator need not wait, and what was limited is no more.
    authority.change(|script| script.refusal = None);
    assert!(certificates(&proxy, &["renew", SITE]).status.success());
    wait_within(PATIENCE, "another one is shown", || shown() != first);
    wait_within(PATIENCE, "the failure is over", || told(&proxy, SITE)["failures"] == 0);
}

#[test]
fn another_authority_replaces_the_certificate_of_the_first() {
    let (folders, origin) = ([TempDir::new().unwrap(), TempDir::new().unwrap()], hello());
    let [one, two] = folders
        .each_ref()
        .map(|folder| ScriptedAuthority::start(folder.path(), AcmeScript::default()));
    let proxy = before(&one, &origin, "");
    wait_for_certificate(&proxy, SITE);
    let shown = || Browser::new().visit(proxy.address(), SITE).1.shown;
    let first = shown();
    proxy.edit(|text| text.replace(&one.settings(), &two.settings()));
    assert!(proxy.reload());
    wait_within(PATIENCE, "another one is shown", || shown() != first);
    let orders = two.orders();
    assert_eq!((orders.len(), orders[0].get("replaces")), (1, None), "{orders:?}");
}

#[test]
fn an_authority_that_is_broken_is_asked_again_later() {
    let (folder, origin) = (TempDir::new().unwrap(), hello());
    let script = AcmeScript { refusal: Some((503, "serverInternal", 0)), ..AcmeScript::default() };
    let authority = ScriptedAuthority::start(folder.path(), script);
    let proxy = before(&authority, &origin, "");
    wait_within(PATIENCE, "the failure is told", || told(&proxy, SITE)["failures"] == 1);
    let wait = told(&proxy, SITE)["next_try"].as_f64().unwrap() - unix_now();
    assert!((30.0..75.0).contains(&wait), "{wait}");
    assert_eq!(authority.orders().len(), 1);
}

/// Starts the process again, so many days later as libfaketime tells it.
fn restart_later(proxy: &mut Proxy, days: u32) {
    let libraries = fs::read_dir("/usr/lib").unwrap();
    let library = libraries
        .map(|entry| entry.unwrap().path().join("faketime/libfaketimeMT.so.1"))
        .find(|path| path.exists())
        .expect("libfaketime is installed");
    proxy.kill9();
    proxy.start_again(|command| {
        command.env("LD_PRELOAD", library).env("FAKETIME", format!("+{days}d"));
        for name in ["FAKETIME_DONT_RESET", "FAKETIME_DONT_FAKE_MONOTONIC", "DONT_FAKE_MONOTONIC"] {
            command.env(name, "1");
        }
        command.spawn().unwrap()
    });
}

#[test]
fn a_revoked_certificate_is_replaced_when_the_authority_is_asked_again() {
    let (folder, origin) = (TempDir::new().unwrap(), hello());
    let script = AcmeScript { validity: 90 * 86_400, ..AcmeScript::default() };
    let authority = ScriptedAuthority::start(folder.path(), script);
    let mut proxy = before(&authority, &origin, "");
    wait_for_certificate(&proxy, SITE);
    let shown = |proxy: &Proxy| Browser::new().visit(proxy.address(), SITE).1.shown;
    let first = shown(&proxy);
    wait_within(PATIENCE, "its window is known", || authority.windows().len() == 1);
    authority.revoke();
    // It is asked again after the hour that it has named.
    restart_later(&mut proxy, 1);
    wait_within(PATIENCE, "it is replaced", || shown(&proxy) != first);
    let orders = authority.orders();
    assert_eq!(orders.len(), 2, "the second is not revoked: {orders:?}");
    assert_eq!(orders[1]["replaces"], authority.windows()[0], "{orders:?}");
    assert_eq!(proxy.metric("anteroom_certificate_order_errors_total"), 0.0);
}

#[test]
fn a_certificate_is_renewed_in_the_window_of_its_authority_and_stays_when_there_is_no_other() {
    let (authority, origin) = (Acme2Certifier::start(90), hello());
    let settings = one_listener(&format!("acme.profile = \"tlsserver\"\n{}", authority.settings()));
    let mut proxy = Proxy::embedded(&origin, &settings);
    wait_for_certificate(&proxy, SITE);
    // Half of its lifetime, and not two thirds.
    wait_within(PATIENCE, "the window is known", || {
        let one = told(&proxy, SITE);
        let left = (one["renew_at"].as_f64().unwrap() - unix_now()) / DAY;
        (44.0..46.5).contains(&left)
    });
    let shown = |proxy: &Proxy| Browser::new().visit(proxy.address(), SITE).1.shown;
    let first = shown(&proxy);
    restart_later(&mut proxy, 50);
    wait_within(PATIENCE, "it is renewed", || shown(&proxy) != first);
    let second = shown(&proxy);
    // What the authority issues then has expired for this clock, as with one that is wrong.
    restart_later(&mut proxy, 100);
    wait_within(PATIENCE, "the failure is told", || told(&proxy, SITE)["failures"] == 1);
    let one = told(&proxy, SITE);
    assert_eq!(one["state"], "expired", "{one}");
    assert!(one["last_error"].as_str().unwrap().contains("has expired already"), "{one}");
    assert_eq!(shown(&proxy), second);
    let (mut client, _) = Browser::new().visit(proxy.address(), SITE);
    assert_eq!(proxy.get("/").send_on(&mut client).text(), "hello");
}

#[test]
fn a_profile_that_the_authority_does_not_have_is_told() {
    let (authority, origin) = (Acme2Certifier::start(90), hello());
    let settings = one_listener(&format!("acme.profile = \"other\"\n{}", authority.settings()));
    let proxy = Proxy::embedded(&origin, &settings);
    wait_within(PATIENCE, "the refusal is told", || told(&proxy, SITE)["failures"] == 1);
    let one = told(&proxy, SITE);
    assert!(one["last_error"].as_str().unwrap().contains("invalidProfile"), "{one}");
}

#[test]
fn check_tells_whether_an_authority_issues_what_is_wanted() {
    let (folder, origin) = (TempDir::new().unwrap(), hello());
    let authority = ScriptedAuthority::start(folder.path(), AcmeScript::default());
    for (profile, expected) in [
        ("shortlived", "fine     authority"),
        ("long", "it has no profile \"long\"; it has: shortlived"),
    ] {
        let text = format!(
            "origin = {{ url = \"http://{}\", hosts = [{SITE:?}] }}\n\
             listen = [{{ address = \"127.0.0.1:{}\", tls = \"auto\" }}]\n\
             acme.challenge = \"http-01\"\nacme.profile = {profile:?}\n{}",
            origin.address(),
            free_port(),
            authority.settings()
        );
        fs::write(folder.path().join("proxy.toml"), text).unwrap();
        let mut command = anteroom();
        command.args(["check", "--config", "proxy.toml", "--connect"]);
        let output = command.current_dir(folder.path()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains(expected), "{said}");
        assert!(said.contains("is not there yet: the start makes one"), "{said}");
    }
}
