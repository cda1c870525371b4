//! Writes a page as gzip, with the visitor's contents uncompressed.
//!
//! SECURITY: if a secret is compressed together with text of another author, the length reveals it
//! (BREACH). The page's text is therefore compressed, and the contents of fragments stand between it in
//! stored blocks. Text after a content does not refer to anything before it.

use std::io;

use flate2::{Compress, Compression, Crc, FlushCompress, Status};

/// The gzip level, of 9. It is low because each page is compressed for one client.
const LEVEL: u32 = 4;
/// The largest stored block (RFC 1951 §3.2.4).
const BLOCK_MAX: usize = 0xffff;
/// The header of a gzip member without a name or a time (RFC 1952 §2.3), from an unknown system.
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// The least room for output, in bytes.
const ROOM: usize = 512;

/// The gzip writer.
pub(super) struct GzipWriter {
    raw: Compress,
    crc: Crc,
    has_begun: bool,
    /// Whether there is input that has not been output yet.
    is_dirty: bool,
}

impl GzipWriter {
    pub(super) fn new() -> Self {
        let raw = Compress::new(Compression::new(LEVEL), false);
        Self { raw, crc: Crc::new(), has_begun: false, is_dirty: false }
    }

    /// Adds text of the page, compressed.
    pub(super) fn text(&mut self, text: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.begin(out);
        self.crc.update(text);
        self.is_dirty = true;
        self.run(text, FlushCompress::None, out)
    }

    /// Adds a content of the visitor's, uncompressed.
    pub(super) fn insert_content(&mut self, content: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.begin(out);
        if self.is_dirty {
            // Ends at a byte boundary and resets the window.
            self.run(&[], FlushCompress::Full, out)?;
            self.is_dirty = false;
        }
        self.crc.update(content);
        for block in content.chunks(BLOCK_MAX) {
            let length = u16::try_from(block.len()).map_err(io::Error::other)?;
            out.push(0);
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(&(!length).to_le_bytes());
            out.extend_from_slice(block);
        }
        Ok(())
    }

    /// Outputs all input so far, because the next input is pending.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        if std::mem::take(&mut self.is_dirty) {
            // A full flush: the next input may be personal.
            self.run(&[], FlushCompress::Full, out)?;
        }
        Ok(())
    }

    /// Writes the end of the stream.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.begin(out);
        self.run(&[], FlushCompress::Finish, out)?;
        out.extend_from_slice(&self.crc.sum().to_le_bytes());
        out.extend_from_slice(&self.crc.amount().to_le_bytes());
        Ok(())
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_begun, true) {
            out.extend_from_slice(&HEAD);
        }
    }

    fn run(&mut self, text: &[u8], flush: FlushCompress, out: &mut Vec<u8>) -> io::Result<()> {
        let mut rest = text;
        loop {
            out.reserve(ROOM.max(rest.len() / 2));
            let before = self.raw.total_in();
            let status = self.raw.compress_vec(rest, out, flush).map_err(io::Error::other)?;
            let taken = usize::try_from(self.raw.total_in() - before).map_err(io::Error::other)?;
            rest = &rest[taken..];
            let is_done = match flush {
                FlushCompress::Finish => status == Status::StreamEnd,
                // If room is left in the output, the compressor has nothing more to write.
                _ => rest.is_empty() && out.len() < out.capacity(),
            };
            if is_done {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use proptest::prelude::*;

    use super::*;

    /// The parts as gzip. Every second one is the visitor's.
    fn zipped(parts: &[Vec<u8>]) -> Vec<u8> {
        let (mut zip, mut out) = (GzipWriter::new(), Vec::new());
        for (place, part) in parts.iter().enumerate() {
            match place % 2 {
                0 => zip.text(part, &mut out).unwrap(),
                _ => zip.insert_content(part, &mut out).unwrap(),
            }
        }
        zip.end(&mut out).unwrap();
        out
    }

    fn unzipped(bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
        plain
    }

    #[test]
    fn the_length_tells_nothing_of_what_is_one_visitor_s() {
        let page = b"<p>secret=0123456789abcdef</p>".repeat(50);
        let length = |secret: &str| {
            let bytes = zipped(&[page.clone(), secret.into(), page.clone(), secret.into()]);
            assert_eq!(unzipped(&bytes).len(), 2 * page.len() + 2 * secret.len());
            bytes.len()
        };
        assert_eq!(length("secret=0123456789abcdef"), length("Zq8?kV-xT0pW!mN3yLrB7uJ"));
        assert!(length("x") < page.len() / 2, "the page is compressed");
    }

    #[test]
    fn flushed_bytes_can_be_decoded() {
        let (mut zip, mut out) = (GzipWriter::new(), Vec::new());
        zip.text(b"first", &mut out).unwrap();
        zip.flush(&mut out).unwrap();
        let mut start = [0; 5];
        GzDecoder::new(out.as_slice()).read_exact(&mut start).unwrap();
        assert_eq!(&start, b"first");
    }

    proptest! {
        #[test]
        fn compressed_text_decompresses_unchanged(parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..3_000), 0..8)) {
            prop_assert_eq!(unzipped(&zipped(&parts)), parts.concat());
        }
    }

    #[test]
    fn large_contents_are_several_blocks() {
        let parts = [vec![b'a'; 200_000], vec![b'b'; 200_000], Vec::new(), vec![b'c'; BLOCK_MAX]];
        assert!(unzipped(&zipped(&parts)) == parts.concat());
    }
}
