//! `Content-Length` and `Transfer-Encoding` of responses (RFC 9112 §6).

use super::{bad, hold, passes, stored};

#[test]
fn lengths_and_codings() {
    hold(
        "",
        &[
            bad(
                "two that differ",
                "RFC 9110 §8.6",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            ),
            bad(
                "two alike",
                "RFC 9112 §6.3",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
            ),
            bad(
                "a list",
                "RFC 9110 §8.6",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5, 6\r\n\r\nhello",
            ),
            bad(
                "a list of the same",
                "RFC 9112 §6.3: refused, or made one",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5, 5\r\n\r\nhello",
            ),
            bad(
                "plus",
                "RFC 9110 §8.6",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: +5\r\n\r\nhello",
            ),
            bad(
                "minus",
                "RFC 9110 §8.6",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: -5\r\n\r\nhello",
            ),
            bad(
                "hex",
                "RFC 9110 §8.6",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 0x5\r\n\r\nhello",
            ),
            bad(
                "words",
                "RFC 9110 §8.6",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: five\r\n\r\nhello",
            ),
            bad(
                "nothing",
                "RFC 9110 §8.6",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length:\r\n\r\nhello",
            ),
            bad(
                "a space inside",
                "RFC 9110 §8.6",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5 0\r\n\r\nhello",
            ),
            bad(
                "2^64",
                "it must not wrap",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 18446744073709551616\r\n\r\nhello",
            ),
            bad(
                "2^64 + 5",
                "it must not wrap",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 18446744073709551621\r\n\r\nhello",
            ),
            bad(
                "quotes",
                "RFC 9110 §8.6",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: \"5\"\r\n\r\nhello",
            ),
            bad(
                "a point",
                "RFC 9110 §8.6",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5.0\r\n\r\nhello",
            ),
            bad(
                "a semicolon",
                "RFC 9110 §8.6",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5;\r\n\r\nhello",
            ),
            bad(
                "Transfer-Encoding: xchunked",
                "RFC 9112 §6.1",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: xchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
            bad(
                "Transfer-Encoding: gzip",
                "RFC 9112 §6.1",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: gzip\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
            bad(
                "Transfer-Encoding: identity",
                "RFC 9112 §7: gone",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: identity\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
            bad(
                "Transfer-Encoding: gzip, chunked",
                "we decode no coding",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
            bad(
                "Transfer-Encoding: chunked, identity",
                "RFC 9112 §6.1",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked, identity\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
            bad(
                "Transfer-Encoding: chunked, chunked",
                "RFC 9112 §6.1",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
            bad(
                "Transfer-Encoding: chunked twice",
                "RFC 9112 §6.1",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
            bad(
                "Transfer-Encoding: empty",
                "RFC 9112 §6.1",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding:\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
            bad(
                "Transfer-Encoding: a comma first",
                "RFC 9112 §6.1",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: ,chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
            bad(
                "Transfer-Encoding: a comma last",
                "RFC 9112 §6.1",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked,\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
            bad(
                "Transfer-Encoding: quotes",
                "RFC 9112 §6.1",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: \"chunked\"\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
            bad(
                "Transfer-Encoding: a parameter",
                "RFC 9112 §6.1",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked;a=b\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
            bad(
                "Transfer-Encoding: a space inside",
                "RFC 9112 §6.1",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chun ked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
            bad(
                "Transfer-Encoding: a vertical tab",
                "RFC 9112 §6.1",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: \x0bchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
            bad(
                "Transfer-Encoding: with a length",
                "RFC 9112 §6.3: it may be an attack",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
            bad(
                "Transfer-Encoding: behind a length",
                "RFC 9112 §6.3: it may be an attack",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
            bad(
                "Transfer-Encoding in HTTP/1.0",
                "RFC 9112 §6.1: its framing is faulty",
                "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
            stored(
                "leading zeros",
                "RFC 9110 §8.6: digits",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 0005\r\n\r\nhello",
                "200 OK\ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\nhello",
            ),
            stored(
                "spaces around",
                "RFC 9110 §5.5",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: \t5 \r\n\r\nhello",
                "200 OK\ncache-control: max-age=60\ncontent-length: 5\ncontent-type: text/plain\n\nhello",
            ),
            stored(
                "zero",
                "RFC 9110 §8.6",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nContent-Length: 0\r\n\r\n",
                "200 OK\ncache-control: max-age=60\ncontent-length: 0\ncontent-type: text/plain\n\n",
            ),
            stored(
                "chunked",
                "RFC 9112 §6.1",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
                "200 OK\ncache-control: max-age=60\ncontent-type: text/plain\ntransfer-encoding: chunked\n\nhello",
            ),
            stored(
                "Chunked in capitals",
                "RFC 9112 §7",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTRANSFER-ENCODING: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
                "200 OK\ncache-control: max-age=60\ncontent-type: text/plain\ntransfer-encoding: chunked\n\nhello",
            ),
            passes(
                "no length",
                "its end cannot be told from a break",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\n\r\nhello",
                "200 OK\ncache-control: max-age=60\ncontent-type: text/plain\ntransfer-encoding: chunked\n\nhello",
            ),
            passes(
                "Connection: close and no length",
                "its end cannot be told from a break",
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nConnection: close\r\n\r\nhello",
                "200 OK\ncache-control: max-age=60\ncontent-type: text/plain\ntransfer-encoding: chunked\n\nhello",
            ),
        ],
    );
}
