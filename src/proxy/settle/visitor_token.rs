//! Tokens of visitors without a login: what a request brings, when one is made, and what becomes of it when
//! somebody logs in or out.
//!
//! The cookie is ours alone. It is taken off each request before anybody looks at cookies, so that no origin
//! sees it, no key holds it, and nobody is known or unknown by it. What a response says of it is added when the
//! response is whole, to that one response: no page is stored with it, and no one who waits gets it.

use std::net::IpAddr;
use std::time::Duration;

use ::http::HeaderValue;
use tokio::time::timeout;

use super::user_purge;
use crate::http::host::Scheme;
use crate::ident::{Item, StoredToken, Token, User, VisitorToken};
use crate::policy::rate_limit::Who;
use crate::proxy::context::{NOWHERE, RequestContext, WorkerContext};
use crate::proxy::visitor::Visitor;
use crate::proxy::visitor_token::{VisitorTokenState, VisitorTokens};
use crate::session::Before;
use crate::store::{
    Begins, Cart, CartAnswer, CartChange, CartOwner, Merged, StoreError, VisitorStore as _,
};
use crate::telemetry::metrics::Count;

/// How long a visitor waits for the store to hand on, or forget, what his token has.
const PATIENCE: Duration = Duration::from_millis(250);

/// What making or ending a token goes by.
#[derive(Clone, Copy)]
pub(in crate::proxy) struct Around<'a> {
    pub(in crate::proxy) worker: &'a WorkerContext,
    pub(in crate::proxy) scheme: Scheme,
    /// The client's address.
    pub(in crate::proxy) address: Option<IpAddr>,
    /// Unix time in seconds.
    pub(in crate::proxy) now: f64,
}

impl<'a> Around<'a> {
    pub(in crate::proxy) fn of(cx: &'a RequestContext<'_>) -> Self {
        let (scheme, address) = (cx.admitted.scheme, cx.admitted.address);
        Self { worker: cx.worker, scheme, address, now: cx.now }
    }

    fn tokens(&self) -> Option<&'a VisitorTokens> {
        self.worker.settings.visitor_tokens.as_ref()
    }

    /// A new token with its cookie.
    fn mint(&self) -> Result<New, Unchanged> {
        let tokens = self.tokens().ok_or(Unchanged::NotGiven)?;
        let limit = tokens.limit.as_ref().ok_or(Unchanged::NotGiven)?;
        if let Err(retry) = limit.take(Who::at(self.address.unwrap_or(NOWHERE))) {
            self.worker.sheet.count(Count::VisitorTokensRefused);
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

impl VisitorTokenState {
    /// The token that goes to a session, where tokens are given at all, and it is not known to be gone.
    fn to_merge(&self, worker: &WorkerContext) -> Option<VisitorToken> {
        let gives = worker.settings.visitor_tokens.as_ref().is_some_and(|all| all.limit.is_some());
        self.any().filter(|token| gives && !worker.visitor_visits.is_gone(token))
    }

    /// Records the visit behind the response, with what was viewed; makes a token where there is none and there
    /// is something to remember. Where none can be made, the page is served as ever. Two views at once by
    /// somebody new make two: his browser keeps one, and the other is cleaned in its time.
    pub(in crate::proxy) async fn remember(&self, cx: &RequestContext<'_>, viewed: Option<Item>) {
        if !cx.route.visitor_token {
            return;
        }
        let visits = &cx.worker.visitor_visits;
        let token = self.token(cx.visitor).filter(|token| !visits.is_gone(token));
        match (token, viewed) {
            (Some(token), viewed) => visits.note(token, viewed, cx.now),
            (None, Some(item))
                if self.may_begin(cx.worker.settings.visitor_tokens.as_ref(), cx.visitor) =>
            {
                let around = Around::of(cx);
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
            around.worker.store.begin_visitor(&new.token, item, around.now).await?;
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
        around.worker.sheet.count(Count::VisitorTokens);
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
        let (store, now) = (&around.worker.store, around.now);
        if let Some(token) = self.token(visitor) {
            let answer = store.change_visitor_cart(&token, Begins::Before, change, now).await?;
            if answer != CartAnswer::NotLoggedIn {
                return Ok(answer);
            }
        }
        if !self.may_begin(around.worker.settings.visitor_tokens.as_ref(), visitor) {
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
    pub(in crate::proxy) fn before(
        &self,
        worker: &WorkerContext,
        session: Option<StoredToken>,
    ) -> Before {
        Before { session, visitor: self.to_merge(worker) }
    }

    /// A log-in has given to a session what his token had.
    pub(in crate::proxy) fn joined(&self, around: &Around<'_>, session: &StoredToken, user: &User) {
        self.clear_all(around);
        let Some(token) = self.to_merge(around.worker) else { return };
        for (item, seen) in around.worker.visitor_visits.take(&token) {
            around.worker.visits.note(session.clone(), user.clone(), Some(item), seen);
        }
        around.worker.visitor_visits.note_gone(&token);
        around.worker.sheet.count(Count::VisitorTokensMerged);
        self.clear(around);
    }

    /// Gives what his token has to the session of a visitor who is known: he has logged in without an answer
    /// that we saw. Where the store cannot do it now, it is done with a later request.
    pub(in crate::proxy) async fn settle(&self, around: &Around<'_>, visitor: &Visitor) {
        let token = self.to_merge(around.worker);
        let Some((token, (session, user))) = token.zip(visitor.known()) else { return };
        let merging = around.worker.store.merge_visitor(&token, session, user);
        match timeout(PATIENCE, merging).await {
            // There may be nothing because it was merged a moment ago, and the answer came too late.
            Ok(Ok(Merged::Done | Merged::Nothing)) => {
                self.joined(around, session, user);
                let terms = around.worker.sessions.terms(around.now);
                let (token, user) = (session.clone(), Some(user.clone()));
                let whose = CartOwner { token, user, now: around.now, terms };
                user_purge::has_changed_cart(around.worker, &whose).await;
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
        around.worker.visitor_visits.take(&token);
        around.worker.visitor_visits.note_gone(&token);
        if !matches!(
            timeout(PATIENCE, around.worker.store.forget_visitor(&token)).await,
            Ok(Ok(()))
        ) {
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
}
