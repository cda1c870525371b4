//! The part of a text that is looked at, where the text comes in pieces.

/// So much of what was looked at stays in sight: the longest text that is looked for, 64 bytes, with
/// every byte of it and of its surroundings written as the longest escape.
const KEPT: usize = 2_048;

/// A part of a text, in ASCII's lower case: the last piece, and the end of what came before.
#[derive(Default)]
pub(super) struct Window {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Window {
    /// The next piece of the text. The pieces before it are dropped but for [`KEPT`] bytes.
    pub(super) fn add(&mut self, piece: &[u8]) {
        let gone = whole_escapes(&self.bytes, self.bytes.len().saturating_sub(KEPT));
        self.bytes.drain(..gone);
        self.is_cut |= gone > 0;
        let from = self.bytes.len();
        self.bytes.extend_from_slice(piece);
        self.bytes[from..].make_ascii_lowercase();
    }

    /// Begins another text.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.is_cut = false;
    }

    /// What is in sight.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether there was something before. What stands near to the start was looked at with an earlier
    /// piece then.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }
}

/// `end`, or one more, so that a run of backslashes is not cut between one and what it escapes.
fn whole_escapes(bytes: &[u8], end: usize) -> usize {
    let run = bytes[..end].iter().rev().take_while(|byte| **byte == b'\\').count();
    end + run % 2
}
