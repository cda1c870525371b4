//! Commands about sessions: list, show and revoke them, and export or delete all data of a user.
//!
//! Sessions are named by their public id, see [`StoredToken::public_id`]: no token leaves the
//! process. A command about all sessions runs piece by piece, and its answer says where to
//! continue.

use std::collections::HashSet;

use anteroom_http::clock::unix_now;
use anteroom_http::ident::{Item, StoredToken, TokenStorage, User};
use anteroom_rows::together;
use anteroom_store::{
    Bookmark, CartStore as _, Session, SessionListing as _, StoreError, ViewStore as _, WalkStep,
    by_log_in,
};
use serde::{Deserialize, Serialize};

use super::commands::{CommandRefusal, Commands, bad, read, store_failed};

/// The most sessions in one listing.
pub const LISTED_MAX: u32 = 1_000;
/// The default number of sessions in a listing.
const LISTED_USUALLY: u32 = 100;
/// Steps of a walk in one command: the next command continues.
const STEPS: usize = 20;
/// Sessions revoked or read concurrently.
const SIDE_BY_SIDE: usize = 64;
/// Hex digits of a public id.
const ID_DIGITS: usize = 16;

/// The sessions to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SessionListRequest {
    /// Only this user's, by the index.
    pub user: Option<String>,
    /// How many, at most [`LISTED_MAX`]; 100 by default.
    #[serde(default = "listed_usually")]
    pub limit: u32,
    /// Where an earlier listing ended.
    pub from: Option<String>,
}

fn listed_usually() -> u32 {
    LISTED_USUALLY
}

/// Sessions, last seen first; a user's by login time, the oldest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionsListing {
    /// The sessions.
    pub sessions: Vec<ListedSession>,
    /// Where the next listing continues.
    pub next: Option<String>,
}

/// A session in a listing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListedSession {
    /// Its public id.
    pub id: String,
    /// Its user.
    pub user: String,
    /// Whether the app has confirmed the user. Otherwise the name comes from a login form.
    pub confirmed: bool,
    /// The Unix time of its login, or when it was first seen, if known.
    pub since: Option<f64>,
    /// The Unix time when it was last seen.
    pub seen: Option<f64>,
    /// Whether it is over, and waits for the cleaner.
    pub over: bool,
}

/// Which sessions: one of the three.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SessionFilter {
    /// The one with this public id.
    pub id: Option<String>,
    /// All sessions of this user.
    pub user: Option<String>,
    /// All sessions.
    #[serde(default)]
    pub all: bool,
    /// Where an earlier order ended.
    pub from: Option<String>,
}

/// All data of sessions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionExport {
    /// The sessions found in this piece.
    pub sessions: Vec<ExportedSession>,
    /// Where the next piece begins.
    pub next: Option<String>,
}

/// All data of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedSession {
    /// Its entry in a listing.
    #[serde(flatten)]
    pub listed: ListedSession,
    /// The app's attributes of its user.
    pub attributes: Vec<(String, String)>,
    /// Its cart.
    pub cart: Vec<ExportedItem>,
    /// Its views, the newest first.
    pub viewed: Vec<ExportedView>,
}

/// An item in a cart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedItem {
    /// The item.
    pub item: String,
    /// How many.
    pub count: i64,
}

/// A view of an item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedView {
    /// The item.
    pub item: String,
    /// The Unix time of its last view.
    pub at: f64,
}

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalCounts {
    /// Sessions.
    pub sessions: usize,
    /// Items in their carts.
    pub cart_items: usize,
    /// Items in their views.
    pub views: usize,
    /// Carts that had been handed on, and were in the stream `expired:` or waited for a receiver.
    pub handed_on: usize,
    /// Where the next piece begins.
    pub next: Option<String>,
}

/// How sessions are ended.
#[derive(Clone, Copy)]
enum EndMode {
    /// Their carts are handed on.
    HandOn,
    /// No data may be left.
    Erase,
}

/// Which sessions to look for.
enum SessionSelector {
    Id(String),
    User(User),
    All,
}

impl SessionFilter {
    fn selector(&self) -> Result<SessionSelector, CommandRefusal> {
        match (&self.id, &self.user, self.all) {
            (Some(id), None, false) => {
                let is_id = id.len() == ID_DIGITS && id.bytes().all(|b| b.is_ascii_hexdigit());
                let id = is_id.then(|| SessionSelector::Id(id.to_ascii_lowercase()));
                id.ok_or_else(|| bad(&"a session id has 16 hex digits, as in the list"))
            }
            (None, Some(name), false) => user(name).map(SessionSelector::User),
            (None, None, true) => Ok(SessionSelector::All),
            _ => Err(bad(&"exactly one of id, user and all is required")),
        }
    }
}

