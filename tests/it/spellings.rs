//! Real app servers as the origin: they fold field names (`-`, `_`, and in PHP a dot are one), so that a
//! field that only looks different from ours would arrive as ours. The app tells its whole environment,
//! and whatever a client says, over HTTP/1.1 or HTTP/2, it is the one that an honest request of the same
//! visitor makes.

use std::collections::BTreeMap;

use ::http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use crate::support::apps::App;
use crate::support::client::{Ask, Client};
use crate::support::http2_client::{self, Http2Client};
use crate::support::proxy::{Proxy, Storage};
use crate::support::redis::RedisServer;

const TOKEN: &str = "0123456789abcdef";
/// What stands in every field that a client makes up.
const FORGED: &str = "mallory";
/// Names that mean something to the app when we say them.
const NAMES: [&str; 14] = [
    "X-Anteroom-User",
    "X-Anteroom-Session",
    "X-Anteroom-Signature",
    "X-Staff-Id",
    "Anteroom-Login",
    "Anteroom-Item",
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "X-Forwarded-Host",
    "Forwarded",
    "X-Real-IP",
    "X-Original-URL",
    "X-SSL-Client-Verify",
    "Proxy",
];
/// All that a name may hold beside letters and digits (RFC 9110 §5.6.2).
const MARKS: &str = "-_.!#$%&'*+^`|~";

type Environment = BTreeMap<String, String>;

/// A name in every spelling that some server may take for it.
fn spellings(name: &str) -> Vec<String> {
    let mut spellings = vec![name.to_ascii_lowercase(), name.to_ascii_uppercase()];
    spellings.extend(MARKS.chars().map(|mark| name.replace('-', &mark.to_string())));
    // The last dash alone.
    spellings.extend(name.rsplit_once('-').into_iter().flat_map(|(start, end)| {
        ["_", "."].map(|mark| format!("{start}{mark}{end}").to_lowercase())
    }));
    spellings
}

/// What the app was told, less what differs from one request to the next.
fn environment(answer: &str) -> Environment {
    let told: BTreeMap<String, Value> = serde_json::from_str(answer).unwrap();
    let is_own = |name: &str| {
        name.starts_with("REQUEST_TIME")
            || ["REMOTE_PORT", "HTTP_TRACEPARENT", "HTTP_X_ANTEROOM_SIGNATURE"].contains(&name)
    };
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    told.into_iter().filter(|(name, _)| !is_own(name)).map(|(n, v)| (n, text(v))).collect()
}

/// What a client sends beside an honest request, each by itself.
fn forgeries() -> Vec<Vec<(String, String)>> {
    let mut forgeries: Vec<Vec<(String, String)>> = Vec::new();
    for name in NAMES {
        forgeries.push(spellings(name).into_iter().map(|name| (name, FORGED.into())).collect());
        for spelling in [name.to_owned(), name.replace('-', "_")] {
            let pair = |value: String| (spelling.clone(), value);
            forgeries.push(vec![pair(String::new())]);
            forgeries.push(vec![pair(FORGED.into()), pair(String::new()), pair(FORGED.into())]);
            forgeries.push(vec![pair(FORGED.repeat(1_000))]);
        }
    }
    // Ours are none of the client's connection.
    for listed in
        ["x-anteroom-user, x-anteroom-session", "x-staff-id", "x-forwarded-for, forwarded"]
    {
        forgeries.push(vec![("Connection".into(), format!("keep-alive, {listed}"))]);
    }
    forgeries
}

/// How a visitor comes, and the cookie that is sent.
struct Visitor<'a> {
    proxy: &'a Proxy,
    cookie: Option<&'a str>,
    /// The visitor's connection of HTTP/2; else each request has a connection of HTTP/1.1.
    http2: Option<Http2Client>,
}

