//! Status lines (RFC 9112 §4).

use super::{bad, hold, stored};

#[test]
fn the_status_line() {
    hold(
        "",
        &[
            bad("nothing", "RFC 9112 §8", ""),
            bad("an empty line", "RFC 9112 §4", "\r\n\r\n"),
            bad("another protocol", "RFC 9112 §4", "220 smtp.test ESMTP\r\n"),
            bad(
                "ICY",
                "RFC 9112 §4",
                "ICY 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
            ),
            bad("no head", "HTTP/0.9 is not spoken", "<html>hello</html>"),
            bad(
                "HTTP/2.0",
                "RFC 9112 §4",
                "HTTP/2.0 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
            ),
            bad(
                "HTTP/1.2",
                "RFC 9112 §4",
                "HTTP/1.2 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
            ),
            bad(
                "HTTP/11",
                "RFC 9112 §4",
                "HTTP/11 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
            ),
            bad(
                "http in lower case",
                "RFC 9112 §4",
                "http/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
            ),
            bad(
                "no status",
                "RFC 9112 §4",
                "HTTP/1.1\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
            ),
            bad(
                "an empty status",
                "RFC 9112 §4",
                "HTTP/1.1  OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
            ),
            bad(
                "words for a status",
                "RFC 9112 §4",
                "HTTP/1.1 twohundred OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
            ),
            bad(
                "two digits",
                "RFC 9112 §4",
                "HTTP/1.1 20 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
            ),
            bad(
                "four digits",
                "RFC 9112 §4",
                "HTTP/1.1 2000 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
            ),
            bad(
                "a minus",
                "RFC 9112 §4",
                "HTTP/1.1 -20 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
            ),
            bad(
                "000",
                "RFC 9110 §15",
                "HTTP/1.1 000 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
            ),
            bad(
                "099",
                "RFC 9110 §15",
                "HTTP/1.1 099 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
            ),
            bad(
                "a tab for a space",
                "RFC 9112 §4",
                "HTTP/1.1\t200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
            ),
            bad(
                "a NUL in the reason",
                "RFC 9112 §4",
                "HTTP/1.1 200 O\x00K\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
            ),
            bad(
                "a bare CR in the reason",
                "RFC 9112 §2.2",
                "HTTP/1.1 200 O\rK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
            ),
            bad("a request", "RFC 9112 §4", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"),
            bad(
                "101 unasked",
                "RFC 9110 §7.8",
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nbytes",
            ),
            bad(
                "101 with a length",
                "RFC 9110 §7.8",
                "HTTP/1.1 101 Switching Protocols\r\nContent-Length: 5\r\n\r\nhello",
            ),
            stored(
                "plain",
                "RFC 9112 §4",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
                "200 OK\ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\nhello",
            ),
            stored(
                "HTTP/1.0",
                "RFC 9110 §2.5",
                "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
                "200 OK\ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\nhello",
            ),
            stored(
                "no reason",
                "RFC 9112 §4",
                "HTTP/1.1 200 \r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
                "200 \ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\nhello",
            ),
            stored(
                "no space behind the status",
                "taken, as many send it",
                "HTTP/1.1 200\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
                "200 \ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\nhello",
            ),
            stored(
                "a long reason",
                "as it came",
                "HTTP/1.1 200 Fine By Me\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
                "200 Fine By Me\ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\nhello",
            ),
            stored(
                "299",
                "RFC 9110 §15: as 200",
                "HTTP/1.1 299 Odd\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
                "299 Odd\ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\nhello",
            ),
            stored(
                "999",
                "any final status passes",
                "HTTP/1.1 999 Last\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
                "999 Last\ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\nhello",
            ),
        ],
    );
}
