//! Control of sessions: their time limits, the index of users, and walks.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use anteroom_http::ident::{StoredToken, User};
use redb::{ReadTransaction, ReadableTable as _};

use super::EmbeddedStore;
use super::keys::{Bytes, bytes_of};
use super::record::{Record, time_of};
use super::tables::{RECENT, SESSION, TOKENS, Tables};
use crate::control::behind;
use crate::{
    Bookmark, LogIn, PER_USER_MAX, Session, SessionLifetimes, SessionListing, StoreError, WALK_MAX,
    WalkStep,
};

/// Sorts behind every token.
const AFTER_TOKENS: &[u8] = &[0xff];
/// The most walks that can be continued: the oldest are dropped first.
const PLACES_MAX: usize = 256;

impl Tables<'_> {
    /// The user of a session that is not over.
    pub(super) fn live(
        &self,
        token: &[u8],
        terms: &SessionLifetimes,
    ) -> Result<Option<User>, redb::Error> {
        let stored = self.session.get(token)?;
        let known = stored.as_ref().and_then(|stored| Record::head_of(stored.value()));
        Ok(known
            .filter(|known| !is_over(known, terms))
            .and_then(|known| User::from_store(known.user)))
    }

    /// The sessions of a user beyond the limit, the oldest login first, never including `newest`.
    pub(super) fn too_many(
        &self,
        user: &User,
        newest: &[u8],
        most: u32,
    ) -> Result<Vec<Vec<u8>>, redb::Error> {
        if most == 0 {
            return Ok(Vec::new());
        }
        let mut others = Vec::new();
        let name = user.as_bytes();
        for entry in self.tokens.range(tokens_of(name))?.take(PER_USER_MAX as usize + 1) {
            let token = entry?.0.value().1.to_vec();
            if token != newest {
                let since = self.session.get(token.as_slice())?;
                let since = since.and_then(|stored| Some(Record::head_of(stored.value())?.since));
                others.push((since.unwrap_or_default(), token));
            }
        }
        others.sort_unstable();
        others.truncate((others.len() + 1).saturating_sub(most as usize));
        Ok(others.into_iter().map(|(_, token)| token).collect())
    }
}

/// The range of a user in the index.
fn tokens_of(name: &[u8]) -> std::ops::Range<(&[u8], &[u8])> {
    (name, &[])..(name, AFTER_TOKENS)
}

fn is_over(known: &Record<'_>, terms: &SessionLifetimes) -> bool {
    terms.are_over(since_of(known), Some(time_of(known.seen)))
}

fn since_of(known: &Record<'_>) -> Option<f64> {
    (known.since > 0).then(|| time_of(known.since))
}

/// The user of a session that is not over.
pub(super) fn live(
    txn: &ReadTransaction,
    token: &StoredToken,
    terms: &SessionLifetimes,
) -> Result<Option<LogIn>, redb::Error> {
    let stored = txn.open_table(SESSION)?.get(bytes_of(token))?;
    let known = stored.as_ref().and_then(|stored| Record::head_of(stored.value()));
    let Some(known) = known.filter(|known| !is_over(known, terms)) else { return Ok(None) };
    // The visit behind this look-up records when the session began.
    let ends = terms.ends(since_of(&known).unwrap_or(terms.now));
    Ok(User::from_store(known.user).map(|user| LogIn { user, ends }))
}

/// A session's data.
fn session(txn: &ReadTransaction, token: &[u8]) -> Result<Option<Session>, redb::Error> {
    let stored = txn.open_table(SESSION)?.get(token)?;
    let known = stored.as_ref().and_then(|stored| Record::head_of(stored.value()));
    Ok(known.and_then(|known| {
        Some(Session {
            token: StoredToken::from_store(token)?,
            user: User::from_store(known.user)?,
            since: since_of(&known),
            seen: Some(time_of(known.seen)),
        })
    }))
}

fn sessions_of(txn: &ReadTransaction, user: &User) -> Result<Vec<Session>, redb::Error> {
    let mut sessions = Vec::new();
    let name = user.as_bytes();
    for entry in txn.open_table(TOKENS)?.range(tokens_of(name))?.take(WALK_MAX) {
        sessions.extend(session(txn, entry?.0.value().1)?);
    }
    sessions.sort_by(|a, b| a.since.unwrap_or_default().total_cmp(&b.since.unwrap_or_default()));
    Ok(sessions)
}

