//! The visitor's identity: the session cookie in all its places, and what the origin is told.
//!
//! Sessions stand in Redis here as an app would put them; how the proxy mints its own is in
//! `login`.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::support::origin::{Origin, Reply, Request};
use crate::support::proxy::{Proxy, Storage};
use crate::support::redis::RedisServer;

const TOKEN: &str = "0123456789abcdef";

/// A proxy whose store knows [`TOKEN`] as alice.
struct Room {
    proxy: Proxy,
    origin: Origin,
    storage: Storage,
}

impl Room {
    fn open(settings: &str) -> Self {
        let server = RedisServer::start();
        server.command::<()>(&["HSET", "login:", TOKEN, "alice"]);
        let storage = Storage::Redis(server);
        let origin = Origin::always(Reply::unstored("hello"));
        let proxy = Proxy::start(&origin, &storage, settings);
        Self { proxy, origin, storage }
    }

    /// Sends these cookie lines; returns the user and the kind of session the origin is told of.
    fn told(&self, cookies: &[&str]) -> (Option<String>, Option<String>) {
        let ask = cookies.iter().fold(self.proxy.post("/"), |ask, line| ask.cookie(line));
        assert_eq!(ask.send().status, 200);
        let request = self.origin.last();
        ["x-anteroom-user", "x-anteroom-session"]
            .map(|name| request.header(name).map(str::to_owned))
            .into()
    }

    #[track_caller]
    fn assert_told(&self, cookies: &[&str], user: Option<&str>, session: &str) {
        let (told_user, told_session) = self.told(cookies);
        assert_eq!(told_user.as_deref(), user, "{cookies:?}");
        assert_eq!(told_session.as_deref(), Some(session), "{cookies:?}");
    }
}

#[test]
fn the_session_cookie_is_found_wherever_it_stands() {
    let room = Room::open("");
    let plain = format!("login={TOKEN}");
    for cookies in [
        vec![plain.clone()],
        vec![format!("{plain}; a=1")],
        vec![format!("a=1; {plain}; b=2")],
        vec![format!("a=1;{plain}")],
        vec!["a=1".to_owned(), plain.clone()],
        vec![plain, "a=1".to_owned()],
        vec![format!("login=\"{TOKEN}\"")],
    ] {
        let lines: Vec<_> = cookies.iter().map(String::as_str).collect();
        room.assert_told(&lines, Some("alice"), "known");
    }
}

#[test]
fn a_session_cookie_that_cannot_be_believed_makes_the_visitor_unknown() {
    let room = Room::open("");
    let twice = format!("login={TOKEN}; login={TOKEN}");
    for cookie in [
        "login=fedcba9876543210",
        "login=short",
        "login=",
        "login=has{brace}s0123456789",
        twice.as_str(),
        "language=de",
    ] {
        room.assert_told(&[cookie], None, "unknown");
    }
    room.assert_told(&[&format!("login={TOKEN}"), "login=fedcba9876543210"], None, "unknown");
}

#[test]
fn a_visitor_without_a_session_cookie_has_none() {
    let room = Room::open("");
    room.assert_told(&[], None, "none");
    room.assert_told(&["_ga=GA1.2.3"], None, "none");
}

#[test]
fn cookie_names_are_told_apart_by_case_and_in_full() {
    let room = Room::open("");
    for name in ["Login", "xlogin", "loginx"] {
        room.assert_told(&[&format!("{name}={TOKEN}")], None, "unknown");
    }
}

#[test]
fn a_pattern_names_the_session_cookie() {
    let room = Room::open("session.cookie = [\"*_session\", \"remember_*\"]");
    room.assert_told(&[&format!("wiki_session={TOKEN}")], Some("alice"), "known");
    room.assert_told(&[&format!("remember_web={TOKEN}")], Some("alice"), "known");
    let both = format!("remember_web=fedcba9876543210; wiki_session={TOKEN}");
    room.assert_told(&[&both], Some("alice"), "known");
}

#[test]
fn only_the_proxy_can_set_the_identity_fields() {
    let room = Room::open("");
    let forged = [
        "X-Anteroom-User",
        "X_Anteroom_User",
        "x-anteroom_user",
        "X.Anteroom.User",
        "Anteroom-Login",
        "Anteroom_Login",
        "X-Anteroom-Session",
        "X_Anteroom-Session",
    ];
    let ask = forged.iter().fold(room.proxy.post("/"), |ask, name| ask.header(name, "forged-root"));

    ask.send();
    ask.cookie(&format!("login={TOKEN}")).send();

    for request in room.origin.seen() {
        let forged: Vec<_> = request.fields.iter().filter(|(_, v)| *v == "forged-root").collect();
        assert!(forged.is_empty(), "{forged:?}");
    }
    assert_eq!(room.origin.last().header("x-anteroom-user"), Some("alice"));
}

