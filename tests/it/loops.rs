//! Requests that come back to the proxy that has sent them.

use std::net::{Ipv4Addr, SocketAddr};

use crate::support::client::Ask;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage};
use crate::support::relay::Relay;

/// Makes `next` the origin of a proxy; whether it takes it.
fn lead(proxy: &Proxy, from: SocketAddr, next: SocketAddr) -> bool {
    proxy.edit(|text| text.replace(&from.to_string(), &next.to_string()));
    proxy.reload()
}

#[test]
fn a_proxy_does_not_take_itself_for_its_origin() {
    let origin = Origin::always(Reply::html("<p>the app</p>"));
    let proxy = Proxy::embedded(&origin, "");
    assert!(!lead(&proxy, origin.address(), proxy.address()));
    assert!(proxy.complaints().contains("where Anteroom listens"), "{}", proxy.complaints());
    assert_eq!(proxy.get("/a").send().text(), "<p>the app</p>");
}

#[test]
fn a_request_that_comes_back_is_answered_at_once() {
    let origin = Origin::always(Reply::html("<p>the app</p>"));
    let relay = Relay::start(origin.address().port());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, relay.port()));
    let proxy = Proxy::before(address, &Storage::Embedded, "");
    relay.lead_to(proxy.address().port());
    for ask in
        [proxy.get("/a"), proxy.post("/a").body(b"b"), proxy.get("/a?id=1").header("X-A", "1")]
    {
        assert_eq!(ask.send().status, 508);
    }
    // The visitor's request, and the one that has come back, of which each has its line.
    let log = proxy.access_log(6);
    assert_eq!(log.iter().filter(|line| line["reason"] == "loop").count(), 3, "{log:?}");
    assert_eq!(origin.count(), 0);
}

#[test]
fn an_app_may_pass_a_request_on_to_another_path_or_site() {
    // The first of two apps passes requests on, with their fields, to the site of the second.
    let (relay, last) = (Relay::start(1), Origin::always(Reply::html("<p>the app</p>")));
    let settings = format!(
        "[origins.last]\nurl = \"http://{}\"\n[[route]]\nmatch.host = \"api.test\"\norigin = \"last\"",
        last.address()
    );
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, relay.port()));
    let proxy = Proxy::before(address, &Storage::Embedded, &settings);
    let seen_by_first = Origin::start({
        let proxy_address = proxy.address();
        move |request| {
            let mut ask = Ask::new(proxy_address, "GET", request.path()).host("api.test");
            for mark in request.fields.all("cdn-loop") {
                ask = ask.header("CDN-Loop", mark);
            }
            Reply::unstored(&ask.send().text())
        }
    });
    relay.lead_to(seen_by_first.address().port());
    for page in ["/a", "/b?id=1"] {
        assert_eq!(proxy.get(page).send().text(), "<p>the app</p>", "{page}");
    }
}

#[test]
fn a_way_round_over_another_proxy_ends_where_it_began() {
    let origin = Origin::always(Reply::html("<p>the app</p>"));
    let first = Proxy::embedded(&origin, "");
    let second = Proxy::before(first.address(), &Storage::Embedded, "");
    // Two proxies, one behind the other, are no loop.
    assert_eq!(second.get("/a").send().text(), "<p>the app</p>");
    assert!(lead(&first, origin.address(), second.address()));
    for ask in [first.get("/b"), second.get("/c"), first.post("/b").body(b"b")] {
        assert_eq!(ask.send().status, 508);
    }
    assert_eq!(origin.count(), 1);
}

#[test]
fn what_others_write_there_reaches_the_app_but_no_shared_page() {
    let origin = Origin::always(Reply::unstored("found"));
    let proxy = Proxy::embedded(&origin, "");
    let ask = |method: &str| {
        let ask = proxy.ask(method, "/").header("CDN-Loop", "cloudflare, <b>");
        ask.header("CDN-Loop", "anteroom;id=0123456789abcdef").send();
        let seen = origin.last();
        let lines: Vec<_> = seen.fields.all("cdn-loop").map(str::to_owned).collect();
        lines
    };
    let forwarded = ask("DELETE");
    assert_eq!(forwarded[..2], ["cloudflare, <b>", "anteroom;id=0123456789abcdef"]);
    let own = forwarded.last().unwrap().clone();
    assert!(own.starts_with("anteroom;id=") && own.len() == forwarded[1].len(), "{own}");
    assert_eq!(ask("GET"), ["anteroom;id=0123456789abcdef", &own]);
    let forged = proxy.get("/").header("CDN-Loop", &own).send();
    assert_eq!(forged.status, 508);
}
