//! Purges pages that belong to one user: selects the owner, and the events that end them.
//!
//! They end like other purges, by a number in a slot that stands for the user. This is one step for any
//! number of pages. It takes effect here before the response goes out, and elsewhere within the second
//! in which all purges are learnt.

use ::http::HeaderMap;

use super::change::Change;
use super::forget::forget;
use super::session_cookies;
use crate::cache::purge::scope::{Aim, Scope};
use crate::http::apply_set_cookie::Changed;
use crate::http::set_cookie;
use crate::ident::{StoredToken, User};
use crate::proxy::context::{RequestContext, WorkerContext};
use crate::store::CartOwner;
use crate::telemetry::access_log::VisitorClass;

/// The most rival tokens that are taken for the visitor's. Each one is a mark in the store.
const RIVALS_MAX: usize = 4;

/// The purge of all that belongs to a visitor, after the visitor changed something. For a known user it
/// covers the user and all sessions; for an unknown visitor, the sessions that may be the visitor's.
/// Nothing is stored for an anonymous visitor.
pub(in crate::proxy) fn aims(cx: &RequestContext<'_>) -> Vec<Aim> {
    let visitor = &cx.visitor;
    if visitor.class == VisitorClass::Anonymous {
        return Vec::new();
    }
    let tokens = visitor.token.iter().chain(visitor.rivals.iter().take(RIVALS_MAX));
    aims_at(cx.worker, visitor.user(), tokens)
}

/// The purge of all pages of a user and of some sessions.
fn aims_at<'t>(
    worker: &WorkerContext,
    user: Option<&User>,
    tokens: impl Iterator<Item = &'t StoredToken>,
) -> Vec<Aim> {
    if !worker.settings.routes.keep_users() {
        return Vec::new();
    }
    let user = user.map(|user| Scope::User(user.as_bytes()));
    let sessions = tokens.map(|token| Scope::Session(token.as_str()));
    user.into_iter().chain(sessions).map(|scope| scope.aim(true)).collect()
}

/// Purges the pages that may show a cart, before the client learns that the cart was changed.
pub(in crate::proxy) async fn has_changed_cart(worker: &WorkerContext, whose: &CartOwner) {
    let aims = aims_at(worker, whose.user.as_ref(), std::iter::once(&whose.token));
    if !aims.is_empty() {
        forget(worker, &[], &aims, &[]).await;
    }
}

/// Whether a response changes the session of an app that keeps its own, judged by the session cookies.
/// Many apps renew them with every response.
pub(super) fn changes_session(cx: &RequestContext<'_>, headers: &HeaderMap) -> bool {
    let renews = cx.head.method.is_safe() && cx.visitor.known().is_some();
    let is_change = |change: Changed<'_>| !renews || matches!(change, Changed::Gone(_));
    cx.worker.settings.routes.keep_users()
        && (set_cookie::clears_logins(headers)
            || session_cookies::changes(cx, headers).into_iter().any(is_change))
}

/// The purge for a response that logs the visitor in or out. It covers the previous user and the new
/// one.
pub(super) fn aims_of(cx: &RequestContext<'_>, change: &Change, ends_own_pages: bool) -> Vec<Aim> {
    match change {
        Change::Nothing if ends_own_pages => aims(cx),
        Change::Nothing => Vec::new(),
        Change::LoggedOut { .. } | Change::Watched { user: None } => aims(cx),
        Change::LoggedIn { user, .. } | Change::Watched { user: Some(user) } => {
            let mut aims = aims(cx);
            aims.extend(aims_at(cx.worker, Some(user), std::iter::empty()));
            aims
        }
    }
}
