//! Orders about sessions: list, show and revoke them, and export or delete all that is held of a user.
//!
//! Sessions are named by their public id, see [`StoredToken::public_id`]: no token leaves the process. An
//! order that concerns all sessions is carried out piece by piece, and its answer says where to go on.

use std::collections::HashSet;

use hyper::body::Incoming;
use serde::{Deserialize, Serialize};

use super::commands::{Clerk, Refused, bad, read, store_failed};
use crate::clock::unix_now;
use crate::ident::{Item, StoredToken, TokenStorage, User};
use crate::row::together;
use crate::store::{
    Bookmark, CartStore as _, Session, SessionListing as _, StoreError, ViewStore as _, Walked,
    by_log_in,
};

/// Sessions in one listing, at most.
pub const LISTED_MAX: u32 = 1_000;
/// Sessions in a listing that does not say how many.
const LISTED_USUALLY: u32 = 100;
/// Steps of a walk in one order: it is gone on with by the next.
const STEPS: usize = 20;
/// Sessions revoked or read side by side.
const SIDE_BY_SIDE: usize = 64;
/// Hex digits of a public id.
const ID_DIGITS: usize = 16;

/// What is to be listed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SessionsWanted {
    /// Only this user's, by the index.
    pub user: Option<String>,
    /// How many, at most [`LISTED_MAX`]; 100 where it is not said.
    #[serde(default = "listed_usually")]
    pub limit: u32,
    /// Where an earlier listing ended.
    pub from: Option<String>,
}

fn listed_usually() -> u32 {
    LISTED_USUALLY
}

/// Sessions, those that were seen last in front; a user's by his log-ins, the oldest in front.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionsListing {
    /// The sessions.
    pub sessions: Vec<ListedSession>,
    /// Where the next listing goes on.
    pub next: Option<String>,
}

/// A session in a listing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListedSession {
    /// Its public id.
    pub id: String,
    /// Whose it is.
    pub user: String,
    /// Whether the app has said so. Else he has called himself that at a log-in.
    pub confirmed: bool,
    /// The Unix time of its log-in, or when it was first seen, if that is known.
    pub since: Option<f64>,
    /// The Unix time when it was last seen.
    pub seen: Option<f64>,
    /// Whether it is over, and waits for the cleaner.
    pub over: bool,
}

/// Which sessions are meant: one of the three.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SessionsMeant {
    /// The one with this public id.
    pub id: Option<String>,
    /// All of this user.
    pub user: Option<String>,
    /// All.
    #[serde(default)]
    pub all: bool,
    /// Where an earlier order ended.
    pub from: Option<String>,
}

/// All that is held of sessions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionsHeld {
    /// Those that were found in this piece.
    pub sessions: Vec<HeldSession>,
    /// Where the next piece begins.
    pub next: Option<String>,
}

/// All that is held of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldSession {
    /// What a listing tells of it.
    #[serde(flatten)]
    pub listed: ListedSession,
    /// What the app has said of its user.
    pub attributes: Vec<(String, String)>,
    /// Its cart.
    pub cart: Vec<HeldItem>,
    /// What it viewed, the newest in front.
    pub viewed: Vec<HeldView>,
}

/// An item in a cart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldItem {
    /// The item.
    pub item: String,
    /// How many.
    pub count: i64,
}

/// A view of an item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldView {
    /// The item.
    pub item: String,
    /// The Unix time of its last view.
    pub at: f64,
}

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Sessions.
    pub sessions: usize,
    /// Items in their carts.
    pub cart_items: usize,
    /// Items that they had viewed.
    pub views: usize,
    /// Carts that had been handed on, and stood in the stream `expired:` or waited for a receiver.
    pub handed_on: usize,
    /// Where the next piece begins.
    pub next: Option<String>,
}

/// How sessions are ended.
#[derive(Clone, Copy)]
enum End {
    /// Their carts are handed on.
    HandOn,
    /// Nothing may be left of them.
    Erase,
}

/// Who is looked for.
enum Whom {
    Id(String),
    User(User),
    All,
}

