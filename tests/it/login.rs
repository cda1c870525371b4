//! Login by an app that cooperates: the proxy mints, rotates and deletes the session cookie.

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};
use crate::support::wait_until;

const MINT: &str = "session.mint = true";

on_both_stores!(
    a_log_in_makes_the_visitor_known,
    a_log_out_ends_the_session,
    a_second_log_in_ends_the_first_token,
    a_log_in_bound_to_its_host_is_anonymous_at_another,
);

fn greeting() -> Origin {
    shop(|request| Reply::unstored(request.header("x-anteroom-user").unwrap_or("stranger")))
}

fn a_log_in_makes_the_visitor_known(storage: &Storage) {
    let origin = greeting();
    let proxy = Proxy::start(&origin, storage, MINT);
    assert_eq!(proxy.get("/").send().text(), "stranger");

    let alice = log_in(&proxy, "alice");

    assert_eq!(proxy.get("/").cookie(&alice).send().text(), "alice");
}

fn a_log_out_ends_the_session(storage: &Storage) {
    let origin = greeting();
    let proxy = Proxy::start(&origin, storage, MINT);
    let alice = log_in(&proxy, "alice");
    assert_eq!(proxy.get("/").cookie(&alice).send().text(), "alice");

    let answer = proxy.post("/logout").cookie(&alice).send();

    let cleared = answer.set_cookie("login").expect("the cookie is cleared").to_ascii_lowercase();
    assert!(cleared.contains("max-age=0") || cleared.contains("expires="), "{cleared}");
    assert_eq!(proxy.get("/").cookie(&alice).send().text(), "stranger");
}

fn a_second_log_in_ends_the_first_token(storage: &Storage) {
    let origin = greeting();
    let proxy = Proxy::start(&origin, storage, MINT);
    let old = log_in(&proxy, "alice");

    let answer = proxy.post("/login?alice").cookie(&old).send();

    let new = format!("login={}", answer.cookie("login").unwrap());
    assert_ne!(new, old);
    assert_eq!(proxy.get("/").cookie(&new).send().text(), "alice");
    assert_eq!(proxy.get("/").cookie(&old).send().text(), "stranger");
}

fn a_log_in_bound_to_its_host_is_anonymous_at_another(storage: &Storage) {
    let origin = greeting();
    for (setting, elsewhere) in [("false", "admin"), ("true", "stranger")] {
        let proxy =
            Proxy::start(&origin, storage, &format!("{MINT}\nsession.per_host = {setting}"));
        let answer = proxy.post("/login?admin").host("a.test").send();
        let admin = format!("login={}", answer.cookie("login").unwrap());
        let at = |host: &str| proxy.get("/").host(host).cookie(&admin).send().text();
        assert_eq!(at("a.test"), "admin");
        assert_eq!(at("b.test"), elsewhere);
        assert_eq!(at("b.a.test"), elsewhere);
        assert_eq!(at("a.test:8080"), elsewhere);
        assert_eq!(at("a.test"), "admin");
    }
}

#[test]
fn the_cookie_is_kept_from_scripts_and_other_sites() {
    let origin = greeting();
    let proxy = Proxy::embedded(&origin, MINT);

    let answer = proxy.post("/login?alice").send();

    let line = answer.set_cookie("login").unwrap();
    let attributes: Vec<_> = line.split(';').skip(1).map(str::trim).collect();
    for wanted in ["HttpOnly", "SameSite=Lax", "Path=/"] {
        assert!(attributes.contains(&wanted), "{wanted} in {line}");
    }
    assert!(!line.contains("Domain") && !line.contains("Secure"), "{line}");
    assert!(answer.cookie("login").unwrap().len() >= 43, "256 bits: {line}");
}

#[test]
fn the_cookie_is_secure_where_the_visitor_came_by_https() {
    let origin = greeting();
    let proxy = Proxy::embedded(
        &origin,
        "session.mint = true\nclient.trusted_proxies = [\"127.0.0.1/32\"]",
    );
    let answer = proxy.post("/login?alice").header("X-Forwarded-Proto", "https").send();
    let line = answer.set_cookie("login").unwrap();
    assert!(line.split(';').any(|part| part.trim() == "Secure"), "{line}");
}

#[test]
fn nothing_of_an_old_token_is_left_in_redis() {
    let storage = Storage::redis();
    let Storage::Redis(server) = &storage else { return };
    let origin = greeting();
    let proxy = Proxy::start(&origin, &storage, MINT);
    let first = log_in(&proxy, "alice");
    let answer = proxy.post("/login?alice").cookie(&first).send();
    let second = format!("login={}", answer.cookie("login").unwrap());
    assert!(!server.dump().contains(token(&first)), "{}", server.dump());
    assert_eq!(
        server.command::<Option<String>>(&["HGET", "login:", token(&second)]).as_deref(),
        Some("alice")
    );

    proxy.post("/logout").cookie(&second).send();

    wait_until("nothing mentions the token", || !server.dump().contains(token(&second)));
}

fn token(cookie: &str) -> &str {
    cookie.trim_start_matches("login=")
}

