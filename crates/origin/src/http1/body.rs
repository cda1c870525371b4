//! The body of a response from bytes (RFC 9112 §6, §7).

use ::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::{Buf, Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use memchr::{memchr, memchr_iter};

/// The most bytes of the line with a chunk's size, and of all extensions and trailers of a body together.
/// Extensions are not passed on.
const LINE_MAX: usize = 4 * 1024;
const UNUSED_MAX: usize = 16 * 1024;
/// The most trailer fields, as in hyper.
const TRAILERS_MAX: usize = 100;
/// How much is asked for where the length is unknown.
const UNKNOWN: usize = 16 * 1024;

/// Reads one body.
#[derive(Debug)]
pub(crate) enum BodyDecoder {
    /// So many bytes are to come.
    Length(u64),
    /// The chunked transfer coding.
    Chunked(ChunkedBody),
    /// It ends with the connection.
    Close,
    /// It has ended.
    Ended,
}

/// The state of a chunked body.
#[derive(Debug)]
pub(crate) struct ChunkedBody {
    next: NextPart,
    /// How many bytes that are not passed on may still come.
    unused_left: usize,
}

/// What comes next in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextPart {
    Size,
    Data(u64),
    DataEnd,
    Trailers,
}

/// What was read.
#[derive(Debug)]
pub(super) enum DecodeResult {
    Frame(Frame<Bytes>),
    End,
    /// More must arrive: about so many bytes.
    Missing(usize),
}

impl BodyDecoder {
    pub(crate) fn of_length(length: u64) -> Self {
        if length == 0 { Self::Ended } else { Self::Length(length) }
    }

    pub(crate) fn chunked() -> Self {
        Self::Chunked(ChunkedBody { next: NextPart::Size, unused_left: UNUSED_MAX })
    }

    pub(crate) fn is_ended(&self) -> bool {
        matches!(self, Self::Ended)
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Length(left) => SizeHint::with_exact(*left),
            Self::Ended => SizeHint::with_exact(0),
            Self::Chunked(_) | Self::Close => SizeHint::default(),
        }
    }

    /// The connection has ended; whether the body ends with it.
    pub(super) fn ends_with_connection(&mut self) -> bool {
        let is_end = matches!(self, Self::Close);
        if is_end {
            *self = Self::Ended;
        }
        is_end
    }

    /// Takes the next part from what was read.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn decode(&mut self, read: &mut BytesMut) -> Result<DecodeResult, &'static str> {
        match self {
            Self::Ended => Ok(DecodeResult::End),
            Self::Length(left) => {
                let Some(part) = take(read, *left) else {
                    return Ok(DecodeResult::Missing(usize::try_from(*left).unwrap_or(usize::MAX)));
                };
                *self = Self::of_length(*left - part.len() as u64);
                Ok(DecodeResult::Frame(Frame::data(part)))
            }
            Self::Close => Ok(match take(read, u64::MAX) {
                Some(part) => DecodeResult::Frame(Frame::data(part)),
                None => DecodeResult::Missing(UNKNOWN),
            }),
            Self::Chunked(chunked) => {
                let decoded = chunked.decode(read)?;
                if chunked.next == NextPart::Trailers
                    && !matches!(decoded, DecodeResult::Missing(_))
                {
                    *self = Self::Ended;
                }
                Ok(decoded)
            }
        }
    }
}

impl ChunkedBody {
    fn decode(&mut self, read: &mut BytesMut) -> Result<DecodeResult, &'static str> {
        loop {
            match self.next {
                NextPart::Size => {
                    let Some(line) = line(read)? else { return Ok(DecodeResult::Missing(0)) };
                    let (size, used) = chunk_size(line)?;
                    let (length, unused) = (line.len(), line.len() - used);
                    self.unused_left =
                        self.unused_left.checked_sub(unused).ok_or("too many extensions")?;
                    read.advance(length + 2);
                    self.next = if size == 0 { NextPart::Trailers } else { NextPart::Data(size) };
                }
                NextPart::Data(left) => {
                    let Some(part) = take(read, left) else {
                        return Ok(DecodeResult::Missing(
                            usize::try_from(left).unwrap_or(usize::MAX),
                        ));
                    };
                    let left = left - part.len() as u64;
                    self.next = if left == 0 { NextPart::DataEnd } else { NextPart::Data(left) };
                    return Ok(DecodeResult::Frame(Frame::data(part)));
                }
                NextPart::DataEnd => match read[..] {
                    [b'\r', b'\n', ..] => {
                        read.advance(2);
                        self.next = NextPart::Size;
                    }
                    [] | [b'\r'] => return Ok(DecodeResult::Missing(0)),
                    _ => return Err("more data than its chunk has"),
                },
                NextPart::Trailers => return trailers(read, self.unused_left),
            }
        }
    }
}

