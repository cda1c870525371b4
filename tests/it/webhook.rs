//! A webhook is told of abandoned carts: each once in the queue, until its receiver has it.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::client::Ask;
use crate::support::origin::{Gate, Origin, Reply, Request};
use crate::support::proxy::{Proxy, Storage, log_in, shop};
use crate::support::redis::RedisServer;
use crate::support::upstream::{Authority, Upstream};
use crate::support::{free_port, unix_now, wait_until};

const SECRET: &str = "a key that both know";

/// Lines of a configuration that tells `receiver`, which has [`SECRET`].
fn settings(receiver: SocketAddr, more: &str) -> String {
    settings_for(&format!("http://{receiver}/carts?from=shop"), more)
}

fn settings_for(receiver: &str, more: &str) -> String {
    // Cases run side by side, and each says the same: no case may find it half written.
    let file = std::env::temp_dir().join("anteroom-webhook-test.key");
    let mut new = tempfile::NamedTempFile::new().unwrap();
    new.write_all(SECRET.as_bytes()).unwrap();
    new.persist(&file).unwrap();
    format!(
        "session.on_expire = \"webhook:{receiver}\"\n\
         session.webhook_secret = {{ file = {file:?} }}\nsession.clean_every = \"50ms\"\n{more}"
    )
}

fn ok() -> Reply {
    Reply::status("204 No Content")
}

fn pages() -> Origin {
    Origin::always(Reply::html("a page"))
}

/// Seconds before now.
fn ago(seconds: f64) -> String {
    (unix_now() - seconds).to_string()
}

/// A session in Redis as an app writes it, with a cart and two views.
fn abandon(server: &RedisServer, token: &str, user: &str, seen: &str) {
    server.command::<()>(&["HSET", "login:", token, user]);
    server.command::<()>(&["ZADD", "recent:", seen, token]);
    server.command::<()>(&["ZADD", &format!("viewed:{token}"), "5.5", "tea", "7.25", "mug"]);
    server.command::<()>(&["HSET", &format!("cart:{token}"), "mug", "2"]);
}

fn redis() -> Storage {
    Storage::Redis(RedisServer::start())
}

fn server(storage: &Storage) -> &RedisServer {
    match storage {
        Storage::Redis(server) => server,
        Storage::Embedded => unreachable!("opened on redis"),
    }
}

/// In lower-case hex.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn public_id(token: &str) -> String {
    hex(&Sha256::digest(token))[..16].to_owned()
}

fn said(request: &Request) -> Value {
    serde_json::from_slice(&request.body.bytes).unwrap()
}

/// The events that a receiver was told, each as often as it was.
fn events(receiver: &Origin) -> Vec<String> {
    receiver.seen().iter().map(|seen| seen.header("Anteroom-Event").unwrap().to_owned()).collect()
}

/// Checks a signature as a receiver does.
fn is_signed(request: &Request) -> bool {
    is_signed_with(&[SECRET], request)
}

fn is_signed_with(keys: &[&str], request: &Request) -> bool {
    let field = request.header("Anteroom-Signature").unwrap();
    let time = field.strip_prefix("t=").and_then(|rest| rest.split_once(',')).unwrap().0;
    let tags = keys.iter().map(|key| {
        let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
        mac.update(format!("{time}.").as_bytes());
        mac.update(&request.body.bytes);
        format!(",v1={}", hex(&mac.finalize().into_bytes()))
    });
    let signed: String = tags.collect();
    let sent: f64 = time.parse().unwrap();
    field == format!("t={time}{signed}") && (unix_now() - sent).abs() < 60.0
}

fn waiting(server: &RedisServer) -> u64 {
    server.command(&["LLEN", "cartevents:"])
}

/// Sessions that were not seen for this long are over.
const OVER: &str = "session.idle_timeout = \"1h\"";

/// A proxy on a Redis of its own that tells a receiver of what is abandoned there.
struct Teller {
    proxy: Proxy,
    storage: Storage,
    _origin: Origin,
}

