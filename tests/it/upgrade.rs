//! `anteroom upgrade`: the running process starts its successor, tells the service manager, and says what fails.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::support::client::Client;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, anteroom, binary, on_both_stores};
use crate::support::{DEADLINE, wait_until};

on_both_stores!(a_new_process_serves_in_the_place_of_the_old_one);

fn hello() -> Origin {
    Origin::always(Reply::unstored("hello"))
}

/// Runs the command in the folder of a proxy.
fn upgrade(proxy: &Proxy, more: &[&str]) -> Output {
    let mut command = anteroom();
    command.args(["upgrade", "--config", "proxy.toml"]).args(more);
    command.current_dir(proxy.folder()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The process that a proxy has started in its place; it is killed on Drop.
struct NewProcess(u32);

impl NewProcess {
    /// The one that the command has told of.
    fn of(output: &Output) -> Self {
        assert!(output.status.success(), "{}", said(output));
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let id = told.strip_prefix("process ").and_then(|rest| rest.split(' ').next());
        Self(id.and_then(|id| id.parse().ok()).expect(&told))
    }

    fn signal(&self, name: &str) {
        let line = format!("kill -{name} {}", self.0);
        // It may have ended already.
        drop(Command::new("sh").args(["-c", &line]).output());
    }

    fn has_ended(&self) -> bool {
        // Of an ended one that nothing waits for, the state stays.
        let state = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        state.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with('Z'))
    }
}

impl Drop for NewProcess {
    fn drop(&mut self) {
        self.signal("KILL");
    }
}

fn a_new_process_serves_in_the_place_of_the_old_one(storage: &Storage) {
    let origin = hello();
    let mut proxy = Proxy::start(&origin, storage, "");
    let first = NewProcess::of(&upgrade(&proxy, &[]));
    assert_eq!(proxy.exit_code(), Some(0));
    assert_eq!(proxy.get("/").send().text(), "hello");
    // What it was started with it passes on, too.
    let second = NewProcess::of(&upgrade(&proxy, &[]));
    assert_ne!(first.0, second.0);
    wait_until("the first successor ends", || first.has_ended());
    assert_eq!(proxy.get("/").send().text(), "hello");
    assert_eq!(proxy.admin("/readyz").send().status, 200);
    // Its messages are where those of the old one are.
    proxy.wait_for_complaint("this process has taken over");
    second.signal("TERM");
    proxy.wait_for_complaint("draining");
    wait_until("the second successor ends", || second.has_ended());
}

#[test]
fn another_program_may_be_given() {
    let (origin, storage) = (hello(), Storage::redis());
    let mut proxy = Proxy::start(&origin, &storage, "");
    let program = proxy.folder().join("next");
    let binary = fs::canonicalize(binary()).unwrap();
    std::os::unix::fs::symlink(binary, &program).unwrap();
    let new = NewProcess::of(&upgrade(&proxy, &["--binary", "next"]));
    assert_eq!(proxy.exit_code(), Some(0));
    let line = fs::read(format!("/proc/{}/cmdline", new.0)).unwrap();
    let called = line.split(|byte| *byte == 0).next().unwrap();
    assert_eq!(called, program.as_os_str().as_encoded_bytes());
    assert_eq!(proxy.get("/").send().text(), "hello");
}

/// A program that does what a shell is told.
fn script(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_process_that_fails_says_why_and_the_old_one_serves_on() {
    let (origin, storage) = (hello(), Storage::redis());
    let proxy = Proxy::start(&origin, &storage, "");
    let folder = proxy.folder();
    script(folder, "crashes", "echo no libraries >&2; exit 127");
    script(folder, "old", "echo \"error: unexpected argument '--take-over'\" >&2; exit 2");
    fs::write(folder.join("text"), "no program").unwrap();
    for (program, why) in [
        ("missing", "cannot start"),
        ("text", "cannot start"),
        ("crashes", "could not start; it ended with exit status: 127\nno libraries"),
        ("old", "it ended with exit status: 2\nerror: unexpected argument '--take-over'"),
    ] {
        let output = upgrade(&proxy, &["--binary", program]);
        assert_eq!(output.status.code(), Some(1), "{program}");
        assert!(said(&output).contains(why), "{program}: {}", said(&output));
    }
    proxy.edit(|text| format!("{text}\n[nonsense]\n"));
    let order = ["upgrade", "--socket", "anteroom-data/admin.sock"];
    let output = anteroom().args(order).current_dir(folder).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("it ended with exit status: 64"), "{}", said(&output));
    assert!(said(&output).contains("nonsense"), "{}", said(&output));
    assert_eq!(proxy.get("/").send().text(), "hello");
    assert_eq!(proxy.metric("anteroom_upgrades_failed_total"), 5.0);
}

#[test]
fn an_upgrade_does_not_wait_for_processes_that_say_nothing() {
    let (origin, storage) = (hello(), Storage::redis());
    let mut proxy = Proxy::start(&origin, &storage, "admin.socket = \"admin.sock\"");
    let folder = proxy.folder().to_owned();
    let binary = fs::canonicalize(binary()).unwrap();
    let waits = "touch begun; while [ ! -e go ]; do sleep 0.01; done";
    script(&folder, "late", &format!("{waits}; exec {} \"$@\"", binary.display()));
    let mut command = anteroom();
    command.args(["upgrade", "--config", "proxy.toml", "--binary", "late"]);
    command.current_dir(&folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    let upgrading = command.spawn().unwrap();
    wait_until("the new process begins", || folder.join("begun").exists());
    let _silent = [(); 3].map(|()| {
        let mut silent = Client::unix(&folder.join("admin.sock"));
        silent.send(
            b"POST /take-over HTTP/1.1\r\nHost: proxy\r\nConnection: upgrade\r\n\
              Upgrade: anteroom-take-over\r\nContent-Length: 0\r\n\r\n",
        );
        let answer = silent.until("\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        silent
    });
    fs::write(folder.join("go"), "").unwrap();
    let _new = NewProcess::of(&upgrading.wait_with_output().unwrap());
    assert_eq!(proxy.exit_code(), Some(0));
    assert_eq!(proxy.get("/").send().text(), "hello");
}

/// The next message to the service manager; those with sockets are passed over.
fn hear(manager: &UnixDatagram) -> String {
    loop {
        let mut message = [0; 512];
        let length = manager.recv(&mut message).expect("a message in time");
        if !message.starts_with(b"FDSTORE=1") {
            return String::from_utf8(message[..length].to_vec()).unwrap();
        }
    }
}

/// The socket of a service manager.
fn notify_socket(path: &Path) -> UnixDatagram {
    let manager = UnixDatagram::bind(path).unwrap();
    manager.set_read_timeout(Some(DEADLINE)).unwrap();
    manager
}

/// Leaves room for no message of any sender.
fn fill(path: &Path) {
    loop {
        // What a single sender may have on its way is bounded, too.
        let sender = UnixDatagram::unbound().unwrap();
        sender.set_nonblocking(true).unwrap();
        match sender.send_to(b"X_FILLER=1", path) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn an_upgrade_of_which_the_service_manager_does_not_hear_is_taken_back() {
    let (origin, storage, folder) = (hello(), Storage::redis(), TempDir::new().unwrap());
    let path = folder.path().join("notify");
    let manager = notify_socket(&path);
    let line = format!("export NOTIFY_SOCKET={}", path.display());
    let mut proxy = Proxy::behind_on(&line, &origin, &storage, "");
    assert_eq!(hear(&manager), "READY=1\nSTATUS=serving\n");
    fill(&path);
    let output = upgrade(&proxy, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("the service manager takes no message"), "{}", said(&output));
    assert_eq!(proxy.get("/").send().text(), "hello");

    manager.set_nonblocking(true).unwrap();
    while manager.recv(&mut [0; 512]).is_ok() {}
    manager.set_nonblocking(false).unwrap();
    let new = NewProcess::of(&upgrade(&proxy, &[]));
    let main = format!("MAINPID={}\nREADY=1\nSTATUS=serving\n", new.0);
    while hear(&manager) != main {}
    assert_eq!(proxy.exit_code(), Some(0));
    assert_eq!(proxy.get("/").send().text(), "hello");
}

#[test]
fn the_service_manager_follows() {
    let (origin, storage) = (hello(), Storage::redis());
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("notify");
    let manager = notify_socket(&path);
    let line = format!("export NOTIFY_SOCKET={}", path.display());
    let mut proxy = Proxy::behind_on(&line, &origin, &storage, "");
    assert_eq!(hear(&manager), "READY=1\nSTATUS=serving\n");
    let output = upgrade(&proxy, &["--binary", "missing"]);
    assert_eq!(output.status.code(), Some(1));
    let failed = "READY=1\nSTATUS=serving: the last upgrade failed, see the log\n";
    assert_eq!(hear(&manager), failed);

    let new = NewProcess::of(&upgrade(&proxy, &[]));
    assert_eq!(hear(&manager), format!("MAINPID={}\nREADY=1\nSTATUS=serving\n", new.0));
    assert_eq!(hear(&manager), "READY=1\nSTATUS=serving\n", "the new process");
    assert_eq!(proxy.exit_code(), Some(0));
    new.signal("TERM");
    assert_eq!(hear(&manager), "STOPPING=1\nSTATUS=draining\n", "only the new process");
    wait_until("it ends", || new.has_ended());
}
