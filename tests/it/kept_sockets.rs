//! Restarts under a service manager that keeps the listening sockets, as systemd does: clients wait, and none is refused.

use std::collections::BTreeSet;
use std::fs;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tempfile::TempDir;

use crate::support::client::{Ask, Client};
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage};
use crate::support::{DEADLINE, free_port, wait_until, wait_within};

/// The number of the first socket that a start gets, above those of all files that a test opens. systemd begins at 3.
const FIRST: i32 = 300;
/// The message that ends a [`Manager`].
const END: &str = "end";

fn hello() -> Origin {
    Origin::always(Reply::unstored("hello"))
}

/// A service manager that keeps sockets.
struct Manager {
    folder: TempDir,
    kept: Arc<Mutex<KeptSockets>>,
    hearing: Option<JoinHandle<()>>,
}

/// Sockets with their names.
#[derive(Default)]
struct KeptSockets(Vec<(String, OwnedFd)>);

fn inode(file: &OwnedFd) -> u64 {
    rustix::fs::fstat(file).unwrap().st_ino
}

impl KeptSockets {
    /// Does what a message says, as systemd: the same socket is kept once.
    fn apply(&mut self, message: &str, files: Vec<OwnedFd>) {
        let Some(name) = message.lines().find_map(|line| line.strip_prefix("FDNAME=")) else {
            return;
        };
        if message.starts_with("FDSTOREREMOVE=1\n") {
            self.0.retain(|(kept, _)| kept != name);
        }
        for file in files {
            if !self.0.iter().any(|(_, kept)| inode(kept) == inode(&file)) {
                self.0.push((name.to_owned(), file));
            }
        }
    }

    /// Has a process started with all of them. They have to stay open here until it is.
    fn pass(&self, command: &mut Command) -> Vec<OwnedFd> {
        let copy = |(number, (_, file)): (i32, &(String, OwnedFd))| {
            let copy = fcntl_dupfd_cloexec(file, number).unwrap();
            assert_eq!(copy.as_raw_fd(), number);
            // Stays open in the new process.
            fcntl_setfd(&copy, FdFlags::empty()).unwrap();
            copy
        };
        let names: Vec<_> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        command.env("LISTEN_FDS", names.len().to_string());
        command.env("LISTEN_FDS_FIRST_FD", FIRST.to_string());
        command.env("LISTEN_FDNAMES", names.join(":"));
        (FIRST..).zip(&self.0).map(copy).collect()
    }
}

/// The next message, with the files that come with it.
fn hear(socket: &UnixDatagram) -> (String, Vec<OwnedFd>) {
    let mut bytes = [0; 1_024];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let got = recvmsg(socket, &mut parts, &mut beside, RecvFlags::CMSG_CLOEXEC).unwrap();
    let mut files = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            files.extend(came);
        }
    }
    (String::from_utf8_lossy(&bytes[..got.bytes]).into_owned(), files)
}

impl Manager {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        let kept = Arc::<Mutex<KeptSockets>>::default();
        let known = Arc::clone(&kept);
        let hearing = thread::spawn(move || {
            loop {
                let (message, files) = hear(&socket);
                if message == END {
                    return;
                }
                known.lock().unwrap().apply(&message, files);
            }
        });
        Self { folder, kept, hearing: Some(hearing) }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("notify")
    }

    fn start(&self, origin: &Origin, settings: &str) -> Proxy {
        self.start_on(&Storage::Embedded, origin, settings)
    }

    fn start_on(&self, storage: &Storage, origin: &Origin, settings: &str) -> Proxy {
        let line = format!("export NOTIFY_SOCKET={}", self.socket().display());
        Proxy::behind_on(&line, origin, storage, settings)
    }

    /// Starts a proxy again that has been told to end, with the sockets that are kept.
    fn start_again(&self, proxy: &mut Proxy) {
        proxy.start_again(|command| {
            command.env("NOTIFY_SOCKET", self.socket());
            let passed = self.kept.lock().unwrap().pass(command);
            let child = command.spawn().unwrap();
            // Before the process finds that it does not want them.
            drop(passed);
            child
        });
    }

    /// The names of the sockets that are kept.
    fn names(&self) -> Vec<String> {
        self.kept.lock().unwrap().0.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Waits until so many sockets are kept, under so many names.
    fn wait_for(&self, sockets: usize, names: usize) {
        wait_until(&format!("{sockets} sockets are kept under {names} names"), || {
            let all = self.names();
            let different: BTreeSet<_> = all.iter().collect();
            (all.len(), different.len()) == (sockets, names)
        });
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let told = UnixDatagram::unbound()
            .and_then(|socket| socket.send_to(END.as_bytes(), self.socket()));
        if let (Ok(_), Some(hearing)) = (told, self.hearing.take()) {
            // Its panic is a failure of the test already.
            drop(hearing.join());
        }
    }
}

#[test]
fn clients_wait_while_the_proxy_restarts() {
    let (origin, manager) = (hello(), Manager::new());
    let mut proxy = manager.start(&origin, "");
    manager.wait_for(2, 1);
    let mut before = 2;
    // A socket is added for a thread that has none; none is closed, because clients may wait at each.
    for (threads, sockets) in [(2, 2), (4, 4), (1, 4)] {
        let [old, new] = [before, threads].map(|count| format!("threads = {count}\n"));
        proxy.edit(|text| text.replace(&old, &new));
        before = threads;
        proxy.terminate();
        assert_eq!(proxy.exit_code(), Some(0));
        let mut waiting = [proxy.get("/").start(), proxy.get("/").start()];
        manager.start_again(&mut proxy);
        for client in &mut waiting {
            assert_eq!(client.answer().text(), "hello");
        }
        manager.wait_for(sockets, 1);
    }
}

