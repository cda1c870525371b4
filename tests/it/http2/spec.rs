//! RFC 9113 and RFC 7541, section by section: frames in, and the error of the stream or the connection
//! that comes out. What the library does otherwise than the RFC says is marked as such, with the reason
//! why it is harmless.

use crate::support::frames::{
    Frames, Outcome, PREFACE, block, code, flag, frame, get, kind, request,
};
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::Proxy;

use Outcome::{Answered, Closed, GoAway, Pong, Reset};

/// Section, what is done, its bytes behind the preface and empty settings, and what comes of it.
type Case = (&'static str, &'static str, Vec<u8>, Outcome);

const PROTOCOL: Outcome = GoAway(code::PROTOCOL);
const SIZE: Outcome = GoAway(code::FRAME_SIZE);

/// Where the RFC says STREAM_CLOSED of what comes on a stream that the client has ended, the library says
/// PROTOCOL_ERROR. The connection ends all the same.
const ENDED: Outcome = PROTOCOL;

/// Where the RFC says COMPRESSION_ERROR, the library says PROTOCOL_ERROR. The connection ends all the same.
const COMPRESSION: Outcome = PROTOCOL;

/// Where the RFC says FRAME_SIZE_ERROR of a frame whose payload has not the length of its kind, the library
/// says PROTOCOL_ERROR. The connection ends all the same.
const LENGTH: Outcome = PROTOCOL;

/// Where the RFC says FLOW_CONTROL_ERROR of a setting, the library says PROTOCOL_ERROR. The connection ends
/// all the same.
const FLOW: Outcome = PROTOCOL;

/// Where the RFC says that the stream ends (malformed, §8.1.1), the library ends the connection: what no
/// field can be it does not decode, and so knows the state of compression no more.
const UNDECODED: Outcome = PROTOCOL;

/// Where the RFC says that the stream ends (malformed, §8.1), the library leaves a pseudo-header field out of
/// trailers, and one that it does not look for out of a response: neither is passed on.
const LEFT_OUT: Outcome = Answered(1);

fn post(stream: u32, more: &[(&str, &str)]) -> Vec<u8> {
    let usual =
        [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "shop.test")];
    frame(kind::HEADERS, flag::END_HEADERS, stream, &block(&[&usual[..], more].concat()))
}

fn head(flags: u8, stream: u32, block: &[u8]) -> Vec<u8> {
    frame(kind::HEADERS, flags, stream, block)
}

fn setting(id: u16, value: u32) -> Vec<u8> {
    let payload = [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(kind::SETTINGS, 0, 0, &payload)
}

fn window(stream: u32, by: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
}

fn reset(stream: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &code::CANCEL.to_be_bytes())
}

/// By its answer one sees that nothing became of what came before.
fn ping() -> Vec<u8> {
    frame(kind::PING, 0, 0, &[9; 8])
}

/// A request with these fields and no others.
fn only(fields: &[(&str, &str)]) -> Vec<u8> {
    head(flag::WHOLE, 1, &block(fields))
}

fn with(more: &[(&str, &str)]) -> Vec<u8> {
    head(flag::WHOLE, 1, &request("/", more))
}

fn raw_block(bytes: &[u8]) -> Vec<u8> {
    head(flag::WHOLE, 1, &[&request("/", &[])[..], bytes].concat())
}

fn join(parts: &[Vec<u8>]) -> Vec<u8> {
    parts.concat()
}

