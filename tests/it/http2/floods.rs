//! Clients that keep us busy for nothing: each is cut off, and a normal one is served meanwhile, with
//! memory that stays where it is.

use crate::support::frames::{Frames, Outcome, block, code, flag, frame, kind, request};
use crate::support::http2_client::{Http2Client, ask};
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::Proxy;
use crate::support::wait_until;

/// What a flood may cost, in KiB: the normal client, and what the allocator keeps.
const ROOM: u64 = 24 << 10;

/// How much of a flood is sent at most, in bytes.
const MOST: usize = 64 << 20;

/// Sends `opening`, then what `wave` says for wave 0, 1, 2 and so on until it is cut off.
fn is_cut(causes: &[&str], opening: &[u8], wave: impl Fn(u32) -> Vec<u8>) {
    let origin = Origin::start(|request| match request.path() {
        "/hangs" => Reply::silence(),
        _ => Reply::unstored("hello"),
    });
    // Both clients are in one network, where the first request comes first; this is about their connections.
    let proxy = Proxy::embedded(&origin, "threads = 1\norigin.overload = \"off\"");
    let mut normal = Http2Client::open(proxy.address());
    assert_eq!(normal.get(ask("GET", "/", &[])).unwrap().text(), "hello");
    let before = proxy.peak_memory();
    let mut hostile = Frames::open(proxy.address());
    hostile.send(opening);
    let (mut sent, mut is_open) = (0, true);
    for number in 0.. {
        let bytes = wave(number);
        sent += bytes.len();
        is_open = is_open && hostile.send(&bytes);
        if number % 64 == 0 {
            assert_eq!(normal.get(ask("GET", "/", &[])).unwrap().text(), "hello");
        }
        if !is_open {
            break;
        }
        assert!(sent < MOST, "never cut");
    }
    assert_eq!(normal.get(ask("GET", "/", &[])).unwrap().text(), "hello");
    let name = |cause| format!("anteroom_http2_connections_cut_total{{cause=\"{cause}\"}}");
    let count = || causes.iter().map(|cause| proxy.metric(&name(*cause))).sum::<f64>();
    wait_until("it is counted by its cause", || count() > 0.0);
    let after = proxy.peak_memory();
    assert!(after < before + ROOM, "{before} KiB have become {after}");
    wait_until("the origin is released", || origin.busy() == 0);
}

/// A request that the origin never answers, and that belongs to its client alone.
fn hanging(stream: u32) -> Vec<u8> {
    let head = request("/hangs", &[("authorization", "Basic YTpi")]);
    frame(kind::HEADERS, flag::WHOLE, stream, &head)
}

/// As many of a frame as make a wave.
fn many(frame: &[u8]) -> Vec<u8> {
    frame.repeat(100)
}

fn post(stream: u32, path: &str) -> Vec<u8> {
    let fields =
        [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "shop.test")];
    frame(kind::HEADERS, flag::END_HEADERS, stream, &block(&fields))
}

#[test]
fn pings() {
    is_cut(&["ping"], &[], |_| many(&frame(kind::PING, 0, 0, &[0; 8])));
}

#[test]
fn a_cut_off_client_gets_goaway_with_the_reason_and_last_stream() {
    let origin = Origin::always(Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "threads = 1");
    let mut hostile = Frames::open(proxy.address());
    assert!(hostile.is_served(7, "/"));
    hostile.send(&frame(kind::PING, 0, 0, &[0; 8]).repeat(4_000));
    let last = std::iter::from_fn(|| hostile.next()).last().expect("a farewell");
    assert_eq!((last.kind, last.code()), (kind::GOAWAY, code::CALM));
    assert_eq!(last.payload[..4], 7_u32.to_be_bytes());
}

#[test]
fn answers_to_pings_that_were_not_sent() {
    is_cut(&["ping"], &[], |_| many(&frame(kind::PING, flag::ACK, 0, &[0; 8])));
}

#[test]
fn settings() {
    is_cut(&["settings"], &[], |_| many(&frame(kind::SETTINGS, 0, 0, &[])));
}

#[test]
fn priorities() {
    is_cut(&["priority"], &[], |_| many(&frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 3, 7])));
}

#[test]
fn windows() {
    let open = frame(kind::WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes());
    is_cut(&["window-update"], &[], |_| many(&open));
}

#[test]
fn windows_of_a_stream() {
    let open = frame(kind::WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes());
    is_cut(&["window-update"], &hanging(1), |_| many(&open));
}

#[test]
fn frames_that_mean_nothing() {
    is_cut(&["other"], &[], |_| many(&frame(0x42, 0, 0, b"")));
}

#[test]
fn frames_of_data_without_data() {
    is_cut(&["data", "calm"], &post(1, "/hangs"), |_| many(&frame(kind::DATA, 0, 1, &[])));
}

#[test]
fn frames_of_data_that_are_all_padding() {
    let padded = [&[99_u8][..], &[0; 99]].concat();
    let data = frame(kind::DATA, flag::PADDED, 1, &padded);
    is_cut(&["data", "calm"], &post(1, "/hangs"), |_| many(&data));
}

