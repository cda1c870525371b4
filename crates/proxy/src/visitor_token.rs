//! The token of a visitor without a login: its cookie, and what a request carries of it.
//!
//! The cookie belongs to the proxy. It is removed from each request before cookies are evaluated, so
//! that the origin does not see it and no key contains it. `settle::visitor_token` handles what becomes
//! of a token.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anteroom_fault::fault;

use ::http::header::COOKIE;
use ::http::{HeaderMap, HeaderValue};
use anteroom_http::cookie::{cookies, rebuild};
use anteroom_http::ident::VisitorToken;
use anteroom_policy::rate_limit::{Limit, Rate, RateLimitCounters};
use anteroom_session::SessionCookie;

use crate::visitor::Visitor;

/// How tokens are given to visitors without a login.
#[derive(Debug)]
pub struct VisitorTokens {
    pub(crate) cookie: SessionCookie,
    /// The rate limit per address. `None`: no more tokens are given out, but the cookie still belongs to
    /// the proxy.
    pub(crate) limit: Option<Limit>,
    /// Milliseconds since `started` until which no token is begun, because the store failed to take one.
    pub(crate) rests_until: AtomicU64,
    pub(crate) started: Instant,
}

impl VisitorTokens {
    /// Tokens in this cookie; `gives`: whether new ones are given out.
    #[must_use]
    pub fn new(cookie: SessionCookie, gives: bool) -> Self {
        let rate = Rate { requests: PER_MINUTE, per: Duration::from_secs(60), burst: PER_MINUTE };
        let limit = || Limit::new("visitor_token".into(), rate, RateLimitCounters::new(COUNTED), 0);
        let (rests_until, started) = (AtomicU64::new(0), Instant::now());
        Self { cookie, limit: gives.then(limit), rests_until, started }
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether the store failed to take a token recently.
    pub(crate) fn rests(&self) -> bool {
        self.elapsed() < self.rests_until.load(Ordering::Relaxed)
    }

    pub(crate) fn rest(&self) {
        self.rests_until.store(self.elapsed().saturating_add(REST_MS), Ordering::Relaxed);
    }

    /// Whether a cookie is the one of these tokens.
    pub(crate) fn is_named(&self, name: &[u8]) -> bool {
        name == self.cookie.name.as_bytes()
    }
}

/// The new tokens that one address gets in a minute, and at once. Many people may share an address.
const PER_MINUTE: NonZeroU32 = NonZeroU32::new(30).expect("it is not nothing");

/// The addresses that are counted at a time. Beyond that, an address that was forgotten starts again.
const COUNTED: usize = 50_000;

/// How long pages begin no token after the store failed to take one, in milliseconds. A read-only Redis
/// closes the connection that writes, and all lookups on it fail.
const REST_MS: u64 = 30_000;

/// The token of a request's visitor, and the cookie for its response.
#[derive(Debug, Default)]
pub(crate) struct VisitorTokenState(pub(crate) RefCell<State>);

#[derive(Debug, Default)]
pub(crate) struct State {
    /// The token that the visitor has now.
    pub(crate) token: Option<VisitorToken>,
    /// Whether several cookies came. None of them counts then, and no further one is added.
    pub(crate) is_twice: bool,
    /// The `Set-Cookie` for the browser.
    pub(crate) cookie: Option<HeaderValue>,
}

impl VisitorTokenState {
    /// Removes the cookie from a request and keeps its token. A malformed cookie counts as none.
    pub(crate) fn take(&self, tokens: Option<&VisitorTokens>, headers: &mut HeaderMap) {
        let Some(tokens) = tokens else { return };
        {
            let mut values =
                cookies(headers).filter(|(name, _)| tokens.is_named(name)).map(|(_, value)| value);
            let Some(first) = values.next() else { return };
            let mut state = self.0.borrow_mut();
            state.is_twice = values.next().is_some();
            state.token = VisitorToken::of_cookie(first).filter(|_| !state.is_twice);
        }
        if fault!("shown") {
            return;
        }
        let rest = rebuild(headers, |name| !tokens.is_named(name));
        headers.remove(COOKIE);
        if let Some(mut line) = rest {
            line.set_sensitive(true);
            headers.insert(COOKIE, line);
        }
    }

    pub(crate) fn any(&self) -> Option<VisitorToken> {
        self.0.borrow().token.clone()
    }

    /// The visitor's token, if it identifies the visitor's data. A logged-in visitor has a session
    /// instead, and a visitor that the store could not identify may have one.
    pub(crate) fn token(&self, visitor: &Visitor) -> Option<VisitorToken> {
        self.any().filter(|_| visitor.known().is_none() && !visitor.is_unsure())
    }

    /// Whether a token may be made for the visitor: only if the visitor is certainly logged out.
    pub(crate) fn may_begin(&self, tokens: Option<&VisitorTokens>, visitor: &Visitor) -> bool {
        let gives = tokens.is_some_and(|tokens| tokens.limit.is_some());
        gives && visitor.is_anonymous() && !self.0.borrow().is_twice
    }
}

#[cfg(test)]
mod tests {
    use anteroom_http::ident::Token;

    use super::*;

    #[test]
    fn debug_output_does_not_show_the_token() {
        let minted = Token::mint().unwrap();
        let token = VisitorToken::of(&minted);
        let mut cookie = HeaderValue::try_from(minted.as_str()).unwrap();
        cookie.set_sensitive(true);
        let state = State { token: Some(token.clone()), is_twice: false, cookie: Some(cookie) };
        let shown = format!("{:?}", VisitorTokenState(RefCell::new(state)));
        assert!(!shown.contains(minted.as_str()) && !shown.contains(&token.as_str()[2..]));
    }
}
