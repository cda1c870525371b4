//! Pages that are one user's own: whose they are, and by what they end.
//!
//! They end as purges do, by a number in a slot that stands for the user: one step, however many they are,
//! here before the answer goes out and elsewhere within the second in which all purges are learnt.

use super::login::Change;
use super::{Case, outgoing};
use crate::fill::Person;
use crate::ident::{StoredToken, User};
use crate::page::purge::scope::{Aim, Digest, Scope};
use crate::page::twins::Witness;

/// What the visitor's own pages are purged by, beside their URLs.
pub(super) fn scopes(case: &Case<'_>) -> Vec<Digest> {
    let user = case.visitor.user().map(|user| Scope::User(user.as_bytes()).digest());
    user.into_iter().chain(sessions(case).map(|scope| scope.digest())).collect()
}

/// Whom a fill tells the origin of.
pub(super) fn person(case: &Case<'_>) -> Option<Person> {
    let user = case.visitor.user()?;
    Some(Person { witness: Witness::new(user), identity: outgoing::identity(case).clone() })
}

/// The purge of all that is the visitor's own: he has changed something. His user goes, with all sessions;
/// where the store could not say who he is, those that he may hold.
pub(super) fn aims(case: &Case<'_>) -> Vec<Aim> {
    if !case.room.settings.routes.keep_users() {
        return Vec::new();
    }
    let user = case.visitor.user().map(|user| Scope::User(user.as_bytes()).aim(true));
    user.into_iter().chain(sessions(case).map(|scope| scope.aim(true))).collect()
}

/// The same where he has logged in or out: whoever he was, and whoever he is.
pub(super) fn aims_of(case: &Case<'_>, change: &Change) -> Vec<Aim> {
    let now = |user: &User| Scope::User(user.as_bytes()).aim(true);
    match change {
        Change::Nothing => Vec::new(),
        Change::LoggedOut { .. } => aims(case),
        Change::LoggedIn { user, .. } => {
            let mut aims = aims(case);
            if case.room.settings.routes.keep_users() {
                aims.push(now(user));
            }
            aims
        }
    }
}

fn sessions<'c>(case: &'c Case<'_>) -> impl Iterator<Item = Scope<'c>> {
    let visitor = &case.visitor;
    visitor
        .token
        .iter()
        .chain(&visitor.rivals)
        .map(|token| Scope::Session(StoredToken::as_str(token)))
}
