//! Towards the origin: TLS, HTTP/2 and Unix sockets.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, Version};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::version;
use tempfile::TempDir;

use crate::support::origin::{Gate, Rendezvous};
use crate::support::proxy::{Proxy, Storage};
use crate::support::relay::Relay;
use crate::support::upstream::{Authority, Upstream, UpstreamRequest, impostor};
use crate::support::{at_once, wait_until};

fn page(text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let response = Response::builder().header("cache-control", "no-store");
    response.body(Full::new(text.into())).unwrap()
}

fn hello(_: &UpstreamRequest) -> Response<Full<Bytes>> {
    page("hello")
}

/// A proxy before `https://<host>:<port>`, with further settings of `[origin]`.
fn before(upstream: &Upstream, host: &str, settings: &[(&str, &str)]) -> Proxy {
    before_on(upstream, host, settings, "")
}

/// The same, with further settings of all.
fn before_on(upstream: &Upstream, host: &str, settings: &[(&str, &str)], more: &str) -> Proxy {
    let mut lines = format!("origin.url = \"https://{host}:{}\"\n{more}\n", upstream.port());
    for (key, value) in settings {
        writeln!(lines, "origin.{key} = {value}").unwrap();
    }
    Proxy::before(upstream.address(), &Storage::Embedded, &lines)
}

/// The same before HTTP/2 in clear text.
fn before_clear(upstream: &Upstream, settings: &str) -> Proxy {
    let settings = format!("origin.http2 = \"always\"\n{settings}");
    Proxy::before(upstream.address(), &Storage::Embedded, &settings)
}

fn quoted(path: &Path) -> String {
    format!("{:?}", path.to_str().unwrap())
}

#[test]
fn the_certificate_of_the_origin_is_verified() {
    let folder = TempDir::new().unwrap();
    let (authority, other) = (Authority::new(), Authority::new());
    let ca = quoted(&authority.file(folder.path()));
    let good = authority.issue("localhost", false);
    let ours = Upstream::http(Some(authority.server(&good, &[], false)), false, hello);
    // The name may stand for several addresses, of which the first need not answer.
    let proxy = before(&ours, "localhost", &[("tls.ca", &ca)]);
    assert_eq!(proxy.get("/").send().text(), "hello");
    assert_eq!(ours.last().met.name.as_deref(), Some("localhost"));
    assert_eq!(ours.last().met.key_exchange, Some(rustls::NamedGroup::X25519MLKEM768));
    // A name of its own.
    let named = [("tls.ca", ca.as_str()), ("tls.server_name", "\"localhost\"")];
    assert_eq!(before(&ours, "127.0.0.1", &named).get("/").send().status, 200);

    let over = authority.issue("localhost", true);
    let strange = other.issue("localhost", false);
    for (certificate, signer, host, why) in [
        (&strange, &other, "localhost", "UnknownIssuer"),
        (&good, &authority, "127.0.0.1", "not valid for name"),
        (&over, &authority, "localhost", "expired"),
    ] {
        let upstream = Upstream::http(Some(signer.server(certificate, &[], false)), false, hello);
        let proxy = before(&upstream, host, &[("tls.ca", &ca)]);
        assert_eq!(proxy.get("/").send().status, 502, "{why}");
        assert_eq!(proxy.post("/").send().status, 502, "{why}");
        wait_until(why, || proxy.complaints().contains(why));
        assert!(upstream.seen().is_empty());
        // Where the operator says so.
        let blind = before(&upstream, host, &[("tls.verify", "false")]);
        assert_eq!(blind.get("/").send().status, 200, "{why}");
        assert!(
            blind.complaints().contains("origin.tls.verify")
                || blind.complaints().contains("verify")
        );
    }
}

#[test]
fn an_origin_without_the_key_of_its_certificate_is_refused() {
    let folder = TempDir::new().unwrap();
    let authority = Authority::new();
    let ca = quoted(&authority.file(folder.path()));
    let shown = authority.issue("localhost", false);
    for version in [&version::TLS12, &version::TLS13] {
        let upstream = Upstream::http(Some(impostor(&shown, version)), false, hello);
        // Also where any certificate does.
        for trust in [("tls.ca", ca.as_str()), ("tls.verify", "false")] {
            let proxy = before(&upstream, "localhost", &[trust]);
            assert_eq!(proxy.get("/").send().status, 502, "{version:?} {trust:?}");
            wait_until("the log says why", || proxy.complaints().contains("BadSignature"));
        }
        assert!(upstream.seen().is_empty());
    }
}

