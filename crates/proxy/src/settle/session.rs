//! Login and logout by a cooperating app: `Anteroom-Login` and `Anteroom-Logout` on the response to a
//! forwarded request.

use ::http::{HeaderMap, HeaderName, HeaderValue};
use anteroom_fault::fault;
use anteroom_http::forwarded::ANTEROOM_LOGIN;
use anteroom_http::host::Scheme;
use anteroom_http::ident::{LogInScope, StoredToken, User};
use anteroom_http::login_field::{self, InvalidLogin};
use anteroom_session::{Ending, SessionCookie};
use anteroom_telemetry::metrics::Count;

use super::app_login;
use super::change::{SessionChange, SessionEffect};
use super::session_end::end;
use super::visitor_token::TokenContext;
use crate::context::RequestContext;
use crate::error::Error;
use crate::settings::SessionCreation;

static LOGOUT: HeaderName = HeaderName::from_static("anteroom-logout");

/// What the app states about the proxy's session. A logout outweighs a login.
pub(super) fn read(
    cx: &RequestContext<'_>,
    minted: &SessionCreation,
    headers: &HeaderMap,
) -> SessionEffect {
    if headers.contains_key(&LOGOUT) && !fault!("logout") {
        return SessionEffect::LogOut;
    }
    let Some(user) = headers.get(&ANTEROOM_LOGIN).and_then(named) else {
        return SessionEffect::None;
    };
    SessionEffect::LogIn(match minted.per_host {
        true => user.bound_to(LogInScope::of_host(&cx.admitted.site)),
        false => user,
    })
}

/// Carries out the effect, in the store before the response goes out.
pub(super) async fn carry_out(
    cx: &RequestContext<'_>,
    effect: SessionEffect,
) -> Result<SessionChange, Error> {
    // PERF: boxed, so that the state of a request that changes no session stays small.
    match effect {
        SessionEffect::None => Ok(SessionChange::Nothing),
        SessionEffect::LogIn(user) => Box::pin(log_in(cx, user)).await,
        SessionEffect::LogOut => Box::pin(log_out(cx)).await,
        SessionEffect::AppLogIn(began) => Ok(Box::pin(app_login::begin(cx, began)).await),
        SessionEffect::AppLogOut(ended) => Box::pin(app_login::log_out(cx, ended)).await,
    }
}

async fn log_out(cx: &RequestContext<'_>) -> Result<SessionChange, Error> {
    end(cx, removed(cx.visitor.token.iter().chain(&cx.visitor.duplicates))).await?;
    cx.visitor_token.end(&TokenContext::of(cx)).await;
    cx.worker.thread_metrics.count(Count::LogOuts);
    let cookie = cookie(cx).and_then(|cookie| cookie.clear(is_https(cx)));
    Ok(SessionChange::LoggedOut { cookie })
}

async fn log_in(cx: &RequestContext<'_>, user: User) -> Result<SessionChange, Error> {
    let worker = cx.worker;
    let old = cx.visitor.token.as_ref();
    let before = cx.visitor_token.before(worker, old.cloned());
    let merges = before.visitor.is_some();
    let token = worker
        .sessions
        .log_in(&worker.store, before, user.clone(), cx.now)
        .await
        .map_err(|error| Error::Session(error.into()))?;
    worker.thread_metrics.count(Count::LogIns);
    worker.class_memory.note_log_in(&cx.admitted.site, &cx.admitted.path);
    let stored = worker.sessions.stored(&token);
    if let Some(old) = old {
        worker.visits.rename(old, &stored, &user);
    }
    // These sessions were not logged out: the login replaces them.
    end(cx, cx.visitor.duplicates.iter().map(|rival| (rival, Ending::Ended))).await?;
    cx.visitor_token.joined(&TokenContext::of(cx), &stored, &user, merges);
    let cookie = cookie(cx).and_then(|cookie| cookie.set(&token, is_https(cx)));
    Ok(SessionChange::LoggedIn { token: stored, user, cookie })
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
        Err(InvalidLogin::Attributes) => {
            tracing::warn!(
                "the origin's Anteroom-Login is ignored: the text after the user name is not name=value, too \
                 much or too long; percent-encode a semicolon in a user name as %3B"
            );
            None
        }
        Err(InvalidLogin::Name) => {
            tracing::warn!("the origin's Anteroom-Login is ignored: it is empty or over 256 bytes");
            None
        }
    }
}

fn removed<'t>(
    tokens: impl Iterator<Item = &'t StoredToken>,
) -> impl Iterator<Item = (&'t StoredToken, Ending)> {
    tokens.map(|token| (token, Ending::LoggedOut))
}
