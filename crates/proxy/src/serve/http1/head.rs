//! The head of a request without a body, from bytes (RFC 9112 §3, §5).

use std::mem::MaybeUninit;

use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use bytes::{Buf as _, Bytes, BytesMut};

use anteroom_http::head_end::HeadScanner;
use anteroom_http::hop;

/// The most fields of a head that is read here; browsers send some 20.
const FIELDS_MAX: usize = 64;

/// What stands at the front of a connection's buffer.
#[derive(Debug)]
pub(super) enum Front {
    /// An HTTP/1.1 request without a body. It is taken from the buffer.
    Request(PlainRequest),
    /// Another request, or none. It is left in the buffer, and hyper answers it.
    Other,
    /// A part of a head.
    Partial,
}

/// A request without a body that does not ask for another protocol.
#[derive(Debug)]
pub(super) struct PlainRequest {
    /// PERF: boxed, because it is large and moves from stage to stage.
    pub(super) head: Box<Parts>,
    /// Whether the client asks to close the connection after the response (RFC 9112 §9.6).
    pub(super) closes: bool,
}

/// Reads heads from a buffer that fills in parts.
#[derive(Debug, Default)]
pub(super) struct HeadParser {
    /// Looks for the end of a head that did not arrive at once.
    scanner: Option<HeadScanner>,
    /// How many bytes of empty lines came before the head.
    dropped: usize,
}

impl HeadParser {
    /// Takes a request with a head of at most `max` bytes from the front of `read`.
    ///
    /// SECURITY: what hyper would refuse, or read in another way, is never taken. Whatever frames a body or
    /// changes the connection is left to hyper, and so is every faulty head.
    pub(super) fn parse(&mut self, read: &mut BytesMut, max: usize) -> Front {
        if self.scanner.is_none() {
            self.dropped += drop_empty_lines(read);
            if self.dropped > max {
                return Front::Other;
            }
        }
        let is_whole = match &mut self.scanner {
            Some(scanner) => scanner.find_end(read).is_some(),
            None => !read.is_empty(),
        };
        let front = if is_whole { parse(read, max) } else { Front::Partial };
        self.scanner = match front {
            Front::Partial if read.len() >= max => return Front::Other,
            // An empty line may still end here.
            Front::Partial if matches!(read[..], [] | [b'\r']) => None,
            Front::Partial => Some(self.scanner.take().unwrap_or_default()),
            Front::Request(_) | Front::Other => {
                self.dropped = 0;
                None
            }
        };
        front
    }
}

/// RFC 9112 §2.2: empty lines before a request are ignored. Returns their bytes.
fn drop_empty_lines(read: &mut BytesMut) -> usize {
    let before = read.len();
    loop {
        match read[..] {
            [b'\n', ..] => read.advance(1),
            [b'\r', b'\n', ..] => read.advance(2),
            _ => return before - read.len(),
        }
    }
}

/// Where a part of a head stands: from, to.
type Span = (u32, u32);

/// Where the parts of a head stand.
struct Outline<'f> {
    method: Span,
    target: Span,
    fields: &'f [(Span, Span)],
    length: usize,
    names_connection: bool,
}

fn parse(read: &mut BytesMut, max: usize) -> Front {
    let mut fields = [((0, 0), (0, 0)); FIELDS_MAX];
    let outline = match outline(read, &mut fields) {
        Ok(Some(outline)) if outline.length <= max => outline,
        Ok(None) => return Front::Partial,
        Ok(Some(_)) | Err(NotPlain) => return Front::Other,
    };
    let head = read.split_to(outline.length).freeze();
    match build(&head, &outline) {
        Some(request) => Front::Request(request),
        None => {
            *read = BytesMut::from(&[&head[..], read].concat()[..]);
            Front::Other
        }
    }
}

/// The request is not one that is read here.
struct NotPlain;

/// Finds the parts of a request without a body; `None`: more must arrive.
fn outline<'f>(
    read: &[u8],
    spans: &'f mut [(Span, Span); FIELDS_MAX],
) -> Result<Option<Outline<'f>>, NotPlain> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_request_with_uninit_headers(
        &mut request,
        read,
        &mut fields,
    );
    let length = match parsed {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(NotPlain),
    };
    let (Some(method), Some(target), Some(1)) = (request.method, request.path, request.version)
    else {
        return Err(NotPlain);
    };
    if method == "CONNECT" {
        return Err(NotPlain);
    }
    let span = |part: &[u8]| {
        // The parser's parts are slices of `read`, which is far below 4 GiB.
        let from = (part.as_ptr().addr() - read.as_ptr().addr()) as u32;
        (from, from + part.len() as u32)
    };
    let mut names_connection = false;
    for (field, spans) in request.headers.iter().zip(spans.iter_mut()) {
        match Role::of(field.name) {
            Role::Other => {}
            Role::Connection => names_connection = true,
            Role::Framing => return Err(NotPlain),
        }
        *spans = (span(field.name.as_bytes()), span(field.value));
    }
    Ok(Some(Outline {
        method: span(method.as_bytes()),
        target: span(target.as_bytes()),
        fields: &spans[..request.headers.len()],
        length,
        names_connection,
    }))
}

