//! Log-in and log-out by a cooperating app: `Anteroom-Login` and `Anteroom-Logout` on the response to a
//! forwarded request.

use ::http::{HeaderMap, HeaderName, HeaderValue};

use super::app_session;
use super::change::{Change, SessionEffect};
use super::session_end::end;
use super::visitor_token::Around;
use crate::http::host::Scheme;
use crate::http::login_field::{self, Unread};
use crate::ident::{Bond, StoredToken, User};
use crate::proxy::context::RequestContext;
use crate::proxy::error::Error;
use crate::proxy::settings::Minted;
use crate::session::{Ending, SessionCookie};
use crate::telemetry::metrics::Count;

static LOGIN: HeaderName = HeaderName::from_static("anteroom-login");
static LOGOUT: HeaderName = HeaderName::from_static("anteroom-logout");

/// What the app states about the proxy's session. A log-out outweighs a log-in.
pub(super) fn read(cx: &RequestContext<'_>, minted: &Minted, headers: &HeaderMap) -> SessionEffect {
    if headers.contains_key(&LOGOUT) {
        return SessionEffect::LogOut;
    }
    let Some(user) = headers.get(&LOGIN).and_then(named) else { return SessionEffect::None };
    SessionEffect::LogIn(match minted.per_host {
        true => user.bound_to(Bond::of_host(&cx.admitted.site)),
        false => user,
    })
}

/// Carries out the effect, in the store before the response goes out.
pub(super) async fn carry_out(
    cx: &RequestContext<'_>,
    effect: SessionEffect,
) -> Result<Change, Error> {
    match effect {
        SessionEffect::None => Ok(Change::Nothing),
        SessionEffect::LogIn(user) => log_in(cx, user).await,
        SessionEffect::LogOut => log_out(cx).await,
        SessionEffect::AppLogIn(began) => Ok(app_session::begin(cx, began).await),
        SessionEffect::AppLogOut(ended) => app_session::log_out(cx, ended).await,
    }
}

async fn log_out(cx: &RequestContext<'_>) -> Result<Change, Error> {
    end(cx, removed(cx.visitor.token.iter().chain(&cx.visitor.rivals))).await?;
    cx.visitor_token.end(&Around::of(cx)).await;
    cx.worker.sheet.count(Count::LogOuts);
    let cookie = cookie(cx).and_then(|cookie| cookie.clear(is_https(cx)));
    Ok(Change::LoggedOut { cookie })
}

async fn log_in(cx: &RequestContext<'_>, user: User) -> Result<Change, Error> {
    let worker = cx.worker;
    let old = cx.visitor.token.as_ref();
    let token = worker
        .sessions
        .log_in(&worker.store, cx.visitor_token.before(worker, old.cloned()), user.clone(), cx.now)
        .await
        .map_err(|error| Error::Session(error.into()))?;
    worker.sheet.count(Count::LogIns);
    let stored = worker.sessions.stored(&token);
    if let Some(old) = old {
        worker.visits.rename(old, &stored, &user);
    }
    // These sessions were not logged out: the log-in replaces them.
    end(cx, cx.visitor.rivals.iter().map(|rival| (rival, Ending::Dismissed))).await?;
    cx.visitor_token.joined(&Around::of(cx), &stored, &user);
    let cookie = cookie(cx).and_then(|cookie| cookie.set(&token, is_https(cx)));
    Ok(Change::LoggedIn { token: stored, user, cookie })
}

fn cookie<'c>(cx: &'c RequestContext<'_>) -> Option<&'c SessionCookie> {
    cx.worker.settings.minted.as_ref().map(|minted| &minted.cookie)
}

fn is_https(cx: &RequestContext<'_>) -> bool {
    cx.admitted.scheme == Scheme::Https
}

/// The user that the app names.
fn named(value: &HeaderValue) -> Option<User> {
    match login_field::read(value.as_bytes()) {
        Ok(user) => Some(user),
        // A name with a raw semicolon would be cut there and could match another user's name.
        Err(Unread::Attributes) => {
            tracing::warn!(
                "the origin's Anteroom-Login is ignored: the text after the user name is not name=value, too \
                 much or too long; percent-encode a semicolon in a user name as %3B"
            );
            None
        }
        Err(Unread::Name) => {
            tracing::warn!("the origin's Anteroom-Login is ignored: it is empty or over 256 bytes");
            None
        }
    }
}

fn removed<'t>(
    tokens: impl Iterator<Item = &'t StoredToken>,
) -> impl Iterator<Item = (&'t StoredToken, Ending)> {
    tokens.map(|token| (token, Ending::Removed))
}