#[test]
fn rapid_resets() {
    is_cut(&["calm", "reset"], &[], |wave| {
        let pairs = (0..50).map(|n| {
            let stream = (wave * 50 + n) * 2 + 1;
            let cancel = frame(kind::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
            [hanging(stream), cancel].concat()
        });
        pairs.collect::<Vec<_>>().concat()
    });
}

#[test]
fn resets_that_take_their_time() {
    let origin = Origin::always(Reply::silence());
    let proxy = Proxy::embedded(&origin, "threads = 1");
    let mut hostile = Frames::open(proxy.address());
    let end = (0..2_000).find_map(|n| {
        let stream = 2 * n + 1;
        hostile.send(&hanging(stream));
        // The request has been looked at when this is answered.
        hostile.send(&frame(kind::PING, 0, 0, &[1; 8]));
        let outcome = hostile.outcome();
        hostile.send(&frame(kind::RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        (outcome != Outcome::Pong).then_some(outcome)
    });
    assert!(end.is_some(), "never cut");
    // A ping may be the one that is too much.
    let count = |cause: &str| {
        proxy.metric(&format!("anteroom_http2_connections_cut_total{{cause=\"{cause}\"}}"))
    };
    wait_until("it is counted", || count("reset") + count("ping") > 0.0);
    wait_until("the origin is released", || origin.busy() == 0);
}

#[test]
fn a_proxy_of_ours_may_take_back_what_its_visitors_do() {
    let origin = Origin::start(|request| match request.path() {
        "/hangs" => Reply::silence(),
        _ => Reply::unstored("hello"),
    });
    let settings = "threads = 1\nclient.trusted_proxies = \"127.0.0.1\"";
    let proxy = Proxy::embedded(&origin, settings);
    let mut carrier = Frames::open(proxy.address());
    for wave in 0..30 {
        let pairs = (0..30).map(|n| {
            let stream = (wave * 30 + n) * 2 + 1;
            let cancel = frame(kind::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
            [hanging(stream), cancel].concat()
        });
        carrier.send(&pairs.collect::<Vec<_>>().concat());
        carrier.send(&frame(kind::PING, 0, 0, &[1; 8]));
        assert_eq!(carrier.outcome(), Outcome::Pong, "{wave}");
    }
    assert!(carrier.is_served(9_001, "/"), "the others' requests go on");
    wait_until("the origin is released", || origin.busy() == 0);
}

#[test]
fn resets_that_we_are_made_to_send() {
    is_cut(&["calm"], &[], |wave| {
        let pairs = (0..50).map(|n| {
            let stream = (wave * 50 + n) * 2 + 1;
            let most = (1_u32 << 31) - 1;
            let nonsense = frame(kind::WINDOW_UPDATE, 0, stream, &most.to_be_bytes());
            [hanging(stream), nonsense].concat()
        });
        pairs.collect::<Vec<_>>().concat()
    });
}

#[test]
fn heads_in_endless_parts() {
    let opening = frame(kind::HEADERS, flag::END_STREAM, 1, &request("/", &[]));
    let part = frame(kind::CONTINUATION, 0, 1, &block(&[("x-a", &"y".repeat(1_000))]));
    let causes = ["calm", "continuation", "protocol"];
    is_cut(&causes, &opening, |_| part.repeat(16));
    let empty = frame(kind::CONTINUATION, 0, 1, &[]);
    is_cut(&causes, &opening, |_| many(&empty));
}

#[test]
fn a_head_that_unfolds() {
    // A field of 3,000 bytes goes into the table (RFC 7541 §6.2.1), and is named a thousand times.
    let mut unfolding = request("/", &[]);
    unfolding.extend([0x40, 1, b'x', 127, 0b1011_1001, 0b0001_0110]);
    unfolding.extend([b'y'; 3_000]);
    unfolding.extend([0xbe; 12_000]);
    let causes = ["calm", "protocol", "reset", "other"];
    is_cut(&causes, &[], |wave| frame(kind::HEADERS, flag::WHOLE, 2 * wave + 1, &unfolding));
}

#[test]
fn more_requests_than_may_be_open() {
    is_cut(&["calm"], &[], |wave| {
        let requests = (0..50).map(|n| hanging((wave * 50 + n) * 2 + 1));
        requests.collect::<Vec<_>>().concat()
    });
}

#[test]
fn a_busy_client_is_not_taken_for_a_flood() {
    let origin =
        Origin::always(Reply::html(&"x".repeat(100_000)).header("Cache-Control", "max-age=60"));
    let proxy = Proxy::embedded(&origin, "threads = 1");
    let mut client = Http2Client::open(proxy.address());
    for _ in 0..40 {
        let replies = client.all((0..50).map(|_| ask("GET", "/", &[])).collect());
        assert!(replies.iter().all(|reply| reply.as_ref().is_ok_and(|r| r.body.len() == 100_000)));
    }
    // A body in small pieces, such as a stream of messages.
    let mut upload = Frames::open(proxy.address());
    // Our windows count when the client has acknowledged them.
    assert_eq!(upload.next().map(|frame| frame.kind), Some(kind::SETTINGS));
    upload.send(&frame(kind::SETTINGS, flag::ACK, 0, &[]));
    upload.send(&post(1, "/"));
    // The library takes some 4,500 of them unread.
    for _ in 0..2_000 {
        upload.send(&frame(kind::DATA, 0, 1, b"a message of some bytes"));
    }
    upload.send(&frame(kind::DATA, flag::END_STREAM, 1, &[]));
    assert_eq!(upload.outcome(), Outcome::Answered(1));
}

/// WINDOW_UPDATE for a stream.
fn window(stream: u32, by: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
}

#[test]
fn a_client_that_opens_its_windows_after_each_small_answer_is_served() {
    for page in [Reply::html("ok"), Reply::unstored("ok")] {
        let origin = Origin::always(page);
        let proxy = Proxy::embedded(&origin, "threads = 1");
        let mut client = Frames::open(proxy.address());
        for stream in (1..8_000).step_by(2) {
            assert!(client.is_served(stream, "/"), "{stream}");
            client.send(&[window(stream, 2), window(0, 2)].concat());
        }
    }
}