/// At most `max` bytes of what was read; `None`: nothing was.
fn take(read: &mut BytesMut, max: u64) -> Option<Bytes> {
    if read.is_empty() {
        return None;
    }
    let length = usize::try_from(max).unwrap_or(usize::MAX).min(read.len());
    Some(read.split_to(length).freeze())
}

/// A line without its end; `None`: it is not complete.
fn line(read: &[u8]) -> Result<Option<&[u8]>, &'static str> {
    match memchr(b'\n', &read[..read.len().min(LINE_MAX)]) {
        // SECURITY: a line feed alone would be data to other parsers (RFC 9112 §7.1.1).
        Some(end) => read[..end].strip_suffix(b"\r").map(Some).ok_or("a line feed without CR"),
        None if read.len() >= LINE_MAX => Err("too long a chunk size"),
        None => Ok(None),
    }
}

/// The size in the line of a chunk, and how many bytes of the line it takes.
fn chunk_size(line: &[u8]) -> Result<(u64, usize), &'static str> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let blanks = line[digits..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let rest = &line[digits + blanks..];
    // SECURITY: a CR within an extension may be the end of the line to other parsers.
    if digits == 0 || !(rest.is_empty() || rest[0] == b';') || rest.contains(&b'\r') {
        return Err("chunk size");
    }
    let text = std::str::from_utf8(&line[..digits]).map_err(|_| "chunk size")?;
    let size = u64::from_str_radix(text, 16).map_err(|_| "too large a chunk size")?;
    Ok((size, digits))
}

/// The trailer section: fields, or just an empty line.
fn trailers(read: &mut BytesMut, max: usize) -> Result<DecodeResult, &'static str> {
    match read[..] {
        [b'\r', b'\n', ..] => {
            read.advance(2);
            return Ok(DecodeResult::End);
        }
        [] | [b'\r'] => return Ok(DecodeResult::Missing(0)),
        _ => {}
    }
    let mut fields = [httparse::EMPTY_HEADER; TRAILERS_MAX];
    let section = &read[..read.len().min(max)];
    let (length, trailers) = match httparse::parse_headers(section, &mut fields) {
        Ok(httparse::Status::Complete((length, fields))) => (length, fields_of(fields)?),
        Ok(httparse::Status::Partial) if read.len() < max => return Ok(DecodeResult::Missing(0)),
        Ok(httparse::Status::Partial) => return Err("too many trailers"),
        Err(_) => return Err("trailers"),
    };
    // SECURITY: other parsers take a line feed alone for no end of a line.
    let mut ends = memchr_iter(b'\n', &read[..length]);
    if ends.any(|end| end == 0 || read[end - 1] != b'\r') {
        return Err("a line feed without CR");
    }
    read.advance(length);
    Ok(DecodeResult::Frame(Frame::trailers(trailers)))
}