impl Visitor<'_> {
    /// What the app was told of a request with these fields.
    fn sent(&mut self, fields: &[(String, String)]) -> String {
        let usual = [("user-agent", Some("test")), ("cookie", self.cookie)];
        let usual = usual.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let more = fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let all: Vec<_> = usual.chain(more).collect();
        let (status, text) = match &mut self.http2 {
            None => {
                let ask = self.proxy.post("/");
                let ask = all.iter().fold(ask, |ask, (name, value)| ask.header(name, value));
                let answer = ask.send();
                (answer.status, answer.text())
            }
            Some(client) => {
                let answer = client.get(http2_client::ask("POST", "/", &all)).unwrap();
                (answer.status, answer.text())
            }
        };
        assert_eq!(status, 200, "{fields:?}: {text}");
        text
    }

    /// Whether a forgery can be sent at all: HTTP/2 has no fields of the connection.
    fn can_send(&self, forgery: &[(String, String)]) -> bool {
        self.http2.is_none() || forgery.iter().all(|(name, _)| name != "Connection")
    }
}

/// Fields where no fields belong: in trailers, and in a line that goes on.
fn odd_places(cookie: &str) -> Vec<Vec<u8>> {
    let head = |more: &str| {
        format!(
            "POST / HTTP/1.1\r\nHost: shop.test\r\nUser-Agent: test\r\n{cookie}Connection: close\r\n{more}\r\n"
        )
    };
    let chunked = "TE: trailers\r\nTransfer-Encoding: chunked\r\n";
    let heads = [
        format!("{}0\r\nX-Anteroom-User: {FORGED}\r\n\r\n", head(chunked)),
        format!(
            "{}0\r\nX_Anteroom_User: {FORGED}\r\n\r\n",
            head(&format!("{chunked}Trailer: X_Anteroom_User, X-Anteroom-User\r\n"))
        ),
        head(&format!("Content-Length: 0\r\nX-Other: 1\r\n X-Anteroom-User: {FORGED}\r\n")),
        head(&format!("Content-Length: 0\r\nX-Other: 1\r\n\tX_Anteroom_User: {FORGED}\r\n")),
        head(&format!("Content-Length: 0\r\nX-Other: 1\rX-Anteroom-User: {FORGED}\r\n")),
        head(&format!("Content-Length: 0\r\nX-Anteroom-User : {FORGED}\r\n")),
        head(&format!("Content-Length: 0\r\n X-Anteroom-User: {FORGED}\r\n")),
    ];
    heads.map(String::into_bytes).to_vec()
}

/// Fields behind the body, over HTTP/2: each name in all spellings, said before or not.
fn no_trailer_reaches(visitor: &mut Visitor<'_>, identity: &str, user: Option<&str>) {
    let client = visitor.http2.as_mut().unwrap();
    for name in NAMES {
        let names: Vec<HeaderName> = spellings(name).iter().map(|n| n.parse().unwrap()).collect();
        let forged = |name: &HeaderName| (name.clone(), HeaderValue::from_static(FORGED));
        let trailers: HeaderMap = names.iter().map(forged).collect();
        let said = names.iter().map(HeaderName::as_str).collect::<Vec<_>>().join(", ");
        for (body, more) in [
            ("", [("te", "trailers"), ("x", "")]),
            ("text", [("te", "trailers"), ("trailer", &said)]),
            ("text", [("x", ""), ("trailer", &said)]),
        ] {
            let cookie = visitor.cookie.map(|cookie| ("cookie", cookie));
            let fields: Vec<_> = cookie.into_iter().chain(more).collect();
            let ask = http2_client::ask("POST", "/", &fields);
            let trailers = Some(trailers.clone());
            let answer = client.send(ask, Some(body.as_bytes()), trailers).unwrap();
            let text = answer.text();
            assert!([200, 400].contains(&answer.status), "{} {name}: {text}", answer.status);
            assert!(!text.contains(FORGED), "{fields:?} {name}: {text}");
            if answer.status == 200 {
                let told = environment(&text);
                assert_eq!(told.get(identity).map(String::as_str), user, "{fields:?} {name}");
            }
        }
    }
}

