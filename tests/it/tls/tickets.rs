//! Tickets by which visitors resume sessions: where they are good, and where not.

use std::fs;

use rustls::version;

use super::{Files, hello};
use crate::support::client::SITE;
use crate::support::free_port;
use crate::support::proxy::{Proxy, Storage, on_both_stores};
use crate::support::tls::Browser;

on_both_stores!(sessions_outlive_a_restart);

/// One of each version.
fn browsers() -> [Browser; 2] {
    [&version::TLS12, &version::TLS13].map(|version| Browser::speaking(&[version], None))
}

/// Whether a visit resumes a session. It asks for a page, because tickets may come behind the handshake.
fn resumes(proxy: &Proxy, browser: &Browser) -> bool {
    let (mut client, greeted) = browser.visit(proxy.address(), SITE);
    assert_eq!(proxy.get("/").send_on(&mut client).text(), "hello");
    greeted.resumed
}

/// A listener whose tickets are by these secrets, each the name of a file that is made.
fn listen_with(files: &Files, secrets: &[&str]) -> String {
    let file = |name: &&str| {
        let path = files.path(name);
        fs::write(&path, format!("{name}, which is as long as a secret has to be")).unwrap();
        format!("{{ file = {path:?} }}")
    };
    let secrets: Vec<String> = secrets.iter().map(file).collect();
    files.listen(&format!(", ticket_secret = [{}]", secrets.join(", ")))
}

/// Whether a Redis has keys of tickets.
fn has_keys(storage: &Storage) -> bool {
    match storage {
        Storage::Redis(server) => server.say("KEYS *").contains("tickets:1:"),
        Storage::Embedded => panic!("it is in a folder"),
    }
}

fn sessions_outlive_a_restart(storage: &Storage) {
    let (files, origin) = (Files::new(), hello());
    let mut proxy = Proxy::start(&origin, storage, &files.listen(""));
    let browsers = browsers();
    for browser in &browsers {
        assert!(!resumes(&proxy, browser));
    }
    for _ in 0..2 {
        proxy.restart();
        for browser in &browsers {
            assert!(resumes(&proxy, browser));
        }
    }
}

#[test]
fn sessions_outlive_a_reload_that_replaces_the_configuration_of_tls() {
    let (files, origin) = (Files::new(), hello());
    let proxy = Proxy::embedded(&origin, &files.listen(""));
    let browsers = browsers();
    for browser in &browsers {
        assert!(!resumes(&proxy, browser));
    }
    proxy.edit(|text| text.replace("*.pem\" }", "*.pem\", default = \"shop.test\" }"));
    assert!(proxy.reload(), "{}", proxy.complaints());
    for browser in &browsers {
        assert!(resumes(&proxy, browser));
    }
}

#[test]
fn sessions_go_on_at_another_proxy_on_the_store_and_at_no_other() {
    let (files, origin, storage) = (Files::new(), hello(), Storage::redis());
    let start = |storage: &Storage| Proxy::start(&origin, storage, &files.listen(""));
    let elsewhere = storage.another();
    let (one, other, stranger) = (start(&storage), start(&storage), start(&elsewhere));
    for browser in browsers() {
        assert!(!resumes(&one, &browser));
        assert!(resumes(&other, &browser));
        assert!(resumes(&one, &browser));
        assert!(!resumes(&stranger, &browser));
    }
    assert!(has_keys(&storage));
}

#[test]
fn sessions_go_on_where_the_secret_is_known_and_nowhere_else() {
    let (files, origin, storage) = (Files::new(), hello(), Storage::redis());
    let old = Proxy::start(&origin, &storage, &listen_with(&files, &["old"]));
    let new = Proxy::start(&origin, &storage, &listen_with(&files, &["new"]));
    // On a store of its own.
    let both = Proxy::embedded(&origin, &listen_with(&files, &["new", "old"]));
    for browser in browsers() {
        assert!(!resumes(&old, &browser));
        assert!(!resumes(&new, &browser));
        assert!(!resumes(&old, &browser));
        assert!(resumes(&both, &browser));
        // It got a ticket by the new one.
        assert!(resumes(&new, &browser));
        assert!(!resumes(&old, &browser));
    }
    assert!(!has_keys(&storage), "a secret needs no key in the store");
    let shared = Proxy::start(&origin, &storage, &files.listen(""));
    for browser in browsers() {
        assert!(!resumes(&old, &browser));
        assert!(!resumes(&shared, &browser));
        assert!(!resumes(&old, &browser));
    }
}

#[test]
fn a_secret_comes_into_force_by_a_reload() {
    let (files, origin) = (Files::new(), hello());
    let mut proxy = Proxy::embedded(&origin, &listen_with(&files, &["secret"]));
    let browsers = browsers();
    for browser in &browsers {
        assert!(!resumes(&proxy, browser));
    }
    proxy.restart();
    for browser in &browsers {
        assert!(resumes(&proxy, browser));
    }
    fs::write(files.path("secret"), "another one, which is as long as it has to be").unwrap();
    assert!(proxy.reload(), "{}", proxy.complaints());
    for browser in &browsers {
        assert!(!resumes(&proxy, browser));
        assert!(resumes(&proxy, browser));
    }
}

#[test]
fn without_the_store_sessions_go_on_at_the_same_process() {
    let (files, origin) = (Files::new(), hello());
    let store = format!("store.url = \"redis://127.0.0.1:{}\"", free_port());
    let proxy = Proxy::with_settings(&origin, &format!("{store}\n{}", files.listen("")));
    for browser in browsers() {
        assert!(!resumes(&proxy, &browser));
        assert!(resumes(&proxy, &browser));
    }
}

#[test]
fn no_ticket_lets_a_visitor_ask_before_the_handshake_is_over() {
    let (files, origin) = (Files::new(), hello());
    for listen in [files.listen(""), listen_with(&files, &["secret"])] {
        let proxy = Proxy::embedded(&origin, &listen);
        let browser = Browser::new().hasty();
        assert!(!resumes(&proxy, &browser));
        assert!(!browser.may_be_hasty(SITE));
        assert!(resumes(&proxy, &browser));
    }
}
