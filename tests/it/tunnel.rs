//! Tunnels, byte for byte: raw sockets on both sides, and what each is told.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use ::http::Request;
use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use tokio::runtime::Runtime;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::support::proxy::{Proxy, Storage};
use crate::support::{DEADLINE, wait_until};

/// RFC 6455 §1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// An origin that a case plays itself.
struct Stage {
    listener: TcpListener,
    proxy: Proxy,
}

impl Stage {
    fn set(settings: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, proxy: Proxy::before(address, &Storage::Embedded, settings) }
    }

    /// The next connection to the origin, and the head of the request on it.
    fn asked(&self) -> (End, String) {
        let mut came = None;
        wait_until("the origin is asked", || {
            came = self.listener.accept().ok();
            came.is_some()
        });
        let mut end = End::of(came.unwrap().0);
        let head = end.head();
        (end, head)
    }

    /// Whether the origin has not been asked since.
    fn is_left_alone(&self) -> bool {
        self.listener.accept().is_err()
    }

    /// A client that has asked for `protocol`, saying `early` right behind.
    fn client(&self, protocol: &str, early: &str) -> End {
        let mut client = End::to(self.proxy.address());
        let websocket = format!("Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n");
        let lines = if protocol == "websocket" { &websocket } else { "" };
        client.send(&format!(
            "GET /chat HTTP/1.1\r\nHost: shop.test\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\
             {lines}\r\n{early}"
        ));
        client
    }

    /// Both ends of a tunnel.
    fn tunnel(&self, protocol: &str) -> (End, End) {
        let mut client = self.client(protocol, "");
        let (mut origin, _) = self.asked();
        origin.send(&agreed(protocol));
        assert!(client.head().starts_with("HTTP/1.1 101 "));
        (client, origin)
    }

    fn ended(&self, by: &str) -> f64 {
        self.proxy.metric(&format!("anteroom_tunnels_ended_total{{by=\"{by}\"}}"))
    }

    /// That one has ended is counted before its place is free.
    fn wait_until_none_is_open(&self) {
        wait_until("no tunnel is open", || self.proxy.metric("anteroom_tunnels") == 0.0);
    }
}

/// The 101 that a tunnel begins with.
fn agreed(protocol: &str) -> String {
    let accept = format!("Sec-WebSocket-Accept: {ACCEPT}\r\n");
    let accept = if protocol == "websocket" { &accept } else { "" };
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n{accept}\r\n"
    )
}

/// One end of a connection.
struct End(TcpStream);

impl End {
    fn of(stream: TcpStream) -> Self {
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        Self(stream)
    }

    fn to(address: SocketAddr) -> Self {
        Self::of(TcpStream::connect(address).unwrap())
    }

    fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }

    /// Up to the empty line behind a head.
    fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("a whole head");
            head.push(byte[0]);
        }
        String::from_utf8(head).unwrap()
    }

    /// Exactly so many bytes.
    fn read(&mut self, length: usize) -> String {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// All up to an orderly end.
    fn rest(&mut self) -> String {
        let mut text = String::new();
        self.0.read_to_string(&mut text).expect("an orderly end");
        text
    }

    fn shut(&self) {
        self.0.shutdown(Shutdown::Write).unwrap();
    }

    /// Leaves with a reset.
    fn reset(self) {
        socket2::SockRef::from(&self.0).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }

    /// Whether the other side has ended the connection, and how: `reset` or in order.
    fn is_reset(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => false,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it does not end");
                true
            }
        }
    }
}

