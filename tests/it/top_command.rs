//! `anteroom top`: what happens now, on a terminal and for scripts.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};

use serde_json::Value;

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, anteroom, binary};
use crate::support::wait_until;

/// Another screen without cursor, and back.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";

fn origin() -> Origin {
    Origin::always(Reply::html("hello"))
}

fn proxy(origin: &Origin) -> Proxy {
    let route = "[[route]]\nname = \"items\"\nmatch.path = \"/item/{item}\"";
    Proxy::embedded(origin, route)
}

fn top(proxy: &Proxy, words: &[&str]) -> Output {
    let mut command = anteroom();
    command.arg("top").args(words).args(["--config", "proxy.toml"]).current_dir(proxy.folder());
    command.stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn scripts_get_the_figures_of_a_second() {
    let origin = origin();
    let proxy = proxy(&origin);
    let mut rates = Value::Null;
    wait_until("requests fall between the readings", || {
        rates = std::thread::scope(|scope| {
            let reading = scope.spawn(|| top(&proxy, &["--once", "--json"]));
            while !reading.is_finished() {
                proxy.get("/item/7").send();
                proxy.get("/item/8").cookie("seen=1").send();
            }
            serde_json::from_str(&stdout(&reading.join().unwrap())).unwrap()
        });
        rates["requests_per_second"].as_f64().unwrap() > 1.0
    });

    let share = rates["hit_share"].as_f64().unwrap();
    assert!((0.3..0.7).contains(&share), "{rates}");
    let hits = &rates["results"]["hit_memory"];
    assert!(hits["p50_ms"].as_f64().unwrap() <= hits["p99_ms"].as_f64().unwrap(), "{rates}");
    let route = &rates["routes"][0];
    assert_eq!(route["name"], "items");
    assert_eq!(route["reason"], "unknown-cookie");
    assert!(rates["at"].as_f64().unwrap() - route["last_hit"].as_f64().unwrap() < 30.0, "{rates}");
    assert!(rates["seconds"].as_f64().unwrap() >= 1.0, "{rates}");
    assert_eq!(rates["store"]["connected"], true);

    for words in [&["--once"][..], &[]] {
        let text = stdout(&top(&proxy, words));
        assert!(text.contains("\nrequests  ") && text.contains("\nitems "), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
    let old = top(&proxy, &["--json"]);
    let said = String::from_utf8_lossy(&old.stderr);
    assert_eq!(old.status.code(), Some(2), "{said}");
    assert!(said.contains("anteroom top items --json"), "{said}");
}

/// The command on a terminal of `script`.
struct Terminal {
    child: Child,
    keys: Option<ChildStdin>,
    folder: PathBuf,
}

impl Terminal {
    /// Starts it, 60 columns wide, and notes the settings of the terminal before and after.
    fn start(proxy: &Proxy) -> Self {
        let folder = proxy.folder().to_owned();
        let line = format!(
            "stty cols 60 rows 40; stty -g >before; \
             sh -c 'echo $$ >pid; exec {} top --config proxy.toml'; \
             echo $? >code; stty -g >after",
            binary()
        );
        let mut child = Command::new("script")
            .args(["-qfc", &line, "/dev/null"])
            .env("SHELL", "/bin/sh")
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(File::create(folder.join("screen")).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let keys = child.stdin.take();
        Self { child, keys, folder }
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    /// What was drawn last.
    fn screen(&self) -> String {
        let drawn =
            String::from_utf8_lossy(&fs::read(self.folder.join("screen")).unwrap()).into_owned();
        drawn.rsplit("\u{1b}[H").next().unwrap_or_default().to_owned()
    }

    fn press(&mut self, key: &str) {
        let keys = self.keys.as_mut().unwrap();
        keys.write_all(key.as_bytes()).unwrap();
        keys.flush().unwrap();
    }

    fn shows(&self, text: &str) {
        wait_until(text, || self.screen().contains(text));
    }

    /// Asserts that the command ends well, and that the terminal is as before.
    fn ends(&self) {
        wait_until("it has ended", || !self.file("after").is_empty());
        assert_eq!(self.file("code").trim(), "0");
        assert_eq!(self.file("before"), self.file("after"));
        // `script` copies what the terminal shows, and may be behind.
        let all = || self.file("screen");
        assert!(all().contains(ENTER), "{:?}", all());
        wait_until("the terminal is left", || all().trim_end().ends_with(LEAVE));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn keys_steer_the_screen_and_q_restores_the_terminal() {
    let origin = origin();
    let proxy = proxy(&origin);
    proxy.get("/item/7").send();
    proxy.get("/item/8?q=secret").send();
    let mut terminal = Terminal::start(&proxy);
    terminal.shows("routes by requests");
    terminal.shows("items");
    terminal.press("s");
    terminal.shows("routes by hits");
    terminal.press("p");
    terminal.shows("paused");
    terminal.press("p?");
    terminal.shows("turns the order round");
    terminal.press("?m");
    terminal.shows("/item/8?q");
    assert!(!terminal.screen().contains("secret"), "{}", terminal.screen());
    terminal.press("m");
    terminal.shows("routes by hits");
    for line in terminal.screen().replace("\u{1b}[K", "").replace("\u{1b}[J", "").lines() {
        assert!(line.len() <= 60, "{line}");
    }
    terminal.press("q");
    terminal.ends();
}

#[test]
fn a_signal_restores_the_terminal() {
    let origin = origin();
    let proxy = proxy(&origin);
    for signal in ["-TERM", "-INT", "-HUP"] {
        for name in ["after", "code", "pid"] {
            let _ = fs::remove_file(proxy.folder().join(name));
        }
        let terminal = Terminal::start(&proxy);
        terminal.shows("anteroom ");
        let pid = terminal.file("pid");
        assert!(Command::new("kill").args([signal, pid.trim()]).status().unwrap().success());
        terminal.ends();
    }
}

#[test]
fn the_screen_stays_when_the_proxy_goes() {
    let origin = origin();
    let mut proxy = proxy(&origin);
    proxy.get("/item/7").send();
    let mut terminal = Terminal::start(&proxy);
    terminal.shows("routes by requests");
    proxy.kill9();
    terminal.shows("no running proxy answers");
    proxy.restart();
    wait_until("it shows the next process", || {
        let screen = terminal.screen();
        screen.contains("routes by requests") && !screen.contains("no running proxy")
    });
    // Ctrl-C.
    terminal.press("\u{3}");
    terminal.ends();
}
