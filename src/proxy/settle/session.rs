//! Log-in and log-out by an app that cooperates: `Anteroom-Login` and `Anteroom-Logout` on the
//! response to a visitor's own forwarded request.

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

/// What the app says of the session that we make. A log-out outweighs a log-in.
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

/// Carries it out, in the store before the response goes out.
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
    // Nobody has logged these out: the log-in takes their place.
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