#[test]
fn both_say_what_they_like_and_end_one_after_the_other() {
    let stage = Stage::set("");
    let (mut client, mut origin) = stage.tunnel("x-chat/2");
    client.send("GET / HTTP/1.1\r\n\r\n");
    assert_eq!(origin.read(18), "GET / HTTP/1.1\r\n\r\n");
    origin.send("\0\u{1}HTTP/1.1 400 no\r\n\r\n");
    assert_eq!(client.read(21), "\0\u{1}HTTP/1.1 400 no\r\n\r\n");
    client.send("the last");
    client.shut();
    assert_eq!(origin.rest(), "the last");
    origin.send("and what comes of it");
    origin.shut();
    assert_eq!(client.rest(), "and what comes of it");

    wait_until("the tunnel has ended", || stage.ended("client") == 1.0);
    stage.wait_until_none_is_open();
    assert_eq!(stage.proxy.metric("anteroom_tunnels_opened_total"), 1.0);
    assert_eq!(stage.proxy.metric("anteroom_tunnel_received_bytes_total"), 26.0);
    assert_eq!(stage.proxy.metric("anteroom_tunnel_sent_bytes_total"), 41.0);
    assert_eq!(stage.proxy.metric("anteroom_requests_total{status=\"1xx\"}"), 1.0);
    let line = &stage.proxy.access_log(1)[0];
    assert_eq!(line["status"], 101);
    assert_eq!((&line["received"], &line["bytes"]), (&26.into(), &41.into()));
    assert_eq!(line["reason"], "upgrade");
    assert!(line["aborted"].is_null(), "{line}");
}

#[test]
fn nothing_that_is_said_early_is_lost() {
    let stage = Stage::set("");
    let mut client = stage.client("x", "before the answer");
    let (mut origin, _) = stage.asked();
    origin.send(&format!("HTTP/1.1 103 Early Hints\r\n\r\n{}right behind it", agreed("x")));
    assert!(client.head().starts_with("HTTP/1.1 101 "));
    assert_eq!(client.read(15), "right behind it");
    assert_eq!(origin.read(17), "before the answer");
    origin.shut();
    assert_eq!(client.rest(), "");
    drop(client);
    assert_eq!(origin.rest(), "");
    wait_until("the tunnel has ended", || stage.ended("origin") == 1.0);
}

#[test]
fn a_client_that_does_not_read_delays_only_its_own_tunnel() {
    let stage = Stage::set("");
    let (mut client, origin) = stage.tunnel("x");
    let (mut reader, mut writer) = (origin.0.try_clone().unwrap(), origin.0);
    let writing = std::thread::spawn(move || {
        let part = [b'x'; 64 << 10];
        (0..512).for_each(|_| writer.write_all(&part).unwrap());
        writer.shutdown(Shutdown::Write).unwrap();
    });
    // The other way goes on.
    client.send("hello");
    let mut five = [0; 5];
    reader.read_exact(&mut five).unwrap();
    assert_eq!(&five, b"hello");
    let (mut other, mut its_origin) = stage.tunnel("x");
    other.send("hi");
    assert_eq!(its_origin.read(2), "hi");
    assert!(stage.proxy.peak_memory() < 200 << 10, "{} KiB", stage.proxy.peak_memory());
    assert_eq!(client.rest().len(), 32 << 20);
    writing.join().unwrap();
}

#[test]
fn an_origin_that_breaks_off_is_not_taken_for_one_that_has_ended() {
    let stage = Stage::set("");
    let (mut client, mut origin) = stage.tunnel("x");
    origin.send("half of i");
    assert_eq!(client.read(9), "half of i");
    origin.reset();
    assert!(client.is_reset());
    wait_until("the tunnel has ended", || stage.ended("origin") == 1.0);
    assert_eq!(stage.proxy.access_log(1)[0]["aborted"], true);

    // WebSocket says itself where it ends, and its last words must not be lost.
    let (mut client, mut origin) = stage.tunnel("websocket");
    origin.send("the last");
    origin.reset();
    assert!(client.rest().ends_with("the last") || stage.ended("origin") == 2.0);
}

#[test]
fn a_client_that_vanishes_ends_its_origin_s_connection() {
    let stage = Stage::set("");
    let (client, mut origin) = stage.tunnel("websocket");
    client.reset();
    assert_eq!(origin.rest(), "");
    wait_until("the tunnel has ended", || stage.ended("client") == 1.0);
    stage.wait_until_none_is_open();
    wait_until("the client's is gone", || stage.proxy.metric("anteroom_connections") == 0.0);
}

#[test]
fn a_client_that_leaves_before_the_answer_leaves_no_tunnel() {
    let stage = Stage::set("");
    let client = stage.client("websocket", "");
    let (mut origin, _) = stage.asked();
    drop(client);
    assert_eq!(origin.rest(), "");
    stage.wait_until_none_is_open();
}

