//! What goes both ways at once, and what comes in pieces over time: nothing of it waits for more.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;
use http::{HeaderMap, Response};

use crate::support::frames::{Frames, block, flag, frame, kind};
use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::{Proxy, Storage};
use crate::support::upstream::Upstream;
use crate::support::wait_until;

/// An origin of HTTP/2 that answers before it has read, and sends back what comes as it comes.
fn echo() -> Upstream {
    Upstream::start(None, |_, socket| {
        Box::pin(async move {
            let Ok(mut connection) = h2::server::handshake(socket).await else { return };
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                tokio::runtime::Handle::current().spawn(async move {
                    let head = Response::builder()
                        .header("content-type", "application/grpc")
                        .header("trailer", "grpc-status")
                        .header("cache-control", "max-age=60");
                    let Ok(mut out) = respond.send_response(head.body(()).unwrap(), false) else {
                        return;
                    };
                    let mut body = request.into_body();
                    while let Some(Ok(part)) = body.data().await {
                        drop(body.flow_control().release_capacity(part.len()));
                        if out.send_data(part, false).is_err() {
                            return;
                        }
                    }
                    let mut trailers = HeaderMap::new();
                    trailers.insert("grpc-status", "5".parse().unwrap());
                    trailers.insert("anteroom-login", "root".parse().unwrap());
                    drop(out.send_trailers(trailers));
                });
            }
        })
    })
}

#[test]
fn a_call_of_small_messages_to_and_fro_goes_on() {
    let upstream = echo();
    let settings = "threads = 1\norigin.http2 = \"always\"";
    let proxy = Proxy::before(upstream.address(), &Storage::Embedded, settings);
    let mut client = Frames::open(proxy.address());
    let head =
        [(":method", "POST"), (":scheme", "http"), (":path", "/call"), (":authority", "shop.test")];
    let call = [("content-type", "application/grpc"), ("te", "trailers")];
    let head = block(&[&head[..], &call].concat());
    client.send(&frame(kind::HEADERS, flag::END_HEADERS, 1, &head));
    let message = frame(kind::DATA, 0, 1, b"ping");
    let window = |stream| frame(kind::WINDOW_UPDATE, 0, stream, &4_u32.to_be_bytes());
    for number in 0..5_000 {
        client.send(&message);
        let mut bytes = 0;
        while bytes < 4 {
            let frame = client.next().unwrap_or_else(|| panic!("cut after {number} messages"));
            bytes += if frame.kind == kind::DATA { frame.payload.len() } else { 0 };
        }
        client.send(&[window(1), window(0)].concat());
    }
}

