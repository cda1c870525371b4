//! Log-in and log-out by an app that cooperates: `Anteroom-Login` and `Anteroom-Logout` on the
//! response to a visitor's own forwarded request.

use ::http::header::SET_COOKIE;
use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use futures_util::future::join_all;

use super::app_login;
use super::visitor_token::Around;
use crate::http::host::Scheme;
use crate::http::login_field::{self, Unread};
use crate::ident::{Bond, StoredToken, User};
use crate::proxy::context::RequestContext;
use crate::proxy::deliver;
use crate::proxy::error::Error;
use crate::proxy::settings::Minted;
use crate::session::Ending;
use crate::telemetry::metrics::Count;

static LOGIN: HeaderName = HeaderName::from_static("anteroom-login");
static LOGOUT: HeaderName = HeaderName::from_static("anteroom-logout");

/// What a response changed of the visitor's session.
pub(in crate::proxy) enum Change {
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
    /// Sets the cookie. It is one visitor's: no cache may have it, whatever the app says of caches.
    pub(in crate::proxy) fn show(self, headers: &mut HeaderMap) {
        if let Some(cookie) = self.cookie() {
            headers.append(SET_COOKIE, cookie);
            deliver::keep_from_caches(headers);
        }
    }

    pub(in crate::proxy) fn cookie(self) -> Option<HeaderValue> {
        match self {
            Self::Nothing | Self::Watched { .. } => None,
            Self::LoggedIn { cookie, .. } | Self::LoggedOut { cookie } => cookie,
        }
    }
}

/// Carries out what the origin says, in the store before the response goes out. A log-out
/// outweighs a log-in.
pub(in crate::proxy) async fn carry_out(
    case: &RequestContext<'_>,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Change, Error> {
    let room = case.room;
    if !case.rules().sessions {
        return Ok(Change::Nothing);
    }
    let Some(Minted { cookie, per_host }) = &room.settings.minted else {
        return app_login::carry_out(case, status, headers).await;
    };
    let https = case.admitted.scheme == Scheme::Https;
    if headers.contains_key(&LOGOUT) {
        end(case, removed(case.visitor.token.iter().chain(&case.visitor.rivals))).await?;
        case.held.end(&Around::of(case)).await;
        room.sheet.count(Count::LogOuts);
        return Ok(Change::LoggedOut { cookie: cookie.clear(https) });
    }
    let Some(value) = headers.get(&LOGIN) else { return Ok(Change::Nothing) };
    let Some(mut user) = named(value) else { return Ok(Change::Nothing) };
    if *per_host {
        user = user.bound_to(Bond::of_host(&case.admitted.site));
    }
    let old = case.visitor.token.as_ref();
    let token = room
        .sessions
        .log_in(&room.store, case.held.before(room, old.cloned()), user.clone(), case.now)
        .await
        .map_err(|error| Error::Session(error.into()))?;
    room.sheet.count(Count::LogIns);
    let stored = room.sessions.stored(&token);
    if let Some(old) = old {
        room.visits.rename(old, &stored, &user);
    }
    // Nobody has logged these out: the log-in takes their place.
    end(case, case.visitor.rivals.iter().map(|rival| (rival, Ending::Dismissed))).await?;
    case.held.joined(&Around::of(case), &stored, &user);
    Ok(Change::LoggedIn { token: stored, user, cookie: cookie.set(&token, https) })
}

/// Whom the app names.
fn named(value: &HeaderValue) -> Option<User> {
    match login_field::read(value.as_bytes()) {
        Ok(user) => Some(user),
        // A name that holds a semicolon would be another's in front of it.
        Err(Unread::Attributes) => {
            tracing::warn!(
                "what stands behind the name in the origin's Anteroom-Login is no name=value, too much \
                 or too long; nobody is logged in: percent-encode a semicolon in a name as %3B"
            );
            None
        }
        Err(Unread::Name) => {
            tracing::warn!(
                "the origin's Anteroom-Login is empty or over 256 bytes; nobody is logged in"
            );
            None
        }
    }
}

fn removed<'t>(
    tokens: impl Iterator<Item = &'t StoredToken>,
) -> impl Iterator<Item = (&'t StoredToken, Ending)> {
    tokens.map(|token| (token, Ending::Removed))
}

/// Ends sessions, all side by side: here at once, in the store now or as soon as it can be reached.
pub(in crate::proxy) async fn end<'t>(
    case: &RequestContext<'_>,
    tokens: impl Iterator<Item = (&'t StoredToken, Ending)>,
) -> Result<(), Error> {
    let room = case.room;
    let ended = join_all(tokens.map(|(token, how)| {
        room.visits.forget(token);
        room.sessions.put_out(&room.store, token, how)
    }));
    let ended = ended.await.into_iter().collect::<Result<(), _>>();
    ended.map_err(|error| Error::Session(error.into()))
}
