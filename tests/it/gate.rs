//! Which addresses are served: `[client] allow` and `deny`, and `allow_from` of a route.

use std::fs;

use crate::support::client::{Answer, Ask, Client};
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, anteroom};
use crate::support::wait_until;

/// The cases come from this address and name their client.
const TRUSTED: &str = r#"client.trusted_proxies = "127.0.0.1""#;
const ADMIN: &str = r#"[[route]]
match.path = "/admin/open"
allow_from = ["0.0.0.0/0", "::/0"]
[[route]]
match.query = { p = "1" }
[[route]]
match.path = "/admin/**"
allow_from = "10.0.0.0/8"
share = "everyone"
ttl = "60s""#;

fn page() -> Origin {
    Origin::start(|request| Reply::html(&request.target))
}

fn from(proxy: &Proxy, address: &str, target: &str) -> Answer {
    proxy.get(target).header("X-Forwarded-For", address).send()
}

fn assert_refused(answer: &Answer) {
    assert_eq!((answer.status, answer.header("cache-control")), (403, Some("no-store")));
    assert!(answer.cache_status().contains("detail=denied"), "{}", answer.cache_status());
}

#[test]
fn a_peer_that_is_denied_is_closed_at_once() {
    let origin = page();
    for setting in [r#"client.deny = "127.0.0.0/8""#, r#"client.allow = "10.0.0.0/8""#] {
        let proxy = Proxy::embedded(&origin, setting);
        assert!(proxy.connect().is_closed(), "{setting}");
        wait_until("it is counted", || proxy.metric("anteroom_connections_denied_total") == 1.0);
        assert_eq!(proxy.admin("/healthz").send().status, 200);
    }
    assert_eq!(origin.count(), 0);
}

#[test]
fn behind_a_trusted_proxy_the_client_counts() {
    let origin = page();
    let settings = r#"client.allow = ["10.0.0.0/8", "2001:db8::/32"]
client.deny = "10.1.0.0/16""#;
    let proxy = Proxy::embedded(&origin, &format!("{TRUSTED}\n{settings}"));
    for (address, is_served) in [
        ("10.2.0.1", true),
        ("2001:db8::1", true),
        ("::ffff:10.2.0.1", true),
        ("10.1.0.1", false),
        ("::ffff:10.1.0.1", false),
        ("192.0.2.1", false),
        // Only what stands right of the others is the trusted proxy's word.
        ("10.2.0.1, 192.0.2.1", false),
        ("192.0.2.1, 10.2.0.1", true),
    ] {
        let answer = from(&proxy, address, "/");
        assert_eq!(answer.status == 200, is_served, "{address}");
        if !is_served {
            assert_refused(&answer);
        }
    }
    let log = proxy.access_log(8);
    assert_eq!((&log[3]["client"], &log[3]["reason"]), (&"10.1.0.1".into(), &"denied".into()));
}

#[test]
fn the_client_address_from_the_load_balancer_counts() {
    let origin = page();
    let listen = r#"listen = [{ address = "{listen}", proxy_protocol.from = "127.0.0.1" }]"#;
    for (setting, header, is_served) in [
        ("client.deny = \"192.0.2.0/24\"", "PROXY TCP4 192.0.2.1 198.51.100.1 1 2\r\n", false),
        ("client.deny = \"192.0.2.0/24\"", "PROXY TCP4 192.0.3.1 198.51.100.1 1 2\r\n", true),
        ("client.deny = \"0.0.0.0/0\"", "PROXY UNKNOWN\r\n", true),
        ("client.allow = \"0.0.0.0/0\"", "PROXY UNKNOWN\r\n", false),
        ("client.allow = \"192.0.2.0/24\"", "PROXY TCP4 192.0.2.1 198.51.100.1 1 2\r\n", true),
    ] {
        let proxy = Proxy::embedded(&origin, &format!("{listen}\n{setting}"));
        let mut client = proxy.connect();
        client.send(header.as_bytes());
        let answer = proxy.get("/").try_send_on(&mut client);
        assert_eq!(answer.is_some_and(|answer| answer.status == 200), is_served, "{setting}");
    }
}

#[test]
fn a_client_without_an_address_is_refused_by_allow_and_not_by_deny() {
    let origin = page();
    for (setting, is_served) in [("deny", true), ("allow", false)] {
        let settings = format!(
            "listen = [{{ address = \"unix:./web.sock\" }}]\nclient.{setting} = [\"0.0.0.0/0\", \"::/0\"]"
        );
        let proxy = Proxy::embedded(&origin, &settings);
        let mut client = Client::unix(&proxy.folder().join("web.sock"));
        let answer = proxy.get("/").try_send_on(&mut client);
        assert_eq!(answer.is_some_and(|answer| answer.status == 200), is_served, "{setting}");
    }
}