fn user(name: &str) -> Result<User, CommandRefusal> {
    User::new(name.as_bytes()).ok_or_else(|| bad(&"a user name has 1 to 256 bytes"))
}

fn bookmark(text: Option<&str>) -> Result<Option<Bookmark>, CommandRefusal> {
    text.map(str::parse).transpose().map_err(|error| bad(&error))
}

impl Commands {
    pub(super) async fn list_sessions(
        &self,
        body: &[u8],
    ) -> Result<SessionsListing, CommandRefusal> {
        let wanted: SessionListRequest = read(body)?;
        let limit = wanted.limit.clamp(1, LISTED_MAX) as usize;
        let from = bookmark(wanted.from.as_deref())?;
        let walked = match &wanted.user {
            Some(name) => {
                let sessions = self.store.sessions_of(&user(name)?).await;
                sessions.map(|sessions| by_log_in(sessions, from, limit))
            }
            None => self.store.newest(from, limit).await,
        };
        let WalkStep { met, next } = walked.map_err(|error| store_failed(&error))?;
        let sessions = met.iter().map(|session| self.listed(session)).collect();
        Ok(SessionsListing { sessions, next: next.map(|next| next.to_string()) })
    }

    /// All data of the selected sessions, piece by piece: of one, or of a user.
    pub(super) async fn show_sessions(&self, body: &[u8]) -> Result<SessionExport, CommandRefusal> {
        let meant: SessionFilter = read(body)?;
        let selector = meant.selector()?;
        if matches!(selector, SessionSelector::All) {
            return Err(bad(&"a session id or a user is required"));
        }
        let (tokens, next) = self.look_for(&selector, meant.from.as_deref()).await?;
        let mut sessions = Vec::new();
        for some in tokens.chunks(SIDE_BY_SIDE) {
            let exported = together(some.iter().map(|token| self.exported(token)).collect()).await;
            for session in exported {
                sessions.extend(session.map_err(|error| store_failed(&error))?);
            }
        }
        Ok(SessionExport { sessions, next })
    }

    /// Ends the selected sessions, piece by piece, as a logout does.
    pub(super) async fn revoke_sessions(
        &self,
        body: &[u8],
    ) -> Result<RemovalCounts, CommandRefusal> {
        let meant: SessionFilter = read(body)?;
        let selector = meant.selector()?;
        let (tokens, next) = self.look_for(&selector, meant.from.as_deref()).await?;
        let ended = self.end(&tokens, EndMode::HandOn).await;
        self.purge_pages(&selector, &tokens).await;
        ended.map(|removed| RemovalCounts { next, ..removed })
    }

    /// Purges the pages kept for the ended sessions, as a logout does.
    async fn purge_pages(&self, selector: &SessionSelector, tokens: &[StoredToken]) {
        if !self.worker.settings.routes.keep_users() {
            return;
        }
        let user = match selector {
            SessionSelector::User(user) => Some(user.as_bytes()),
            SessionSelector::Id(_) | SessionSelector::All => None,
        };
        let tokens = tokens.iter().map(StoredToken::as_str);
        self.purger.purge_own(&self.store, user, tokens).await;
    }

    /// Removes all data of a user, piece by piece, and counts it.
    pub(super) async fn delete_user(&self, body: &[u8]) -> Result<RemovalCounts, CommandRefusal> {
        let meant: SessionFilter = read(body)?;
        let SessionSelector::User(user) = meant.selector()? else {
            return Err(bad(&"a user is required"));
        };
        let selector = SessionSelector::User(user.clone());
        let (tokens, next) = self.look_for(&selector, meant.from.as_deref()).await?;
        let removed = self.end(&tokens, EndMode::Erase).await;
        self.purge_pages(&selector, &tokens).await;
        let removed = removed?;
        let mut handed_on = 0;
        if next.is_none() {
            handed_on =
                self.store.forget_user(&user).await.map_err(|error| store_failed(&error))?;
        }
        Ok(RemovalCounts { next, handed_on, ..removed })
    }

