//! The head of a request as bytes, and the head of a response from bytes (RFC 9112 §3, §4, §5).

use std::mem::MaybeUninit;

use ::http::header::TRANSFER_ENCODING;
use ::http::response::Parts;
use ::http::uri::PathAndQuery;
use ::http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use anteroom_http::field_line;
use anteroom_http::head_end::HeadScanner;
use bytes::{Bytes, BytesMut};
use hyper::ext::ReasonPhrase;

use super::ExchangeError;
use crate::UploadBody;
use crate::settings::{BUFFER, RESPONSE_FIELDS};

/// The head of a request. Its framing fields are in its header.
pub(super) fn encode(request: &Request<UploadBody>) -> Vec<u8> {
    let target = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    let headers = request.headers();
    // Room for most fields without counting their lengths.
    let mut head = Vec::with_capacity(target.len() + 48 * (headers.len() + 1));
    for part in [request.method().as_str(), " ", target, " HTTP/1.1\r\n"] {
        head.extend_from_slice(part.as_bytes());
    }
    for (name, value) in headers {
        field_line::put(&mut head, name.as_str(), value.as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Reads heads from a buffer that fills in parts.
#[derive(Debug, Default)]
pub(super) struct HeadParser {
    scanner: HeadScanner,
}

impl HeadParser {
    /// Takes a head from the front of `read`; `None`: it is not complete.
    ///
    /// # Errors
    /// If it is not one of HTTP/1.0 or HTTP/1.1, or is too large.
    pub(super) fn parse(
        &mut self,
        read: &mut BytesMut,
        fields_max: usize,
    ) -> Result<Option<Parts>, ExchangeError> {
        let Some(end) = self.scanner.find_end(read) else {
            let is_full = read.len() >= BUFFER;
            return if is_full { Err(ExchangeError::LargeHead) } else { Ok(None) };
        };
        self.scanner = HeadScanner::default();
        parse(&read.split_to(end).freeze(), fields_max).map(Some)
    }
}

fn parse(head: &Bytes, fields_max: usize) -> Result<Parts, ExchangeError> {
    let mut few = [const { MaybeUninit::uninit() }; RESPONSE_FIELDS];
    let mut many = Vec::new();
    let fields: &mut [MaybeUninit<httparse::Header<'_>>] = match few.get_mut(..fields_max) {
        Some(few) => few,
        None => {
            many.resize(fields_max, MaybeUninit::uninit());
            &mut many
        }
    };
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        head,
        fields,
    );
    match parsed {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Ok(_) => return Err(ExchangeError::Invalid("an empty line in its head")),
        Err(httparse::Error::TooManyHeaders) => return Err(ExchangeError::LargeHead),
        Err(error) => return Err(ExchangeError::Invalid(name_of(error))),
    }
    let (mut parts, ()) = Response::new(()).into_parts();
    let code = response.code.unwrap_or_default();
    parts.status = StatusCode::from_u16(code).map_err(|_| ExchangeError::Invalid("status"))?;
    parts.version = if response.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    parts.headers = HeaderMap::with_capacity(response.headers.len());
    for field in &*response.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(head.slice_ref(field.value));
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(ExchangeError::Invalid("field"));
        };
        parts.headers.append(name, value);
    }
    // RFC 9112 §6.1: the framing of such a message is faulty.
    if parts.version == Version::HTTP_10 && parts.headers.contains_key(TRANSFER_ENCODING) {
        return Err(ExchangeError::Invalid("Transfer-Encoding in HTTP/1.0"));
    }
    let reason = response.reason.filter(|reason| Some(*reason) != parts.status.canonical_reason());
    if let Some(reason) = reason.and_then(|reason| ReasonPhrase::try_from(reason.as_bytes()).ok()) {
        parts.extensions.insert(reason);
    }
    Ok(parts)
}

fn name_of(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "field name",
        httparse::Error::HeaderValue => "field value",
        httparse::Error::NewLine => "line end",
        httparse::Error::Status => "status",
        httparse::Error::Token => "token",
        httparse::Error::TooManyHeaders => "too many fields",
        httparse::Error::Version => "version",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Option<Parts>, ExchangeError> {
        HeadParser::default().parse(&mut BytesMut::from(text), RESPONSE_FIELDS)
    }

    #[test]
    fn a_request_is_written_as_its_fields_stand() {
        let request = Request::post("http://ignored.test/a?b=c")
            .header("host", "shop.test")
            .header("content-length", "0")
            .body(UploadBody::Empty)
            .unwrap();
        let expected = "POST /a?b=c HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(encode(&request), expected.as_bytes());
    }

    #[test]
    fn a_head_is_read_from_any_parts() {
        let text = "HTTP/1.1 200 Fine\r\nA: 1\r\nb:2 \r\nA: 3\r\n\r\nbody";
        for cut in 0..text.len() {
            let (mut parser, mut read) = (HeadParser::default(), BytesMut::from(&text[..cut]));
            let early = parser.parse(&mut read, RESPONSE_FIELDS).unwrap();
            read.extend_from_slice(&text.as_bytes()[cut..]);
            let head = early.or_else(|| parser.parse(&mut read, RESPONSE_FIELDS).unwrap()).unwrap();
            assert_eq!(read, "body", "cut at {cut}");
            assert_eq!(head.status, StatusCode::OK);
            let lines: Vec<_> =
                head.headers.get_all("a").iter().map(|line| line.as_bytes()).collect();
            assert_eq!((&lines[..], head.headers.len()), (&[&b"1"[..], b"3"][..], 3));
            assert_eq!(head.headers["b"], "2");
            assert_eq!(head.extensions.get::<ReasonPhrase>().unwrap().as_bytes(), b"Fine");
        }
    }

    #[test]
    fn lines_may_end_with_a_line_feed_alone() {
        for text in ["HTTP/1.1 204 No Content\nA: 1\n\n", "HTTP/1.0 204 No Content\nA: 1\n\r\n"] {
            let head = parsed(text).unwrap().unwrap();
            assert_eq!((head.status, head.headers.len()), (StatusCode::NO_CONTENT, 1), "{text:?}");
            assert!(head.extensions.get::<ReasonPhrase>().is_none());
        }
    }

    #[test]
    fn what_is_not_a_head_is_refused() {
        for text in [
            "\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.1 99 Low\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "ICY 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\n folded: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: 1\r\n folded\r\n\r\n",
            "HTTP/1.1 200 OK\r\na : 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: \0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert!(parsed(text).is_err(), "{text:?}");
        }
        let large = format!("HTTP/1.1 200 OK\r\na: {}", "x".repeat(BUFFER));
        assert!(matches!(parsed(&large), Err(ExchangeError::LargeHead)));
        assert!(parsed("HTTP/1.1 200 OK\r\na: 1\r\n").unwrap().is_none());
    }
    #[test]
    fn a_head_has_as_many_fields_as_are_allowed() {
        for most in
            [1, RESPONSE_FIELDS - 1, RESPONSE_FIELDS, RESPONSE_FIELDS + 1, 3 * RESPONSE_FIELDS]
        {
            for count in [most, most + 1] {
                let text = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: 1\r\n".repeat(count));
                let read = HeadParser::default().parse(&mut BytesMut::from(text.as_str()), most);
                match read {
                    Ok(head) => assert_eq!((head.unwrap().headers.len(), count), (count, most)),
                    Err(ExchangeError::LargeHead) => assert_eq!(count, most + 1),
                    Err(error) => panic!("{count} of {most}: {error}"),
                }
            }
        }
    }
}