#[test]
fn an_origin_may_require_a_client_certificate() {
    let folder = TempDir::new().unwrap();
    let authority = Authority::new();
    let ca = quoted(&authority.file(folder.path()));
    let server = authority.issue("localhost", false);
    let us = authority.issue("proxy", false);
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    std::fs::write(&cert, us.cert.pem()).unwrap();
    std::fs::write(&key, us.key.serialize_pem()).unwrap();
    let upstream = Upstream::http(Some(authority.server(&server, &[], true)), false, hello);

    let (cert, key) = (quoted(&cert), quoted(&key));
    let with = [("tls.ca", ca.as_str()), ("tls.cert", &cert), ("tls.key", &key)];
    assert_eq!(before(&upstream, "localhost", &with).get("/").send().status, 200);
    assert_eq!(before(&upstream, "localhost", &[("tls.ca", &ca)]).get("/").send().status, 502);
}

#[test]
fn a_session_of_tls_is_taken_up_again() {
    let folder = TempDir::new().unwrap();
    let authority = Authority::new();
    let ca = quoted(&authority.file(folder.path()));
    let issued = authority.issue("localhost", false);
    let upstream = Upstream::http(Some(authority.server(&issued, &[], false)), false, hello);
    let settings = [("tls.ca", ca.as_str()), ("keep_idle", "0")];
    let proxy = before(&upstream, "localhost", &settings);
    wait_until("a connection that resumes", || {
        assert_eq!(proxy.get("/").send().status, 200);
        upstream.last().met.resumed
    });
}

#[test]
fn a_handshake_is_part_of_connecting() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = silent.local_addr().unwrap();
    let settings = format!(
        "origin.url = \"https://{address}\"\norigin.connect_timeout = \"300ms\"\norigin.tls.verify = false"
    );
    let proxy = Proxy::before(address, &Storage::Embedded, &settings);
    // All requests that wait for the connecting one give up with it.
    let statuses = at_once(8, |_| proxy.get("/").send().status);
    assert_eq!(statuses, [504; 8]);
}

#[test]
fn waiting_for_another_connection_leaves_time_to_connect() {
    let authority = Authority::new();
    let issued = authority.issue("localhost", false);
    let server = authority.server(&issued, &["h2"], false);
    let (met_first, met_second, goes_on) = (Gate::closed(), Gate::closed(), Gate::closed());
    let gates = [&met_first, &met_second, &goes_on].map(Arc::clone);
    let upstream = Upstream::start(None, move |met, socket| {
        let server = Arc::clone(&server);
        let [met_first, met_second, goes_on] = gates.each_ref().map(Arc::clone);
        Box::pin(async move {
            if met.nth == 0 {
                met_first.open();
                return std::future::pending().await;
            }
            met_second.open();
            tokio::task::spawn_blocking(move || goes_on.pass()).await.unwrap();
            let acceptor = tokio_rustls::TlsAcceptor::from(server);
            let Ok(socket) = acceptor.accept(socket).await else { return };
            let Ok(mut connection) = h2::server::handshake(socket).await else { return };
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                drop(respond.send_response(Response::<()>::default(), true));
            }
        })
    });
    // Tells by its answers that half of the time has gone by that connecting may take.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = silent.local_addr().unwrap();
    let clock = format!(
        "threads = 1\n\
         origins.silent = {{ url = \"https://{address}\", tls.verify = false, connect_timeout = \"1500ms\" }}\n\
         route = [{{ match.path = \"/silent\", origin = \"silent\" }}]"
    );
    let settings = [("tls.verify", "false"), ("connect_timeout", "\"3s\"")];
    let proxy = before_on(&upstream, "localhost", &settings, &clock);
    let half_goes_by = || assert_eq!(proxy.post("/silent").send().status, 504);

    let first = proxy.post("/").start();
    met_first.pass();
    half_goes_by();
    let mut second = proxy.post("/").start();
    met_second.pass();
    half_goes_by();
    goes_on.open();

    assert_eq!(second.answer().status, 200);
    drop(first);
}

