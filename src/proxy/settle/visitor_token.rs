//! Tokens of visitors without a login: what a request brings, when one is made, and what becomes of it when
//! somebody logs in or out.
//!
//! The cookie is ours alone. It is taken off each request before anybody looks at cookies, so that no origin
//! sees it, no key holds it, and nobody is known or unknown by it. What a response says of it is added when the
//! response is whole, to that one response: no page is stored with it, and no one who waits gets it.

use std::cell::RefCell;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::http::header::{COOKIE, SET_COOKIE};
use ::http::{HeaderMap, HeaderValue};
use tokio::time::timeout;

use super::user_purge;
use crate::http::cookie::{cookies, rebuild};
use crate::http::host::Scheme;
use crate::ident::{Item, StoredToken, Token, User, VisitorToken};
use crate::policy::rate_limit::{Counters, Limit, Rate, Who};
use crate::proxy::stage::identify::Visitor;
use crate::proxy::{Case, NOWHERE, Room, Settings, deliver};
use crate::session::{Before, SessionCookie};
use crate::store::{
    Begins, Cart, CartAnswer, CartChange, CartOwner, Merged, StoreError, VisitorStore as _,
};
use crate::telemetry::metrics::Count;

/// New tokens that one address is given in a minute, and at once. Many people may share one.
const PER_MINUTE: NonZeroU32 = NonZeroU32::new(30).expect("it is not nothing");
/// Addresses that are counted at a time: of more, who was forgotten begins anew.
const COUNTED: usize = 50_000;
/// How long no page begins a token after the store did not take one: a Redis that only reads drops the
/// connection of who writes, and with it the look-ups of everybody.
const REST_MS: u64 = 30_000;
/// How long a visitor waits for the store to hand on, or forget, what his token has.
const PATIENCE: Duration = Duration::from_millis(250);

/// How visitors without a login are given tokens.
#[derive(Debug)]
pub struct VisitorTokens {
    cookie: SessionCookie,
    /// How many an address is given. `None`: none are given out any more, and the cookie is ours still.
    limit: Option<Limit>,
    /// Milliseconds since `started` until which none is begun, for the store did not take one.
    rests_until: AtomicU64,
    started: Instant,
}

impl VisitorTokens {
    /// Tokens in this cookie; `gives`: whether there are new ones.
    #[must_use]
    pub fn new(cookie: SessionCookie, gives: bool) -> Self {
        let rate = Rate { requests: PER_MINUTE, per: Duration::from_secs(60), burst: PER_MINUTE };
        let limit = || Limit::new("visitor_token".into(), rate, (Counters::new(COUNTED), 0));
        let (rests_until, started) = (AtomicU64::new(0), Instant::now());
        Self { cookie, limit: gives.then(limit), rests_until, started }
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether the store has not taken a token lately.
    fn rests(&self) -> bool {
        self.elapsed() < self.rests_until.load(Ordering::Relaxed)
    }

    fn rest(&self) {
        self.rests_until.store(self.elapsed().saturating_add(REST_MS), Ordering::Relaxed);
    }

    /// Whether a cookie is the one of these tokens.
    pub(in crate::proxy) fn is_named(&self, name: &[u8]) -> bool {
        name == self.cookie.name.as_bytes()
    }
}

/// What making or ending a token goes by.
#[derive(Clone, Copy)]
pub(in crate::proxy) struct Around<'a> {
    pub(in crate::proxy) room: &'a Room,
    pub(in crate::proxy) scheme: Scheme,
    /// The client's address.
    pub(in crate::proxy) address: Option<IpAddr>,
    /// Unix time in seconds.
    pub(in crate::proxy) now: f64,
}

impl<'a> Around<'a> {
    pub(in crate::proxy) fn of(case: &'a Case<'_>) -> Self {
        let (scheme, address) = (case.admitted.scheme, case.admitted.address);
        Self { room: case.room, scheme, address, now: case.now }
    }

    fn tokens(&self) -> Option<&'a VisitorTokens> {
        self.room.settings.visitor_tokens.as_ref()
    }

    /// A new token with its cookie.
    fn mint(&self) -> Result<New, Unchanged> {
        let tokens = self.tokens().ok_or(Unchanged::NotGiven)?;
        let limit = tokens.limit.as_ref().ok_or(Unchanged::NotGiven)?;
        if let Err(retry) = limit.take(Who::at(self.address.unwrap_or(NOWHERE))) {
            self.room.sheet.count(Count::VisitorTokensRefused);
            return Err(Unchanged::TooMany(retry));
        }
        let minted = Token::mint().map_err(|_| Unchanged::NotGiven)?;
        let cookie = tokens.cookie.set(&minted, self.scheme == Scheme::Https);
        Ok(New { token: VisitorToken::of(&minted), cookie: cookie.ok_or(Unchanged::NotGiven)? })
    }

    /// The `Set-Cookie` value that takes the cookie away.
    fn clear(&self) -> Option<HeaderValue> {
        self.tokens()?.cookie.clear(self.scheme == Scheme::Https)
    }
}

