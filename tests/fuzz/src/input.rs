//! What the targets make of the fuzzer's bytes.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The most lines of a header: more tell nothing new.
const LINES_MAX: usize = 64;

/// A part of the input, taken off its front.
pub(crate) struct Input<'d>(pub(crate) &'d [u8]);

impl<'d> Input<'d> {
    /// The next byte; 0 where there is none.
    pub(crate) fn byte(&mut self) -> u8 {
        let (byte, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *byte
    }

    /// The next eight bytes as a number below `end`.
    pub(crate) fn number(&mut self, end: u64) -> u64 {
        (0..8).fold(0_u64, |sum, _| sum << 8 | u64::from(self.byte())) % end
    }

    /// What stands before the next empty line, which goes, too.
    pub(crate) fn block(&mut self) -> &'d [u8] {
        let end = self.0.windows(2).position(|pair| pair == b"\n\n");
        let (block, rest) = end.map_or((self.0, &[][..]), |at| (&self.0[..at], &self.0[at + 2..]));
        self.0 = rest;
        block
    }

    /// The next line.
    pub(crate) fn line(&mut self) -> &'d [u8] {
        let end = self.0.iter().position(|byte| *byte == b'\n');
        let (line, rest) = end.map_or((self.0, &[][..]), |at| (&self.0[..at], &self.0[at + 1..]));
        self.0 = rest;
        line
    }
}

fn lines(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    data.split(|byte| *byte == b'\n').take(LINES_MAX)
}

/// The lines as values of one field. What no value can be is left out.
pub(crate) fn values(name: &HeaderName, data: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for value in lines(data).filter_map(|line| HeaderValue::from_bytes(line).ok()) {
        headers.append(name.clone(), value);
    }
    headers
}

/// The lines as fields, `name: value`. What is none is left out.
pub(crate) fn fields(data: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines(data) {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            headers.append(name, value);
        }
    }
    headers
}

/// The same fields in capitals, values alone.
pub(crate) fn in_capitals(headers: &HeaderMap) -> HeaderMap {
    let mut capitals = HeaderMap::new();
    for (name, value) in headers {
        let value = HeaderValue::from_bytes(&value.as_bytes().to_ascii_uppercase()).unwrap();
        capitals.append(name.clone(), value);
    }
    capitals
}

/// The lines of a field.
pub(crate) fn lines_of(headers: &HeaderMap, name: impl http::header::AsHeaderName) -> Vec<&[u8]> {
    headers.get_all(name).iter().map(HeaderValue::as_bytes).collect()
}

/// All lines of a field as one.
pub(crate) fn joined(headers: &HeaderMap, name: &HeaderName) -> HeaderMap {
    let line = lines_of(headers, name).join(&b", "[..]);
    values(name, &line)
}

/// With one line more.
pub(crate) fn with(headers: &HeaderMap, name: &HeaderName, line: &'static str) -> HeaderMap {
    let mut headers = headers.clone();
    headers.append(name.clone(), HeaderValue::from_static(line));
    headers
}
