//! Real app servers as the origin: they fold field names (`-`, `_`, and in PHP a dot are one), so that a
//! field that only looks different from ours would arrive as ours. The app tells its whole environment,
//! and whatever a client says, it is the one that an honest request of the same visitor makes.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::apps::App;
use crate::support::client::{Ask, Client};
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

fn sent(ask: &Ask, fields: &[(String, String)]) -> String {
    let ask = fields.iter().fold(ask.clone(), |ask, (name, value)| ask.header(name, value));
    let answer = ask.send();
    assert_eq!(answer.status, 200, "{fields:?}: {}", answer.text());
    answer.text()
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
        for (cookie, user, session) in
            [("", None, "none"), (token.as_str(), Some("alice"), "known")]
        {
            let ask = proxy.post("/").header("User-Agent", "test");
            let ask = if cookie.is_empty() { ask } else { ask.cookie(cookie) };
            let honest = environment(&sent(&ask, &[]));
            assert_eq!(honest.get(identity).map(String::as_str), user, "{settings}");
            assert_eq!(honest.get("HTTP_X_ANTEROOM_SESSION").map(String::as_str), Some(session));
            assert_eq!(honest.get("HTTP_PROXY"), None);

            let other = environment(&sent(&ask, &[("X_Other".into(), "1".into())]));
            assert_eq!(other.contains_key("HTTP_X_OTHER"), passes, "{settings}");

            for forgery in forgeries() {
                let text = sent(&ask, &forgery);
                // A name that is ours by the configuration only may be another app's, where it is not.
                let is_free = forgery.iter().any(|(name, _)| name.to_lowercase().contains("staff"));
                if is_free && identity != "HTTP_X_STAFF_ID" {
                    continue;
                }
                assert_eq!(environment(&text), honest, "{settings} {forgery:?}");
            }
            let line =
                if cookie.is_empty() { String::new() } else { format!("Cookie: {cookie}\r\n") };
            for bytes in odd_places(&line) {
                let mut client = Client::open(proxy.address());
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
