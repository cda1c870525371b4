//! What the origin sees of a request whose answer is for all: what is in the key, and no more.

use super::{fills, hold, passes};

#[test]
fn shared_pages() {
    hold(
        "",
        &[
            fills(
                "X-Forwarded-Host on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-Host: b.test\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "X-Original-URL on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nX-Original-URL: /admin\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "a client hint that there is",
                "Vary may name it",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nSec-CH-UA-Mobile: ?1\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test\nsec-ch-ua-mobile: ?1",
            ),
            fills(
                "a client hint that there is not",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nSec-CH-Anything: <b>\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "X-Rewrite-URL on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nX-Rewrite-URL: /admin\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "X-HTTP-Method-Override on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nX-HTTP-Method-Override: DELETE\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "X-HTTP-Method on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nX-HTTP-Method: DELETE\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "X-Method-Override on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nX-Method-Override: DELETE\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "X-Host on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nX-Host: b.test\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "X-Custom on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nX-Custom: 1\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "X-Api-Version on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nX-Api-Version: 2\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "X-Forwarded-Scheme on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-Scheme: http\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            passes(
                "Range on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nRange: bytes=0-1\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "If-Range on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nIf-Range: \"1\"\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "If-None-Match on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nIf-None-Match: \"1\"\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "If-Modified-Since on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nIf-Modified-Since: Sat, 01 Jan 2000 00:00:00 GMT\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "Pragma on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nPragma: no-cache\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "Upgrade-Insecure-Requests on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nUpgrade-Insecure-Requests: 1\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "Sec-Fetch-Mode on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nSec-Fetch-Mode: navigate\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "DNT on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nDNT: 1\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "Cookie on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nCookie: _ga=1\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "Max-Forwards on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nMax-Forwards: 3\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "Proxy-Authorization on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nProxy-Authorization: Basic eDp5\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "Content-Type on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nContent-Type: text/x\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "Content-Encoding on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nContent-Encoding: gzip\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "Transfer_Encoding on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nTransfer_Encoding: chunked\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "Via on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nVia: 1.0 fred\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "TE on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nTE: trailers\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "Expect on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "Trailer on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nTrailer: X\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "From on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nFrom: a@b.test\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "Accept-Charset on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nAccept-Charset: utf-7\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "X-Wap-Profile on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nX-Wap-Profile: x\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "tracestate on a shared page",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\ntracestate: a=1\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "Accept is sent",
                "Vary may name it",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nAccept: text/plain\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test\naccept: text/plain",
            ),
            fills(
                "Accept-Language is sent",
                "Vary may name it",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nAccept-Language: de\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test\naccept-language: de",
            ),
            fills(
                "User-Agent is sent",
                "Vary may name it",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nUser-Agent: x\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test\nuser-agent: x",
            ),
            passes(
                "HEAD fills nothing",
                "RFC 9110 §9.3.2",
                "HEAD /~keep HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "HEAD /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "ignored parameters",
                "they are in no key",
                "GET /~keep?utm_source=x&a=1&gclid=2&b=3 HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~keep?a=1&b=3 HTTP/1.1\nhost: a.test",
            ),
            fills(
                "only ignored parameters",
                "they are in no key",
                "GET /~keep?utm_source=x HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "a parameter that is like an ignored one",
                "bytes as they came",
                "GET /~keep?utm=1&xutm_a=2&UTM_a=3 HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~keep?utm=1&xutm_a=2&UTM_a=3 HTTP/1.1\nhost: a.test",
            ),
            fills(
                "an empty query",
                "bytes as they came",
                "GET /~keep? HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~keep? HTTP/1.1\nhost: a.test",
            ),
            fills(
                "odd separators",
                "bytes as they came",
                "GET /~keep?&&a;b=&=c& HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /~keep?&&a;b=&=c& HTTP/1.1\nhost: a.test",
            ),
            fills(
                "the port that goes without saying",
                "the key holds the site",
                "GET /~keep HTTP/1.1\r\nHost: A.test:80\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a personal cookie",
                "it is forwarded as it came",
                "GET /~ HTTP/1.1\r\nHost: a.test\r\nCookie: a=1; _ga=2\r\nX-Custom: 1\r\n\r\n",
                "GET /~ HTTP/1.1\nhost: a.test\ncookie: a=1; _ga=2\nx-custom: 1\nx-anteroom-session: unknown",
            ),
            passes(
                "a login",
                "it is forwarded as it came",
                "GET /~ HTTP/1.1\r\nHost: a.test\r\nAuthorization: Basic eDp5\r\nX-Custom: 1\r\n\r\n",
                "GET /~ HTTP/1.1\nhost: a.test\nauthorization: Basic eDp5\nx-custom: 1",
            ),
        ],
    );
}

#[test]
fn pages_for_everyone() {
    hold(
        EVERYONE,
        &[
            fills(
                "Cookie on a route for everyone",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nCookie: login=nosuchtokennosuchtoken\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "Cookie on a route for everyone",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nCookie: a=1\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "Authorization on a route for everyone",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nAuthorization: Basic eDp5\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "X-Anteroom-User on a route for everyone",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nX-Anteroom-User: root\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "X-HTTP-Method-Override on a route for everyone",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nX-HTTP-Method-Override: DELETE\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "X-Forwarded-Host on a route for everyone",
                "what is not in the key is not seen",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-Host: b.test\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            fills(
                "a keyed override",
                "the route names it",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nX-Method-Override: 7\r\nX-HTTP-Method-Override: 8\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test\nx-method-override: 7",
            ),
            fills(
                "a keyed cookie in two lines",
                "the route names it, and the key holds both",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nCookie: lang=de; a=1\r\nCookie: lang=en\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test\ncookie: lang=de; lang=en",
            ),
            fills(
                "an odd Accept-Encoding",
                "one list for all",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nAccept-Encoding: identity;q=0, x-odd\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test\naccept-encoding: identity",
            ),
            fills(
                "a body that is announced and empty",
                "RFC 9110 §9.3.1: none",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test",
            ),
            passes(
                "a body on a shared page",
                "it is forwarded, and nobody shares it",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nX: 1\r\nContent-Length: 2\r\n\r\nhi",
                "GET /~keep HTTP/1.1\nhost: a.test\nx: 1\ncontent-length: 2\n\nhi",
            ),
            fills(
                "a keyed field",
                "the route names it",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nX-Tenant: 7\r\nX-Else: 1\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test\nx-tenant: 7",
            ),
            fills(
                "a keyed cookie",
                "the route names it",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nCookie: a=1; lang=de; b=2\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test\ncookie: lang=de",
            ),
            fills(
                "Connection names a keyed field",
                "the operator has said that it is for all",
                "GET /~keep HTTP/1.1\r\nHost: a.test\r\nConnection: X-Tenant\r\nX-Tenant: 7\r\n\r\n",
                "GET /~keep HTTP/1.1\nhost: a.test\nx-tenant: 7",
            ),
        ],
    );
}

const EVERYONE: &str = "[[route]]\nmatch.path = [\"/**\"]\nshare = \"everyone\"\n\
                        key_headers = [\"X-Tenant\", \"X-Method-Override\"]\nkey_cookies = [\"lang\"]";
