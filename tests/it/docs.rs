//! The shell blocks of README and `docs/start`: each runs as it stands, one behind the other, in a fresh folder
//! with the binary on the `PATH`.
//!
//! A block that cannot run here has a line `<!-- not run: why -->` above it.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::client::{Ask, Client};
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::binary;
use crate::support::redis::RedisServer;
use crate::support::{DEADLINE, free_port, holds_within, root, wait_until};

/// The blocks that are not run. A further one needs a good reason, and a line here.
const NOT_RUN: [(&str, &str); 3] = [
    ("README.md", "builds and installs the program"),
    ("README.md", "these are the tests"),
    ("docs/start/in-front-of-your-app.md", "builds and installs the program"),
];

/// What stands in a page between two fences.
struct Block {
    kind: String,
    text: String,
    /// Why it is not run.
    not_run: Option<String>,
}

/// The blocks of a page, in order.
fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let (mut is_open, mut above) = (false, "");
    for line in page.lines() {
        match line.strip_prefix("```") {
            Some(_) if is_open => is_open = false,
            Some(kind) => {
                let mark = std::mem::take(&mut above).strip_prefix("<!-- not run: ");
                let not_run = mark.and_then(|mark| mark.strip_suffix(" -->")).map(str::to_owned);
                found.push(Block { kind: kind.to_owned(), text: String::new(), not_run });
                is_open = true;
            }
            None if is_open => {
                found.last_mut().unwrap().text += &format!("{line}\n");
            }
            None if !line.is_empty() => above = line,
            None => {}
        }
    }
    found
}

/// What a block's comments promise to be in its output: the quoted text, up to where it is cut off.
fn promises(block: &str) -> impl Iterator<Item = &str> {
    let comments = block.lines().filter(|line| line.starts_with('#'));
    comments.flat_map(|line| line.split('`').skip(1).step_by(2)).map(|it| it.trim_end_matches('…'))
}

/// The pages, by their path from the top.
fn pages() -> Vec<(String, String)> {
    let top = root();
    let start = fs::read_dir(top.join("docs/start")).unwrap();
    let mut names: Vec<String> = start
        .map(|entry| format!("docs/start/{}", entry.unwrap().file_name().display()))
        .filter(|name| name.ends_with(".md"))
        .collect();
    names.push("README.md".to_owned());
    names.sort_unstable();
    names
        .into_iter()
        .map(|name| (name.clone(), fs::read_to_string(top.join(name)).unwrap()))
        .collect()
}

/// Where the blocks of one page run, and what they need there.
struct Place {
    folder: TempDir,
    app: Origin,
    store: RedisServer,
    /// The ports in place of 8080 and 80.
    ports: [u16; 2],
    /// The process that the last block has left running.
    running: Option<Child>,
}

