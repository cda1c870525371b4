//! `token_storage = "sha256"` on Redis: a reader of the store, or of its disk, finds nothing there that a
//! browser could send.

use std::fs;
use std::path::Path;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::control::{listed, said, told};
use crate::support::origin::{Origin, Reply, Request};
use crate::support::proxy::{Proxy, Storage, log_in, shop};
use crate::support::redis::RedisServer;
use crate::support::wait_until;

/// With all that is kept of a session.
const SHA256: &str = r#"
session.token_storage = "sha256"
session.on_expire = "stream"
visitor.endpoints = ["me", "cart", "recent"]
[[route]]
match.path = "/own/**"
share = "user"
"#;

/// As a token stands in the store.
fn stored(token: &str) -> String {
    Sha256::digest(token.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a session is called.
fn id(token: &str) -> String {
    stored(token)[..16].to_owned()
}

/// All that was ever written into a Redis: what is gone by now, too.
fn history(server: &RedisServer) -> String {
    let folder: Vec<String> = server.command(&["CONFIG", "GET", "dir"]);
    let files = fs::read_dir(Path::new(&folder[1]).join("appendonlydir")).unwrap();
    let read = files.map(|file| fs::read(file.unwrap().path()).unwrap());
    read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
}

/// No token is in the Redis, nor ever was, as it is or in another writing of it; its hash is.
fn assert_unseen(server: &RedisServer, tokens: &[&str]) {
    let (dump, history) = (server.dump(), history(server));
    for token in tokens {
        assert!(history.contains(&stored(token)), "{token} was never there: {dump}");
        let encoded = utf8_percent_encode(token, NON_ALPHANUMERIC).to_string();
        let decoded = percent_decode_str(token).decode_utf8_lossy().into_owned();
        for writing in [*token, &encoded, &decoded] {
            assert!(!dump.contains(writing), "{writing} is in the store: {dump}");
            assert!(!history.contains(writing), "{writing} was in the store");
        }
    }
}

/// What a page of an app says to a visitor: it has shown a mug, and the visitor has put it into the cart.
fn greets(user: &str) -> Reply {
    Reply::unstored(user).header("Anteroom-Item", "mug").header("Anteroom-Cart", "mug;count=1")
}

fn text(proxy: &Proxy, path: &str, cookie: &str) -> String {
    proxy.get(path).cookie(cookie).send().text()
}

/// The session is found by its id, with what was viewed and what is in the cart.
fn assert_found(proxy: &Proxy, token: &str, user: &str) {
    let id = id(token);
    let of_user = listed(proxy, &["--user", user]);
    assert_eq!(of_user.iter().map(|session| &session["id"]).collect::<Vec<_>>(), [&json!(id)]);
    wait_until("the view is recorded", || {
        told(proxy, &["sessions", "show", &id])["viewed"].to_string().contains("mug")
    });
    let shown = told(proxy, &["sessions", "show", &id]);
    assert_eq!((&shown["id"], &shown["user"]), (&json!(id), &json!(user)));
    assert!(shown["cart"].to_string().contains("mug"), "{shown}");
    let exported = said(proxy, &["user", "export", user]);
    assert!(exported.contains(&id) && !exported.contains(token), "{exported}");
}

#[test]
fn a_minted_token_is_never_in_redis_and_its_session_is_found_by_its_id() {
    let storage = Storage::redis();
    let Storage::Redis(server) = &storage else { return };
    let origin = shop(|request| {
        let user = request.header("x-anteroom-user").unwrap_or("stranger");
        match request.path() {
            "/own/page" => Reply::html(user).header("Cache-Control", "private, max-age=60"),
            _ => greets(user),
        }
    });
    let proxy = Proxy::start(&origin, &storage, &format!("session.mint = true\n{SHA256}"));
    let cookies = ["alice", "bob", "carol"].map(|user| log_in(&proxy, user));
    let tokens = cookies.each_ref().map(|cookie| cookie.strip_prefix("login=").unwrap());
    for (cookie, user) in cookies.iter().zip(["alice", "bob", "carol"]) {
        assert_eq!(text(&proxy, "/", cookie), user);
        assert_eq!(text(&proxy, "/own/page", cookie), user);
        assert!(proxy.get("/own/page").cookie(cookie).send().is_hit());
    }
    assert_found(&proxy, tokens[0], "alice");
    assert_unseen(server, &tokens);

    proxy.post("/logout").cookie(&cookies[0]).send();
    assert_eq!(text(&proxy, "/", &cookies[0]), "stranger");
    assert_eq!(listed(&proxy, &["--user", "alice"]), [json!(null); 0]);
    let revoked = told(&proxy, &["sessions", "revoke", &id(tokens[1])]);
    assert_eq!(revoked, json!({ "revoked": 1 }));
    assert_eq!(text(&proxy, "/", &cookies[1]), "stranger");
    assert_eq!(text(&proxy, "/", &cookies[2]), "carol");
    let again = proxy.post("/login?carol").cookie(&cookies[2]).send().cookie("login").unwrap();
    assert_eq!(text(&proxy, "/", &cookies[2]), "stranger");
    assert_eq!(text(&proxy, "/", &format!("login={again}")), "carol");
    assert_unseen(server, &[&tokens[..], &[again.as_str()]].concat());

    // A reader of the store sends what stands there.
    for token in [again.as_str(), tokens[0]] {
        assert_eq!(text(&proxy, "/", &format!("login={}", stored(token))), "stranger");
    }
}

/// An app with sessions of its own, which are in cookies that hold more than letters, and in which it believes
/// for ever.
fn app() -> Origin {
    let user = |request: &Request| -> Option<&'static str> {
        let cookie = request.header("cookie")?;
        ["ann", "bob", "eve"].into_iter().find(|name| cookie.ends_with(&format!("{name}%2F1%3D")))
    };
    Origin::start(move |request| match (request.path(), user(request)) {
        ("/whoami", Some(name)) => {
            Reply::typed("application/json", &format!(r#"{{"id":7,"name":"{name}"}}"#))
        }
        ("/whoami", None) => Reply::typed("application/json", r#"{"id":0}"#),
        ("/logout", _) => {
            Reply::unstored("bye").header("Set-Cookie", "SID=deleted; Path=/; Max-Age=0")
        }
        (_, Some(name)) => greets(name),
        (_, None) => Reply::unstored("anybody"),
    })
}

#[test]
fn a_token_of_the_app_s_own_is_never_in_redis_and_its_session_is_found_by_its_id() {
    const VERIFY: &str = r#"
session.cookie = "SID"
session.verify.path = "/whoami"
session.verify.user = { json = "/name" }
session.verify.nobody = { json = "/id", equals = 0 }
"#;
    let storage = Storage::redis();
    let Storage::Redis(server) = &storage else { return };
    let origin = app();
    let proxy = Proxy::start(&origin, &storage, &format!("{VERIFY}{SHA256}"));
    let tokens = ["ann", "bob", "eve"].map(|user| format!("s%3Asecret%20of-{user}%2F1%3D"));
    let cookies = tokens.each_ref().map(|token| format!("SID={token}"));
    let nobody = "s%3Asecret%20of-nobody";
    assert_eq!(text(&proxy, "/", &format!("SID={nobody}")), "anybody");
    for (cookie, user) in cookies.iter().zip(["ann", "bob", "eve"]) {
        assert_eq!(text(&proxy, "/", cookie), user);
        assert_eq!(origin.last().header("x-anteroom-user"), Some(user));
    }
    assert_found(&proxy, &tokens[0], "ann");
    let all = tokens.each_ref().map(String::as_str);
    assert_unseen(server, &all);

    // The app believes in both still.
    proxy.post("/logout").cookie(&cookies[0]).send();
    let revoked = told(&proxy, &["sessions", "revoke", &id(&tokens[1])]);
    assert_eq!(revoked, json!({ "revoked": 1 }));
    for (cookie, user) in cookies.iter().zip(["anybody", "anybody", "eve"]) {
        assert_eq!(text(&proxy, "/", cookie), user);
    }
    let ids: Vec<_> = listed(&proxy, &[]).iter().map(|session| session["id"].clone()).collect();
    assert_eq!(ids, [json!(id(&tokens[2]))]);
    assert_eq!(server.keys("barred:*").len(), 2);
    assert_unseen(server, &all);
    assert!(!history(server).contains(nobody));
    assert_eq!(text(&proxy, "/", &format!("SID={}", stored(&tokens[2]))), "anybody");
}
