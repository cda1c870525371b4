//! Purges and changes: what they hit, when, and in which process.

use std::fs;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::client::Answer;
use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::{Proxy, Storage, anteroom, log_in, on_both_stores, shop};
use crate::support::redis::RedisServer;
use crate::support::relay::Relay;
use crate::support::wait_until;

on_both_stores!(
    a_change_hits_every_form_of_its_page,
    a_change_hits_what_its_route_names,
    a_change_in_the_middle_of_a_fetch_leaves_no_old_page,
    a_change_counts_after_its_client_has_left,
    a_change_without_an_answer_may_have_been_made,
    a_change_counts_that_is_one_too_many_without_a_client,
    a_change_without_a_client_counts_during_shutdown,
    a_purge_hits_what_it_names,
    a_purge_in_the_middle_of_a_fetch_leaves_no_old_page,
    a_request_after_the_purge_of_a_tag_gets_no_older_page,
    a_soft_purge_makes_pages_stale_and_a_hard_purge_removes_them,
    a_page_with_too_many_tags_is_not_kept,
);

/// An origin whose pages tell how often something was changed: a POST counts.
fn counting(decorate: impl Fn(Reply) -> Reply + Send + Sync + 'static) -> Origin {
    let changes = AtomicUsize::new(0);
    Origin::start(move |request| {
        if request.method == "POST" {
            changes.fetch_add(1, Ordering::SeqCst);
            let location = request.header("x-location").unwrap_or("/done");
            return Reply::status("303 See Other").header("Location", location).body("");
        }
        let page = format!("{} after {} changes", request.target, changes.load(Ordering::SeqCst));
        decorate(Reply::html(&page).header("Cache-Control", "max-age=300"))
    })
}

fn a_change_hits_every_form_of_its_page(storage: &Storage) {
    let origin = counting(|reply| reply.header("Vary", "Accept-Language"));
    let settings = "[[route]]\nmatch.path = \"/**\"\nkey_cookies = [\"lang\"]";
    let proxy = Proxy::start(&origin, storage, settings);
    let forms = || {
        let form = |(cookie, language)| {
            let ask = proxy.get("/dir/a?b=1&utm_source=x").header("Cookie", cookie);
            ask.header("Accept-Language", language).send()
        };
        [("lang=de", "de"), ("lang=de", "en"), ("lang=en", "en")].map(form)
    };
    for (path, location) in [
        ("/dir/a?b=1", "/done"),
        ("/x", "/dir/a?b=1"),
        ("/dir/x/y", "../a?b=1#top"),
        ("/dir/x", "http://shop.test/dir/%61?b=1"),
        ("/dir/a?b=0", "?b=1"),
    ] {
        forms();
        assert!(forms().iter().all(|answer| answer.is_hit()));
        proxy.post(path).header("X-Location", location).send();
        assert!(!forms().iter().any(|answer| answer.is_hit()), "{path} {location}");
        assert!(forms().iter().all(|answer| answer.is_hit()), "{path} {location}");
    }
    for (path, location) in [("/x", "http://other.test/dir/a?b=1"), ("/dir/a", "/dir/a?b=2")] {
        proxy.post(path).header("X-Location", location).send();
        assert!(forms().iter().all(|answer| answer.is_hit()), "{path} {location}");
    }
}

fn a_change_hits_what_its_route_names(storage: &Storage) {
    let origin = counting(|reply| reply);
    let settings = "[[route]]\nmatch.path = \"/write\"\npurges = [\"/\", \"/feed/**\"]";
    let proxy = Proxy::start(&origin, storage, settings);
    let pages = ["/", "/feed", "/feed/", "/feed/a/b?c=1", "/?a=1", "/feeds"];
    for page in pages {
        proxy.get(page).send();
    }
    assert_eq!(pages.map(|page| proxy.get(page).send().is_hit()), [true; 6]);
    proxy.post("/write").send();
    let hits = pages.map(|page| proxy.get(page).send().is_hit());
    assert_eq!(hits, [false, false, false, false, true, true]);
    assert_eq!(pages.map(|page| proxy.get(page).send().is_hit()), [true; 6]);
    assert_eq!(proxy.get("/feed").send().text(), "/feed after 1 changes");
}

/// A page that stops in the middle until the gate opens, once; later ones come at once.
fn slow_once(gate: &Arc<Gate>) -> Origin {
    let (gate, asked) = (Arc::clone(gate), AtomicUsize::new(0));
    Origin::start(move |request| {
        if request.method == "POST" {
            return Reply::status("204 No Content");
        }
        let reply = Reply::status("200 OK").header("Content-Type", "text/css");
        let reply = reply.header("Cache-Control", "max-age=300").header("Content-Length", "3");
        match asked.fetch_add(1, Ordering::SeqCst) {
            0 => reply.bytes("o").until(&gate).bytes("ld"),
            _ => reply.bytes("new"),
        }
    })
}

fn a_change_in_the_middle_of_a_fetch_leaves_no_old_page(storage: &Storage) {
    let gate = Gate::closed();
    let origin = slow_once(&gate);
    let settings =
        "[[route]]\nmatch.path = \"/**\"\nkey_headers = [\"x-form\"]\npurges = [\"/a.css\"]";
    let proxy = Proxy::start(&origin, storage, settings);
    // Another form than that of the request which changes it.
    let ask = || proxy.get("/a.css").header("X-Form", "one");
    let mut first = ask().start();
    let begun = first.head();
    proxy.post("/write").send();
    assert_eq!(ask().send().text(), "new", "no request joins the old fetch");
    gate.open();
    assert_eq!(first.rest(begun).text(), "old");
    let after = ask().send();
    assert_eq!((after.text().as_str(), after.is_hit()), ("new", true));
}

