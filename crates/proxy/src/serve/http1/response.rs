//! The head of a response as bytes, and the framing of its body (RFC 9112 §4, §6, §7).

use std::io::Write as _;

use ::http::StatusCode;
use ::http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRAILER, TRANSFER_ENCODING};
use ::http::response::Parts;
use anteroom_http::clock::unix_now;
use anteroom_http::{date, field_line, hop};
use bytes::Bytes;
use http_body::Body;
use hyper::ext::ReasonPhrase;

use super::queue::WriteQueue;
use crate::StoredResponse;

/// What a body's length is known to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyLength {
    None,
    Known(u64),
    Unknown,
}

impl BodyLength {
    pub(super) fn of(body: &impl Body) -> Self {
        if body.is_end_stream() {
            return Self::None;
        }
        body.size_hint().exact().map_or(Self::Unknown, Self::Known)
    }
}

/// How the client finds the end of a body.
#[derive(Debug)]
pub(super) enum Framing {
    /// So many bytes are left.
    Length(u64),
    /// Chunked, without trailers: a client that takes them is served by hyper.
    Chunked,
}

/// A response that can neither be framed nor sent.
#[derive(Debug, thiserror::Error)]
#[error("a response has an invalid Content-Length")]
pub(super) struct InvalidLength;

/// What was written of a response.
#[derive(Debug)]
pub(super) struct WrittenHead {
    pub(super) framing: Framing,
    /// Whether the connection closes after the response.
    pub(super) closes: bool,
}

/// Queues the head of a response; `is_to_head`: its request was a HEAD. `closes`: the connection closes after it.
///
/// # Errors
/// If the response's own `Content-Length` is not a number.
pub(super) fn encode_head(
    buffer: &mut Vec<u8>,
    parts: &Parts,
    is_to_head: bool,
    length: BodyLength,
    mut closes: bool,
) -> Result<WrittenHead, InvalidLength> {
    let may_have_length =
        !matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let may_have_body = may_have_length && !is_to_head;
    let body = match length {
        BodyLength::Unknown if parts.headers.contains_key(CONTENT_LENGTH) => {
            let stated = hop::content_length(&parts.headers).ok().flatten();
            BodyLength::Known(stated.ok_or(InvalidLength)?)
        }
        length => length,
    };
    let shown_length = match body {
        BodyLength::Known(length) if may_have_length => Some(length),
        BodyLength::None if may_have_body => Some(0),
        _ => None,
    };
    // Room for most fields without counting their lengths.
    buffer.reserve(64 + 48 * parts.headers.len());
    put_status(buffer, parts);
    let (mut has_length, mut has_date, mut has_connection) = (false, false, false);
    for (name, value) in &parts.headers {
        match *name {
            // The length of a page of which only the head is sent.
            CONTENT_LENGTH if is_to_head && body == BodyLength::None => {}
            CONTENT_LENGTH => {
                if let Some(length) = shown_length.filter(|_| !has_length) {
                    put_length(buffer, length);
                    has_length = true;
                }
                continue;
            }
            TRANSFER_ENCODING => continue,
            CONNECTION => {
                has_connection = true;
                if closes {
                    field_line::put(buffer, "connection", b"close");
                    continue;
                }
                closes = hop::connection_names(&parts.headers, "close");
            }
            DATE => has_date = true,
            TRAILER if !may_have_body => continue,
            _ => {}
        }
        field_line::put(buffer, name.as_str(), value.as_bytes());
    }
    if closes && !has_connection {
        field_line::put(buffer, "connection", b"close");
    }
    let framing = match body {
        BodyLength::Known(length) if may_have_body => Framing::Length(length),
        BodyLength::Unknown if may_have_body => {
            field_line::put(buffer, "transfer-encoding", b"chunked");
            Framing::Chunked
        }
        _ => Framing::Length(0),
    };
    if let Some(length) = shown_length.filter(|_| !has_length) {
        put_length(buffer, length);
    }
    if !has_date {
        put_date(buffer);
    }
    buffer.extend_from_slice(b"\r\n");
    Ok(WrittenHead { framing, closes })
}

