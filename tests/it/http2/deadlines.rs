//! Deadlines of HTTP/2: of a connection, and of each response on it.

use std::time::Duration;

use crate::support::frames::{Frames, Outcome, PREFACE, block, code, flag, frame, get, kind};
use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::Proxy;
use crate::support::wait_until;

fn hello() -> Origin {
    Origin::always(Reply::unstored("hello"))
}

const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "shop.test")];

#[test]
fn a_client_that_stops_before_its_first_request_is_cut_off() {
    let origin = hello();
    let proxy = Proxy::embedded(&origin, "limits.head_timeout = \"200ms\"");
    let settings = frame(kind::SETTINGS, 0, 0, &[]);
    let begun = [PREFACE, &settings].concat();
    for said in [
        &PREFACE[..3],
        &PREFACE[..20],
        PREFACE,
        &[PREFACE, &settings[..4]].concat(),
        &[&begun[..], &get(1, "/")[..5]].concat(),
        &[&begun[..], &get(1, "/")[..20]].concat(),
        &[&begun[..], &frame(kind::HEADERS, flag::END_STREAM, 1, &block(&POST))].concat(),
    ] {
        let mut client = Frames::silent(proxy.address());
        client.send(said);
        client.end();
    }
    assert_eq!(origin.count(), 0);
    wait_until("all are counted", || proxy.metric("anteroom_connections_timed_out_total") >= 7.0);
}

#[test]
fn a_head_that_never_ends_is_cut_off_beside_an_open_request() {
    let gate = Gate::closed();
    let held = gate.clone();
    let origin = Origin::start(move |_| {
        held.pass();
        Reply::unstored("hello")
    });
    let proxy = Proxy::embedded(&origin, "limits.head_timeout = \"300ms\"");
    let mut client = Frames::open(proxy.address());
    client.send(&get(1, "/"));
    wait_until("the origin is asked", || origin.count() == 1);
    client.send(&frame(kind::HEADERS, flag::END_STREAM, 3, &block(&POST)));
    client.send(&frame(kind::CONTINUATION, 0, 3, &block(&[("x", "y")])));
    client.end();
    gate.open();
    wait_until("it is counted", || proxy.metric("anteroom_connections_timed_out_total") == 1.0);
}

#[test]
fn an_idle_connection_is_closed_despite_pings() {
    let origin = hello();
    let proxy = Proxy::embedded(&origin, "limits.idle_timeout = \"1s\"");
    let mut quiet = Frames::open(proxy.address());
    assert_eq!(quiet.end(), Outcome::GoAway(code::NONE), "with a farewell");
    let mut client = Frames::open(proxy.address());
    assert!(client.is_served(1, "/"));
    let ping = frame(kind::PING, 0, 0, &[7; 8]);
    wait_until("pings keep no connection", || !client.send(&ping));
}

#[test]
fn a_connection_with_an_open_request_is_not_idle() {
    let origin = Origin::always(Reply::unstored("hello").after(Duration::from_millis(2_500)));
    let settings = "limits.idle_timeout = \"1s\"\nlimits.head_timeout = \"1s\"";
    let proxy = Proxy::embedded(&origin, settings);
    let mut client = Frames::open(proxy.address());
    assert!(client.is_served(1, "/"));
}

#[test]
fn an_upload_that_stalls_ends_and_the_connection_goes_on() {
    let origin = hello();
    let proxy = Proxy::embedded(&origin, "limits.stall_timeout = \"300ms\"");
    let mut client = Frames::open(proxy.address());
    client.send(&frame(kind::HEADERS, flag::END_HEADERS, 1, &block(&POST)));
    client.send(&frame(kind::DATA, 0, 1, b"half"));
    let outcome = client.outcome();
    assert!(matches!(outcome, Outcome::Answered(1) | Outcome::Reset(1, _)), "{outcome:?}");
    assert!(client.is_served(3, "/"));
    assert!(origin.seen().iter().all(|r| r.method == "GET" || !r.body.whole));
}

#[test]
fn responses_that_are_not_taken_are_reset_and_the_connection_goes_on() {
    let origin = Origin::start(|request| match request.path() {
        "/large" => Reply::unstored(&"x".repeat(300_000)),
        "/page" => Reply::html(&"x".repeat(300_000)).header("Cache-Control", "max-age=60"),
        _ => Reply::unstored("hello"),
    });
    let proxy = Proxy::embedded(&origin, "limits.stall_timeout = \"300ms\"");
    assert_eq!(proxy.get("/page").send().status, 200);
    // A window that is shut, one that is nearly so, and the usual one that is never opened again.
    for (window, count) in [(0, 100), (1, 50), (65_535, 1)] {
        let mut client = Frames::with_settings(proxy.address(), &[(4, window)]);
        for n in 0..count {
            let path = if n % 2 == 0 { "/large" } else { "/page" };
            client.send(&get(2 * n + 1, path));
        }
        let mut reset = 0;
        while reset < count {
            let frame = client.next().expect("the connection goes on");
            if frame.kind == kind::RST_STREAM {
                assert_eq!(frame.code(), code::CANCEL);
                reset += 1;
            }
        }
        let open = [&4_u16.to_be_bytes()[..], &65_535_u32.to_be_bytes()].concat();
        client.send(&frame(kind::SETTINGS, 0, 0, &open));
        client.send(&frame(kind::WINDOW_UPDATE, 0, 0, &100_000_u32.to_be_bytes()));
        assert!(client.is_served(2 * count + 1, "/"), "{window}");
    }
    assert_eq!(proxy.metric("anteroom_http2_streams_stalled_total") as u64, 151);
    wait_until("the origin is released", || origin.busy() == 0);
}

#[test]
fn bytes_the_client_did_not_take_are_not_logged_as_sent() {
    let page = Reply::html(&"x".repeat(1_000_000)).header("Cache-Control", "max-age=60");
    let origin = Origin::always(page);
    let proxy = Proxy::embedded(&origin, "limits.stall_timeout = \"300ms\"");
    assert_eq!(proxy.get("/").send().status, 200);
    let mut client = Frames::open(proxy.address());
    client.send(&get(1, "/"));
    while client.next().expect("the connection goes on").kind != kind::RST_STREAM {}
    let line = &proxy.access_log(2)[1];
    let sent = line["bytes"].as_u64().unwrap();
    assert!((65_535..200_000).contains(&sent), "{line}");
    assert_eq!(line["aborted"], true);
}

#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let origin = Origin::always(Reply::status("200 OK").filling(256 << 20));
    let proxy = Proxy::embedded(&origin, "limits.stall_timeout = \"300ms\"");
    let most = (1_u32 << 31) - 1;
    let mut client = Frames::with_settings(proxy.address(), &[(4, most)]);
    client.send(&frame(kind::WINDOW_UPDATE, 0, 0, &(most - 65_535).to_be_bytes()));
    client.send(&get(1, "/"));
    wait_until("the origin is asked", || origin.count() == 1);
    wait_until("it is cut", || proxy.metric("anteroom_connections_timed_out_total") > 0.0);
    drop(client);
}
