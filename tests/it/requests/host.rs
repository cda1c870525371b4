//! `Host`, and what the target says of it (RFC 9112 §3.2).

use super::{hold, passes, refused};

#[test]
fn the_host() {
    hold(
        "",
        &[
            refused("no host", "RFC 9112 §3.2", "OPTIONS /~ HTTP/1.1\r\n\r\n", 400),
            refused(
                "no host in 1.0",
                "RFC 9112 §3.2: asked for in 1.0, too",
                "GET /~ HTTP/1.0\r\n\r\n",
                400,
            ),
            refused(
                "two alike",
                "RFC 9112 §3.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "two that differ",
                "RFC 9112 §3.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n",
                400,
            ),
            refused(
                "two far apart",
                "RFC 9112 §3.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nX: 1\r\nHOST: b.test\r\n\r\n",
                400,
            ),
            refused("empty", "RFC 9112 §3.2", "OPTIONS /~ HTTP/1.1\r\nHost: \r\n\r\n", 400),
            refused(
                "only spaces",
                "RFC 9112 §3.2",
                "OPTIONS /~ HTTP/1.1\r\nHost:    \r\n\r\n",
                400,
            ),
            refused(
                "a list",
                "RFC 9112 §3.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test, b.test\r\n\r\n",
                400,
            ),
            refused(
                "a list without a space",
                "RFC 9112 §3.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test,b.test\r\n\r\n",
                400,
            ),
            refused(
                "a semicolon",
                "it would add to Forwarded",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test;proto=https\r\n\r\n",
                400,
            ),
            refused(
                "a quote",
                "it would end a quoted string in Forwarded",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\"\r\n\r\n",
                400,
            ),
            refused(
                "user information",
                "RFC 9110 §4.2.4",
                "OPTIONS /~ HTTP/1.1\r\nHost: user@a.test\r\n\r\n",
                400,
            ),
            refused(
                "user and password",
                "RFC 9110 §4.2.4",
                "OPTIONS /~ HTTP/1.1\r\nHost: user:pass@a.test\r\n\r\n",
                400,
            ),
            refused(
                "a path",
                "RFC 9110 §7.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test/path\r\n\r\n",
                400,
            ),
            refused(
                "a query",
                "RFC 9110 §7.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test?x\r\n\r\n",
                400,
            ),
            refused(
                "a fragment",
                "RFC 9110 §7.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test#x\r\n\r\n",
                400,
            ),
            refused(
                "a backslash",
                "RFC 9110 §7.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\\b\r\n\r\n",
                400,
            ),
            refused(
                "a scheme",
                "RFC 9110 §7.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: http://a.test\r\n\r\n",
                400,
            ),
            refused(
                "a space inside",
                "RFC 9110 §7.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: a test\r\n\r\n",
                400,
            ),
            refused(
                "a tab inside",
                "RFC 9110 §7.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: a\ttest\r\n\r\n",
                400,
            ),
            refused(
                "percent-encoding",
                "a name that two read differently",
                "OPTIONS /~ HTTP/1.1\r\nHost: a%2etest\r\n\r\n",
                400,
            ),
            refused(
                "an empty label",
                "no name in DNS",
                "OPTIONS /~ HTTP/1.1\r\nHost: a..test\r\n\r\n",
                400,
            ),
            refused(
                "a leading dot",
                "no name in DNS",
                "OPTIONS /~ HTTP/1.1\r\nHost: .a.test\r\n\r\n",
                400,
            ),
            refused(
                "only dots",
                "it could escape from a path",
                "OPTIONS /~ HTTP/1.1\r\nHost: ..\r\n\r\n",
                400,
            ),
            refused(
                "a port of letters",
                "RFC 3986 §3.2.3",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test:port\r\n\r\n",
                400,
            ),
            refused(
                "a port too large",
                "RFC 3986 §3.2.3",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test:65536\r\n\r\n",
                400,
            ),
            refused(
                "a port with a sign",
                "RFC 3986 §3.2.3",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test:+80\r\n\r\n",
                400,
            ),
            refused(
                "an empty port",
                "refused, as two would read it differently",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test:\r\n\r\n",
                400,
            ),
            refused(
                "two ports",
                "RFC 3986 §3.2.3",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test:80:81\r\n\r\n",
                400,
            ),
            refused(
                "only a port",
                "RFC 3986 §3.2.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: :80\r\n\r\n",
                400,
            ),
            refused(
                "a bracket left open",
                "RFC 3986 §3.2.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: [::1\r\n\r\n",
                400,
            ),
            refused(
                "no address in brackets",
                "RFC 3986 §3.2.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: [a.test]\r\n\r\n",
                400,
            ),
            refused(
                "an address with a zone",
                "RFC 6874: for one machine only",
                "OPTIONS /~ HTTP/1.1\r\nHost: [fe80::1%25eth0]\r\n\r\n",
                400,
            ),
            refused(
                "text behind brackets",
                "RFC 3986 §3.2.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: [::1]a\r\n\r\n",
                400,
            ),
            refused(
                "bare IPv6",
                "RFC 3986 §3.2.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: ::1\r\n\r\n",
                400,
            ),
            refused(
                "a NUL",
                "RFC 9110 §5.5",
                b"OPTIONS /~ HTTP/1.1\r\nHost: a\x00test\r\n\r\n",
                400,
            ),
            refused(
                "a control byte",
                "RFC 9110 §5.5",
                b"OPTIONS /~ HTTP/1.1\r\nHost: a\x01test\r\n\r\n",
                400,
            ),
            refused(
                "a delete byte",
                "RFC 9110 §5.5",
                b"OPTIONS /~ HTTP/1.1\r\nHost: a\x7ftest\r\n\r\n",
                400,
            ),
            refused(
                "a bare CR",
                "RFC 9112 §2.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\rX: 1\r\n\r\n",
                400,
            ),
            refused(
                "no ASCII",
                "RFC 9110 §7.2",
                b"OPTIONS /~ HTTP/1.1\r\nHost: \xc3\xa4.test\r\n\r\n",
                400,
            ),
            refused(
                "over 254 bytes",
                "RFC 1035 §2.3.4",
                "OPTIONS /~ HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n",
                400,
            ),
            passes(
                "plain",
                "RFC 9112 §3.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "in capitals",
                "RFC 9110 §4.2.3: names know no case",
                "OPTIONS /~ HTTP/1.1\r\nHost: A.TEST\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "spaces around",
                "RFC 9110 §5.5",
                "OPTIONS /~ HTTP/1.1\r\nHost: \t a.test \t \r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "no space before it",
                "RFC 9112 §5",
                "OPTIONS /~ HTTP/1.1\r\nHost:a.test\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a port",
                "RFC 9112 §3.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test:8080\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test:8080",
            ),
            passes(
                "the port that goes without saying",
                "as it came: nobody shares this",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test:80\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test:80",
            ),
            passes(
                "IPv4",
                "RFC 3986 §3.2.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: 127.0.0.1",
            ),
            passes(
                "IPv6",
                "RFC 3986 §3.2.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: [::1]\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: [::1]",
            ),
            passes(
                "IPv6 and a port",
                "RFC 3986 §3.2.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: [2001:DB8::1]:81\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: [2001:db8::1]:81",
            ),
            passes(
                "a final dot",
                "RFC 1034 §3.1",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test.\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test.",
            ),
        ],
    );
}