fn hold(cases: Vec<Case>) {
    let origin = Origin::start(|request| match request.path() {
        "/hangs" => Reply::silence(),
        _ => Reply::unstored("hello"),
    });
    let proxy = Proxy::embedded(&origin, "threads = 1");
    let mut wrong = Vec::new();
    for (section, what, bytes, expected) in cases {
        let mut client = Frames::open(proxy.address());
        client.send(&bytes);
        let outcome = client.outcome();
        if outcome != expected {
            wrong.push(format!("{section} {what}: {outcome:?}, not {expected:?}"));
        }
        match outcome {
            // RFC 9113 §5.4.1: the endpoint that says so ends the connection.
            GoAway(_) => drop(client.end()),
            Closed => {}
            _ => assert!(client.is_served(99, "/"), "{section} {what}: the connection goes on"),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn section_3_the_beginning() {
    let origin = Origin::always(Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "");
    let settings = frame(kind::SETTINGS, 0, 0, &[]);
    for (what, bytes, expected) in [
        ("a preface that differs", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX".to_vec(), Closed),
        ("another frame before SETTINGS", [PREFACE, &get(1, "/")].concat(), Closed),
        ("an acknowledgement first", [PREFACE, &frame(4, flag::ACK, 0, &[])].concat(), Closed),
        ("a request at once", [PREFACE, &settings, &get(1, "/")].concat(), Answered(1)),
    ] {
        let mut client = Frames::silent(proxy.address());
        client.send(&bytes);
        if expected == Closed {
            // With a bare 400 where it is of HTTP/1.1, and without a word where we cut it.
            client.end_of_bytes();
        } else {
            assert_eq!(client.outcome(), expected, "{what}");
        }
    }
    assert_eq!(origin.count(), 1);
}

#[test]
fn section_4_frames() {
    let data = |length| frame(kind::DATA, flag::END_STREAM, 1, &vec![b'x'; length]);
    let mut reserved = ping();
    reserved[5] |= 0x80;
    hold(vec![
        ("4.1", "an unknown kind", join(&[frame(0x16, 0, 0, b"x"), ping()]), Pong),
        ("4.1", "unknown flags", frame(kind::PING, 0xfe, 0, &[9; 8]), Pong),
        ("4.1", "the reserved bit", reserved, Pong),
        ("4.2", "the largest frame", join(&[post(1, &[]), data(16_384)]), Answered(1)),
        ("4.2", "a larger frame of data", join(&[post(1, &[]), data(16_385)]), SIZE),
        ("4.2", "a larger head", head(flag::WHOLE, 1, &vec![0; 16_385]), SIZE),
        ("4.3", "a block that is none", head(flag::WHOLE, 1, &[0xff, 0xff, 0xff]), COMPRESSION),
        (
            "4.3",
            "a priority within a head",
            join(&[
                head(flag::END_STREAM, 1, &request("/", &[])),
                frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 255]),
            ]),
            PROTOCOL,
        ),
        (
            "4.3",
            "another head within a head",
            join(&[head(flag::END_STREAM, 1, &request("/", &[])), get(3, "/")]),
            PROTOCOL,
        ),
    ]);
}

#[test]
fn section_5_streams() {
    let continuation = frame(kind::CONTINUATION, flag::END_HEADERS, 1, &block(&[("x", "y")]));
    let data = || frame(kind::DATA, flag::END_STREAM, 1, b"x");
    let itself = [&[0, 0, 0, 1, 255][..], &request("/", &[])].concat();
    hold(vec![
        ("5.1", "idle: data", data(), PROTOCOL),
        ("5.1", "idle: reset", reset(1), PROTOCOL),
        ("5.1", "idle: window", window(1, 100), PROTOCOL),
        ("5.1", "idle: continuation", continuation.clone(), PROTOCOL),
        ("5.1", "half closed: data", join(&[get(1, "/hangs"), data()]), ENDED),
        ("5.1", "half closed: head", join(&[get(1, "/hangs"), get(1, "/")]), ENDED),
        ("5.1", "half closed: continuation", join(&[get(1, "/hangs"), continuation]), PROTOCOL),
        ("5.1", "half closed: window", join(&[get(1, "/hangs"), window(1, 9), ping()]), Pong),
        (
            "5.1",
            "closed: data",
            join(&[get(1, "/hangs"), reset(1), data()]),
            Reset(1, code::STREAM_CLOSED),
        ),
        ("5.1", "closed: head", join(&[get(1, "/hangs"), reset(1), get(1, "/")]), ENDED),
        ("5.1", "closed: window", join(&[get(1, "/hangs"), reset(1), window(1, 9), ping()]), Pong),
        ("5.1", "closed: reset", join(&[get(1, "/hangs"), reset(1), reset(1), ping()]), Pong),
        ("5.1.1", "an even number", get(2, "/"), PROTOCOL),
        ("5.1.1", "a number that falls", join(&[get(5, "/hangs"), get(3, "/")]), PROTOCOL),
        (
            "5.3.1",
            "a head that depends on itself",
            head(flag::WHOLE | flag::PRIORITY, 1, &itself),
            Reset(1, code::PROTOCOL),
        ),
        (
            "5.3.1",
            "a priority that depends on itself",
            // RFC 9113 §5.3.2 has done away with priorities, so that nothing comes of it.
            join(&[frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 1, 255]), ping()]),
            Pong,
        ),
        ("5.5", "an unknown frame on a stream", join(&[frame(0x42, 0, 1, b"x"), ping()]), Pong),
        (
            "5.5",
            "an unknown frame within a head",
            join(&[head(flag::END_STREAM, 1, &request("/", &[])), frame(0x42, 0, 1, b"x")]),
            PROTOCOL,
        ),
    ]);
}