#[test]
fn what_a_killed_process_has_left_waits_too() {
    let (origin, manager) = (hello(), Manager::new());
    let mut proxy = manager.start(&origin, "");
    manager.wait_for(2, 1);
    proxy.kill9();
    let mut waiting = proxy.get("/").start();
    manager.start_again(&mut proxy);
    assert_eq!(waiting.answer().text(), "hello");
}

/// A second listener, on this port.
fn and_on(port: u16) -> String {
    format!("listen = [{{ address = \"{{listen}}\" }}, {{ address = \"127.0.0.1:{port}\" }}]")
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn wait_until_closed(port: u16) {
    wait_until("the old address is closed", || TcpStream::connect(address(port)).is_err());
}

#[test]
fn a_successor_gives_its_sockets_too() {
    let (origin, manager, storage) = (hello(), Manager::new(), Storage::redis());
    let [closed, opened] = [free_port(), free_port()];
    let mut proxy = manager.start_on(&storage, &origin, &and_on(closed));
    manager.wait_for(4, 2);
    let before = manager.names();
    proxy.edit(|text| text.replace(&format!(":{closed}"), &format!(":{opened}")));
    let mut old = proxy.take_over_by(|proxy| {
        proxy.successor().env("NOTIFY_SOCKET", manager.socket()).spawn().unwrap()
    });
    assert_eq!(old.exit_code(), Some(0));
    wait_until_closed(closed);
    wait_until("others are kept", || manager.names() != before);
    manager.wait_for(4, 2);

    proxy.terminate();
    assert_eq!(proxy.exit_code(), Some(0));
    let mut waiting =
        [Ask::new(address(opened), "GET", "/"), proxy.get("/")].map(|ask| ask.start());
    manager.start_again(&mut proxy);
    for client in &mut waiting {
        assert_eq!(client.answer().text(), "hello");
    }
}

#[test]
fn a_listener_that_is_closed_is_not_kept() {
    let (origin, manager) = (hello(), Manager::new());
    let [closed, opened] = [free_port(), free_port()];
    let mut proxy = manager.start(&origin, &and_on(closed));
    manager.wait_for(4, 2);
    proxy.edit(|text| text.replace(&format!(":{closed}"), &format!(":{opened}")));
    assert!(proxy.reload());
    wait_until_closed(closed);
    manager.wait_for(4, 2);

    // The sockets that are kept would be in the way of this one.
    let [one, all] = ["127.0.0.1", "0.0.0.0"].map(|address| format!("\"{address}:{opened}\""));
    proxy.edit(|text| text.replace(&one, &all));
    proxy.terminate();
    manager.start_again(&mut proxy);
    assert_eq!(Ask::new(address(opened), "GET", "/").send().text(), "hello");
    assert_eq!(proxy.get("/").send().text(), "hello");
    manager.wait_for(4, 2);
}

#[test]
fn a_unix_socket_is_kept_with_its_file() {
    let (origin, manager) = (hello(), Manager::new());
    let settings = r#"listen = [{ address = "{listen}" }, { address = "unix:web.sock" }]"#;
    let mut proxy = manager.start(&origin, settings);
    let path = proxy.folder().join("web.sock");
    manager.wait_for(3, 2);
    let file = || fs::metadata(&path).unwrap().ino();
    let first = file();
    proxy.terminate();
    assert_eq!(proxy.exit_code(), Some(0));
    let mut waiting = Client::unix(&path);
    proxy.get("/").start_on(&mut waiting);
    manager.start_again(&mut proxy);
    assert_eq!(waiting.answer().text(), "hello");
    assert_eq!(file(), first);
    manager.wait_for(3, 2);

    // Without its file no client comes to the socket.
    proxy.terminate();
    assert_eq!(proxy.exit_code(), Some(0));
    fs::remove_file(&path).unwrap();
    manager.start_again(&mut proxy);
    assert_eq!(proxy.get("/").send_on(&mut Client::unix(&path)).text(), "hello");
    manager.wait_for(3, 2);
}

/// Sets a flag at its end, also where a test fails.
struct SetAtEnd<'f>(&'f AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn no_request_on_a_kept_connection_is_lost_over_restarts() {
    let (origin, manager) = (hello(), Manager::new());
    let mut proxy = manager.start(&origin, "");
    manager.wait_for(2, 1);
    let (address, is_over, count) = (proxy.address(), AtomicBool::new(false), AtomicUsize::new(0));
    let keep_asking = |ask: &Ask| {
        let mut client = Client::open(address);
        while !is_over.load(Ordering::SeqCst) {
            let answer = ask.send_on(&mut client);
            assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
            count.fetch_add(1, Ordering::SeqCst);
            if answer.header("connection") == Some("close") || client.has_ended() {
                client = Client::open(address);
            }
        }
    };
    let some_are_answered = || {
        let before = count.load(Ordering::SeqCst);
        let are_answered = || count.load(Ordering::SeqCst) >= before + 200;
        wait_within(6 * DEADLINE, "requests are answered", are_answered);
    };
    let get = Ask::new(address, "GET", "/");
    let post = Ask::new(address, "POST", "/").body(b"to be done once");
    thread::scope(|scope| {
        let end = SetAtEnd(&is_over);
        let clients = [&get, &post, &get, &post, &get, &post];
        let clients = clients.map(|ask| scope.spawn(move || keep_asking(ask)));
        for signal in ["TERM", "INT", "TERM", "INT"] {
            some_are_answered();
            proxy.signal(signal);
            manager.start_again(&mut proxy);
        }
        some_are_answered();
        drop(end);
        for client in clients {
            client.join().unwrap();
        }
    });
    assert_eq!(origin.count(), count.load(Ordering::SeqCst), "each is asked once");
}