#[test]
fn a_response_begins_while_its_request_goes_on() {
    let upstream = echo();
    let settings = "origin.http2 = \"always\"";
    let proxy = Proxy::before(upstream.address(), &Storage::Embedded, settings);
    let mut client = proxy.connect();
    client.send(
        b"POST /call HTTP/1.1\r\nHost: shop.test\r\nContent-Type: application/grpc\r\n\
                  TE: trailers\r\nConnection: TE\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    let head = client.until("\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    for word in ["one", "two", "three"] {
        client.send(format!("{:x}\r\n{word}\r\n", word.len()).as_bytes());
        client.until(word);
    }
    client.send(b"0\r\n\r\n");
    let end = client.until("\r\n\r\n");
    assert_eq!(end, "\r\n0\r\ngrpc-status: 5\r\n\r\n");
    // It was not known when the answer began that no trailers would come.
    assert!(client.is_closed());
}

#[test]
fn an_answer_to_a_call_is_not_kept() {
    let upstream = echo();
    let settings = "origin.http2 = \"always\"\n[[route]]\nttl = \"60s\"";
    let proxy = Proxy::before(upstream.address(), &Storage::Embedded, settings);
    for _ in 0..3 {
        let answer = proxy.get("/call").send();
        assert_eq!((answer.status, answer.is_hit()), (200, false));
    }
}

#[test]
fn events_arrive_before_the_next_is_sent() {
    for coding in [None, Some("gzip")] {
        let gates: Vec<_> = (0..3).map(|_| Gate::closed()).collect();
        let inner = gates.clone();
        let origin = Origin::start(move |_| {
            let mut reply = Reply::status("200 OK")
                .header("Content-Type", "text/event-stream")
                .header("Transfer-Encoding", "chunked");
            if let Some(coding) = coding {
                reply = reply.header("Content-Encoding", coding);
            }
            for (nth, gate) in inner.iter().enumerate() {
                let event = format!("data: {nth}\n\n");
                reply = reply.bytes(&format!("{:x}\r\n{event}\r\n", event.len())).until(gate);
            }
            reply.bytes("0\r\n\r\n")
        });
        let proxy = Proxy::embedded(&origin, "");
        let mut client = proxy.connect();
        client.send(b"GET /events HTTP/1.1\r\nHost: shop.test\r\nAccept: text/event-stream\r\nAccept-Encoding: gzip\r\n\r\n");
        for (nth, gate) in gates.iter().enumerate() {
            client.until(&format!("data: {nth}\n\n"));
            gate.open();
        }
        client.until("0\r\n\r\n");
    }
}

#[test]
fn a_stream_of_events_may_pause_for_longer_than_a_page() {
    let gate = Gate::closed();
    let inner = Arc::clone(&gate);
    let origin = Origin::start(move |request| {
        let reply = Reply::status("200 OK")
            .header("Cache-Control", "no-store")
            .header("Transfer-Encoding", "chunked");
        match request.path() {
            "/events" => reply
                .header("Content-Type", "text/event-stream")
                .bytes("3\r\none\r\n")
                .until(&inner)
                .bytes("3\r\ntwo\r\n0\r\n\r\n"),
            _ => reply.header("Content-Type", "text/plain").bytes("3\r\none\r\n").hanging(),
        }
    });
    let proxy = Proxy::embedded(&origin, "origin.between_bytes_timeout = \"200ms\"");
    let mut events = proxy.connect();
    events.send(b"GET /events HTTP/1.1\r\nHost: shop.test\r\n\r\n");
    events.until("one");
    // What began later is given up before.
    assert!(!proxy.get("/page").send().body.whole);
    gate.open();
    events.until("two\r\n0\r\n\r\n");
}

#[test]
fn a_client_that_does_not_read_holds_back_the_origin() {
    const PARTS: usize = 2_000;
    let sent = Arc::new(AtomicUsize::new(0));
    let waits = Arc::new(AtomicUsize::new(0));
    let (count, waiting) = (Arc::clone(&sent), Arc::clone(&waits));
    let upstream = Upstream::start(None, move |_, socket| {
        let (count, waiting) = (Arc::clone(&count), Arc::clone(&waiting));
        Box::pin(async move {
            let Ok(mut connection) = h2::server::handshake(socket).await else { return };
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let (count, waiting) = (Arc::clone(&count), Arc::clone(&waiting));
                tokio::runtime::Handle::current().spawn(async move {
                    let head = Response::builder().header("cache-control", "no-store");
                    let mut out = respond.send_response(head.body(()).unwrap(), false).unwrap();
                    for _ in 0..PARTS {
                        out.reserve_capacity(16 << 10);
                        while out.capacity() < 16 << 10 {
                            waiting.store(count.load(Ordering::SeqCst), Ordering::SeqCst);
                            let more = std::future::poll_fn(|cx| out.poll_capacity(cx)).await;
                            let Some(Ok(_)) = more else { return };
                        }
                        waiting.store(0, Ordering::SeqCst);
                        out.send_data(Bytes::from(vec![b'x'; 16 << 10]), false).unwrap();
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                    drop(out.send_data(Bytes::new(), true));
                });
            }
        })
    });
    let settings = "origin.http2 = \"always\"\nthreads = 1";
    let proxy = Proxy::before(upstream.address(), &Storage::Embedded, settings);
    let mut slow = proxy.connect();
    slow.send(b"GET /large HTTP/1.1\r\nHost: shop.test\r\n\r\n");
    let begun = slow.head();
    // It waits, and nothing changes that: others are served past it on the same connection.
    wait_until("the origin is held back", || {
        let held = waits.load(Ordering::SeqCst);
        held > 0 && held == sent.load(Ordering::SeqCst)
    });
    let mut other = proxy.connect();
    other.send(b"GET /large HTTP/1.1\r\nHost: shop.test\r\n\r\n");
    let head = other.head();
    assert_eq!(other.rest(head).body.length, (PARTS as u64) << 14);
    assert_eq!(slow.rest(begun).body.length, (PARTS as u64) << 14);
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_body_that_only_looks_like_a_call_may_not_be_silent_for_as_long() {
    let upstream = echo();
    let settings = "origin.http2 = \"always\"\nlimits.stall_timeout = \"200ms\"";
    let proxy = Proxy::before(upstream.address(), &Storage::Embedded, settings);
    let mut client = proxy.connect();
    client.send(
        b"PUT /call HTTP/1.1\r\nHost: shop.test\r\nContent-Type: application/grpc\r\n\
          TE: trailers\r\nConnection: TE\r\nContent-Length: 9\r\n\r\nbegun",
    );
    assert!(client.is_closed());
}

#[test]
fn an_unread_upload_ends_some_time_after_the_answer() {
    let ended = Gate::closed();
    let ending = Arc::clone(&ended);
    let upstream = Upstream::start(None, move |_, socket| {
        let ended = Arc::clone(&ending);
        Box::pin(async move {
            let Ok(mut connection) = h2::server::handshake(socket).await else { return };
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let ended = Arc::clone(&ended);
                tokio::runtime::Handle::current().spawn(async move {
                    drop(respond.send_response(Response::new(()), true));
                    // Read, and never said to be: no more than the first window comes.
                    let mut body = request.into_body();
                    while let Some(part) = body.data().await {
                        if part.is_err() {
                            return ended.open();
                        }
                    }
                });
            }
        })
    });
    let settings = "origin.http2 = \"always\"\nlimits.stall_timeout = \"300ms\"";
    let proxy = Proxy::before(upstream.address(), &Storage::Embedded, settings);
    assert_eq!(proxy.post("/up").body(&[b'x'; 200_000]).send().status, 200);
    wait_until("the rest is called off", || ended.is_open());
}

#[test]
fn an_upload_the_origin_does_not_take_ends_both_connections() {
    // It answers at once, and takes no more than what its socket holds.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let origin = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        socket
    });
    let settings = "limits.stall_timeout = \"2s\"";
    let proxy = Proxy::before(address, &Storage::Embedded, settings);
    let mut client = proxy.connect();
    client.send(b"POST /up HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 99999999\r\n\r\n");
    assert_eq!(client.answer().text(), "ok");
    let mut socket = origin.join().unwrap();
    assert!(!client.send(&vec![b'x'; 99_999_999]), "so much is not taken");
    assert!(client.is_closed());
    wait_until("nobody is there any more", || socket.write_all(b"x").is_err());
}

