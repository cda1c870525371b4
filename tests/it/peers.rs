//! Several proxies on one Redis: they share pages and sessions.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::{Proxy, Storage, log_in, shop};
use crate::support::redis::RedisServer;
use crate::support::{DEADLINE, at_once, wait_until, wait_within};

fn redis(storage: &Storage) -> &RedisServer {
    match storage {
        Storage::Redis(server) => server,
        Storage::Embedded => unreachable!("these cases are about redis"),
    }
}

fn two(origin: &Origin, storage: &Storage, settings: &str) -> [Proxy; 2] {
    [Proxy::start(origin, storage, settings), Proxy::start(origin, storage, settings)]
}

#[test]
fn a_page_that_one_fetched_is_a_hit_at_the_other() {
    let storage = Storage::redis();
    let origin = Origin::always(Reply::html("welcome").header("X-Made-By", "the app"));
    let [one, other] = two(&origin, &storage, "");
    one.get("/").send();
    wait_until("the page is in redis", || !redis(&storage).keys("cache:*").is_empty());

    let answer = other.get("/").send();

    assert!(answer.is_hit(), "{}", answer.cache_status());
    assert!(answer.cache_status().contains("detail=store"), "{}", answer.cache_status());
    assert_eq!(answer.text(), "welcome");
    assert_eq!(answer.header("x-made-by"), Some("the app"));
    assert!(other.get("/").send().cache_status().contains("detail=memory"));
    assert_eq!(origin.count(), 1);
}

#[test]
fn each_variant_that_one_fetched_is_a_hit_at_the_other() {
    let storage = Storage::redis();
    let origin = Origin::start(|request| {
        Reply::html(request.header("accept-language").unwrap_or("none"))
            .header("Vary", "Accept-Language")
    });
    let [one, other] = two(&origin, &storage, "");
    let page =
        |proxy: &Proxy, language: &str| proxy.get("/").header("Accept-Language", language).send();
    page(&one, "de");
    wait_until("page and index are in redis", || redis(&storage).keys("cache:*").len() == 2);
    page(&one, "fr");
    // The two pages, and the index with the two keys that lead to them, 32 bytes each.
    let length = |key: &String| redis(&storage).command::<usize>(&["STRLEN", key]);
    wait_until("all is in redis", || {
        let keys = redis(&storage).keys("cache:*");
        keys.len() == 3 && keys.iter().all(|key| length(key) >= 64)
    });

    for language in ["de", "fr"] {
        let answer = page(&other, language);
        assert!(answer.is_hit(), "{}", answer.cache_status());
        assert_eq!(answer.text(), language);
    }
    assert_eq!(origin.count(), 2);
}

#[test]
fn a_log_in_and_a_log_out_hold_at_both_proxies() {
    let storage = Storage::redis();
    let origin = shop(|request| Reply::unstored(request.header("x-anteroom-user").unwrap_or("-")));
    let [one, other] = two(&origin, &storage, "session.mint = true");
    let alice = log_in(&one, "alice");
    let user = |proxy: &Proxy| proxy.post("/").cookie(&alice).send().text();
    assert_eq!((user(&one), user(&other)), ("alice".into(), "alice".into()));

    one.post("/logout").cookie(&alice).send();

    assert_eq!(user(&one), "-");
    wait_until("the other one knows", || user(&other) == "-");
}

