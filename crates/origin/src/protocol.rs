//! The HTTP version used with an origin.

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OriginProtocol {
    Http1,
    Http2,
}
