//! What an answer means for the visitor's session, and what was changed of it.

use ::http::HeaderValue;

use crate::ident::{StoredToken, User};

/// What an answer means for the visitor's session.
#[derive(Debug)]
pub(in crate::proxy) enum SessionEffect {
    /// Nothing.
    None,
    /// The app names the user of a session that we make.
    LogIn(User),
    /// The app ends the session that we have made.
    LogOut,
    /// The app has begun a session of its own.
    AppLogIn(AppLogIn),
    /// The app has ended a session of its own.
    AppLogOut(AppLogOut),
}

/// A session that the app has begun.
#[derive(Debug)]
pub(in crate::proxy) struct AppLogIn {
    pub(super) user: User,
    /// The token that the visitor has from now on.
    pub(super) token: StoredToken,
}

/// A session that the app has ended.
#[derive(Debug)]
pub(in crate::proxy) struct AppLogOut {
    /// The tokens that the visitor has left.
    pub(super) left: Vec<StoredToken>,
    /// Whether a rule says so, and not only a cookie that goes.
    pub(super) is_told: bool,
}

/// What was changed of the visitor's session.
pub(super) enum Change {
    Nothing,
    /// Whose session it is from now on, and the cookie that says so.
    LoggedIn {
        token: StoredToken,
        user: User,
        cookie: Option<HeaderValue>,
    },
    /// The cookie that ends it.
    LoggedOut {
        cookie: Option<HeaderValue>,
    },
    /// The app has begun or ended a session of its own; whose it is from now on, if anybody's.
    Watched {
        user: Option<User>,
    },
}

impl Change {
    pub(super) fn cookie(self) -> Option<HeaderValue> {
        match self {
            Self::Nothing | Self::Watched { .. } => None,
            Self::LoggedIn { cookie, .. } | Self::LoggedOut { cookie } => cookie,
        }
    }
}