/// A token that nobody has yet.
struct New {
    token: VisitorToken,
    cookie: HeaderValue,
}

/// Why a cart was not changed.
#[derive(Debug, thiserror::Error)]
pub(in crate::proxy) enum Unchanged {
    /// The address was given too many tokens; the time after which there is one more.
    #[error("too many tokens for one address")]
    TooMany(Duration),
    /// None could be made.
    #[error("no token could be made")]
    NotGiven,
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The token of the visitor of a request, and what its response says of it.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Held(RefCell<State>);

#[derive(Debug, Default)]
struct State {
    /// What he has now.
    token: Option<VisitorToken>,
    /// Whether several cookies came: none counts, and another would be one more.
    is_twice: bool,
    /// What his browser is told.
    cookie: Option<HeaderValue>,
}

impl Held {
    /// Takes the cookie off a request. One that is malformed is as none.
    pub(in crate::proxy) fn take(&self, settings: &Settings, headers: &mut HeaderMap) {
        let Some(tokens) = &settings.visitor_tokens else { return };
        {
            let mut values =
                cookies(headers).filter(|(name, _)| tokens.is_named(name)).map(|(_, value)| value);
            let Some(first) = values.next() else { return };
            let mut state = self.0.borrow_mut();
            state.is_twice = values.next().is_some();
            state.token = VisitorToken::of_cookie(first).filter(|_| !state.is_twice);
        }
        let rest = rebuild(headers, |name| !tokens.is_named(name));
        headers.remove(COOKIE);
        if let Some(mut line) = rest {
            line.set_sensitive(true);
            headers.insert(COOKIE, line);
        }
    }

    fn any(&self) -> Option<VisitorToken> {
        self.0.borrow().token.clone()
    }

    /// The token that goes to a session, where tokens are given at all, and it is not known to be gone.
    fn to_merge(&self, room: &Room) -> Option<VisitorToken> {
        let gives = room.settings.visitor_tokens.as_ref().is_some_and(|all| all.limit.is_some());
        self.any().filter(|token| gives && !room.visitor_visits.is_gone(token))
    }

    /// His token, where it says what is his: who is logged in has a session, and of whom the store cannot say
    /// that may have one.
    pub(in crate::proxy) fn token(&self, visitor: &Visitor) -> Option<VisitorToken> {
        self.any().filter(|_| visitor.known().is_none() && !visitor.is_unsure())
    }

    /// Whether a token may be made for him: nobody is logged in, for certain.
    pub(in crate::proxy) fn may_begin(&self, settings: &Settings, visitor: &Visitor) -> bool {
        let gives = settings.visitor_tokens.as_ref().is_some_and(|tokens| tokens.limit.is_some());
        gives && visitor.is_nobody() && !self.0.borrow().is_twice
    }

    /// Records the visit behind the response, with what was viewed; makes a token where there is none and there
    /// is something to remember. Where none can be made, the page is served as ever. Two views at once by
    /// somebody new make two: his browser keeps one, and the other is cleaned in its time.
    pub(in crate::proxy) async fn remember(&self, case: &Case<'_>, viewed: Option<Item>) {
        if !case.route.visitor_token {
            return;
        }
        let visits = &case.room.visitor_visits;
        let token = self.token(&case.visitor).filter(|token| !visits.is_gone(token));
        match (token, viewed) {
            (Some(token), viewed) => visits.note(token, viewed, case.now),
            (None, Some(item)) if self.may_begin(&case.room.settings, &case.visitor) => {
                let around = Around::of(case);
                if around.tokens().is_some_and(|tokens| !tokens.rests()) {
                    self.begin(&around, &item).await;
                }
            }
            (None, _) => {}
        }
    }

    async fn begin(&self, around: &Around<'_>, item: &Item) {
        let begun = async {
            let new = around.mint()?;
            around.room.store.begin_visitor(&new.token, item, around.now).await?;
            Ok::<New, Unchanged>(new)
        };
        match begun.await {
            Ok(new) => self.give(around, new),
            Err(error) => {
                if matches!(error, Unchanged::Store(_)) {
                    around.tokens().inspect(|tokens| tokens.rest());
                }
                tracing::debug!(%error, "a visitor is given no token");
            }
        }
    }

    fn give(&self, around: &Around<'_>, New { token, cookie }: New) {
        around.room.sheet.count(Count::VisitorTokens);
        let mut state = self.0.borrow_mut();
        (state.token, state.cookie) = (Some(token), Some(cookie));
    }

    /// Changes the cart of a visitor without a login, in the store when it returns; makes a token where there
    /// is none, or the store does not have his. [`CartAnswer::NotLoggedIn`]: he may have none.
    pub(in crate::proxy) async fn change_cart(
        &self,
        around: &Around<'_>,
        visitor: &Visitor,
        change: &CartChange,
    ) -> Result<CartAnswer, Unchanged> {
        let (store, now) = (&around.room.store, around.now);
        if let Some(token) = self.token(visitor) {
            let answer = store.change_visitor_cart(&token, Begins::Before, change, now).await?;
            if answer != CartAnswer::NotLoggedIn {
                return Ok(answer);
            }
        }
        if !self.may_begin(&around.room.settings, visitor) {
            return Ok(CartAnswer::NotLoggedIn);
        }
        if puts_nothing(change) {
            return Ok(CartAnswer::Changed(Cart::new()));
        }
        let new = around.mint()?;
        let answer = store.change_visitor_cart(&new.token, Begins::Now, change, now).await?;
        if matches!(answer, CartAnswer::Changed(_)) {
            self.give(around, new);
        }
        Ok(answer)
    }