#[test]
fn a_tunnel_on_which_nothing_moves_is_closed() {
    let stage = Stage::set("limits.tunnel_idle = \"2s\"\nlimits.idle_timeout = \"1s\"");
    let (mut client, mut origin) = stage.tunnel("x");
    for word in ["one", "two"] {
        client.send(word);
        assert_eq!(origin.read(3), word);
    }
    assert!(client.is_reset());
    assert_eq!(origin.rest(), "");
    wait_until("the tunnel has ended", || stage.ended("idle") == 1.0);
}

#[test]
fn a_websocket_of_which_one_side_has_ended_is_over_soon() {
    let stage = Stage::set("limits.stall_timeout = \"200ms\"");
    let (client, mut origin) = stage.tunnel("websocket");
    client.shut();
    assert_eq!(origin.rest(), "");
    wait_until("the tunnel has ended", || stage.ended("idle") == 1.0);
}

/// However long it was silent before.
#[test]
fn a_websocket_of_which_one_side_has_ended_may_still_be_answered() {
    let stage = Stage::set("limits.stall_timeout = \"3s\"");
    let (mut client, mut origin) = stage.tunnel("websocket");
    let since = Instant::now();
    wait_until("it was silent for longer than others may stall", || since.elapsed().as_secs() > 3);
    client.shut();
    assert_eq!(origin.rest(), "");
    origin.send("the last words");
    origin.shut();
    assert_eq!(client.rest(), "the last words");
}

#[test]
fn a_tunnel_with_a_side_that_never_reads_is_ended() {
    let stage = Stage::set("limits.stall_timeout = \"300ms\"");
    let (mut client, _origin) = stage.tunnel("x");
    let writing = std::thread::spawn(move || {
        let part = [b'x'; 64 << 10];
        (0..1_024).all(|_| client.0.write_all(&part).is_ok())
    });
    wait_until("the tunnel has ended", || stage.ended("idle") == 1.0);
    assert!(!writing.join().unwrap(), "all was taken");
}

#[test]
fn no_more_than_the_bound_are_open() {
    let stage = Stage::set("limits.tunnels = 1");
    let (mut client, mut origin) = stage.tunnel("x");
    let mut another = stage.client("x", "");
    let answer = another.rest();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("\r\nretry-after: 5\r\n"), "{answer}");
    wait_until("it is counted", || stage.proxy.metric("anteroom_tunnels_refused_total") == 1.0);
    client.send("still");
    assert_eq!(origin.read(5), "still");
    drop((client, origin));
    stage.wait_until_none_is_open();
    stage.tunnel("x");
}

#[test]
fn no_address_has_more_than_its_part_of_them() {
    let settings = "limits.tunnels_per_address = 1\nclient.trusted_proxies = \"127.0.0.1\"";
    let stage = Stage::set(settings);
    let ask = |by: &str| {
        let mut client = End::to(stage.proxy.address());
        client.send(&format!(
            "GET /chat HTTP/1.1\r\nHost: shop.test\r\nConnection: Upgrade\r\nUpgrade: x\r\n{by}\r\n"
        ));
        client
    };
    let one = "X-Forwarded-For: 192.0.2.1\r\n";
    let mut first = ask(one);
    let (mut origin, _) = stage.asked();
    origin.send(&agreed("x"));
    assert!(first.head().starts_with("HTTP/1.1 101 "));
    let refused = ask(one).rest();
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    wait_until("it is counted", || stage.proxy.metric("anteroom_tunnels_refused_total") == 1.0);
    // Others have theirs, and a proxy of ours that does not name its client is not counted.
    let others: Vec<_> = ["X-Forwarded-For: 192.0.2.2\r\n", "", ""]
        .into_iter()
        .map(|by| {
            let mut client = ask(by);
            let (mut origin, _) = stage.asked();
            origin.send(&agreed("x"));
            assert!(client.head().starts_with("HTTP/1.1 101 "), "{by}");
            (client, origin)
        })
        .collect();
    drop((first, origin));
    wait_until("its place is free", || stage.proxy.metric("anteroom_tunnels") == 3.0);
    drop(others);
    let mut again = ask(one);
    let (mut origin, _) = stage.asked();
    origin.send(&agreed("x"));
    assert!(again.head().starts_with("HTTP/1.1 101 "));
}

