//! What of a request an answer may depend on.

/// What an answer may depend on besides cookies: where the request comes from, and the fields that a fetch carries on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestField {
    /// The network of the client's address: /24 or /48.
    Address,
    /// `User-Agent`.
    UserAgent,
    /// `Accept-Language`.
    AcceptLanguage,
    /// `Accept`.
    Accept,
    /// `Referer`.
    Referer,
    /// Client hints and `Save-Data`, taken together.
    ClientHints,
}

/// The fields, in the order of [`Causes::fields`].
pub const FIELDS: [RequestField; 6] = [
    RequestField::Address,
    RequestField::UserAgent,
    RequestField::AcceptLanguage,
    RequestField::Accept,
    RequestField::Referer,
    RequestField::ClientHints,
];

impl RequestField {
    /// The name in reports: that of the field, or `address`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::UserAgent => "User-Agent",
            Self::AcceptLanguage => "Accept-Language",
            Self::Accept => "Accept",
            Self::Referer => "Referer",
            Self::ClientHints => "client hints",
        }
    }
}

/// A cookie by its place in the table of names, with a keyed hash of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CookieValue {
    pub(crate) place: u8,
    /// Never 0, which stands for a cookie that did not come.
    pub(crate) value: u32,
}

/// A set of cookies, by their places in the table of names.
pub(crate) type CookieSet = u64;

/// What an answer may depend on, by keyed hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Causes {
    /// The values of [`FIELDS`]; 0: the field did not come.
    pub fields: [u32; FIELDS.len()],
    /// The cookies that no key has and that are not known to be harmless everywhere, by place.
    pub cookies: Vec<CookieValue>,
}

impl Causes {
    /// The cookies that came.
    pub(crate) fn cookie_set(&self) -> CookieSet {
        self.cookies.iter().fold(0, |set, cookie| set | 1 << cookie.place)
    }

    /// The hash of a cookie's value; 0: it did not come.
    pub(crate) fn cookie(&self, place: u8) -> u32 {
        self.cookies.iter().find(|cookie| cookie.place == place).map_or(0, |cookie| cookie.value)
    }
}

/// Something that an answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Cause {
    /// A field of the request, or its address.
    Field(RequestField),
    /// A cookie, by its place in the table of names.
    Cookie(u8),
}