impl SessionsMeant {
    fn whom(&self) -> Result<Whom, Refused> {
        match (&self.id, &self.user, self.all) {
            (Some(id), None, false) => {
                let is_id = id.len() == ID_DIGITS && id.bytes().all(|b| b.is_ascii_hexdigit());
                let id = is_id.then(|| Whom::Id(id.to_ascii_lowercase()));
                id.ok_or_else(|| bad(&"a session's id has 16 hex digits, as the list shows it"))
            }
            (None, Some(name), false) => user(name).map(Whom::User),
            (None, None, true) => Ok(Whom::All),
            _ => Err(bad(&"exactly one of id, user and all is needed")),
        }
    }
}

fn user(name: &str) -> Result<User, Refused> {
    User::new(name.as_bytes()).ok_or_else(|| bad(&"a user has a name of 1 to 256 bytes"))
}

fn bookmark(text: Option<&str>) -> Result<Option<Bookmark>, Refused> {
    text.map(str::parse).transpose().map_err(|error| bad(&error))
}

impl Clerk {
    pub(super) async fn list_sessions(&self, body: Incoming) -> Result<SessionsListing, Refused> {
        let wanted: SessionsWanted = read(body).await?;
        let limit = wanted.limit.clamp(1, LISTED_MAX) as usize;
        let from = bookmark(wanted.from.as_deref())?;
        let walked = match &wanted.user {
            Some(name) => {
                let sessions = self.store.sessions_of(&user(name)?).await;
                sessions.map(|sessions| by_log_in(sessions, from, limit))
            }
            None => self.store.newest(from, limit).await,
        };
        let Walked { met, next } = walked.map_err(|error| store_failed(&error))?;
        let sessions = met.iter().map(|session| self.listed(session)).collect();
        Ok(SessionsListing { sessions, next: next.map(|next| next.to_string()) })
    }

    /// All that is held of the sessions meant, piece by piece: of one, or of a user.
    pub(super) async fn show_sessions(&self, body: Incoming) -> Result<SessionsHeld, Refused> {
        let meant: SessionsMeant = read(body).await?;
        let whom = meant.whom()?;
        if matches!(whom, Whom::All) {
            return Err(bad(&"one session's id, or a user, is needed"));
        }
        let (tokens, next) = self.look_for(&whom, meant.from.as_deref()).await?;
        let mut sessions = Vec::new();
        for some in tokens.chunks(SIDE_BY_SIDE) {
            let held = together(some.iter().map(|token| self.held(token)).collect()).await;
            for session in held {
                sessions.extend(session.map_err(|error| store_failed(&error))?);
            }
        }
        Ok(SessionsHeld { sessions, next })
    }

    /// Ends the sessions meant, piece by piece, as a log-out does.
    pub(super) async fn revoke_sessions(&self, body: Incoming) -> Result<Removed, Refused> {
        let meant: SessionsMeant = read(body).await?;
        let whom = meant.whom()?;
        let (tokens, next) = self.look_for(&whom, meant.from.as_deref()).await?;
        let ended = self.end(&tokens, End::HandOn).await;
        self.purge_pages(&whom, &tokens).await;
        ended.map(|removed| Removed { next, ..removed })
    }

    /// Purges what is kept for those whose sessions have ended, as a log-out does.
    async fn purge_pages(&self, whom: &Whom, tokens: &[StoredToken]) {
        if !self.room.settings.routes.keep_users() {
            return;
        }
        let user = match whom {
            Whom::User(user) => Some(user.as_bytes()),
            Whom::Id(_) | Whom::All => None,
        };
        let tokens = tokens.iter().map(StoredToken::as_str);
        self.purger.purge_own(&self.store, user, tokens).await;
    }

