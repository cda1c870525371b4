//! What counts as one visitor's own on a page that is about to be shared.

/// Why a page is not shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Finding {
    /// A form field or meta tag whose name says that its value belongs to one visitor.
    #[error("a CSRF field")]
    CsrfField,
    /// A link or form field that carries a session id.
    #[error("a session id in a link")]
    SessionIdInLink,
    /// A page that could not be read whole: its coding, its charset, its size, or its markup.
    #[error("the page could not be read")]
    Undecodable,
    /// A field for a password, or a form that logs in, where such are looked for.
    #[error("a field for a password")]
    PasswordField,
    /// A form that is sent by POST, on a page that has lost its cookie.
    #[error("a form that is posted")]
    PostForm,
    /// The name of the user for whom the page was fetched.
    #[error("the name of a user")]
    LeakUser,
    /// An attribute of his.
    #[error("an attribute of a user")]
    LeakAttribute,
    /// A token, or the value of a cookie.
    #[error("a token")]
    LeakToken,
}

impl Finding {
    /// The word for logs and metrics, which stays the same.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CsrfField => "csrf-field",
            Self::SessionIdInLink => "session-id-in-link",
            Self::Undecodable => "undecodable",
            Self::PasswordField => "password-field",
            Self::PostForm => "post-form",
            Self::LeakUser => "leak-user",
            Self::LeakAttribute => "leak-attribute",
            Self::LeakToken => "leak-token",
        }
    }
}

/// Which forms are for one visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forms {
    /// None by itself.
    None,
    /// Those that log in: the page is asked for with a session, and the app may have forgotten that.
    LogIns,
    /// All that are posted: the page has lost the cookie that goes with them.
    Posted,
}