#[test]
fn an_upload_that_goes_on_behind_its_answer_is_sent_to_its_end() {
    let tap = Gate::closed();
    let reading = Arc::clone(&tap);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let origin = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let mut came = 0;
        let mut answered = 0;
        let mut part = vec![0; 1 << 16];
        while answered < 2 {
            let read = socket.read(&mut part).unwrap();
            assert!(read > 0, "it goes on");
            came += read;
            if answered == 0 {
                socket.write_all(answer).unwrap();
                reading.open();
                answered = 1;
            } else if part[..read].ends_with(b"\r\n\r\n") {
                socket.write_all(answer).unwrap();
                answered = 2;
            }
        }
        came
    });
    let settings = "limits.stall_timeout = \"8s\"\nthreads = 1";
    let proxy = Proxy::before(address, &Storage::Embedded, settings);
    let mut client = proxy.connect();
    client.send(b"POST /up HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 9000000\r\n\r\n");
    assert_eq!(client.answer().text(), "ok");
    tap.pass();
    assert!(client.send(&vec![b'x'; 9_000_000]));
    // The connection lives on when the upload is whole.
    assert_eq!(proxy.get("/next").send_on(&mut client).text(), "ok");
    assert!(origin.join().unwrap() > 9_000_000);
}

/// hyper takes the next head in the same breath as trailers that come behind the answer, before anybody
/// has looked at them.
#[test]
fn nothing_is_taken_behind_trailers_that_come_behind_the_answer() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let origin = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut seen = Vec::new();
        let mut part = vec![0; 1 << 16];
        while !seen.ends_with(b"\r\n\r\n") {
            let read = socket.read(&mut part).unwrap();
            assert!(read > 0, "the head comes first");
            seen.extend_from_slice(&part[..read]);
        }
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        while let Ok(read) = socket.read(&mut part)
            && read > 0
        {
            seen.extend_from_slice(&part[..read]);
        }
        // Whatever else comes goes by a connection of its own.
        listener.set_nonblocking(true).unwrap();
        (seen, listener.accept().is_ok())
    });
    let proxy = Proxy::before(address, &Storage::Embedded, "threads = 1");
    let mut client = proxy.connect();
    client.send(b"POST /up HTTP/1.1\r\nHost: shop.test\r\nTransfer-Encoding: chunked\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.text().as_str(), answer.header("connection")), ("ok", Some("close")));
    client.send(b"2\r\nhi\r\n0\r\nX: a\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: shop.test\r\n\r\n");
    assert_eq!(client.next_status(), None, "nothing is answered any more");
    drop(proxy);
    let (seen, more) = origin.join().unwrap();
    assert!(!String::from_utf8_lossy(&seen).contains("smuggled") && !more);
}