impl Teller {
    /// Of each of these users a session `token-of-<user>` with a cart is over, last seen at this Unix time.
    fn of(users: &[(&str, &str)], receiver: SocketAddr) -> Self {
        let storage = redis();
        for (user, seen) in users {
            abandon(server(&storage), &format!("token-of-{user}"), user, seen);
        }
        Self::start(storage, receiver, OVER)
    }

    fn start(storage: Storage, receiver: SocketAddr, more: &str) -> Self {
        let origin = pages();
        let proxy = Proxy::start(&origin, &storage, &settings(receiver, more));
        Self { proxy, storage, _origin: origin }
    }

    fn server(&self) -> &RedisServer {
        server(&self.storage)
    }

    fn waiting(&self) -> u64 {
        waiting(self.server())
    }

    /// What is counted of events: `delivered`, `failed`, `dropped` or `given_up`.
    fn count(&self, what: &str) -> f64 {
        self.proxy.metric(&format!("anteroom_cart_events_{what}_total"))
    }
}

#[test]
fn a_receiver_gets_all_details_and_a_signature() {
    let storage = redis();
    let server = server(&storage);
    let seen = unix_now() - 7200.5;
    abandon(server, "token-of-ann", "ann", &seen.to_string());
    abandon(server, "token-of-bob", "bob\0?", "2.5");
    server.command::<()>(&["HSET", "cart:token-of-nobody", "mug", "1"]);
    server.command::<()>(&["ZADD", "recent:", "1.5", "token-of-nobody"]);
    let receiver = Origin::always(ok());
    let teller = Teller::start(storage, receiver.address(), OVER);
    wait_until("all are told", || receiver.count() >= 3);
    wait_until("none waits", || teller.waiting() == 0);
    wait_until("it is counted", || {
        teller.count("delivered") >= 3.0
            && teller.proxy.metric("anteroom_cart_events_waiting") == 0.0
    });
    let told = receiver.seen();
    assert_eq!(told.len(), 3);
    for request in &told {
        assert_eq!(
            (request.method.as_str(), request.target.as_str()),
            ("POST", "/carts?from=shop")
        );
        assert_eq!(request.header("Content-Type"), Some("application/json"));
        assert_eq!(request.header("Host"), Some(receiver.address().to_string().as_str()));
        assert!(is_signed(request));
        assert_eq!(said(request)["event"], *request.header("Anteroom-Event").unwrap());
        assert!(!String::from_utf8_lossy(&request.body.bytes).contains("token-of"));
    }
    let (nobody, bob, ann) = (said(&told[0]), said(&told[1]), said(&told[2]));
    assert_eq!((&nobody["user"], &nobody["confirmed"]), (&Value::Null, &json!(false)));
    assert_eq!((&bob["user"], &bob["confirmed"]), (&json!("bob"), &json!(false)));
    assert_eq!(ann["id"], public_id("token-of-ann"));
    assert_eq!((&ann["user"], &ann["confirmed"]), (&json!("ann"), &json!(true)));
    assert_eq!(ann["why"], "expired");
    assert!((ann["seen"].as_f64().unwrap() - seen).abs() < 1e-3);
    assert_eq!(ann["cart"], json!([{ "item": "mug", "count": 2 }]));
    let viewed = json!([{ "item": "mug", "viewed": 7.25 }, { "item": "tea", "viewed": 5.5 }]);
    assert_eq!(ann["viewed"], viewed);
}

