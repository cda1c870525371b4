//! Control of sessions, end to end: how long they last, how many a user may have, and what operators do
//! with them.

use std::fs;
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, anteroom, log_in, on_both_stores, shop};
use crate::support::redis::RedisServer;
use crate::support::{A_SECOND, old_result_seen_for, wait_until};

const MINT: &str = "session.mint = true";

on_both_stores!(
    an_idle_session_ends_and_is_cleaned,
    a_session_ends_in_time_however_busy_it_is,
    a_further_log_in_ends_the_oldest_session,
    sessions_are_listed_and_shown_and_no_token_is,
    a_session_is_revoked_by_its_id,
    all_sessions_of_one_user_are_revoked_and_no_others,
    all_sessions_are_revoked,
    a_user_is_exported_and_deleted,
);

fn greeting() -> Origin {
    shop(|request| Reply::unstored(request.header("x-anteroom-user").unwrap_or("stranger")))
}

fn run(proxy: &Proxy, words: &[&str]) -> Output {
    let mut command = anteroom();
    command.args(words).args(["--config", "proxy.toml"]).current_dir(proxy.folder());
    command.output().unwrap()
}

/// What a command prints.
pub(crate) fn said(proxy: &Proxy, words: &[&str]) -> String {
    let output = run(proxy, words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn told(proxy: &Proxy, words: &[&str]) -> Value {
    let said = said(proxy, &[words, &["--json"]].concat());
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// The sessions in the list, a line of JSON each.
pub(crate) fn listed(proxy: &Proxy, words: &[&str]) -> Vec<Value> {
    let said = said(proxy, &[&["sessions", "list", "--json"], words].concat());
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn who(proxy: &Proxy, cookie: &str) -> String {
    proxy.get("/").cookie(cookie).send().text()
}

fn token(cookie: &str) -> &str {
    cookie.trim_start_matches("login=")
}

fn an_idle_session_ends_and_is_cleaned(storage: &Storage) {
    let origin = greeting();
    let settings = format!("{MINT}\nsession.idle_timeout = \"3s\"");
    let proxy = Proxy::start(&origin, storage, &settings);
    let alice = log_in(&proxy, "alice");
    assert_eq!(who(&proxy, &alice), "alice");

    wait_until("it is cleaned", || listed(&proxy, &[]).is_empty());

    assert_eq!(who(&proxy, &alice), "stranger");
    if let Storage::Redis(server) = storage {
        assert!(!server.dump().contains(token(&alice)) && !server.dump().contains("alice"));
    }
}

fn a_session_ends_in_time_however_busy_it_is(storage: &Storage) {
    let origin = greeting();
    let settings = format!("{MINT}\nsession.absolute_timeout = \"4s\"");
    let proxy = Proxy::start(&origin, storage, &settings);
    let alice = log_in(&proxy, "alice");
    assert_eq!(who(&proxy, &alice), "alice");

    wait_until("it is over", || who(&proxy, &alice) == "stranger");

    let again = log_in(&proxy, "alice");
    assert_eq!(who(&proxy, &again), "alice");
    wait_until("it is cleaned", || listed(&proxy, &[]).is_empty());
}

fn a_further_log_in_ends_the_oldest_session(storage: &Storage) {
    let origin = greeting();
    let proxy = Proxy::start(&origin, storage, &format!("{MINT}\nsession.max_per_user = 2"));
    let bob = log_in(&proxy, "bob");
    let alice = [0; 3].map(|_| {
        let cookie = log_in(&proxy, "alice");
        assert_eq!(who(&proxy, &cookie), "alice");
        cookie
    });

    assert_eq!(alice.each_ref().map(|cookie| who(&proxy, cookie)), ["stranger", "alice", "alice"]);
    assert_eq!(who(&proxy, &bob), "bob");
    assert_eq!(listed(&proxy, &["--user", "alice"]).len(), 2);
}

fn sessions_are_listed_and_shown_and_no_token_is(storage: &Storage) {
    let origin = greeting();
    let proxy = Proxy::start(&origin, storage, MINT);
    let cookies: Vec<_> = (0..5).map(|n| log_in(&proxy, &format!("user{n}"))).collect();
    proxy.get("/item/7").cookie(&cookies[0]).send();

    let all = listed(&proxy, &[]);
    let users: std::collections::BTreeSet<_> =
        all.iter().map(|session| session["user"].as_str().unwrap()).collect();
    assert_eq!(users, ["user0", "user1", "user2", "user3", "user4"].into());
    assert_eq!(listed(&proxy, &["--limit", "2"]).len(), 2);
    let [session] = listed(&proxy, &["--user", "user3"]).try_into().unwrap();
    let id = session["id"].as_str().unwrap();
    assert!(session["since"].is_f64() && session["seen"].is_f64(), "{session}");
    assert_eq!(session["over"], json!(false));

    let shown = told(&proxy, &["sessions", "show", id]);
    assert_eq!((&shown["id"], &shown["user"]), (&json!(id), &json!("user3")));
    assert_eq!((&shown["cart"], &shown["viewed"]), (&json!([]), &json!([])));
    let everything = [
        said(&proxy, &["sessions", "list"]),
        said(&proxy, &["sessions", "list", "--json"]),
        said(&proxy, &["sessions", "show", id]),
        said(&proxy, &["user", "export", "user3"]),
    ];
    for cookie in &cookies {
        assert!(!everything.iter().any(|said| said.contains(token(cookie))), "{everything:?}");
    }
}

#[test]
fn a_session_that_another_app_wrote_has_no_time_of_its_log_in() {
    let server = RedisServer::start();
    server.command::<()>(&["HSET", "login:", "0123456789abcdef", "ada"]);
    server.command::<()>(&["ZADD", "recent:", "1", "0123456789abcdef"]);
    let (origin, storage) = (greeting(), Storage::Redis(server));
    let proxy = Proxy::start(&origin, &storage, MINT);
    let said = said(&proxy, &["sessions", "list"]);
    assert!(said.contains("  ada  login time unknown, seen "), "{said}");
}

fn a_session_is_revoked_by_its_id(storage: &Storage) {
    let origin = greeting();
    let proxy = Proxy::start(&origin, storage, MINT);
    let [alice, again] = [(); 2].map(|()| log_in(&proxy, "alice"));
    assert_eq!([who(&proxy, &alice), who(&proxy, &again)], ["alice", "alice"]);
    let first = listed(&proxy, &["--user", "alice"]).remove(0);
    let id = first["id"].as_str().unwrap();

    assert_eq!(told(&proxy, &["sessions", "revoke", id]), json!({ "revoked": 1 }));

    assert_eq!([who(&proxy, &alice), who(&proxy, &again)], ["stranger", "alice"]);
    for words in [["sessions", "revoke", id], ["sessions", "show", id]] {
        let output = run(&proxy, &words);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("there is no session"));
    }
    let output = run(&proxy, &["sessions", "revoke", "no-id"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("16 hex digits"));
    assert_eq!(run(&proxy, &["sessions", "revoke"]).status.code(), Some(2));
}

fn all_sessions_of_one_user_are_revoked_and_no_others(storage: &Storage) {
    let origin = greeting();
    let proxy = Proxy::start(&origin, storage, MINT);
    let alice = [(); 3].map(|()| log_in(&proxy, "alice"));
    let bob = log_in(&proxy, "bob");
    let revoked = told(&proxy, &["sessions", "revoke", "--user", "alice"]);
    assert_eq!(revoked, json!({ "revoked": 3 }));
    for cookie in &alice {
        assert_eq!(who(&proxy, cookie), "stranger");
    }
    assert_eq!(who(&proxy, &bob), "bob");
}

fn all_sessions_are_revoked(storage: &Storage) {
    let origin = greeting();
    let proxy = Proxy::start(&origin, storage, MINT);
    let cookies: Vec<_> = (0..5).map(|n| log_in(&proxy, &format!("user{n}"))).collect();
    assert_eq!(told(&proxy, &["sessions", "revoke", "--all"]), json!({ "revoked": 5 }));
    for cookie in &cookies {
        assert_eq!(who(&proxy, cookie), "stranger");
    }
    assert!(listed(&proxy, &[]).is_empty());
}

fn a_user_is_exported_and_deleted(storage: &Storage) {
    let origin = shop(|_| Reply::unstored("added").header("Anteroom-Cart", "mug;count=2"));
    let proxy = Proxy::start(&origin, storage, MINT);
    let [alice, _] = [(); 2].map(|()| log_in(&proxy, "alice"));
    let bob = log_in(&proxy, "bob");
    for cookie in [&alice, &bob] {
        proxy.post("/add").cookie(cookie).send();
    }

    let exported: Value =
        serde_json::from_str(&said(&proxy, &["user", "export", "alice"])).unwrap();
    assert_eq!(exported["user"], "alice");
    let sessions = exported["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2);
    let carts: Vec<_> = sessions.iter().map(|session| &session["cart"]).collect();
    assert!(carts.contains(&&json!([{ "item": "mug", "count": 2 }])), "{exported}");

    let deleted = told(&proxy, &["user", "delete", "alice"]);
    assert_eq!(
        (&deleted["sessions"], &deleted["cart_items"], &deleted["left"]),
        (&json!(2), &json!(1), &json!(0)),
    );
    let exported: Value =
        serde_json::from_str(&said(&proxy, &["user", "export", "alice"])).unwrap();
    assert_eq!(exported["sessions"], json!([]));
    assert!(said(&proxy, &["user", "delete", "alice"]).contains("0 sessions"));
    assert_eq!(listed(&proxy, &["--user", "bob"]).len(), 1);
    if let Storage::Redis(server) = storage {
        assert!(!server.dump().contains("alice") && !server.dump().contains(token(&alice)));
        assert!(server.dump().contains(token(&bob)));
    }
}

#[test]
fn sessions_the_app_wrote_and_handed_on_carts_are_deleted_too() {
    let storage = Storage::redis();
    let Storage::Redis(server) = &storage else { return };
    let origin = greeting();
    let proxy = Proxy::start(&origin, &storage, "");
    for (number, user) in [(1, "alice"), (2, "bob"), (3, "alice")] {
        let token = format!("token-of-the-app-{number}");
        server.command::<()>(&["HSET", "login:", &token, user]);
        server.command::<()>(&["HSET", &format!("cart:{token}"), "mug", "1"]);
    }
    for user in ["alice", "bob"] {
        let entry = ["XADD", "expired:", "*", "id", "0", "user", user, "cart", "[]"];
        server.command::<String>(&entry);
    }

    let deleted = told(&proxy, &["user", "delete", "alice"]);

    assert_eq!((&deleted["sessions"], &deleted["cart_items"]), (&json!(2), &json!(2)));
    assert_eq!(deleted["handed_on"], json!(1));
    assert!(!server.dump().contains("alice"), "{}", server.dump());
    assert_eq!(server.command::<u64>(&["HLEN", "login:"]), 1);
    assert_eq!(server.command::<u64>(&["XLEN", "expired:"]), 1);
}

#[test]
fn stored_pages_of_a_user_end_with_the_sessions() {
    let storage = Storage::redis();
    let Storage::Redis(server) = &storage else { return };
    let count = AtomicUsize::new(0);
    let origin = shop(move |_| {
        let page = Reply::html(&count.fetch_add(1, Ordering::SeqCst).to_string());
        page.header("Cache-Control", "private, max-age=60")
    });
    let proxy = Proxy::start(&origin, &storage, "[[route]]\nshare = \"user\"\n");
    let cookie = "login=token-of-the-app";
    let get = || proxy.get("/own").cookie(cookie).send();
    let logs_in = || {
        server.command::<()>(&["HSET", "login:", token(cookie), "alice"]);
        wait_until("she is known", || {
            proxy.get("/_anteroom/me").cookie(cookie).send().text().contains("known\"")
                && get().text() == get().text()
        });
    };
    logs_in();
    let id = listed(&proxy, &[])[0]["id"].as_str().unwrap().to_owned();
    let orders: [&[&str]; 3] = [
        &["sessions", "revoke", "--user", "alice"],
        &["user", "delete", "alice"],
        &["sessions", "revoke", &id],
    ];
    for words in orders {
        let kept = get();
        assert!(kept.is_hit(), "{}", kept.cache_status());
        said(&proxy, words);
        logs_in();
        assert_ne!(get().text(), kept.text(), "{words:?}");
    }
}

#[test]
fn a_session_revoked_at_one_proxy_is_anonymous_at_another() {
    let storage = Storage::redis();
    let origin = greeting();
    let [one, other] = [(); 2].map(|()| Proxy::start(&origin, &storage, MINT));
    let alice = log_in(&one, "alice");
    assert_eq!([who(&one, &alice), who(&other, &alice)], ["alice", "alice"]);

    let lasted = old_result_seen_for(
        || drop(said(&one, &["sessions", "revoke", "--user", "alice"])),
        || who(&other, &alice) == "alice",
    );

    assert_eq!([who(&one, &alice), who(&other, &alice)], ["stranger", "stranger"]);
    assert!(lasted < A_SECOND, "a promise of a second: {lasted:?}");
}

#[test]
fn a_revocation_holds_everywhere_within_a_second_without_messages() {
    let storage = Storage::redis();
    let Storage::Redis(server) = &storage else { return };
    let origin = greeting();
    let [one, other] = [(); 2].map(|()| Proxy::start(&origin, &storage, MINT));
    let (over, is_over) = mpsc::channel::<()>();
    let killed = AtomicUsize::new(0);
    thread::scope(|scope| {
        // Revocations are announced on these connections, and the proxies find them closed.
        scope.spawn(|| {
            let is_over = is_over;
            while is_over.recv_timeout(Duration::from_millis(10)) == Err(RecvTimeoutError::Timeout)
            {
                let ended = server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
                killed.fetch_add(ended, Ordering::SeqCst);
            }
        });
        wait_until("nobody listens", || killed.load(Ordering::SeqCst) >= 2);
        let alice = [(); 5].map(|()| log_in(&one, "alice"));
        assert!(alice.iter().all(|cookie| who(&other, cookie) == "alice"));
        said(&one, &["sessions", "revoke", "--user", "alice"]);
        let given = Instant::now();
        // No request is sent meanwhile: a visit would find out that its session is gone.
        wait_until("a second is over", || given.elapsed() >= A_SECOND);
        assert_eq!(alice.each_ref().map(|cookie| who(&other, cookie)), ["stranger"; 5]);
        drop(over);
    });
}

#[test]
fn a_bearer_of_the_token_may_send_orders_over_the_listener() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "secret-token").unwrap();
    let origin = greeting();
    let settings = format!("{MINT}\nadmin.token = {{ file = \"{}\" }}", file.display());
    let proxy = Proxy::embedded(&origin, &settings);
    let alice = log_in(&proxy, "alice");
    let order = |bearer: &str, target: &str, order: &str| {
        let ask = proxy.admin(target).method("POST").body(order.as_bytes());
        ask.header("Authorization", &format!("Bearer {bearer}")).send()
    };
    let everyone = [
        ("/sessions/list", "{\"limit\":10}"),
        ("/sessions/show", "{\"user\":\"alice\"}"),
        ("/sessions/revoke", "{\"user\":\"alice\"}"),
        ("/user/delete", "{\"user\":\"alice\"}"),
    ];
    for (target, words) in everyone {
        assert_eq!(order("other-token", target, words).status, 401, "{target}");
    }
    assert_eq!(who(&proxy, &alice), "alice");
    let unsaid = order("secret-token", "/sessions/list", "{}");
    assert!(unsaid.text().contains("\"alice\""), "{}", unsaid.text());
    for (target, words) in everyone {
        let answer = order("secret-token", target, words);
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        assert!(!answer.text().contains(token(&alice)), "{target}");
    }
    assert_eq!(who(&proxy, &alice), "stranger");
    for bad in ["{}", "{\"id\":\"1\"}", "{\"user\":\"\"}", "{\"all\":true,\"user\":\"a\"}"] {
        assert_eq!(order("secret-token", "/sessions/revoke", bad).status, 400, "{bad}");
    }
}

#[test]
fn a_user_s_sessions_are_listed_piece_by_piece() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "secret-token").unwrap();
    let origin = greeting();
    let settings = format!("{MINT}\nadmin.token = {{ file = \"{}\" }}", file.display());
    let proxy = Proxy::embedded(&origin, &settings);
    for name in ["alice", "bob", "alice", "alice"] {
        log_in(&proxy, name);
    }
    let mut wanted = serde_json::json!({ "user": "alice", "limit": 2 });
    let mut ids = Vec::new();
    for expected in [2, 1] {
        let ask = proxy.admin("/sessions/list").method("POST").body(wanted.to_string().as_bytes());
        let answer = ask.header("Authorization", "Bearer secret-token").send();
        let piece: Value = serde_json::from_str(&answer.text()).unwrap();
        let sessions = piece["sessions"].as_array().unwrap();
        assert_eq!(sessions.len(), expected, "{piece}");
        ids.extend(sessions.iter().map(|session| session["id"].to_string()));
        wanted["from"] = piece["next"].clone();
    }
    assert_eq!(wanted["from"], Value::Null);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    assert_eq!(listed(&proxy, &["--user", "alice", "--limit", "2"]).len(), 2);
}

#[test]
fn the_cookie_lasts_for_its_configured_lifetime() {
    let origin = greeting();
    let proxy = Proxy::embedded(&origin, &format!("{MINT}\nsession.cookie_lifetime = \"30d\""));
    let line = proxy.post("/login?alice").send().set_cookie("login").unwrap().to_owned();
    assert!(line.contains("; Max-Age=2592000"), "{line}");
    let line = proxy.post("/logout").send().set_cookie("login").unwrap().to_owned();
    assert!(line.contains("; Max-Age=0"), "{line}");
}

#[test]
fn a_cookie_with_the_prefix_of_its_host_is_always_secure() {
    let origin = greeting();
    let proxy = Proxy::embedded(&origin, &format!("{MINT}\nsession.cookie = \"__Host-login\""));
    let answer = proxy.post("/login?alice").send();
    let line = answer.set_cookie("__Host-login").unwrap();
    assert!(line.contains("; Secure") && line.contains("; Path=/;"), "{line}");
    assert!(!line.to_ascii_lowercase().contains("domain"), "{line}");
    let cookie = format!("__Host-login={}", answer.cookie("__Host-login").unwrap());
    assert_eq!(who(&proxy, &cookie), "alice");
}