fn a_change_counts_after_its_client_has_left(storage: &Storage) {
    for (method, kind) in [("POST", "text/plain"), ("DELETE", "application/grpc")] {
        let gate = Gate::closed();
        let held = Arc::clone(&gate);
        let origin = Origin::start(move |request| match request.method.as_str() {
            "GET" => Reply::html(request.path()).header("Cache-Control", "max-age=300"),
            _ => {
                held.pass();
                Reply::status("303 See Other").header("Location", "/list").body("")
            }
        });
        let proxy = Proxy::start(&origin, storage, "");
        let [page, list] = [format!("/{method}"), "/list".to_owned()];
        for page in [&page, &list] {
            proxy.get(page).send();
            assert!(proxy.get(page).send().is_hit());
        }
        let ask = proxy.ask(method, &page).header("Content-Type", kind);
        let client = ask.header("TE", "trailers").header("Connection", "te").start();
        wait_until("the origin is asked", || origin.last().method == method);
        client.leave();
        assert!(proxy.get(&page).send().is_hit(), "nothing is known yet");
        gate.open();
        for page in [&page, &list] {
            wait_until("the change is known", || !proxy.get(page).send().is_hit());
        }
    }
}

/// A change at `path`, whose client leaves when the origin has heard of it.
fn begin_change(proxy: &Proxy, origin: &Origin, path: &str) {
    let seen = origin.count();
    let client = proxy.post(path).start();
    wait_until("the origin is asked", || origin.count() > seen);
    client.leave();
}

/// Pages, and changes that take until the gate is open.
fn slow_to_change(gate: &Arc<Gate>) -> Origin {
    let held = Arc::clone(gate);
    Origin::start(move |request| match request.method.as_str() {
        "POST" => {
            held.pass();
            Reply::status("204 No Content")
        }
        _ => Reply::html(request.path()).header("Cache-Control", "max-age=300"),
    })
}

fn a_change_counts_that_is_one_too_many_without_a_client(storage: &Storage) {
    let gate = Gate::closed();
    let origin = slow_to_change(&gate);
    // The app answers none of so many changes: in order, they would come to it one after another.
    let proxy = Proxy::start(&origin, storage, "threads = 1\norigin.overload = \"off\"");
    proxy.get("/a").send();
    for _ in 0..256 {
        begin_change(&proxy, &origin, "/slow");
    }
    assert!(proxy.get("/a").send().is_hit());
    begin_change(&proxy, &origin, "/a");
    wait_until("the change is known", || !proxy.get("/a").send().is_hit());
    gate.open();
}

fn a_change_without_a_client_counts_during_shutdown(storage: &Storage) {
    let gate = Gate::closed();
    let origin = slow_to_change(&gate);
    let mut proxy = Proxy::start(&origin, storage, "");
    proxy.get("/a").send();
    assert!(proxy.get("/a").send().is_hit());
    begin_change(&proxy, &origin, "/a");
    proxy.terminate();
    wait_until("it is ready for no more", || proxy.admin("/readyz").send().status != 200);
    gate.open();
    assert_eq!(proxy.exit_code(), Some(0));
    proxy.restart();
    assert!(!proxy.get("/a").send().is_hit());
}

fn a_change_without_an_answer_may_have_been_made(storage: &Storage) {
    let origin = Origin::start(|request| match request.method.as_str() {
        "POST" => Reply::nothing(),
        _ => Reply::html(request.path()).header("Cache-Control", "max-age=300"),
    });
    let proxy = Proxy::start(&origin, storage, "");
    for page in ["/a", "/b"] {
        proxy.get(page).send();
        assert!(proxy.get(page).send().is_hit());
    }
    assert_eq!(proxy.post("/a").send().status, 502);
    assert!(!proxy.get("/a").send().is_hit());
    assert!(proxy.get("/b").send().is_hit());
}

#[test]
fn a_rule_counts_without_an_answer_for_a_logged_in_user_alone() {
    let origin = shop(|request| match request.method.as_str() {
        "POST" => Reply::nothing(),
        _ => Reply::html(request.path()).header("Cache-Control", "max-age=300"),
    });
    let settings =
        "session.mint = true\n[[purge.after]]\nmatch = { path = \"/save\" }\npurges = \"/b\"";
    let proxy = Proxy::embedded(&origin, settings);
    let login = log_in(&proxy, "ann");
    for (cookie, is_left) in [("login=unknown-to-the-proxy", true), (&*login, false)] {
        proxy.get("/b").send();
        assert!(proxy.get("/b").send().is_hit());
        assert_eq!(proxy.post("/save").cookie(cookie).send().status, 502);
        assert_eq!(proxy.get("/b").send().is_hit(), is_left, "{cookie}");
    }
}