#[test]
fn an_event_answered_500_or_307_is_repeated_with_the_same_id() {
    for refusal in ["500 Internal Server Error", "307 Temporary Redirect"] {
        let elsewhere = Origin::always(ok());
        let there = format!("http://{}/", elsewhere.address());
        let receiver = Origin::start({
            let times = AtomicUsize::new(0);
            move |_| match times.fetch_add(1, Ordering::SeqCst) {
                0 => Reply::status(refusal).header("Location", &there).body("no"),
                _ => ok(),
            }
        });
        let teller = Teller::of(&[("ann", "2.5")], receiver.address());
        wait_until("it is taken", || teller.count("delivered") >= 1.0);
        assert_eq!(teller.count("failed"), 1.0);
        let event = format!("{}-2500-expired", public_id("token-of-ann"));
        assert_eq!(events(&receiver), [event.clone(), event]);
        assert!(receiver.seen().iter().all(is_signed));
        assert_eq!(receiver.seen()[0].body.bytes, receiver.seen()[1].body.bytes);
        assert_eq!(elsewhere.count(), 0);
    }
}

#[test]
fn one_that_its_receiver_cannot_take_holds_up_no_other() {
    let receiver = Origin::start(|request| match said(request)["user"].as_str() {
        Some("poison") => Reply::status("400 Bad Request").body("what?"),
        _ => ok(),
    });
    let teller =
        Teller::of(&[("poison", "1.5"), ("ann", "2.5"), ("bob", "3.5")], receiver.address());
    wait_until("the others are taken", || teller.count("delivered") >= 2.0);
    wait_until("theirs are taken out", || teller.waiting() == 1);
}

#[test]
fn a_receiver_that_is_away_is_told_when_it_is_there() {
    for storage in [Storage::Embedded, redis()] {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let origin = shop(|_| Reply::unstored("bought").header("Anteroom-Cart", "mug;count=2"));
        let more = "session.mint = true\nsession.max_sessions = 1";
        let proxy = Proxy::start(&origin, &storage, &settings(address, more));
        let cookie = log_in(&proxy, "ann");
        assert_eq!(proxy.post("/buy").cookie(&cookie).send().text(), "bought");
        log_in(&proxy, "bob");
        wait_until("it fails", || proxy.metric("anteroom_cart_events_failed_total") >= 1.0);
        assert!(proxy.metric("anteroom_cart_events_waiting") >= 1.0);

        let receiver = Origin::at(address, |_| ok());
        let delivered = || proxy.metric("anteroom_cart_events_delivered_total");
        wait_until("it is taken", || delivered() >= 1.0);
        assert_eq!(receiver.count(), 1);
        let told = said(&receiver.last());
        assert_eq!((&told["user"], &told["confirmed"]), (&json!("ann"), &json!(true)));
        assert_eq!(told["cart"], json!([{ "item": "mug", "count": 2 }]));
    }
}

#[test]
fn events_waiting_at_a_kill_are_sent_after_the_restart() {
    for storage in [Storage::Embedded, redis()] {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let origin = shop(|_| Reply::unstored("bought").header("Anteroom-Cart", "mug;count=2"));
        let more = "session.mint = true\nsession.max_sessions = 1";
        let mut proxy = Proxy::start(&origin, &storage, &settings(address, more));
        for n in 0..4 {
            let cookie = log_in(&proxy, &format!("user{n}"));
            assert_eq!(proxy.post("/buy").cookie(&cookie).send().text(), "bought");
        }
        log_in(&proxy, "last");
        let handed_on = || proxy.metric("anteroom_carts_handed_on_total");
        wait_until("all carts wait", || handed_on() >= 4.0);
        proxy.kill9();
        let receiver = Origin::at(address, |_| ok());
        proxy.restart();
        let delivered = || proxy.metric("anteroom_cart_events_delivered_total");
        wait_until("all are taken", || delivered() >= 4.0);
        let told: BTreeSet<_> = events(&receiver).into_iter().collect();
        assert_eq!((told.len(), receiver.count()), (4, 4));
        assert!(receiver.seen().iter().all(is_signed));
    }
}

