//! A process takes over from the one that serves: clients notice nothing, and whatever fails, the old process serves on.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tempfile::TempDir;

use crate::disk::preload;
use crate::purge::purge;
use crate::support::client::{Ask, Client};
use crate::support::frames::{Frames, Outcome, code};
use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::{Proxy, Storage, anteroom, binary, log_in, on_both_stores, shop};
use crate::support::{free_port, wait_until};

const UNIX: &str = r#"listen = [{ address = "{listen}" }, { address = "unix:web.sock" }]"#;

on_both_stores!(
    no_client_is_refused_and_it_is_ready_all_the_while,
    open_requests_and_kept_connections_end_in_the_old_process,
    sessions_and_commands_go_on,
    sockets_are_added_when_the_old_process_cannot_serve_on,
    a_thread_that_cannot_listen_leaves_everything_as_it_was,
    a_process_that_may_open_few_files_leaves_everything_as_it_was,
    a_server_that_rests_is_not_asked_by_the_new_process,
    a_client_over_its_rate_stays_refused,
    a_process_that_is_killed_while_it_prepares_is_forgotten,
    a_signal_to_the_new_process_ends_that_alone,
    a_signal_to_the_old_process_ends_both,
);

fn hello() -> Origin {
    Origin::always(Reply::unstored("hello"))
}

/// An origin that holds `/held` until the gate is open.
fn held(gate: &Arc<Gate>) -> Origin {
    let gate = Arc::clone(gate);
    Origin::start(move |request| match request.path() {
        "/held" => {
            gate.pass();
            Reply::unstored("at last")
        }
        _ => Reply::unstored("hello"),
    })
}

/// Sets a flag at its end, also where a test fails.
struct SetAtEnd<'f>(&'f AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Asks again and again for a page, and whether the proxy is ready, while `act` goes on. Each answer must be a good one.
fn while_clients_ask(address: SocketAddr, admin: SocketAddr, act: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    let page = || assert_eq!(Ask::new(address, "GET", "/").send().text(), "hello");
    let readiness = || {
        let ask = Ask::new(admin, "GET", "/readyz").host(&admin.to_string());
        assert_eq!(ask.send().status, 200);
    };
    let again = |ask: &(dyn Fn() + Sync)| {
        let mut count = 0;
        while !is_over.load(Ordering::SeqCst) {
            ask();
            count += 1;
        }
        count
    };
    thread::scope(|scope| {
        let end = SetAtEnd(&is_over);
        let asking = [&page as &(dyn Fn() + Sync), &page, &readiness];
        let asking = asking.map(|ask| scope.spawn(move || again(ask)));
        act();
        drop(end);
        for one in asking {
            assert!(one.join().unwrap() > 0);
        }
    });
}

fn no_client_is_refused_and_it_is_ready_all_the_while(storage: &Storage) {
    let origin = hello();
    let mut proxy = Proxy::start(&origin, storage, "");
    let (address, admin) = (proxy.address(), proxy.admin_address());
    while_clients_ask(address, admin, || {
        for threads in ["threads = 2", "threads = 4", "threads = 1"] {
            proxy.edit(|text| {
                let rest = text.lines().filter(|line| !line.starts_with("threads ="));
                [threads].into_iter().chain(rest).map(|line| format!("{line}\n")).collect()
            });
            let mut old = proxy.take_over();
            assert_eq!(old.exit_code(), Some(0));
        }
    });
}

fn open_requests_and_kept_connections_end_in_the_old_process(storage: &Storage) {
    let gate = Gate::closed();
    let origin = held(&gate);
    let mut proxy = Proxy::start(&origin, storage, "");
    let mut open = proxy.get("/held").start();
    wait_until("the origin is asked", || origin.count() == 1);
    let mut kept = proxy.connect();
    assert_eq!(proxy.get("/").send_on(&mut kept).header("connection"), None);
    let mut multiplexed = Frames::open(proxy.address());
    assert!(multiplexed.is_served(1, "/"));
    let mut operator = Client::open(proxy.admin_address());
    assert_eq!(proxy.admin("/readyz").send_on(&mut operator).header("connection"), None);

    let mut old = proxy.take_over();

    assert_eq!(multiplexed.end(), Outcome::GoAway(code::NONE));
    let last = proxy.get("/").send_on(&mut kept);
    assert_eq!((last.status, last.header("connection")), (200, Some("close")));
    assert!(kept.is_closed());
    let last = proxy.admin("/readyz").send_on(&mut operator);
    assert_eq!((last.status, last.header("connection")), (200, Some("close")));
    assert_eq!(proxy.get("/").send().text(), "hello");
    gate.open();
    assert_eq!(open.answer().text(), "at last");
    assert_eq!(old.exit_code(), Some(0));
}

