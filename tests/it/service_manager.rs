//! What the service manager is told, as systemd listens: a datagram socket named by `NOTIFY_SOCKET`.

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use tempfile::TempDir;

use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::Proxy;
use crate::support::{DEADLINE, wait_until};

/// A service manager that listens.
struct Manager {
    socket: UnixDatagram,
    folder: TempDir,
}

impl Manager {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        Self { socket, folder }
    }

    /// A proxy that knows of it. `more` is carried out by the shell before.
    fn start(&self, origin: &Origin, more: &str) -> Proxy {
        let path = self.folder.path().join("notify");
        Proxy::behind(&format!("export NOTIFY_SOCKET={}; {more}", path.display()), origin)
    }

    /// The next message; those with sockets are passed over.
    fn hear(&self) -> String {
        loop {
            let mut message = [0; 512];
            let length = self.socket.recv(&mut message).expect("a message in time");
            if !message.starts_with(b"FDSTORE=1") {
                return String::from_utf8(message[..length].to_vec()).unwrap();
            }
        }
    }

    /// Waits for a message with this line; the others are passed over.
    fn wait_for(&self, line: &str) {
        while !self.hear().lines().any(|heard| heard == line) {}
    }
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
