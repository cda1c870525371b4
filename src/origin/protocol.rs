//! Which version of HTTP is spoken with an origin.

/// Whether HTTP/2 is spoken with the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http2 {
    /// Where it is agreed upon over TLS.
    Auto,
    /// Unasked, in clear text, too.
    Always,
    /// Nowhere.
    Never,
}

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}
