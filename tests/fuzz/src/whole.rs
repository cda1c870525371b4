//! The proxy as a whole: bytes of clients, and bytes of an origin.

use std::sync::OnceLock;

use anteroom_http::forwarded::{is_reserved, same_name};

use crate::input::{Input, fields};
use crate::stage::{Came, Stage, find};

/// What two clients have in their cookies; both are sessions of users.
const SECRETS: [&str; 2] = ["secret-of-alice-0123456789", "secret-of-bobby-0123456789"];
const USERS: &[(&str, &str)] = &[(SECRETS[0], "alice"), (SECRETS[1], "bobby")];
/// What stands in each body that breaks off.
const BROKEN: &[u8] = b"broken-body";
const ROUTES: &str = "\
[[route]]
match.path = \"/all/**\"
share = \"everyone\"
ttl = \"60s\"
[[route]]
match.path = \"/keyed/**\"
key_cookies = \"k\"
ttl = \"60s\"
[[route]]
match.path = \"/over/**\"
override_ttl = \"60s\"
override_private = true
[[route]]
match.path = \"/public/**\"
trust_public = true
";

/// Whatever a client sends, the origin gets requests that can be read in one way only, with none of the
/// names that are ours but in our own words.
pub(crate) fn request_head(data: &[u8]) {
    static STAGE: OnceLock<Stage> = OnceLock::new();
    let stage = STAGE.get_or_init(|| {
        let stage = Stage::start("", &[]);
        stage.answer(|request| {
            check_request(request);
            b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 2\r\n\r\nok".to_vec()
        });
        stage
    });
    let last = b"\r\n\r\nGET /last HTTP/1.1\r\nHost: last\r\nConnection: close\r\n\r\n";
    let sent = [data, last].concat();
    // A client that begins like this speaks HTTP/2, and is answered in it.
    let is_http2 = sent.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let came = stage.exchange(&sent);
    let is_answer = came.bytes.is_empty() || came.bytes.starts_with(b"HTTP/1.") || is_http2;
    assert!(is_answer, "{}", came.bytes.escape_ascii());
}

fn check_request(request: &[u8]) {
    let head = &request[..find(request, b"\r\n\r\n").expect("a whole head")];
    let shown = || head.escape_ascii().to_string();
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        assert!(!line.contains(&b'\r') && !line.contains(&0), "{}", shown());
        line
    });
    let first = lines.next().expect("a first line");
    assert_eq!(first.split(|byte| *byte == b' ').count(), 3, "{}", shown());
    assert!(first.ends_with(b" HTTP/1.1"), "{}", shown());
    let (mut hosts, mut framings) = (0, 0);
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':').expect("a colon");
        let name = std::str::from_utf8(&line[..colon]).expect("a name");
        let value = line[colon + 1..].trim_ascii();
        match name.to_ascii_lowercase().as_str() {
            "host" => hosts += 1,
            "content-length" | "transfer-encoding" => framings += 1,
            "x-forwarded-for" => assert_eq!(value, b"127.0.0.1"),
            "x-forwarded-proto" => assert_eq!(value, b"http"),
            "x-anteroom-session" => assert!(matches!(value, b"none" | b"unknown")),
            "forwarded" => assert!(value.starts_with(b"for=127.0.0.1;host=")),
            "x-forwarded-host" => {}
            "keep-alive" | "proxy-connection" => panic!("{}", shown()),
            _ => assert!(!is_reserved(name) && !name.contains('_'), "{}", shown()),
        }
        assert!(!same_name(name, "x-anteroom-user"), "{}", shown());
    }
    assert!(hosts == 1 && framings <= 1, "{}", shown());
}

/// Two clients, one after the other, each with a secret in a cookie; and an origin that echoes its requests.
/// Neither client sees the other's secret, and a response that the origin never finished is complete for
/// neither.
pub(crate) fn exchange(data: &[u8]) {
    static STAGE: OnceLock<Stage> = OnceLock::new();
    let stage = STAGE.get_or_init(|| Stage::start(ROUTES, USERS));
    let mut input = Input(data);
    let (cookies, frame) = ([input.byte(), input.byte()], input.byte());
    let clients = [input.block(), input.block()];
    let fields = input.block().to_vec();
    let body = input.0.to_vec();
    // Then they could not be told from what is looked for.
    if find(data, b"secret-of").or_else(|| find(data, b"broken-body")).is_some() {
        return;
    }
    stage.answer(move |request| response(frame, &fields, &body, request));
    for who in 0..2 {
        let came = stage.exchange(&request(clients[who], cookies[who], SECRETS[who]));
        let is_foreign = find(&came.bytes, SECRETS[1 - who].as_bytes()).is_some();
        assert!(!is_foreign, "another's: {}", came.bytes.escape_ascii());
        let is_whole = find(&came.bytes, BROKEN).is_some() && is_whole(&came);
        assert!(!is_whole, "a part for a whole: {}", came.bytes.escape_ascii());
    }
}

