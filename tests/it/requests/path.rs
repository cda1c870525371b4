//! Paths and queries: as they came, on the wire and in the key.

use super::{answer, fills, hold, passes, refused};
use crate::support::proxy::{Proxy, Storage};
use crate::support::tap::Tap;

#[test]
fn the_path() {
    hold(
        "",
        &[
            passes(
                "an encoded slash",
                "the path goes as it came",
                "OPTIONS /~%2fb HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~%2fb HTTP/1.1\nhost: a.test",
            ),
            passes(
                "in capitals",
                "the path goes as it came",
                "OPTIONS /~%2Fb HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~%2Fb HTTP/1.1\nhost: a.test",
            ),
            passes(
                "two slashes",
                "the path goes as it came",
                "OPTIONS /~//b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~//b HTTP/1.1\nhost: a.test",
            ),
            passes(
                "two slashes in front",
                "the path goes as it came",
                "OPTIONS //~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS //~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "dot segments",
                "the path goes as it came",
                "OPTIONS /~/../b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~/../b HTTP/1.1\nhost: a.test",
            ),
            passes(
                "encoded dots",
                "the path goes as it came",
                "OPTIONS /~/%2e%2e/b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~/%2e%2e/b HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a dot",
                "the path goes as it came",
                "OPTIONS /~/./b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~/./b HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a NUL",
                "the path goes as it came",
                "OPTIONS /~%00 HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~%00 HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a line end",
                "the path goes as it came",
                "OPTIONS /~%0d%0aX:1 HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~%0d%0aX:1 HTTP/1.1\nhost: a.test",
            ),
            passes(
                "no UTF-8",
                "the path goes as it came",
                "OPTIONS /~%ff HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~%ff HTTP/1.1\nhost: a.test",
            ),
            passes(
                "overlong",
                "the path goes as it came",
                "OPTIONS /~%c0%ae HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~%c0%ae HTTP/1.1\nhost: a.test",
            ),
            passes(
                "parameters",
                "the path goes as it came",
                "OPTIONS /~;v=1 HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~;v=1 HTTP/1.1\nhost: a.test",
            ),
            passes(
                "dots with parameters",
                "the path goes as it came",
                "OPTIONS /~/..;/b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~/..;/b HTTP/1.1\nhost: a.test",
            ),
            passes(
                "double encoding",
                "the path goes as it came",
                "OPTIONS /~%252e HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~%252e HTTP/1.1\nhost: a.test",
            ),
            passes(
                "broken encoding",
                "the path goes as it came",
                "OPTIONS /~%zz HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~%zz HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a percent at the end",
                "the path goes as it came",
                "OPTIONS /~% HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~% HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a plus",
                "the path goes as it came",
                "OPTIONS /~+b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~+b HTTP/1.1\nhost: a.test",
            ),
            passes(
                "an encoded letter",
                "the path goes as it came",
                "OPTIONS /~%41 HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~%41 HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a colon",
                "the path goes as it came",
                "OPTIONS /~:b@c HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~:b@c HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a comma",
                "the path goes as it came",
                "OPTIONS /~,(b) HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~,(b) HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a tilde",
                "the path goes as it came",
                "OPTIONS /~~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a pipe",
                "the path goes as it came",
                "OPTIONS /~|b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~|b HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a quote",
                "the path goes as it came",
                "OPTIONS /~\"b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~\"b HTTP/1.1\nhost: a.test",
            ),
            passes(
                "braces",
                "the path goes as it came",
                "OPTIONS /~{b} HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~{b} HTTP/1.1\nhost: a.test",
            ),
            refused(
                "a caret",
                "RFC 3986 §3.3: not in a path",
                "OPTIONS /~^`b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            passes(
                "a backslash",
                "the path goes as it came",
                "OPTIONS /~\\b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~\\b HTTP/1.1\nhost: a.test",
            ),
            refused(
                "angle brackets",
                "RFC 3986 §3.3: not in a path",
                "OPTIONS /~<b> HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            passes(
                "a question mark in the query",
                "the path goes as it came",
                "OPTIONS /~?a=?b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~?a=?b HTTP/1.1\nhost: a.test",
            ),
            passes(
                "slashes in the query",
                "the path goes as it came",
                "OPTIONS /~?a=/../b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~?a=/../b HTTP/1.1\nhost: a.test",
            ),
            passes(
                "an encoded query",
                "the path goes as it came",
                "OPTIONS /~?a=%00%0d%0a HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~?a=%00%0d%0a HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a semicolon in the query",
                "the path goes as it came",
                "OPTIONS /~?a;b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~?a;b HTTP/1.1\nhost: a.test",
            ),
            passes(
                "raw UTF-8",
                "the path goes as it came",
                b"OPTIONS /~\xc3\xa4 HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~\\xc3\\xa4 HTTP/1.1\nhost: a.test",
            ),
            refused(
                "raw bytes that are no UTF-8",
                "no key can name it",
                b"OPTIONS /~\xe4 HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
        ],
    );
}

#[test]
fn the_path_of_a_page() {
    hold(
        "",
        &[
            passes(
                "an encoded slash, asked for by GET",
                "the path goes as it came",
                "GET /~%2fb HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~%2fb HTTP/1.1\nhost: a.test",
            ),
            passes(
                "in capitals, asked for by GET",
                "the path goes as it came",
                "GET /~%2Fb HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~%2Fb HTTP/1.1\nhost: a.test",
            ),
            passes(
                "two slashes, asked for by GET",
                "the path goes as it came",
                "GET /~//b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~//b HTTP/1.1\nhost: a.test",
            ),
            passes(
                "dot segments, asked for by GET",
                "the path goes as it came",
                "GET /~/../b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~/../b HTTP/1.1\nhost: a.test",
            ),
            passes(
                "encoded dots, asked for by GET",
                "the path goes as it came",
                "GET /~/%2e%2e/b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~/%2e%2e/b HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a dot, asked for by GET",
                "the path goes as it came",
                "GET /~/./b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~/./b HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a NUL, asked for by GET",
                "the path goes as it came",
                "GET /~%00 HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~%00 HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a line end, asked for by GET",
                "the path goes as it came",
                "GET /~%0d%0aX:1 HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~%0d%0aX:1 HTTP/1.1\nhost: a.test",
            ),
            passes(
                "no UTF-8, asked for by GET",
                "the path goes as it came",
                "GET /~%ff HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~%ff HTTP/1.1\nhost: a.test",
            ),
            passes(
                "overlong, asked for by GET",
                "the path goes as it came",
                "GET /~%c0%ae HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~%c0%ae HTTP/1.1\nhost: a.test",
            ),
            fills(
                "parameters, asked for by GET",
                "the path goes as it came",
                "GET /~;v=1 HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~;v=1 HTTP/1.1\nhost: a.test",
            ),
            passes(
                "dots with parameters, asked for by GET",
                "the path goes as it came",
                "GET /~/..;/b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~/..;/b HTTP/1.1\nhost: a.test",
            ),
            passes(
                "double encoding, asked for by GET",
                "the path goes as it came",
                "GET /~%252e HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~%252e HTTP/1.1\nhost: a.test",
            ),
            passes(
                "broken encoding, asked for by GET",
                "the path goes as it came",
                "GET /~%zz HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~%zz HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a percent at the end, asked for by GET",
                "the path goes as it came",
                "GET /~% HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~% HTTP/1.1\nhost: a.test",
            ),
            fills(
                "a plus, asked for by GET",
                "the path goes as it came",
                "GET /~+b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~+b HTTP/1.1\nhost: a.test",
            ),
            fills(
                "an encoded letter, asked for by GET",
                "the path goes as it came",
                "GET /~%41 HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~%41 HTTP/1.1\nhost: a.test",
            ),
            fills(
                "a colon, asked for by GET",
                "the path goes as it came",
                "GET /~:b@c HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~:b@c HTTP/1.1\nhost: a.test",
            ),
            fills(
                "a comma, asked for by GET",
                "the path goes as it came",
                "GET /~,(b) HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~,(b) HTTP/1.1\nhost: a.test",
            ),
            fills(
                "a tilde, asked for by GET",
                "the path goes as it came",
                "GET /~~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~~ HTTP/1.1\nhost: a.test",
            ),
            fills(
                "a pipe, asked for by GET",
                "the path goes as it came",
                "GET /~|b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~|b HTTP/1.1\nhost: a.test",
            ),
            fills(
                "a quote, asked for by GET",
                "the path goes as it came",
                "GET /~\"b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~\"b HTTP/1.1\nhost: a.test",
            ),
            fills(
                "braces, asked for by GET",
                "the path goes as it came",
                "GET /~{b} HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~{b} HTTP/1.1\nhost: a.test",
            ),
            refused(
                "a caret, asked for by GET",
                "RFC 3986 §3.3: not in a path",
                "GET /~^`b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            passes(
                "a backslash, asked for by GET",
                "the path goes as it came",
                "GET /~\\b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~\\b HTTP/1.1\nhost: a.test",
            ),
            refused(
                "angle brackets, asked for by GET",
                "RFC 3986 §3.3: not in a path",
                "GET /~<b> HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            fills(
                "a question mark in the query, asked for by GET",
                "the path goes as it came",
                "GET /~?a=?b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~?a=?b HTTP/1.1\nhost: a.test",
            ),
            fills(
                "slashes in the query, asked for by GET",
                "the path goes as it came",
                "GET /~?a=/../b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~?a=/../b HTTP/1.1\nhost: a.test",
            ),
            fills(
                "an encoded query, asked for by GET",
                "the path goes as it came",
                "GET /~?a=%00%0d%0a HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~?a=%00%0d%0a HTTP/1.1\nhost: a.test",
            ),
            fills(
                "a semicolon in the query, asked for by GET",
                "the path goes as it came",
                "GET /~?a;b HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~?a;b HTTP/1.1\nhost: a.test",
            ),
        ],
    );
}

/// Paths that an origin could take for one another: what one asked for is no answer to the next.
#[test]
fn other_bytes_are_another_page() {
    let tap = Tap::start(answer);
    let proxy = Proxy::before(tap.address(), &Storage::Embedded, "");
    let targets = [
        "/keep",
        "/Keep",
        "/keep/",
        "/keep?",
        "/keep?a",
        "/keep?a=",
        "/keep?A=",
        "/keep?a=1&b=2",
        "/keep?b=2&a=1",
        "/keep?a=1&a=2",
        "/keep?a=%31",
        "/keep?a=1",
        "/%6beep",
        "/%6Beep",
        "/keep%20",
        "/keep+",
        "/keep;v=1",
        "/keep;v=2",
        "/keep:",
        "/keep.css",
    ];
    for target in targets {
        let before = tap.count();
        assert!(!proxy.get(target).send().is_hit(), "{target}: another's page");
        assert_eq!(tap.count(), before + 1, "{target}");
        assert_eq!(tap.seen()[before].target(), target, "as it came");
    }
}

/// Cache deception: an origin that reads such a path as that of a page would have its answer kept under
/// a name that the attacker chose.
#[test]
fn odd_paths_are_never_stored() {
    let tap = Tap::start(answer);
    let proxy = Proxy::before(tap.address(), &Storage::Embedded, "");
    for target in [
        "/keep/%2e%2e/x.css",
        "/keep/../x.css",
        "/keep%2fx.css",
        "/keep//x.css",
        "/keep/..;/x.css",
        "/keep/.;/x.css",
        "/keep%00.css",
        "/keep%0a.css",
        "/keep%5cx.css",
        "/keep\\x.css",
        "/keep/%252e%252e/x.css",
        "/keep%",
        "/keep%zz.css",
        "/keep%ff.css",
        "/keep/;x.css",
    ] {
        for asked in 1..=2 {
            let before = tap.count();
            let answer = proxy.get(target).send();
            assert_eq!((answer.status, answer.is_hit()), (200, false), "{target}");
            assert_eq!(tap.count(), before + 1, "{target}: asked for {asked} times");
        }
    }
}
