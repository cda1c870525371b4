//! Where visitors come in: several addresses, IPv6, Unix sockets, load balancers that speak the PROXY
//! protocol, and sockets that systemd opened.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Output;

use crate::support::client::{Ask, Client};
use crate::support::origin::{Gate, Origin, Reply, Request};
use crate::support::proxy::{Proxy, anteroom};
use crate::support::{at_once, wait_until};

const UNIX: &str = r#"listen = [{ address = "unix:./web.sock" }]"#;
/// A listener that asks its only peer here for a header.
const BALANCED: &str =
    r#"listen = [{ address = "{listen}", proxy_protocol.from = ["10.0.0.0/8", "127.0.0.1"] }]"#;
/// What version 2 begins with.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn hello() -> Origin {
    Origin::always(Reply::unstored("hello"))
}

fn socket(proxy: &Proxy) -> PathBuf {
    proxy.folder().join("web.sock")
}

fn enter(proxy: &Proxy) -> Client {
    Client::unix(&socket(proxy))
}

/// A header of version 2 that carries a client at 192.0.2.7, or with command 0x20 no client.
fn v2(command: u8) -> Vec<u8> {
    let ends = [192, 0, 2, 7, 198, 51, 100, 1, 0, 1, 0, 2];
    [SIGNATURE, &[command, 0x11, 0, 12], &ends].concat()
}

/// The address by which the origin was told of the client of its last request.
fn told(origin: &Origin) -> Option<String> {
    origin.last().header("x-forwarded-for").map(str::to_owned)
}

/// What the proxy tells the origin about the client of a connection that begins with `header`. The client
/// claims to be 203.0.113.9.
fn told_after(proxy: &Proxy, origin: &Origin, header: &[u8]) -> Option<String> {
    let mut client = proxy.connect();
    client.send(header);
    let ask = proxy.post("/").header("X-Forwarded-For", "203.0.113.9");
    assert_eq!(ask.send_on(&mut client).status, 200);
    told(origin)
}

#[test]
fn all_addresses_are_served() {
    let origin = hello();
    let other = crate::support::free_port();
    let settings = format!(
        r#"listen = [{{ address = "{{listen}}" }}, {{ address = "127.0.0.1:{other}" }}, {{ address = "unix:web.sock" }}]"#
    );
    let proxy = Proxy::embedded(&origin, &settings);
    assert_eq!(proxy.get("/").send().text(), "hello");
    let other = SocketAddr::from((Ipv4Addr::LOCALHOST, other));
    assert_eq!(Ask::new(other, "GET", "/").send().text(), "hello");
    assert_eq!(proxy.get("/").send_on(&mut enter(&proxy)).text(), "hello");
}

#[test]
fn all_addresses_of_ipv6_are_those_of_ipv4_too() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        return; // A machine without IPv6.
    }
    let origin = hello();
    let port = crate::support::free_port();
    let proxy = Proxy::embedded(&origin, &format!("listen = [{{ address = \"[::]:{port}\" }}]"));
    for address in [(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()] {
        assert_eq!(Ask::new(address, "GET", "/").send().text(), "hello");
    }
    let clients = proxy.access_log(2).into_iter().map(|line| line["client"].clone());
    assert_eq!(clients.collect::<Vec<_>>(), ["127.0.0.1", "::1"]);
}

