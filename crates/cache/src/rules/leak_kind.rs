//! The kinds of personal data that keep a page from being shared.

/// Why a page is not shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum LeakKind {
    /// A form field or meta tag whose name shows that its value belongs to one visitor.
    #[error("a CSRF field")]
    CsrfField,
    /// A link or form field that carries a session id.
    #[error("a session id in a link")]
    SessionIdInLink,
    /// A page that could not be read whole, because of its coding, charset, size or markup.
    #[error("the page could not be read")]
    Undecodable,
    /// A password field or a login form, on pages where these count.
    #[error("a field for a password")]
    PasswordField,
    /// A form with method POST, on a page that has lost its cookie.
    #[error("a form that is posted")]
    PostForm,
    /// The name of the user for whom the page was fetched.
    #[error("the name of a user")]
    LeakUser,
    /// An attribute of that user.
    #[error("an attribute of a user")]
    LeakAttribute,
    /// A token, or the value of a cookie.
    #[error("a token")]
    LeakToken,
    /// The value of a request field that the fetch sent and the page's key lacks.
    #[error("the value of a request field")]
    Reflected,
}

impl LeakKind {
    /// The name for logs and metrics, which stays stable.
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
            Self::Reflected => "reflected",
        }
    }
}

/// The forms that belong to one visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersonalForms {
    /// No form by itself.
    None,
    /// Login forms: the page was requested with a session, which the app may have forgotten.
    LogIns,
    /// All POST forms: the page has lost the cookie that belongs to them.
    Posted,
}