#[test]
fn a_connection_header_cannot_remove_the_identity() {
    let room = Room::open("");
    room.proxy
        .post("/")
        .header("Connection", "X-Anteroom-User, X-Anteroom-Session, Cookie")
        .cookie(&format!("login={TOKEN}"))
        .send();
    let request = room.origin.last();
    assert_eq!(request.header("x-anteroom-user"), Some("alice"));
    assert_eq!(request.header("x-anteroom-session"), Some("known"));
    assert!(request.header("cookie").is_some());
}

#[test]
fn a_user_name_outside_ascii_is_percent_encoded() {
    let room = Room::open("");
    let Storage::Redis(server) = &room.storage else { return };
    server.command::<()>(&["HSET", "login:", "fedcba9876543210", "Zoë\r\nX-Evil: 1"]);
    let (user, _) = room.told(&["login=fedcba9876543210"]);
    assert_eq!(user.as_deref(), Some("Zo%C3%AB%0D%0AX-Evil:%201"));
}

#[test]
fn the_identity_header_can_have_another_name() {
    let room = Room::open("session.identity_header = \"Remote-User\"");
    room.proxy.post("/").header("Remote_User", "root").cookie(&format!("login={TOKEN}")).send();
    let request = room.origin.last();
    assert_eq!(request.fields.all("remote-user").collect::<Vec<_>>(), ["alice"]);
    assert_eq!(request.header("remote_user"), None);
}

#[test]
fn an_origin_without_sessions_is_not_given_the_user() {
    let room = Room::open("origin.sessions = false");
    room.proxy.post("/").cookie(&format!("login={TOKEN}")).header("X-Anteroom-User", "root").send();
    assert_eq!(room.origin.last().header("x-anteroom-user"), None);
}

#[test]
fn a_trailer_cannot_set_the_user() {
    let room = Room::open("session.identity_header = \"Remote-User\"");
    let mut client = room.proxy.connect();
    client.send(
        b"POST / HTTP/1.1\r\nHost: shop.test\r\nTransfer-Encoding: chunked\r\n\
          Trailer: Remote-User, X-Sum\r\n\r\n2\r\nhi\r\n0\r\nRemote-User: root\r\nX-Sum: 1\r\n\r\n",
    );
    assert_eq!(client.answer().status, 200);
    let trailers = room.origin.last().body.trailers;
    assert_eq!((trailers.get("remote-user"), trailers.get("x-sum")), (None, Some("1")));
}

/// Whether the request is signed with `secret`, as an origin would check it.
fn is_signed(request: &Request, secret: &str) -> bool {
    let signature = request.header("x-anteroom-signature").unwrap_or("");
    let Some((time, tag)) = signature.strip_prefix("t=").and_then(|rest| rest.split_once(",v1="))
    else {
        return false;
    };
    let user = request.header("x-anteroom-user").unwrap_or("");
    let Request { method, target, .. } = request;
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{user}\n{method}\n{target}\n{time}").as_bytes());
    let bytes = mac.finalize().into_bytes();
    let expected: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    tag == expected && time.parse::<u64>().is_ok_and(|time| time > 1_700_000_000)
}

#[test]
fn an_origin_can_verify_the_signature_of_the_user_fields() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, "a key that two know\n").unwrap();
    let room = Room::open(&format!("origin.secret = {{ file = \"{}\" }}", file.display()));
    let Storage::Redis(server) = &room.storage else { return };
    server.command::<()>(&["HSET", "login:", "fedcba9876543210", "Zoë"]);

    for cookie in [format!("login={TOKEN}"), "login=fedcba9876543210".to_owned(), "a=1".to_owned()]
    {
        let forged = ("X-Anteroom-Signature", "t=1,v1=00");
        room.proxy.post("/a?b=c&utm_source=d").cookie(&cookie).header(forged.0, forged.1).send();
        room.proxy.get("/a?b=c&utm_source=d").cookie(&cookie).send();
    }
    room.proxy.get("/fill?b=c&utm_source=d").send();
    room.proxy.get("/fill?").send();

    let seen = room.origin.seen();
    assert_eq!(seen.len(), 8);
    for request in seen {
        assert!(is_signed(&request, "a key that two know"), "{request:?}");
        assert!(!is_signed(&request, "another key"), "{request:?}");
        assert_eq!(request.fields.all("x-anteroom-signature").count(), 1);
    }
}

#[test]
fn without_a_secret_nothing_is_signed() {
    let room = Room::open("");
    room.proxy.post("/").header("X-Anteroom-Signature", "t=1,v1=00").send();
    assert_eq!(room.origin.last().header("x-anteroom-signature"), None);
}
