//! The order in which a request is refused, or answered by us: of two reasons, which one counts, and what
//! the request has used up by then.

use crate::support::client::Answer;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, anteroom, log_in, shop};

/// Requests come from here, and name their client. Some are denied, some paths are for some, and one site is
/// served.
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
        Self::before(shop(|request| Reply::unstored(&request.target)), settings)
    }

    /// One whose pages are kept, and the front page is.
    fn with_kept_pages(settings: &str) -> Self {
        let page = |target: &str| Reply::html(target).header("Cache-Control", "max-age=60");
        let site = Self::before(shop(move |request| page(&request.target)), settings);
        assert_eq!(site.status("GET /", A), 200);
        assert!(site.ask("GET /", A).is_hit());
        site
    }

    fn before(origin: Origin, settings: &str) -> Self {
        // A client that may purge has a token.
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
fn a_refusal_before_the_limits_consumes_none() {
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
fn the_request_limit_comes_before_forbidden_purges() {
    let site = Site::with(&format!("{PURGE}limits.requests_per_address = \"1/h burst 1\""));
    assert_eq!(site.said("PURGE /", A), is(403, "refused"));
    assert_eq!(site.said("PURGE /", A), is(429, "rate-limited"), "that purge was counted");
    assert_eq!(site.said("GET /", A), is(429, "rate-limited"));
    assert_eq!((site.limited("*"), site.origin.count()), (2, 0));
}

#[test]
fn permitted_purges_are_not_counted_with_or_without_a_token() {
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
    assert_eq!(site.status("DELETE /_anteroom/cart", A), 403, "no field names the page");
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

/// Pages of an app that is asked who a visitor is.
fn app() -> Origin {
    Origin::start(|request| match request.path() {
        "/whoami" => Reply::typed("application/json", "{\"name\": \"ann\"}"),
        _ => Reply::unstored("page"),
    })
}

/// A proxy before such an app, with more settings.
fn verifying(origin: &Origin, settings: &str) -> Proxy {
    let verify = r#"session.verify.path = "/whoami"
session.verify.user = { json = "/name" }
session.verify.nobody = { status = [401] }
"#;
    let settings = format!("{SETTINGS}{verify}{settings}").replace("session.mint = true\n", "");
    Proxy::embedded(origin, &settings)
}

/// Of two requests, the first is within a limit.
fn assert_the_second_asks_nothing(limit: &str) {
    let origin = app();
    let proxy = verifying(&origin, limit);
    let ask = |cookie| proxy.get("/").cookie(cookie).header("X-Forwarded-For", A).send().status;
    assert_eq!((ask("login=a-token-of-ann"), origin.count()), (200, 2));
    assert_eq!((ask("login=another-of-ann"), origin.count()), (429, 2));
}

#[test]
fn a_request_over_the_address_limit_is_neither_forwarded_nor_verified() {
    assert_the_second_asks_nothing("limits.requests_per_address = \"1/h burst 1\"\n");
}

#[test]
fn a_request_over_the_route_limit_is_neither_forwarded_nor_verified() {
    let route = "[[route]]\nmatch.path = \"/\"\nrequests_per_address = \"1/h burst 1\"\n";
    assert_the_second_asks_nothing(route);
}

#[test]
fn a_revoked_token_is_detected_before_the_app_is_asked() {
    let origin = app();
    let proxy = verifying(&origin, "");
    let ask = |cookie| proxy.get("/").cookie(cookie).send().status;
    assert_eq!((ask("login=a-token-of-ann"), origin.count()), (200, 2));
    let mut revoke = anteroom();
    revoke.args(["sessions", "revoke", "--user", "ann", "--config", "proxy.toml"]);
    assert!(revoke.current_dir(proxy.folder()).output().unwrap().status.success());
    let both = "login=another-of-ann; %6Cogin=a-token-of-ann";
    assert_eq!((ask(both), origin.count()), (200, 3), "the page only");
    assert_eq!(origin.last().header("cookie"), None);
}

#[test]
fn purge_permission_is_checked_before_the_purge() {
    let site = Site::with_kept_pages(PURGE);
    assert_eq!(site.said("PURGE /", A), is(403, "refused"));
    assert!(site.ask("GET /", A).is_hit(), "a purge that is refused leaves the page");
}

#[test]
fn the_upgrade_stands_before_the_cache() {
    let site = Site::with_kept_pages("");
    let upgrade = site.proxy.get("/").header("Connection", "upgrade").header("Upgrade", "chat");
    assert_eq!(told(&upgrade.send()), is(200, "upgrade"));
    assert_eq!(site.origin.count(), 2);
}

#[test]
fn only_if_cached_is_refused_before_the_upgrade() {
    let site = Site::with("");
    let ask = site.proxy.get("/").header("Connection", "upgrade").header("Upgrade", "chat");
    let answer = ask.header("Cache-Control", "only-if-cached").send();
    assert_eq!((answer.status, site.origin.count()), (504, 0));
}

#[test]
fn the_limit_of_sessions_stands_before_the_visit_of_an_endpoint() {
    let site = Site::with("limits.requests_per_session = \"1/h burst 1\"");
    let alice = log_in(&site.proxy, "alice");
    let ask = || {
        let ask = site.proxy.get("/_anteroom/me").cookie(&alice);
        ask.header("X-Forwarded-For", A).send().status
    };
    assert_eq!(ask(), 200);
    let visits = site.proxy.metric("anteroom_visits_total");
    assert_eq!(ask(), 429);
    assert_eq!(site.proxy.metric("anteroom_visits_total"), visits, "a refused call is no visit");
}
