//! The proxy's own responses and fields.

/// The detail of `Cache-Status` (RFC 9211).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusDetail {
    /// Hit or forwarded, with TTL and reason.
    Full,
    /// Hit or forwarded only.
    Short,
    /// The field is not sent.
    Off,
}

/// An endpoint below `/_anteroom/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The visitor's name.
    Me,
    /// The visitor's cart.
    Cart,
    /// The items that the visitor viewed last.
    Recent,
    /// The items viewed most by all visitors. This is business data, so it is off by default.
    Top,
}
