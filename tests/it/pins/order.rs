//! The order in which a request is refused, or answered by us: of two reasons, which one counts, and what
//! the request has used up by then.

use crate::support::client::Answer;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, log_in, shop};

/// Requests come from here, and say for whom. Some are denied, some paths are for some, and one site is served.
const SETTINGS: &str = r#"client.trusted_proxies = "127.0.0.1"
client.deny = "192.0.2.66"
origin.hosts = "shop.test"
session.mint = true
"#;
const ADMIN: &str = "\n[[route]]\nmatch.path = \"/admin/**\"\nallow_from = \"10.0.0.0/8\"";
const REDIRECT: &str = "listen = [{ address = \"{listen}\", redirect = \"https\" }]\n";
const PURGE: &str = "purge = { method = true, purge_from = [\"10.0.0.0/8\"] }\n";

struct Site {
    origin: Origin,
    proxy: Proxy,
}

impl Site {
    /// One with more settings.
    fn with(settings: &str) -> Self {
        let origin = shop(|request| Reply::unstored(&request.target));
        // Whoever may purge has a token.
        let token = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(token.path(), "secret-token").unwrap();
        let token = format!("admin.token = {{ file = \"{}\" }}\n", token.path().display());
        let proxy = Proxy::embedded(&origin, &format!("{SETTINGS}{token}{settings}"));
        Self { origin, proxy }
    }

    fn ask(&self, line: &str, address: &str) -> Answer {
        let (method, target) = line.split_once(' ').unwrap();
        self.proxy.ask(method, target).header("X-Forwarded-For", address).send()
    }

    /// The status, and the reason in `Cache-Status`.
    fn said(&self, line: &str, address: &str) -> (u16, String) {
        told(&self.ask(line, address))
    }

    fn status(&self, line: &str, address: &str) -> u16 {
        self.ask(line, address).status
    }

    /// How many requests a limit has refused, by the name of its route.
    fn limited(&self, route: &str) -> u64 {
        self.proxy.metric(&format!("anteroom_rate_limited_total{{route=\"{route}\"}}")) as u64
    }
}

fn told(answer: &Answer) -> (u16, String) {
    let reason = answer.cache_status().split("detail=").nth(1).unwrap_or_default();
    (answer.status, reason.to_owned())
}

fn is(status: u16, reason: &str) -> (u16, String) {
    (status, reason.to_owned())
}

const A: &str = "192.0.2.1";
const B: &str = "192.0.2.2";

#[test]
fn the_list_of_addresses_stands_before_admission() {
    let site = Site::with("");
    let ask = |address| {
        told(&site.proxy.get("/").host("other.test").header("X-Forwarded-For", address).send())
    };
    assert_eq!(ask("192.0.2.66"), is(403, "denied"));
    assert_eq!(ask(A), is(421, "refused"));
    assert_eq!(site.origin.count(), 0);
}

#[test]
fn admission_stands_before_the_networks_of_a_route() {
    let site = Site::with(ADMIN);
    let ask =
        |host| told(&site.proxy.get("/admin/x").host(host).header("X-Forwarded-For", A).send());
    assert_eq!(ask("other.test"), is(421, "refused"));
    assert_eq!(ask("shop.test"), is(403, "denied"));
}

#[test]
fn what_is_refused_before_the_limits_uses_nothing_up() {
    let site = Site::with(&format!("limits.requests_per_address = \"1/h burst 1\"{ADMIN}"));
    assert_eq!(
        site.proxy.get("/").host("other.test").header("X-Forwarded-For", A).send().status,
        421
    );
    assert_eq!(site.said("GET /admin/x", A), is(403, "denied"));
    assert_eq!(site.status("GET /", A), 200);
    assert_eq!(site.said("GET /admin/x", A), is(403, "denied"), "before the limit that is used up");
    assert_eq!(site.said("GET /", A), is(429, "rate-limited"));
    assert_eq!(site.limited("*"), 1);
}

#[test]
fn the_limit_of_all_requests_stands_before_purges_of_who_may_not() {
    let site = Site::with(&format!("{PURGE}limits.requests_per_address = \"1/h burst 1\""));
    assert_eq!(site.said("PURGE /", A), is(403, "refused"));
    assert_eq!(site.said("PURGE /", A), is(429, "rate-limited"), "that purge was counted");
    assert_eq!(site.said("GET /", A), is(429, "rate-limited"));
    assert_eq!((site.limited("*"), site.origin.count()), (2, 0));
}

