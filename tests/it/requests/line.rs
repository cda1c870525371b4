//! Request lines, and what ends a line (RFC 9112 §2.2, §3).

use super::{hold, passes, refused};

#[test]
fn the_request_line() {
    hold(
        "",
        &[
            refused(
                "no version",
                "RFC 9112 §2.3: 0.9 has no head",
                "GET /~\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused("HTTP/2.0", "RFC 9112 §2.3", "GET /~ HTTP/2.0\r\nHost: a.test\r\n\r\n", 400),
            refused("HTTP/1.2", "not spoken here", "GET /~ HTTP/1.2\r\nHost: a.test\r\n\r\n", 400),
            refused(
                "HTTP/1.10",
                "RFC 9112 §2.3: one digit",
                "GET /~ HTTP/1.10\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "HTTP/01.1",
                "RFC 9112 §2.3: one digit",
                "GET /~ HTTP/01.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "http in lower case",
                "RFC 9112 §2.3",
                "GET /~ http/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "another protocol",
                "RFC 9112 §2.3",
                "GET /~ ICY/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "text behind the version",
                "RFC 9112 §3",
                "GET /~ HTTP/1.1 x\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused("no target", "RFC 9112 §3", "GET HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
            refused(
                "two spaces before the target",
                "RFC 9112 §3",
                "GET  /~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "a tab between",
                "RFC 9112 §3",
                "GET\t/~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "a space in the target",
                "RFC 9112 §3",
                "GET /~ /x HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "a space before the method",
                "RFC 9112 §3",
                " GET /~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "a control byte in the target",
                "RFC 9112 §3.2",
                b"GET /~\x01 HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "a NUL in the target",
                "RFC 9112 §3.2",
                b"GET /~\x00 HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "a delete byte in the target",
                "RFC 9112 §3.2",
                b"GET /~\x7f HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "a bare CR in the target",
                "RFC 9112 §2.2",
                "GET /~\rX HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "a slash in the method",
                "RFC 9110 §5.6.2",
                "GE/T /~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "a colon in the method",
                "RFC 9110 §5.6.2",
                "GET: /~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "no ASCII in the method",
                "RFC 9110 §5.6.2",
                b"G\xc3\x84T /~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "only bytes of TLS",
                "no HTTP",
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
                400,
            ),
            refused(
                "the preface of HTTP/2",
                "not spoken here in clear text",
                "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                400,
            )
            .got(&[]),
            refused(
                "CONNECT",
                "RFC 9110 §9.3.6: this is no tunnel",
                "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n",
                400,
            ),
            refused(
                "CONNECT with a path",
                "RFC 9110 §9.3.6",
                "CONNECT /~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "a star with GET",
                "RFC 9112 §3.2.4",
                "GET * HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "a star and more",
                "RFC 9112 §3.2.4",
                "OPTIONS *x HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            passes(
                "a fragment",
                "RFC 9112 §3.2: no target has one, and nobody sees it",
                "OPTIONS /~#x HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a star",
                "RFC 9112 §3.2.4",
                "OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS * HTTP/1.1\nhost: a.test",
            ),
            passes(
                "TRACE",
                "any method passes",
                "TRACE /~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "TRACE /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a method of our own",
                "RFC 9110 §9.1",
                "M-SEARCH /~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "M-SEARCH /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a method in lower case",
                "RFC 9110 §9.1: methods know case",
                "get /~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "get /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a method of odd signs",
                "RFC 9110 §5.6.2",
                "x!#$%&'*+-.^_`|~ /~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "x!#$%&'*+-.^_`|~ /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "HEAD",
                "never a GET towards the origin",
                "HEAD /~ HTTP/1.1\r\nHost: a.test\r\nCache-Control: no-store\r\n\r\n",
                "HEAD /~ HTTP/1.1\nhost: a.test\ncache-control: no-store",
            ),
            passes(
                "HTTP/1.0",
                "RFC 9110 §2.5: each hop has a version of its own",
                "OPTIONS /~ HTTP/1.0\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\nvia: 1.0 anteroom",
            )
            .then_closed(),
            passes(
                "HTTP/1.0 that stays",
                "RFC 9112 §9.3",
                "OPTIONS /~ HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\nvia: 1.0 anteroom",
            ),
            passes(
                "an empty line before it",
                "RFC 9112 §2.2",
                "\r\nOPTIONS /~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "bare LF for line ends",
                "RFC 9112 §2.2: taken, and never sent on",
                "OPTIONS /~ HTTP/1.1\nHost: a.test\nX: 1\n\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\nx: 1",
            ),
            refused(
                "a line folded",
                "RFC 9112 §5.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nX: 1\r\n 2\r\n\r\n",
                400,
            ),
            refused(
                "a line folded by a tab",
                "RFC 9112 §5.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nX: 1\r\n\t2\r\n\r\n",
                400,
            ),
            refused(
                "the first line folded",
                "RFC 9112 §2.2",
                "OPTIONS /~ HTTP/1.1\r\n X: 1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused("a head cut off", "RFC 9112 §8", "OPTIONS /~ HTTP/1.1\r\nHost: a.te", 400)
                .ending()
                .got(&[]),
            refused("a connection that says nothing", "RFC 9112 §8", "", 400).ending().got(&[]),
        ],
    );
}
