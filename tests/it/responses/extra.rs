//! Bytes after a response, and unsolicited bytes: no other visitor's answer.

use crate::support::proxy::{Proxy, Storage};
use crate::support::tap::{Step, Tap};
use crate::support::wait_until;

const STOLEN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen";

/// Asks for `/talks`, which is answered with `talk`, and then often for something else.
#[track_caller]
fn spoils_nothing(name: &str, method: &str, talk: &str) {
    let steps = [Step::Send(talk.as_bytes().to_vec())];
    let tap = Tap::start(move |seen| match seen.target().as_str() {
        "/talks" => steps.to_vec(),
        _ => {
            let own = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 3\r\n\r\nown";
            vec![Step::Send(own.as_bytes().to_vec())]
        }
    });
    let proxy = Proxy::before(tap.address(), &Storage::Embedded, "threads = 1");
    for _ in 0..20 {
        let mut client = proxy.connect();
        proxy.ask(method, "/talks").try_send_on(&mut client);
        for method in ["GET", "OPTIONS", "POST"] {
            let answer = proxy.ask(method, "/else").header("Content-Length", "0").send();
            // A POST whose connection broke is not sent again.
            let failed = method == "POST" && answer.status == 502;
            assert!(failed || answer.text() == "own", "{name}, {method}: {}", answer.text());
        }
    }
}

#[test]
fn bytes_after_a_response_answer_no_request() {
    let head = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\n";
    for (name, method, talk) in [
        ("behind a length", "GET", format!("{head}Content-Length: 2\r\n\r\nok{STOLEN}")),
        (
            "behind chunks",
            "GET",
            format!("{head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{STOLEN}"),
        ),
        ("behind a length of zero", "GET", format!("{head}Content-Length: 0\r\n\r\n{STOLEN}")),
        ("behind a 204", "GET", format!("HTTP/1.1 204 No Content\r\n\r\n{STOLEN}")),
        ("behind a 304", "GET", format!("HTTP/1.1 304 Not Modified\r\n\r\n{STOLEN}")),
        ("behind a HEAD", "HEAD", format!("{head}Content-Length: 5\r\n\r\n{STOLEN}")),
        ("a body to HEAD", "HEAD", format!("{head}Content-Length: 5\r\n\r\nhello{STOLEN}")),
        ("a line end too many", "GET", format!("{head}Content-Length: 2\r\n\r\nok\r\n\r\n")),
        ("behind an OPTIONS", "OPTIONS", format!("{head}Content-Length: 2\r\n\r\nok{STOLEN}")),
    ] {
        spoils_nothing(name, method, &talk);
    }
}

/// A connection that a client logged in is the client's own, and still must not answer one request with the response
/// to another.
#[test]
fn bytes_after_a_response_on_a_pinned_connection_answer_no_request() {
    let challenge = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: NTLM\r\n";
    for (name, method, talk) in [
        ("behind a challenge", "GET", format!("{challenge}Content-Length: 0\r\n\r\n{STOLEN}")),
        ("a body to HEAD", "HEAD", format!("{challenge}Content-Length: 5\r\n\r\n{STOLEN}")),
        (
            "behind a close",
            "GET",
            format!("{challenge}Connection: close\r\nContent-Length: 0\r\n\r\n{STOLEN}"),
        ),
    ] {
        let steps = [Step::Send(talk.into_bytes())];
        let tap = Tap::start(move |seen| match seen.target().as_str() {
            "/talks" => steps.to_vec(),
            _ => {
                let own =
                    "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 3\r\n\r\nown";
                vec![Step::Send(own.as_bytes().to_vec())]
            }
        });
        let proxy = Proxy::before(tap.address(), &Storage::Embedded, "threads = 1");
        let log_in = |method: &str, path: &str| {
            proxy.ask(method, path).header("Authorization", "NTLM TlRMTVNTUAAB")
        };
        let mut client = proxy.connect();
        log_in(method, "/talks").try_send_on(&mut client);
        for method in ["GET", "DELETE"] {
            let answer = log_in(method, "/else").send_on(&mut client);
            assert_eq!(answer.text(), "own", "{name}, {method}");
        }
    }
}

#[test]
fn bytes_on_an_idle_connection_answer_no_request() {
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};

    // The origin answers, and says more when the case tells it that the visitor has the answer.
    let (say, said) = channel::<()>();
    let said = Arc::new(Mutex::new(said));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for (number, stream) in listener.incoming().enumerate() {
            let (mut stream, said) = (stream.unwrap(), Arc::clone(&said));
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).is_ok_and(|read| read > 0) {
                    let own = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\n\
                               Content-Length: 3\r\n\r\nown";
                    drop(stream.write_all(own.as_bytes()));
                    if number == 0 && said.lock().unwrap().recv().is_ok() {
                        drop(stream.write_all(STOLEN.as_bytes()));
                    }
                }
            });
        }
    });
    let proxy = Proxy::before(address, &Storage::Embedded, "threads = 1");
    assert_eq!(proxy.ask("OPTIONS", "/").send().text(), "own");
    say.send(()).unwrap();
    wait_until("the connection is given up", || {
        proxy.metric("anteroom_origin_idle_errors_total") > 0.0
    });
    for _ in 0..5 {
        assert_eq!(proxy.ask("OPTIONS", "/").send().text(), "own");
    }
}
