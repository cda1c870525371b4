//! A visitor's end of HTTP/2, frame by frame: what no client library would send can be sent here.

use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::DEADLINE;

/// With what a connection begins (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frames by their numbers (RFC 9113 §6).
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags; what they mean depends on the frame.
pub mod flag {
    pub const END_STREAM: u8 = 0x1;
    pub const ACK: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
    /// A whole request without a body.
    pub const WHOLE: u8 = END_STREAM | END_HEADERS;
}

/// Why a stream or a connection ended (RFC 9113 §7).
pub mod code {
    pub const NONE: u32 = 0;
    pub const PROTOCOL: u32 = 1;
    pub const FLOW_CONTROL: u32 = 3;
    pub const STREAM_CLOSED: u32 = 5;
    pub const FRAME_SIZE: u32 = 6;
    pub const REFUSED: u32 = 7;
    pub const CANCEL: u32 = 8;
    pub const CALM: u32 = 11;
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A block of fields, none of them compressed (RFC 7541 §6.2.2).
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            length(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// RFC 7541 §5.1, with a prefix of seven bits.
fn length(block: &mut Vec<u8>, length: usize) {
    let Some(mut more) = length.checked_sub(127) else {
        return block.push(u8::try_from(length).unwrap());
    };
    block.push(127);
    while more >= 128 {
        block.push(u8::try_from(more % 128).unwrap() | 128);
        more /= 128;
    }
    block.push(u8::try_from(more).unwrap());
}

/// A request for `path` with more fields.
pub fn request<'a>(path: &'a str, more: &[(&'a str, &'a str)]) -> Vec<u8> {
    let usual =
        [(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "shop.test")];
    block(&[&usual[..], more].concat())
}

/// The frame of a GET of `path` on `stream`.
pub fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(kind::HEADERS, flag::WHOLE, stream, &request(path, &[]))
}

/// A frame that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// The error code of a RST_STREAM or GOAWAY.
    pub fn code(&self) -> u32 {
        let at = if self.kind == kind::GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }

    pub fn ends_stream(&self) -> bool {
        matches!(self.kind, kind::DATA | kind::HEADERS) && self.flags & flag::END_STREAM != 0
    }
}

/// What became of something that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The head of a response came on that stream.
    Answered(u32),
    /// The stream was reset, for this reason.
    Reset(u32, u32),
    /// The connection ends, for this reason.
    GoAway(u32),
    /// It was closed without a word.
    Closed,
    /// A PING was answered: nothing became of it.
    Pong,
}

/// A connection.
pub struct Frames(BufReader<TcpStream>);

impl Frames {
    /// One on which nothing was said yet.
    pub fn silent(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, DEADLINE).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        Self(BufReader::new(stream))
    }

    /// One that has begun, with these settings of ours.
    pub fn with_settings(address: SocketAddr, settings: &[(u16, u32)]) -> Self {
        let mut frames = Self::silent(address);
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        frames.send(&[PREFACE, &frame(kind::SETTINGS, 0, 0, &payload)].concat());
        frames
    }

    /// One that has begun.
    pub fn open(address: SocketAddr) -> Self {
        Self::with_settings(address, &[])
    }

    /// Sends exactly these bytes; false where the other side has closed.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.get_mut().write_all(bytes).is_ok()
    }

    /// The next frame; `None` when the connection has ended. A PING is answered.
    pub fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.fill(&mut head)?;
        let [high, middle, low, kind, flags, stream @ ..] = head;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        let mut payload = vec![0; length];
        self.fill(&mut payload)?;
        let stream = u32::from_be_bytes(stream) & !(1 << 31);
        if kind == kind::PING && flags & flag::ACK == 0 {
            self.send(&frame(kind::PING, flag::ACK, 0, &payload));
        }
        Some(Frame { kind, flags, stream, payload })
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Option<()> {
        match self.0.read_exact(bytes) {
            Ok(()) => Some(()),
            Err(error) => {
                let kind = error.kind();
                let late = matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut);
                assert!(!late, "neither a frame nor the end within the deadline");
                None
            }
        }
    }

    /// What comes first of all that can become of a request, or of a frame that makes no sense.
    pub fn outcome(&mut self) -> Outcome {
        loop {
            let Some(frame) = self.next() else { return Outcome::Closed };
            match frame.kind {
                kind::HEADERS => return Outcome::Answered(frame.stream),
                kind::RST_STREAM => return Outcome::Reset(frame.stream, frame.code()),
                kind::GOAWAY => return Outcome::GoAway(frame.code()),
                kind::PING if frame.flags & flag::ACK != 0 => return Outcome::Pong,
                _ => {}
            }
        }
    }

    /// What ends the connection, within the deadline: the last reason given, or none.
    pub fn end(&mut self) -> Outcome {
        let mut end = Outcome::Closed;
        while let Some(frame) = self.next() {
            if frame.kind == kind::GOAWAY {
                end = Outcome::GoAway(frame.code());
            }
        }
        end
    }

    /// Reads what is no frame, to the end of the connection.
    pub fn end_of_bytes(&mut self) {
        let mut rest = [0; 1_024];
        while self.0.read(&mut rest).is_ok_and(|read| read > 0) {}
    }

    /// Whether a GET of `path` on `stream` is answered to its end.
    pub fn is_served(&mut self, stream: u32, path: &str) -> bool {
        self.send(&get(stream, path));
        while let Some(frame) = self.next() {
            if frame.stream == stream {
                if frame.ends_stream() {
                    return true;
                }
                if frame.kind == kind::RST_STREAM {
                    return false;
                }
            }
        }
        false
    }
}