#[test]
fn a_tunnel_goes_on_while_the_proxy_drains_and_is_cut_then() {
    let mut stage = Stage::set("limits.drain_timeout = \"3s\"");
    let (mut client, mut origin) = stage.tunnel("websocket");
    stage.proxy.terminate();
    wait_until("new connections are refused", || {
        TcpStream::connect(stage.proxy.address()).is_err()
    });
    client.send("still here");
    assert_eq!(origin.read(10), "still here");
    assert_eq!(client.rest(), "");
    assert_eq!(stage.proxy.exit_code(), Some(0));
    let line = &stage.proxy.access_log(1)[0];
    assert_eq!((&line["status"], &line["received"]), (&101.into(), &10.into()));
}

#[test]
fn fields_for_the_proxy_are_removed_from_the_upgrade_response() {
    let stage = Stage::set("session.mint = true");
    let mut client = stage.client("websocket", "");
    let (mut origin, asked) = stage.asked();
    assert!(asked.contains("\r\nx-anteroom-session: none\r\n"), "{asked}");
    origin.send(&agreed("websocket").replace(
        "\r\n\r\n",
        "\r\nAnteroom-Login: root\r\nX-Anteroom-User: root\r\nKeep-Alive: x\r\nConnection: X-Hop\r\n\
         X-Hop: 1\r\nContent-Length: 0\r\nSec-WebSocket-Protocol: chat\r\n\r\n",
    ));
    let head = client.head().to_lowercase();
    let mut lines: Vec<_> = head.split("\r\n").filter(|line| !line.starts_with("date:")).collect();
    lines.sort_unstable();
    assert_eq!(
        lines.join("\n").trim(),
        format!(
            "connection: upgrade\nhttp/1.1 101 switching protocols\nsec-websocket-accept: {}\n\
             sec-websocket-protocol: chat\nupgrade: websocket",
            ACCEPT.to_lowercase()
        )
    );
}

#[test]
fn an_app_that_has_no_part_in_sessions_gives_none_with_its_handshake() {
    let sets = "\r\nSet-Cookie: login=a-token; Path=/\r\nSet-Cookie: theme=dark\r\n\
                Clear-Site-Data: \"cookies\"\r\n\r\n";
    let log_in = "origins.other = { url = \"http://127.0.0.1:1\", sessions = true }";
    for is_apart in [true, false] {
        let sessions = !is_apart;
        let stage =
            Stage::set(&format!("session.mint = true\norigin.sessions = {sessions}\n{log_in}"));
        let mut client = stage.client("websocket", "");
        let (mut origin, _) = stage.asked();
        origin.send(&agreed("websocket").replace("\r\n\r\n", sets));
        let head = client.head().to_lowercase();
        assert!(head.contains("set-cookie: theme=dark"), "{head}");
        for line in ["set-cookie: login=", "clear-site-data:"] {
            assert_eq!(head.contains(line), !is_apart, "{head}");
        }
    }
}

/// An answer to a WebSocket's handshake, and what the client gets.
struct Row {
    name: &'static str,
    answer: String,
    got: u16,
}

fn row(name: &'static str, answer: impl Into<String>, got: u16) -> Row {
    Row { name, answer: answer.into(), got }
}