/// `anteroom purge`, and what it says.
pub(crate) fn purge(proxy: &Proxy, words: &[&str]) -> Value {
    let output = run_purge(proxy, words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn run_purge(proxy: &Proxy, words: &[&str]) -> Output {
    let mut command = anteroom();
    command.args(["purge", "--json", "--config", "proxy.toml"]).args(words);
    command.current_dir(proxy.folder()).output().unwrap()
}

/// Pages with a tag for each letter of the path, in a field by turns.
fn tagged() -> Origin {
    Origin::start(|request| {
        let letters: Vec<_> = request.path().split('/').filter(|part| !part.is_empty()).collect();
        let (name, tags) = match letters.len() % 3 {
            0 => ("Surrogate-Key", letters.join(" ")),
            1 => ("Cache-Tag", letters.join(", ")),
            _ => ("xkey", letters.join(" ")),
        };
        Reply::html("page").header("Cache-Control", "max-age=300").header(name, &tags)
    })
}

/// Two scopes may share a slot: then a purge hits more than it names. It is rare, and they do not under the key of
/// another store, which is drawn at random.
fn a_purge_hits_what_it_names(storage: &Storage) {
    if let Err(first) = purges_hit_what_they_name(storage) {
        let another = storage.another();
        assert_eq!(purges_hit_what_they_name(&another), Ok(()), "before: {first}");
    }
}

/// `Err`: the purge that hit something else.
fn purges_hit_what_they_name(storage: &Storage) -> Result<(), String> {
    let origin = tagged();
    let proxy = Proxy::start(&origin, storage, "");
    let pages = ["/", "/a", "/a/b", "/a/b/c", "/a?q=1", "/b", "http://other.test/a"];
    let ask = |page: &str| match page.strip_prefix("http://other.test") {
        Some(path) => proxy.get(path).host("other.test").send(),
        None => proxy.get(page).send(),
    };
    for (words, wanted) in [
        (&["http://shop.test/a"][..], &["/a"][..]),
        (&["http://SHOP.test:80/%61?utm_source=x", "http://shop.test"], &["/", "/a"]),
        (&["--tag", "b"], &["/a/b", "/a/b/c", "/b"]),
        (&["--tag", "c", "--tag", "none"], &["/a/b/c"]),
        (&["--prefix", "http://shop.test/a/"], &["/a", "/a/b", "/a/b/c", "/a?q=1"]),
        (&["--prefix", "http://shop.test/a/b"], &["/a/b", "/a/b/c"]),
        (&["--prefix", "http://other.test/"], &["http://other.test/a"]),
        (&["--all"], &pages),
    ] {
        for hard in [&[][..], &["--hard"]] {
            for page in pages {
                let answer = ask(page);
                for name in ["surrogate-key", "cache-tag", "xkey"] {
                    assert_eq!(answer.header(name), None, "{page}");
                }
            }
            let preview = purge(&proxy, &[words, hard, &["--dry-run"]].concat());
            assert_eq!(preview["dry_run"], true);
            if preview["pages"] != wanted.len() {
                return Err(format!("{words:?} {hard:?}: {preview}"));
            }
            let touched = preview["touches"].as_array().unwrap();
            assert!(touched.iter().all(|one| one["pages"].as_u64() <= preview["pages"].as_u64()));
            assert!(pages.into_iter().all(|page| ask(page).is_hit()), "it changes nothing");
            let told = purge(&proxy, &[words, hard].concat());
            assert_eq!(told["confirmed"], true);
            let missed: Vec<_> = pages.into_iter().filter(|page| !ask(page).is_hit()).collect();
            if told["pages"] != wanted.len() || missed != wanted {
                return Err(format!("{words:?} {hard:?}: {told}, {missed:?}"));
            }
        }
    }
    Ok(())
}

fn a_purge_in_the_middle_of_a_fetch_leaves_no_old_page(storage: &Storage) {
    let tagged = |reply: Reply| reply.header("xkey", "red");
    for words in [&["--all"][..], &["--tag", "red"], &["http://shop.test/a.css", "--hard"]] {
        let gate = Gate::closed();
        let (held, asked) = (Arc::clone(&gate), AtomicUsize::new(0));
        let origin = Origin::start(move |_| {
            let reply = tagged(Reply::status("200 OK").header("Content-Type", "text/css"));
            let reply = reply.header("Cache-Control", "max-age=300").header("Content-Length", "3");
            match asked.fetch_add(1, Ordering::SeqCst) {
                0 => reply.bytes("o").until(&held).bytes("ld"),
                _ => reply.bytes("new"),
            }
        });
        let proxy = Proxy::start(&origin, storage, "");
        let mut first = proxy.get("/a.css").start();
        let begun = first.head();
        purge(&proxy, words);
        assert_eq!(proxy.get("/a.css").send().text(), "new", "no request joins the old fetch");
        gate.open();
        assert_eq!(first.rest(begun).text(), "old");
        let after = proxy.get("/a.css").send();
        assert_eq!((after.text().as_str(), after.is_hit()), ("new", true), "{words:?}");
        // One Redis serves them all.
        purge(&proxy, &["--all", "--hard"]);
    }
}

/// The tag is unknown until the head is there.
fn a_request_after_the_purge_of_a_tag_gets_no_older_page(storage: &Storage) {
    let gate = Gate::closed();
    let (held, asked) = (Arc::clone(&gate), AtomicUsize::new(0));
    let origin = Origin::start(move |_| {
        let text = match asked.fetch_add(1, Ordering::SeqCst) {
            0 => {
                held.pass();
                "old"
            }
            _ => "new",
        };
        Reply::typed("text/css", text).header("Cache-Control", "max-age=300").header("xkey", "red")
    });
    let proxy = Proxy::start(&origin, storage, "");
    let waiting = |count: f64| {
        wait_until("they wait", || proxy.metric("anteroom_waiting") == count);
    };
    let mut first = proxy.get("/a.css").start();
    wait_until("it is asked for", || origin.count() == 1);
    let mut before = proxy.get("/a.css").start();
    waiting(1.0);
    purge(&proxy, &["--tag", "red"]);
    let mut behind = proxy.get("/a.css").start();
    waiting(2.0);
    gate.open();
    assert_eq!([&mut first, &mut before].map(|client| client.answer().text()), ["old", "old"]);
    assert_eq!(behind.answer().text(), "new");
    assert_eq!(proxy.get("/a.css").send().text(), "new");
}

fn a_soft_purge_makes_pages_stale_and_a_hard_purge_removes_them(storage: &Storage) {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    let origin = Origin::start(move |request| {
        if failing.load(Ordering::SeqCst) {
            return Reply::status("500 Internal Server Error").body("");
        }
        if request.header("if-none-match") == Some("\"1\"") {
            return Reply::status("304 Not Modified").header("ETag", "\"1\"");
        }
        Reply::html("page").header("Cache-Control", "max-age=300").header("ETag", "\"1\"")
    });
    let proxy = Proxy::start(&origin, storage, "");
    let get = || proxy.get("/").send();
    get();
    purge(&proxy, &["--all"]);
    assert!(get().cache_status().contains("fwd-status=304"), "it is only validated");
    assert!(get().is_hit());
    fails.store(true, Ordering::SeqCst);
    purge(&proxy, &["--all"]);
    let stale = get();
    assert_eq!(
        stale.cache_status(),
        "anteroom; hit; ttl=0; detail=stale",
        "not 300: RFC 9211 §2.4"
    );
    purge(&proxy, &["--all", "--hard"]);
    assert_eq!(get().status, 500);
}

fn a_page_with_too_many_tags_is_not_kept(storage: &Storage) {
    let tags = (0..501).map(|tag| format!("t{tag} ")).collect::<String>();
    let origin = Origin::start(move |_| {
        Reply::html("page").header("Cache-Control", "max-age=300").header("Surrogate-Key", &tags)
    });
    let proxy = Proxy::start(&origin, storage, "");
    for _ in 0..2 {
        let answer = proxy.get("/").send();
        assert!(!answer.is_hit());
        assert_eq!(answer.header("surrogate-key"), None);
    }
    assert!(proxy.metric("anteroom_pages_refused_total{reason=\"tags\"}") > 0.0);
}

#[test]
fn a_purge_of_a_path_reaches_every_port_and_every_name_of_a_wildcard() {
    let origin = counting(|reply| reply);
    let proxy = Proxy::embedded(&origin, "origin.hosts = [\"shop.test\", \"*.blog.test\"]");
    let hosts = ["shop.test", "shop.test:8080", "a.blog.test", "b.blog.test:81"];
    let are_hits = || hosts.map(|host| proxy.get("/a/b").host(host).send().is_hit());
    for words in [&["/a/b"][..], &["--prefix", "/a"]] {
        are_hits();
        assert_eq!(are_hits(), [true; 4]);
        purge(&proxy, words);
        assert_eq!(are_hits(), [false; 4], "{words:?}");
    }
    are_hits();
    purge(&proxy, &["http://shop.test:8080/a/b"]);
    assert_eq!(are_hits(), [true, false, true, true]);
}

#[test]
fn a_purge_holds_in_every_proxy_before_it_returns() {
    let server = RedisServer::start();
    let origin = counting(|reply| reply);
    let settings = format!("store.url = \"{}\"", server.url());
    let [one, other] = [0, 1].map(|_| Proxy::with_settings(&origin, &settings));
    for round in 0..50 {
        if round % 5 == 4 {
            // What is told is heard later then, but asked for all the same.
            server.command::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        }
        let page = if round % 2 == 0 { "/a" } else { "/b/c" };
        // What is stored before the proxy listens again is not trusted after that.
        wait_until("the page is stored", || other.get(page).send().is_hit());
        let url = format!("http://shop.test{page}");
        let words = [&[&*url][..], &["--all", "--hard"], &["--prefix", &url]];
        let told = purge(&one, words[round % 3]);
        assert_eq!(told["confirmed"], true, "{round}");
        assert!(!other.get(page).send().is_hit(), "{round}");
    }
}

#[test]
fn a_change_is_heard_of_by_every_proxy() {
    let server = RedisServer::start();
    let origin = counting(|reply| reply);
    let settings = format!("store.url = \"{}\"", server.url());
    let [one, other] = [0, 1].map(|_| Proxy::with_settings(&origin, &settings));
    for changes in 1..=10 {
        other.get("/a").send();
        one.post("/a").send();
        let text = format!("/a after {changes} changes");
        wait_until("the other shows the new page", || other.get("/a").send().text() == text);
    }
}

#[test]
fn a_proxy_that_is_cut_off_shows_nothing_old_for_long() {
    let server = RedisServer::start();
    let relay = Relay::start(server.port());
    let origin = counting(|reply| reply);
    let near = format!("store.url = \"{}\"", server.url());
    let far = format!("store.url = \"redis://127.0.0.1:{}\"", relay.port());
    let (one, other) = (Proxy::with_settings(&origin, &near), Proxy::with_settings(&origin, &far));
    other.get("/a").send();
    assert!(other.get("/a").send().is_hit());

    relay.hold();
    one.post("/a").send();
    purge(&one, &["http://shop.test/a"]);
    let is_new = |answer: Answer| answer.text() == "/a after 1 changes";
    wait_until("it asks the origin again", || is_new(other.get("/a").send()));
    // In each second it asks once, and answers others from what it got.
    wait_until("it caches still", || other.get("/a").send().is_hit());
    let asked = origin.count();
    wait_until("it asks again", || {
        assert!(is_new(other.get("/a").send()));
        origin.count() > asked
    });

    relay.pass();
    wait_until("a purge is confirmed by both", || {
        purge(&one, &["http://shop.test/other"])["confirmed"] == true
    });
    wait_until("it is as before", || other.get("/a").send().is_hit());
}

#[test]
fn a_purge_without_redis_holds_here_and_reaches_it_later() {
    let mut server = RedisServer::start();
    let origin = counting(|reply| reply);
    let settings = format!("store.url = \"{}\"", server.url());
    let [one, other] = [0, 1].map(|_| Proxy::with_settings(&origin, &settings));
    other.get("/a").send();
    server.kill();
    one.post("/a").send();
    assert_eq!(one.get("/a").send().text(), "/a after 1 changes");
    let waiting = || one.metric("anteroom_purges_waiting");
    assert!(waiting() > 0.0 && one.metric("anteroom_purges_late_total") > 0.0);
    server.restart();
    wait_until("the other shows the new page", || {
        let answer = other.get("/a").send();
        answer.text() == "/a after 1 changes" && answer.is_hit()
    });
    wait_until("nothing waits any more", || waiting() == 0.0);
}

#[test]
fn a_redis_without_room_takes_and_tells_every_purge() {
    let server = RedisServer::start();
    let origin = counting(|reply| reply);
    let settings = format!("store.url = \"{}\"", server.url());
    let [one, other] = [0, 1].map(|_| Proxy::with_settings(&origin, &settings));
    // Its first purge, for which the whole table is made, comes when it is full already.
    server.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    for changes in 1..=3 {
        other.get("/a").send();
        assert!(other.get("/a").send().is_hit());
        one.post("/a").send();
        let text = format!("/a after {changes} changes");
        wait_until("the other shows the new page", || other.get("/a").send().text() == text);
        for words in [&["http://shop.test/a"][..], &["--all", "--hard"]] {
            other.get("/a").send();
            assert!(other.get("/a").send().is_hit());
            assert_eq!(purge(&one, words)["confirmed"], true);
            assert!(!other.get("/a").send().is_hit());
        }
    }
    assert_eq!(one.metric("anteroom_purges_late_total"), 0.0);
}

#[test]
fn a_redis_that_comes_back_empty_hides_no_change() {
    let mut server = RedisServer::start();
    let origin = counting(|reply| reply);
    let settings = format!("store.url = \"{}\"", server.url());
    let [one, other] = [0, 1].map(|_| Proxy::with_settings(&origin, &settings));
    for changes in 1..=3 {
        other.get("/a").send();
        server.kill();
        one.post("/a").send();
        server.restart_empty();
        let text = format!("/a after {changes} changes");
        for proxy in [&one, &other] {
            wait_until("it shows the new page", || {
                let answer = proxy.get("/a").send();
                answer.text() == text && answer.is_hit()
            });
        }
        wait_until("nothing waits", || one.metric("anteroom_purges_waiting") == 0.0);
    }
}

/// Proxies follow a failover one after the other. What the last purges meanwhile only the old Redis knows.
#[test]
fn a_change_while_others_are_on_the_new_redis_already_is_not_lost() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let relays = [Relay::start(old.port()), Relay::start(old.port())];
    let origin = counting(|reply| reply);
    let [late, early] = relays.each_ref().map(|relay| {
        let settings = format!("store.url = \"redis://127.0.0.1:{}\"", relay.port());
        Proxy::with_settings(&origin, &settings)
    });
    let names = |server: &RedisServer| server.command::<Vec<String>>(&["HKEYS", "seen:"]);
    wait_until("both ask the old one", || names(&old).len() == 3);

    relays[1].lead_to(new.port());
    old.command::<()>(&["CLIENT", "KILL", "TYPE", "normal"]);
    wait_until("one asks the new one", || names(&new).len() == 2);
    // In this order: a page from before it knows the new one's purges is not shown for long.
    wait_until("it has the page", || {
        early.metric("anteroom_cut_off") == 0.0 && early.get("/a").send().is_hit()
    });
    let number = || old.command::<Option<u64>>(&["HGET", "purges:", "number"]).unwrap_or(0);
    let waiting = || late.metric("anteroom_purges_waiting");
    wait_until("the other asks the old one still", || {
        late.post("/other").send();
        number() > 0 && waiting() == 0.0
    });
    let mut text = String::new();
    wait_until("one shows the page from before a change", || {
        // A page that it got before it learnt of the new one's purges goes when it does.
        let has_page = early.metric("anteroom_cut_off") == 0.0 && early.get("/a").send().is_hit();
        let before = number();
        late.post("/a").send();
        wait_until("the old one has it", || number() > before && waiting() == 0.0);
        text = late.get("/a").send().text();
        has_page && early.get("/a").send().text() != text
    });

    relays[0].lead_to(new.port());
    old.command::<()>(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    wait_until("the new page is shown", || early.get("/a").send().text() == text);
    wait_until("nothing waits", || waiting() == 0.0);
    // The first purge may be the one that finds out that the old one takes no writes.
    wait_until("a purge is taken", || run_purge(&late, &["--all"]).status.success());
    wait_until("a purge is confirmed by both", || purge(&late, &["--all"])["confirmed"] == true);
}

#[test]
fn a_purge_does_not_wait_for_ended_processes() {
    let server = RedisServer::start();
    let origin = counting(|reply| reply);
    let settings = format!("store.url = \"{}\"", server.url());
    let [one, mut other] = [0, 1].map(|_| Proxy::with_settings(&origin, &settings));
    let names = || server.command::<Vec<String>>(&["HKEYS", "seen:"]);
    wait_until("both ask", || names().len() == 3);
    other.terminate();
    assert_eq!(other.exit_code(), Some(0));
    assert_eq!(names().len(), 2, "one, and since when");
    wait_until("the other asks", || one.metric("anteroom_cut_off") == 0.0);
    assert_eq!(names().len(), 2);
}

#[test]
fn a_path_alone_stands_for_the_sites_that_are_named() {
    let origin = counting(|reply| reply);
    let proxy = Proxy::embedded(&origin, "origin.hosts = [\"shop.test\", \"other.test\"]");
    let hits =
        || ["shop.test", "other.test"].map(|host| proxy.get("/a?b").host(host).send().is_hit());
    for words in [&["/a?b"][..], &["--prefix", "/a"]] {
        hits();
        assert_eq!(hits(), [true; 2]);
        purge(&proxy, words);
        assert_eq!(hits(), [false; 2]);
    }
}

#[test]
fn a_purge_that_matches_no_fresh_page_says_why() {
    let origin = counting(|reply| reply);
    let proxy = Proxy::embedded(&origin, "");
    let noted = |words: &[&str]| {
        let mut command = anteroom();
        command.args(["purge", "--config", "proxy.toml"]).args(words).current_dir(proxy.folder());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    wait_until("the page is stored", || proxy.get("/a").send().is_hit());
    let first = noted(&["/a"]);
    assert!(!first.contains("no fresh page"), "{first}");
    let second = noted(&["/a"]);
    assert!(second.contains("a page that is stale already does not count"), "{second}");
    let star = noted(&["--prefix", "/a/*"]);
    assert!(star.contains("--glob purges what matches it"), "{star}");
}

#[test]
fn a_purge_of_nothing_is_wrong_usage() {
    let origin = counting(|reply| reply);
    let proxy = Proxy::embedded(&origin, "");
    for words in [&[][..], &["--hard"], &["--dry-run"]] {
        let output = run_purge(&proxy, words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
        assert!(error.contains("--tag, --prefix, --glob or --all"), "{words:?}: {error}");
    }
}

#[test]
fn invalid_purges_are_reported() {
    let origin = counting(|reply| reply);
    let proxy = Proxy::embedded(&origin, "");
    let long = "x".repeat(257);
    for (words, told) in [
        (&["a"][..], "write a path, or the whole URL"),
        (&["ftp://h/"], "or the whole URL"),
        (&["http://us er/"], "or the whole URL"),
        (&["http://h/%zz"], "encoding is broken"),
        (&["--prefix", "http://h/?a"], "a prefix has no query"),
        (&["--tag", &long], "a tag has"),
    ] {
        let mut command = anteroom();
        command.args(["purge", "--config", "proxy.toml"]).args(words).current_dir(proxy.folder());
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {error}");
        assert!(error.contains(told), "{words:?}: {error}");
    }
}

/// A token in a file, and the settings that name it.
fn token() -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "secret-token").unwrap();
    let settings = format!("admin.token = {{ file = \"{}\" }}", file.display());
    (folder, settings)
}

#[test]
fn the_method_purge_needs_a_peer_and_a_token() {
    let (_folder, token) = token();
    let from =
        |net: &str| format!("{token}\npurge = {{ method = true, purge_from = [\"{net}\"] }}");
    let bearer = Some("Bearer secret-token");
    let origin = counting(|reply| reply.header("Vary", "Accept-Language"));
    for (settings, bearer, allowed) in [
        (from("127.0.0.1"), bearer, true),
        (from("127.0.0.0/8"), Some("Bearer other-token"), false),
        (from("127.0.0.0/8"), None, false),
        (from("10.0.0.0/8"), bearer, false),
        // What is said of the client does not count.
        (from("10.0.0.0/8") + "\nclient.trusted_proxies = [\"127.0.0.1\"]", bearer, false),
        (
            "purge = { method = true, purge_from = [\"127.0.0.1\"], purge_token = \"none\" }"
                .into(),
            None,
            true,
        ),
    ] {
        let proxy = Proxy::embedded(&origin, &settings);
        for target in ["/a?utm_source=x", "http://shop.test/a"] {
            let hits = || {
                let ask = |language| proxy.get("/a").header("Accept-Language", language).send();
                ["de", "en"].map(|language| ask(language).is_hit())
            };
            hits();
            assert_eq!(hits(), [true; 2]);
            let asked = origin.count();
            let mut ask = proxy.ask("PURGE", target).header("X-Forwarded-For", "10.1.1.1");
            if let Some(bearer) = bearer {
                ask = ask.header("Authorization", bearer);
            }
            let answer = ask.send();
            assert_eq!(answer.status, if allowed { 200 } else { 403 }, "{settings}");
            assert_eq!(origin.count(), asked, "it goes no further");
            assert_eq!(hits(), [!allowed; 2], "{settings}");
        }
    }
    let proxy = Proxy::embedded(&origin, "");
    let asked = origin.count();
    proxy.ask("PURGE", "/a").send();
    assert_eq!(origin.count(), asked + 1, "a method like others");
}

#[test]
fn the_method_purge_says_where_no_page_matches() {
    let origin = counting(|reply| reply);
    let settings =
        "purge = { method = true, purge_from = [\"127.0.0.1\"], purge_token = \"none\" }";
    let proxy = Proxy::embedded(&origin, settings);
    wait_until("the page is stored", || proxy.get("/a").send().is_hit());
    let purge = |host| {
        let answer = proxy.ask("PURGE", "/a").host(host).send();
        assert_eq!(answer.status, 200, "{host}");
        answer.text()
    };
    let nothing = "purged; no fresh page in this proxy's memory matched\n";
    assert_eq!(purge("shop.test:8080"), nothing);
    assert_eq!(purge("shop.test"), "purged\n");
    assert_eq!(purge("shop.test"), nothing, "the page is stale already");
}

/// A method, a target and fields; the status of the answer, and which of [`PURGED_PAGES`] are left.
type PluginPurge =
    (&'static str, &'static str, &'static [(&'static str, &'static str)], u16, [bool; 4]);

const PURGED_PAGES: [&str; 4] = ["/", "/blog/a/", "/blog/a/?p=1", "/shop/"];
const ALL: [bool; 4] = [false; 4];
const NONE: [bool; 4] = [true; 4];
const REGEX: (&str, &str) = ("X-Purge-Method", "regex");
const EXACT: (&str, &str) = ("X-Purge-Method", "exact");
const PAGE: (&str, &str) = ("X-Purge-Method", "default");

/// The purges of plugins and clients of other caches, as they are on the wire.
const PLUGIN_PURGES: &[PluginPurge] = &[
    // Proxy Cache Purge (varnish-http-purge): one page, the whole site, and by tags.
    ("PURGE", "/blog/a/", &[PAGE], 200, [true, false, true, true]),
    ("PURGE", "/.*", &[REGEX], 200, ALL),
    (
        "PURGE",
        "/",
        &[("X-Purge-Method", "tags"), ("X-Cache-Tags-Pattern", "site-1|p-7|pt-product")],
        200,
        [true, true, true, false],
    ),
    // WP Rocket: a folder, and the site at hosters with a key of their own.
    ("PURGE", "/blog/.*", &[REGEX], 200, [true, false, false, true]),
    ("PURGE", "/", &[("X-Purge-Regex", ".*"), ("X-VC-Purge-Key", "k")], 200, ALL),
    // W3 Total Cache: no field, and the pattern in the target.
    ("PURGE", "/blog/a/?p=1", &[], 200, [true, true, false, true]),
    ("PURGE", "/.*", &[], 200, ALL),
    // VCaching.
    ("PURGE", "/.*", &[("X-VC-Purge-Method", "regex"), ("X-VC-Purge-Host", "shop.test")], 200, ALL),
    // Breeze.
    ("URLPURGE", "/", &[PAGE], 200, [false, true, true, true]),
    ("PURGE", "/blog/a/", &[EXACT], 200, [true, false, true, true]),
    // The xkey module, FOSHttpCache, and Drupal's purgers.
    ("PURGE", "/", &[("xkey-purge", "p-7 p-9")], 200, [true, true, true, false]),
    ("PURGEKEYS", "/", &[("xkey-softpurge", "p-8")], 200, [false, false, false, true]),
    ("BAN", "/", &[("X-Cache-Tags", "(^|,)(archive|p-9)(,|$)")], 200, [true, true, true, false]),
    ("BAN", "/", &[("Cache-Tags", "p-7")], 200, [true, true, true, false]),
    (
        "BAN",
        "/",
        &[("X-Host", ".*"), ("X-Url", "/blog/.*"), ("X-Content-Type", ".*")],
        200,
        [true, false, false, true],
    ),
    // VCLs with bans.
    ("BAN", "/blog/", &[], 200, [true, false, false, true]),
    (
        "BAN",
        "/",
        &[("X-Ban-Host", "shop.test"), ("X-Ban-Url", "^/shop/.*")],
        200,
        [true, true, true, false],
    ),
    ("BAN", "/", &[("X-Ban-Host", "other.test"), ("X-Ban-Url", "/.*")], 200, NONE),
    // What no purge can express purges nothing.
    ("BAN", "/", &[("X-Ban-Url", "\\.css$")], 400, NONE),
    ("BAN", "/", &[("X-Ban-Host", "us er"), ("X-Ban-Url", "/.*")], 400, NONE),
    ("PURGE", "/(a|b)/.*", &[REGEX], 400, NONE),
    ("PURGEKEYS", "/", &[], 400, NONE),
    // Magento.
    (
        "PURGE",
        "/",
        &[("X-Magento-Tags-Pattern", "((^|,)cat_p_7(,|$))|((^|,)p-7(,|$))")],
        200,
        [true, true, true, false],
    ),
    (
        "PURGE",
        "/",
        &[
            ("X-Magento-Tags-Pattern", "((^|,)cat_p_7(,|$))"),
            ("X-Magento-Tags-Pattern", "((^|,)p-7(,|$))"),
        ],
        200,
        [true, true, true, false],
    ),
    ("PURGE", "/", &[("X-Magento-Tags-Pattern", ".*")], 200, ALL),
    ("PURGE", "/", &[("X-Magento-Tags-Pattern", "cat_p_(7|8)")], 400, NONE),
];

#[test]
fn the_purges_of_plugins_are_understood() {
    let origin = Origin::start(|request| {
        let tag = if request.path() == "/shop/" { "p-7,archive" } else { "p-8" };
        Reply::html(&request.target)
            .header("Cache-Control", "max-age=300")
            .header("X-Cache-Tags", tag)
    });
    let settings =
        "purge = { method = true, purge_from = [\"127.0.0.1\"], purge_token = \"none\" }";
    let proxy = Proxy::embedded(&origin, settings);
    for (method, target, fields, status, left) in PLUGIN_PURGES {
        for page in PURGED_PAGES {
            proxy.get(page).send();
        }
        assert_eq!(PURGED_PAGES.map(|page| proxy.get(page).send().is_hit()), NONE);
        let asked = origin.count();
        let ask = fields
            .iter()
            .fold(proxy.ask(method, target), |ask, (name, value)| ask.header(name, value));
        let answer = ask.send();
        assert_eq!(answer.status, *status, "{method} {target} {fields:?}");
        assert_eq!(origin.count(), asked, "it goes no further");
        if *status == 400 {
            assert!(answer.text().contains("purge"), "{}", answer.text());
        }
        let hits = PURGED_PAGES.map(|page| proxy.get(page).send().is_hit());
        assert_eq!(hits, *left, "{method} {target} {fields:?}");
    }
    // Without the permission, each of the methods is refused.
    let refusing = Proxy::embedded(&origin, &settings.replace("127.0.0.1", "10.0.0.0/8"));
    for method in ["PURGE", "URLPURGE", "PURGEKEYS", "BAN"] {
        assert_eq!(refusing.ask(method, "/.*").send().status, 403, "{method}");
    }
}

#[test]
fn a_dry_run_tells_what_each_line_would_hit() {
    let origin = tagged();
    let proxy = Proxy::embedded(&origin, "");
    for page in ["/a", "/a/b", "/b"] {
        wait_until("the page is stored", || proxy.get(page).send().is_hit());
    }
    let words = ["--tag", "b", "--tag", "none", "--prefix", "/a", "/b", "--glob", "/a/*", "--all"];
    let preview = purge(&proxy, &[&words[..], &["--dry-run"]].concat());
    let touched = preview["touches"].as_array().unwrap().iter();
    let touched: Vec<_> =
        touched.map(|one| format!("{} {} {}", one["kind"], one["name"], one["pages"])).collect();
    let wanted = ["url /b 1", "prefix /a 2", "glob /a/* 2", "tag b 2", "tag none 0", "all  3"];
    assert_eq!(touched.join(", ").replace('"', ""), wanted.join(", "));
    assert_eq!((&preview["pages"], &preview["only_in_store"]), (&3.into(), &Value::Null));
    let mut command = anteroom();
    command.args(["purge", "--tag", "b", "--dry-run", "--config", "proxy.toml"]);
    let output = command.current_dir(proxy.folder()).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("  2  tag b\n") && told.contains("nothing is purged"), "{told}");
    for page in ["/a", "/a/b", "/b"] {
        assert!(proxy.get(page).send().is_hit(), "{page}");
    }
}

#[test]
fn a_purge_says_whose_pages_it_has_counted() {
    let (origin, storage) = (tagged(), Storage::redis());
    let [one, other] =
        [(); 2].map(|()| Proxy::start(&origin, &storage, "origin.hosts = [\"shop.test\"]"));
    wait_until("the page is stored", || one.get("/a").send().is_hit());
    let mut command = anteroom();
    command.args(["purge", "http://shop.test/a", "--config", "proxy.toml"]);
    let output = command.current_dir(other.folder()).output().unwrap();
    let [said, note] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(said.starts_with("purged: 0 pages in this proxy's memory; "), "{said}");
    assert!(note.contains("pages in the memory of other proxies"), "{note}");
    wait_until("the other proxy's page is purged", || !one.get("/a").send().is_hit());
}

#[test]
fn the_listener_for_operators_purges_for_the_token() {
    let (_folder, token) = token();
    let origin = counting(|reply| reply);
    let proxy = Proxy::embedded(&origin, &token);
    let order = |body: &str| proxy.admin("/purge").method("POST").body(body.as_bytes());
    let all = order("{\"all\": true}");
    proxy.get("/").send();
    assert_eq!(all.send().status, 401);
    assert_eq!(all.clone().header("Authorization", "Bearer wrong").send().status, 401);
    assert!(proxy.get("/").send().is_hit());
    let done = all.header("Authorization", "Bearer secret-token").send();
    assert_eq!((done.status, done.text().as_str()), (200, "{\"pages\":1,\"confirmed\":true}"));
    assert!(!proxy.get("/").send().is_hit());
    for bad in ["", "{}", "{\"al\": true}", "{\"urls\": [\"a\"]}", "{\"urls\": [\"ftp://h/\"]}"] {
        let refused = order(bad).header("Authorization", "Bearer secret-token").send();
        assert_eq!(refused.status, 400, "{bad}");
    }
    let without = Proxy::embedded(&origin, "");
    let refused = without.admin("/purge").method("POST").body(b"{\"all\": true}").send();
    assert_eq!(refused.status, 405);
}