#[test]
fn section_5_1_2_so_many_streams_and_no_more() {
    let origin = Origin::always(Reply::silence());
    let proxy = Proxy::embedded(&origin, "threads = 1");
    let mut client = Frames::open(proxy.address());
    client.send(&(0..101).flat_map(|n| get(2 * n + 1, "/")).collect::<Vec<_>>());
    assert_eq!(client.outcome(), Reset(201, code::REFUSED));
    client.send(&ping());
    assert_eq!(client.outcome(), Pong, "the connection goes on");
}

#[test]
fn section_6_1_to_6_5_frames_of_requests_and_settings() {
    let padded = |flags, payload: &[u8]| frame(kind::DATA, flags | flag::PADDED, 1, payload);
    let padded_head = [&[255_u8][..], &request("/", &[])].concat();
    hold(vec![
        ("6.1", "data on no stream", frame(kind::DATA, 0, 0, b"x"), PROTOCOL),
        ("6.1", "padding", join(&[post(1, &[]), padded(1, &[2, b'x', 0, 0])]), Answered(1)),
        ("6.1", "more padding than frame", join(&[post(1, &[]), padded(1, &[9, b'x'])]), PROTOCOL),
        ("6.2", "a head on no stream", get(0, "/"), PROTOCOL),
        (
            "6.2",
            "more padding than head",
            head(flag::WHOLE | flag::PADDED, 1, &padded_head),
            PROTOCOL,
        ),
        ("6.3", "priority of no stream", frame(kind::PRIORITY, 0, 0, &[0; 5]), PROTOCOL),
        ("6.4", "reset of no stream", reset(0), PROTOCOL),
        (
            "6.4",
            "a short reset",
            join(&[get(1, "/hangs"), frame(kind::RST_STREAM, 0, 1, &[0; 3])]),
            LENGTH,
        ),
        ("6.5", "an acknowledgement that says something", frame(4, flag::ACK, 0, &[0; 6]), LENGTH),
        ("6.5", "settings of a stream", frame(kind::SETTINGS, 0, 1, &[]), PROTOCOL),
        ("6.5", "settings of five bytes", frame(kind::SETTINGS, 0, 0, &[0; 5]), LENGTH),
        ("6.5.2", "push that is neither on nor off", setting(2, 2), PROTOCOL),
        ("6.5.2", "a window too large", setting(4, 1 << 31), FLOW),
        ("6.5.2", "frames too small", setting(5, 16_383), PROTOCOL),
        ("6.5.2", "frames too large", setting(5, 1 << 24), PROTOCOL),
        ("6.5.2", "an unknown setting", join(&[setting(99, 1), ping()]), Pong),
    ]);
}