    /// The next piece of the selected sessions. A user's indexed sessions come first; the walk
    /// finds all others, too, which an app may have written without the index.
    async fn look_for(
        &self,
        selector: &SessionSelector,
        from: Option<&str>,
    ) -> Result<(Vec<StoredToken>, Option<String>), CommandRefusal> {
        let (mut found, mut from) = (Vec::new(), bookmark(from)?);
        let storage = self.sessions.storage();
        let mut known = HashSet::new();
        if let SessionSelector::User(user) = selector {
            let indexed =
                self.store.sessions_of(user).await.map_err(|error| store_failed(&error))?;
            // Each piece finds the current ones by the index, which returns a limited number at a
            // time.
            known.extend(indexed.into_iter().map(|session| session.token));
            found.extend(known.iter().cloned());
        }
        let prefix = match selector {
            SessionSelector::Id(id) if storage == TokenStorage::Sha256 => id,
            SessionSelector::Id(_) | SessionSelector::User(_) | SessionSelector::All => "",
        };
        for _ in 0..STEPS {
            let walked =
                self.store.walk(from, prefix).await.map_err(|error| store_failed(&error))?;
            found.extend(walked.met.into_iter().filter_map(|(token, holder)| {
                let is_meant = match selector {
                    SessionSelector::Id(id) => token.public_id(storage) == *id,
                    SessionSelector::User(user) => holder.is_same(user) && !known.contains(&token),
                    SessionSelector::All => true,
                };
                is_meant.then_some(token)
            }));
            from = walked.next;
            let is_done = matches!(selector, SessionSelector::Id(_)) && !found.is_empty();
            if from.is_none() || is_done {
                return Ok((found, None));
            }
            // No page waits for a walk: let other work on this thread run.
            tokio::task::yield_now().await;
        }
        Ok((found, from.map(|from| from.to_string())))
    }

    /// Ends these sessions; counts their data if none may be left.
    async fn end(
        &self,
        tokens: &[StoredToken],
        how: EndMode,
    ) -> Result<RemovalCounts, CommandRefusal> {
        let ended = self.end_each(tokens, how).await;
        // SECURITY: for a visitor that has just logged in at another proxy this process still has
        // an anonymous answer, and would pass the cookie on to an app that accepts it.
        self.worker.verified.forget();
        ended
    }

    async fn end_each(
        &self,
        tokens: &[StoredToken],
        how: EndMode,
    ) -> Result<RemovalCounts, CommandRefusal> {
        let end = async |token: &StoredToken| {
            let mut had = RemovalCounts { sessions: 1, ..RemovalCounts::default() };
            match how {
                EndMode::HandOn => self.sessions.revoke(&self.store, token).await?,
                EndMode::Erase => {
                    had.cart_items = self.store.cart(token).await?.len();
                    had.views = self.store.viewed(token).await?.len();
                    self.sessions.erase(&self.store, token).await?;
                }
            }
            Ok(had)
        };
        let mut removed = RemovalCounts::default();
        for some in tokens.chunks(SIDE_BY_SIDE) {
            for had in together(some.iter().map(end).collect()).await {
                let had = had.map_err(|error| store_failed(&error))?;
                removed.sessions += had.sessions;
                removed.cart_items += had.cart_items;
                removed.views += had.views;
            }
        }
        Ok(removed)
    }

    fn listed(&self, session: &Session) -> ListedSession {
        ListedSession {
            id: session.token.public_id(self.sessions.storage()),
            user: String::from_utf8_lossy(session.user.as_bytes()).into_owned(),
            confirmed: session.user.is_confirmed(),
            since: session.since,
            seen: session.seen,
            over: self.sessions.terms(unix_now()).are_over(session.since, session.seen),
        }
    }

    async fn exported(&self, token: &StoredToken) -> Result<Option<ExportedSession>, StoreError> {
        let Some(session) = self.store.session(token).await? else { return Ok(None) };
        let text = |item: &Item| item.as_str().to_owned();
        let cart = self.store.cart(token).await?.into_iter();
        let viewed = self.store.viewed(token).await?.into_iter();
        let attributes = session.user.attributes();
        Ok(Some(ExportedSession {
            listed: self.listed(&session),
            attributes: attributes.map(|(name, value)| (name.into(), value.into())).collect(),
            cart: cart.map(|(item, count)| ExportedItem { item: text(&item), count }).collect(),
            viewed: viewed.map(|(item, at)| ExportedView { item: text(&item), at }).collect(),
        }))
    }
}
