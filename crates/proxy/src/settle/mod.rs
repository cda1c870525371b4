//! What the origin's response means for the visitor's session, cart and pages, and the one place that
//! carries it out.
//!
//! `effects` reads it from the head of the response, and changes nothing. [`settle`] carries it out, in
//! order, before the response goes out: the session, the cart, and the invalidation. The invalidation
//! also runs when the session could not be written.

mod app_login;
mod change;
pub(crate) mod effects;
mod forget;
mod invalidate;
mod item_and_cart;
mod purge_rules;
mod session;
mod session_cookies;
mod session_end;
pub(crate) mod unanswered_change;
pub(crate) mod user_purge;
pub(crate) mod visit;
pub(crate) mod visitor_token;
#[cfg(feature = "testbed")]
pub(crate) mod words;

use anteroom_http::ident::Item;

use self::change::{SessionChange, SessionEffect};
use self::effects::Effects;
use super::context::RequestContext;
use super::deliver::own::SettledChanges;
use super::error::Error;

/// An unsafe request is about to be sent, or was: the app may log in a visitor that is not known, in the store
/// itself. What was looked up before is void.
pub(crate) fn expect_log_in(cx: &RequestContext<'_>) {
    if !cx.head.method.is_safe()
        && cx.visitor.known().is_none()
        && let Some(token) = &cx.visitor.token
    {
        cx.worker.sessions.may_log_in(token);
    }
}

/// Carries out what a response means.
pub(crate) async fn settle(
    cx: &RequestContext<'_>,
    effects: Effects,
) -> Result<SettledChanges, Error> {
    let Effects { session, cart, item, voided, ends_own_pages, changed } = effects;
    let done = session_and_cart(cx, session, cart).await;
    session_cookies::void(cx, &voided).await;
    let mut targets = match &done {
        Ok((change, _)) => user_purge::targets_of(cx, change, ends_own_pages),
        Err(_) => Vec::new(),
    };
    if matches!(done, Ok((_, true))) {
        targets.extend(user_purge::purge_targets(cx));
    }
    // The origin has changed its pages, whether or not the session could be written.
    match &changed {
        Some(changed) => invalidate::invalidate(cx, changed, targets).await,
        None if !targets.is_empty() => forget::forget(cx.worker, &[], &targets, &[]).await,
        None => {}
    }
    let (change, has_filled_cart) = done?;
    Ok(SettledChanges { cookie: change.cookie(), item, has_filled_cart })
}

/// Writes the session, then the cart, because the cart belongs to the session that results. Returns
/// whether the cart was changed, too.
async fn session_and_cart(
    cx: &RequestContext<'_>,
    session: SessionEffect,
    cart: Vec<(Item, i64)>,
) -> Result<(SessionChange, bool), Error> {
    let change = session::carry_out(cx, session).await?;
    if cart.is_empty() {
        return Ok((change, false));
    }
    match Box::pin(item_and_cart::fill_cart(cx, cart, &change)).await {
        Ok(has_filled_cart) => Ok((change, has_filled_cart)),
        Err(error) => Err(Error::Cart { source: error.into(), cookie: change.cookie() }),
    }
}
