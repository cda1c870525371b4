//! The end of an HTTP/1.1 head in a buffer that fills in parts (RFC 9112 §2.1).

use memchr::memchr;

/// Finds the end of a head without looking at a byte twice.
#[derive(Debug, Default)]
pub struct HeadScanner {
    /// Up to here the buffer holds no end of a head.
    scanned: usize,
}

impl HeadScanner {
    /// Where the first empty line of `read` ends. RFC 9112 §2.2 allows a line to end with a line feed alone.
    pub fn find_end(&mut self, read: &[u8]) -> Option<usize> {
        while let Some(found) = memchr(b'\n', &read[self.scanned..]) {
            let at = self.scanned + found;
            match read[at + 1..] {
                [b'\n', ..] => return Some(at + 2),
                [b'\r', b'\n', ..] => return Some(at + 3),
                // The next line may be empty.
                [] | [b'\r'] => {
                    self.scanned = at;
                    return None;
                }
                _ => self.scanned = at + 1,
            }
        }
        self.scanned = read.len();
        None
    }

    /// How many bytes need not be looked at again.
    #[must_use]
    pub fn scanned(&self) -> usize {
        self.scanned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_found_wherever_the_parts_are_cut() {
        for head in ["GET / HTTP/1.1\r\na: 1\r\n\r\n", "GET / HTTP/1.1\na: 1\n\n", "a\r\n\n"] {
            let text = format!("{head}rest\r\n\r\n");
            for cut in 0..text.len() {
                let mut scanner = HeadScanner::default();
                let early = scanner.find_end(&text.as_bytes()[..cut]);
                let end = early.or_else(|| scanner.find_end(text.as_bytes()));
                assert_eq!((end, early.is_some()), (Some(head.len()), cut >= head.len()), "{cut}");
            }
        }
    }
}
