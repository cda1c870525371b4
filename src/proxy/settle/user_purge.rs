//! Pages that are one user's own: whose they are, and by what they end.
//!
//! They end as purges do, by a number in a slot that stands for the user: one step, however many they are,
//! here before the answer goes out and elsewhere within the second in which all purges are learnt.

use crate::proxy::source::forward::forget;
use ::http::HeaderMap;

use super::login::Change;
use crate::cache::fill::Person;
use crate::cache::purge::scope::{Aim, Digest, Scope};
use crate::cache::segment_proof::Witness;
use crate::http::apply_set_cookie::Changed;
use crate::http::set_cookie;
use crate::ident::{StoredToken, User};
use crate::proxy::source::origin_request;
use crate::proxy::stage::verify;
use crate::proxy::{Case, Room};
use crate::store::CartOwner;
use crate::telemetry::access_log::VisitorClass;

/// What the visitor's own pages are purged by, beside their URLs.
pub(in crate::proxy) fn scopes(case: &Case<'_>) -> Vec<Digest> {
    let Some((token, user)) = case.visitor.known() else { return Vec::new() };
    [Scope::User(user.as_bytes()), Scope::Session(token.as_str())]
        .map(|scope| scope.digest())
        .into()
}

/// Whom a fill tells the origin of.
pub(in crate::proxy) fn person(case: &Case<'_>) -> Option<Person> {
    let (session, user) = case.visitor.known()?;
    let identity = origin_request::identity(case).clone();
    let witness = Witness::new(user, case.admitted.address);
    Some(Person { witness, identity, session: session.clone() })
}

/// Of several tokens so many are taken for his: each is a mark in the store.
const RIVALS_MAX: usize = 4;

/// The purge of all that is the visitor's own: he has changed something. His user goes, with all sessions;
/// where nobody knows who he is, the sessions that he may hold. Of who is nobody nothing is kept.
pub(in crate::proxy) fn aims(case: &Case<'_>) -> Vec<Aim> {
    let visitor = &case.visitor;
    if visitor.class == VisitorClass::Anonymous {
        return Vec::new();
    }
    let tokens = visitor.token.iter().chain(visitor.rivals.iter().take(RIVALS_MAX));
    aims_at(case.room, visitor.user(), tokens)
}

/// The purge of all pages of a user and of some sessions.
fn aims_at<'t>(
    room: &Room,
    user: Option<&User>,
    tokens: impl Iterator<Item = &'t StoredToken>,
) -> Vec<Aim> {
    if !room.settings.routes.keep_users() {
        return Vec::new();
    }
    let user = user.map(|user| Scope::User(user.as_bytes()));
    let sessions = tokens.map(|token| Scope::Session(token.as_str()));
    user.into_iter().chain(sessions).map(|scope| scope.aim(true)).collect()
}

/// He has changed his cart, which his pages may show: they go before he hears of it.
pub(in crate::proxy) async fn has_changed_cart(room: &Room, whose: &CartOwner) {
    let aims = aims_at(room, whose.user.as_ref(), std::iter::once(&whose.token));
    if !aims.is_empty() {
        forget(room, &[], &aims, &[]).await;
    }
}

/// The same where a response logs him in or out: whoever he was, and whoever he is.
pub(in crate::proxy) fn aims_of(case: &Case<'_>, change: &Change, headers: &HeaderMap) -> Vec<Aim> {
    // An app that keeps its own sessions does it by their cookies. Many renew them with every answer.
    let renews = case.head.method.is_safe() && case.visitor.known().is_some();
    let is_change = |change: Changed<'_>| !renews || matches!(change, Changed::Gone(_));
    let changes_session = || {
        set_cookie::clears_logins(headers)
            || verify::changes(case, headers).into_iter().any(is_change)
    };
    match change {
        Change::Nothing if case.room.settings.routes.keep_users() && changes_session() => {
            aims(case)
        }
        Change::Nothing => Vec::new(),
        Change::LoggedOut { .. } => aims(case),
        Change::Watched { user: None } => aims(case),
        Change::LoggedIn { user, .. } | Change::Watched { user: Some(user) } => {
            let mut aims = aims(case);
            aims.extend(aims_at(case.room, Some(user), std::iter::empty()));
            aims
        }
    }
}