#[test]
fn an_event_under_way_at_a_kill_is_repeated_with_the_same_id() {
    let gate = Gate::closed();
    let receiver = Origin::start({
        let (gate, times) = (Arc::clone(&gate), AtomicUsize::new(0));
        move |_| match times.fetch_add(1, Ordering::SeqCst) {
            0 => ok().until(&gate).bytes(""),
            _ => ok(),
        }
    });
    let mut teller = Teller::of(&[("ann", "2.5")], receiver.address());
    wait_until("it is under way", || receiver.count() == 1);
    teller.proxy.kill9();
    gate.open();
    teller.proxy.restart();
    wait_until("it is told or taken", || teller.waiting() == 0);
    let told = events(&receiver);
    assert!(told.len() <= 2 && told.iter().all(|event| *event == told[0]), "{told:?}");
}

#[test]
fn of_two_proxies_on_one_redis_one_tells_each_cart() {
    const SESSIONS: usize = 60;
    let storage = redis();
    for n in 0..SESSIONS {
        abandon(server(&storage), &format!("token-number-{n}"), "ann", &format!("{n}.5"));
    }
    let receiver = Origin::always(ok());
    let origin = pages();
    let settings = settings(
        receiver.address(),
        "session.idle_timeout = \"1h\"\nsession.cart_idle = \"1s\"\nsession.clean_batch = 7",
    );
    let proxies =
        [Proxy::start(&origin, &storage, &settings), Proxy::start(&origin, &storage, &settings)];
    let delivered = || {
        let count = |proxy: &Proxy| proxy.metric("anteroom_cart_events_delivered_total") as usize;
        proxies.iter().map(count).sum::<usize>()
    };
    wait_until("all are cleaned", || server(&storage).command::<u64>(&["ZCARD", "recent:"]) == 0);
    wait_until("none waits", || waiting(server(&storage)) == 0);
    wait_until("all are counted", || delivered() == receiver.count());
    let told = events(&receiver);
    let once: BTreeSet<_> = told.iter().collect();
    assert_eq!(once.len(), told.len());
    let expired = told.iter().filter(|event| event.ends_with("-expired"));
    assert_eq!(expired.count(), SESSIONS);
}

#[test]
fn an_idle_cart_is_told_of_once_until_its_visitor_was_back_and_then_as_expired() {
    let storage = redis();
    let server = server(&storage);
    let seen = unix_now() - 7200.0;
    abandon(server, "token-of-ann", "ann", &seen.to_string());
    abandon(server, "token-of-bob", "bob", &ago(10.0));
    let receiver = Origin::always(ok());
    let origin = pages();
    let idle = settings(receiver.address(), "session.cart_idle = \"1h\"");
    let mut proxy = Proxy::start(&origin, &storage, &idle);
    wait_until("she is told of", || receiver.count() == 1);
    let is_over = || waiting(server) == 0;
    wait_until("it waits no more", is_over);
    let told = said(&receiver.last());
    assert_eq!((&told["user"], &told["why"]), (&json!("ann"), &json!("idle")));
    assert_eq!(server.command::<u64>(&["HLEN", "cart:token-of-ann"]), 1);
    // The next process knows it, too; and she was back, and is idle again.
    proxy.restart();
    let back = unix_now() - 5400.0;
    server.command::<()>(&["ZADD", "recent:", &back.to_string(), "token-of-ann"]);
    wait_until("she is told of again", || receiver.count() == 2);
    wait_until("that waits no more", is_over);
    drop(proxy);
    let over = settings(receiver.address(), "session.idle_timeout = \"1h\"");
    let _proxy = Proxy::start(&origin, &storage, &over);
    wait_until("her session is over", || receiver.count() == 3);
    let whys: Vec<_> = receiver.seen().iter().map(|seen| said(seen)["why"].clone()).collect();
    assert_eq!(whys, ["idle", "idle", "expired"]);
    assert_eq!(events(&receiver).into_iter().collect::<BTreeSet<_>>().len(), 3);
    assert_eq!(server.keys("cart:*"), ["cart:token-of-bob"]);
}

