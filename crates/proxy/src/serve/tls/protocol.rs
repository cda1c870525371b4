//! The protocols that are spoken over TLS.

/// A protocol over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, or whatever a client speaks that names none.
    Http1,
    /// HTTP/2.
    Http2,
}

impl Protocol {
    /// Its name in a handshake (RFC 7301 §6).
    #[must_use]
    pub fn name(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }

    pub(super) fn chosen(name: Option<&[u8]>) -> Self {
        if name == Some(Self::Http2.name()) { Self::Http2 } else { Self::Http1 }
    }
}
