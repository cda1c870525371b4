//! Purges pages that belong to one user: selects the owner, and the events that purge them.
//!
//! Such a purge works like any other, by a number in the slot of the user. This is one step for any number of
//! pages. It takes effect in this process before the response goes out, and elsewhere within the second in
//! which all purges spread.

use ::http::HeaderMap;
use anteroom_cache::purge::scope::{PurgeTarget, Scope};
use anteroom_fault::fault;
use anteroom_http::apply_set_cookie::CookieChange;
use anteroom_http::ident::{StoredToken, User};
use anteroom_http::set_cookie;
use anteroom_store::CartOwner;
use anteroom_telemetry::access_log::VisitorClass;

use super::change::SessionChange;
use super::forget::forget;
use super::session_cookies;
use crate::context::{RequestContext, WorkerContext};

/// The most rival tokens that are taken for the visitor's. Each one is a mark in the store.
const RIVALS_MAX: usize = 4;

/// The purge of all pages of a visitor, after the visitor changed something. For a known user it covers the
/// user and all sessions; for an unknown visitor, the sessions that may be the visitor's. Nothing is stored
/// for an anonymous visitor.
pub(crate) fn purge_targets(cx: &RequestContext<'_>) -> Vec<PurgeTarget> {
    let visitor = &cx.visitor;
    if visitor.class == VisitorClass::Anonymous {
        return Vec::new();
    }
    let tokens = visitor.token.iter().chain(visitor.duplicates.iter().take(RIVALS_MAX));
    user_targets(cx.worker, visitor.user(), tokens)
}

/// The purge of all pages of a user and of some sessions.
fn user_targets<'t>(
    worker: &WorkerContext,
    user: Option<&User>,
    tokens: impl Iterator<Item = &'t StoredToken>,
) -> Vec<PurgeTarget> {
    if !worker.settings.routes.keep_users() {
        return Vec::new();
    }
    let user = user.map(|user| Scope::User(user.as_bytes()));
    let sessions = tokens.map(|token| Scope::Session(token.as_str()));
    user.into_iter().chain(sessions).map(|scope| scope.purge_target(true)).collect()
}

/// Purges the pages that may show a cart, before the client learns that the cart was changed.
pub(crate) async fn has_changed_cart(worker: &WorkerContext, owner: &CartOwner) {
    let targets = user_targets(worker, owner.user.as_ref(), std::iter::once(&owner.token));
    if !targets.is_empty() {
        forget(worker, &[], &targets, &[]).await;
    }
}

/// Whether a response changes the session of an app that keeps its own, judged by the session cookies.
/// Many apps renew them with every response.
pub(super) fn changes_session(cx: &RequestContext<'_>, headers: &HeaderMap) -> bool {
    let renews = cx.head.method.is_safe() && (cx.visitor.known().is_some() || fault!("renewed"));
    let is_change = |change: CookieChange<'_>| !renews || matches!(change, CookieChange::Gone(_));
    cx.worker.settings.routes.keep_users()
        && (set_cookie::clears_logins(headers)
            || session_cookies::changes(cx, headers).into_iter().any(is_change))
}

/// The purge for a response that logs the visitor in or out. It covers the previous user and the new
/// one.
pub(super) fn targets_of(
    cx: &RequestContext<'_>,
    change: &SessionChange,
    ends_own_pages: bool,
) -> Vec<PurgeTarget> {
    match change {
        SessionChange::Nothing if ends_own_pages => purge_targets(cx),
        SessionChange::Nothing => Vec::new(),
        SessionChange::LoggedOut { .. } | SessionChange::Watched { user: None } => {
            purge_targets(cx)
        }
        SessionChange::LoggedIn { user, .. } | SessionChange::Watched { user: Some(user) } => {
            let mut targets = purge_targets(cx);
            targets.extend(user_targets(cx.worker, Some(user), std::iter::empty()));
            targets
        }
    }
}