/// What a field means for the connection.
enum Role {
    Other,
    Connection,
    /// It frames a body, or asks for more than a response.
    Framing,
}

impl Role {
    fn of(name: &str) -> Self {
        // PERF: most names differ in their length already.
        let framing = match name.len() {
            2 => "te",
            6 => "expect",
            7 => "upgrade",
            10 if name.eq_ignore_ascii_case("connection") => return Self::Connection,
            14 => "content-length",
            17 => "transfer-encoding",
            _ => return Self::Other,
        };
        if name.eq_ignore_ascii_case(framing) { Self::Framing } else { Self::Other }
    }
}

fn build(head: &Bytes, outline: &Outline<'_>) -> Option<PlainRequest> {
    let at = |(from, to): Span| from as usize..to as usize;
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = Method::from_bytes(&head[at(outline.method)]).ok()?;
    parts.uri = Uri::from_maybe_shared(head.slice(at(outline.target))).ok()?;
    parts.headers = HeaderMap::with_capacity(outline.fields.len());
    for (name, value) in outline.fields {
        let name = HeaderName::from_bytes(&head[at(*name)]).ok()?;
        let value = HeaderValue::from_maybe_shared(head.slice(at(*value))).ok()?;
        parts.headers.append(name, value);
    }
    let closes = outline.names_connection && hop::connection_names(&parts.headers, "close");
    Some(PlainRequest { head: Box::new(parts), closes })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::convert::Infallible;
    use std::rc::Rc;

    use ::http::Response;
    use http_body::Body as _;
    use http_body_util::Empty;
    use hyper::body::Incoming;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const MAX: usize = 4 * 1024;

    /// Method, target and fields of a request, and whether it has a body.
    type ReadRequest = (String, String, Vec<(String, Vec<u8>)>, bool);

    fn read<B>(head: &Request<B>, has_body: bool) -> ReadRequest {
        let fields = head.headers().iter();
        let fields = fields.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
        (head.method().to_string(), head.uri().to_string(), fields.collect(), has_body)
    }

    /// The requests that are taken from these bytes.
    fn directly(bytes: &[u8]) -> Vec<ReadRequest> {
        let (mut buffer, mut requests) = (BytesMut::from(bytes), Vec::new());
        while let Front::Request(request) = HeadParser::default().parse(&mut buffer, MAX) {
            requests.push(read(&Request::from_parts(*request.head, ()), false));
        }
        requests
    }

    /// The requests that hyper reads from these bytes.
    fn by_hyper(bytes: &[u8]) -> Vec<ReadRequest> {
        let requests = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&requests);
        let service = service_fn(move |request: Request<Incoming>| {
            seen.borrow_mut().push(read(&request, !request.body().is_end_stream()));
            async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut client, server) = tokio::io::duplex(64 * 1024);
            client.write_all(bytes).await.unwrap();
            client.shutdown().await.unwrap();
            let mut builder = http1::Builder::new();
            builder.max_header_size(MAX).half_close(true);
            // It ends with an error where a head is faulty.
            let _ = builder.serve_connection(TokioIo::new(server), service).await;
            let mut answers = Vec::new();
            client.read_to_end(&mut answers).await.unwrap();
        });
        requests.take()
    }

    const REQUESTS: [&str; 5] = [
        "GET / HTTP/1.1\r\nHost: a.test\r\nCookie: a=b; c=d\r\nCookie: e=f\r\n\r\n",
        "HEAD http://a.test/b?c=d HTTP/1.1\r\nhost: a.test\r\nConnection: keep-alive\r\nX:\t1 \r\n\r\n",
        "OPTIONS * HTTP/1.1\nHost: a.test\nX: é\n\n",
        "POST /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc",
        "PUT /a HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    ];
    const NEXT: &str = "GET /next HTTP/1.1\r\nHost: b.test\r\n\r\n";

    #[test]
    fn requests_without_a_body_are_taken() {
        for text in &REQUESTS[..3] {
            let bytes = [text.as_bytes(), NEXT.as_bytes()].concat();
            let requests = directly(&bytes);
            assert_eq!((requests.len(), &requests), (2, &by_hyper(&bytes)), "{text:?}");
        }
    }

    #[test]
    fn other_requests_are_left_as_they_came() {
        for text in [
            REQUESTS[3],
            REQUESTS[4],
            "GET / HTTP/1.0\r\nHost: a.test\r\n\r\n",
            "GET / HTTP/1.1\r\ncontent-length: 0\r\n\r\n",
            "GET / HTTP/1.1\r\nEXPECT: 100-continue\r\n\r\n",
            "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            "GET / HTTP/1.1\r\nTE: trailers\r\n\r\n",
            "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a.test\r\n\r\n",
            "GET http://[ HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "\x16\x03\x01\x02\x00\x01",
        ] {
            let mut buffer = BytesMut::from(text);
            let front = HeadParser::default().parse(&mut buffer, MAX);
            assert!(matches!(front, Front::Other), "{text:?}: {front:?}");
            assert_eq!(buffer, text);
        }
    }

    #[test]
    fn a_head_is_read_from_any_parts() {
        for cut in 0..REQUESTS[0].len() {
            let (early, late) = REQUESTS[0].as_bytes().split_at(cut);
            let (mut parser, mut buffer) = (HeadParser::default(), BytesMut::from(early));
            assert!(matches!(parser.parse(&mut buffer, MAX), Front::Partial), "{cut}");
            buffer.extend_from_slice(late);
            buffer.extend_from_slice(NEXT.as_bytes());
            for target in ["/", "/next"] {
                let front = parser.parse(&mut buffer, MAX);
                let Front::Request(request) = front else { panic!("{cut}: {front:?}") };
                assert_eq!(request.head.uri, target);
            }
            assert!(matches!(parser.parse(&mut buffer, MAX), Front::Partial));
        }
    }

    #[test]
    fn empty_lines_before_a_head_are_dropped() {
        let text = format!("\r\n\n\r\n{NEXT}");
        let (mut parser, mut buffer) = (HeadParser::default(), BytesMut::new());
        for byte in text.bytes() {
            buffer.extend_from_slice(&[byte]);
            let front = parser.parse(&mut buffer, MAX);
            let looked_at = parser.scanner.as_ref().map_or(0, HeadScanner::scanned);
            match front {
                Front::Request(request) => assert_eq!(request.head.uri, "/next"),
                // The parser waits for the end of the head, and does not begin again with each byte.
                front => assert!(
                    matches!(front, Front::Partial) && looked_at + 3 >= buffer.len(),
                    "{front:?} {looked_at}"
                ),
            }
        }
        assert!(buffer.is_empty());
        // They count as a head does.
        for (count, is_taken) in [(MAX, true), (MAX + 2, false)] {
            let mut buffer = BytesMut::from(&"\r\n".repeat(count / 2)[..]);
            buffer.extend_from_slice(NEXT.as_bytes());
            let front = parser.parse(&mut buffer, MAX);
            assert_eq!(matches!(front, Front::Request(_)), is_taken, "{front:?}");
        }
    }

    #[test]
    fn too_large_a_head_is_left_to_hyper() {
        for (length, is_whole, is_taken) in
            [(MAX, true, true), (MAX + 1, true, false), (MAX - 1, false, true), (MAX, false, false)]
        {
            let mut text = "GET / HTTP/1.1\r\na: ".to_owned();
            let end = if is_whole { "\r\n\r\n" } else { "" };
            text.push_str(&"x".repeat(length - text.len() - end.len()));
            text.push_str(end);
            let (mut parser, mut buffer) = (HeadParser::default(), BytesMut::from(&text[..]));
            let front = parser.parse(&mut buffer, MAX);
            assert_eq!(!matches!(front, Front::Other), is_taken, "{length} {is_whole}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: 1\r\n".repeat(FIELDS_MAX + 1));
        assert!(directly(many.as_bytes()).is_empty());
    }

    #[test]
    fn a_client_may_ask_to_close() {
        for (field, closes) in
            [("Connection: close", true), ("connection: a, Close", true), ("Connection: a", false)]
        {
            let text = format!("GET / HTTP/1.1\r\n{field}\r\n\r\n");
            let front = HeadParser::default().parse(&mut BytesMut::from(&text[..]), MAX);
            assert!(
                matches!(front, Front::Request(request) if request.closes == closes),
                "{field}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        /// SECURITY: what two parsers read in two ways can be used to smuggle a request in.
        #[test]
        fn what_is_taken_is_what_hyper_reads(
            request in prop::sample::select(&REQUESTS[..]),
            edits in prop::collection::vec(
                (any::<prop::sample::Index>(), prop::sample::select(&b"\r\n01:;, \t-xH/\"\0\x80"[..]), 0..3_u8),
                1..4,
            ),
        ) {
            let mut bytes = request.as_bytes().to_vec();
            for (at, byte, kind) in edits {
                let at = at.index(bytes.len());
                match kind {
                    0 => bytes.insert(at, byte),
                    1 => bytes[at] = byte,
                    _ => drop(bytes.remove(at)),
                }
            }
            bytes.extend_from_slice(NEXT.as_bytes());
            let (taken, expected) = (directly(&bytes), by_hyper(&bytes));
            prop_assert!(
                expected.starts_with(&taken),
                "{}: {taken:?} {expected:?}", bytes.escape_ascii()
            );
        }
    }
}
