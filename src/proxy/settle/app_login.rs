//! Log-ins and log-outs of an app that keeps its own sessions: by its cookies, and by rules on its requests.
//!
//! What the app says of a visitor when it is asked is in `verify`.

use std::rc::Rc;

use ::http::header::{LOCATION, SET_COOKIE};
use ::http::{HeaderMap, HeaderValue, StatusCode};

use super::login;
use super::login::Change;
use super::visitor_token::Around;
use crate::http::cookie::cookies;
use crate::http::extract::{Finder, Seen};
use crate::http::pattern::Pattern;
use crate::http::{apply_set_cookie, set_cookie};
use crate::ident::{Bond, StoredToken, User};
use crate::origin::Ear;
use crate::proxy::context::RequestContext;
use crate::proxy::error::Error;
use crate::proxy::login_rules::{LoginBody, LoginRule, LoginUser, LogoutRule, Success};
use crate::proxy::stage::verify;
use crate::session::Ending;
use crate::telemetry::access_log::VisitorClass;
use crate::telemetry::metrics::Count;

/// The most of a log-in's body that is looked at, in bytes.
const HEARD_MAX: usize = 64 << 10;

impl Success {
    fn holds(&self, case: &RequestContext<'_>, status: StatusCode, headers: &HeaderMap) -> bool {
        let now = case.now as u64;
        let is_session = |name| case.room.settings.cookies.is_session(name);
        // SECURITY: a session's that he came with may have been planted, and many apps send it again with each
        // answer.
        let is_new =
            |pair| !cookies(&case.head.headers).any(|came| came == pair) || !is_session(pair.0);
        let sets = |pattern: &Pattern| {
            let lines = headers.get_all(SET_COOKIE).iter().zip(set_cookie::pairs(headers));
            lines.into_iter().any(|(line, pair)| {
                pattern.matches(pair.0) && !set_cookie::clears(line.as_bytes(), now) && is_new(pair)
            })
        };
        let clears =
            |pattern: &Pattern| set_cookie::cleared(headers, now).any(|name| pattern.matches(name));
        (self.status.is_empty() || self.status.contains(&status.as_u16()))
            && self.set_cookie.as_ref().is_none_or(sets)
            && self.clears_cookie.as_ref().is_none_or(clears)
            && self.location.as_ref().is_none_or(|pattern| leads_to(headers, pattern))
            && self.header.as_ref().is_none_or(|name| headers.contains_key(name))
    }
}

fn leads_to(headers: &HeaderMap, pattern: &Pattern) -> bool {
    let Some(location) = headers.get(LOCATION).map(HeaderValue::as_bytes) else { return false };
    let text = String::from_utf8_lossy(location);
    let path = text.split_once("://").map(|(_, rest)| rest.find('/').map_or("/", |at| &rest[at..]));
    pattern.matches(location) || path.is_some_and(|path| pattern.matches(path.as_bytes()))
}

impl LoginBody {
    /// What hears the body as it goes by, where it is needed.
    pub(in crate::proxy) fn ear(case: &RequestContext<'_>) -> Option<Ear> {
        let rule = case.room.settings.watched.login.as_ref()?;
        let listens = matches!(rule.user, Some(LoginUser::Form(_) | LoginUser::Json(_)));
        if !listens || !case.rules().sessions || !case.matches(&rule.matching) {
            return None;
        }
        let heard = Rc::clone(&case.heard.0);
        heard.borrow_mut().clear();
        Some(Box::new(move |part| {
            let mut heard = heard.borrow_mut();
            let room = HEARD_MAX.saturating_sub(heard.len());
            heard.extend_from_slice(&part[..part.len().min(room)]);
        }))
    }

    fn user(&self, from: &LoginUser) -> Option<User> {
        let body = self.0.borrow();
        let name = match from {
            LoginUser::Answer(_) => return None,
            LoginUser::Form(field) => form_value(&body, field)?,
            LoginUser::Json(pointer) => {
                let headers = HeaderMap::new();
                let seen = Seen { status: StatusCode::OK, headers: &headers, body: &body };
                Finder::Json(pointer.clone()).find(seen)?
            }
        };
        Some(User::new(name.trim_ascii())?.unconfirmed())
    }
}

