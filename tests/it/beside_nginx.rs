//! The nginx configuration of `docs/guides/beside-nginx.md`: what reaches the target of the mirror, and that visitors
//! are served whatever the target does.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use crate::support::client::{Ask, Client};
use crate::support::nginx::Nginx;
use crate::support::origin::{Origin, Reply};
use crate::support::{free_port, wait_until};

const SITE: &str = "shop.example";

#[test]
fn a_copy_has_all_of_a_request_but_its_body() {
    let (app, target) = (app(), Origin::always(Reply::status("204 No Content")));
    let nginx = nginx(app.address(), target.address());
    let mut client = Client::open(nginx.address);
    let ask = |method, target| Ask::new(nginx.address, method, target).host(SITE);
    let read = ask("GET", "/a%20page?x=1&y=%2F").cookie("sessionid=abcdefgh");
    let saved = ask("POST", "/save").body(b"password=secret");
    for asked in [&read, &saved] {
        assert_eq!(asked.send_on(&mut client).text(), "the app");
    }
    assert_eq!(app.last().body.bytes, b"password=secret");

    wait_until("both are copied", || target.count() == 2);
    let [copy, saved] = &target.seen()[..] else { panic!("two copies") };
    assert_eq!((&*copy.method, &*copy.target), ("GET", "/a%20page?x=1&y=%2F"));
    assert_eq!(copy.header("host"), Some(SITE));
    assert_eq!(copy.header("cookie"), Some("sessionid=abcdefgh"));
    assert_eq!(copy.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!((&*saved.method, &*saved.target), ("POST", "/save"));
    assert_eq!(saved.body.bytes, b"");
    assert_eq!(saved.header("content-length"), None);
}

#[test]
fn visitors_are_served_while_the_target_is_away_or_does_not_answer() {
    let app = app();
    let silent = Origin::always(Reply::silence());
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    for target in [silent.address(), nobody] {
        let nginx = nginx(app.address(), target);
        // On one connection: nginx reads the next request behind the copy of the one before.
        let mut client = Client::open(nginx.address);
        for _ in 0..3 {
            let answer = Ask::new(nginx.address, "GET", "/").host(SITE).send_on(&mut client);
            assert_eq!((answer.status, &*answer.text()), (200, "the app"));
        }
    }
    assert_eq!(app.count(), 6);
    assert!(silent.count() > 0, "the silent target was asked");
}

fn app() -> Origin {
    Origin::always(Reply::html("the app"))
}

/// nginx as the guide has it, before this app and with this target of its mirror.
fn nginx(app: SocketAddr, target: SocketAddr) -> Nginx {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guides/beside-nginx.md");
    let guide = fs::read_to_string(guide).unwrap();
    let (_, block) = guide.split_once("```nginx\n").expect("a block for nginx");
    let (block, _) = block.split_once("```").expect("its end");
    let site = block
        .replace("127.0.0.1:3000", &app.to_string())
        .replace("127.0.0.1:8090", &target.to_string());
    Nginx::with_site(&site)
}
