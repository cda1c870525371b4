//! Detects logins and logouts of an app that keeps its own sessions, by its cookies and by rules on
//! its requests.
//!
//! What the app answers when it is asked about a visitor is handled in `verify`.

use ::http::header::{LOCATION, SET_COOKIE};
use ::http::{HeaderMap, HeaderValue, StatusCode};
use anteroom_http::cookie::cookies;
use anteroom_http::extract::{Extractor, ResponseParts};
use anteroom_http::ident::{LogInScope, StoredToken, User};
use anteroom_http::pattern::Pattern;
use anteroom_http::{apply_set_cookie, set_cookie};
use anteroom_policy::login::{LoginRule, LoginUser, LogoutRule, Success};
use anteroom_session::Ending;
use anteroom_telemetry::access_log::VisitorClass;
use anteroom_telemetry::metrics::Count;

use super::change::{AppLogIn, AppLogOut, SessionChange, SessionEffect};
use super::visitor_token::TokenContext;
use super::{session_cookies, session_end};
use crate::context::RequestContext;
use crate::error::Error;
use crate::kept_body::KeptBody;

/// Whether a response is what a rule takes for a login or a logout.
fn is_success(
    success: &Success,
    cx: &RequestContext<'_>,
    status: StatusCode,
    headers: &HeaderMap,
) -> bool {
    let now = cx.now as u64;
    let is_session = |name| cx.worker.settings.cookies.is_session(name);
    // SECURITY: a session cookie that came with the request may have been planted, and many apps
    // send it again with each response. It is no evidence of a login.
    let is_new = |pair| !cookies(&cx.head.headers).any(|came| came == pair) || !is_session(pair.0);
    let sets = |pattern: &Pattern| {
        let lines = headers.get_all(SET_COOKIE).iter().zip(set_cookie::pairs(headers));
        lines.into_iter().any(|(line, pair)| {
            pattern.matches(pair.0) && !set_cookie::clears(line.as_bytes(), now) && is_new(pair)
        })
    };
    let clears =
        |pattern: &Pattern| set_cookie::cleared(headers, now).any(|name| pattern.matches(name));
    (success.status.is_empty() || success.status.contains(&status.as_u16()))
        && success.set_cookie.as_ref().is_none_or(sets)
        && success.clears_cookie.as_ref().is_none_or(clears)
        && success.location.as_ref().is_none_or(|pattern| leads_to(headers, pattern))
        && success.header.as_ref().is_none_or(|name| headers.contains_key(name))
}

fn leads_to(headers: &HeaderMap, pattern: &Pattern) -> bool {
    let Some(location) = headers.get(LOCATION).map(HeaderValue::as_bytes) else { return false };
    let text = String::from_utf8_lossy(location);
    let path = text.split_once("://").map(|(_, rest)| rest.find('/').map_or("/", |at| &rest[at..]));
    pattern.matches(location) || path.is_some_and(|path| pattern.matches(path.as_bytes()))
}

impl KeptBody {
    fn user(&self, from: &LoginUser) -> Option<User> {
        let name = match from {
            LoginUser::Answer(_) => return None,
            LoginUser::Form(field) => self.form_value(field)?,
            LoginUser::Json(pointer) => {
                let (headers, body) = (HeaderMap::new(), self.0.borrow());
                let seen = ResponseParts { status: StatusCode::OK, headers: &headers, body: &body };
                Extractor::Json(pointer.clone()).find(seen)?
            }
        };
        Some(User::new(name.trim_ascii())?.unconfirmed())
    }
}

/// What a response of the app means for a session of its own.
pub(super) fn read(
    cx: &RequestContext<'_>,
    status: StatusCode,
    headers: &HeaderMap,
) -> SessionEffect {
    let worker = cx.worker;
    let (watched, rules) = (&worker.settings.watched, &worker.settings.cookies);
    let after = session_cookies::session_cookies_after(cx, headers);
    let next = rules.only_token_of(&after).map(|token| worker.sessions.stored(&token));
    let logs_in = |rule: &&LoginRule| {
        cx.matches(&rule.matching) && is_success(&rule.success, cx, status, headers)
    };
    if let (Some(rule), Some(token)) = (watched.login.as_ref().filter(logs_in), next) {
        let user = named(cx, rule, status, headers);
        return user.map_or(SessionEffect::None, |user| {
            let user = user.bound_to(log_in_scope(cx, headers, &token));
            SessionEffect::AppLogIn(AppLogIn { user, token })
        });
    }
    let logs_out = |rule: &LogoutRule| {
        cx.matches(&rule.matching) && is_success(&rule.success, cx, status, headers)
    };
    let is_by_rule = watched.logout.as_ref().is_some_and(logs_out);
    let came = cookies(&cx.head.headers).filter(|(name, _)| rules.is_session(name));
    let came: Vec<_> = came.collect();
    // One of several cookies may be deleted as stale while the session continues.
    let is_cleared =
        rules.leading(&came).is_some_and(|name| !after.iter().any(|(left, _)| *left == name));
    if !is_cleared && !is_by_rule {
        return SessionEffect::None;
    }
    let left = after.iter().filter_map(|(_, value)| rules.token.token(value));
    let left = left.map(|token| worker.sessions.stored(&token)).collect();
    SessionEffect::AppLogOut(AppLogOut { left, is_by_rule })
}

/// Ends the session that the app has ended.
pub(super) async fn log_out(
    cx: &RequestContext<'_>,
    AppLogOut { left, is_by_rule }: AppLogOut,
) -> Result<SessionChange, Error> {
    let was_somebody = end(cx, &left, is_by_rule).await?;
    // Apps also delete stale cookies of logged-out visitors. That is not a logout.
    if is_by_rule || was_somebody {
        cx.visitor_token.end(&TokenContext::of(cx)).await;
    }
    Ok(SessionChange::Watched { user: None })
}