#[test]
fn section_6_6_to_6_10_other_frames() {
    let most = (1_u32 << 31) - 1;
    hold(vec![
        ("6.6", "a push from a client", frame(kind::PUSH_PROMISE, 4, 1, &[0, 0, 0, 2]), PROTOCOL),
        ("6.7", "a ping", ping(), Pong),
        ("6.7", "an answer to no ping", join(&[frame(6, flag::ACK, 0, &[0; 8]), ping()]), Pong),
        ("6.7", "a ping on a stream", frame(kind::PING, 0, 1, &[0; 8]), PROTOCOL),
        ("6.7", "a short ping", frame(kind::PING, 0, 0, &[0; 6]), LENGTH),
        ("6.8", "a farewell on a stream", frame(kind::GOAWAY, 0, 1, &[0; 8]), PROTOCOL),
        ("6.9", "a short window", frame(kind::WINDOW_UPDATE, 0, 0, &[0; 3]), LENGTH),
        ("6.9", "a window by nothing", window(0, 0), PROTOCOL),
        ("6.9.1", "a window over its bound", window(0, most), GoAway(code::FLOW_CONTROL)),
        (
            "6.9.1",
            "a window of a stream over its bound",
            join(&[get(1, "/hangs"), window(1, most)]),
            Reset(1, code::FLOW_CONTROL),
        ),
        (
            "6.9.2",
            "a window over its bound by settings",
            join(&[setting(4, 100), get(1, "/hangs"), window(1, most - 100), setting(4, 101)]),
            GoAway(code::FLOW_CONTROL),
        ),
        ("6.10", "a continuation of nothing", frame(kind::CONTINUATION, 4, 1, b""), PROTOCOL),
        (
            "6.10",
            "a continuation of no stream",
            join(&[head(flag::END_STREAM, 1, &request("/", &[])), frame(9, 4, 0, b"")]),
            PROTOCOL,
        ),
        (
            "6.10",
            "data within a head",
            join(&[head(0, 1, &request("/", &[])), frame(kind::DATA, 0, 1, b"x")]),
            PROTOCOL,
        ),
        (
            "6.10",
            "a head in three parts",
            join(&[
                head(flag::END_STREAM, 1, &request("/", &[])),
                frame(kind::CONTINUATION, 0, 1, &block(&[("x", "y")])),
                frame(kind::CONTINUATION, flag::END_HEADERS, 1, &block(&[("z", "y")])),
            ]),
            Answered(1),
        ),
    ]);
}

#[test]
fn section_7_unknown_codes() {
    let unknown = 0x99_u32.to_be_bytes();
    hold(vec![(
        "7",
        "a reset for a reason of its own",
        join(&[get(1, "/hangs"), frame(kind::RST_STREAM, 0, 1, &unknown), ping()]),
        Pong,
    )]);
}

