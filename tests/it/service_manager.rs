//! What the service manager is told, as systemd listens: a datagram socket named by `NOTIFY_SOCKET`.

use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;

use tempfile::TempDir;

use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::{Proxy, Storage};
use crate::support::{DEADLINE, free_port, wait_until};

/// A message that means nothing.
const FILLER: &str = "X_FILLER=1";
/// What a proxy logs where its messages are dropped.
const DROPPED: &str = "the service manager takes no messages";

/// The socket of a service manager.
struct NotifySocket {
    socket: UnixDatagram,
    folder: TempDir,
}

impl NotifySocket {
    /// One that is not read so far.
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        Self { socket, folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("notify")
    }

    /// A proxy that knows of it. `more` is carried out by the shell before.
    fn start(&self, origin: &Origin, more: &str) -> Proxy {
        let path = self.path();
        Proxy::behind(&format!("export NOTIFY_SOCKET={}; {more}", path.display()), origin)
    }

    /// Sends messages until there is room for no more of any sender. Returns how many.
    fn fill(&self) -> usize {
        for count in 0.. {
            // Each from another socket: what a single one may have on its way is bounded, too.
            let sender = UnixDatagram::unbound().unwrap();
            sender.set_nonblocking(true).unwrap();
            match sender.send_to(FILLER.as_bytes(), self.path()) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return count,
                Err(error) => panic!("{error}"),
            }
        }
        unreachable!("the socket has a bound");
    }

    /// Reads it from now on.
    fn read(self) -> Manager {
        let socket = self.socket.try_clone().unwrap();
        let (tell, messages) = mpsc::channel();
        thread::spawn(move || {
            let mut message = [0; 512];
            // Nothing comes once the socket is shut down.
            while let Ok(length @ 1..) = socket.recv(&mut message) {
                let text = String::from_utf8(message[..length].to_vec()).unwrap();
                if tell.send(text).is_err() {
                    return;
                }
            }
        });
        Manager { socket: self, messages }
    }
}

/// A service manager that listens: on a thread, because it has room for few messages.
struct Manager {
    socket: NotifySocket,
    messages: mpsc::Receiver<String>,
}

impl Manager {
    fn new() -> Self {
        NotifySocket::new().read()
    }

    fn start(&self, origin: &Origin, more: &str) -> Proxy {
        self.socket.start(origin, more)
    }

    fn next_message(&self) -> String {
        self.messages.recv_timeout(DEADLINE).expect("a message in time")
    }

    /// The next message; those with sockets are passed over.
    fn hear(&self) -> String {
        loop {
            let message = self.next_message();
            if !message.starts_with("FDSTORE=1") {
                return message;
            }
        }
    }

    /// Waits for a message with this line; the others are passed over.
    fn wait_for(&self, line: &str) {
        while !self.next_message().lines().any(|heard| heard == line) {}
    }
}

/// Ends the thread.
impl Drop for Manager {
    fn drop(&mut self) {
        drop(self.socket.socket.shutdown(Shutdown::Both));
    }
}

#[test]
fn a_service_manager_that_does_not_read_holds_nothing_up() {
    let origin = Origin::always(Reply::unstored("hello"));
    let socket = NotifySocket::new();
    let fillers = socket.fill();
    let watchdog = "export WATCHDOG_USEC=2000000";
    let mut ended = socket.start(&origin, watchdog);
    let proxy = socket.start(&origin, watchdog);
    for proxy in [&ended, &proxy] {
        // The thread that sends the messages does this, too.
        assert!(proxy.reload());
        proxy.wait_for_complaint(DROPPED);
    }
    ended.terminate();
    assert_eq!(ended.exit_code(), Some(0));
    assert_eq!(proxy.get("/").send().text(), "hello");
    assert_eq!(proxy.complaints().matches(DROPPED).count(), 1);

    // What is said once it reads is heard, and it gets the sockets.
    let manager = socket.read();
    for _ in 0..fillers {
        manager.wait_for(FILLER);
    }
    manager.wait_for("WATCHDOG=1");
    assert!(proxy.reload());
    manager.wait_for("READY=1");
    manager.wait_for("FDSTORE=1");
    proxy.terminate();
    manager.wait_for("STOPPING=1");
}

#[test]
fn it_removes_the_sockets_of_a_listener_that_was_closed_before_it_read() {
    let origin = Origin::always(Reply::unstored("hello"));
    let socket = NotifySocket::new();
    socket.fill();
    let line = format!("export NOTIFY_SOCKET={}", socket.path().display());
    let closed = format!(", {{ address = \"127.0.0.1:{}\" }}]", free_port());
    let settings = format!("listen = [{{ address = \"{{listen}}\" }}{closed}");
    let proxy = Proxy::behind_on(&line, &origin, &Storage::Embedded, &settings);
    proxy.edit(|text| text.replace(&closed, "]"));
    assert!(proxy.reload());
    socket.read().wait_for("FDSTOREREMOVE=1");
}

#[test]
fn a_start_that_it_does_not_hear_is_told_again() {
    let origin = Origin::always(Reply::unstored("hello"));
    let socket = NotifySocket::new();
    socket.fill();
    let proxy = socket.start(&origin, "true");
    proxy.wait_for_complaint(DROPPED);
    socket.read().wait_for("READY=1");
}

#[test]
fn start_reload_and_end_are_told_in_their_order() {
    let origin = Origin::always(Reply::unstored("hello"));
    let manager = Manager::new();
    let mut proxy = manager.start(&origin, "true");
    assert_eq!(manager.hear(), "READY=1\nSTATUS=serving\n");
    let refused = "serving with the old configuration: the last reload was refused, see the log";
    for (edit, is_valid, status) in [("", true, "serving"), ("\n[nonsense]\n", false, refused)] {
        proxy.edit(|text| format!("{text}{edit}"));
        assert_eq!(proxy.reload(), is_valid);
        let reloading = manager.hear();
        let (head, time) = reloading.split_once("MONOTONIC_USEC=").expect("the time of the reload");
        assert_eq!(head, "RELOADING=1\n");
        assert!(time.trim().parse::<u64>().is_ok_and(|time| time > 0), "{time}");
        assert_eq!(manager.hear(), format!("READY=1\nSTATUS={status}\n"));
    }
    proxy.terminate();
    assert_eq!(manager.hear(), "STOPPING=1\nSTATUS=draining\n");
    assert_eq!(proxy.exit_code(), Some(0));
}

#[test]
fn clients_are_served_once_it_says_that_it_is_ready() {
    let origin = Origin::always(Reply::unstored("hello"));
    let manager = Manager::new();
    let proxy = manager.start(&origin, "true");
    manager.wait_for("READY=1");
    assert_eq!(proxy.get("/").send().text(), "hello");
}

#[test]
fn the_watchdog_is_fed_until_the_end() {
    let gate = Gate::closed();
    let origin = {
        let gate = Arc::clone(&gate);
        Origin::start(move |_| {
            gate.pass();
            Reply::unstored("at last")
        })
    };
    let manager = Manager::new();
    let mut proxy = manager.start(&origin, "export WATCHDOG_USEC=400000");
    for _ in 0..3 {
        manager.wait_for("WATCHDOG=1");
    }
    // One of the two workers has ended soon, the other waits for its client.
    let mut client = proxy.get("/").start();
    wait_until("the origin is asked", || origin.count() == 1);
    proxy.terminate();
    manager.wait_for("STOPPING=1");
    for _ in 0..3 {
        manager.wait_for("WATCHDOG=1");
    }
    gate.open();
    assert_eq!(client.answer().text(), "at last");
    assert_eq!(proxy.exit_code(), Some(0));
}
