//! HTTP/1.1 as bytes on a blocking socket, read leniently: the origin and the client of the cases
//! both stand on it.
//!
//! Not a library on purpose: the cases must be able to say and to see malformed things.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// How much of a body is kept; the rest is counted only.
const KEPT: usize = 1 << 20;

/// Header or trailer lines, in order, names as they came.
#[derive(Clone, Debug, Default)]
pub struct Fields(Vec<(String, String)>);

impl Fields {
    /// The value of the first line of that name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The values of all lines of that name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.iter().filter(move |(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, v)| v)
    }

    /// All lines.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// A first line and the fields behind it.
#[derive(Clone, Debug)]
pub struct Head {
    pub first: String,
    pub fields: Fields,
}

/// What a body's end is known by.
#[derive(Clone, Copy, Debug)]
pub enum Framing {
    Nothing,
    Length(u64),
    Chunked,
    UntilClose,
}

impl Framing {
    /// What the fields of a message say, `or` when they are silent.
    pub fn of(fields: &Fields, or: Self) -> Self {
        if fields.get("transfer-encoding").is_some() {
            return Self::Chunked;
        }
        fields.get("content-length").map_or(or, |n| n.parse().map_or(or, Self::Length))
    }
}

/// A body as it came.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// Its first bytes, at most 1 MiB.
    pub bytes: Vec<u8>,
    /// How many bytes came in all.
    pub length: u64,
    pub trailers: Fields,
    /// Whether it arrived up to its end.
    pub whole: bool,
}

impl Write for Body {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = KEPT.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.length += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct Wire(BufReader<TcpStream>);

impl Wire {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self::over(stream)
    }

    /// The same, for a socket that need not be TCP.
    pub fn over(stream: TcpStream) -> Self {
        Self(BufReader::with_capacity(64 << 10, stream))
    }

    /// The socket, to write to.
    pub fn socket(&mut self) -> &mut TcpStream {
        self.0.get_mut()
    }

    /// The next byte.
    pub fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.0.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    /// The next head; `None` when the other side closed before its first byte.
    pub fn head(&mut self) -> io::Result<Option<Head>> {
        let Some(first) = self.line()? else { return Ok(None) };
        Ok(Some(Head { first, fields: self.fields()? }))
    }

    /// A body, as far as it came.
    pub fn body(&mut self, framing: Framing) -> Body {
        let mut body = Body::default();
        let read = match framing {
            Framing::Nothing => Ok(()),
            Framing::Length(length) => self.exactly(length, &mut body),
            Framing::Chunked => self.chunks(&mut body),
            Framing::UntilClose => io::copy(&mut self.0, &mut body).map(|_| ()),
        };
        body.whole = read.is_ok();
        body
    }

    fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line)?;
        match line.last() {
            None => Ok(None),
            Some(b'\n') => Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned())),
            Some(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn fields(&mut self) -> io::Result<Fields> {
        let mut fields = Fields::default();
        loop {
            let line = self.line()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if line.is_empty() {
                return Ok(fields);
            }
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            fields.0.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    fn exactly(&mut self, length: u64, body: &mut Body) -> io::Result<()> {
        let copied = io::copy(&mut self.0.by_ref().take(length), body)?;
        if copied == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn chunks(&mut self, body: &mut Body) -> io::Result<()> {
        loop {
            let line = self.line()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let size = u64::from_str_radix(line.split(';').next().unwrap_or(""), 16)
                .map_err(|_| io::ErrorKind::InvalidData)?;
            if size == 0 {
                body.trailers = self.fields()?;
                return Ok(());
            }
            self.exactly(size, body)?;
            self.line()?;
        }
    }
}