/// A client's request, with the cookie as its first field.
fn request(client: &[u8], cookie: u8, secret: &str) -> Vec<u8> {
    let end = client.iter().position(|byte| *byte == b'\n').map_or(client.len(), |at| at + 1);
    let (first, rest) = client.split_at(end);
    let first = first.trim_ascii_end();
    // Of the line end before the one that ends a part of the input.
    let rest = rest.strip_suffix(b"\r").unwrap_or(rest);
    let cookie = match cookie % 6 {
        0 => format!("login={secret}"),
        1 => format!("login={secret}; login=other-{secret}"),
        2 => format!("other={secret}"),
        3 => format!("_ga={secret}"),
        4 => format!("k={secret}"),
        _ => format!("login=no-{secret}; k={secret}"),
    };
    let fields = format!("\r\nCookie: {cookie}\r\nConnection: close\r\n");
    [first, fields.as_bytes(), rest, b"\r\n\r\n"].concat()
}

/// The origin's answer, which holds whatever secret came.
fn response(frame: u8, fields_said: &[u8], body: &[u8], request: &[u8]) -> Vec<u8> {
    let mut echo: Vec<u8> = Vec::new();
    for secret in SECRETS.iter().filter(|secret| find(request, secret.as_bytes()).is_some()) {
        echo.extend_from_slice(secret.as_bytes());
    }
    let frame = frame % 6;
    if frame == 0 {
        return [fields_said, b"\r\n\r\n", &echo, body].concat();
    }
    let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
    for (name, value) in &fields(fields_said) {
        if !["content-length", "transfer-encoding", "connection"].contains(&name.as_str()) {
            head.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
    }
    let whole = [&echo, body].concat();
    let broken = [BROKEN, &whole].concat();
    let chunk =
        |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    let length = |bytes: &[u8], more: usize| {
        [format!("Content-Length: {}\r\n\r\n", bytes.len() + more).as_bytes(), bytes].concat()
    };
    let chunked = b"Transfer-Encoding: chunked\r\n\r\n".to_vec();
    let rest = match frame {
        1 => length(&whole, 0),
        2 if whole.is_empty() => [chunked, b"0\r\n\r\n".to_vec()].concat(),
        2 => [chunked, chunk(&whole), b"0\r\n\r\n".to_vec()].concat(),
        3 => length(&broken, 1 + body.len()),
        4 => [chunked, chunk(&broken)].concat(),
        _ => [chunked, chunk(&broken), b"zz\r\n".to_vec(), whole].concat(),
    };
    [head, rest].concat()
}

/// Whether a client takes an answer for whole.
fn is_whole(came: &Came) -> bool {
    let Some(end) = find(&came.bytes, b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&came.bytes[..end]).to_lowercase();
    let body = &came.bytes[end + 4..];
    if head.contains("\r\ntransfer-encoding: chunked") {
        return ends_with_a_last_chunk(body);
    }
    let length = head.split("\r\n").find_map(|line| line.strip_prefix("content-length: "));
    match length.and_then(|length| length.trim().parse::<usize>().ok()) {
        Some(length) => body.len() >= length,
        None => came.in_order,
    }
}

/// Whether the chunks of a body end as chunks do; what stands in them may look alike.
fn ends_with_a_last_chunk(mut body: &[u8]) -> bool {
    while let Some(end) = find(body, b"\r\n") {
        let line = String::from_utf8_lossy(&body[..end]).into_owned();
        let size = line.split(';').next().map(|size| usize::from_str_radix(size.trim(), 16));
        match size {
            Some(Ok(0)) => return find(&body[end..], b"\r\n\r\n").is_some(),
            Some(Ok(size)) if body.len() >= size.saturating_add(end + 4) => {
                body = &body[end + 4 + size..]
            }
            _ => return false,
        }
    }
    false
}
