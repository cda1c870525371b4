//! The part of a text that is looked at, where the text comes in pieces.

use std::io::{self, Read};

use memchr::memchr3_iter;

/// How much is read and looked at at a time, in bytes.
pub(in crate::cache) const PIECE: usize = 16 * 1_024;

/// So much of what was looked at stays in sight: the longest text that is looked for, 64 bytes, with
/// every byte of it and of its surroundings written as the longest escape.
const KEPT: usize = 2_048;

/// A part of a text, in ASCII's lower case: the last piece, and the end of what came before.
#[derive(Default)]
pub(in crate::cache) struct Window {
    bytes: Vec<u8>,
    /// Where escapes begin, but for references by name.
    escapes: Vec<usize>,
    is_cut: bool,
}

impl Window {
    /// The next piece of the text. The pieces before it are dropped but for [`KEPT`] bytes.
    #[cfg(test)]
    pub(in crate::cache) fn add(&mut self, mut piece: &[u8]) {
        let length = piece.len();
        // Never fails: the piece is in memory.
        self.read(&mut piece, length).unwrap();
    }

    /// Reads the next piece, of `most` bytes, or what is left of the text. Returns its length: one that is shorter
    /// is the last. The pieces before it are dropped but for [`KEPT`] bytes.
    ///
    /// # Errors
    /// What the text says.
    pub(in crate::cache) fn read(
        &mut self,
        text: &mut impl Read,
        most: usize,
    ) -> io::Result<usize> {
        let gone = whole_escapes(&self.bytes, self.bytes.len().saturating_sub(KEPT));
        self.bytes.drain(..gone);
        self.is_cut |= gone > 0;
        let from = self.bytes.len();
        self.bytes.reserve(most);
        let length = text.take(most as u64).read_to_end(&mut self.bytes)?;
        self.bytes[from..].make_ascii_lowercase();
        self.find_escapes();
        Ok(length)
    }

    /// Begins another text, and has it in sight whole.
    pub(in crate::cache) fn show(&mut self, text: &[u8]) {
        self.bytes.clear();
        self.is_cut = false;
        self.bytes.extend_from_slice(text);
        self.bytes.make_ascii_lowercase();
        self.find_escapes();
    }

    /// PERF: of a page with many references by name these are few, and one pass finds them for all who look.
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

    /// Where `&#`, `%` and `\` stand in what is in sight.
    pub(in crate::cache) fn escapes(&self) -> &[usize] {
        &self.escapes
    }

    /// What is in sight.
    pub(in crate::cache) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether there was something before. What stands near to the start was looked at with an earlier
    /// piece then.
    pub(in crate::cache) fn is_cut(&self) -> bool {
        self.is_cut
    }
}

/// `end`, or one more, so that a run of backslashes is not cut between one and what it escapes.
fn whole_escapes(bytes: &[u8], end: usize) -> usize {
    let run = bytes[..end].iter().rev().take_while(|byte| **byte == b'\\').count();
    end + run % 2
}