impl Place {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        symlink(binary(), folder.path().join("anteroom")).unwrap();
        Self {
            folder,
            app: Origin::always(Reply::html("<p>the app</p>")),
            store: RedisServer::start(),
            ports: [free_port(), free_port()],
            running: None,
        }
    }

    /// The text with what is free here in place of the ports that it names, or that are the default. A
    /// checkout's `cargo run` is the binary under test.
    fn here(&self, text: &str) -> String {
        let [high, low] = self.ports;
        text.replace("cargo run -- ", "anteroom ")
            .replace("anteroom demo", "anteroom demo --listen 127.0.0.1:8080")
            .replace("127.0.0.1:8080", &format!("127.0.0.1:{high}"))
            .replace("\":80\"", &format!("\"127.0.0.1:{low}\""))
            .replace("http://127.0.0.1:3000", &format!("http://{}", self.app.address()))
            .replace("redis://127.0.0.1:6379/0", &self.store.url())
    }

    fn shell(&self, text: &str) -> Command {
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new("sh");
        command
            .args(["-ec", text])
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", self.folder.path().display()))
            .env("TMPDIR", self.folder.path())
            // The tests beside this one keep disk and cores busy.
            .env("ANTEROOM__STORE__TIMEOUT", "5s")
            .stdin(Stdio::null())
            .process_group(0);
        command
    }

    /// Runs a block to its end, and again until all that it promises has been in its output: a page is stored a
    /// moment after its last byte has gone out, so that the first request behind it may be a second miss.
    fn run(&self, text: &str) {
        let mut missing: Vec<&str> = promises(text).collect();
        let mut printed = String::new();
        let keeps = || {
            let output = self.shell(text).output().unwrap();
            let [said, complaints] = [&output.stdout, &output.stderr]
                .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            assert!(output.status.success(), "{text}\n{said}\n{complaints}");
            missing.retain(|promise| !said.contains(promise));
            printed += &said;
            missing.is_empty()
        };
        let has_kept = holds_within(DEADLINE, keeps);
        assert!(has_kept, "{missing:?} is not in:\n{printed}");
    }

    /// Starts a block that serves, in place of the one before, and waits until it does.
    fn serve(&mut self, text: &str) {
        self.stop();
        let log = self.folder.path().join("log");
        let file = File::create(&log).unwrap();
        let child =
            self.shell(text).stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        self.running = Some(child);
        let mut serving = None;
        wait_until("it serves", || {
            let ended = self.running.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "{text}\n{}", fs::read_to_string(&log).unwrap());
            serving = self.serving();
            serving.is_some()
        });
        let (address, ask) = (serving.unwrap(), Ask::new(serving.unwrap(), "GET", "/"));
        let answer = ask.host("shop.example").try_send_on(&mut Client::open(address));
        let status = answer.map(|answer| answer.status);
        assert_eq!(status, Some(200), "{text}\n{}", fs::read_to_string(&log).unwrap());
    }

    /// Ends what runs, as Ctrl-C does.
    fn stop(&mut self) {
        if let Some(mut child) = self.running.take() {
            let line = format!("kill -s INT -- -{}", child.id());
            let _ = Command::new("sh").args(["-c", &line]).status();
            let _ = child.wait();
            wait_until("it has stopped", || self.serving().is_none());
        }
    }

    /// The address on which something listens.
    fn serving(&self) -> Option<SocketAddr> {
        let addresses = self.ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        addresses.into_iter().find(|address| TcpStream::connect(address).is_ok())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn the_shell_blocks_of_the_first_pages_run_as_they_stand() {
    let mut not_run = Vec::new();
    for (name, page) in &pages() {
        let mut place = Place::new();
        for Block { kind, text, not_run: why } in blocks(page) {
            let here = place.here(&text);
            match (kind.as_str(), why) {
                ("toml", _) => fs::write(place.folder.path().join("proxy.toml"), here).unwrap(),
                ("sh", Some(why)) => not_run.push((name.clone(), why)),
                ("sh", None) if here.contains("anteroom demo") || here.contains("anteroom run") => {
                    place.serve(&here);
                }
                ("sh", None) => place.run(&here),
                _ => {}
            }
        }
    }
    let expected = NOT_RUN.map(|(page, why)| (page.to_owned(), why.to_owned()));
    assert_eq!(not_run, expected);
}

#[test]
fn blocks_are_read_with_their_marks() {
    let page =
        "a\n\n<!-- not run: no engine -->\n\n```sh\nx\n```\n\n```toml\n# `y: …`, and `z`\n```\n";
    let found = blocks(page);
    let shown: Vec<_> = found
        .iter()
        .map(|it| (it.kind.as_str(), it.text.as_str(), it.not_run.as_deref()))
        .collect();
    assert_eq!(shown, [("sh", "x\n", Some("no engine")), ("toml", "# `y: …`, and `z`\n", None)]);
    assert_eq!(promises(&found[1].text).collect::<Vec<_>>(), ["y: ", "z"]);
}
