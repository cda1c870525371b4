//! Tokens of visitors without a login: the token that a request carries, when a token is made, and what
//! becomes of it at a login or logout.
//!
//! The cookie belongs to the proxy. It is removed from each request before any cookie is evaluated. The
//! origin does not see it, it is no part of a key, and it does not identify a visitor. A response's
//! `Set-Cookie` for it is added when the response is complete, to this response only. It is never stored
//! with a page or sent to a request that waits for the same page.

use std::net::IpAddr;
use std::time::Duration;

use ::http::HeaderValue;
use anteroom_fault::patience;
use anteroom_http::host::Scheme;
use anteroom_http::ident::{Item, StoredToken, Token, User, VisitorToken};
use anteroom_policy::rate_limit::RateKey;
use anteroom_session::PreviousIdentity;
use anteroom_store::{
    Cart, CartAnswer, CartChange, CartOwner, MergeResult, StoreError, TokenCreation,
    VisitorStore as _,
};
use anteroom_telemetry::metrics::Count;
use tokio::time::timeout;

use super::user_purge;
use crate::context::{NOWHERE, RequestContext, WorkerContext};
use crate::visitor::Visitor;
use crate::visitor_token::{VisitorTokenState, VisitorTokens};

/// How long a response waits for the store to hand over or delete the data of a token.
const TIMEOUT: Duration = Duration::from_millis(250);

/// What is needed to make or end a token.
#[derive(Clone, Copy)]
pub(crate) struct TokenContext<'a> {
    pub(crate) worker: &'a WorkerContext,
    pub(crate) scheme: Scheme,
    /// The client's address.
    pub(crate) address: Option<IpAddr>,
    /// Unix time in seconds.
    pub(crate) now: f64,
}

impl<'a> TokenContext<'a> {
    pub(crate) fn of(cx: &'a RequestContext<'_>) -> Self {
        let (scheme, address) = (cx.admitted.scheme, cx.admitted.address);
        Self { worker: cx.worker, scheme, address, now: cx.now }
    }

    fn tokens(&self) -> Option<&'a VisitorTokens> {
        self.worker.settings.visitor_tokens.as_ref()
    }

    /// Makes a new token and its cookie.
    fn mint(&self) -> Result<NewToken, CartChangeError> {
        let tokens = self.tokens().ok_or(CartChangeError::NotGiven)?;
        let limit = tokens.limit.as_ref().ok_or(CartChangeError::NotGiven)?;
        if let Err(retry) = limit.take(RateKey::at(self.address.unwrap_or(NOWHERE))) {
            self.worker.thread_metrics.count(Count::VisitorTokensRefused);
            return Err(CartChangeError::TooMany(retry));
        }
        let minted = Token::mint().map_err(|_| CartChangeError::NotGiven)?;
        let cookie = tokens.cookie.set(&minted, self.scheme == Scheme::Https);
        Ok(NewToken {
            token: VisitorToken::of(&minted),
            cookie: cookie.ok_or(CartChangeError::NotGiven)?,
        })
    }

    /// The `Set-Cookie` value that deletes the cookie.
    fn clear(&self) -> Option<HeaderValue> {
        self.tokens()?.cookie.clear(self.scheme == Scheme::Https)
    }
}

/// A token that has not been given out yet.
struct NewToken {
    token: VisitorToken,
    cookie: HeaderValue,
}

