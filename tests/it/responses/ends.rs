//! Responses that break off, and those that never end (RFC 9112 §8).

use super::{bad, cut, hold};
use crate::support::tap::Step;

#[test]
fn responses_that_break_off() {
    hold(
        "",
        &[
            bad("cut in the version", "RFC 9112 §8", "HTTP"),
            bad("cut in the status", "RFC 9112 §8", "HTTP/1.1 2"),
            bad("cut behind the status line", "RFC 9112 §8", "HTTP/1.1 200 OK\r\n"),
            bad("cut in a line", "RFC 9112 §8", "HTTP/1.1 200 OK\r\nContent-Type:"),
            bad(
                "cut before the empty line",
                "RFC 9112 §8",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n",
            ),
            cut(
                "cut behind the head",
                "RFC 9112 §8",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\n",
            ),
            cut(
                "cut in the body",
                "RFC 9112 §8",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhell",
            ),
            cut(
                "2^63 announced",
                "never whole",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 9223372036854775808\r\n\r\nhello",
            ),
            cut(
                "a page of html cut",
                "RFC 9112 §8",
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: max-age=60\r\nContent-Length: 50\r\n\r\n<html>",
            ),
            cut(
                "an error cut",
                "RFC 9112 §8",
                "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhel",
            ),
        ],
    );
}

#[test]
fn responses_that_break_off_before_their_first_byte_are_none() {
    let chunks = "Transfer-Encoding: chunked\r\n\r\nZZ\r\n";
    hold(
        "",
        &[
            bad(
                "no chunk, in a page",
                "the client can still be told",
                format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{chunks}"),
            ),
            bad(
                "no chunk, in what is shared as it comes",
                "likewise",
                format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/css\r\nCache-Control: max-age=60\r\n{chunks}"
                ),
            ),
            bad(
                "no chunk, in what is nobody else's",
                "likewise",
                format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: private\r\n{chunks}"
                ),
            ),
            bad(
                "no chunk, in an error",
                "likewise",
                format!("HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\n{chunks}"),
            ),
        ],
    );
}

#[test]
fn responses_that_are_reset() {
    let reset = |name, sent: &str| {
        let steps = vec![Step::Send(sent.as_bytes().to_vec()), Step::Reset];
        cut(name, "never whole", "").steps(steps)
    };
    hold(
        "",
        &[
            bad("reset before the head", "never whole", "").steps(vec![Step::Reset]),
            bad("reset in the head", "never whole", "")
                .steps(vec![Step::Send(b"HTTP/1.1 200 OK\r\nContent-Type:".to_vec()), Step::Reset]),
            reset(
                "reset in the body",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 50\r\n\r\nhello",
            ),
            reset(
                "reset in a chunk",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nhello",
            ),
            reset(
                "reset between chunks",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            ),
            reset(
                "reset where the connection is the end",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\n\r\nhello",
            ),
            reset(
                "a page of html reset",
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: max-age=60\r\nContent-Length: 50\r\n\r\n<html>",
            ),
        ],
    );
}

#[test]
fn responses_that_stop() {
    hold("origin.first_byte_timeout = \"200ms\"\norigin.between_bytes_timeout = \"200ms\"", &[
            bad("nothing, and it stays", "waits are bounded", "").steps(vec![Step::Hang]).status(504),
            bad("half a head, and it stays", "waits are bounded", "").steps(vec![Step::Send(b"HTTP/1.1 200 OK\r\nContent-Type:".to_vec()), Step::Hang]).status(504),
            bad("interim for ever", "waits are bounded", "").steps(vec![Step::Send(b"HTTP/1.1 103 Early Hints\r\n\r\n".to_vec()), Step::Hang]).status(504),
            cut("half a body, and it stays", "waits are bounded", "").steps(vec![Step::Send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhel".to_vec()), Step::Hang]),
            cut("half a chunk, and it stays", "waits are bounded", "").steps(vec![Step::Send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel".to_vec()), Step::Hang]),
            cut("no end, and it stays", "waits are bounded", "").steps(vec![Step::Send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\n\r\nhello".to_vec()), Step::Hang]),
    ]);
}

#[test]
fn responses_without_end() {
    hold(
        "",
        &[
            bad("a line without end", "heads are bounded", "").steps(vec![
                Step::Send(b"HTTP/1.1 200 OK\r\nX: ".to_vec()),
                Step::Endless(vec![b'x'; 4096]),
            ]),
            bad("lines without end", "heads are bounded", "").steps(vec![
                Step::Send(b"HTTP/1.1 200 OK\r\n".to_vec()),
                Step::Endless(b"X: 1234567890\r\n".repeat(64)),
            ]),
            bad("a status line without end", "heads are bounded", "").steps(vec![
                Step::Send(b"HTTP/1.1 200 ".to_vec()),
                Step::Endless(vec![b'x'; 4096]),
            ]),
            bad("empty lines without end", "heads are bounded", "")
                .steps(vec![Step::Endless(b"\r\n".repeat(2048))]),
            bad("interim responses without end", "RFC 9110 §15.2: bounded", "")
                .steps(vec![Step::Endless(b"HTTP/1.1 100 Continue\r\n\r\n".repeat(64))]),
            bad("early hints without end", "RFC 9110 §15.2: bounded", "").steps(vec![
                Step::Endless(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(64)),
            ]),
        ],
    );
}
