//! `anteroom demo`: its tour does what it says, and it starts and ends without a trace of trouble.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

use crate::support::client::{Ask, Client};
use crate::support::proxy::anteroom;
use crate::support::{free_port, wait_until};

/// The end of what the demo prints.
const LAST: &str = "Stop with Ctrl-C.";

/// A running demo, and what it printed. It is killed on Drop.
struct Demo {
    child: Child,
    printed: Vec<String>,
    address: SocketAddr,
}

impl Demo {
    /// Starts one with these options. `folder` is its working folder, and its temporary folder.
    fn start(folder: &Path, options: &[&str]) -> Self {
        let mut child = command(folder, options).stderr(Stdio::null()).spawn().unwrap();
        let mut printed = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            printed.push(line.unwrap());
            if printed.last().is_some_and(|line| line.ends_with(LAST)) {
                break;
            }
        }
        let text = printed.join("\n");
        let (_, open) = text.split_once("Open http://").expect("it says what to open");
        let (address, _) = open.split_once('/').unwrap();
        Self { child, address: address.parse().unwrap(), printed }
    }

    /// The same in a folder of its own, on a free port.
    fn fresh(folder: &Path) -> Self {
        Self::fresh_with(folder, &[])
    }

    fn fresh_with(folder: &Path, options: &[&str]) -> Self {
        let listen = format!("127.0.0.1:{}", free_port());
        Self::start(folder, &[&["--listen", &listen, "--data", "my data"], options].concat())
    }

    /// The commands of the tour with their notes, in order.
    fn tour(&self) -> Vec<(&str, &str)> {
        let pairs = self.printed.windows(2).filter_map(|pair| {
            let note = pair[0].strip_prefix("# ")?;
            Some((note, pair[1].as_str()))
        });
        pairs.collect()
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap().success());
    }

    fn exit_code(&mut self) -> Option<i32> {
        wait_until("the demo ends", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(folder: &Path, options: &[&str]) -> Command {
    let mut command = anteroom();
    command.arg("demo").args(options).current_dir(folder).env("TMPDIR", folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Types a line into a shell, in another folder than that of the demo.
fn type_in(line: &str) -> String {
    let folder = TempDir::new().unwrap();
    let Output { stdout, stderr, .. } =
        Command::new("sh").args(["-c", line]).current_dir(folder.path()).output().unwrap();
    [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
}

#[test]
fn each_command_of_the_tour_shows_what_its_note_says() {
    let folder = TempDir::new().unwrap();
    follow_tour(&Demo::fresh(folder.path()), 20);
}

#[test]
fn each_command_of_the_tour_in_learn_mode_shows_what_its_note_says() {
    let folder = TempDir::new().unwrap();
    follow_tour(&Demo::fresh_with(folder.path(), &["--learn"]), 10);
}

/// Types the commands of a tour, which are more than `least`.
fn follow_tour(demo: &Demo, least: usize) {
    let tour = demo.tour();
    assert!(tour.len() > least, "{:?}", demo.printed);
    for (note, line) in tour {
        let shown = type_in(line);
        for literal in note.split('`').skip(1).step_by(2) {
            assert!(shown.contains(literal), "{note}\n{line}\n{shown}");
        }
    }
}

#[test]
fn the_first_page_has_the_commands_of_the_tour() {
    let folder = TempDir::new().unwrap();
    let demo = Demo::fresh(folder.path());
    let page = Ask::new(demo.address, "GET", "/").send().text();
    for (_, line) in demo.tour() {
        let shown = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let shown = shown.replace('"', "&quot;").replace('\'', "&#39;");
        assert!(page.contains(&format!("<code>{shown}</code>")), "{line}\n{page}");
    }
}

#[test]
fn the_data_commands_reach_the_demo() {
    let folder = TempDir::new().unwrap();
    let demo = Demo::fresh(folder.path());
    let socket = folder.path().join("my data/admin.sock");
    let login = Ask::new(demo.address, "POST", "/login")
        .header("Content-Type", "application/x-www-form-urlencoded")
        .body(b"user=ada")
        .send();
    let cookie = format!("login={}", login.cookie("login").unwrap());
    Ask::new(demo.address, "GET", "/item/fern").cookie(&cookie).send();
    let shown = |words: &[&str]| {
        let output = anteroom().args(words).arg("--socket").arg(&socket).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    // A view is recorded behind the response.
    wait_until("the view is counted", || shown(&["top", "items"]).contains("fern"));
    assert!(shown(&["user", "export", "ada"]).contains("\"fern\""));
    assert!(shown(&["user", "delete", "ada"]).contains("nothing is left"));
    assert!(shown(&["top", "cookies"]).contains("login"));
}

#[test]
fn the_dashboard_takes_the_token_that_the_demo_prints() {
    let folder = TempDir::new().unwrap();
    let demo = Demo::fresh(folder.path());
    let printed = |start: &str| {
        let line = demo.printed.iter().find_map(|line| line.strip_prefix(start));
        line.unwrap_or_else(|| panic!("{:?}", demo.printed)).trim().to_owned()
    };
    let (url, token) = (printed("dashboard: "), printed("token: "));
    let host = url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let ask = |path| Ask::new(host.parse().unwrap(), "GET", path).host(host);
    assert_eq!(ask("/").send().header("content-type"), Some("text/html; charset=utf-8"));
    let me = ask("/me").header("Authorization", &format!("Bearer {token}")).send();
    assert_eq!(me.text(), "{\"name\":\"admin\",\"role\":\"all\"}");
    assert_eq!(ask("/me").send().status, 401);
}

#[test]
fn without_listen_the_next_free_port_is_used() {
    // If this fails, another process has the port, which serves as well.
    let _first = TcpListener::bind((Ipv4Addr::LOCALHOST, 8080));
    let folder = TempDir::new().unwrap();
    let demo = Demo::start(folder.path(), &[]);
    let port = demo.address.port();
    let said = format!("Port 8080 is taken; this demo uses {port}. Open http://127.0.0.1:{port}/ ");
    assert!(demo.printed[0].starts_with(&said), "{:?}", demo.printed);
    assert!((8081..8180).contains(&port), "{port}");
    assert_eq!(Ask::new(demo.address, "GET", "/").send().status, 200);
}

#[test]
fn an_address_that_was_asked_for_is_not_replaced() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let folder = TempDir::new().unwrap();
    let output = command(folder.path(), &["--listen", &listen]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&listen) && said.contains("--listen"), "{said}");
}

#[test]
fn two_demos_at_once_use_two_folders() {
    let folder = TempDir::new().unwrap();
    let listen = || format!("127.0.0.1:{}", free_port());
    let first = Demo::start(folder.path(), &["--listen", &listen()]);
    let second = Demo::start(folder.path(), &["--listen", &listen()]);
    let is_kept_in = |demo: &Demo, name: &str| {
        let line = format!("Sessions are kept in {}. {LAST}", folder.path().join(name).display());
        assert_eq!(demo.printed.last(), Some(&line));
    };
    is_kept_in(&first, "anteroom-demo");
    is_kept_in(&second, "anteroom-demo-2");

    let third = ["--listen", &listen(), "--data", "anteroom-demo"];
    let output = command(folder.path(), &third).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("anteroom-demo") && said.contains("--data"), "{said}");
}

#[test]
fn a_signal_ends_the_demo_cleanly() {
    for name in ["INT", "TERM"] {
        let folder = TempDir::new().unwrap();
        let mut demo = Demo::fresh(folder.path());
        let socket = folder.path().join("my data/admin.sock");
        assert!(socket.exists());
        // A browser keeps its connection open.
        let mut browser = Client::open(demo.address);
        Ask::new(demo.address, "GET", "/").try_send_on(&mut browser).unwrap();
        demo.signal(name);
        assert_eq!(demo.exit_code(), Some(0), "{name}");
        let left = fs::read_dir(socket.parent().unwrap()).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        let lasts = |name: &&OsString| {
            let name = name.to_string_lossy();
            ["sessions.", "overload."].iter().any(|begin| name.starts_with(begin))
        };
        let pages = OsString::from("pages.redb");
        assert!(left.iter().all(|name| lasts(&name) || *name == pages), "{left:?}");
    }
}

#[test]
fn a_signal_right_behind_the_start_ends_the_demo_cleanly() {
    let folder = TempDir::new().unwrap();
    let mut demo = Demo::fresh(folder.path());
    demo.signal("TERM");
    assert_eq!(demo.exit_code(), Some(0));
}

#[test]
fn a_visitor_of_the_demo_is_known_after_it_was_killed() {
    let folder = TempDir::new().unwrap();
    let login = Demo::fresh(folder.path());
    let answer = Ask::new(login.address, "POST", "/login")
        .header("Content-Type", "application/x-www-form-urlencoded")
        .body(b"user=ada")
        .send();
    let cookie = format!("login={}", answer.cookie("login").expect("she is logged in"));
    drop(login);
    let again = Demo::fresh(folder.path());
    let answer = Ask::new(again.address, "GET", "/account").cookie(&cookie).send();
    assert!(answer.text().contains("ada"), "{answer:?}");
}
