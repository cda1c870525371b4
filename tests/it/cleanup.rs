//! Old sessions are cleaned while the proxy runs, and nothing of them is left.

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};
use crate::support::wait_until;

const FIVE: &str = "session.mint = true\nsession.max_sessions = 5\nsession.clean_batch = 2\n\
                    [[route]]\nmatch.path = \"/item/{item}\"";

on_both_stores!(the_oldest_sessions_are_cleaned);

fn greeting() -> Origin {
    shop(|request| Reply::unstored(request.header("x-anteroom-user").unwrap_or("stranger")))
}

fn the_oldest_sessions_are_cleaned(storage: &Storage) {
    let origin = greeting();
    let proxy = Proxy::start(&origin, storage, FIVE);

    let visitors: Vec<_> = (0..12).map(|n| log_in(&proxy, &format!("user{n}"))).collect();

    // A request with one of these sessions would renew it.
    let cleaned = || proxy.metric("anteroom_sessions_cleaned_total");
    wait_until("seven are cleaned", || cleaned() >= 7.0);
    let user = |n: usize| proxy.post("/").cookie(&visitors[n]).send().text();
    for n in 0..7 {
        assert_eq!(user(n), "stranger", "user{n}");
    }
    for n in 7..12 {
        assert_eq!(user(n), format!("user{n}"));
    }
}

#[test]
fn nothing_in_redis_mentions_a_cleaned_session() {
    let storage = Storage::redis();
    let Storage::Redis(server) = &storage else { return };
    let origin = greeting();
    let proxy = Proxy::start(&origin, &storage, FIVE);
    let old = log_in(&proxy, "old");
    let token = old.trim_start_matches("login=");
    server.command::<()>(&["HSET", &format!("cart:{token}"), "shoe", "1"]);
    proxy.get("/item/7").cookie(&old).send();
    let viewed = format!("viewed:{token}");
    wait_until("the view is noted", || !server.keys(&viewed).is_empty());

    for n in 0..5 {
        log_in(&proxy, &format!("user{n}"));
    }

    wait_until("nothing mentions the token", || !server.dump().contains(token));
    wait_until("five are left", || server.command::<u64>(&["ZCARD", "recent:"]) == 5);
    assert_eq!(server.command::<u64>(&["HLEN", "login:"]), 5);
    assert_eq!(server.command::<Option<f64>>(&["ZSCORE", "viewed:", "7"]), Some(-1.0));
}

#[test]
fn junk_among_the_sessions_harms_nothing_else() {
    let storage = Storage::redis();
    let Storage::Redis(server) = &storage else { return };
    server.command::<()>(&["ZADD", "viewed:", "-3", "7"]);
    server.command::<()>(&["ZADD", "recent:", "1", "", "2", "a b", "3", "short"]);
    let origin = greeting();
    let proxy = Proxy::start(&origin, &storage, FIVE);

    for n in 0..5 {
        log_in(&proxy, &format!("user{n}"));
    }

    wait_until("the junk is gone", || server.command::<u64>(&["ZCARD", "recent:"]) == 5);
    assert_eq!(server.command::<Option<f64>>(&["ZSCORE", "viewed:", "7"]), Some(-3.0));
    assert_eq!(server.command::<u64>(&["HLEN", "login:"]), 5);
}

#[test]
fn two_proxies_on_one_redis_clean_down_to_the_limit_and_no_further() {
    let storage = Storage::redis();
    let Storage::Redis(server) = &storage else { return };
    for n in 0..100 {
        let (token, seen) = (format!("token-number-{n}"), n.to_string());
        server.command::<()>(&["HSET", "login:", &token, "user"]);
        server.command::<()>(&["ZADD", "recent:", &seen, &token]);
    }
    let origin = greeting();
    let _proxies = [Proxy::start(&origin, &storage, FIVE), Proxy::start(&origin, &storage, FIVE)];

    wait_until("five are left", || server.command::<u64>(&["ZCARD", "recent:"]) <= 5);

    let left: Vec<String> = server.command(&["ZRANGE", "recent:", "0", "-1"]);
    assert_eq!(left, [95, 96, 97, 98, 99].map(|n| format!("token-number-{n}")));
    assert_eq!(server.command::<u64>(&["HLEN", "login:"]), 5);
}

/// Ten sessions of long ago, written though there is no room: a script that has begun to write is
/// let finish.
const OLD_SESSIONS: &str = "redis.call('DEL', 'spare')
for n = 1, 10 do
  redis.call('HSET', 'login:', 'token-number-' .. n, 'user')
  redis.call('ZADD', 'recent:', n, 'token-number-' .. n)
end";

#[test]
fn a_redis_that_refuses_visits_is_cleaned_all_the_same() {
    let faults: [&[&str]; 2] =
        [&["CONFIG", "SET", "maxmemory", "1"], &["SET", "viewed:", "no sorted set"]];
    for fault in faults {
        let storage = Storage::redis();
        let Storage::Redis(server) = &storage else { return };
        let origin = greeting();
        let proxy = Proxy::start(&origin, &storage, FIVE);
        let visitors: Vec<_> = (0..5).map(|n| log_in(&proxy, &format!("user{n}"))).collect();
        server.command::<()>(fault);
        let waiting = || {
            for cookie in &visitors {
                proxy.get("/item/7").cookie(cookie).send();
            }
            proxy.metric("anteroom_visits_waiting")
        };
        wait_until("visits wait", || waiting() > 0.0);

        server.command::<()>(&["EVAL", OLD_SESSIONS, "0"]);
        let left = || server.command::<Vec<String>>(&["ZRANGE", "recent:", "0", "-1"]);
        wait_until("the old ones are gone", || left().len() <= 5);
        assert!(left().iter().all(|token| !token.starts_with("token-number")), "{fault:?}");
        assert_eq!(server.command::<u64>(&["HLEN", "login:"]), 5);
    }
}

/// Its time cannot be corrected where there is no room, which is not to keep the others from being cleaned.
#[test]
fn a_full_redis_with_a_session_from_the_future_is_cleaned_all_the_same() {
    let storage = Storage::redis();
    let Storage::Redis(server) = &storage else { return };
    server.command::<()>(&["EVAL", OLD_SESSIONS, "0"]);
    server.command::<()>(&["HSET", "login:", "from-the-future", "ann"]);
    server.command::<()>(&["ZADD", "recent:", "9999999999", "from-the-future"]);
    server.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let origin = greeting();
    let _proxy = Proxy::start(&origin, &storage, &format!("session.idle_timeout = \"1h\"\n{FIVE}"));
    let left = || server.command::<Vec<String>>(&["ZRANGE", "recent:", "0", "-1"]);
    wait_until("the old ones are gone", || left() == ["from-the-future"]);
}