fn newest(
    txn: &ReadTransaction,
    from: Option<Bookmark>,
    most: usize,
) -> Result<WalkStep<Session>, redb::Error> {
    let (most, from_or) =
        (most.clamp(1, WALK_MAX), from.unwrap_or(Bookmark { at: u64::MAX, offset: 0 }));
    let (mut met, mut times) = (Vec::new(), Vec::new());
    let skipped = usize::try_from(from_or.offset).unwrap_or(usize::MAX);
    let recent = txn.open_table(RECENT)?;
    for entry in recent.range(..(from_or.at, AFTER_TOKENS))?.rev().skip(skipped).take(most) {
        let place = entry?.0;
        let (seen, token) = place.value();
        times.push(seen);
        met.extend(session(txn, token)?);
    }
    let next = behind(from, &times).filter(|_| times.len() == most);
    Ok(WalkStep { met, next })
}

/// The sessions after `from`, ordered by token.
fn walk(
    txn: &ReadTransaction,
    from: Option<&StoredToken>,
) -> Result<Vec<(StoredToken, User)>, redb::Error> {
    let mut first = from.map(bytes_of).unwrap_or_default().to_vec();
    if from.is_some() {
        // The next possible key: no token sorts between.
        first.push(0);
    }
    some(txn.open_table(SESSION)?.range(first.as_slice()..AFTER_TOKENS)?)
}

/// Those whose tokens begin with `prefix`: all in one step, up to a limit that no real prefix
/// reaches.
fn with_prefix(
    txn: &ReadTransaction,
    prefix: &[u8],
) -> Result<Vec<(StoredToken, User)>, redb::Error> {
    let end = [prefix, AFTER_TOKENS].concat();
    some(txn.open_table(SESSION)?.range(prefix..end.as_slice())?)
}

/// The first of these records.
fn some(records: redb::Range<'_, Bytes, Bytes>) -> Result<Vec<(StoredToken, User)>, redb::Error> {
    let mut met = Vec::new();
    for entry in records.take(WALK_MAX) {
        let (token, stored) = entry?;
        let user = Record::user_of(stored.value()).and_then(User::from_store);
        met.extend(StoredToken::from_store(token.value()).zip(user));
    }
    Ok(met)
}

/// Where walks continue: the last tokens of earlier steps, each under a random number, because a
/// token must not leave the process.
#[derive(Debug, Default)]
pub(super) struct WalkPositions(Mutex<VecDeque<(u64, StoredToken)>>);

impl WalkPositions {
    fn note(&self, token: StoredToken) -> Bookmark {
        let at = fastrand::u64(1..);
        let mut walks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        walks.truncate(PLACES_MAX - 1);
        walks.push_front((at, token));
        Bookmark { at, offset: 0 }
    }

    fn find(&self, bookmark: Bookmark) -> Result<StoredToken, StoreError> {
        let walks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = walks.iter().find(|(at, _)| *at == bookmark.at);
        let forgotten = || StoreError::Failed("this listing has expired: start it again".into());
        found.map(|(_, token)| token.clone()).ok_or_else(forgotten)
    }
}

impl SessionListing for EmbeddedStore {
    async fn session(&self, token: &StoredToken) -> Result<Option<Session>, StoreError> {
        self.counting(self.0.sessions.read(|txn| session(txn, bytes_of(token))))
    }

    async fn sessions_of(&self, user: &User) -> Result<Vec<Session>, StoreError> {
        self.counting(self.0.sessions.read(|txn| sessions_of(txn, user)))
    }

    async fn newest(
        &self,
        from: Option<Bookmark>,
        most: usize,
    ) -> Result<WalkStep<Session>, StoreError> {
        self.counting(self.0.sessions.read(|txn| newest(txn, from, most)))
    }

    async fn walk(
        &self,
        from: Option<Bookmark>,
        prefix: &str,
    ) -> Result<WalkStep<(StoredToken, User)>, StoreError> {
        if !prefix.is_empty() {
            let met = self.0.sessions.read(|txn| with_prefix(txn, prefix.as_bytes()));
            return self.counting(met).map(|met| WalkStep { met, next: None });
        }
        let from = from.map(|from| self.0.walks.find(from)).transpose()?;
        let met = self.counting(self.0.sessions.read(|txn| walk(txn, from.as_ref())))?;
        let last = met.last().filter(|_| met.len() == WALK_MAX);
        let next = last.map(|(token, _)| self.0.walks.note(token.clone()));
        Ok(WalkStep { met, next })
    }

    /// The index contains only sessions that exist, and there is no stream.
    async fn forget_user(&self, user: &User) -> Result<usize, StoreError> {
        self.forget_events(user).await
    }
}