/// The same of lines of HTTP/1.1 that are not quite fields, or stand behind the body.
fn no_odd_place_reaches(visitor: &Visitor<'_>, identity: &str, user: Option<&str>) {
    let line = visitor.cookie.map_or_else(String::new, |cookie| format!("Cookie: {cookie}\r\n"));
    for bytes in odd_places(&line) {
        let mut client = Client::open(visitor.proxy.address());
        client.send(&bytes);
        let Some(answer) = client.try_answer("POST") else { continue };
        let shown = String::from_utf8_lossy(&bytes);
        assert!([200, 400].contains(&answer.status), "{} {shown}", answer.status);
        assert!(!answer.text().contains(FORGED), "{shown}: {}", answer.text());
        if answer.status == 200 {
            let told = environment(&answer.text());
            assert_eq!(told.get(identity).map(String::as_str), user, "{shown}");
        }
    }
}

/// What an honest visitor's app is told is what it is told of every forgery.
fn no_forgery_reaches(
    visitor: &mut Visitor<'_>,
    identity: &str,
    user: Option<&str>,
    passes: bool,
) -> Environment {
    let honest = environment(&visitor.sent(&[]));
    assert_eq!(honest.get(identity).map(String::as_str), user);
    let session = if user.is_some() { "known" } else { "none" };
    assert_eq!(honest.get("HTTP_X_ANTEROOM_SESSION").map(String::as_str), Some(session));
    assert_eq!(honest.get("HTTP_PROXY"), None);

    let other = environment(&visitor.sent(&[("X_Other".into(), "1".into())]));
    assert_eq!(other.contains_key("HTTP_X_OTHER"), passes);

    let mut all = forgeries();
    all.retain(|forgery| visitor.can_send(forgery));
    for forgery in all {
        let text = visitor.sent(&forgery);
        // A name that is ours by the configuration only may be another app's, where it is not.
        let is_free = forgery.iter().any(|(name, _)| name.to_lowercase().contains("staff"));
        if is_free && identity != "HTTP_X_STAFF_ID" {
            continue;
        }
        assert_eq!(environment(&text), honest, "{forgery:?}");
    }
    honest
}

fn no_spelling_reaches(app: &App) {
    let server = RedisServer::start();
    server.command::<()>(&["HSET", "login:", TOKEN, "alice"]);
    let storage = Storage::Redis(server);
    let token = format!("login={TOKEN}");
    // Without the proxy another spelling of the name is the name: else nothing would be proven here.
    let forged = Ask::new(app.address, "GET", "/").header("X-Anteroom_User", FORGED).send();
    assert_eq!(environment(&forged.text())["HTTP_X_ANTEROOM_USER"], FORGED);
    for (settings, identity) in [
        ("", "HTTP_X_ANTEROOM_USER"),
        ("client.underscore_headers = \"pass\"", "HTTP_X_ANTEROOM_USER"),
        (
            "client.underscore_headers = \"pass\"\nsession.identity_header = \"X-Staff-Id\"",
            "HTTP_X_STAFF_ID",
        ),
    ] {
        let proxy = Proxy::before(app.address, &storage, settings);
        let passes = settings.contains("pass");
        for (cookie, user) in [(None, None), (Some(token.as_str()), Some("alice"))] {
            let mut by_http1 = Visitor { proxy: &proxy, cookie, http2: None };
            let mut told = no_forgery_reaches(&mut by_http1, identity, user, passes);
            no_odd_place_reaches(&by_http1, identity, user);

            let http2 = Some(Http2Client::open(proxy.address()));
            let mut by_http2 = Visitor { proxy: &proxy, cookie, http2 };
            let same = no_forgery_reaches(&mut by_http2, identity, user, passes);
            // Nothing else tells one version from the other.
            assert_eq!(
                told.insert("HTTP_VIA".into(), "2.0 anteroom".into()).unwrap(),
                "1.1 anteroom"
            );
            assert_eq!(same, told);
            no_trailer_reaches(&mut by_http2, identity, user);
        }
    }
}

#[test]
fn no_spelling_of_our_names_reaches_a_wsgi_app() {
    no_spelling_reaches(&App::wsgi());
}

#[test]
fn no_spelling_of_our_names_reaches_a_php_app() {
    no_spelling_reaches(&App::php());
}
