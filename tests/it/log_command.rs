//! `anteroom log`: requests as they end, at a terminal of the operator.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, anteroom, log_in, on_both_stores, shop};
use crate::support::wait_until;

on_both_stores!(requests_are_shown_with_their_steps_and_without_secrets);

/// A command that watches a proxy; it is killed on Drop.
struct LogProcess {
    child: Child,
    out: PathBuf,
}

impl LogProcess {
    fn start(proxy: &Proxy, name: &str, words: &[&str]) -> Self {
        let out = proxy.folder().join(name);
        let file = File::create(&out).unwrap();
        let child = anteroom()
            .arg("log")
            .args(words)
            .args(["--config", "proxy.toml"])
            .current_dir(proxy.folder())
            .stdin(Stdio::null())
            .stderr(file.try_clone().unwrap())
            .stdout(file)
            .spawn()
            .unwrap();
        Self { child, out }
    }

    /// What it has printed.
    fn printed(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    fn exit_code(&mut self) -> Option<i32> {
        wait_until("the command has ended", || self.has_ended());
        self.child.wait().unwrap().code()
    }
}

impl Drop for LogProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Requests pages until the command shows one, so that it watches.
fn until_it_watches(proxy: &Proxy, watching: &LogProcess) {
    wait_until("it watches", || {
        proxy.get("/first").send();
        watching.printed().contains("/first")
    });
}

fn requests_are_shown_with_their_steps_and_without_secrets(storage: &Storage) {
    let origin = shop(|_| Reply::html("hello"));
    let proxy = Proxy::start(&origin, storage, "session.mint = true");
    let alice = log_in(&proxy, "alice-secret");
    let blocks = LogProcess::start(&proxy, "blocks", &[]);
    let json = LogProcess::start(&proxy, "json", &["--json"]);
    let other = ["--short", "--where", "reason = unknown-cookie and path ~ /item/"];
    let filtered = LogProcess::start(&proxy, "filtered", &other);
    until_it_watches(&proxy, &blocks);
    until_it_watches(&proxy, &json);

    wait_until("the filtered one watches, too", || {
        proxy
            .get("/item/7;jsessionid=1F00SECRET?q=query-secret&page=2")
            .header("Authorization", "Bearer auth-secret")
            .header("User-Agent", "agent-secret")
            .header("Referer", "http://shop.test/?referer-secret")
            .send();
        proxy.get("/item/8?q=query-secret").cookie("seen=cookie-secret").send();
        proxy.get("/item/9?q=query-secret").cookie(&alice).send();
        filtered.printed().contains("/item/8")
    });
    wait_until("all is printed", || blocks.printed().contains("/item/9"));
    wait_until("all is printed as JSON", || json.printed().contains("/item/9"));

    let short = filtered.printed();
    assert!(short.lines().all(|line| line.contains("/item/8?q  200 bypass (unknown-cookie)")));
    let blocks = blocks.printed();
    for wanted in ["/item/7;-?q&page  200 bypass", "ms  routed\n", "ms  identified\n", "ms  end\n"]
    {
        assert!(blocks.contains(wanted), "{wanted}: {blocks}");
    }
    let json = json.printed();
    let token = alice.split_once('=').unwrap().1;
    for printed in [&short, &blocks, &json] {
        assert!(!printed.to_ascii_lowercase().contains("secret"), "{printed}");
        assert!(!printed.contains(token), "{printed}");
    }
    let lines = json.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let known: Vec<Value> = lines.filter(|line| line["visitor"] == "known").collect();
    assert_eq!(known[0]["path"], "/item/9");
    assert_eq!(known[0]["parameters"], serde_json::json!(["q"]));
    let steps = known[0]["steps"].as_array().unwrap();
    assert_eq!(steps.last().unwrap()["step"], "end");
    let times = steps.iter().map(|step| step["ms"].as_f64().unwrap());
    assert!(times.is_sorted(), "{steps:?}");
}

#[test]
fn a_page_that_was_looked_up_and_is_not_stored_shows_that_step() {
    let origin = Origin::always(Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, "");
    let watching = LogProcess::start(&proxy, "refused", &["--where", "path = /refused"]);
    wait_until("it watches", || {
        let ask = proxy.get("/refused").header("Cache-Control", "only-if-cached");
        assert_eq!(ask.send().status, 504);
        watching.printed().contains("/refused")
    });
    wait_until("its steps are printed", || watching.printed().contains("ms  end\n"));
    assert!(watching.printed().contains("ms  looked up\n"), "{}", watching.printed());
}

#[test]
fn a_count_and_a_signal_end_the_command_well_and_the_end_of_the_proxy_does_not() {
    let origin = Origin::always(Reply::html("hello"));
    let mut proxy = Proxy::embedded(&origin, "");
    let mut counted = LogProcess::start(&proxy, "counted", &["--count", "2", "--short"]);
    wait_until("two are counted", || {
        proxy.get("/a").send();
        counted.has_ended()
    });
    assert_eq!(counted.exit_code(), Some(0));
    assert_eq!(counted.printed().lines().count(), 2, "{}", counted.printed());
    for signal in ["-INT", "-TERM"] {
        let mut ended = LogProcess::start(&proxy, "ended", &[]);
        until_it_watches(&proxy, &ended);
        ended.signal(signal);
        assert_eq!(ended.exit_code(), Some(0), "{signal}");
    }

    let mut watching = LogProcess::start(&proxy, "watching", &[]);
    until_it_watches(&proxy, &watching);
    proxy.terminate();
    assert_eq!(watching.exit_code(), Some(1));
    let printed = watching.printed();
    assert!(printed.ends_with("anteroom: the proxy has ended\n"), "{printed}");
    assert_eq!(proxy.exit_code(), Some(0));
}

#[test]
fn a_fifth_command_may_watch_when_another_has_gone() {
    let origin = Origin::always(Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, "");
    let start = |name: &str| LogProcess::start(&proxy, name, &["--short"]);
    let mut first = ["1", "2", "3", "4"].map(start);
    for watching in &first {
        until_it_watches(&proxy, watching);
    }

    let mut fifth = start("5");
    assert_eq!(fifth.exit_code(), Some(1));
    let refusal = "4 watchers read the log already, and there may be no more; end one of them";
    assert_eq!(fifth.printed(), format!("anteroom: {refusal}\n"));

    first[0].signal("-KILL");
    wait_until("it has gone", || first[0].has_ended());
    wait_until("another one may watch", || {
        let mut next = start("6");
        wait_until("it watches, or is refused", || {
            proxy.get("/next").send();
            !next.printed().is_empty() || next.has_ended()
        });
        !next.printed().contains(refusal)
    });
}

#[test]
fn a_wrong_filter_is_told_with_its_place_by_the_command_and_by_the_proxy() {
    let origin = Origin::always(Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, "");
    let mut wrong = LogProcess::start(&proxy, "wrong", &["--where", "ms > 3 and reson = miss"]);
    assert_eq!(wrong.exit_code(), Some(2));
    let printed = wrong.printed();
    let marked = "  ms > 3 and reson = miss\n             ^^^^^";
    assert!(printed.contains("unknown field `reson`; the nearest is `reason`"), "{printed}");
    assert!(printed.contains(marked), "{printed}");

    let mut socket = UnixStream::connect(proxy.folder().join("data/admin.sock")).unwrap();
    let request = "GET /log?where=reson%3Dmiss HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("unknown field `reson`"), "{answer}");
}
