//! Where a body ends: the origin has a request as a whole only when its stream has ended as it should
//! (RFC 9113 §8.1.1).

use crate::support::frames::{Frames, Outcome, block, code, flag, frame, kind};
use crate::support::http2_client::{Http2Client, ask};
use crate::support::proxy::{Proxy, Storage};
use crate::support::tap::{Step, Tap};
use crate::support::wait_until;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn tap() -> Tap {
    Tap::start(|_| vec![Step::Send(ANSWER.to_vec())])
}

fn before(tap: &Tap, settings: &str) -> Proxy {
    Proxy::before(tap.address(), &Storage::Embedded, settings)
}

/// The head of a POST that goes on.
fn post(length: Option<&str>) -> Vec<u8> {
    let mut fields =
        vec![(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "shop.test")];
    fields.extend(length.map(|length| ("content-length", length)));
    frame(kind::HEADERS, flag::END_HEADERS, 1, &block(&fields))
}

fn data(flags: u8, bytes: &[u8]) -> Vec<u8> {
    frame(kind::DATA, flags, 1, bytes)
}

fn reset(code: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, 1, &code.to_be_bytes())
}

#[test]
fn the_origin_never_has_the_whole_of_what_is_malformed_or_called_off() {
    for (what, length, first, then) in [
        ("more than nothing", Some("0"), None, data(flag::END_STREAM, b"hi")),
        ("nothing, and called off", Some("0"), None, reset(code::CANCEL)),
        ("more than the length", Some("5"), Some("hello"), data(flag::END_STREAM, b"!")),
        ("less than the length", Some("5"), Some("hell"), data(flag::END_STREAM, b"")),
        ("all of it, and called off", Some("5"), Some("hello"), reset(code::CANCEL)),
        ("all of it, and called off without an error", Some("5"), Some("hello"), reset(code::NONE)),
        ("some of it, and called off without an error", Some("5"), Some("he"), reset(code::NONE)),
        ("no length, and called off without an error", None, Some("hello"), reset(code::NONE)),
    ] {
        let tap = tap();
        let proxy = before(&tap, "threads = 1");
        let mut client = Frames::open(proxy.address());
        client.send(&post(length));
        if let Some(first) = first {
            client.send(&data(0, first.as_bytes()));
            wait_until("the origin has the head", || tap.count() == 1);
        }
        client.send(&frame(kind::PING, 0, 0, &[0; 8]));
        assert_eq!(client.outcome(), Outcome::Pong, "{what}");
        client.send(&then);

        assert!(client.is_served(3, "/next"), "{what}");

        let whole: Vec<_> = tap.seen().into_iter().filter(|seen| seen.whole).collect();
        assert_eq!(whole.len(), 1, "{what}: {whole:?}");
        assert_eq!(whole[0].target(), "/next", "{what}");
    }
}

#[test]
fn a_body_may_end_behind_its_last_byte() {
    let trailers = || frame(kind::HEADERS, flag::WHOLE, 1, &block(&[("x-sum", "7")]));
    for (what, length, sent, expected) in [
        ("nothing", "0", vec![data(flag::END_STREAM, b"")], ""),
        ("nothing, twice", "0", vec![data(0, b""), data(flag::END_STREAM, b"")], ""),
        ("nothing, and trailers", "0", vec![trailers()], ""),
        ("at once", "5", vec![data(flag::END_STREAM, b"hello")], "hello"),
        ("later", "5", vec![data(0, b"hello"), data(flag::END_STREAM, b"")], "hello"),
        ("in parts", "5", vec![data(0, b"he"), data(0, b"llo"), data(0, b""), trailers()], "hello"),
    ] {
        let tap = tap();
        let proxy = before(&tap, "");
        let mut client = Frames::open(proxy.address());
        client.send(&post(Some(length)));
        for part in sent {
            client.send(&frame(kind::PING, 0, 0, &[0; 8]));
            assert_eq!(client.outcome(), Outcome::Pong, "{what}");
            client.send(&part);
        }
        assert_eq!(client.outcome(), Outcome::Answered(1), "{what}");
        let seen = tap.seen();
        let [seen] = &seen[..] else { panic!("{what}: {seen:?}") };
        let text = String::from_utf8_lossy(&seen.raw).to_lowercase();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {length}")), "{what}: {head}");
        assert_eq!(body, expected, "{what}");
    }
}

#[test]
fn an_unended_body_of_length_zero_is_answered_408() {
    let tap = tap();
    let proxy = before(&tap, "limits.stall_timeout = \"200ms\"");
    let mut client = Frames::open(proxy.address());
    client.send(&post(Some("0")));
    assert_eq!(client.outcome(), Outcome::Answered(1));
    assert_eq!(tap.count(), 0);
    assert_eq!(proxy.access_log(1)[0]["status"], 408);
}

#[test]
fn a_response_that_breaks_off_before_its_first_byte_is_none() {
    let broken =
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n";
    let tap = Tap::start(move |_| vec![Step::Send(broken.as_bytes().to_vec()), Step::Close]);
    let proxy = before(&tap, "");
    let mut client = Http2Client::open(proxy.address());
    for method in ["GET", "POST"] {
        assert_eq!(client.get(ask(method, "/", &[])).unwrap().status, 502, "{method}");
    }
}
