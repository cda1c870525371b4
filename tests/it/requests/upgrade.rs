//! Requests for another protocol (RFC 9110 §7.8), to an origin that answers them in HTTP: no byte behind
//! one is taken for a request.

use super::{Case, hold, passes, refused};

const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
const KEY_SEEN: &str = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\nsec-websocket-version: 13";

/// A request behind one for another protocol.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: a.test\r\n\r\n";

/// Asked for, refused by the origin's answer in HTTP, and the connection is over.
fn asks(name: &'static str, why: &'static str, sent: &str, saw: &str) -> Case {
    passes(name, why, sent, saw).then_closed()
}

#[test]
fn upgrades() {
    let websocket = |lines: &str, behind: &str| {
        format!(
            "GET /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             {KEY}{lines}\r\n{behind}"
        )
    };
    let seen = format!(
        "GET /~ HTTP/1.1\nhost: a.test\nconnection: Upgrade\nupgrade: websocket\n{KEY_SEEN}"
    );
    let plain = "GET /~ HTTP/1.1\nhost: a.test";
    hold(
        "",
        &[
            asks("a WebSocket", "RFC 6455 §4.1", &websocket("", ""), &seen),
            asks(
                "a request behind it",
                "it was for the new protocol",
                &websocket("", HIDDEN),
                &seen,
            ),
            asks("a frame behind it", "likewise", &websocket("", "\u{1}\u{5}hello"), &seen),
            asks(
                "Connection in another case and in a list",
                "RFC 9110 §7.6.1",
                &websocket("connection: keep-alive, X-Hop\r\nX-Hop: 1\r\n", ""),
                &seen,
            ),
            asks(
                "TE and trailers",
                "RFC 9110 §10.1.4: the connection's",
                &websocket("TE: trailers\r\nTrailer: x\r\n", ""),
                &seen,
            ),
            asks(
                "Connection names the key",
                "RFC 9110 §7.6.1",
                &websocket("Connection: Sec-WebSocket-Key\r\n", ""),
                &seen.replace("sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\n", ""),
            ),
            asks(
                "extensions and subprotocols",
                "RFC 6455 §11.3: between the ends",
                &websocket(
                    "Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Protocol: chat\r\n",
                    "",
                ),
                &format!(
                    "{seen}\nsec-websocket-extensions: permessage-deflate\nsec-websocket-protocol: chat"
                ),
            ),
            asks(
                "an identity of the client's own choice",
                "only we say who it is",
                &websocket("X-Anteroom-User: root\r\nX-Anteroom-Session: known\r\n", ""),
                &seen,
            ),
            asks(
                "WebSocket behind another one",
                "the origin is asked for one",
                &websocket("", "")
                    .replace("Upgrade: websocket", "Upgrade: x-chat/2\r\nUpgrade: websocket"),
                &seen,
            ),
            asks(
                "another protocol, by POST without a body",
                "RFC 9110 §7.8",
                "POST /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n",
                "POST /~ HTTP/1.1\nhost: a.test\nconnection: Upgrade\nupgrade: tcp\ncontent-length: 0",
            ),
            asks(
                "the first that may be passed on",
                "h2c would lead around us",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c, HTTP/2.0, TLS/1.0, x/1, y\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\nconnection: Upgrade\nupgrade: x/1",
            ),
            passes(
                "TLS",
                "RFC 2817: HTTP around us",
                "OPTIONS /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: TLS/1.0\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test",
            ),
            passes(
                "HTTP/1.0",
                "RFC 9110 §7.8: it is ignored",
                "OPTIONS /~ HTTP/1.0\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
                "OPTIONS /~ HTTP/1.1\nhost: a.test\nvia: 1.0 anteroom",
            )
            .then_closed(),
            passes(
                "with a body",
                "RFC 9110 §7.8: it may be answered in HTTP",
                "POST /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 2\r\n\r\nhi",
                "POST /~ HTTP/1.1\nhost: a.test\ncontent-length: 2\n\nhi",
            ),
            passes(
                "WebSocket by POST",
                "RFC 6455 §4.1: it is GET",
                "POST /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
                "POST /~ HTTP/1.1\nhost: a.test\ncontent-length: 0",
            ),
            passes(
                "Upgrade without Connection",
                "RFC 9110 §7.8",
                websocket("", "").replace("Connection: Upgrade\r\n", "").replace(KEY, ""),
                plain,
            ),
            refused(
                "only-if-cached",
                "RFC 9111 §5.2.1.7: it is never stored",
                websocket("Cache-Control: only-if-cached\r\n", HIDDEN),
                504,
            ),
            refused(
                "what is ours",
                "what is behind it was for another protocol all the same",
                websocket("", HIDDEN).replace("/~", "/_anteroom/me"),
                200,
            ),
            refused(
                "CONNECT",
                "no tunnel to where the client wants",
                "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n",
                400,
            ),
        ],
    );
}

#[test]
fn no_tunnel_where_the_operator_wants_none() {
    let sent = format!(
        "GET /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{KEY}\r\n{HIDDEN}"
    );
    hold("limits.tunnels = 0", &[refused("a WebSocket", "[limits] tunnels", sent, 503)]);
}

#[test]
fn one_request_too_many() {
    let sent = format!(
        "GET /~ HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n{HIDDEN}"
    );
    let first = format!("GET /~ HTTP/1.1\r\nHost: a.test\r\n\r\n{sent}");
    let saw = "GET /~ HTTP/1.1\nhost: a.test";
    hold(
        "[[route]]\nmatch.path = \"/c0\"\nrequests_per_address = \"1/h\"",
        &[passes("an Upgrade", "429, and what is behind it is no request", first, saw)
            .got(&[200, 429])
            .then_closed()],
    );
}