#[test]
fn purges_of_who_may_are_not_counted_with_a_token_or_without() {
    let purge = PURGE.replace("10.0.0.0/8", "127.0.0.1");
    let site = Site::with(&format!("{purge}limits.requests_per_address = \"1/h burst 1\""));
    assert_eq!(site.said("PURGE /", A), is(403, "refused"));
    let bearer = site.proxy.ask("PURGE", "/").header("Authorization", "Bearer secret-token");
    let bearer = bearer.header("X-Forwarded-For", A);
    assert_eq!(told(&bearer.send()), is(200, "method"));
    assert_eq!(site.status("GET /", A), 200);
    assert_eq!(site.said("GET /", A), is(429, "rate-limited"));
    assert_eq!(told(&bearer.send()), is(200, "method"));
}

#[test]
fn the_networks_of_a_route_stand_before_purges() {
    let purge = PURGE.replace("10.0.0.0/8", "127.0.0.1");
    let site = Site::with(&format!("{purge}{ADMIN}"));
    let ask = |target| {
        let ask = site.proxy.ask("PURGE", target).header("Authorization", "Bearer secret-token");
        told(&ask.header("X-Forwarded-For", A).send())
    };
    assert_eq!(ask("/admin/x"), is(403, "denied"));
    assert_eq!(ask("/x"), is(200, "method"));
}

#[test]
fn purges_stand_before_the_redirection() {
    let site = Site::with(&format!("{REDIRECT}{PURGE}"));
    assert_eq!(site.said("PURGE /", A), is(403, "refused"));
    assert_eq!(site.status("GET /", A), 308);
}

#[test]
fn the_limit_of_all_requests_stands_before_the_redirection_which_is_counted() {
    let site = Site::with(&format!("{REDIRECT}limits.requests_per_address = \"1/h burst 1\""));
    assert_eq!(site.status("GET /", A), 308);
    assert_eq!(site.said("GET /", A), is(429, "rate-limited"));
}

#[test]
fn the_networks_of_a_route_stand_before_the_redirection() {
    let site = Site::with(&format!("{REDIRECT}{ADMIN}"));
    assert_eq!(site.said("GET /admin/x", A), is(403, "denied"));
}

#[test]
fn the_redirection_stands_before_the_endpoints() {
    let site = Site::with(REDIRECT);
    assert_eq!(site.status("GET /_anteroom/me", A), 308);
    assert_eq!(site.status("GET /_anteroom/none", A), 308);
}

#[test]
fn the_redirection_stands_before_the_limits_of_a_route_and_of_sessions() {
    let limits = "limits.requests_per_session = \"1/h burst 1\"\n[[route]]\nname = \"all\"\n\
                  match.path = \"/**\"\nrequests_per_address = \"1/h burst 1\"";
    let site = Site::with(&format!("{REDIRECT}{limits}"));
    assert_eq!([(); 3].map(|()| site.status("GET /", A)), [308; 3]);
    assert_eq!((site.limited("*"), site.limited("all")), (0, 0));
}

#[test]
fn the_endpoints_stand_before_the_limits_of_a_route() {
    let limits = "[[route]]\nname = \"all\"\nmatch.path = \"/**\"\n\
                  requests_per_address = \"1/h burst 1\"\nrequests_per_session = \"1/h burst 1\"";
    let site = Site::with(limits);
    assert_eq!([(); 3].map(|()| site.status("GET /_anteroom/me", A)), [200; 3]);
    assert_eq!(site.status("GET /", A), 200);
    assert_eq!(site.status("GET /", A), 429);
    assert_eq!(site.limited("all"), 1);
}

#[test]
fn the_limit_of_all_requests_stands_before_the_endpoints() {
    let site = Site::with("limits.requests_per_address = \"2/h burst 2\"");
    assert_eq!(site.status("GET /_anteroom/none", A), 404);
    assert_eq!(site.status("POST /_anteroom/me", A), 405);
    assert_eq!(site.said("POST /_anteroom/me", A), is(429, "rate-limited"), "those were counted");
}

#[test]
fn an_endpoint_counts_for_a_session_what_it_does_not_refuse() {
    let site = Site::with("limits.requests_per_session = \"1/h burst 1\"");
    assert_eq!(site.status("GET /_anteroom/none", A), 404);
    assert_eq!(site.status("POST /_anteroom/me", A), 405);
    assert_eq!(site.status("DELETE /_anteroom/cart", A), 403, "nobody says from which page");
    assert_eq!(site.status("GET /_anteroom/me", A), 200);
    assert_eq!(site.said("GET /_anteroom/me", A), is(429, "rate-limited"));
    assert_eq!(site.status("POST /_anteroom/me", A), 405, "before the limit that is used up");
    assert_eq!(site.said("GET /", A), is(429, "rate-limited"));
}

