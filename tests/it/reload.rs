//! HUP: another configuration is put into force while requests are answered, all of it or nothing.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use tempfile::TempDir;

use crate::support::client::{Ask, Client, SITE};
use crate::support::free_port;
use crate::support::http2_client::{Http2Client, ask};
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, anteroom, log_in, shop};
use crate::support::wait_until;

fn appended(line: &str) -> impl FnOnce(&str) -> String {
    let line = line.to_owned();
    move |text| format!("{text}\n{line}\n")
}

#[test]
fn a_new_route_holds_from_the_next_request_on_and_pages_stay() {
    let origin = Origin::start(|_| Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, "");
    let mut client = proxy.connect();
    for _ in 0..2 {
        proxy.get("/kept").send_on(&mut client);
        proxy.get("/account").send_on(&mut client);
    }
    assert!(proxy.get("/account").send_on(&mut client).is_hit());

    proxy.edit(appended("[[route]]\nmatch.path = \"/account\"\nshare = \"none\""));
    assert!(proxy.reload());

    assert!(!proxy.get("/account").send_on(&mut client).is_hit(), "on the same connection");
    assert!(proxy.get("/kept").send_on(&mut client).is_hit());
}

#[test]
fn a_page_that_was_uncacheable_is_judged_anew() {
    let origin = Origin::start(|_| Reply::html("hello").header("Cache-Control", "no-store"));
    let proxy = Proxy::embedded(&origin, "");
    for _ in 0..3 {
        assert!(!proxy.get("/news").send().is_hit());
    }

    proxy.edit(appended("[[route]]\nmatch.path = \"/news\"\noverride_ttl = \"60s\""));
    assert!(proxy.reload());

    proxy.get("/news").send();
    assert!(proxy.get("/news").send().is_hit(), "the mark was set under the other configuration");
}

#[test]
fn a_page_that_was_uncacheable_is_judged_anew_after_a_purge() {
    let is_private = Arc::new(AtomicBool::new(true));
    let says = Arc::clone(&is_private);
    let origin = Origin::start(move |_| match says.load(Ordering::Relaxed) {
        true => Reply::unstored("hello"),
        false => Reply::html("hello"),
    });
    let folder = TempDir::new().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "the-admins-token").unwrap();
    let settings = format!("admin.token = {{ file = \"{}\" }}", token.display());
    let proxy = Proxy::embedded(&origin, &settings);
    for _ in 0..3 {
        assert!(!proxy.get("/news").send().is_hit());
    }
    is_private.store(false, Ordering::Relaxed);
    let order = format!("{{\"urls\":[\"http://{SITE}/news\"]}}");
    let purge = proxy.admin("/purge").method("POST").body(order.as_bytes());
    let purge = purge.header("Authorization", "Bearer the-admins-token").send();
    assert_eq!(purge.status, 200, "{}", purge.text());

    proxy.get("/news").send();
    let second = proxy.get("/news").send();
    assert!(second.is_hit(), "{}", second.cache_status());
}