fn fields_of(fields: &[httparse::Header<'_>]) -> Result<HeaderMap, &'static str> {
    let mut headers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| "trailer name")?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| "trailer value")?;
        headers.append(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The data of a body, its trailers, and what follows it.
    type WholeBody = (Vec<u8>, Option<HeaderMap>, Vec<u8>);

    /// All of a body that arrives in these parts.
    fn read_all(mut decoder: BodyDecoder, parts: &[&[u8]]) -> Result<WholeBody, &'static str> {
        let (mut data, mut trailers, mut read) = (Vec::new(), None, BytesMut::new());
        let mut parts = parts.iter();
        loop {
            match decoder.decode(&mut read)? {
                DecodeResult::End => return Ok((data, trailers, read.to_vec())),
                DecodeResult::Frame(frame) => match frame.into_data() {
                    Ok(part) => data.extend_from_slice(&part),
                    Err(frame) => trailers = frame.into_trailers().ok(),
                },
                DecodeResult::Missing(_) => match parts.next() {
                    Some(part) => read.extend_from_slice(part),
                    None if decoder.ends_with_connection() => {}
                    None => return Err("incomplete"),
                },
            }
        }
    }

    fn chunked(text: &str) -> Result<WholeBody, &'static str> {
        read_all(BodyDecoder::chunked(), &[text.as_bytes()])
    }

    #[test]
    fn a_length_counts_and_the_rest_is_left() {
        let (data, _, rest) = read_all(BodyDecoder::of_length(5), &[b"abc", b"defg"]).unwrap();
        assert_eq!((&data[..], &rest[..]), (&b"abcde"[..], &b"fg"[..]));
        assert!(BodyDecoder::of_length(0).is_ended());
        assert_eq!(read_all(BodyDecoder::of_length(5), &[b"abc"]), Err("incomplete"));
    }

    #[test]
    fn a_body_may_end_with_the_connection() {
        let (data, ..) = read_all(BodyDecoder::Close, &[b"abc", b"de"]).unwrap();
        assert_eq!(data, b"abcde");
    }

    #[test]
    fn chunks_are_joined_and_extensions_dropped() {
        for text in [
            "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nnext",
            "03;a=b\r\nabc\r\n2 ; x=\"y\"\r\nde\r\n000\r\n\r\nnext",
            "3\t\r\nabc\r\n2;\r\nde\r\n0;z\r\n\r\nnext",
        ] {
            let (data, trailers, rest) = chunked(text).unwrap();
            assert_eq!((&data[..], trailers, &rest[..]), (&b"abcde"[..], None, &b"next"[..]));
        }
        let (_, trailers, rest) = chunked("0\r\nA: 1\r\nb: 2\r\n\r\nnext").unwrap();
        assert_eq!((trailers.unwrap().len(), &rest[..]), (2, &b"next"[..]));
    }

    #[test]
    fn chunks_that_could_be_read_in_two_ways_are_refused() {
        for text in [
            "\r\n0\r\n\r\n",
            " 3\r\nabc\r\n0\r\n\r\n",
            "3\nabc\r\n0\r\n\r\n",
            "3;a\nabc\r\n0\r\n\r\n",
            "3;a\rb\r\nabc\r\n0\r\n\r\n",
            "3\r;a\r\nabc\r\n0\r\n\r\n",
            "3\x0c\r\nabc\r\n0\r\n\r\n",
            "3\rabc\r\n0\r\n\r\n",
            "3 4\r\nabc\r\n0\r\n\r\n",
            "+3\r\nabc\r\n0\r\n\r\n",
            "0x3\r\nabc\r\n0\r\n\r\n",
            "-1\r\nabc\r\n0\r\n\r\n",
            "g\r\nabc\r\n0\r\n\r\n",
            "10000000000000000\r\nabc\r\n0\r\n\r\n",
            "3\r\nabcd\r\n0\r\n\r\n",
            "3\r\nabc\n0\r\n\r\n",
            "3\r\nabc0\r\n\r\n",
            "0\r\nno colon\r\n\r\n",
            "0\r\na : 1\r\n\r\n",
            "0\r\n folded\r\n\r\n",
            "0\r\na: 1\n\r\n",
            "0\r\na: 1\r\n\n",
            "0\r\n",
            "3\r\nabc\r\n",
        ] {
            assert!(chunked(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_is_not_passed_on_is_bounded() {
        let long = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(LINE_MAX));
        assert!(chunked(&long).is_err());
        let extended = format!("1;{}\r\na\r\n", "x".repeat(LINE_MAX / 2));
        assert!(chunked(&(extended.repeat(4) + "0\r\n\r\n")).is_ok());
        assert!(chunked(&(extended.repeat(9) + "0\r\n\r\n")).is_err());
        let trailers = format!("0\r\na: {}\r\n\r\n", "x".repeat(UNUSED_MAX));
        assert!(chunked(&trailers).is_err());
        let many = format!("0\r\n{}\r\n", "a: 1\r\n".repeat(TRAILERS_MAX + 1));
        assert!(chunked(&many).is_err());
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_a_body_arrives(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
            ends_at in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let mut wire = Vec::new();
            for chunk in &chunks {
                wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                wire.extend_from_slice(chunk);
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(b"0\r\n\r\nnext");
            let mut ends: Vec<usize> = ends_at.iter().map(|end| end.index(wire.len())).collect();
            ends.extend([0, wire.len()]);
            ends.sort_unstable();
            let parts: Vec<&[u8]> = ends.windows(2).map(|pair| &wire[pair[0]..pair[1]]).collect();
            let (data, trailers, mut rest) = read_all(BodyDecoder::chunked(), &parts).unwrap();
            // What follows may not have been read.
            rest.extend_from_slice(&b"next"[rest.len()..]);
            prop_assert_eq!((data, trailers, rest), (chunks.concat(), None, b"next".to_vec()));
        }
    }
}