#[test]
fn the_limit_of_all_requests_stands_before_those_of_a_route() {
    let route = "[[route]]\nname = \"form\"\nmatch.path = \"/form\"\n\
                 requests_per_address = \"2/h burst 2\"";
    let site = Site::with(&format!("limits.requests_per_address = \"3/h burst 3\"\n{route}"));
    let statuses = [(); 4].map(|()| site.status("GET /form", A));
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert_eq!((site.limited("form"), site.limited("*")), (1, 1), "the third was counted for all");
    assert_eq!(site.origin.count(), 2);
}

#[test]
fn the_limit_of_a_route_by_address_stands_before_those_of_sessions() {
    let limits = "limits.requests_per_session = \"2/h burst 2\"\n[[route]]\nname = \"form\"\n\
                  match.path = \"/form\"\nrequests_per_address = \"1/h burst 1\"\n\
                  [[route]]\nname = \"other\"";
    let site = Site::with(limits);
    assert_eq!(site.status("GET /form", A), 200);
    assert_eq!(site.status("GET /form", A), 429);
    assert_eq!((site.limited("form"), site.limited("*")), (1, 0));
    assert_eq!(site.status("GET /", A), 200, "nothing was used up of what a session has");
    assert_eq!(site.status("GET /", A), 429);
    assert_eq!(site.status("GET /form", A), 429, "the address counts before the session");
    assert_eq!((site.limited("form"), site.limited("*")), (2, 1));
}

#[test]
fn the_limit_of_a_route_by_address_leaves_what_a_known_session_has() {
    let limits = "limits.requests_per_session = \"2/h burst 2\"\n[[route]]\nname = \"form\"\n\
                  match.path = \"/form\"\nrequests_per_address = \"1/h burst 1\"\n\
                  [[route]]\nname = \"other\"";
    let site = Site::with(limits);
    let alice = log_in(&site.proxy, "alice");
    let ask = |target, address| {
        site.proxy.get(target).cookie(&alice).header("X-Forwarded-For", address).send().status
    };
    assert_eq!([ask("/form", A), ask("/form", A)], [200, 429]);
    assert_eq!([ask("/", B), ask("/", B)], [200, 429]);
}

#[test]
fn the_limit_of_sessions_stands_before_that_of_a_route() {
    let limits = "limits.requests_per_session = \"3/h burst 3\"\n[[route]]\nname = \"form\"\n\
                  match.path = \"/form\"\nrequests_per_session = \"2/h burst 2\"";
    let site = Site::with(limits);
    let statuses = [(); 4].map(|()| site.status("GET /form", A));
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert_eq!((site.limited("form"), site.limited("*")), (1, 1), "the third was counted for all");
}

#[test]
fn the_limit_of_a_route_by_session_uses_up_what_its_addresses_have() {
    let route = "[[route]]\nname = \"form\"\nmatch.path = \"/form\"\n\
                 requests_per_address = \"3/h burst 3\"\nrequests_per_session = \"1/h burst 1\"";
    let site = Site::with(route);
    let alice = log_in(&site.proxy, "alice");
    let ask = || site.proxy.get("/form").cookie(&alice).header("X-Forwarded-For", A).send().status;
    assert_eq!([ask(), ask(), ask()], [200, 429, 429]);
    assert_eq!(site.status("GET /form", A), 429, "by its address, which three were counted for");
    assert_eq!(site.status("GET /form", B), 200);
}

#[test]
fn a_request_over_a_limit_by_address_asks_neither_the_app_nor_who_it_is() {
    let settings = r#"limits.requests_per_address = "1/h burst 1"
session.verify.path = "/whoami"
session.verify.user = { json = "/name" }
session.verify.nobody = { status = [401] }
"#;
    let settings = format!("{SETTINGS}{settings}").replace("session.mint = true\n", "");
    let origin = Origin::start(|request| match request.path() {
        "/whoami" => Reply::typed("application/json", "{\"name\": \"ann\"}"),
        _ => Reply::unstored("page"),
    });
    let proxy = Proxy::embedded(&origin, &settings);
    let ask = || {
        let ask = proxy.get("/").cookie("login=a-token-of-ann").header("X-Forwarded-For", A);
        ask.send().status
    };
    assert_eq!((ask(), origin.count()), (200, 2));
    assert_eq!((ask(), origin.count()), (429, 2));
}
