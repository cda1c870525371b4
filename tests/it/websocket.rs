//! WebSocket through the proxy: a real client and a real server of it, which know nothing of a proxy.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, frame::coding::CloseCode};
use tokio_tungstenite::tungstenite::{Error, Message, WebSocket, accept_hdr, client};

use crate::support::haproxy::Haproxy;
use crate::support::proxy::{Proxy, Storage};
use crate::support::{DEADLINE, at_once, wait_until};

/// Messages that each side sends while the other does.
const MANY: usize = 1_000;

/// An app that says everything back, and at `/news` says something of its own first.
pub(crate) struct Echo {
    pub(crate) address: SocketAddr,
    stopped: Arc<AtomicBool>,
}

impl Echo {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let stopped = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stopped);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let stream = stream.unwrap();
                stream.set_read_timeout(Some(DEADLINE)).unwrap();
                // An end of any kind is the end of a conversation.
                thread::spawn(move || drop(converse(stream)));
            }
        });
        Self { address, stopped }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that waits in accept.
        drop(TcpStream::connect(self.address));
    }
}

#[expect(clippy::result_large_err, reason = "the library's callback is so")]
fn converse(stream: TcpStream) -> Result<(), Box<Error>> {
    let mut path = String::new();
    let read_path = |request: &Request, answer: Response| {
        request.uri().path().clone_into(&mut path);
        Ok(answer)
    };
    let Ok(mut socket) = accept_hdr(stream, read_path) else { return Ok(()) };
    for number in (0..MANY).filter(|_| path == "/news") {
        socket.write(Message::text(format!("news {number}")))?;
    }
    socket.flush()?;
    loop {
        match socket.read()? {
            message @ (Message::Text(_) | Message::Binary(_)) => socket.send(message)?,
            // What it answers to a ping or a close goes out with the next turn.
            _ => socket.flush()?,
        }
    }
}

/// A browser's socket at a path of the site.
fn open(proxy: &Proxy, path: &str) -> WebSocket<TcpStream> {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    client(format!("ws://shop.test{path}"), stream).expect("a handshake").0
}

fn proxy_before(echo: &Echo) -> Proxy {
    Proxy::before(echo.address, &Storage::Embedded, "")
}

#[test]
fn haproxy_sends_websockets_over_http2_to_a_proxy_that_trusts_it() {
    let echo = Echo::start();
    for (settings, is_trusted) in [("", false), ("client.trusted_proxies = \"127.0.0.1\"", true)] {
        let proxy = Proxy::before(echo.address, &Storage::Embedded, settings);
        let haproxy = Haproxy::with_config(&format!(
            "defaults\n mode http\n timeout connect 5s\n timeout client 1h\n timeout server 1h\n\
             frontend http\n bind :80\n default_backend proxies\n\
             backend proxies\n server a {} proto h2\n",
            proxy.address()
        ));
        let stream = TcpStream::connect(haproxy.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let opened = client("ws://shop.test/chat", stream);
        assert_eq!(opened.is_ok(), is_trusted, "{settings}");
        let Ok((mut socket, _)) = opened else {
            assert_eq!(proxy.access_log(1)[0]["status"], 421);
            continue;
        };
        socket.send(Message::text("hello")).unwrap();
        assert_eq!(socket.read().unwrap(), Message::text("hello"));
    }
}

#[test]
fn messages_of_all_kinds_go_both_ways() {
    let echo = Echo::start();
    let proxy = proxy_before(&echo);
    let mut socket = open(&proxy, "/chat");
    for message in [
        Message::text("hello"),
        Message::text("Grüße"),
        Message::text(""),
        Message::binary(vec![0, 255, 13, 10]),
        Message::binary(vec![7; 1 << 20]),
    ] {
        socket.send(message.clone()).unwrap();
        assert!(socket.read().unwrap() == message);
    }
    socket.send(Message::Ping("are you there".into())).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Pong("are you there".into()));
}

#[test]
fn a_message_in_many_parts_arrives_whole() {
    let echo = Echo::start();
    let proxy = proxy_before(&echo);
    let mut socket = open(&proxy, "/chat");
    let whole: Vec<u8> = (0..1 << 20).map(|_| fastrand::u8(..)).collect();
    for (number, part) in whole.chunks(1_000).enumerate() {
        let kind = if number == 0 { Data::Binary } else { Data::Continue };
        let is_last = (number + 1) * 1_000 >= whole.len();
        let frame = Frame::message(part.to_vec(), OpCode::Data(kind), is_last);
        socket.send(Message::Frame(frame)).unwrap();
    }
    assert!(socket.read().unwrap().into_data() == whole);
}

#[test]
fn many_small_messages_go_both_ways_at_once_on_many_sockets() {
    let echo = Echo::start();
    let proxy = proxy_before(&echo);
    at_once(8, |_| {
        let mut socket = open(&proxy, "/news");
        for number in 0..MANY {
            socket.write(Message::text(format!("mine {number}"))).unwrap();
        }
        socket.flush().unwrap();
        let (mut news, mut mine) = (0, 0);
        while news + mine < 2 * MANY {
            let text = socket.read().unwrap().into_text().unwrap();
            match text.split_once(' ').unwrap() {
                ("news", number) => {
                    assert_eq!(number.parse(), Ok(news));
                    news += 1;
                }
                (_, number) => {
                    assert_eq!(number.parse(), Ok(mine));
                    mine += 1;
                }
            }
        }
        assert_eq!((news, mine), (MANY, MANY));
    });
    assert_eq!(proxy.metric("anteroom_tunnels_opened_total"), 8.0);
    wait_until("all have ended", || proxy.metric("anteroom_tunnels") == 0.0);
}

#[test]
fn a_close_is_said_and_answered() {
    let echo = Echo::start();
    let proxy = proxy_before(&echo);
    let mut socket = open(&proxy, "/chat");
    let frame = CloseFrame { code: CloseCode::Away, reason: "bye".into() };
    socket.close(Some(frame.clone())).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Close(Some(frame)));
    assert!(matches!(socket.read(), Err(Error::ConnectionClosed)));
    drop(socket);
    wait_until("the tunnel has ended", || proxy.metric("anteroom_tunnels") == 0.0);
    let line = &proxy.access_log(1)[0];
    assert_eq!(line["status"], 101);
    assert!(line["aborted"].is_null(), "{line}");
}