#[test]
fn the_host_in_the_target() {
    hold(
        "",
        &[
            passes(
                "an absolute target that agrees",
                "RFC 9112 §3.2.2",
                "OPTIONS http://a.test/~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "https where we speak http",
                "the scheme is not believed",
                "OPTIONS https://a.test/~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "the port of the scheme is no other site",
                "RFC 9112 §3.2.2",
                "OPTIONS http://a.test:80/~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test:80",
            ),
            passes(
                "another case is no other site",
                "RFC 9112 §3.2.2",
                "OPTIONS http://A.test/~ HTTP/1.1\r\nHost: a.TEST\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "the scheme in capitals",
                "RFC 3986 §3.1",
                "OPTIONS HTTP://a.test/~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            refused(
                "an absolute target that contradicts",
                "RFC 9112 §3.2.2",
                "OPTIONS http://a.test/~ HTTP/1.1\r\nHost: b.test\r\n\r\n",
                400,
            ),
            refused(
                "another port",
                "RFC 9112 §3.2.2",
                "OPTIONS http://a.test:81/~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "an absolute target and no Host",
                "RFC 9112 §3.2",
                "OPTIONS http://a.test/~ HTTP/1.1\r\n\r\n",
                400,
            ),
            refused(
                "an absolute target and two",
                "RFC 9112 §3.2",
                "OPTIONS http://a.test/~ HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "a user in the target",
                "RFC 9110 §4.2.4",
                "OPTIONS http://user@a.test/~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "no host in the target",
                "RFC 9110 §4.2.1",
                "OPTIONS http:///~ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "only a query in the target",
                "RFC 9112 §3.2.1",
                "OPTIONS ?a=1 HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "a path without a slash",
                "RFC 9112 §3.2.1",
                "OPTIONS path HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            refused(
                "an authority, but no CONNECT",
                "RFC 9112 §3.2.3",
                "OPTIONS a.test:80 HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
            passes(
                "an absolute target with a query and no path",
                "RFC 9112 §3.2.2",
                "OPTIONS http://a.test?a=1 HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "OPTIONS /?a=1 HTTP/1.1\nhost: a.test",
            ),
        ],
    );
}