fn sessions_and_commands_go_on(storage: &Storage) {
    let origin = shop(|_| Reply::unstored("hello"));
    let settings = "session.mint = true\nvisitor.endpoints = [\"me\"]";
    let mut proxy = Proxy::start(&origin, storage, settings);
    let cookie = log_in(&proxy, "alice");
    let mut old = proxy.take_over();
    assert_eq!(old.exit_code(), Some(0));
    let me = proxy.get("/_anteroom/me").cookie(&cookie).send();
    assert!(me.text().contains("alice"), "{}", me.text());
    takes_commands(&proxy);
    assert_eq!(proxy.metric("anteroom_upgrades_failed_total"), 0.0);
}

/// A command reaches it at the socket of its configuration.
fn takes_commands(proxy: &Proxy) {
    let mut command = anteroom();
    let command = command.args(["fleet", "--json", "--config", "proxy.toml"]);
    let listed = command.current_dir(proxy.folder()).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
}

/// A process that takes over, or not, from a shell that has carried out a line. It is killed on Drop.
struct NewProcess(Child);

impl NewProcess {
    fn behind(line: &str, proxy: &Proxy) -> Self {
        let line = format!("{line}; exec \"$0\" run --config proxy.toml --take-over");
        let said = File::options().append(true).open(proxy.folder().join("stderr")).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", &line, binary()]).current_dir(proxy.folder());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        Self(command.spawn().unwrap())
    }

    /// Waits until it has failed, and looks whether the old process serves on.
    fn fails_before(mut self, proxy: &Proxy, why: &str) {
        wait_until("it ends", || self.0.try_wait().unwrap().is_some());
        assert_eq!(self.0.wait().unwrap().code(), Some(1));
        proxy.wait_for_complaint("the take-over failed: this process serves on");
        proxy.wait_for_complaint(why);
        for _ in 0..8 {
            assert_eq!(proxy.get("/").send().text(), "hello");
        }
    }

    /// Whether a signal has stopped it.
    fn is_stopped(&self) -> bool {
        let state = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        state.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    }

    fn go_on(&self) {
        let line = format!("kill -CONT {}", self.0.id());
        assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    }
}

impl Drop for NewProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process stops, once, when it listens at a TCP socket.
const STOPS_WHEN_IT_LISTENS: &str = r#"
#define _GNU_SOURCE
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int listen(int fd, int backlog) {
    static int has_stopped;
    struct sockaddr_in address = {0};
    socklen_t length = sizeof address;
    int result = syscall(SYS_listen, fd, backlog);
    getsockname(fd, (struct sockaddr *)&address, &length);
    if (address.sin_family == AF_INET && !has_stopped) {
        has_stopped = 1;
        raise(SIGSTOP);
    }
    return result;
}
"#;

/// The kernel puts connections into such a socket at once. They would be reset if the old process ended the new one.
fn sockets_are_added_when_the_old_process_cannot_serve_on(storage: &Storage) {
    let folder = TempDir::new().unwrap();
    let (environment, _) = preload(folder.path(), STOPS_WHEN_IT_LISTENS);
    let origin = hello();
    let mut proxy = Proxy::start(&origin, storage, "threads = 1");
    proxy.edit(|text| text.replace("threads = 1", "threads = 4"));

    let new = NewProcess::behind(&environment, &proxy);

    wait_until("it listens at another socket", || new.is_stopped());
    // As far as the store, the old one ends without the new one.
    proxy.wait_for_complaint("another process accepts connections; draining");
    new.go_on();
    assert_eq!(proxy.exit_code(), Some(0));
    for _ in 0..32 {
        assert_eq!(proxy.get("/").send().text(), "hello");
    }
}

/// The runtime of the first thread cannot watch a listening socket.
const CANNOT_LISTEN: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int epoll_ctl(int epoll, int what, int fd, struct epoll_event *event) {
    static int has_failed;
    int listens = 0;
    socklen_t length = sizeof listens;
    char thread[16] = "";
    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length);
    prctl(PR_GET_NAME, thread);
    if (what == EPOLL_CTL_ADD && listens && strcmp(thread, "worker") == 0
        && !__sync_lock_test_and_set(&has_failed, 1)) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_epoll_ctl, epoll, what, fd, event);
}
"#;