/// The value of a field in a form as browsers send it (`application/x-www-form-urlencoded`).
fn form_value(body: &[u8], field: &str) -> Option<Vec<u8>> {
    let decoded = |text: &[u8]| -> Vec<u8> {
        let spaced: Vec<u8> =
            text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
        percent_encoding::percent_decode(&spaced).collect()
    };
    let mut values = body.split(|&byte| byte == b'&').filter_map(|pair| {
        let at = pair.iter().position(|&byte| byte == b'=')?;
        (decoded(&pair[..at]) == field.as_bytes()).then(|| decoded(&pair[at + 1..]))
    });
    // Of two an app may take either.
    values.next().filter(|_| values.next().is_none())
}

/// Carries out what an answer of the app means for the visitor's session. Returns whether it has begun one,
/// and for whom, or ended one.
pub(in crate::proxy) async fn carry_out(
    case: &RequestContext<'_>,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Change, Error> {
    let room = case.room;
    let (watched, rules) = (&room.settings.watched, &room.settings.cookies);
    let after = verify::session_cookies_after(case, headers);
    let next = rules.only_token_of(&after).map(|token| room.sessions.stored(&token));
    let came = cookies(&case.head.headers).filter(|(name, _)| rules.is_session(name));
    let came: Vec<_> = came.collect();
    // A stale one of several may go while the session goes on.
    let is_cleared =
        rules.leading(&came).is_some_and(|name| !after.iter().any(|(left, _)| *left == name));
    let logs_out = |rule: &LogoutRule| {
        case.matches(&rule.matching) && rule.success.holds(case, status, headers)
    };
    let logs_in = |rule: &&LoginRule| {
        case.matches(&rule.matching) && rule.success.holds(case, status, headers)
    };
    if let (Some(rule), Some(next)) = (watched.login.as_ref().filter(logs_in), &next) {
        return Ok(match begin(case, rule, (status, headers), next.clone()).await {
            Some(user) => Change::Watched { user: Some(user) },
            None => Change::Nothing,
        });
    }
    let is_told = watched.logout.as_ref().is_some_and(logs_out);
    if is_cleared || is_told {
        let was_somebody = end(case, &after, is_told).await?;
        // From who is nobody apps take stale cookies, and that is no log-out.
        if is_told || was_somebody {
            case.held.end(&Around::of(case)).await;
        }
        return Ok(Change::Watched { user: None });
    }
    Ok(Change::Nothing)
}

/// Ends the visitor's session. A token that his browser has forgotten, for it is not in the session cookies
/// that he has left, is barred where the app could take it for somebody's still. Returns whether he may have
/// been somebody: who logs out as a rule says (`is_told`) may be, whatever is remembered of him, for a log-in that
/// another proxy saw while the store was away is known to that one alone.
async fn end(
    case: &RequestContext<'_>,
    left: &[(&[u8], &[u8])],
    is_told: bool,
) -> Result<bool, Error> {
    let (room, visitor) = (case.room, &case.visitor);
    // What is remembered here may be from before his log-in at another proxy, a second ago.
    let is_nobody = visitor.class == VisitorClass::Anonymous
        && !is_told
        && match &visitor.carried {
            Some(carried) => room.verified.is_nobody(&room.store, carried).await,
            None => true,
        };
    if let (Some(verify), Some(carried)) = (&room.settings.verify, visitor.carried) {
        room.verified.void(&room.store, &[carried], verify.mark_time(), case.now).await;
    }
    if is_nobody {
        return Ok(false);
    }
    let asks = room.settings.verify.is_some();
    let rules = &room.settings.cookies;
    let left = left.iter().filter_map(|(_, value)| rules.token.token(value));
    let left: Vec<StoredToken> = left.map(|token| room.sessions.stored(&token)).collect();
    let ended = visitor.token.iter().map(|token| match asks && !left.contains(token) {
        true => (token, Ending::Barred),
        false => (token, Ending::Removed),
    });
    let how = if asks { Ending::Barred } else { Ending::Removed };
    let rivals = visitor.rivals.iter().map(|token| (token, how));
    login::end(case, ended.chain(rivals)).await?;
    if visitor.class == VisitorClass::Known {
        room.sheet.count(Count::LogOuts);
    }
    Ok(true)
}

