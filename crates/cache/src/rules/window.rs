//! A window on a text that comes in pieces.

use std::io::{self, BufRead};

use memchr::memchr3_iter;

/// How much is read and searched at a time, in bytes.
pub(crate) const PIECE: usize = 16 * 1_024;

/// How much of the searched text stays in the window: the longest text that is looked for, 64 bytes, with
/// each of its bytes and of its context written as the longest escape.
const KEPT: usize = 2_048;

/// A part of a text, in ASCII lower case: the last piece, and the end of the text before it.
#[derive(Default)]
pub(crate) struct Window {
    bytes: Vec<u8>,
    /// The positions where escapes begin, except named references.
    escapes: Vec<usize>,
    is_cut: bool,
}

impl Window {
    /// Adds the next piece of the text. Earlier pieces are dropped except for [`KEPT`] bytes.
    #[cfg(test)]
    pub(crate) fn add(&mut self, mut piece: &[u8]) {
        let length = piece.len();
        // Never fails: the piece is in memory.
        self.read(&mut piece, length).unwrap();
    }

    /// Reads the next piece, of at most `most` bytes. Returns its length: a shorter piece is the last.
    /// Earlier pieces are dropped except for [`KEPT`] bytes.
    ///
    /// # Errors
    /// The read errors of the text.
    pub(crate) fn read(&mut self, text: &mut impl BufRead, most: usize) -> io::Result<usize> {
        let gone = whole_escapes(&self.bytes, self.bytes.len().saturating_sub(KEPT));
        self.bytes.drain(..gone);
        self.is_cut |= gone > 0;
        let from = self.bytes.len();
        let length = append(&mut self.bytes, text, most)?;
        self.bytes[from..].make_ascii_lowercase();
        self.find_escapes();
        Ok(length)
    }

    /// Starts another text, which is in the window as a whole.
    pub(crate) fn show(&mut self, text: &[u8]) {
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
    pub(crate) fn escapes(&self) -> &[usize] {
        &self.escapes
    }

    /// The bytes in the window.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether there was text before the window. The bytes near its start were then searched with an earlier
    /// piece.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }
}

/// Appends the next bytes of a text, at most so many. Returns how many.
///
/// PERF: `Read::read_to_end` would zero the room for each of its reads.
fn append(bytes: &mut Vec<u8>, text: &mut impl BufRead, most: usize) -> io::Result<usize> {
    let mut length = 0;
    while length < most {
        let part = match text.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            part => part?,
        };
        if part.is_empty() {
            break;
        }
        let taken = part.len().min(most - length);
        bytes.extend_from_slice(&part[..taken]);
        text.consume(taken);
        length += taken;
    }
    Ok(length)
}

/// `end`, or one more, so that a run of backslashes is not cut between a backslash and what it escapes.
fn whole_escapes(bytes: &[u8], end: usize) -> usize {
    let run = bytes[..end].iter().rev().take_while(|byte| **byte == b'\\').count();
    end + run % 2
}