fn a_thread_that_cannot_listen_leaves_everything_as_it_was(storage: &Storage) {
    let folder = TempDir::new().unwrap();
    let (environment, _) = preload(folder.path(), CANNOT_LISTEN);
    let origin = hello();
    let proxy = Proxy::start(&origin, storage, "");
    let new = NewProcess::behind(&environment, &proxy);
    new.fails_before(&proxy, "a worker cannot listen");
}

fn a_process_that_may_open_few_files_leaves_everything_as_it_was(storage: &Storage) {
    let origin = hello();
    let proxy = Proxy::start(&origin, storage, "");
    // Enough for two threads, as every proxy of a test has, to stand ready, and for some connections.
    let new = NewProcess::behind("ulimit -n 64", &proxy);
    new.fails_before(&proxy, "the new process may open too few files");
}

fn a_server_that_rests_is_not_asked_by_the_new_process(storage: &Storage) {
    let (dead, other) = (SocketAddr::from(([127, 0, 0, 1], free_port())), hello());
    let settings = format!(
        "origin.urls = [\"http://{dead}\", \"http://{}\"]\norigin.rest = \"300s\"",
        other.address()
    );
    let mut proxy = Proxy::before(dead, storage, &settings);
    let up = format!("anteroom_origin_server_up{{origin=\"origin\",server=\"{dead}\"}}");
    assert_eq!(proxy.metric(&up), 1.0);
    wait_until("it rests", || {
        assert_eq!(proxy.get("/").send().text(), "hello");
        proxy.metric(&up) == 0.0
    });
    let back = Origin::at(dead, |_| Reply::unstored("back"));

    let mut old = proxy.take_over();

    assert_eq!(proxy.metric(&up), 0.0);
    for _ in 0..8 {
        assert_eq!(proxy.get("/").send().text(), "hello");
    }
    assert_eq!(back.count(), 0);
    assert_eq!(old.exit_code(), Some(0));
}

fn a_client_over_its_rate_stays_refused(storage: &Storage) {
    let origin = shop(|_| Reply::unstored("hello"));
    let settings = "session.mint = true
limits.requests_per_address = \"7/h\"
limits.requests_per_session = \"3/h\"";
    let mut proxy = Proxy::start(&origin, storage, settings);
    // Counts for its address, as long as there is no session.
    let cookie = log_in(&proxy, "alice");
    let of_session = |proxy: &Proxy| proxy.get("/").cookie(&cookie).send().status;
    let of_address = |proxy: &Proxy| proxy.get("/").send().status;
    assert_eq!([(); 4].map(|()| of_session(&proxy)), [200, 200, 200, 429]);

    let mut old = proxy.take_over();

    // One that comes to the old process is counted there alone.
    assert_eq!(old.exit_code(), Some(0));
    assert_eq!(of_session(&proxy), 429);
    assert_eq!([(); 2].map(|()| of_address(&proxy)), [200, 429], "six of seven are used");
}

#[test]
fn a_unix_socket_keeps_its_file_until_the_last_process_ends() {
    let (origin, storage) = (hello(), Storage::redis());
    let mut proxy = Proxy::start(&origin, &storage, UNIX);
    let path = proxy.folder().join("web.sock");
    for _ in 0..2 {
        let mut old = proxy.take_over();
        assert_eq!(old.exit_code(), Some(0));
        assert_eq!(proxy.get("/").send_on(&mut Client::unix(&path)).text(), "hello");
    }
    proxy.terminate();
    assert_eq!(proxy.exit_code(), Some(0));
    assert!(!path.exists());
}

#[test]
fn a_unix_socket_may_be_spelled_another_way() {
    let (origin, storage) = (hello(), Storage::redis());
    let settings = format!("{UNIX}\nadmin.socket = \"admin.sock\"");
    let mut proxy = Proxy::start(&origin, &storage, &settings);
    let paths = ["web.sock", "admin.sock"].map(|name| proxy.folder().join(name));
    symlink(proxy.folder(), proxy.folder().join("link")).unwrap();
    let mut before = "";
    for folder in ["link/", ""] {
        proxy.edit(|text| {
            let admin = |folder: &str| format!("\"{folder}admin.sock\"");
            let web = |folder: &str| format!("unix:{folder}web.sock");
            text.replace(&admin(before), &admin(folder)).replace(&web(before), &web(folder))
        });
        before = folder;
        let mut old = proxy.take_over();
        assert_eq!(old.exit_code(), Some(0));
        assert_eq!(proxy.get("/").send_on(&mut Client::unix(&paths[0])).text(), "hello");
        takes_commands(&proxy);
    }
    proxy.terminate();
    assert_eq!(proxy.exit_code(), Some(0));
    assert!(!paths.iter().any(|path| path.exists()));
}

