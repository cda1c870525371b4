//! An app that answers an upload before it has read it, and closes: the visitor gets that answer.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;

use crate::support::client::Client;
use crate::support::http2_client::{Http2Client, ask};
use crate::support::proxy::{Proxy, Storage};

/// An app that reads the head of a request, gives this answer, and closes: the rest of the upload resets the connection.
fn refusing(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read > 0)
            {
                head.push(byte[0]);
            }
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

const ANSWERS: [(u16, &str); 3] = [
    (
        413,
        "HTTP/1.1 413 Content Too Large\r\nContent-Length: 7\r\nConnection: close\r\n\r\ntoo big",
    ),
    (401, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"),
    (
        302,
        "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    ),
];

/// The sizes of uploads: what sockets hold, and more.
const SIZES: [usize; 3] = [1 << 20, 4 << 20, 10 << 20];

#[test]
fn an_early_answer_reaches_a_client_of_http_1() {
    for (status, answer) in ANSWERS {
        let proxy = Proxy::before(refusing(answer), &Storage::Embedded, "");
        for (size, expects) in SIZES.into_iter().flat_map(|size| [(size, false), (size, true)]) {
            for round in 0..5 {
                let expect = if expects { "Expect: 100-continue\r\n" } else { "" };
                let mut client = Client::open(proxy.address());
                let head = format!(
                    "POST /upload HTTP/1.1\r\nHost: shop.test\r\n{expect}Content-Length: {size}\r\n\r\n"
                );
                client.send(head.as_bytes());
                let part = [b'x'; 64 << 10];
                // A client that is refused may stop here.
                let _ = (0..size / part.len()).all(|_| client.send(&part));
                let answer = client.try_answer("POST").map(|answer| answer.status);
                assert_eq!(answer, Some(status), "{size} bytes, {expects}, {round}");
            }
        }
    }
}

#[test]
fn an_early_answer_reaches_a_client_of_http_2() {
    for (status, answer) in ANSWERS {
        let proxy = Proxy::before(refusing(answer), &Storage::Embedded, "");
        for size in SIZES {
            for round in 0..5 {
                let mut client = Http2Client::open(proxy.address());
                let request = ask("POST", "/upload", &[]);
                let reply = client.send(request, Some(&vec![b'x'; size]), None);
                assert_eq!(reply.map(|reply| reply.status).ok(), Some(status), "{size}, {round}");
            }
        }
    }
}