#[test]
fn an_origin_that_wants_http1_gets_it() {
    let upstream = Upstream::start(None, move |met, socket| {
        Box::pin(async move {
            if met.nth > 0 {
                let service = service_fn(|_| async { Ok::<_, hyper::Error>(page("one")) });
                let builder = hyper::server::conn::http1::Builder::new();
                return drop(builder.serve_connection(TokioIo::new(socket), service).await);
            }
            let Ok(mut connection) = h2::server::handshake(socket).await else { return };
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                match request.uri().path() {
                    "/two" => drop(respond.send_response(Response::<()>::default(), true)),
                    _ => respond.send_reset(h2::Reason::HTTP_1_1_REQUIRED),
                }
            }
        })
    });
    let proxy = before_clear(&upstream, "threads = 1");
    assert_eq!(proxy.get("/two").send().status, 200);
    assert_eq!(proxy.ask("DELETE", "/").send().text(), "one");
    // From now on it is asked so at once, also with what could not be sent again.
    assert_eq!(proxy.post("/").body(b"body").send().text(), "one");
    assert_eq!(proxy.get("/two").send().text(), "one");
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn departing_clients_do_not_flood_a_shared_connection_with_resets() {
    let asked = Arc::new(AtomicUsize::new(0));
    let (count, gate) = (Arc::clone(&asked), Gate::closed());
    let held = Arc::clone(&gate);
    let upstream = Upstream::start(None, move |met, socket| {
        let (count, held) = (Arc::clone(&count), Arc::clone(&held));
        Box::pin(async move {
            let Ok(mut connection) = h2::server::handshake(socket).await else { return };
            let mut hanging = Vec::new();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                match request.uri().path() {
                    "/hangs" => hanging.push(respond),
                    "/waits" => {
                        let held = Arc::clone(&held);
                        tokio::runtime::Handle::current().spawn(async move {
                            tokio::task::spawn_blocking(move || held.pass()).await.unwrap();
                            drop(respond.send_response(Response::<()>::default(), true));
                        });
                    }
                    _ => {
                        let nth = Response::builder().header("x-nth", met.nth);
                        drop(respond.send_response(nth.body(()).unwrap(), true));
                    }
                }
            }
        })
    });
    let proxy = before_clear(&upstream, "threads = 1");
    let mut waiting = proxy.get("/waits").header("Authorization", "Basic eA==").start();
    let arrives = |nth: usize| wait_until("it is asked", || asked.load(Ordering::SeqCst) == nth);
    arrives(1);
    for nth in 0..40 {
        let ask = proxy.get("/hangs").header("Authorization", "Basic eA==").start();
        arrives(nth + 2);
        ask.leave();
    }
    let answer = proxy.post("/").send();
    assert_eq!(answer.header("x-nth"), Some("1"));
    // Requests that were under way are served to the end.
    gate.open();
    assert_eq!(waiting.answer().status, 200);
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn a_response_that_came_whole_is_not_called_off() {
    let upstream = Upstream::start(None, move |_, socket| {
        Box::pin(async move {
            let Ok(mut connection) = h2::server::handshake(socket).await else { return };
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let head = Response::builder().header("content-length", 5);
                let mut out = respond.send_response(head.body(()).unwrap(), false).unwrap();
                out.send_data(Bytes::from("hello"), false).unwrap();
                drop(out.send_data(Bytes::new(), true));
            }
        })
    });
    let proxy = before_clear(&upstream, "threads = 1");
    for _ in 0..40 {
        assert_eq!(proxy.post("/").send().text(), "hello");
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn http2_is_spoken_where_both_want_it() {
    let folder = TempDir::new().unwrap();
    let authority = Authority::new();
    let ca = quoted(&authority.file(folder.path()));
    let issued = authority.issue("localhost", false);
    let both = authority.server(&issued, &["h2", "http/1.1"], false);
    let upstream = Upstream::http(Some(both), false, |seen| page(seen.body.clone()));
    let proxy = before(&upstream, "localhost", &[("tls.ca", &ca)]);
    let answer = proxy
        .ask("PUT", "/a?b=%20c")
        .cookie("a=b; c=d")
        .header("Connection", "x-hop, keep-alive")
        .header("X-Hop", "1")
        .header("Keep-Alive", "timeout=5")
        .header("TE", "trailers, gzip")
        .header("Expect", "100-continue")
        .body(b"body")
        .send();
    assert_eq!((answer.status, answer.text().as_str()), (200, "body"));
    assert_eq!(answer.reason, "OK");
    let seen = upstream.last();
    assert_eq!((seen.version, seen.method), (Version::HTTP_2, Method::PUT));
    assert_eq!(seen.uri.to_string(), "https://shop.test/a?b=%20c");
    assert_eq!(seen.headers.get("content-length").unwrap(), "4");
    assert_eq!(seen.headers.get("te").unwrap(), "trailers");
    assert_eq!(seen.headers.get_all("cookie").iter().collect::<Vec<_>>(), ["a=b; c=d"]);
    for name in ["host", "connection", "x-hop", "keep-alive", "expect", "transfer-encoding"] {
        assert!(!seen.headers.contains_key(name), "{name}");
    }

    // A login of the connection is not for a connection of many.
    proxy.get("/").header("Authorization", "NTLM TlRMTVNTUAAB").send();
    assert_eq!(upstream.last().version, Version::HTTP_11);
    let never = before(&upstream, "localhost", &[("tls.ca", &ca), ("http2", "\"never\"")]);
    never.get("/").send();
    assert_eq!(upstream.last().version, Version::HTTP_11);

    let old = authority.server(&issued, &["http/1.1"], false);
    let upstream = Upstream::http(Some(old), false, hello);
    let proxy = before(&upstream, "localhost", &[("tls.ca", &ca)]);
    assert_eq!(at_once(8, |_| proxy.get("/").send().status), [200; 8]);
    assert_eq!(upstream.last().version, Version::HTTP_11);
}

#[test]
fn requests_share_a_connection_of_http2() {
    let together = Rendezvous::of(20);
    let met = Arc::clone(&together);
    let upstream = Upstream::http(None, true, move |seen| {
        if seen.uri.path() == "/together" {
            met.arrive();
        }
        page("hello")
    });
    // The app answers none until it was asked for all.
    let proxy = before_clear(&upstream, "threads = 1\norigin.overload = \"off\"");
    assert_eq!(at_once(20, |_| proxy.get("/together").send().status), [200; 20]);
    assert!(together.is_complete());
    assert_eq!(upstream.connections(), 1);
    assert_eq!(proxy.ask("HEAD", "/").send().status, 200);
    assert_eq!(proxy.ask("OPTIONS", "*").send().status, 200);
    assert_eq!(proxy.post("/").send().status, 200);
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn an_origin_that_takes_few_streams_gets_more_connections() {
    seven_at_once_to_two_streams_each(Duration::ZERO);
}

#[test]
fn an_origin_that_says_late_how_few_streams_it_takes_has_to_refuse_none() {
    seven_at_once_to_two_streams_each(Duration::from_millis(100));
}

/// An origin says after this time how many streams it takes, on all connections but the first.
fn seven_at_once_to_two_streams_each(later: Duration) {
    let together = Rendezvous::of(7);
    let met = Arc::clone(&together);
    let upstream = Upstream::start(None, move |connection, socket| {
        let met = Arc::clone(&met);
        Box::pin(async move {
            if connection.nth > 0 {
                tokio::time::sleep(later).await;
            }
            let mut builder = h2::server::Builder::new();
            let Ok(mut connection) =
                builder.max_concurrent_streams(2).handshake::<_, Bytes>(socket).await
            else {
                return;
            };
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let met = Arc::clone(&met);
                tokio::runtime::Handle::current().spawn(async move {
                    if request.uri().path() == "/together" {
                        tokio::task::spawn_blocking(move || met.arrive()).await.unwrap();
                    }
                    drop(respond.send_response(Response::new(()), true));
                });
            }
        })
    });
    let proxy = before_clear(&upstream, "threads = 1");
    // It has told its bound by then.
    assert_eq!(proxy.post("/").send().status, 200);
    assert_eq!(at_once(7, |_| proxy.post("/together").send().status), [200; 7]);
    assert!(together.is_complete());
    assert_eq!(upstream.connections(), 4);
}

#[test]
fn a_request_the_origin_did_not_process_is_sent_again() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let upstream = Upstream::start(None, move |met, socket| {
        let count = Arc::clone(&count);
        Box::pin(async move {
            let Ok(mut connection) = h2::server::handshake(socket).await else { return };
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let nth = count.fetch_add(1, Ordering::SeqCst);
                match request.uri().path() {
                    "/refused" if nth == 0 => respond.send_reset(h2::Reason::REFUSED_STREAM),
                    "/never" => respond.send_reset(h2::Reason::REFUSED_STREAM),
                    "/away" if met.nth == 0 => connection.graceful_shutdown(),
                    "/reset" => respond.send_reset(h2::Reason::INTERNAL_ERROR),
                    _ => drop(respond.send_response(Response::new(()), true)),
                }
            }
        })
    });
    let proxy = before_clear(&upstream, "threads = 1");
    let requests = |path: &str, body: Option<&[u8]>, method: &str| {
        asked.store(0, Ordering::SeqCst);
        let ask = proxy.ask(method, path);
        let ask = if let Some(body) = body { ask.body(body) } else { ask };
        (ask.send().status, asked.load(Ordering::SeqCst))
    };
    assert_eq!(requests("/refused", None, "GET"), (200, 2));
    assert_eq!(requests("/refused", None, "DELETE"), (200, 2));
    // Its body is gone.
    assert_eq!(requests("/refused", Some(b"body"), "POST"), (503, 1));
    assert_eq!(requests("/never", None, "DELETE"), (503, 2));
    // It may have been looked at.
    assert_eq!(requests("/reset", None, "DELETE"), (502, 1));
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn an_origin_that_sends_goaway_is_reconnected() {
    let upstream = Upstream::start(None, move |met, socket| {
        Box::pin(async move {
            let Ok(mut connection) = h2::server::handshake(socket).await else { return };
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                drop(respond.send_response(Response::new(()), true));
                if met.nth < 3 {
                    connection.graceful_shutdown();
                }
            }
        })
    });
    let proxy = before_clear(&upstream, "threads = 1");
    for _ in 0..6 {
        assert_eq!(proxy.post("/").send().status, 200);
    }
    assert_eq!(upstream.connections(), 4);
}

