//! One request behind another, and clients that wait or leave.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use super::{Case, PROBE, answer, cut, goes_on, hold, passes, refused};
use crate::support::proxy::{Proxy, Storage};
use crate::support::tap::Tap;
use crate::support::wait_until;

const A: &str = "OPTIONS /a HTTP/1.1\nhost: a.test";

fn behind(name: &'static str, why: &'static str, second: &str, status: u16) -> Case {
    let first = "OPTIONS /a HTTP/1.1\r\nHost: a.test\r\n\r\n";
    Case { saw: Some(vec![A.to_owned()]), ..refused(name, why, format!("{first}{second}"), status) }
        .got(&[200, status])
}

#[test]
fn requests_behind_requests() {
    let two =
        "OPTIONS /a HTTP/1.1\r\nHost: a.test\r\n\r\nOPTIONS /~ HTTP/1.1\r\nHost: b.test\r\n\r\n";
    let bodies = "POST /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nhi\
                  POST /~ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n\
                  2\r\nho\r\n0\r\n\r\n";
    let closing = "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n\
                   GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n";
    hold(
        "",
        &[
            passes("two at once", "RFC 9112 §9.3.2", two, A)
                .and_saw("OPTIONS /~ HTTP/1.1\nhost: b.test")
                .got(&[200, 200]),
            passes(
                "two with bodies",
                "RFC 9112 §6",
                bodies,
                "POST /a HTTP/1.1\nhost: a.test\ncontent-length: 2\n\nhi",
            )
            .and_saw(
                "POST /~ HTTP/1.1\nhost: a.test\ntransfer-encoding: chunked\n\n\
             2\\r\\nho\\r\\n0\\r\\n\\r\\n",
            )
            .got(&[200, 200]),
            passes(
                "none behind close",
                "RFC 9112 §9.6",
                closing,
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            )
            .then_closed(),
            behind("a bad Host behind a good one", "RFC 9112 §3.2", "GET / HTTP/1.1\r\n\r\n", 400),
            behind("nonsense behind a good one", "RFC 9112 §2.2", "\0\0\0\0\r\n\r\n", 400),
            behind(
                "two lengths behind a good one",
                "RFC 9110 §8.6",
                "POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nhi",
                400,
            ),
            behind("too much behind a length", "RFC 9112 §6", "hi\r\n\r\n", 400),
        ],
    );
}

#[test]
fn expectations() {
    let post = "POST /~ HTTP/1.1\r\nHost: a.test\r\n";
    let saw = "POST /~ HTTP/1.1\nhost: a.test\ncontent-length: 2\n\nhi";
    let send = |lines: &str| format!("{post}{lines}Content-Length: 2\r\n\r\nhi");
    hold("", &[
        passes("100-continue", "RFC 9110 §10.1.1", send("Expect: 100-continue\r\n"), saw),
        passes("in capitals", "RFC 9110 §10.1.1", send("Expect: 100-Continue\r\n"), saw),
        passes(
            "without a body",
            "RFC 9110 §10.1.1: ignored",
            "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\n\r\n",
            "OPTIONS /~ HTTP/1.1\nhost: a.test",
        ),
        passes("none", "RFC 9110 §5.6.1.2", send("Expect:\r\n"), saw),
        refused("another one", "RFC 9110 §10.1.1", send("Expect: 200-maybe\r\n"), 417),
        refused("one beside it", "RFC 9110 §10.1.1", send("Expect: 100-continue, x\r\n"), 417),
        cut(
            "a body that never comes",
            "RFC 9110 §10.1.1",
            "POST /~ HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n",
            &[],
        )
        .ending(),
    ]);
}

#[test]
fn a_request_in_many_pieces_is_one() {
    let tap = Tap::start(answer);
    let proxy = Proxy::before(tap.address(), &Storage::Embedded, "");
    let mut client = proxy.connect();
    let request = b"POST /pieces HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello";
    for byte in request {
        client.send(&[*byte]);
    }
    assert_eq!(client.answer().status, 200);
    assert!(tap.seen()[0].whole && tap.seen()[0].raw.ends_with(b"\r\n\r\nhello"));
    assert!(goes_on(&mut client));
}

#[test]
fn a_client_leaving_before_its_answer_spoils_no_other_answer() {
    let tap = Tap::start(answer);
    let proxy = Proxy::before(tap.address(), &Storage::Embedded, "threads = 1");
    for _ in 0..20 {
        let mut gone = proxy.connect();
        gone.send(b"OPTIONS /gone HTTP/1.1\r\nHost: a.test\r\n\r\n");
        gone.shut(Shutdown::Both);
        let mut stays = proxy.connect();
        stays.send(PROBE);
        assert_eq!(stays.answer().text(), "ok");
    }
    wait_until("what began has ended", || tap.seen().iter().all(|seen| seen.whole));
}

/// A line of each head that the proxy sends.
const OUR_LINE: &str = "via: 1.1 anteroom";

/// An origin that answers each head at once, and what came on each connection.
fn hasty_origin() -> (std::net::SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let logs = Arc::clone(&log);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, log) = (stream.unwrap(), Arc::clone(&logs));
            let at = {
                let mut log = log.lock().unwrap();
                log.push(String::new());
                log.len() - 1
            };
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
                    log.lock().unwrap()[at] += &text;
                    if text.contains(OUR_LINE) {
                        let early = b"HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n";
                        drop(stream.write_all(early));
                    }
                }
            });
        }
    });
    (address, log)
}

#[test]
fn an_answer_before_the_body_s_end_makes_no_request_of_the_rest() {
    let (address, log) = hasty_origin();
    let proxy = Proxy::before(address, &Storage::Embedded, "threads = 1");
    for round in 1..=10 {
        let mut client = proxy.connect();
        client.send(b"POST /up HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100\r\n\r\n0123456789");
        assert_eq!(client.answer().status, 413);
        client.send(b"GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n");
        let other = proxy.ask("OPTIONS", "/else").send();
        assert_eq!(other.status, 413, "an answer of its own");
        drop(client);
        let log = log.lock().unwrap();
        let heads = |text: &str| text.matches(OUR_LINE).count();
        for text in log.iter() {
            let from_upload = text.split_once("POST /up").map_or("", |(_, rest)| rest);
            assert!(heads(from_upload) <= 1, "nothing goes behind half a body: {log:?}");
        }
        let asked: usize = log.iter().map(|text| heads(text)).sum();
        assert_eq!(asked, 2 * round, "no request of the rest: {log:?}");
    }
}