#[test]
fn section_8_requests() {
    let refused = Reset(1, code::PROTOCOL);
    let trailers = |flags, fields: &[(&str, &str)]| head(flags, 1, &block(fields));
    let (method, scheme, path) = ((":method", "GET"), (":scheme", "http"), (":path", "/"));
    let length = |n| post(1, &[("content-length", n)]);
    let data = |flags, bytes: &[u8]| frame(kind::DATA, flags, 1, bytes);
    hold(vec![
        (
            "8.1",
            "a second head that ends nothing",
            join(&[post(1, &[]), trailers(flag::END_HEADERS, &[("x", "y")])]),
            refused,
        ),
        (
            "8.1",
            "a path in trailers",
            join(&[post(1, &[]), data(0, b"x"), trailers(flag::WHOLE, &[(":path", "/x")])]),
            LEFT_OUT,
        ),
        (
            "8.1",
            "a status in trailers",
            join(&[post(1, &[]), data(0, b"x"), trailers(flag::WHOLE, &[(":status", "200")])]),
            LEFT_OUT,
        ),
        ("8.2.1", "an upper-case name", with(&[("X-Upper", "1")]), UNDECODED),
        ("8.2.1", "a name with a space", with(&[("x y", "1")]), UNDECODED),
        ("8.2.1", "a line break in a value", with(&[("x", "a\r\nb: c")]), UNDECODED),
        ("8.2.1", "a NUL in a value", with(&[("x", "a\0b")]), UNDECODED),
        ("8.2.2", "a field of the connection", with(&[("connection", "keep-alive")]), refused),
        ("8.2.2", "TE other than trailers", with(&[("te", "trailers, deflate")]), refused),
        ("8.3", "an unknown pseudo-header field", with(&[(":test", "ok")]), UNDECODED),
        ("8.3", "one of responses", with(&[(":status", "200")]), refused),
        (
            "8.3",
            "one behind a field",
            only(&[method, scheme, ("x", "y"), path, (":authority", "shop.test")]),
            refused,
        ),
        ("8.3.1", "an empty path", only(&[method, scheme, (":path", "")]), refused),
        ("8.3.1", "no method", only(&[scheme, path]), refused),
        ("8.3.1", "no scheme", only(&[method, path]), refused),
        ("8.3.1", "no path", only(&[method, scheme, (":authority", "shop.test")]), refused),
        ("8.3.1", "a method twice", only(&[method, method, scheme, path]), refused),
        ("8.3.1", "a scheme twice", only(&[method, scheme, scheme, path]), refused),
        ("8.3.1", "a path twice", only(&[method, scheme, path, path]), refused),
        ("8.1.1", "less than it says", join(&[length("2"), data(1, b"x")]), refused),
        ("8.1.1", "more than it says", join(&[length("1"), data(1, b"xx")]), refused),
        ("8.1.1", "less in two", join(&[length("3"), data(0, b"x"), data(1, b"x")]), refused),
        ("8.1.1", "what it says", join(&[length("2"), data(0, b"x"), data(1, b"x")]), Answered(1)),
        ("8.1.1", "no number", with(&[("content-length", "x")]), refused),
        ("8.5", "extended CONNECT, as offered (RFC 8441)", extended_connect(), Answered(1)),
    ]);
}

fn extended_connect() -> Vec<u8> {
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "shop.test"),
    ];
    head(flag::END_HEADERS, 1, &block(&fields))
}

#[test]
fn rfc_7541_compression() {
    hold(vec![
        ("2.3.3", "a field that is in no table", raw_block(&[0xff, 0x7f]), COMPRESSION),
        ("2.3.3", "a name that is in no table", raw_block(&[0x7f, 0x7f, 1, b'x']), COMPRESSION),
        ("4.2", "a new size at the end", raw_block(&[0x20]), COMPRESSION),
        ("5.1", "a number too large", raw_block(&[0xff; 12]), COMPRESSION),
        ("5.2", "padding of a whole byte", raw_block(&[0, 1, b'x', 0x82, 0x1f, 0xff]), COMPRESSION),
        ("5.2", "padding of zeros", raw_block(&[0, 1, b'x', 0x81, 0x18]), COMPRESSION),
        (
            "5.2",
            "the end in the middle",
            raw_block(&[0, 1, b'x', 0x84, 255, 255, 255, 255]),
            COMPRESSION,
        ),
        ("6.1", "the field number nothing", raw_block(&[0x80]), COMPRESSION),
        ("6.3", "a table larger than allowed", raw_size(&[0x3f, 0xe2, 0x1f]), COMPRESSION),
        ("6.3", "a table of nothing", raw_size(&[0x20]), Answered(1)),
    ]);
}

/// A change of the table's size before a request.
fn raw_size(bytes: &[u8]) -> Vec<u8> {
    head(flag::WHOLE, 1, &[bytes, &request("/", &[])].concat())
}