/// Counts the look-ups of tokens that Redis is asked for, those of scripts not included.
fn look_ups(server: &RedisServer) -> Arc<AtomicUsize> {
    let mut monitor = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    monitor.write_all(b"MONITOR\r\n").unwrap();
    let counted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&counted);
    std::thread::spawn(move || {
        for line in BufReader::new(monitor).lines().map_while(Result::ok) {
            if line.contains("\"HGET\" \"login:\"") && !line.contains(" lua]") {
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    counted
}

#[test]
fn a_busy_session_is_not_looked_up_and_out_at_both_all_the_same() {
    let storage = Storage::redis();
    let origin = shop(|request| Reply::unstored(request.header("x-anteroom-user").unwrap_or("-")));
    let [one, other] = two(&origin, &storage, "session.mint = true");
    let alice = log_in(&one, "alice");
    let token = alice.strip_prefix("login=").unwrap();
    let server = redis(&storage);
    let is_alice = || one.post("/").cookie(&alice).send().text() == "alice";
    let counted = look_ups(server);
    let looked_up = || counted.load(Ordering::SeqCst);
    wait_until("a look-up is seen", || {
        other.post("/").cookie("login=somebody-else").send();
        looked_up() > 0
    });
    assert!(is_alice());

    // A token that was looked up is remembered for a second, unless a visit is written meanwhile.
    let (mut known, mut since) = (usize::MAX, f64::INFINITY);
    // On a busy machine a visit is written too late now and then.
    let what = "visits over more than a second come without a look-up";
    wait_within(6 * DEADLINE, what, || {
        assert!(is_alice());
        let seen: Option<f64> = server.command(&["ZSCORE", "recent:", token]);
        let seen = seen.unwrap_or_default();
        let now = looked_up();
        if now != known {
            (known, since) = (now, seen);
        }
        seen - since > 1.5
    });

    other.post("/logout").cookie(&alice).send();
    wait_until("the busy one knows", || !is_alice());
}

#[test]
fn two_proxies_clean_one_redis_and_do_no_work_twice() {
    let storage = Storage::redis();
    for n in 0..200 {
        let (token, seen) = (format!("token-number-{n}"), n.to_string());
        redis(&storage).command::<()>(&["HSET", "login:", &token, "user"]);
        redis(&storage).command::<()>(&["ZADD", "recent:", &seen, &token]);
        redis(&storage).command::<()>(&["ZADD", &format!("viewed:{token}"), "1", "shoe"]);
        redis(&storage).command::<()>(&["HSET", &format!("cart:{token}"), "shoe", "1"]);
    }
    let origin = Origin::always(Reply::unstored("hello"));
    let proxies = two(&origin, &storage, "session.max_sessions = 50\nsession.clean_batch = 3");
    let cleaned = || -> f64 {
        proxies.iter().map(|proxy| proxy.metric("anteroom_sessions_cleaned_total")).sum()
    };

    wait_until("the oldest are cleaned", || cleaned() >= 150.0);

    assert_eq!(cleaned() as u64, 150);
    let left: Vec<String> = redis(&storage).command(&["ZRANGE", "recent:", "0", "-1"]);
    let newest: Vec<_> = (150..200).map(|n| format!("token-number-{n}")).collect();
    assert_eq!(left, newest);
    for pattern in ["viewed:token-*", "cart:token-*"] {
        assert_eq!(redis(&storage).keys(pattern).len(), 50, "{pattern}");
    }
    assert_eq!(redis(&storage).command::<u64>(&["HLEN", "login:"]), 50);
}

#[test]
fn the_page_after_a_log_in_that_the_app_wrote_knows_the_user() {
    let storage = Storage::redis();
    let app_store = redis::Client::open(redis(&storage).url()).unwrap();
    let origin = Origin::start(move |request| match (request.method.as_str(), request.path()) {
        ("POST", _) => {
            let token = request.header("cookie").unwrap().strip_prefix("login=").unwrap();
            let mut connection = app_store.get_connection().unwrap();
            redis::cmd("HSET").arg("login:").arg(token).arg("alice").exec(&mut connection).unwrap();
            Reply::status("303 See Other").header("Location", "/").body("")
        }
        _ => Reply::unstored(request.header("x-anteroom-user").unwrap_or("stranger")),
    });
    let [one, other] = two(&origin, &storage, "");
    for n in 0..20 {
        let cookie = format!("login=token-of-visitor-{n}");
        let shown = |proxy: &Proxy, target| proxy.get(target).cookie(&cookie).send().text();
        for target in ["/", "/style.css", "/style.css"] {
            assert_eq!(shown(&one, target), "stranger");
            assert_eq!(shown(&other, target), "stranger");
        }
        assert_eq!(one.post("/login").cookie(&cookie).send().status, 303);
        // The other proxy was told of nothing. At the one that carried the login, no look-up of before counts.
        assert_eq!(shown(&other, "/"), "alice", "{n}");
        assert_eq!(shown(&other, "/style.css"), "alice", "{n}");
        assert_eq!(shown(&one, "/style.css"), "alice", "{n}");
    }
}

#[test]
fn of_a_fleet_one_asks_the_origin() {
    let storage = Storage::redis();
    let gates = [Gate::closed(), Gate::closed()];
    let [page, mine] = gates.clone();
    let origin = Origin::start(move |request| {
        let is_mine = request.path() == "/mine";
        let gate = if is_mine { &mine } else { &page };
        gate.pass();
        let control = if is_mine { "private" } else { "max-age=60" };
        Reply::html("a page").header("Cache-Control", control)
    });
    let proxies = two(&origin, &storage, "");
    let waiting = || proxies.iter().map(|proxy| proxy.metric("anteroom_waiting")).sum::<f64>();
    let fetch = |target: &str, gate: &Gate| {
        std::thread::scope(|scope| {
            let all = scope.spawn(|| at_once(20, |n| proxies[n % 2].get(target).send()));
            wait_until("all but the first of each wait", || waiting() == 18.0);
            gate.open();
            all.join().unwrap()
        })
    };

    let answers = fetch("/", &gates[0]);
    assert!(answers.iter().all(|answer| answer.text() == "a page"));
    assert_eq!(origin.count(), 1);

    // Both proxies know that a page is personal when the first answer has begun.
    let answers = fetch("/mine", &gates[1]);
    assert!(answers.iter().all(|answer| answer.text() == "a page"));
    let said = |reason: &str| answers.iter().any(|answer| answer.cache_status().contains(reason));
    assert!(said("detail=private") && said("detail=elsewhere"));
}

#[test]
fn a_proxy_that_waits_long_for_the_origin_keeps_the_fetch_to_itself() {
    let storage = Storage::redis();
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let origin = Origin::start(move |_| {
        held.pass();
        Reply::html("a page").header("Cache-Control", "max-age=60")
    });
    let proxies = two(&origin, &storage, "");
    let left = || {
        let leases = redis(&storage).keys("lease:*");
        let [lease] = leases.as_slice() else { return -1 };
        redis(&storage).command::<i64>(&["PTTL", lease])
    };
    let answers = std::thread::scope(|scope| {
        let all = scope.spawn(|| at_once(2, |n| proxies[n].get("/").send()));
        let mut lowest = i64::MAX;
        wait_until("the lease is renewed", || {
            let left = left();
            lowest = if left > 0 { lowest.min(left) } else { lowest };
            left > lowest
        });
        gate.open();
        all.join().unwrap()
    });
    assert!(answers.iter().all(|answer| answer.text() == "a page"));
    assert_eq!(origin.count(), 1);
}