#[test]
fn the_socket_for_commands_may_be_spelled_another_way() {
    let (origin, storage) = (hello(), Storage::redis());
    let mut proxy = Proxy::start(&origin, &storage, "admin.socket = \"admin.sock\"");
    symlink(proxy.folder(), proxy.folder().join("link")).unwrap();
    proxy.edit(|text| text.replace("\"admin.sock\"", "\"link/admin.sock\""));
    let mut old = proxy.take_over();
    assert_eq!(old.exit_code(), Some(0));
    takes_commands(&proxy);
    assert!(proxy.folder().join("admin.sock").exists());
}

#[test]
fn listeners_are_those_of_the_new_configuration() {
    let (origin, storage) = (hello(), Storage::redis());
    let mut proxy = Proxy::start(&origin, &storage, UNIX);
    let path = proxy.folder().join("web.sock");
    let added = SocketAddr::from(([127, 0, 0, 1], free_port()));
    proxy.edit(|text| text.replace("unix:web.sock", &added.to_string()));
    let mut old = proxy.take_over();
    assert_eq!(Ask::new(added, "GET", "/").send().text(), "hello");
    assert_eq!(proxy.get("/").send().text(), "hello");
    assert!(!path.exists());
    assert_eq!(old.exit_code(), Some(0));
}

#[test]
fn a_process_that_cannot_start_leaves_everything_as_it_was() {
    let (origin, storage) = (hello(), Storage::redis());
    let proxy = Proxy::start(&origin, &storage, UNIX);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listener = format!("listen = [{{ address = \"{}\" }}, ", taken.local_addr().unwrap());
    proxy.edit(|text| text.replace("listen = [", &listener));
    let status = proxy.successor().status().unwrap();
    assert_eq!(status.code(), Some(1));
    proxy.wait_for_complaint("Address already in use");
    wait_until("the old process has noticed", || {
        proxy.metric("anteroom_upgrades_failed_total") == 1.0
    });
    assert_eq!(proxy.get("/").send().text(), "hello");
    let path = proxy.folder().join("web.sock");
    assert_eq!(proxy.get("/").send_on(&mut Client::unix(&path)).text(), "hello");
}

#[test]
fn another_store_is_refused() {
    let (origin, storage) = (hello(), Storage::redis());
    let (proxy, other) = (Proxy::start(&origin, &storage, ""), Storage::redis());
    let Storage::Redis(server) = &other else { panic!("a Redis") };
    let status = proxy.successor().args(["--store", &server.url()]).status().unwrap();
    assert_eq!(status.code(), Some(1));
    proxy.wait_for_complaint("the new process has another [store]: restart to change it");
    assert_eq!(proxy.get("/").send().text(), "hello");
}

#[test]
fn a_log_out_that_redis_does_not_take_keeps_the_old_process() {
    let origin = shop(|request| {
        let user = request.header("x-anteroom-user");
        Reply::unstored(user.unwrap_or("hello"))
    });
    let storage = Storage::redis();
    let Storage::Redis(server) = &storage else { panic!("a Redis") };
    let settings = "session.mint = true\ncache.warm_start = \"0s\"";
    let mut proxy = Proxy::start(&origin, &storage, settings);
    let alice = log_in(&proxy, "alice");
    let user = |proxy: &Proxy| proxy.get("/").cookie(&alice).send().text();
    assert_eq!(user(&proxy), "alice");
    // Redis takes no writes, as one without the replicas that it needs.
    let need = |replicas| {
        let answer = server.say(&format!("CONFIG SET min-replicas-to-write {replicas}"));
        assert!(answer.starts_with("+OK"), "{answer}");
    };
    need(1);
    assert_eq!(proxy.post("/logout").cookie(&alice).send().status, 303);
    assert_eq!(user(&proxy), "hello");

    let new = NewProcess::behind(":", &proxy);
    new.fails_before(&proxy, "logouts wait, because the store does not take them");
    assert_eq!(user(&proxy), "hello");

    need(0);
    let mut old = proxy.take_over();
    assert_eq!(user(&proxy), "hello");
    assert_eq!(old.exit_code(), Some(0));
}