    /// What he has before a log-in to a session that takes the place of `session`.
    pub(in crate::proxy) fn before(&self, room: &Room, session: Option<StoredToken>) -> Before {
        Before { session, visitor: self.to_merge(room) }
    }

    /// A log-in has given to a session what his token had.
    pub(in crate::proxy) fn joined(&self, around: &Around<'_>, session: &StoredToken, user: &User) {
        self.clear_all(around);
        let Some(token) = self.to_merge(around.room) else { return };
        for (item, seen) in around.room.visitor_visits.take(&token) {
            around.room.visits.note(session.clone(), user.clone(), Some(item), seen);
        }
        around.room.visitor_visits.note_gone(&token);
        around.room.sheet.count(Count::VisitorTokensMerged);
        self.clear(around);
    }

    /// Gives what his token has to the session of a visitor who is known: he has logged in without an answer
    /// that we saw. Where the store cannot do it now, it is done with a later request.
    pub(in crate::proxy) async fn settle(&self, around: &Around<'_>, visitor: &Visitor) {
        let token = self.to_merge(around.room);
        let Some((token, (session, user))) = token.zip(visitor.known()) else { return };
        let merging = around.room.store.merge_visitor(&token, session, user);
        match timeout(PATIENCE, merging).await {
            // There may be nothing because it was merged a moment ago, and the answer came too late.
            Ok(Ok(Merged::Done | Merged::Nothing)) => {
                self.joined(around, session, user);
                let terms = around.room.sessions.terms(around.now);
                let (token, user) = (session.clone(), Some(user.clone()));
                let whose = CartOwner { token, user, now: around.now, terms };
                user_purge::has_changed_cart(around.room, &whose).await;
            }
            Ok(Ok(Merged::NoSession)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a visitor's token is not merged yet"),
            Err(_) => tracing::debug!("the store is slow: a visitor's token is not merged yet"),
        }
    }

    /// A log-out: who comes next to that browser begins with nothing. Where the store cannot be told, nobody
    /// has the token any more, and it is cleaned in its time.
    pub(in crate::proxy) async fn end(&self, around: &Around<'_>) {
        self.clear_all(around);
        let Some(token) = self.any() else { return };
        self.clear(around);
        around.room.visitor_visits.take(&token);
        around.room.visitor_visits.note_gone(&token);
        if !matches!(timeout(PATIENCE, around.room.store.forget_visitor(&token)).await, Ok(Ok(())))
        {
            tracing::debug!("a visitor's token lies in the store for its time");
        }
    }

    /// Where several cookies came, of which none counts: whichever is left would, later.
    fn clear_all(&self, around: &Around<'_>) {
        if self.0.borrow().is_twice {
            self.clear(around);
        }
    }

    fn clear(&self, around: &Around<'_>) {
        let mut state = self.0.borrow_mut();
        (state.token, state.cookie) = (None, around.clear());
    }

    /// Tells the browser, in the response to that very request: no cache may have it.
    pub(in crate::proxy) fn show(&self, headers: &mut HeaderMap) {
        if let Some(cookie) = self.0.borrow_mut().cookie.take() {
            headers.append(SET_COOKIE, cookie);
            deliver::keep_from_caches(headers);
        }
    }
}

/// Whether a change leaves an empty cart empty.
fn puts_nothing(change: &CartChange) -> bool {
    match change {
        CartChange::Empty => true,
        CartChange::Set(items) => items.iter().all(|(_, count)| *count <= 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ident::Token;

    #[test]
    fn a_change_that_puts_nothing_in_makes_no_token() {
        let item = |count| (Item::new("mug").unwrap(), count);
        for (change, expected) in [
            (CartChange::Empty, true),
            (CartChange::Set(vec![]), true),
            (CartChange::Set(vec![item(0), item(-1)]), true),
            (CartChange::Set(vec![item(0), item(1)]), false),
        ] {
            assert_eq!(puts_nothing(&change), expected, "{change:?}");
        }
    }

    #[test]
    fn what_is_held_does_not_print() {
        let minted = Token::mint().unwrap();
        let token = VisitorToken::of(&minted);
        let mut cookie = HeaderValue::try_from(minted.as_str()).unwrap();
        cookie.set_sensitive(true);
        let state = State { token: Some(token.clone()), is_twice: false, cookie: Some(cookie) };
        let shown = format!("{:?}", Held(RefCell::new(state)));
        assert!(!shown.contains(minted.as_str()) && !shown.contains(&token.as_str()[2..]));
    }
}
