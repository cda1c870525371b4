//! What a response means for the visitor's session, and what was changed in it.

use ::http::HeaderValue;

use anteroom_http::ident::{StoredToken, User};

/// What a response means for the visitor's session.
#[derive(Debug)]
pub(crate) enum SessionEffect {
    /// The session is unaffected.
    None,
    /// The app names the user of a session that the proxy creates.
    LogIn(User),
    /// The app ends the session that the proxy created.
    LogOut,
    /// The app has begun a session of its own.
    AppLogIn(AppLogIn),
    /// The app has ended a session of its own.
    AppLogOut(AppLogOut),
}

/// A session that the app has begun.
#[derive(Debug)]
pub(crate) struct AppLogIn {
    pub(super) user: User,
    /// The token that the visitor has from now on.
    pub(super) token: StoredToken,
}

/// A session that the app has ended.
#[derive(Debug)]
pub(crate) struct AppLogOut {
    /// The tokens that remain in the visitor's browser.
    pub(super) left: Vec<StoredToken>,
    /// Whether a rule detected the logout. Otherwise only a deleted cookie indicates it.
    pub(super) is_by_rule: bool,
}

/// What was changed in the visitor's session.
pub(super) enum SessionChange {
    Nothing,
    /// The session's new token and user, and the cookie that carries the token.
    LoggedIn {
        token: StoredToken,
        user: User,
        cookie: Option<HeaderValue>,
    },
    /// The cookie that ends the session.
    LoggedOut {
        cookie: Option<HeaderValue>,
    },
    /// The app has begun or ended a session of its own. `user` is its user from now on, if any.
    Watched {
        user: Option<User>,
    },
}

impl SessionChange {
    pub(super) fn cookie(self) -> Option<HeaderValue> {
        match self {
            Self::Nothing | Self::Watched { .. } => None,
            Self::LoggedIn { cookie, .. } | Self::LoggedOut { cookie } => cookie,
        }
    }
}