#[test]
fn an_older_proxy_is_told_from_one_that_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("admin.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let answering = thread::spawn(move || {
        let (mut asked, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            asked.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        asked.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").unwrap();
        String::from_utf8(head).unwrap()
    });
    let mut command = anteroom();
    command.args(["run", "--listen=127.0.0.1:0", "--origin=http://127.0.0.1:9", "--admin=off"]);
    command.args(["--store=redis://127.0.0.1:9", &format!("--take-over={}", socket.display())]);
    let output = command.current_dir(&folder).output().unwrap();
    let head = answering.join().unwrap();
    assert!(head.starts_with("POST /take-over HTTP/1.1\r\n"), "{head}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("knows no take-over: restart it"), "{said}");
}

#[test]
fn without_a_proxy_it_is_a_usual_start() {
    let (origin, storage) = (hello(), Storage::redis());
    let mut proxy = Proxy::start(&origin, &storage, "");
    proxy.restart_with(&["--take-over"]);
    assert_eq!(proxy.get("/").send().text(), "hello");
    assert!(proxy.complaints().contains("there is no proxy to take over from"));
}

/// A process that has got the sockets, and goes on when its log is read.
struct WaitingProcess {
    process: Child,
    log: PathBuf,
}

impl WaitingProcess {
    fn start(proxy: &Proxy) -> Self {
        let log = proxy.folder().join("fifo");
        // Opening it waits for a reader.
        assert!(Command::new("mkfifo").arg(&log).status().unwrap().success());
        let process = proxy.successor().env("ANTEROOM__LOG__TO", &log).spawn().unwrap();
        proxy.wait_for_complaint("a take-over begins");
        Self { process, log }
    }

    /// Lets it go on.
    fn go_on(self) -> Child {
        thread::spawn(move || {
            let mut log = File::open(self.log).unwrap();
            io::copy(&mut log, &mut io::sink()).unwrap()
        });
        self.process
    }
}

#[test]
fn nothing_changes_while_another_process_prepares() {
    let (origin, storage) = (hello(), Storage::redis());
    let mut proxy = Proxy::start(&origin, &storage, "");
    let waiting = WaitingProcess::start(&proxy);
    assert_eq!(proxy.get("/").send().text(), "hello");
    assert_eq!(proxy.admin("/readyz").send().status, 200);
    assert!(!proxy.reload(), "the other process has read the configuration");
    assert_eq!(proxy.successor().status().unwrap().code(), Some(1));
    proxy.wait_for_complaint("another take-over is under way");

    let mut old = proxy.take_over_by(|_| waiting.go_on());
    assert_eq!(proxy.get("/").send().text(), "hello");
    assert_eq!(old.exit_code(), Some(0));
}

fn a_signal_to_the_new_process_ends_that_alone(storage: &Storage) {
    for name in ["TERM", "INT"] {
        let origin = hello();
        let proxy = Proxy::start(&origin, storage, "");
        let waiting = WaitingProcess::start(&proxy);
        let id = waiting.process.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
        assert!(!waiting.go_on().wait().unwrap().success(), "{name}");
        proxy.wait_for_complaint("the take-over failed: this process serves on");
        assert_eq!(proxy.get("/").send().text(), "hello");
    }
}

fn a_process_that_is_killed_while_it_prepares_is_forgotten(storage: &Storage) {
    let origin = hello();
    let mut proxy = Proxy::start(&origin, storage, "");
    let mut waiting = WaitingProcess::start(&proxy);
    waiting.process.kill().unwrap();
    waiting.process.wait().unwrap();
    proxy.wait_for_complaint("the take-over failed: this process serves on");
    assert_eq!(proxy.get("/").send().text(), "hello");
    fs::remove_file(&waiting.log).unwrap();
    let mut old = proxy.take_over();
    assert_eq!(old.exit_code(), Some(0));
}

#[test]
fn no_purge_waits_for_a_process_that_was_killed_before_it_served() {
    let (origin, storage) = (hello(), Storage::redis());
    let proxy = Proxy::start(&origin, &storage, "");
    for failed in [1.0, 2.0] {
        // By then it has asked the store for purges, and waits for none.
        let status = proxy.successor().env("ANTEROOM_CRASH", "ready").status().unwrap();
        assert_eq!(status.code(), None);
        wait_until("the old process has noticed", || {
            proxy.metric("anteroom_upgrades_failed_total") == failed
        });
        assert_eq!(purge(&proxy, &["/page"])["confirmed"], true);
    }
}

fn a_signal_to_the_old_process_ends_both(storage: &Storage) {
    let origin = hello();
    let mut proxy = Proxy::start(&origin, storage, "");
    let mut waiting = WaitingProcess::start(&proxy);
    proxy.terminate();
    assert_eq!(proxy.exit_code(), Some(0));
    assert!(!waiting.process.wait().unwrap().success());
}
