//! Varnish and HAProxy as `docs/guides/behind-a-proxy.md` has them, with a learning proxy between them and the app:
//! visitors are answered when it is killed, and each gets an answer of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use serde_json::Value;

use crate::support::client::{Answer, Ask, Client};
use crate::support::haproxy::Haproxy;
use crate::support::origin::{Gate, Origin, Reply, Request};
use crate::support::proxy::Proxy;
use crate::support::varnish::Varnish;
use crate::support::{guide_block, wait_until};

const GUIDE: &str = "behind-a-proxy.md";
const SITE: &str = "shop.example";
/// Enough that a twentieth of them is somebody.
const VISITORS: std::ops::RangeInclusive<u8> = 1..=100;

mod varnish {
    use super::*;

    #[test]
    fn visitors_are_answered_when_the_proxy_is_killed() {
        let app = app();
        let mut proxy = learner(&app);
        let varnish = varnish(&app, &proxy);
        let get = |target: &str| Ask::new(varnish.address, "GET", target).host(SITE).send();
        let post = |target: &str| Ask::new(varnish.address, "POST", target).host(SITE);
        until_it_is_in_the_path(&app, get);

        proxy.kill9();
        for n in 0..5 {
            let page = format!("/after/{n}");
            let answer = get(&page);
            assert_eq!((answer.status, answer.text()), (200, format!("{page} for a stranger")));
        }
        wait_until("a form is taken", || post("/form").body(b"a=b").send().status == 200);
        // What was answered 503 has not reached the app.
        let forms = app.seen().into_iter().filter(|request| request.path() == "/form");
        assert_eq!(forms.count(), 1);

        proxy.restart();
        until_it_is_in_the_path(&app, get);
    }

    #[test]
    fn visitors_get_their_own_pages_and_what_varnish_passes_is_counted() {
        let app = app();
        let proxy = learner(&app);
        let varnish = varnish(&app, &proxy);
        let ask = || Ask::new(varnish.address, "GET", "/page").host(SITE);
        until_it_is_in_the_path(&app, |target| {
            Ask::new(varnish.address, "GET", target).host(SITE).send()
        });
        for _ in 0..2 {
            assert_eq!(ask().send().text(), "/page for a stranger");
            for user in ["ann-0123456789", "bob-0123456789"] {
                let cookie = format!("sessionid={user}");
                let answer = ask().cookie(&cookie).send();
                assert_eq!(answer.text(), format!("/page for {cookie}"));
            }
        }
        let answer = ask().send();
        assert_eq!(answer.header("cache-status"), None, "what was said of another request");
        let pages = app.seen().into_iter().filter(|request| request.path() == "/page");
        assert_eq!(pages.count(), 5, "a stranger's page is stored by Varnish");
        all_that_passed_are_counted(&app, &proxy);
    }

    fn varnish(app: &Origin, proxy: &Proxy) -> Varnish {
        let port = |address: SocketAddr| format!(".port = \"{}\"", address.port());
        let vcl = guide_block(GUIDE, "vcl", "vcl 4.1;")
            .replace(".port = \"3000\"", &port(app.address()))
            .replace(".port = \"8090\"", &port(proxy.address()))
            .replace(".port = \"9180\"", &port(proxy.admin_address()));
        Varnish::with_vcl(&vcl)
    }
}

mod haproxy {
    use super::*;

    #[test]
    fn a_part_of_the_visitors_passes_through_the_proxy_and_all_are_answered_when_it_is_killed() {
        let app = app();
        let mut proxy = learner(&app);
        let haproxy = haproxy(&app, &proxy, &guide_block(GUIDE, "haproxy", "defaults"));
        let ways = |target: &str| -> Vec<bool> {
            let way = |n| is_through(&visit(&haproxy, n, "GET", target));
            VISITORS.map(way).collect()
        };
        let first = ways("/page");
        let part = first.iter().filter(|is_through| **is_through).count();
        assert!((1..=25).contains(&part), "{part} of {} pass through it", first.len());
        assert_eq!(ways("/other"), first, "each goes one way");
        let addresses = app.seen().into_iter().filter(has_passed).map(|request| {
            request.header("x-forwarded-for").unwrap().parse::<Ipv4Addr>().unwrap().octets()[3]
        });
        let passed: Vec<u8> = VISITORS.zip(first).filter_map(|(n, way)| way.then_some(n)).collect();
        assert_eq!(addresses.collect::<Vec<_>>(), [&passed[..], &passed[..]].concat());
        all_that_passed_are_counted(&app, &proxy);

        proxy.kill9();
        all_go_around_it(&haproxy);
    }