    /// Removes all that is held of a user, piece by piece, and counts it.
    pub(super) async fn delete_user(&self, body: Incoming) -> Result<Removed, Refused> {
        let meant: SessionsMeant = read(body).await?;
        let Whom::User(user) = meant.whom()? else {
            return Err(bad(&"a user is needed"));
        };
        let whom = Whom::User(user.clone());
        let (tokens, next) = self.look_for(&whom, meant.from.as_deref()).await?;
        let removed = self.end(&tokens, End::Erase).await;
        self.purge_pages(&whom, &tokens).await;
        let removed = removed?;
        let mut handed_on = 0;
        if next.is_none() {
            handed_on =
                self.store.forget_user(&user).await.map_err(|error| store_failed(&error))?;
        }
        Ok(Removed { next, handed_on, ..removed })
    }

    /// The next piece of those who are looked for. A user's sessions that the index has come first; all
    /// others are met, too, for an app may have written them without it.
    async fn look_for(
        &self,
        whom: &Whom,
        from: Option<&str>,
    ) -> Result<(Vec<StoredToken>, Option<String>), Refused> {
        let (mut found, mut from) = (Vec::new(), bookmark(from)?);
        let storage = self.sessions.storage();
        let mut known = HashSet::new();
        if let Whom::User(user) = whom {
            let indexed =
                self.store.sessions_of(user).await.map_err(|error| store_failed(&error))?;
            // Those that are there now are found by it in each piece: it holds only so many at a time.
            known.extend(indexed.into_iter().map(|session| session.token));
            found.extend(known.iter().cloned());
        }
        let prefix = match whom {
            Whom::Id(id) if storage == TokenStorage::Sha256 => id,
            Whom::Id(_) | Whom::User(_) | Whom::All => "",
        };
        for _ in 0..STEPS {
            let walked =
                self.store.walk(from, prefix).await.map_err(|error| store_failed(&error))?;
            found.extend(walked.met.into_iter().filter_map(|(token, holder)| {
                let is_meant = match whom {
                    Whom::Id(id) => token.public_id(storage) == *id,
                    Whom::User(user) => holder.is_same(user) && !known.contains(&token),
                    Whom::All => true,
                };
                is_meant.then_some(token)
            }));
            from = walked.next;
            let is_done = matches!(whom, Whom::Id(_)) && !found.is_empty();
            if from.is_none() || is_done {
                return Ok((found, None));
            }
            // A walk is nobody's page: others on this thread go on meanwhile.
            tokio::task::yield_now().await;
        }
        Ok((found, from.map(|from| from.to_string())))
    }

    /// Ends these sessions; counts what they had where nothing may be left of it.
    async fn end(&self, tokens: &[StoredToken], how: End) -> Result<Removed, Refused> {
        let ended = self.end_each(tokens, how).await;
        // SECURITY: who has logged in at another proxy a moment ago is nobody here still, and would be passed
        // on with his cookie to an app that believes in it.
        self.room.verified.forget();
        ended
    }

    async fn end_each(&self, tokens: &[StoredToken], how: End) -> Result<Removed, Refused> {
        let end = async |token: &StoredToken| {
            let mut had = Removed { sessions: 1, ..Removed::default() };
            match how {
                End::HandOn => self.sessions.end(&self.store, token).await?,
                End::Erase => {
                    had.cart_items = self.store.cart(token).await?.len();
                    had.views = self.store.viewed(token).await?.len();
                    self.sessions.erase(&self.store, token).await?;
                }
            }
            Ok(had)
        };
        let mut removed = Removed::default();
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

    async fn held(&self, token: &StoredToken) -> Result<Option<HeldSession>, StoreError> {
        let Some(session) = self.store.session(token).await? else { return Ok(None) };
        let text = |item: &Item| item.as_str().to_owned();
        let cart = self.store.cart(token).await?.into_iter();
        let viewed = self.store.viewed(token).await?.into_iter();
        let attributes = session.user.attributes();
        Ok(Some(HeldSession {
            listed: self.listed(&session),
            attributes: attributes.map(|(name, value)| (name.into(), value.into())).collect(),
            cart: cart.map(|(item, count)| HeldItem { item: text(&item), count }).collect(),
            viewed: viewed.map(|(item, at)| HeldView { item: text(&item), at }).collect(),
        }))
    }
}
