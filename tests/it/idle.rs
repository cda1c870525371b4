//! Idle connections are laid aside, and taken up again when more comes. Only the proxy's memory shows it.

use std::net::Shutdown;

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, log_in, shop};
use crate::support::wait_until;

fn laid_aside(proxy: &Proxy) -> f64 {
    proxy.metric("anteroom_connections_laid_aside_total")
}

fn wait_until_laid_aside(proxy: &Proxy, times: f64) {
    wait_until("idle connections are laid aside", || laid_aside(proxy) >= times);
}

#[test]
fn a_connection_that_was_laid_aside_answers_as_before() {
    let origin = Origin::start(|_| Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "");
    let mut clients: Vec<_> = (0..5).map(|_| proxy.connect()).collect();
    for round in 1..=2 {
        for client in &mut clients {
            for _ in 0..2 {
                assert_eq!(proxy.get("/").send_on(client).text(), "hello");
            }
        }
        wait_until_laid_aside(&proxy, 5.0 * f64::from(round));
    }
    for client in &mut clients {
        assert_eq!(proxy.get("/").send_on(client).status, 200);
    }
}

#[test]
fn one_that_was_laid_aside_takes_a_request_in_parts_and_several_at_once() {
    let origin = Origin::start(|request| Reply::unstored(&request.target));
    let proxy = Proxy::embedded(&origin, "");
    let mut client = proxy.connect();
    proxy.get("/").send_on(&mut client);
    wait_until_laid_aside(&proxy, 1.0);
    for part in ["G", "ET /a HT", "TP/1.1\r\nHost: a\r\n", "\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n"]
    {
        assert!(client.send(part.as_bytes()));
    }
    assert_eq!(client.answer().text(), "/a");
    assert_eq!(client.answer().text(), "/b");
}

#[test]
fn one_is_laid_aside_behind_a_body_that_was_read_whole() {
    let origin =
        Origin::start(|request| Reply::unstored(&String::from_utf8_lossy(&request.body.bytes)));
    let proxy = Proxy::embedded(&origin, "");
    let chunked = "POST / HTTP/1.1\r\nHost: shop.test\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5\r\nhello\r\n0\r\n\r\n";
    let counted = "POST / HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 5\r\n\r\nhello";
    let mut clients = [proxy.connect(), proxy.connect()];
    for round in 1..=2 {
        for (client, request) in clients.iter_mut().zip([chunked, counted]) {
            assert!(client.send(request.as_bytes()));
            assert_eq!(client.answer().text(), "hello");
        }
        wait_until_laid_aside(&proxy, 2.0 * f64::from(round));
    }
}

#[test]
fn one_is_laid_aside_behind_a_change_of_a_cart() {
    let origin = shop(|_| Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "session.mint = true");
    let cookie = log_in(&proxy, "ada");
    let mut client = proxy.connect();
    for round in 1..=2 {
        let change = proxy.ask("PUT", "/_anteroom/cart").cookie(&cookie);
        let change = change.header("Sec-Fetch-Site", "same-origin");
        let change = change.header("Content-Type", "application/json");
        let change = change.body(br#"{"item":"mug","count":1}"#);
        assert_eq!(change.send_on(&mut client).status, 200);
        wait_until_laid_aside(&proxy, f64::from(round));
    }
}

#[test]
fn one_that_was_laid_aside_ends_when_its_client_leaves_or_its_time_is_over() {
    let origin = Origin::start(|_| Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "limits.idle_timeout = \"8s\"");
    let mut leaves = proxy.connect();
    let mut stays = proxy.connect();
    proxy.get("/").send_on(&mut leaves);
    proxy.get("/").send_on(&mut stays);
    wait_until_laid_aside(&proxy, 2.0);
    leaves.shut(Shutdown::Write);
    assert!(leaves.is_closed());
    assert!(stays.is_closed(), "at its idle deadline");
    wait_until("it is counted", || proxy.metric("anteroom_connections_timed_out_total") == 1.0);
    wait_until("both are gone", || proxy.metric("anteroom_connections") == 0.0);
}

#[test]
fn one_that_was_laid_aside_ends_at_the_drain() {
    let origin = Origin::start(|_| Reply::unstored("hello"));
    let mut proxy = Proxy::embedded(&origin, "");
    let mut client = proxy.connect();
    proxy.get("/").send_on(&mut client);
    wait_until_laid_aside(&proxy, 1.0);
    proxy.terminate();
    assert!(client.is_closed());
    assert_eq!(proxy.exit_code(), Some(0));
}