#[test]
fn a_file_with_a_mistake_changes_nothing() {
    let origin = Origin::start(|_| Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/").send();

    proxy.edit(appended(
        "[[route]]\nmatch.path = \"/\"\nshare = \"none\"\n[cache]\nmemry = \"1MiB\"",
    ));

    assert!(!proxy.reload());
    assert!(proxy.get("/").send().is_hit(), "the route before the mistake does not hold either");
    assert!(proxy.complaints().contains("memry"), "{}", proxy.complaints());
    assert_eq!(proxy.metric("anteroom_reloads_refused_total"), 1.0);
}

#[test]
fn the_status_tells_of_a_refused_reload_until_the_next() {
    let origin = Origin::start(|_| Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, "");
    let status = |more: &[&str]| {
        let mut command = anteroom();
        command.args(["status", "--config", "proxy.toml"]).args(more);
        let output = command.current_dir(proxy.folder()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let json = || serde_json::from_str::<serde_json::Value>(&status(&["--json"])).unwrap();
    assert!(json()["status"]["refused_reload"].is_null());

    proxy.edit(appended("[[route]]\nmatch.path = \"/a\"\nshare = \"all\""));
    assert!(!proxy.reload());
    let refused = json()["status"]["refused_reload"].clone();
    let problem = refused["problems"][0].as_str().unwrap();
    assert!(refused["at"].as_f64().unwrap() > 1e9, "{refused}");
    assert!(
        problem.contains("[[route]] share: ") && problem.contains("found \"all\""),
        "{problem}"
    );
    let text = status(&[]);
    assert!(text.contains("\nreload     refused ") && text.contains("found \"all\""), "{text}");

    proxy.edit(|text| text.replace("share = \"all\"", "share = \"none\""));
    assert!(proxy.reload());
    assert!(json()["status"]["refused_reload"].is_null());
    assert!(!status(&[]).contains("\nreload "));
}

#[test]
fn the_command_says_what_came_of_a_reload() {
    let origin = Origin::start(|_| Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, "");
    let reload = |more: &[&str]| {
        let mut command = anteroom();
        command.args(["reload", "--config", "proxy.toml"]).args(more);
        let output = command.current_dir(proxy.folder()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };

    proxy.edit(appended("[[route]]\nname = \"front\"\nmatch.path = \"/\"\nshare = \"none\""));
    let (code, said, complaint) = reload(&[]);
    assert_eq!(
        (code, said.as_str()),
        (Some(0), "the new configuration is in force\n"),
        "{complaint}"
    );
    proxy.get("/").send();
    assert!(!proxy.get("/").send().is_hit());

    proxy.edit(|text| text.replace("share = \"none\"", "share = \"all\""));
    let (code, said, complaint) = reload(&[]);
    assert_eq!((code, said.as_str()), (Some(1), ""));
    assert!(complaint.contains("the old configuration stays in force"), "{complaint}");
    assert!(
        complaint.contains("[[route]] share: ") && complaint.contains("found \"all\""),
        "{complaint}"
    );

    proxy.edit(|text| text.replace("share = \"all\"", "share = \"none\"\nttl = \"1s\""));
    let (code, said, complaint) = reload(&["--json"]);
    assert_eq!(code, Some(0), "{complaint}");
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(report["warnings"].to_string().contains("stores nothing"), "{report}");
    assert_eq!(proxy.metric("anteroom_reloads_total"), 2.0);
    assert_eq!(proxy.metric("anteroom_reloads_refused_total"), 1.0);
}

#[test]
fn settings_that_need_a_restart_are_named_and_nothing_changes() {
    let origin = Origin::start(|_| Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/").send();

    proxy.edit(|text| {
        let more = text.replace("threads = 2", "threads = 3");
        format!("{more}\n[[route]]\nmatch.path = \"/\"\nshare = \"none\"\n")
    });

    assert!(!proxy.reload());
    assert!(proxy.complaints().contains("need a restart: threads"), "{}", proxy.complaints());
    assert!(proxy.get("/").send().is_hit());
}

#[test]
fn requests_go_to_another_origin_from_then_on() {
    let old = Origin::start(|_| Reply::unstored("old"));
    let new = Origin::start(|_| Reply::unstored("new"));
    let proxy = Proxy::embedded(&old, "");
    let mut client = proxy.connect();
    assert_eq!(proxy.get("/").send_on(&mut client).text(), "old");

    let (from, to) = (old.address().to_string(), new.address().to_string());
    proxy.edit(|text| text.replace(&from, &to));
    assert!(proxy.reload());

    assert_eq!(proxy.get("/").send_on(&mut client).text(), "new");
}

#[test]
fn a_connection_that_was_taken_for_another_peer_s_ends_behind_its_next_request() {
    let origin = Origin::start(|_| Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, "");
    let url = format!("http://{SITE}/");
    let mut client = Http2Client::open(proxy.address());
    let get = |client: &mut Http2Client| client.get(ask("GET", &url, &[]));
    assert_eq!(get(&mut client).unwrap().status, 200);
    for trusted in ["client.trusted_proxies = \"127.0.0.1\"\n", ""] {
        let line = "client.trusted_proxies = \"127.0.0.1\"\n";
        proxy.edit(|text| format!("{trusted}{}", text.replace(line, "")));
        assert!(proxy.reload(), "{}", proxy.complaints());
        assert_eq!(get(&mut client).unwrap().status, 200);
        wait_until("it ends", || get(&mut client).is_err());
        client = Http2Client::open(proxy.address());
        assert_eq!(get(&mut client).unwrap().status, 200);
    }
}

#[test]
fn a_visitor_is_known_as_before() {
    let origin =
        shop(|request| Reply::unstored(request.header("x-anteroom-user").unwrap_or("nobody")));
    let proxy = Proxy::embedded(&origin, "session.mint = true");
    let ada = log_in(&proxy, "ada");

    proxy.edit(|text| text.replace("threads = 2", "threads = 2\nsession.clean_every = \"2s\""));
    assert!(proxy.reload());

    assert_eq!(proxy.get("/").cookie(&ada).send().text(), "ada");
}

#[test]
fn listeners_come_and_go_and_connections_stay() {
    let origin = Origin::start(|_| Reply::unstored("hello"));
    let further = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let proxy = Proxy::embedded(&origin, "");
    let mut client = proxy.connect();
    proxy.get("/").send_on(&mut client);
    let own = format!("{{ address = \"{}\" }}", proxy.address());
    let other = format!("{{ address = \"{further}\" }}");

    proxy.edit(|text| text.replace(&own, &format!("{own}, {other}")));
    assert!(proxy.reload());
    let mut late = Client::open(further);
    assert_eq!(Ask::new(further, "GET", "/").send_on(&mut late).status, 200);
    assert_eq!(proxy.get("/").send().status, 200);

    proxy.edit(|text| text.replace(&format!("{own}, {other}"), &other));
    assert!(proxy.reload());
    wait_until("the old address is closed", || TcpStream::connect(proxy.address()).is_err());
    assert_eq!(proxy.get("/").send_on(&mut client).status, 200, "an open connection stays");
    assert_eq!(Ask::new(further, "GET", "/").send_on(&mut late).status, 200);
}

#[test]
fn a_unix_socket_gets_another_mode() {
    let origin = Origin::start(|_| Reply::unstored("hello"));
    let listen = |mode: &str| format!("{{ address = \"unix:./web.sock\", mode = \"{mode}\" }}");
    let proxy = Proxy::embedded(&origin, &format!("listen = [{}]", listen("0600")));
    let socket = proxy.folder().join("web.sock");
    let mode = || fs::metadata(&socket).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    proxy.edit(|text| text.replace(&listen("0600"), &listen("0666")));
    assert!(proxy.reload());
    assert_eq!(mode(), 0o666);
    assert_eq!(proxy.get("/").send_on(&mut Client::unix(&socket)).status, 200);
}

#[test]
fn an_address_that_our_own_is_in_the_way_of_needs_a_restart() {
    let origin = Origin::start(|_| Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "");
    let address = proxy.address();
    let wide = format!("0.0.0.0:{}", address.port());
    proxy.edit(|text| text.replace(&address.to_string(), &wide));
    assert!(!proxy.reload());
    let complaints = proxy.complaints();
    assert!(complaints.contains("restart to change it"), "{complaints}");
    assert_eq!(proxy.get("/").send().status, 200);
}

#[test]
fn an_address_that_is_taken_changes_nothing() {
    let origin = Origin::start(|_| Reply::html("hello"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/").send();
    let own = format!("{{ address = \"{}\" }}", proxy.address());
    let more = format!("{own}, {{ address = \"{}\" }}", taken.local_addr().unwrap());

    proxy.edit(|text| {
        let more = text.replace(&own, &more);
        format!("{more}\n[[route]]\nmatch.path = \"/\"\nshare = \"none\"\n")
    });

    assert!(!proxy.reload());
    assert!(proxy.get("/").send().is_hit());
}

#[test]
fn the_log_is_reopened_even_if_the_configuration_is_invalid() {
    let origin = Origin::start(|_| Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/before").send();
    proxy.access_log(1);
    let moved = proxy.folder().join("access.log.1");
    fs::rename(proxy.log_file(), &moved).unwrap();

    proxy.edit(appended("[nonsense]"));
    assert!(!proxy.reload());
    wait_until("the log is there again", || proxy.log_file().exists());
    proxy.get("/behind").send();

    assert_eq!(proxy.access_log(1)[0]["path"], "/behind");
    assert!(fs::read_to_string(moved).unwrap().contains("/before"));
}

#[test]
fn the_operator_s_token_is_another_then() {
    let origin = Origin::start(|_| Reply::html("hello"));
    let folder = TempDir::new().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "the-first-token").unwrap();
    let settings = format!("admin.token = {{ file = \"{}\" }}", token.display());
    let proxy = Proxy::embedded(&origin, &settings);
    fs::write(&token, "another-token").unwrap();
    assert!(proxy.reload());

    let order = |token: &str| {
        proxy
            .admin("/purge")
            .method("POST")
            .header("Authorization", &format!("Bearer {token}"))
            .body(b"{\"everything\":true}")
            .send()
            .status
    };
    assert_eq!(order("the-first-token"), 401);
    assert_ne!(order("another-token"), 401);
}

#[test]
fn no_request_fails_while_the_configuration_is_reloaded() {
    let origin = Origin::start(|request| match request.target.contains("page") {
        true => Reply::html("hello"),
        false => Reply::unstored("hello"),
    });
    let proxy = Proxy::embedded(&origin, "");
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for visitor in 0..4 {
            let (proxy, over, answered) = (&proxy, &over, &answered);
            scope.spawn(move || {
                let mut client = proxy.connect();
                let mut number = 0;
                while !over.load(Ordering::Relaxed) {
                    let target = ["/page", "/other"][number % 2];
                    // Kept connections and fresh ones.
                    let answer = match visitor % 2 {
                        0 => proxy.get(target).send_on(&mut client),
                        _ => proxy.get(target).send(),
                    };
                    assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
                    number += 1;
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..20 {
            let before = answered.load(Ordering::Relaxed);
            wait_until("requests go on", || answered.load(Ordering::Relaxed) > before + 20);
            proxy.edit(appended(&format!(
                "[[route]]\nmatch.path = \"/nowhere/{round}\"\nttl = \"9s\""
            )));
            assert!(proxy.reload());
        }
        over.store(true, Ordering::Relaxed);
    });
}
