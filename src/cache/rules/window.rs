//! A window on a text that comes in pieces.

use std::io::{self, Read};

use memchr::memchr3_iter;

/// How much is read and searched at a time, in bytes.
pub(in crate::cache) const PIECE: usize = 16 * 1_024;

/// How much of the searched text stays in the window: the longest text that is looked for, 64 bytes, with
/// each of its bytes and of its context written as the longest escape.
const KEPT: usize = 2_048;

/// A part of a text, in ASCII lower case: the last piece, and the end of the text before it.
#[derive(Default)]
pub(in crate::cache) struct Window {
    bytes: Vec<u8>,
    /// The positions where escapes begin, except named references.
    escapes: Vec<usize>,
    is_cut: bool,
}

impl Window {
    /// Adds the next piece of the text. Earlier pieces are dropped except for [`KEPT`] bytes.
    #[cfg(test)]
    pub(in crate::cache) fn add(&mut self, mut piece: &[u8]) {
        let length = piece.len();
        // Never fails: the piece is in memory.
        self.read(&mut piece, length).unwrap();
    }

    /// Reads the next piece, of at most `most` bytes. Returns its length: a shorter piece is the last.
    /// Earlier pieces are dropped except for [`KEPT`] bytes.
    ///
    /// # Errors
    /// The read errors of the text.
    pub(in crate::cache) fn read(
        &mut self,
        text: &mut impl Read,
        most: usize,
    ) -> io::Result<usize> {
        let gone = whole_escapes(&self.bytes, self.bytes.len().saturating_sub(KEPT));
        self.bytes.drain(..gone);
        self.is_cut |= gone > 0;
        let from = self.bytes.len();
        // PERF: `read_to_end` zeroes the room for each of its reads.
        self.bytes.resize(from + most, 0);
        let read = read_full(text, &mut self.bytes[from..]);
        self.bytes.truncate(from + read.as_ref().map_or(0, |length| *length));
        let length = read?;
        self.bytes[from..].make_ascii_lowercase();
        self.find_escapes();
        Ok(length)
    }

    /// Starts another text, which is in the window as a whole.
    pub(in crate::cache) fn show(&mut self, text: &[u8]) {
        self.bytes.clear();
        self.is_cut = false;
        self.bytes.extend_from_slice(text);
        self.bytes.make_ascii_lowercase();
        self.find_escapes();
    }

    /// PERF: these escapes are few even on a page with many named references, so one pass finds them for all
    /// users of the window.
    fn find_escapes(&mut self) {
        self.escapes.clear();
        let bytes = &self.bytes;
        self.escapes.extend(memchr3_iter(b'#', b'%', b'\\', bytes).filter_map(|at| {
            match bytes[at] {
                b'#' => at.checked_sub(1).filter(|before| bytes[*before] == b'&'),
                _ => Some(at),
            }
        }));
    }

    /// The positions of `&#`, `%` and `\` in the window.
    pub(in crate::cache) fn escapes(&self) -> &[usize] {
        &self.escapes
    }

    /// The bytes in the window.
    pub(in crate::cache) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether there was text before the window. The bytes near its start were then searched with an earlier
    /// piece.
    pub(in crate::cache) fn is_cut(&self) -> bool {
        self.is_cut
    }
}

/// Fills `room`, or reads to the end of the text. Returns how much was read.
fn read_full(text: &mut impl Read, room: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < room.len() {
        match text.read(&mut room[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// `end`, or one more, so that a run of backslashes is not cut between a backslash and what it escapes.
fn whole_escapes(bytes: &[u8], end: usize) -> usize {
    let run = bytes[..end].iter().rev().take_while(|byte| **byte == b'\\').count();
    end + run % 2
}