#[test]
fn a_connection_on_which_nothing_comes_is_found_out() {
    let upstream = Upstream::http(None, true, hello);
    let relay = Relay::start(upstream.port());
    let settings = format!(
        "origin.url = \"http://127.0.0.1:{}\"\norigin.http2 = \"always\"\norigin.http2_ping = \"200ms\"\nthreads = 1",
        relay.port()
    );
    let proxy = Proxy::before(upstream.address(), &Storage::Embedded, &settings);
    assert_eq!(proxy.get("/").send().status, 200);
    relay.hold();
    // Not by its own time, which is a minute.
    assert_eq!(proxy.post("/").send().status, 502);
    relay.pass();
    assert_eq!(proxy.get("/").send().status, 200);
}

#[test]
fn an_origin_may_listen_on_a_unix_socket() {
    use std::io::{BufRead as _, Write as _};

    let folder = TempDir::new().unwrap();
    let path = folder.path().join("app.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut lines = std::io::BufReader::new(socket.try_clone().unwrap()).lines();
        while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").unwrap();
    });
    let settings = format!("origin.url = \"unix:{}\"", path.display());
    let nobody = std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let proxy = Proxy::before(nobody, &Storage::Embedded, &settings);
    assert_eq!(proxy.get("/").send().text(), "hello");
}

#[test]
fn an_origin_that_takes_no_streams_is_not_connected_to_ever_more() {
    let open = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&open);
    let upstream = Upstream::start(None, move |_, socket| {
        let open = Arc::clone(&count);
        Box::pin(async move {
            open.fetch_add(1, Ordering::SeqCst);
            let mut builder = h2::server::Builder::new();
            if let Ok(mut connection) =
                builder.max_concurrent_streams(0).handshake::<_, Bytes>(socket).await
            {
                while let Some(Ok(_)) = connection.accept().await {}
            }
            open.fetch_sub(1, Ordering::SeqCst);
        })
    });
    let settings = "origin.http2 = \"always\"\norigin.first_byte_timeout = \"200ms\"\nthreads = 1";
    let proxy = Proxy::before(upstream.address(), &Storage::Embedded, settings);
    for _ in 0..8 {
        // What is sent before it says so is refused; behind that, it waits for its place.
        assert!(matches!(proxy.get("/").send().status, 503 | 504));
        let posted = proxy.ask("POST", "/").body(b"an order").send();
        assert!(matches!(posted.status, 503 | 504));
    }
    wait_until("those that are of no use are closed", || open.load(Ordering::SeqCst) <= 2);
}