    #[test]
    fn all_visitors_pass_through_the_proxy_and_go_around_it_when_it_is_killed() {
        let gate = Gate::closed();
        let app = app_that_waits(Arc::clone(&gate));
        let mut proxy = learner(&app);
        let part = guide_block(GUIDE, "haproxy", "defaults");
        let (head, _) = part.split_once("\nbackend app\n").unwrap();
        let config = [head, &guide_block(GUIDE, "haproxy", "backend app")].join("\n");
        let haproxy = haproxy(&app, &proxy, &config);
        for n in VISITORS {
            let answer = visit(&haproxy, n, "GET", "/page");
            assert_eq!(answer.text(), format!("/page for visitor={n}"));
            assert!(is_through(&answer));
        }
        all_that_passed_are_counted(&app, &proxy);

        let ask = |method, target| Ask::new(haproxy.address, method, target).host(SITE);
        let mut read = ask("GET", "/slow-page").start();
        let mut saved = ask("POST", "/slow-form").body(b"a=b").start();
        let under_way = |request: &Request| request.path().starts_with("/slow");
        wait_until("both are under way", || {
            app.seen().iter().filter(|request| under_way(request)).count() == 2
        });
        proxy.kill9();
        // Its repetitions may all come before HAProxy has taken the proxy out.
        let read = read.answer();
        assert!(read.text() == "/slow-page for a stranger" || read.status == 503, "{read:?}");
        assert_eq!(saved.answer().status, 502);
        let repeated = app.seen().into_iter().filter(|request| request.path() == "/slow-form");
        assert_eq!(repeated.count(), 1, "what the app may have carried out is not sent again");
        all_go_around_it(&haproxy);
        gate.open();

        proxy.restart();
        wait_until("it is in the path again", || is_through(&visit(&haproxy, 1, "GET", "/page")));
    }

    /// Each visitor gets its own page from the app.
    fn all_go_around_it(haproxy: &Haproxy) {
        for method in ["POST", "GET"] {
            for n in VISITORS {
                let answer = visit(haproxy, n, method, "/after");
                let own = format!("/after for visitor={n}");
                assert_eq!((answer.status, answer.text()), (200, own));
            }
        }
    }

    fn haproxy(app: &Origin, proxy: &Proxy, config: &str) -> Haproxy {
        let config = config
            // On a busy machine a check may be answered late.
            .replace("timeout connect 1s", "timeout connect 1s\n    timeout check 10s")
            .replace("127.0.0.1:3000", &app.address().to_string())
            .replace("127.0.0.1:8090", &proxy.address().to_string())
            .replace("port 9180", &format!("port {}", proxy.admin_address().port()));
        Haproxy::with_config(&config)
    }

    /// The visitor of this number, at an address and with a cookie of its own.
    fn visit(haproxy: &Haproxy, n: u8, method: &str, target: &str) -> Answer {
        let mut client = Client::open_from(Ipv4Addr::new(127, 0, 1, n), haproxy.address);
        let ask = Ask::new(haproxy.address, method, target).host(SITE);
        let ask = ask.cookie(&format!("visitor={n}"));
        let ask = if method == "POST" { ask.body(b"a=b") } else { ask };
        ask.send_on(&mut client)
    }
}

/// It says in each page for which cookie it made it.
fn app() -> Origin {
    let opened = Gate::closed();
    opened.open();
    app_that_waits(opened)
}

/// The same; what has passed through the proxy for a slow page waits at the gate.
fn app_that_waits(gate: Arc<Gate>) -> Origin {
    Origin::start(move |request| {
        if request.path().starts_with("/slow") && has_passed(request) {
            gate.pass();
        }
        let whose = request.header("cookie").unwrap_or("a stranger");
        Reply::html(&format!("{} for {whose}", request.path()))
            .header("Cache-Control", if whose == "a stranger" { "max-age=60" } else { "private" })
    })
}

/// A proxy as the guide has it.
fn learner(app: &Origin) -> Proxy {
    let settings = "cache.mode = \"learn\"\nsession.cookie = \"sessionid\"\n\
                    client.trusted_proxies = [\"127.0.0.1\"]";
    Proxy::embedded(app, settings)
}

/// Asks for new pages until one comes through the proxy.
fn until_it_is_in_the_path(app: &Origin, get: impl Fn(&str) -> Answer) {
    let mut asked = app.count();
    wait_until("requests pass through the proxy", || {
        asked += 1;
        assert_eq!(get(&format!("/first/{asked}")).status, 200);
        has_passed(&app.last())
    });
}

/// Whether the app got it through the proxy.
fn has_passed(request: &Request) -> bool {
    request.header("via").is_some_and(|via| via.contains("anteroom"))
}

fn is_through(answer: &Answer) -> bool {
    answer.header("cache-status").is_some()
}

fn all_that_passed_are_counted(app: &Origin, proxy: &Proxy) {
    let passed = app.seen().iter().filter(|request| has_passed(request)).count();
    let counted = || -> Value {
        let report = proxy.learned();
        report["requests"].clone()
    };
    wait_until("all that passed are counted", || counted() == passed);
}