#[test]
fn only_the_very_protocol_is_switched_to() {
    let right = agreed("websocket");
    let with = |line: &str| right.replacen("\r\n", &format!("\r\n{line}\r\n"), 1);
    let without = |line: &str| right.replace(line, "");
    let rows = [
        row("as it has to be", right.clone(), 101),
        row(
            "in other cases",
            right.replace(": Upgrade", ": UPGRADE").replace("websocket", "WebSocket"),
            101,
        ),
        row("of no length", with("Content-Length: 0"), 101),
        row("another key's", right.replace(ACCEPT, "AAAAAAAAAAAAAAAAAAAAAAAAAAA="), 502),
        row("no key's", without(&format!("Sec-WebSocket-Accept: {ACCEPT}\r\n")), 502),
        row("two keys'", with(&format!("Sec-WebSocket-Accept: {ACCEPT}")), 502),
        row("another protocol", right.replace("websocket", "h2c"), 502),
        row("one more", with("Upgrade: x"), 502),
        row("none", without("Upgrade: websocket\r\n"), 502),
        row("not of this connection", without("Connection: Upgrade\r\n"), 502),
        row("of HTTP/1.0", right.replace("HTTP/1.1", "HTTP/1.0"), 502),
        row("with a length", with("Content-Length: 5") + "hello", 502),
        row("with chunks", with("Transfer-Encoding: chunked") + "0\r\n\r\n", 502),
        row(
            "another version of it",
            "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 0\r\n\r\n",
            426,
        ),
        row(
            "a page",
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
            200,
        ),
        row("a page up to the end", "HTTP/1.1 200 OK\r\n\r\nhello", 200),
        row("nothing", "", 502),
        row("half a head", "HTTP/1.1 101 Switching Protocols\r\nUpgr", 502),
    ];
    let stage = Stage::set("");
    let mut wrong = Vec::new();
    for Row { name, answer, got } in rows {
        let hidden = "GET /hidden HTTP/1.1\r\nHost: shop.test\r\n\r\n";
        let mut client = stage.client("websocket", hidden);
        let (mut origin, _) = stage.asked();
        origin.send(&answer);
        origin.shut();
        let status: u16 = client.head()[9..12].parse().unwrap();
        let tunnelled = if status == 101 { hidden } else { "" };
        // Where there is no tunnel the connection ends, and what was said early goes nowhere.
        client.shut();
        let rest = client.rest();
        let heard = origin.rest();
        if status != got
            || heard != tunnelled
            || rest.contains("HTTP/1.1")
            || !stage.is_left_alone()
        {
            wrong.push(format!("{name}: {status}, {heard:?}, {rest:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn cached_pages_are_served_beside_a_tunnel() {
    let stage = Stage::set("threads = 1");
    let (mut client, mut origin) = stage.tunnel("websocket");
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\n\
                Content-Length: 4\r\n\r\npage";
    let mut asking = stage.proxy.get("/page").start();
    let (mut filling, _) = stage.asked();
    filling.send(page);
    assert_eq!(asking.answer().text(), "page");
    for _ in 0..100 {
        client.send("ping");
        assert_eq!(origin.read(4), "ping");
        assert!(stage.proxy.get("/page").send().is_hit());
    }
    // A tunnel at the very URL of the page is asked for, and takes nothing from it.
    let mut another = End::to(stage.proxy.address());
    another
        .send("GET /page HTTP/1.1\r\nHost: shop.test\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
    let (mut its_origin, _) = stage.asked();
    its_origin.send(&agreed("x"));
    assert!(another.head().starts_with("HTTP/1.1 101 "));
    assert!(stage.proxy.get("/page").send().is_hit());
}

#[test]
fn the_origin_is_given_the_user_that_opens_a_tunnel() {
    let stage = Stage::set("session.mint = true");
    let mut asking = stage.proxy.post("/login").start();
    let (mut origin, _) = stage.asked();
    origin.send(
        "HTTP/1.1 303 See Other\r\nLocation: /\r\nAnteroom-Login: ada\r\nContent-Length: 0\r\n\r\n",
    );
    let token = asking.answer().cookie("login").expect("a session");
    let mut client = End::to(stage.proxy.address());
    client.send(&format!(
        "GET /chat HTTP/1.1\r\nHost: shop.test\r\nConnection: Upgrade\r\nUpgrade: x\r\n\
         Cookie: login={token}\r\nX-Anteroom-User: root\r\n\r\n"
    ));
    let (mut origin, asked) = stage.asked();
    assert!(asked.contains("\r\nx-anteroom-user: ada\r\n"), "{asked}");
    assert!(asked.contains("\r\nx-anteroom-session: known\r\n"), "{asked}");
    assert!(!asked.contains("root"), "{asked}");
    origin.send(&agreed("x"));
    assert!(client.head().starts_with("HTTP/1.1 101 "));
}

#[test]
fn a_reload_leaves_tunnels_alone_and_changes_the_bound() {
    let stage = Stage::set("limits.tunnels = 1");
    let (mut client, mut origin) = stage.tunnel("x");
    stage.proxy.edit(|text| text.replace("limits.tunnels = 1", "limits.tunnels = 2"));
    assert!(stage.proxy.reload());
    client.send("still");
    assert_eq!(origin.read(5), "still");
    let (mut another, mut its_origin) = stage.tunnel("x");
    another.send("hi");
    assert_eq!(its_origin.read(2), "hi");
    let mut third = stage.client("x", "");
    assert!(third.rest().starts_with("HTTP/1.1 503 "));
}

/// A client of HTTP/2 that asks for a tunnel; its connection runs on a thread of its own.
struct Streams {
    sender: h2::client::SendRequest<Bytes>,
    runtime: Runtime,
}

impl Streams {
    fn open(address: SocketAddr) -> Self {
        let runtime =
            || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (told, hears) = std::sync::mpsc::channel();
        let beside = runtime();
        std::thread::spawn(move || {
            beside.block_on(async {
                let socket = tokio::net::TcpStream::connect(address).await.unwrap();
                let (sender, connection) = h2::client::handshake(socket).await.unwrap();
                told.send(sender).unwrap();
                // Its end is seen on its streams.
                drop(connection.await);
            });
        });
        Self { sender: hears.recv_timeout(DEADLINE).unwrap(), runtime: runtime() }
    }

    /// Asks for a protocol by an extended CONNECT.
    fn ask(&self, protocol: &'static str) -> (ResponseFuture, SendStream<Bytes>) {
        self.ask_at("/chat", protocol)
    }

    /// The same of another path.
    fn ask_at(&self, path: &str, protocol: &'static str) -> (ResponseFuture, SendStream<Bytes>) {
        let mut sender = self.runtime.block_on(self.sender.clone().ready()).unwrap();
        wait_until("extended CONNECT is offered", || sender.is_extended_connect_protocol_enabled());
        let mut request = Request::builder()
            .method("CONNECT")
            .uri(format!("http://shop.test{path}"))
            .header("sec-websocket-version", "13")
            .header("sec-websocket-protocol", "chat")
            .body(())
            .unwrap();
        request.extensions_mut().insert(h2::ext::Protocol::from_static(protocol));
        sender.send_request(request, false).unwrap()
    }

    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let bounded = async { tokio::time::timeout(DEADLINE, work).await };
        self.runtime.block_on(bounded).expect("within the deadline")
    }

    /// All that a stream still brings.
    fn rest(&self, stream: &mut RecvStream) -> String {
        let mut all = Vec::new();
        while let Some(part) = self.run(stream.data()) {
            let part = part.unwrap();
            stream.flow_control().release_capacity(part.len()).unwrap();
            all.extend_from_slice(&part);
        }
        String::from_utf8(all).unwrap()
    }
}

/// The 101 to a handshake with this key.
fn agreed_with(head: &str) -> String {
    let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap();
    agreed("websocket").replace(ACCEPT, &derive_accept_key(key.as_bytes()))
}

#[test]
fn a_stream_of_http2_is_a_websocket_to_an_origin_of_http1() {
    let stage = Stage::set("");
    let client = Streams::open(stage.proxy.address());
    let (answer, mut up) = client.ask("websocket");
    let (mut origin, asked) = stage.asked();
    assert!(asked.starts_with("GET /chat HTTP/1.1\r\n"), "{asked}");
    for line in ["host: shop.test", "upgrade: websocket", "sec-websocket-protocol: chat"] {
        assert!(asked.contains(&format!("\r\n{line}\r\n")), "{line} in {asked}");
    }
    origin.send(&format!("{}early", agreed_with(&asked)));
    let answer = client.run(answer).unwrap();
    assert_eq!(answer.status(), 200);
    for name in ["connection", "upgrade", "sec-websocket-accept"] {
        assert!(!answer.headers().contains_key(name), "{name}");
    }
    let mut down = answer.into_body();
    up.send_data("hello".into(), false).unwrap();
    assert_eq!(origin.read(5), "hello");
    // Pages are served beside it.
    let mut asking = stage.proxy.get("/page").start();
    let (mut filling, _) = stage.asked();
    filling.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage");
    assert_eq!(asking.answer().text(), "page");
    up.send_data("the last".into(), true).unwrap();
    assert_eq!(origin.rest(), "the last");
    origin.send(&"x".repeat(1 << 20));
    origin.shut();
    assert_eq!(client.rest(&mut down), format!("early{}", "x".repeat(1 << 20)));
    wait_until("the tunnel has ended", || stage.ended("client") == 1.0);
    stage.wait_until_none_is_open();
}

#[test]
fn only_a_websocket_opens_a_stream() {
    let stage = Stage::set("");
    let client = Streams::open(stage.proxy.address());
    let (answer, _up) = client.ask("x-chat");
    assert_eq!(client.run(answer).unwrap().status(), 501);
    assert!(stage.is_left_alone());
    for (said, got) in [
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", 403),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno", 502),
        (&agreed("websocket"), 502),
    ] {
        let (answer, _up) = client.ask("websocket");
        let (mut origin, _) = stage.asked();
        origin.send(said);
        assert_eq!(client.run(answer).unwrap().status(), got, "{said}");
    }
    stage.wait_until_none_is_open();
}

#[test]
fn a_stream_that_is_reset_ends_its_origin_s_connection() {
    let stage = Stage::set("");
    let client = Streams::open(stage.proxy.address());
    let (answer, mut up) = client.ask("websocket");
    let (mut origin, asked) = stage.asked();
    origin.send(&agreed_with(&asked));
    assert_eq!(client.run(answer).unwrap().status(), 200);
    up.send_reset(h2::Reason::CANCEL);
    assert_eq!(origin.rest(), "");
    drop(origin);
    wait_until("the tunnel has ended", || stage.ended("client") == 1.0);
}

#[test]
fn a_stream_that_is_reset_before_the_answer_leaves_no_tunnel() {
    let stage = Stage::set("");
    let client = Streams::open(stage.proxy.address());
    let (_answer, mut up) = client.ask("websocket");
    let (mut origin, _) = stage.asked();
    up.send_reset(h2::Reason::CANCEL);
    assert_eq!(origin.rest(), "");
    stage.wait_until_none_is_open();
}

#[test]
fn an_end_that_cannot_be_told_is_not_waited_for_long() {
    let stage = Stage::set("limits.stall_timeout = \"300ms\"");
    let client = Streams::open(stage.proxy.address());
    let (answer, _up) = client.ask("websocket");
    let (mut origin, asked) = stage.asked();
    origin.send(&agreed_with(&asked));
    // Its window is never opened again.
    let _down = client.run(answer).unwrap().into_body();
    // More than the window, and no more than lies behind it while the client does not read.
    origin.send(&"x".repeat(65_535 + 1_000));
    wait_until("all is taken", || {
        stage.proxy.metric("anteroom_tunnel_sent_bytes_total") == 66_535.0
    });
    origin.shut();
    wait_until("the tunnel has ended", || stage.ended("idle") == 1.0);
}

#[test]
fn a_websocket_is_no_view_and_no_answer_of_ours() {
    let settings =
        "visitor.endpoints = [\"me\", \"top\"]\n[[route]]\nmatch.path = \"/chat/{item}\"";
    let stage = Stage::set(settings);
    let client = Streams::open(stage.proxy.address());
    let (answer, _up) = client.ask_at("/_anteroom/me", "websocket");
    assert_eq!(client.run(answer).unwrap().status(), 405, "2xx would mean that it is open");
    let (answer, _up) = client.ask_at("/chat/7", "websocket");
    let (mut origin, asked) = stage.asked();
    origin.send(&agreed_with(&asked));
    assert_eq!(client.run(answer).unwrap().status(), 200);
    // What is viewed afterwards is counted afterwards.
    let mut asking = stage.proxy.get("/chat/8").start();
    let (mut its_origin, _) = stage.asked();
    its_origin.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(asking.answer().text(), "hi");
    let top = || stage.proxy.get("/_anteroom/top").send().text();
    wait_until("the view is counted", || top().contains("\"8\""));
    assert!(!top().contains("\"7\""), "{}", top());
}