/// Begins a session under the token that the visitor has from now on, and returns whose it is. The app has
/// logged him in: where the store is away he is unknown to us, and no more.
async fn begin(
    case: &RequestContext<'_>,
    rule: &LoginRule,
    (status, headers): (StatusCode, &HeaderMap),
    next: StoredToken,
) -> Option<User> {
    let room = case.room;
    let user = match &rule.user {
        None => return None,
        Some(LoginUser::Answer(finder)) => {
            let found = finder.find(Seen { status, headers, body: &[] });
            found.and_then(|name| User::new(&name))
        }
        Some(said) => case.heard.user(said),
    };
    let Some(user) = user else {
        tracing::warn!("a log-in by [session.login] does not say whose it is: user finds nothing");
        return None;
    };
    let user = user.bound_to(bond(case, headers, &next));
    let old = case.visitor.token.clone().filter(|old| *old != next);
    if let Some(old) = &old {
        room.visits.rename(old, &next, &user);
    }
    let before = case.held.before(case.room, old);
    match room.sessions.take_over(&room.store, before, &next, &user, case.now).await {
        Ok(()) => {
            case.held.joined(&Around::of(case), &next, &user);
            room.sheet.count(Count::LogIns);
        }
        Err(error) => tracing::debug!(%error, "a log-in to the app could not be stored"),
    }
    Some(user)
}

/// What a log-in holds for: the cookies that the visitor has now, where the app is asked about them, else the
/// domain to which the app gives its cookie, or the host.
fn bond(case: &RequestContext<'_>, headers: &HeaderMap, next: &StoredToken) -> Bond {
    let has = verify::session_cookies_after(case, headers);
    if case.room.settings.verify.is_some() {
        return Bond::of_cookies(&verify::hash_of(case, &has));
    }
    let (rules, sessions) = (&case.room.settings.cookies, &case.room.sessions);
    let host = &case.admitted.site;
    let name = host.split_once(':').map_or(host.as_str(), |(name, _)| name);
    // SECURITY: of the cookie that gives the token alone. Another, or one that only goes, says nothing of it.
    let leading = rules.leading(&has);
    let gives = |value| rules.token.token(value).is_some_and(|it| sessions.stored(&it) == *next);
    let domains = apply_set_cookie::set_for_domains(headers, name, case.now as u64)
        .filter(|(name, value, _)| leading == Some(*name) && gives(value))
        .map(|(_, _, domain)| domain);
    // Each is the end of the host's name: the shortest holds the others.
    let widest = domains.min_by_key(String::len);
    widest.map_or_else(|| Bond::of_host(host), |domain| Bond::of_domain(&domain))
}

/// Takes the cookies away that were logged out before, and came again.
pub(in crate::proxy) fn clear_barred(case: &RequestContext<'_>, headers: &mut HeaderMap) {
    if !case.visitor.is_barred {
        return;
    }
    let rules = &case.room.settings.cookies;
    let came = cookies(&case.head.headers).map(|(name, _)| name);
    let stale: Vec<&[u8]> = came.filter(|name| rules.may_be_session(name)).collect();
    for name in stale {
        if set_cookie::names(headers).any(|set| set == name) {
            continue;
        }
        let line = [name, b"=; Path=/; Max-Age=0"].concat();
        if let Ok(line) = HeaderValue::from_bytes(&line) {
            headers.append(SET_COOKIE, line);
        }
    }
    crate::proxy::deliver::keep_from_caches(headers);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_a_form_is_read_as_browsers_write_it() {
        let body = b"sectok=&u=Al%C3%AFce+B&p=secret&p=other";
        assert_eq!(form_value(body, "u").unwrap(), "Al\u{ef}ce B".as_bytes());
        assert_eq!(form_value(body, "sectok").unwrap(), b"");
        assert_eq!(form_value(body, "x"), None);
        assert_eq!(form_value(body, "p"), None, "it came twice");
    }

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