/// Queues the head of a whole stored page. `closes`: the connection closes after it.
pub(super) fn encode_stored(
    buffer: &mut Vec<u8>,
    page: &StoredResponse,
    closes: bool,
) -> WrittenHead {
    let length = page.length();
    // PERF: one check of the capacity instead of some for each field.
    buffer.reserve(page.fields_max() + 128);
    buffer.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    let (has_length, has_date) = page.put_fields(buffer);
    if closes {
        field_line::put(buffer, "connection", b"close");
    }
    if !has_length {
        put_length(buffer, length);
    }
    if !has_date {
        put_date(buffer);
    }
    buffer.extend_from_slice(b"\r\n");
    WrittenHead { framing: Framing::Length(length), closes }
}

fn put_status(buffer: &mut Vec<u8>, parts: &Parts) {
    let reason = parts.extensions.get::<ReasonPhrase>();
    if parts.status == StatusCode::OK && reason.is_none() {
        buffer.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    let canonical = || parts.status.canonical_reason().unwrap_or("<none>").as_bytes();
    buffer.extend_from_slice(b"HTTP/1.1 ");
    buffer.extend_from_slice(parts.status.as_str().as_bytes());
    buffer.push(b' ');
    buffer.extend_from_slice(reason.map_or_else(canonical, ReasonPhrase::as_bytes));
    buffer.extend_from_slice(b"\r\n");
}

fn put_date(buffer: &mut Vec<u8>) {
    buffer.extend_from_slice(b"date: ");
    date::put(buffer, unix_now() as u64);
    buffer.extend_from_slice(b"\r\n");
}

fn put_length(buffer: &mut Vec<u8>, length: u64) {
    field_line::put(buffer, "content-length", itoa::Buffer::new().format(length).as_bytes());
}

impl Framing {
    /// Whether nothing is left to send.
    pub(super) fn is_ended(&self) -> bool {
        matches!(self, Self::Length(0))
    }

    /// Queues a part of the body. What is longer than was announced is left out.
    pub(super) fn put_data(&mut self, queue: &mut WriteQueue, mut part: Bytes) {
        match self {
            Self::Length(left) => {
                part.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= part.len() as u64;
                queue.push(part);
            }
            // A chunk of no bytes would end the body.
            Self::Chunked if part.is_empty() => {}
            Self::Chunked => {
                // Writing to a `Vec` cannot fail.
                let _ = write!(queue.buffer(), "{:X}\r\n", part.len());
                queue.push(part);
                queue.buffer().extend_from_slice(b"\r\n");
            }
        }
    }

    /// Queues the end of the body; false if the body is too short.
    pub(super) fn put_end(&self, queue: &mut WriteQueue) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked => {
                queue.buffer().extend_from_slice(b"0\r\n\r\n");
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use ::http::{HeaderMap, HeaderValue, Response};
    use http_body::{Frame, SizeHint};
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// A body of these parts; its length is announced, or not.
    #[derive(Clone, Debug)]
    struct PartedBody {
        parts: Vec<&'static str>,
        trailers: Option<HeaderMap>,
        is_announced: bool,
    }

    impl Body for PartedBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.parts.is_empty() {
                return Poll::Ready(self.trailers.take().map(|fields| Ok(Frame::trailers(fields))));
            }
            let part = self.parts.remove(0);
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(part.as_bytes())))))
        }

        fn is_end_stream(&self) -> bool {
            self.is_announced && self.parts.is_empty()
        }

        fn size_hint(&self) -> SizeHint {
            let length = self.parts.iter().map(|part| part.len() as u64).sum();
            if self.is_announced { SizeHint::with_exact(length) } else { SizeHint::default() }
        }
    }

    fn without_date(bytes: &[u8]) -> String {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let lines: Vec<_> = head.split("\r\n").filter(|line| !line.starts_with("date: ")).collect();
        assert_eq!(lines.len(), head.split("\r\n").count() - 1, "one date");
        format!("{}\r\n\r\n{body}", lines.join("\r\n"))
    }

    async fn directly(response: Response<PartedBody>, is_to_head: bool, closes: bool) -> String {
        let (parts, body) = response.into_parts();
        let (mut queue, length) = (WriteQueue::default(), BodyLength::of(&body));
        let begun = encode_head(queue.buffer(), &parts, is_to_head, length, closes).unwrap();
        let mut framing = begun.framing;
        for part in body.parts {
            framing.put_data(&mut queue, Bytes::from_static(part.as_bytes()));
        }
        assert!(framing.put_end(&mut queue));
        let mut written = std::io::Cursor::new(Vec::new());
        std::future::poll_fn(|cx| queue.poll_write(&mut written, cx)).await.unwrap();
        without_date(written.get_ref())
    }

    async fn by_hyper(response: Response<PartedBody>, is_to_head: bool, closes: bool) -> String {
        let service = service_fn(move |_| {
            let response = response.clone();
            async { Ok::<_, Infallible>(response) }
        });
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        let method = if is_to_head { "HEAD" } else { "GET" };
        let connection = if closes { "connection: close\r\n" } else { "" };
        let request = format!("{method} / HTTP/1.1\r\nhost: a\r\n{connection}\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let mut builder = http1::Builder::new();
        builder.half_close(true);
        let _ = builder.serve_connection(TokioIo::new(server), service).await;
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        without_date(&answer)
    }

    #[test]
    fn responses_are_written_as_by_hyper() {
        let statuses = [200, 204, 206, 301, 304, 404, 503, 599];
        let bodies =
            [(&[][..], true), (&["abc", "de"], true), (&["abc", "de"], false), (&[], false)];
        let fields = [
            &[][..],
            &[("set-cookie", "a=b"), ("x-a", "1"), ("set-cookie", "c=d"), ("server", "z")],
            &[("content-length", "5"), ("etag", "\"1\"")],
            &[("connection", "close")],
            &[("trailer", "x-a, etag"), ("trailer", "content-length")],
        ];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut compared = 0;
        for status in statuses {
            for (parts, is_announced) in bodies {
                for lines in fields {
                    for (is_to_head, closes) in
                        [(false, false), (false, true), (true, false), (true, true)]
                    {
                        let states_length =
                            lines.first().is_some_and(|line| line.0 == "content-length");
                        let is_sent = !is_to_head && ![204, 304].contains(&status);
                        if states_length
                            && (!is_sent || parts.is_empty())
                            && !(is_announced && is_to_head)
                        {
                            continue;
                        }
                        let is_empty = is_to_head || [204, 304].contains(&status);
                        let mut trailers = HeaderMap::new();
                        trailers.insert("x-a", HeaderValue::from_static("2"));
                        let body = PartedBody {
                            parts: if is_empty { Vec::new() } else { parts.to_vec() },
                            trailers: Some(trailers).filter(|_| !is_announced),
                            is_announced,
                        };
                        let mut response = Response::new(body);
                        *response.status_mut() = StatusCode::from_u16(status).unwrap();
                        for (name, value) in lines {
                            response.headers_mut().append(*name, HeaderValue::from_static(value));
                        }
                        let expected =
                            runtime.block_on(by_hyper(response.clone(), is_to_head, closes));
                        let expected = expected.replace(
                            "x-a, etag, content-length",
                            "x-a, etag\r\ntrailer: content-length",
                        );
                        let own = runtime.block_on(directly(response, is_to_head, closes));
                        assert_eq!(own, expected, "{status} {parts:?} {is_announced} {lines:?}");
                        compared += 1;
                    }
                }
            }
        }
        assert!(compared > 500, "{compared}");
    }

    #[test]
    fn a_length_that_is_no_number_is_an_error() {
        let (mut parts, ()) = Response::new(()).into_parts();
        for (value, is_valid) in [("5", true), ("-5", false), ("5, 5", false)] {
            parts.headers.insert(CONTENT_LENGTH, HeaderValue::from_static(value));
            let begun = encode_head(&mut Vec::new(), &parts, false, BodyLength::Unknown, false);
            assert_eq!(begun.is_ok(), is_valid, "{value}");
        }
    }

    #[test]
    fn a_body_is_sent_to_its_length() {
        for (parts, expected) in
            [(&["ab", "cd"][..], Some("abc")), (&["ab"], None), (&["abc", ""], Some("abc"))]
        {
            let (mut queue, mut framing) = (WriteQueue::default(), Framing::Length(3));
            for part in parts {
                framing.put_data(&mut queue, Bytes::from_static(part.as_bytes()));
            }
            let is_whole = framing.put_end(&mut queue);
            assert_eq!(is_whole, expected.is_some());
            assert!(expected.is_none_or(|expected| queue.buffer() == expected.as_bytes()));
        }
    }
}
