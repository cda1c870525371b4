//! The attributes of the proxy's cookies (RFC 6265bis §4.1.2).

/// The `SameSite` attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// `Lax`
    Lax,
    /// `Strict`
    Strict,
    /// `None`
    None,
}

impl SameSite {
    /// The attribute's value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lax => "Lax",
            Self::Strict => "Strict",
            Self::None => "None",
        }
    }
}

/// When a cookie gets `Secure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secure {
    /// When the visitor's scheme is https.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}