/// Lines of a shell that start the proxy where sockets of IPv6 fail as in a kernel without them.
const WITHOUT_IPV6: &str = r#"exec python3 -c '
import ctypes, os, struct, sys
socket = {"x86_64": 41, "aarch64": 198}[os.uname().machine]
steps = [(0x20, 0, 0, 0), (0x15, 0, 3, socket), (0x20, 0, 0, 16), (0x15, 0, 1, 10),
         (6, 0, 0, 0x50061), (6, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
for call in [(38, 1, 0, 0, 0), (22, 2, program, 0, 0)]:
    if libc.prctl(*call):
        sys.exit(os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
' "$0" run --config proxy.toml"#;

#[test]
fn where_the_kernel_has_no_ipv6_all_addresses_are_those_of_ipv4() {
    let origin = hello();
    let port = crate::support::free_port();
    let settings = format!("listen = [{{ address = \":{port}\" }}]");
    let proxy = Proxy::behind_with(WITHOUT_IPV6, &origin, &settings);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    assert_eq!(Ask::new(address, "GET", "/").send().text(), "hello");
    proxy.wait_for_complaint("this system has no IPv6");
}

#[test]
fn a_peer_on_a_unix_socket_has_no_address() {
    let origin = hello();
    let proxy =
        Proxy::embedded(&origin, &format!("{UNIX}\nclient.trusted_proxies = \"0.0.0.0/0\""));
    let ask = proxy.post("/").header("X-Forwarded-For", "203.0.113.9");
    assert_eq!(ask.send_on(&mut enter(&proxy)).status, 200);
    assert_eq!(told(&origin), None);
    let forwarded = origin.last().header("forwarded").map(str::to_owned);
    assert_eq!(forwarded.as_deref(), Some("for=unknown;host=shop.test;proto=http"));
    assert!(proxy.access_log(1)[0]["client"].is_null());
}

#[test]
fn a_peer_on_a_unix_socket_is_believed_where_it_is_trusted() {
    let origin = hello();
    let proxy = Proxy::embedded(&origin, &format!("{UNIX}\nclient.trusted_proxies = \"unix\""));
    let ask = proxy.post("/").header("X-Forwarded-For", "203.0.113.9");
    let ask = ask.header("X-Forwarded-Proto", "https");
    assert_eq!(ask.send_on(&mut enter(&proxy)).status, 200);
    assert_eq!(told(&origin).as_deref(), Some("203.0.113.9"));
    assert_eq!(origin.last().header("x-forwarded-proto"), Some("https"));
    assert_eq!(proxy.access_log(1)[0]["client"], "203.0.113.9");
}

#[test]
fn many_are_served_on_one_unix_socket_at_once() {
    let origin = hello();
    let proxy = Proxy::embedded(&origin, UNIX);
    let answers = at_once(24, |_| proxy.get("/").send_on(&mut enter(&proxy)).status);
    assert!(answers.iter().all(|status| *status == 200), "{answers:?}");
}

#[test]
fn a_unix_socket_has_deadlines_and_caps() {
    let origin = hello();
    let settings = "limits.head_timeout = \"2s\"\nlimits.connections = 1";
    let proxy = Proxy::embedded(&origin, &format!("{UNIX}\n{settings}"));
    assert!(enter(&proxy).is_closed(), "it says nothing");
    wait_until("its place is free", || proxy.metric("anteroom_connections") == 0.0);
    let mut first = enter(&proxy);
    assert_eq!(proxy.get("/").send_on(&mut first).status, 200);
    assert!(enter(&proxy).is_closed(), "there is one already");
    wait_until("it is counted", || proxy.metric("anteroom_connections_refused_total") == 1.0);
    assert_eq!(proxy.get("/").send_on(&mut first).status, 200);
}

#[test]
fn clients_without_an_address_are_not_counted_per_address() {
    let settings = "limits.connections = 5\nlimits.connections_per_address = 1\n\
                    limits.requests_at_once_per_address = 1\n\
                    limits.tunnels_per_address = 1";
    for (listen, header) in [(UNIX, ""), (BALANCED, "PROXY UNKNOWN\r\n")] {
        let origin = hello();
        let proxy = Proxy::embedded(&origin, &format!("{listen}\n{settings}"));
        let come = || {
            let mut client = if listen == UNIX { enter(&proxy) } else { proxy.connect() };
            client.send(header.as_bytes());
            client
        };
        let mut clients = [come(), come(), come()];
        for client in &mut clients {
            assert_eq!(proxy.get("/").send_on(client).status, 200);
        }
        assert_eq!(proxy.metric("anteroom_connections_refused_total"), 0.0);
    }
}

#[test]
fn the_file_has_its_mode_and_goes_at_the_end() {
    let gate = Gate::closed();
    let held = std::sync::Arc::clone(&gate);
    let origin = Origin::start(move |_: &Request| {
        held.pass();
        Reply::unstored("at last")
    });
    for (settings, mode) in [("", 0o660), (", mode = \"0600\"", 0o600)] {
        let settings = format!("listen = [{{ address = \"unix:./web.sock\"{settings} }}]");
        let mut proxy = Proxy::embedded(&origin, &settings);
        let file = fs::metadata(socket(&proxy)).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, mode);
        let asked = origin.count();
        let mut client = enter(&proxy);
        client.send(b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n");
        wait_until("the origin is asked", || origin.count() > asked);

        proxy.terminate();
        wait_until("the socket's file is gone", || !socket(&proxy).exists());
        gate.open();
        assert_eq!(client.answer().text(), "at last");
        assert_eq!(proxy.exit_code(), Some(0));
    }
}

#[test]
fn the_file_of_a_dead_process_is_replaced() {
    let origin = hello();
    let mut proxy = Proxy::embedded(&origin, UNIX);
    proxy.kill9();
    assert!(socket(&proxy).exists());
    proxy.restart();
    assert_eq!(proxy.get("/").send_on(&mut enter(&proxy)).status, 200);
}

/// Runs a proxy that is to end by itself.
fn run(listen: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let listen = format!("--listen={listen}");
    let rest = ["--origin=http://127.0.0.1:9", "--admin=off", "--store=embedded:./data"];
    anteroom().arg("run").arg(listen).args(rest).current_dir(&folder).output().unwrap()
}

#[test]
fn the_socket_of_a_running_process_is_left_alone() {
    let origin = hello();
    let proxy = Proxy::embedded(&origin, UNIX);
    let path = socket(&proxy);
    let refused = run(&format!("unix:{}", path.display()));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("web.sock") && said.contains("another process listens there"), "{said}");
    assert_eq!(proxy.get("/").send_on(&mut enter(&proxy)).status, 200);
}

#[test]
fn the_load_balancer_gives_the_client_address() {
    let origin = hello();
    let proxy = Proxy::embedded(&origin, BALANCED);
    for header in [
        &b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n"[..],
        b"PROXY TCP6 ::ffff:192.0.2.7 ::1 56324 443\r\n",
        &v2(0x21),
    ] {
        assert_eq!(told_after(&proxy, &origin, header).as_deref(), Some("192.0.2.7"));
    }
    let log = proxy.access_log(3);
    assert!(log.iter().all(|line| line["client"] == "192.0.2.7"), "{log:?}");
}

#[test]
fn a_header_may_come_in_pieces_or_with_requests_behind_it() {
    let origin = hello();
    let proxy = Proxy::embedded(&origin, BALANCED);
    let header = v2(0x21);
    let mut client = proxy.connect();
    for byte in &header {
        assert!(client.send(&[*byte]));
    }
    assert_eq!(proxy.post("/").send_on(&mut client).status, 200);
    assert_eq!(proxy.post("/").send_on(&mut client).status, 200);

    let mut client = proxy.connect();
    let request = b"POST / HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 0\r\n\r\n";
    client.send(&[&header[..], request, request].concat());
    assert_eq!((client.answer().status, client.answer().status), (200, 200));
    assert_eq!(told(&origin).as_deref(), Some("192.0.2.7"));
}

#[test]
fn a_load_balancer_must_begin_with_a_header() {
    let origin = hello();
    let proxy = Proxy::embedded(&origin, &format!("{BALANCED}\nlimits.head_timeout = \"2s\""));
    let refused = || proxy.metric("anteroom_proxy_headers_refused_total");
    let too_long = format!("PROXY UNKNOWN {}", "x".repeat(200));
    let mut count = 0.0;
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n"[..],
        b"PROXY TCP4 somebody 198.51.100.1 1 2\r\nGET / HTTP/1.1\r\nHost: shop.test\r\n\r\n",
        too_long.as_bytes(),
        &[SIGNATURE, &[0x21, 0x11, 0xff, 0xff]].concat(),
    ] {
        let mut client = proxy.connect();
        client.send(bytes);
        assert!(client.is_closed());
        count += 1.0;
        wait_until("it is counted", || refused() == count);
    }
    let mut client = proxy.connect();
    client.send(b"PROXY TCP4 192.0");
    assert!(client.is_closed(), "the rest does not come in time");
    wait_until("it is counted", || proxy.metric("anteroom_connections_timed_out_total") == 1.0);
    assert_eq!((origin.count(), refused()), (0, count));
}

#[test]
fn the_head_has_what_the_header_leaves_of_its_time() {
    let origin = hello();
    let proxy = Proxy::embedded(&origin, &format!("{BALANCED}\nlimits.head_timeout = \"300ms\""));
    let mut client = proxy.connect();
    client.send(&v2(0x21));
    assert!(client.is_closed());
    let mut client = proxy.connect();
    client.send(&[&v2(0x21)[..], b"GET / HTTP/1.1\r\n"].concat());
    assert!(client.is_closed());
    assert_eq!(origin.count(), 0);
}

#[test]
fn others_are_served_without_and_believed_nothing() {
    let origin = hello();
    let listen = r#"listen = [{ address = "{listen}", proxy_protocol.from = "192.0.2.0/24" }]"#;
    let proxy = Proxy::embedded(&origin, listen);
    assert_eq!(proxy.post("/").send().status, 200);
    assert_eq!(told(&origin).as_deref(), Some("127.0.0.1"));
    let mut client = proxy.connect();
    client.send(
        b"PROXY TCP4 192.0.2.7 198.51.100.1 1 2\r\nGET / HTTP/1.1\r\nHost: shop.test\r\n\r\n",
    );
    assert_eq!(client.answer().status, 400);
    assert_eq!(origin.count(), 1);
}

#[test]
fn connections_are_counted_for_the_client_that_is_told() {
    let origin = hello();
    let settings = "limits.connections = 4\nlimits.connections_per_address = 1\n\
                    client.trusted_proxies = \"127.0.0.1\"";
    let proxy = Proxy::embedded(&origin, &format!("{BALANCED}\n{settings}"));
    let come = |address: &str| {
        let mut client = proxy.connect();
        client.send(format!("PROXY TCP4 {address} 198.51.100.1 1 2\r\n").as_bytes());
        (proxy.get("/").try_send_on(&mut client).map(|answer| answer.status), client)
    };
    let first = come("192.0.2.7");
    let other = come("192.0.2.8");
    assert_eq!((first.0, other.0), (Some(200), Some(200)));
    assert_eq!(come("192.0.2.7").0, None);
    assert_eq!(proxy.metric("anteroom_connections_refused_total"), 1.0);
    drop(first);
    wait_until("there is room again", || come("192.0.2.7").0 == Some(200));
}

#[test]
fn trust_depends_on_the_announced_address_not_the_load_balancer() {
    let origin = hello();
    let trusted = "client.trusted_proxies = [\"127.0.0.1\", \"192.0.2.8\"]";
    let proxy = Proxy::embedded(&origin, &format!("{BALANCED}\n{trusted}"));
    for (header, expected) in [
        // A visitor, with an address that is not to be trusted.
        (&b"PROXY TCP4 192.0.2.7 198.51.100.1 1 2\r\n"[..], Some("192.0.2.7")),
        // A proxy of ours before the load balancer.
        (b"PROXY TCP4 192.0.2.8 198.51.100.1 1 2\r\n", Some("203.0.113.9")),
        // A client that the load balancer does not name.
        (b"PROXY UNKNOWN\r\n", None),
        (&[SIGNATURE, &[0x21, 0x00, 0, 0]].concat(), None),
        // The load balancer itself.
        (&v2(0x20), Some("203.0.113.9")),
    ] {
        assert_eq!(told_after(&proxy, &origin, header).as_deref(), expected, "{header:?}");
    }
}

#[test]
fn a_load_balancer_may_come_by_a_unix_socket() {
    let origin = hello();
    let listen = r#"listen = [{ address = "unix:./web.sock", proxy_protocol.from = "unix" }]"#;
    let proxy = Proxy::embedded(&origin, listen);
    let mut client = enter(&proxy);
    client.send(&v2(0x21));
    assert_eq!(proxy.post("/").send_on(&mut client).status, 200);
    assert_eq!(told(&origin).as_deref(), Some("192.0.2.7"));
}

#[test]
fn a_connection_without_its_header_does_not_hold_up_the_end() {
    let origin = hello();
    let mut proxy = Proxy::embedded(&origin, BALANCED);
    let mut client = proxy.connect();
    client.send(b"PROXY ");
    wait_until("it is there", || proxy.metric("anteroom_connections") == 1.0);
    proxy.terminate();
    assert!(client.is_closed());
    assert_eq!(proxy.exit_code(), Some(0));
}

#[test]
fn sockets_that_systemd_opened_are_served() {
    let origin = hello();
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = tcp.local_addr().unwrap();
    let proxy = Proxy::inheriting(&origin, tcp.into(), r#"listen = [{ address = "systemd" }]"#);
    let answers = at_once(24, |_| Ask::new(address, "GET", "/").send().status);
    assert!(answers.iter().all(|status| *status == 200), "{answers:?}");
    drop(proxy);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("web.sock");
    let unix = UnixListener::bind(&path).unwrap();
    let listen = r#"listen = [{ address = "systemd:web" }]"#;
    let mut proxy = Proxy::inheriting(&origin, unix.into(), listen);
    assert_eq!(proxy.get("/").send_on(&mut Client::unix(&path)).status, 200);
    proxy.terminate();
    assert_eq!(proxy.exit_code(), Some(0));
    assert!(path.exists(), "the file is systemd's");
}

#[test]
fn missing_passed_sockets_are_reported() {
    for name in ["systemd", "systemd:web"] {
        let refused = run(name);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains(name) && said.contains("passed no such socket"), "{said}");
    }
}

#[test]
fn an_old_client_on_a_unix_socket_is_told_of_a_body_that_breaks_off() {
    let half = Reply::status("200 OK").header("Transfer-Encoding", "chunked");
    let origin = Origin::always(half.bytes("4\r\nhalf\r\n").closing());
    let proxy = Proxy::embedded(&origin, UNIX);
    let mut client = enter(&proxy);
    client.send(b"GET / HTTP/1.0\r\nHost: shop.test\r\n\r\n");
    // A Unix socket knows no reset: the end that it would take for the body's does not come.
    assert!(client.try_answer("GET").is_none_or(|answer| !answer.body.whole));
}
