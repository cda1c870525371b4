//! Interim responses, and those that have no body (RFC 9110 §15.2, RFC 9112 §6.3).

use super::{bad, hold, passes, stored};

#[test]
fn interim_responses() {
    hold(
        "",
        &[
            stored(
                "100",
                "RFC 9110 §15.2",
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
                "200 OK\ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\nhello",
            ),
            stored(
                "102",
                "RFC 9110 §15.2",
                "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
                "200 OK\ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\nhello",
            ),
            stored(
                "103",
                "RFC 9110 §15.2",
                "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
                "200 OK\ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\nhello",
            ),
            stored(
                "103 with a login",
                "RFC 9110 §15.2",
                "HTTP/1.1 103 Early Hints\r\nAnteroom-Login: root\r\nSet-Cookie: login=x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
                "200 OK\ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\nhello",
            ),
            stored(
                "103 with a length",
                "RFC 9110 §15.2",
                "HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
                "200 OK\ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\nhello",
            ),
            stored(
                "103 with chunks",
                "RFC 9110 §15.2",
                "HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
                "200 OK\ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\nhello",
            ),
            stored(
                "an unknown one",
                "RFC 9110 §15.2",
                "HTTP/1.1 199 What\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
                "200 OK\ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\nhello",
            ),
            stored(
                "three",
                "RFC 9110 §15.2",
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
                "200 OK\ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\nhello",
            ),
            stored(
                "fifty",
                "RFC 9110 §15.2: as many as fit",
                "HTTP/1.1 100 Continue\r\n\r\n".repeat(50)
                    + "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
                "200 OK\ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\nhello",
            ),
            bad(
                "101 behind 100",
                "RFC 9110 §7.8",
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            ),
            bad("100 and no more", "RFC 9110 §15.2", "HTTP/1.1 100 Continue\r\n\r\n"),
            bad(
                "half a response behind 103",
                "RFC 9112 §8",
                "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 O",
            ),
            bad(
                "a body behind 103",
                "RFC 9110 §15.2: it has none",
                "HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
            ),
        ],
    );
}

#[test]
fn responses_without_a_body() {
    hold("", &[
            stored("204", "RFC 9110 §15.3.5", "HTTP/1.1 204 No Content\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\n\r\n", "204 No Content\ncache-control: max-age=60\ncontent-type: text/plain\n\n"),
            stored("204 with a length", "RFC 9112 §6.3: it has none", "HTTP/1.1 204 No Content\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\n", "204 No Content\ncache-control: max-age=60\ncontent-type: text/plain\n\n"),
            stored("204 with a body", "RFC 9112 §6.3: it has none", "HTTP/1.1 204 No Content\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello", "204 No Content\ncache-control: max-age=60\ncontent-type: text/plain\n\n"),
            passes("304 unasked", "RFC 9110 §15.4.5", "HTTP/1.1 304 Not Modified\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\n\r\n", "304 Not Modified\ncache-control: max-age=60\ncontent-type: text/plain\n\n"),
            passes("304 with a length", "RFC 9110 §8.6: it may be left out", "HTTP/1.1 304 Not Modified\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\n", "304 Not Modified\ncache-control: max-age=60\ncontent-type: text/plain\n\n"),
            passes("304 with a body", "RFC 9112 §6.3: it has none", "HTTP/1.1 304 Not Modified\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello", "304 Not Modified\ncache-control: max-age=60\ncontent-type: text/plain\n\n"),
            passes("HEAD with a length", "RFC 9110 §8.6", "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\n", "200 OK\ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\n").by(&["HEAD"]),
            passes("HEAD with a body", "RFC 9110 §9.3.2: it has none", "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello", "200 OK\ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\n").by(&["HEAD"]),
            passes("HEAD without a length", "RFC 9110 §9.3.2", "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\n\r\n", "200 OK\ncache-control: max-age=60\ncontent-type: text/plain\n\n").by(&["HEAD"]),
            passes("HEAD with two lengths", "RFC 9110 §8.6", "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "502 Bad Gateway\ncache-control: no-store\ncontent-length: 48\ncontent-type: text/plain; charset=utf-8\n").by(&["HEAD"]),
            passes("HEAD with an odd coding", "RFC 9112 §6.1", "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: gzip\r\n\r\n", "502 Bad Gateway\ncache-control: no-store\ncontent-length: 48\ncontent-type: text/plain; charset=utf-8\n").by(&["HEAD"]),
            stored("205 with a length of zero", "RFC 9110 §15.3.6", "HTTP/1.1 205 Reset Content\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 0\r\n\r\n", "205 Reset Content\ncache-control: max-age=60\ncontent-length: 0\ncontent-type: text/plain\n\n"),
    ]);
}