#[test]
fn a_stream_that_is_reset_is_not_over() {
    let asked = Arc::new(AtomicUsize::new(0));
    let arrived = [Gate::closed(), Gate::closed(), Gate::closed()];
    let (count, gates) = (Arc::clone(&asked), arrived.clone());
    let upstream = Upstream::start(None, move |_, socket| {
        let (count, gates) = (Arc::clone(&count), gates.clone());
        Box::pin(async move {
            let Ok(mut connection) = h2::server::handshake(socket).await else { return };
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let gate = match request.uri().path() {
                    "/length" => &gates[1],
                    "/status" => &gates[2],
                    _ => &gates[0],
                };
                let gate = Arc::clone(gate);
                tokio::runtime::Handle::current().spawn(async move {
                    let path = request.uri().path().to_owned();
                    let mut head = Response::builder()
                        .header("content-type", "text/css")
                        .header("cache-control", "max-age=60");
                    match path.as_str() {
                        "/stream" => {}
                        // What a call came to stands in its trailers, or in a head that is all there is.
                        "/status" => head = head.header("grpc-status", "0"),
                        _ => head = head.header("content-length", "8"),
                    }
                    let mut out = respond.send_response(head.body(()).unwrap(), false).unwrap();
                    out.send_data(Bytes::from("half"), false).unwrap();
                    if path == "/whole" {
                        // Its request's body is not wanted: h2 says so by a reset (RFC 9113 §8.1).
                        return out.send_data(Bytes::from("half"), true).unwrap();
                    }
                    tokio::task::spawn_blocking(move || gate.pass()).await.unwrap();
                    out.send_reset(h2::Reason::NO_ERROR);
                });
            }
        })
    });
    let settings = "origin.http2 = \"always\"";
    let proxy = Proxy::before(upstream.address(), &Storage::Embedded, settings);
    for (nth, path) in ["/stream", "/length", "/status"].into_iter().enumerate() {
        let mut client = proxy.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: shop.test\r\n\r\n").as_bytes());
        let begun = client.head();
        arrived[nth].open();
        assert!(!client.rest(begun).body.whole, "{path}");
    }
    // Nothing of it is kept.
    for path in ["/stream", "/length", "/status"] {
        drop(proxy.get(path).try_send_on(&mut proxy.connect()));
    }
    assert_eq!(asked.load(Ordering::SeqCst), 6);
    for _ in 0..3 {
        let mut client = proxy.connect();
        client
            .send(b"POST /whole HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 90000\r\n\r\nbegun");
        client.until("\r\n\r\nhalfhalf");
    }
}