/// Ends the visitor's session. `left` holds the session cookies that remain in the browser. A token that
/// is no longer among them is revoked if the app could still accept it.
///
/// Returns whether the visitor may have been logged in. A logout by a rule (`is_by_rule`) always counts as
/// such, because a login that another proxy saw while the store was away is known to that proxy only.
async fn end(
    cx: &RequestContext<'_>,
    left: &[StoredToken],
    is_by_rule: bool,
) -> Result<bool, Error> {
    let (worker, visitor) = (cx.worker, &cx.visitor);
    // The answer remembered here may be older than a login at another proxy a second ago.
    let is_anonymous = visitor.class == VisitorClass::Anonymous
        && !is_by_rule
        && match &visitor.cookie_hash {
            Some(cookies) => worker.verified.is_anonymous(&worker.store, cookies).await,
            None => true,
        };
    if let (Some(verify), Some(carried)) = (&worker.settings.verify, visitor.cookie_hash) {
        worker.verified.void(&worker.store, &[carried], verify.mark_time(), cx.now).await;
    }
    if is_anonymous {
        return Ok(false);
    }
    let asks = worker.settings.verify.is_some();
    let ended = visitor.token.iter().map(|token| match asks && !left.contains(token) {
        true => (token, Ending::Revoked),
        false => (token, Ending::LoggedOut),
    });
    let how = if asks { Ending::Revoked } else { Ending::LoggedOut };
    let rivals = visitor.duplicates.iter().map(|token| (token, how));
    session_end::end(cx, ended.chain(rivals)).await?;
    if visitor.class == VisitorClass::Known {
        worker.thread_metrics.count(Count::LogOuts);
    }
    Ok(true)
}

/// The user of a login, by its rule. `None`: the app is asked later, or no user is found.
fn named(
    cx: &RequestContext<'_>,
    rule: &LoginRule,
    status: StatusCode,
    headers: &HeaderMap,
) -> Option<User> {
    let user = match &rule.user {
        None => return None,
        Some(LoginUser::Answer(finder)) => {
            let found = finder.find(ResponseParts { status, headers, body: &[] });
            found.and_then(|name| User::new(&name))
        }
        Some(said) => cx.kept_body.user(said),
    };
    if user.is_none() {
        tracing::warn!(
            "a login by [session.login] is ignored: the setting `user` finds no user in it"
        );
    }
    user
}

/// Begins a session under the token that the visitor has from now on. The app has logged the user in
/// already. If the store is away, the login is not recorded and the visitor stays unknown here.
pub(super) async fn begin(cx: &RequestContext<'_>, began: AppLogIn) -> SessionChange {
    let (worker, AppLogIn { user, token: next }) = (cx.worker, began);
    let old = cx.visitor.token.clone().filter(|old| *old != next);
    if let Some(old) = &old {
        worker.visits.rename(old, &next, &user);
    }
    let before = cx.visitor_token.before(worker, old);
    let merges = before.visitor.is_some();
    match worker.sessions.take_over(&worker.store, before, &next, &user, cx.now).await {
        Ok(()) => {
            cx.visitor_token.joined(&TokenContext::of(cx), &next, &user, merges);
            worker.thread_metrics.count(Count::LogIns);
        }
        Err(error) => tracing::debug!(%error, "storing a login to the app failed"),
    }
    SessionChange::Watched { user: Some(user) }
}

/// The scope of a login: the visitor's cookies after the response if the app is asked about them,
/// otherwise the domain of the app's cookie, or the host.
fn log_in_scope(cx: &RequestContext<'_>, headers: &HeaderMap, next: &StoredToken) -> LogInScope {
    let has = session_cookies::session_cookies_after(cx, headers);
    if cx.worker.settings.verify.is_some() {
        return LogInScope::of_cookies(&session_cookies::hash_of(cx, &has));
    }
    let (rules, sessions) = (&cx.worker.settings.cookies, &cx.worker.sessions);
    let host = &cx.admitted.site;
    let name = host.split_once(':').map_or(host.as_str(), |(name, _)| name);
    // SECURITY: only the cookie that gives the token counts. Another cookie, or one that is deleted,
    // says nothing about the token.
    let leading = rules.leading(&has);
    let gives = |value| rules.token.token(value).is_some_and(|it| sessions.stored(&it) == *next);
    let domains = apply_set_cookie::set_for_domains(headers, name, cx.now as u64)
        .filter(|(name, value, _)| leading == Some(*name) && gives(value))
        .map(|(_, _, domain)| domain);
    // Each domain is a suffix of the host's name, so the shortest one covers the others.
    let widest = domains.min_by_key(String::len);
    widest.map_or_else(|| LogInScope::of_host(host), |domain| LogInScope::of_domain(&domain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_the_whole_url_or_its_path() {
        let leads = |location: &'static str, pattern: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(LOCATION, HeaderValue::from_static(location));
            leads_to(&headers, &Pattern::parse(pattern).unwrap())
        };
        for (location, pattern, expected) in [
            ("/account", "/account*", true),
            ("https://shop.test/account?x=1", "/account*", true),
            ("https://shop.test/account", "https://shop.test/*", true),
            ("https://shop.test", "/", true),
            ("/login?failed=1", "/account*", false),
        ] {
            assert_eq!(leads(location, pattern), expected, "{location} {pattern}");
        }
    }
}