/// Why a cart was not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CartChangeError {
    /// The address was given too many tokens. The next one is available after this time.
    #[error("too many tokens for one address")]
    TooMany(Duration),
    /// A token could not be made.
    #[error("no token could be made")]
    NotGiven,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl VisitorTokenState {
    /// The token that the request carries, if tokens are in use.
    fn in_use(&self, worker: &WorkerContext) -> Option<VisitorToken> {
        let gives = worker.settings.visitor_tokens.as_ref().is_some_and(|all| all.limit.is_some());
        self.any().filter(|_| gives)
    }

    /// The token to merge into a session, if it is not known to be gone.
    fn to_merge(&self, worker: &WorkerContext) -> Option<VisitorToken> {
        self.in_use(worker).filter(|token| !worker.visitor_visits.is_gone(token))
    }

    /// Records the visit after the response, with the item that was viewed. If the visitor has no token
    /// and there is something to remember, a token is made. If that fails, the page is served as usual.
    /// Two concurrent views by a new visitor make two tokens; the browser keeps one, and the other
    /// expires.
    pub(crate) async fn remember(&self, cx: &RequestContext<'_>, viewed: Option<Item>) {
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
                let around = TokenContext::of(cx);
                if around.tokens().is_some_and(|tokens| !tokens.rests()) {
                    self.begin(&around, &item).await;
                }
            }
            (None, _) => {}
        }
    }

    async fn begin(&self, around: &TokenContext<'_>, item: &Item) {
        let begun = async {
            let new = around.mint()?;
            around.worker.store.begin_visitor(&new.token, item, around.now).await?;
            Ok::<NewToken, CartChangeError>(new)
        };
        match begun.await {
            Ok(new) => self.give(around, new),
            Err(error) => {
                if matches!(error, CartChangeError::Store(_)) {
                    around.tokens().inspect(|tokens| tokens.rest());
                }
                tracing::debug!(%error, "a visitor gets no token");
            }
        }
    }

    fn give(&self, around: &TokenContext<'_>, NewToken { token, cookie }: NewToken) {
        around.worker.thread_metrics.count(Count::VisitorTokens);
        let mut state = self.0.borrow_mut();
        (state.token, state.cookie) = (Some(token), Some(cookie));
    }

    /// Changes the cart of a visitor without a login; the store holds the change when this returns.
    /// Makes a token if the visitor has none or the store does not know it. [`CartAnswer::NotLoggedIn`]:
    /// the visitor may not have one.
    pub(crate) async fn change_cart(
        &self,
        around: &TokenContext<'_>,
        visitor: &Visitor,
        change: &CartChange,
    ) -> Result<CartAnswer, CartChangeError> {
        let (store, now) = (&around.worker.store, around.now);
        if let Some(token) = self.token(visitor) {
            let answer =
                store.change_visitor_cart(&token, TokenCreation::Before, change, now).await?;
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
        let answer = store.change_visitor_cart(&new.token, TokenCreation::Now, change, now).await?;
        if matches!(answer, CartAnswer::Changed(_)) {
            self.give(around, new);
        }
        Ok(answer)
    }

    /// What the visitor has before a login to a session that replaces `session`.
    pub(crate) fn before(
        &self,
        worker: &WorkerContext,
        session: Option<StoredToken>,
    ) -> PreviousIdentity {
        PreviousIdentity { session, visitor: self.to_merge(worker) }
    }

    /// Ends the token after a login. `merges`: the login has moved the token's data to the session; if not, the token
    /// was gone before.
    pub(crate) fn joined(
        &self,
        around: &TokenContext<'_>,
        session: &StoredToken,
        user: &User,
        merges: bool,
    ) {
        self.clear_all(around);
        let Some(token) = self.in_use(around.worker) else { return };
        self.clear(around);
        // SECURITY: what is left of a token that was gone, or that has ended meanwhile, is not this user's.
        let Some(views) = around.worker.visitor_visits.end(&token).filter(|_| merges) else {
            return;
        };
        for (item, seen) in views {
            around.worker.visits.note(session.clone(), user.clone(), Some(item), seen);
        }
        around.worker.thread_metrics.count(Count::VisitorTokensMerged);
    }

    /// Moves the token's data to the session of a known visitor, for a login that the proxy did not
    /// see. If the store cannot do it now, a later request does it.
    pub(crate) async fn settle(&self, around: &TokenContext<'_>, visitor: &Visitor) {
        let token = self.to_merge(around.worker);
        let Some((token, (session, user))) = token.zip(visitor.known()) else { return };
        let merging = around.worker.store.merge_visitor(&token, session, user);
        match timeout(patience(TIMEOUT), merging).await {
            // `Nothing` may mean that it was merged a moment ago and the store's answer came too late.
            Ok(Ok(MergeResult::Done | MergeResult::Nothing)) => {
                self.joined(around, session, user, true);
                let terms = around.worker.sessions.terms(around.now);
                let (token, user) = (session.clone(), Some(user.clone()));
                let owner = CartOwner { token, user, now: around.now, terms };
                user_purge::has_changed_cart(around.worker, &owner).await;
            }
            Ok(Ok(MergeResult::NoSession)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a visitor's token is not merged yet"),
            Err(_) => tracing::debug!("the store is slow: a visitor's token is not merged yet"),
        }
    }

    /// Ends the token at a logout, so that the next user of the browser starts without data. If the
    /// store cannot be reached, the token is out of use all the same, and expires there.
    pub(crate) async fn end(&self, around: &TokenContext<'_>) {
        self.clear_all(around);
        let Some(token) = self.any() else { return };
        self.clear(around);
        around.worker.visitor_visits.end(&token);
        let forgetting = around.worker.store.forget_visitor(&token);
        if !matches!(timeout(patience(TIMEOUT), forgetting).await, Ok(Ok(()))) {
            tracing::debug!("deleting a visitor's token from the store failed");
        }
    }

    /// Deletes the cookie if the request carries it twice. Neither of the two counts, but a single one that
    /// remains would count later.
    fn clear_all(&self, around: &TokenContext<'_>) {
        if self.0.borrow().is_twice {
            self.clear(around);
        }
    }

    fn clear(&self, around: &TokenContext<'_>) {
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
