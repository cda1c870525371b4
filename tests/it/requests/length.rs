//! `Content-Length` (RFC 9110 §8.6, RFC 9112 §6).

use super::{cut, hold, passes, refused};

#[test]
fn the_length() {
    hold("", &[
            refused("two that differ", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            passes("two alike", "RFC 9112 §6.3: refused, or made one", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", "POST /~ HTTP/1.1\nhost: a.test\ncontent-length: 5\n\nhello"),
            refused("two far apart", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nX: 1\r\ncontent-length: 0\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("a list", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5, 6\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("a list of the same", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5, 5\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("a list with nothing", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5,\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("plus", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: +5\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("minus", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: -5\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("minus zero", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: -0\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("hex", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0x5\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("letters", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: five\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("an exponent", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1e1\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("a point", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5.0\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("an underscore", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1_0\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("a space inside", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1 0\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("a tab inside", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\t0\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("quotes", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: \"5\"\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("nothing", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length:\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("only spaces", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length:   \r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("a semicolon", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5;\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("2^64", "it must not wrap", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 18446744073709551616\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("2^64 + 3", "it must not wrap", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 18446744073709551619\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("a hundred digits", "it must not wrap", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("a control byte", "RFC 9110 §5.5", b"POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\x0b\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused("a length in fullwidth digits", "RFC 9110 §8.6", b"POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: \xef\xbc\x95\r\n\r\n", 400),
            passes("digits", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello", "POST /~ HTTP/1.1\nhost: a.test\ncontent-length: 5\n\nhello"),
            passes("leading zeros", "RFC 9110 §8.6: digits; sent on as a number", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0005\r\n\r\nhello", "POST /~ HTTP/1.1\nhost: a.test\ncontent-length: 5\n\nhello"),
            passes("spaces around", "RFC 9110 §5.5", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: \t 5 \t\r\n\r\nhello", "POST /~ HTTP/1.1\nhost: a.test\ncontent-length: 5\n\nhello"),
            passes("zero", "RFC 9110 §8.6", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n", "POST /~ HTTP/1.1\nhost: a.test\ncontent-length: 0"),
            passes("none", "RFC 9110 §8.6: some servers answer 411", "POST /~ HTTP/1.1\r\nHost: a.test\r\n\r\n", "POST /~ HTTP/1.1\nhost: a.test\ncontent-length: 0"),
            passes("on a GET", "RFC 9110 §9.3.1", "GET /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello", "GET /~ HTTP/1.1\nhost: a.test\ncontent-length: 5\n\nhello"),
            passes("zero on a GET", "RFC 9110 §9.3.1: no body", "GET /~ HTTP/1.1\r\nHost: a.test\r\nCache-Control: no-store\r\nContent-Length: 0\r\n\r\n", "GET /~ HTTP/1.1\nhost: a.test\ncache-control: no-store\ncontent-length: 0"),
            passes("on a HEAD", "RFC 9110 §9.3.2", "HEAD /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello", "HEAD /~ HTTP/1.1\nhost: a.test\ncontent-length: 5\n\nhello"),
            passes("on OPTIONS", "RFC 9110 §9.3.7", "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nhi", "OPTIONS /~ HTTP/1.1\nhost: a.test\ncontent-length: 2\n\nhi"),
            passes("a body that is a request", "RFC 9112 §6: the length says where it ends", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 38\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n", "POST /~ HTTP/1.1\nhost: a.test\ncontent-length: 38\n\nGET /smuggled HTTP/1.1\\r\\nHost: a.test\\r\\n"),
            cut("a body cut off", "RFC 9112 §8", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhel", &[]).ending(),
            cut("2^63 announced", "it is never whole", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9223372036854775808\r\n\r\nhello", &[]).ending(),
            cut("2^64 - 3 announced", "it is never whole", "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 18446744073709551613\r\n\r\nhello", &[]).ending(),
    ]);
}

#[test]
fn the_length_that_is_allowed() {
    hold(
        "limits.max_body = \"8B\"",
        &[
            refused(
                "a length over the limit",
                "bodies are bounded",
                "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9\r\n\r\n123456789",
                413,
            ),
            refused(
                "2^63 over the limit",
                "bodies are bounded",
                "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9223372036854775808\r\n\r\nhello",
                413,
            ),
            passes(
                "a length at the limit",
                "bodies are bounded",
                "POST /~ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 8\r\n\r\n12345678",
                "POST /~ HTTP/1.1\nhost: a.test\ncontent-length: 8\n\n12345678",
            ),
            cut(
                "chunks over the limit",
                "bodies are bounded",
                "POST /~ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n123456789\r\n0\r\n\r\n",
                &[413],
            ),
            cut(
                "small chunks over the limit",
                "bodies are bounded",
                "POST /~ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n5\r\n12345\r\n0\r\n\r\n",
                &[413],
            ),
            passes(
                "chunks at the limit",
                "bodies are bounded",
                "POST /~ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n12345678\r\n0\r\n\r\n",
                "POST /~ HTTP/1.1\nhost: a.test\ntransfer-encoding: chunked\n\n8\\r\\n12345678\\r\\n0\\r\\n\\r\\n",
            ),
        ],
    );
}