#[test]
fn idle_carts_are_in_the_file_and_in_the_stream_too() {
    let origin = pages();
    for (on_expire, expected) in [("file:./carts.jsonl", 2), ("stream", 2)] {
        let storage = redis();
        let server = server(&storage);
        abandon(server, "token-of-ann", "ann", &ago(7200.0));
        abandon(server, "token-of-bob", "bob\0?", &ago(7100.0));
        let settings = format!(
            "session.on_expire = \"{on_expire}\"\nsession.cart_idle = \"1h\"\n\
             session.clean_every = \"50ms\""
        );
        let proxy = Proxy::start(&origin, &storage, &settings);
        let handed_on = || proxy.metric("anteroom_carts_handed_on_total");
        wait_until("they are told of", || handed_on() >= f64::from(expected));
        let told: Vec<Value> = if on_expire == "stream" {
            type Entry = (String, std::collections::BTreeMap<String, String>);
            let entries: Vec<Entry> = server.command(&["XRANGE", "expired:", "-", "+"]);
            entries.into_iter().map(|(_, fields)| json!(fields)).collect()
        } else {
            let text = std::fs::read_to_string(proxy.folder().join("carts.jsonl")).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        assert_eq!(told.len(), 2);
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let said: Vec<_> = told
            .iter()
            .map(|told| ["user", "confirmed", "why"].map(|key| text(&told[key])))
            .collect();
        assert_eq!(said, [["ann", "true", "idle"], ["bob", "false", "idle"]]);
        let viewed = r#"[{"item":"mug","viewed":7.25},{"item":"tea","viewed":5.5}]"#;
        assert_eq!(text(&told[0]["viewed"]), viewed);
        assert_eq!(server.command::<u64>(&["ZCARD", "recent:"]), 2);
    }
}

#[test]
fn an_answer_without_end_is_not_read_to_its_end() {
    let receiver = Origin::start(|_| {
        let begun = "x".repeat(1 << 18);
        Reply::status("200 OK").header("Content-Length", "100000000").bytes(&begun).hanging()
    });
    let teller = Teller::of(&[("ann", "2.5")], receiver.address());
    wait_until("it is taken", || teller.count("delivered") >= 1.0);
    assert_eq!(teller.count("failed"), 0.0);
}

#[test]
fn a_receiver_that_closes_on_one_event_gets_all_others() {
    for no_answer in [Reply::nothing as fn() -> Reply, || Reply::raw(b"no HTTP at all\r\n\r\n")] {
        let receiver = Origin::start(move |request| match said(request)["user"].as_str() {
            Some("poison") => no_answer(),
            _ => ok(),
        });
        let teller =
            Teller::of(&[("poison", "1.5"), ("ann", "2.5"), ("bob", "3.5")], receiver.address());
        wait_until("the others are taken", || teller.count("delivered") >= 2.0);
        wait_until("theirs are taken out", || teller.waiting() == 1);
    }
}

#[test]
fn permanent_refusals_pause_only_after_all_events_were_refused() {
    const POISON: usize = 12;
    let receiver = Origin::start(|request| match said(request)["user"].as_str() {
        Some("poison") => Reply::status("400 Bad Request").body("what?"),
        _ => ok(),
    });
    let storage = redis();
    for n in 0..POISON {
        abandon(server(&storage), &format!("token-of-poison-{n}"), "poison", &format!("{n}.5"));
    }
    abandon(server(&storage), "token-of-ann", "ann", "99.5");
    let teller = Teller::start(storage, receiver.address(), OVER);
    wait_until("she is told of", || teller.count("delivered") >= 1.0);
    let told = events(&receiver);
    let before = told.iter().position(|event| event.contains("-99500-")).unwrap();
    assert_eq!(told[..before].iter().collect::<BTreeSet<_>>().len(), before, "one round");
    wait_until("hers is taken out", || teller.waiting() == POISON as u64);
    assert_eq!(teller.count("given_up"), 0.0);
}

const DAY: f64 = 86_400.0;

/// An event of this user that waits, with what is noted of it.
fn put_into_queue(server: &RedisServer, user: &str, noted: &str) {
    let event = format!(
        r#"{{"id":"{user}","user":"{user}","seen":"1.5","cart":[],"viewed":[],"why":"idle"{noted}}}"#
    );
    server.command::<()>(&["RPUSH", "cartevents:", &event]);
}

/// The names of the users with waiting events.
fn left(server: &RedisServer) -> BTreeSet<String> {
    let left: Vec<String> = server.command(&["LRANGE", "cartevents:", "0", "-1"]);
    let user = |event: &String| {
        let event: Value = serde_json::from_str(event).unwrap();
        event["user"].as_str().unwrap().to_owned()
    };
    left.iter().map(user).collect()
}

#[test]
fn an_event_refused_for_three_days_is_given_up() {
    let receiver = Origin::start(|request| match said(request)["user"].as_str() {
        Some("away") => Reply::status("503 Service Unavailable"),
        _ => Reply::status("403 Forbidden").body("who?"),
    });
    let storage = redis();
    for (user, since) in [("ann", 4.0 * DAY), ("bob", 2.0 * DAY), ("away", 4.0 * DAY)] {
        let refused = format!(r#","refused":{:.0}"#, unix_now() - since);
        put_into_queue(server(&storage), user, &refused);
    }
    let teller = Teller::start(storage, receiver.address(), "");
    wait_until("all were refused", || events(&receiver).contains(&"away-1500-idle".to_owned()));
    wait_until("one is given up", || teller.count("given_up") >= 1.0 && teller.waiting() == 2);
    assert!(!left(teller.server()).contains("ann"));
    teller.proxy.wait_for_complaint("ann-1500-idle");
}

/// What is noted of an event that failed first so long ago, and since then behind so many others.
fn failed(since: f64, behind: u32) -> String {
    let since = unix_now() - since;
    format!(r#","failed":[{since:.3},{since:.3},{behind}]"#)
}

#[test]
fn a_failing_event_is_given_up_when_many_others_were_taken() {
    let receiver = Origin::start(|request| match said(request)["user"].as_str() {
        Some("breaks") => Reply::nothing(),
        Some("fails" | "new" | "lately") => Reply::status("500 Internal Server Error"),
        _ => ok(),
    });
    let storage = redis();
    for (user, noted) in [
        ("ann", String::new()),
        ("breaks", failed(4.0 * DAY, 50)),
        ("fails", failed(4.0 * DAY, 50)),
        ("lately", failed(2.0 * DAY, 50)),
        ("new", String::new()),
    ] {
        put_into_queue(server(&storage), user, &noted);
    }
    let teller = Teller::start(storage, receiver.address(), "");
    wait_until("two are given up", || teller.count("given_up") >= 2.0 && teller.waiting() == 2);
    assert_eq!(left(teller.server()), ["lately", "new"].map(str::to_owned).into());
    let complaints = teller.proxy.complaints();
    for given_up in ["breaks-1500-idle", "fails-1500-idle"] {
        let lines = complaints.lines().filter(|line| line.contains(given_up));
        assert_eq!(lines.count(), 1, "{complaints}");
    }
    assert_eq!((teller.count("delivered"), teller.count("given_up")), (1.0, 2.0));
}

#[test]
fn while_nothing_is_taken_nothing_that_fails_is_given_up() {
    let receiver = Origin::always(Reply::status("502 Bad Gateway"));
    let storage = redis();
    put_into_queue(server(&storage), "ann", &failed(9.0 * DAY, 50));
    put_into_queue(server(&storage), "bob", &failed(9.0 * DAY, 50));
    let teller = Teller::start(storage, receiver.address(), "");
    wait_until("one was tried twice", || receiver.count() >= 3);
    assert_eq!((teller.count("given_up"), teller.waiting()), (0.0, 2));
}

#[test]
fn a_failing_event_is_kept_when_few_others_were_taken() {
    let receiver = Origin::start(|request| match said(request)["user"].as_str() {
        Some("fails") => Reply::status("500 Internal Server Error"),
        _ => ok(),
    });
    let storage = redis();
    put_into_queue(server(&storage), "fails", &failed(9.0 * DAY, 3));
    put_into_queue(server(&storage), "ann", "");
    let teller = Teller::start(storage, receiver.address(), "");
    let tries = || events(&receiver).iter().filter(|event| event.starts_with("fails")).count();
    wait_until("it is tried behind her", || tries() >= 2 && teller.count("delivered") >= 1.0);
    wait_until("that is noted", || {
        let first: Option<String> = teller.server().command(&["LINDEX", "cartevents:", "0"]);
        first.is_some_and(|event| event.ends_with(",4]}"))
    });
    assert_eq!(teller.count("given_up"), 0.0);
}

#[test]
fn an_answer_without_its_body_counts_by_its_status() {
    let receiver =
        Origin::start(|_| Reply::status("200 OK").header("Content-Length", "2").hanging());
    let teller = Teller::of(&[("ann", "2.5"), ("bob", "3.5")], receiver.address());
    wait_until("both are taken", || teller.count("delivered") >= 2.0);
    assert_eq!(teller.count("failed"), 0.0);
    wait_until("both are taken out", || teller.waiting() == 0);
    assert_eq!(receiver.count(), 2);
}

/// The receiver that the guide to carts shows, for this port and this key.
fn shown_receiver(folder: &Path, port: u16) -> Child {
    let guide = include_str!("../../docs/guides/carts.md");
    let (_, code) = guide.split_once("```python\nimport hashlib, hmac").unwrap();
    let (code, _) = code.split_once("```").unwrap();
    let key = folder.join("webhook.key");
    std::fs::write(&key, format!("{SECRET}\n")).unwrap();
    let code = format!("import hashlib, hmac{code}")
        .replace("/etc/anteroom/webhook.key", key.to_str().unwrap())
        .replace("8000", &port.to_string());
    std::fs::write(folder.join("receiver.py"), code).unwrap();
    Command::new("python3")
        .arg(folder.join("receiver.py"))
        .stdout(std::fs::File::create(folder.join("told")).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn the_receiver_that_is_shown_takes_what_is_signed_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let mut receiver = shown_receiver(folder.path(), address.port());
    wait_until("it listens", || std::net::TcpStream::connect(address).is_ok());
    let forged = Ask::new(address, "POST", "/carts")
        .header("Anteroom-Signature", "t=1790000000,v1=00")
        .body(b"{}")
        .send();
    assert_eq!(forged.status, 403);

    let teller = Teller::of(&[("ann", "2.5")], address);
    wait_until("it is taken", || teller.count("delivered") >= 1.0);
    let told = std::fs::read_to_string(folder.path().join("told")).unwrap();
    assert_eq!(told, "expired ann True [{'count': 2, 'item': 'mug'}]\n");
    receiver.kill().unwrap();
    receiver.wait().unwrap();
}

#[test]
fn while_a_key_is_changed_a_receiver_with_either_takes_what_is_told() {
    const NEW: &str = "a key that is new";
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("new.key");
    std::fs::write(&new, NEW).unwrap();
    let receiver = Origin::always(ok());
    let storage = redis();
    abandon(server(&storage), "token-of-ann", "ann", "2.5");
    let teller = Teller::start(storage, receiver.address(), OVER);
    wait_until("she is told of", || receiver.count() == 1);
    let old = std::env::temp_dir().join("anteroom-webhook-test.key");
    let (old, new) = (format!("{{ file = {old:?} }}"), format!("{{ file = {new:?} }}"));
    for (secret, user, keys) in
        [(format!("[{new}, {old}]"), "bob", vec![NEW, SECRET]), (new, "eve", vec![NEW])]
    {
        teller.proxy.edit(|text| {
            let lines = text.lines().map(|line| match line.starts_with("session.webhook_secret") {
                true => format!("session.webhook_secret = {secret}\n"),
                false => format!("{line}\n"),
            });
            lines.collect()
        });
        assert!(teller.proxy.reload(), "{}", teller.proxy.complaints());
        abandon(teller.server(), &format!("token-of-{user}"), user, "2.5");
        let told = || receiver.seen().into_iter().find(|seen| said(seen)["user"] == user);
        wait_until("he is told of", || told().is_some());
        assert!(is_signed_with(&keys, &told().unwrap()), "{user}");
    }
}

#[test]
fn a_receiver_by_https_is_told_where_its_certificate_is_believed() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    for (believed, is_told) in [(&authority, true), (&stranger, false)] {
        let folder = tempfile::tempdir().unwrap();
        let tls = authority.server(&authority.issue("localhost", false), &["http/1.1"], false);
        let receiver = Upstream::http(Some(tls), false, |_| http::Response::default());
        let origin = shop(|_| Reply::unstored("bought").header("Anteroom-Cart", "mug;count=2"));
        let url = format!("https://localhost:{}", receiver.port());
        let settings = settings_for(&url, "session.mint = true\nsession.max_sessions = 1");
        let line = format!("export SSL_CERT_FILE={}", believed.file(folder.path()).display());
        let proxy = Proxy::behind_with(&line, &origin, &settings);
        let cookie = log_in(&proxy, "ann");
        assert_eq!(proxy.post("/buy").cookie(&cookie).send().text(), "bought");
        log_in(&proxy, "bob");
        let count = |what: &str| proxy.metric(&format!("anteroom_cart_events_{what}_total"));
        wait_until("it is tried", || count("delivered") + count("failed") >= 1.0);
        assert_eq!((count("delivered") > 0.0, !receiver.seen().is_empty()), (is_told, is_told));
    }
}

#[test]
fn a_webhook_by_https_is_not_put_into_force_where_no_authority_is_trusted() {
    let origin = pages();
    let line = "export SSL_CERT_FILE=/nowhere/ca.pem SSL_CERT_DIR=/nowhere";
    let proxy = Proxy::behind_with(line, &origin, &settings_for("http://127.0.0.1:9/", ""));
    proxy.edit(|text| text.replace("webhook:http:", "webhook:https:"));
    assert!(!proxy.reload());
    let said = proxy.complaints();
    assert!(said.contains("cannot set up TLS to the webhook"), "{said}");
    assert!(said.contains("trusts no certificate authority; install ca-certificates"), "{said}");
}

#[test]
fn a_proxy_without_a_webhook_shows_no_waiting_events() {
    let away = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let teller = Teller::of(&[("ann", "2.5")], away);
    let proxy = &teller.proxy;
    wait_until("it waits", || proxy.metric("anteroom_cart_events_waiting") >= 1.0);
    proxy.edit(|text| text.replace(&format!("webhook:http://{away}/carts?from=shop"), "stream"));
    assert!(proxy.reload(), "{}", proxy.complaints());
    assert_eq!(proxy.metric("anteroom_cart_events_waiting"), 0.0);
    assert_eq!(teller.waiting(), 1);
}

#[test]
fn a_taken_event_that_cannot_be_removed_is_not_sent_again() {
    let storage = redis();
    abandon(server(&storage), "token-of-ann", "ann", "2.5");
    server(&storage).command::<()>(&["ACL", "SETUSER", "default", "-lpop", "-lrem"]);
    let receiver = Origin::always(ok());
    let teller = Teller::start(storage, receiver.address(), OVER);
    wait_until("it fails again", || teller.proxy.metric("anteroom_task_errors_total") >= 2.0);
    assert_eq!((receiver.count(), teller.waiting()), (1, 1));
    teller.server().command::<()>(&["ACL", "SETUSER", "default", "+lpop", "+lrem"]);
    wait_until("it waits no more", || teller.waiting() == 0);
    assert_eq!(receiver.count(), 1);
    assert_eq!(teller.count("delivered"), 1.0);
}
