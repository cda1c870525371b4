//! What belongs to one hop (RFC 9110 §7.6.1).

use super::{hold, passes, refused};

#[test]
fn the_hop() {
    hold(
        "",
        &[
            passes(
                "Connection names X-Hop",
                "RFC 9110 §7.6.1",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "Connection names Cookie",
                "RFC 9110 §7.6.1: it is for all",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Cookie\r\nCookie: a=1\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\ncookie: a=1\nx-anteroom-session: unknown",
            ),
            passes(
                "Connection names Authorization",
                "RFC 9110 §7.6.1: it is for all",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Authorization\r\nAuthorization: Basic eDp5\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\nauthorization: Basic eDp5",
            ),
            passes(
                "Connection names Cache-Control",
                "RFC 9110 §7.6.1: it is for all",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Cache-Control\r\nCache-Control: no-cache\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\ncache-control: no-cache",
            ),
            passes(
                "Connection names Accept",
                "RFC 9110 §7.6.1: it is for all",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Accept\r\nAccept: text/html\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\naccept: text/html",
            ),
            passes(
                "Connection names Range",
                "RFC 9110 §7.6.1: it is for all",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Range\r\nRange: bytes=0-1\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\nrange: bytes=0-1",
            ),
            passes(
                "Connection names If-None-Match",
                "RFC 9110 §7.6.1: it is for all",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: If-None-Match\r\nIf-None-Match: \"1\"\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\nif-none-match: \"1\"",
            ),
            passes(
                "Connection names Origin",
                "RFC 9110 §7.6.1: it is for all",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Origin\r\nOrigin: http://a.test\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\norigin: http://a.test",
            ),
            passes(
                "Connection names Referer",
                "RFC 9110 §7.6.1: it is for all",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Referer\r\nReferer: http://a.test/\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\nreferer: http://a.test/",
            ),
            passes(
                "Connection names Accept-Language",
                "RFC 9110 §7.6.1: it is for all",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Accept-Language\r\nAccept-Language: de\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\naccept-language: de",
            ),
            passes(
                "Connection names Host",
                "RFC 9110 §7.6.1: it is for all",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Host\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "Connection names Content-Length",
                "RFC 9110 §7.6.1: it is for all",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Content-Length\r\nContent-Length: 2\r\n\r\nhi",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\ncontent-length: 2\n\nhi",
            ),
            passes(
                "Connection names X-Anteroom-User",
                "ours is put in last",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: X-Anteroom-User\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "Connection names X-Forwarded-For",
                "ours is put in last",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: X-Forwarded-For, X-Forwarded-Proto, Forwarded, Via\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "Connection names X-Anteroom-Session",
                "ours is put in last",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: X-Anteroom-Session, traceparent\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "Connection names Transfer-Encoding",
                "RFC 9112 §6.1",
                "POST /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
                "POST /~ HTTP/1.1\nhost: a.test\ntransfer-encoding: chunked\n\n5\\r\\nhello\\r\\n0\\r\\n\\r\\n",
            ),
            passes(
                "a list over two lines",
                "RFC 9110 §7.6.1",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: X-A\r\nConnection: , X-B ,,\r\nX-A: 1\r\nX-B: 2\r\nX-C: 3\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\nx-c: 3",
            ),
            passes(
                "Connection in another case",
                "RFC 9110 §7.6.1",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\ncOnNeCtIoN: x-hop\r\nX-HOP: 1\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "Connection with nonsense",
                "RFC 9110 §7.6.1",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: \"x-hop\", a b, /\r\nX-Hop: 1\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\nx-hop: 1",
            ),
            passes(
                "close",
                "RFC 9112 §9.6",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            )
            .then_closed(),
            passes(
                "close in a list",
                "RFC 9112 §9.6",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: x, close\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            )
            .then_closed(),
            passes(
                "Keep-Alive",
                "RFC 9110 §7.6.1",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nKeep-Alive: timeout=5\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "Proxy-Connection",
                "RFC 9110 §7.6.1",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nProxy-Connection: keep-alive\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "TE of another coding",
                "RFC 9110 §10.1.4",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nTE: gzip\r\nConnection: TE\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "TE for trailers",
                "RFC 9110 §10.1.4",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nTE: trailers\r\nConnection: TE\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\nte: trailers\nconnection: te",
            ),
            passes(
                "TE for trailers and more",
                "RFC 9110 §10.1.4",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nTE: gzip;q=0.5, trailers\r\nConnection: TE\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\nte: trailers\nconnection: te",
            ),
            passes(
                "Upgrade to h2c",
                "RFC 9113 §3.1: gone, and a way past a proxy",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "HTTP2-Settings alone",
                "RFC 9113 §3.1",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "Upgrade without Connection",
                "RFC 9110 §7.8",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "Proxy-Authorization",
                "RFC 9110 §11.7.2: it may be relayed",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nProxy-Authorization: Basic eDp5\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\nproxy-authorization: Basic eDp5",
            ),
            refused(
                "Max-Forwards of zero",
                "RFC 9110 §7.6.2: it goes no further",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nMax-Forwards: 0\r\n\r\n",
                501,
            ),
            refused(
                "TRACE with Max-Forwards of zero",
                "RFC 9110 §7.6.2: it goes no further",
                "TRACE /~ HTTP/1.1\r\nHost: a.test\r\nMax-Forwards: 0\r\n\r\n",
                501,
            ),
            passes(
                "Max-Forwards",
                "RFC 9110 §7.6.2: for TRACE and OPTIONS one less",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nMax-Forwards: 5\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\nmax-forwards: 4",
            ),
            passes(
                "Max-Forwards of POST",
                "RFC 9110 §7.6.2: not for others",
                "POST /~ HTTP/1.1\r\nHost: a.test\r\nMax-Forwards: 5\r\n\r\n",
                "POST /~ HTTP/1.1\nhost: a.test\nmax-forwards: 5\ncontent-length: 0",
            ),
            passes(
                "Via goes on",
                "RFC 9110 §7.6.3",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nVia: 1.0 fred\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\nvia: 1.0 fred\nvia: 1.1 anteroom",
            ),
            passes(
                "Trailer goes on",
                "RFC 9110 §6.6.2",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nTrailer: X-Sum\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\ntrailer: X-Sum",
            ),
        ],
    );
}
