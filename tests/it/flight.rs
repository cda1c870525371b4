//! One fetch for many: what its readers see, whatever happens to the others, to the origin, or to
//! the room for bodies.

use std::sync::Arc;

use crate::support::client::{AnswerHead, Client};
use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::{Proxy, Storage, on_both_stores};
use crate::support::wait_until;

on_both_stores!(a_departing_visitor_stops_neither_the_others_nor_the_storing);

/// A style sheet whose head is shared as soon as it arrives: no guard has to read its body.
fn sheet() -> Reply {
    Reply::status("200 OK").header("Content-Type", "text/css").header("Cache-Control", "max-age=60")
}

/// Visitors who have the head of the sheet and wait for its body.
fn readers(proxy: &Proxy, count: usize) -> Vec<(Client, AnswerHead)> {
    (0..count)
        .map(|_| {
            let mut client = proxy.get("/a.css").start();
            let begun = client.head();
            (client, begun)
        })
        .collect()
}

/// An origin that stops in the middle of a sheet of ten bytes until the gate opens.
fn slow_sheet(gate: &Arc<Gate>) -> Origin {
    let gate = Arc::clone(gate);
    Origin::start(move |_| {
        sheet().header("Content-Length", "10").bytes("first").until(&gate).bytes("later")
    })
}

fn a_departing_visitor_stops_neither_the_others_nor_the_storing(storage: &Storage) {
    let gate = Gate::closed();
    let origin = slow_sheet(&gate);
    let proxy = Proxy::start(&origin, storage, "");
    let mut readers = readers(&proxy, 3);

    // The first of them began the fetch.
    drop(readers.remove(0));
    gate.open();

    for (mut client, begun) in readers {
        assert_eq!(client.rest(begun).text(), "firstlater");
    }
    wait_until("the page is kept", || proxy.get("/a.css").send().is_hit());
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_page_lands_though_its_only_visitor_left() {
    let gate = Gate::closed();
    let origin = slow_sheet(&gate);
    let proxy = Proxy::embedded(&origin, "");
    drop(readers(&proxy, 1));
    let gone = || proxy.metric("anteroom_connections") == 0.0;
    wait_until("he is gone", gone);

    gate.open();

    wait_until("the page is kept", || proxy.get("/a.css").send().is_hit());
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_body_that_breaks_off_breaks_off_for_all_and_is_not_stored() {
    for (framing, value, first) in
        [("Content-Length", "10", "first"), ("Transfer-Encoding", "chunked", "5\r\nfirst\r\n")]
    {
        let gate = Gate::closed();
        let broken = Arc::clone(&gate);
        let origin = Origin::start(move |_| {
            sheet().header(framing, value).bytes(first).until(&broken).closing()
        });
        let proxy = Proxy::embedded(&origin, "");
        let readers = readers(&proxy, 4);
        assert_eq!(origin.count(), 1);

        gate.open();

        for (mut client, begun) in readers {
            let answer = client.rest(begun);
            assert!(!answer.body.whole, "{framing}: {answer:?}");
        }
        let again = proxy.get("/a.css").send();
        assert!(!again.is_hit() && !again.body.whole, "{framing}: {again:?}");
        assert_eq!(origin.count(), 2);
    }
}

/// How often a page was fetched and found too large to be kept.
fn too_large(proxy: &Proxy) -> f64 {
    proxy.metric("anteroom_pages_refused_total{reason=\"too-large\"}")
}

/// An origin whose sheet grows over 10 KiB when the first gate opens, and ends at the second.
fn growing_sheet(first: &Arc<Gate>, second: &Arc<Gate>) -> Origin {
    let (first, second) = (Arc::clone(first), Arc::clone(second));
    let part = format!("1800\r\n{}\r\n", "x".repeat(0x1800));
    Origin::start(move |_| {
        let reply = sheet().header("Transfer-Encoding", "chunked").bytes(&part).until(&first);
        reply.bytes(&part).bytes(&part).until(&second).bytes("0\r\n\r\n")
    })
}

#[test]
fn a_body_that_grows_too_large_goes_to_its_readers_whole_and_others_ask_themselves() {
    let [first, second] = [Gate::closed(), Gate::closed()];
    let origin = growing_sheet(&first, &second);
    let proxy = Proxy::embedded(&origin, "cache.max_object = \"10KiB\"");
    let readers = readers(&proxy, 3);
    assert_eq!(origin.count(), 1);

    first.open();
    wait_until("it is too large", || too_large(&proxy) == 1.0);
    let mut late = proxy.get("/a.css").start();
    wait_until("who comes late asks the origin", || origin.count() == 2);
    second.open();

    for (mut client, begun) in readers {
        let body = client.rest(begun).body;
        assert_eq!((body.length, body.whole), (3 * 0x1800, true));
    }
    assert_eq!(late.answer().body.length, 3 * 0x1800);
    assert!(!proxy.get("/a.css").send().is_hit());
}

#[test]
fn no_request_waits_for_a_page_known_to_be_too_large() {
    let gate = Gate::closed();
    let end = Arc::clone(&gate);
    let origin = Origin::start(move |_| {
        let half = "x".repeat(10_000);
        sheet().header("Content-Length", "20000").bytes(&half).until(&end).bytes(&half)
    });
    let proxy = Proxy::embedded(&origin, "cache.max_object = \"10KiB\"");

    let readers = readers(&proxy, 3);

    assert_eq!(origin.count(), 3, "each client has a response of its own");
    gate.open();
    for (mut client, begun) in readers {
        assert_eq!(client.rest(begun).body.length, 20_000);
    }
}

#[test]
fn without_room_for_more_bodies_they_pass_and_are_not_kept() {
    const LENGTH: usize = 800_000;
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let origin = Origin::start(move |request| {
        let reply = sheet().header("Content-Length", &LENGTH.to_string());
        let (most, rest) = ("x".repeat(LENGTH - 1), "x");
        match request.path() {
            "/a.css" => reply.bytes(&most).until(&held).bytes(rest),
            _ => reply.bytes(&most).bytes(rest),
        }
    });
    let settings = "limits.in_flight = \"1MiB\"\ncache.max_object = \"1MiB\"";
    let proxy = Proxy::embedded(&origin, settings);
    let mut readers = readers(&proxy, 1);
    #[expect(clippy::cast_precision_loss, reason = "a number of bytes in a test")]
    let most = (LENGTH - 1) as f64;
    wait_until("one body fills the room", || proxy.metric("anteroom_in_flight_bytes") >= most);

    for _ in 0..2 {
        let other = proxy.get("/b.css").send();
        assert_eq!((other.body.length, other.is_hit()), (LENGTH as u64, false));
    }
    gate.open();
    let (mut client, begun) = readers.remove(0);
    assert_eq!(client.rest(begun).body.length, LENGTH as u64);

    wait_until("what had room is kept", || proxy.get("/a.css").send().is_hit());
    wait_until("there is room again", || proxy.get("/b.css").send().is_hit());
    wait_until("all room is given back", || proxy.metric("anteroom_in_flight_bytes") == 0.0);
}
