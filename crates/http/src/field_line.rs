//! A field line as HTTP/1.1 sends it (RFC 9112 §5).

/// Appends `name: value` and a CRLF.
pub fn put(buffer: &mut Vec<u8>, name: &str, value: &[u8]) {
    // PERF: one check of the capacity instead of four.
    buffer.reserve(name.len() + value.len() + 4);
    buffer.extend_from_slice(name.as_bytes());
    buffer.extend_from_slice(b": ");
    buffer.extend_from_slice(value);
    buffer.extend_from_slice(b"\r\n");
}