#[test]
fn a_guard_applies_to_cached_pages_too() {
    let origin = page();
    let proxy = Proxy::embedded(&origin, &format!("{TRUSTED}\n{ADMIN}"));
    assert_eq!(from(&proxy, "10.0.0.1", "/admin/x").status, 200);
    assert!(from(&proxy, "10.0.0.1", "/admin/x").is_hit());
    let asked = origin.count();
    for target in [
        "/admin",
        "/admin/x",
        "/admin/x?p=1",
        "/Admin/x",
        "/%61dmin/x",
        "//admin/x",
        "/shop/../admin/x",
        "/shop/..%2fadmin/x",
        "/admin;a/x",
        "/admin/..;/admin/x",
        "/admin./x",
        "/admin%20/x",
        "/%20admin/x",
        "/admin::$DATA/x",
    ] {
        for stranger in ["192.0.2.1", "2001:db8::1", "unknown"] {
            assert_refused(&from(&proxy, stranger, target));
        }
    }
    let ask = |ask: Ask| ask.header("X-Forwarded-For", "192.0.2.1").send();
    for method in ["HEAD", "POST", "DELETE", "PROPFIND"] {
        assert_eq!(ask(proxy.ask(method, "/admin/x")).status, 403, "{method}");
    }
    assert_eq!(origin.count(), asked, "the app has seen none of them");
    assert_eq!(from(&proxy, "192.0.2.1", "/admin/open").status, 200);
    assert_eq!(from(&proxy, "192.0.2.1", "/shop").status, 200);
}

#[test]
fn no_field_leads_to_a_guarded_route() {
    let origin = page();
    let proxy = Proxy::embedded(&origin, &format!("{TRUSTED}\n{ADMIN}"));
    let names = ["X-Original-URL", "X-Rewrite-URL", "X_Rewrite_Url", "X-Override-Url", "X-Host"];
    let ask = names.iter().fold(proxy.post("/"), |ask, name| ask.header(name, "/admin/x"));
    assert_eq!(ask.header("X-HTTP-Method-Override", "PUT").send().status, 200);
    let came = origin.last();
    assert!(came.fields.iter().all(|(_, value)| value != "/admin/x"), "{:?}", came.fields);
    assert_eq!(came.header("x-http-method-override"), Some("PUT"));
}

#[test]
fn no_field_leads_to_a_guarded_method() {
    let origin = page();
    let settings = "[[route]]\nmatch.method = \"DELETE\"\nallow_from = \"10.0.0.0/8\"";
    let proxy = Proxy::embedded(&origin, settings);
    let ask = proxy.post("/item/1");
    assert_eq!(
        ask.header("X-HTTP-Method-Override", "DELETE").header("X-A", "b").send().status,
        200
    );
    let seen = origin.last();
    assert_eq!((seen.header("x-http-method-override"), seen.header("x-a")), (None, Some("b")));
}

#[test]
fn a_guard_of_get_is_one_of_head() {
    let origin = page();
    let settings = r#"[[route]]
match.path = "/admin/**"
match.method = "GET"
allow_from = "10.0.0.0/8""#;
    let proxy = Proxy::embedded(&origin, &format!("{TRUSTED}\n{settings}"));
    let ask = |method, address| {
        proxy.ask(method, "/admin/x").header("X-Forwarded-For", address).send().status
    };
    assert_eq!(ask("GET", "10.0.0.1"), 200);
    let asked = origin.count();
    assert_eq!((ask("GET", "192.0.2.1"), ask("HEAD", "192.0.2.1")), (403, 403));
    assert_eq!(origin.count(), asked);
    assert_eq!((ask("HEAD", "10.0.0.1"), ask("OPTIONS", "192.0.2.1")), (200, 200));
}

#[test]
fn a_reload_refuses_clients_already_connected() {
    let origin = page();
    let proxy = Proxy::embedded(&origin, "client.deny = []");
    let mut client = proxy.connect();
    assert_eq!(proxy.get("/").send_on(&mut client).status, 200);
    proxy.edit(|text| text.replace("client.deny = []", "client.deny = \"127.0.0.1\""));
    assert!(proxy.reload(), "{}", proxy.complaints());
    assert_refused(&proxy.get("/").send_on(&mut client));
    assert!(proxy.connect().is_closed());
}

#[test]
fn explain_shows_whether_an_address_is_served() {
    let origin = page();
    let proxy = Proxy::embedded(&origin, ADMIN);
    let explain = |target: &str, words: &[&str]| {
        let told = anteroom()
            .args(["explain", "--config", "proxy.toml", target])
            .args(words)
            .current_dir(proxy.folder())
            .output()
            .unwrap();
        assert!(told.status.success(), "{told:?}");
        String::from_utf8(told.stdout).unwrap()
    };
    let target = "http://shop.test/admin/x";
    assert!(explain(target, &["--from", "192.0.2.1"]).contains("Refused (denied): 403"));
    for told in [explain(target, &["--from", "10.0.0.1"]), explain(target, &[])] {
        assert!(told.contains("Fetched for the cache"), "{told}");
    }
    assert!(explain(target, &[]).contains("allow_from"));
}

#[test]
fn a_guard_that_another_spelling_of_the_host_passes_is_refused() {
    let origin = page();
    let proxy = Proxy::embedded(&origin, "");
    let route = "[[route]]\nmatch.host = \"a.test\"\nallow_from = \"10.0.0.0/8\"";
    for (hosts, is_fine) in [("", false), ("origin.hosts = \"a.test\"", true)] {
        let text = format!("origin.url = \"http://127.0.0.1:1\"\n{hosts}\n{route}");
        fs::write(proxy.folder().join("other.toml"), text).unwrap();
        let checked = anteroom()
            .args(["check", "--config", "other.toml"])
            .current_dir(proxy.folder())
            .output()
            .unwrap();
        assert_eq!(checked.status.success(), is_fine, "{checked:?}");
    }
}