#[test]
fn a_log_in_survives_a_kill_right_after_its_answer() {
    let origin = greeting();
    let mut proxy = Proxy::embedded(&origin, MINT);
    let alice = log_in(&proxy, "alice");

    proxy.kill9();
    proxy.restart();

    assert_eq!(proxy.get("/").cookie(&alice).send().text(), "alice");
}

#[test]
fn fields_for_the_proxy_reach_no_visitor() {
    let origin = shop(|_| {
        Reply::html("a page").header("Anteroom-Item", "7").header("Anteroom-Nonsense", "1")
    });
    let proxy = Proxy::embedded(&origin, MINT);
    let alice = log_in(&proxy, "alice");

    let answers = [
        proxy.post("/login?bob").send(),
        proxy.get("/").send(),
        proxy.get("/").send(),
        proxy.get("/").cookie(&alice).send(),
        proxy.post("/").send(),
    ];

    for answer in answers {
        let told: Vec<_> = answer
            .fields
            .iter()
            .filter(|(name, _)| name.to_ascii_lowercase().starts_with("anteroom-"))
            .collect();
        assert!(told.is_empty(), "{told:?}");
    }
}

#[test]
fn without_minting_the_app_s_log_in_header_is_ignored() {
    let storage = Storage::redis();
    let Storage::Redis(server) = &storage else { return };
    let origin = greeting();
    let proxy = Proxy::start(&origin, &storage, "");

    let answer = proxy.post("/login?alice").send();

    assert_eq!((answer.set_cookie("login"), answer.header("anteroom-login")), (None, None));
    assert!(server.keys("login:*").is_empty());
}

#[test]
fn an_interim_response_is_no_log_in() {
    let origin = Origin::start(|_| {
        Reply::raw(
            b"HTTP/1.1 103 Early Hints\r\nAnteroom-Login: alice\r\n\r\n\
              HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        )
    });
    let proxy = Proxy::embedded(&origin, MINT);

    let answer = proxy.post("/").send();

    assert_eq!((answer.status, answer.set_cookie("login")), (200, None));
}

#[test]
fn a_log_in_on_a_page_is_given_to_one_visitor_alone() {
    let origin = Origin::always(
        Reply::html("welcome")
            .header("Anteroom-Login", "alice")
            .header("Cache-Control", "max-age=60"),
    );
    let proxy = Proxy::embedded(&origin, MINT);

    let answers = crate::support::at_once(10, |_| proxy.get("/").send());

    let tokens: Vec<_> = answers.iter().filter_map(|answer| answer.cookie("login")).collect();
    let different: std::collections::HashSet<_> = tokens.iter().collect();
    assert_eq!(different.len(), tokens.len(), "two visitors with one token");
    assert!(!proxy.get("/").send().is_hit());
}

#[test]
fn a_session_cookie_is_kept_from_caches_though_the_app_says_public() {
    let origin = Origin::start(|request| {
        Reply::html("welcome")
            .header("Cache-Control", "public, max-age=60")
            .header("CDN-Cache-Control", "max-age=60")
            .header("Anteroom-Login", request.target.trim_start_matches("/?"))
    });
    let proxy = Proxy::embedded(&origin, MINT);

    let answer = proxy.get("/?alice").send();

    assert!(answer.cookie("login").is_some());
    assert_eq!(answer.header("cache-control"), Some("private, no-cache"));
    assert_eq!(answer.header("cdn-cache-control"), None);
}

#[test]
fn a_log_out_ends_every_session_in_the_cookie_field() {
    let origin = shop(|_| Reply::unstored("a page"));
    let proxy = Proxy::start(&origin, &Storage::Embedded, MINT);
    let [ann, bob] = ["ann", "bob"].map(|user| log_in(&proxy, user));
    let both = format!("{ann}; {bob}; login=no{{token");
    assert_eq!(proxy.get("/").cookie(&both).send().status, 200);
    assert_eq!(origin.last().header("x-anteroom-session"), Some("unknown"));

    proxy.post("/logout").cookie(&both).send();

    for gone in [ann, bob] {
        proxy.get("/").cookie(&gone).send();
        assert_eq!(origin.last().header("x-anteroom-session"), Some("none"));
    }
}

#[test]
fn attributes_from_the_app_are_kept_and_shown_to_the_browser() {
    let origin = Origin::start(|request| match request.target.as_str() {
        "/login" => Reply::unstored("")
            .header("Anteroom-Login", "zo%C3%AB; group=trade; name=\"Zo\u{eb}; Bee\""),
        _ => Reply::unstored("a page"),
    });
    for storage in [Storage::Embedded, Storage::redis()] {
        let proxy = Proxy::start(&origin, &storage, MINT);
        let cookie = format!("login={}", proxy.post("/login").send().cookie("login").unwrap());

        let told = proxy.get("/_anteroom/me").cookie(&cookie).send();
        let told: serde_json::Value = serde_json::from_str(&told.text()).unwrap();
        assert_eq!(
            told,
            serde_json::json!({
                "user": "zo\u{eb}",
                "attributes": { "group": "trade", "name": "Zo\u{eb}; Bee" },
                "session": "known",
            })
        );
        proxy.get("/").cookie(&cookie).send();
        assert_eq!(origin.last().header("x-anteroom-user"), Some("zo%C3%AB"));
        assert_eq!(origin.last().header("anteroom-login"), None);
    }
}
