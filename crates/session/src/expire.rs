//! Abandoned carts: the cart of a session that is cleaned, or idle, is handed on.
//!
//! Ending a session and handing its cart on are one step of the store, whether the cleaner ends it
//! or another caller ends it earlier. For a file this is a step into the store's outbox: its
//! records are written to the file, and removed when they are on disk. After a crash in between the
//! outbox is still there, and records that the file already has are skipped. For a webhook it is a
//! step into the store's queue, from which another task delivers.

use anteroom_http::ident::TokenStorage;

use anteroom_store::{
    Cursor, EventStore, Eviction, EvictionResult, ExpiryAction, ExpiryStore, IdleRange, IdleStep,
    StoreError,
};

pub use super::expired_file::ExpiredFile;

/// The approximate number of entries that the stream `expired:` keeps.
pub const STREAM_MAX: u64 = 100_000;

/// The most events that wait for a webhook; beyond it the oldest are dropped.
pub const QUEUE_MAX: u64 = 100_000;

/// Where abandoned carts are handed on.
#[derive(Debug)]
pub enum CartSink {
    /// To the stream `expired:` in Redis.
    Stream,
    /// To this file.
    File(ExpiredFile),
    /// Into the queue of events for a webhook.
    Queue,
}

impl CartSink {
    /// The store's action for this sink, with tokens stored as `storage` says.
    #[must_use]
    pub fn expiry_action(&self, storage: TokenStorage) -> ExpiryAction {
        match self {
            Self::Stream => ExpiryAction::Stream { storage, keep: STREAM_MAX },
            Self::File(_) => ExpiryAction::Outbox { storage },
            Self::Queue => ExpiryAction::Queue { storage, keep: QUEUE_MAX },
        }
    }
}

/// The result of a step of cleaning.
#[derive(Debug, Default)]
pub struct CleaningResult {
    /// Sessions removed.
    pub removed: usize,
    /// Carts handed on.
    pub handed_on: usize,
    /// Events dropped because the queue was full.
    pub dropped: usize,
    /// Sessions that stay because their carts cannot be handed on.
    pub waiting: usize,
    /// Why they cannot.
    pub refusal: Option<String>,
    /// More sessions over the limit follow.
    pub more: bool,
    /// Where the next step of the round continues.
    pub cursor: Cursor,
    /// The store's failure after the rest was done.
    pub failure: Option<StoreError>,
}

impl CleaningResult {
    fn take(&mut self, evicted: EvictionResult) {
        self.removed += evicted.removed;
        self.waiting += evicted.waiting;
        self.dropped += evicted.dropped;
        self.more = evicted.more;
        self.cursor = evicted.cursor;
        self.refusal = self.refusal.take().or(evicted.refusal);
    }
}

/// Removes the oldest sessions over the limit after `from`, at most a batch, and hands their carts
/// on to `on_expire`; without it, sessions with carts stay. Carts that cannot be handed on are no
/// failure: their sessions wait.
pub async fn clean_expiring<S: ExpiryStore>(
    store: &S,
    how: Eviction,
    from: &Cursor,
    on_expire: Option<&mut CartSink>,
    storage: TokenStorage,
    now: f64,
) -> CleaningResult {
    let mut cleaned = CleaningResult { cursor: from.clone(), ..CleaningResult::default() };
    let result = match on_expire {
        None => evict(store, how, from, ExpiryAction::Keep, &mut cleaned).await.map(drop),
        Some(on_expire) => {
            let expiry_action = on_expire.expiry_action(storage);
            if let CartSink::File(file) = on_expire {
                clean_into(file, store, how, from, expiry_action, now, &mut cleaned).await
            } else {
                let result = evict(store, how, from, expiry_action, &mut cleaned).await;
                result.map(|handed_on| cleaned.handed_on += handed_on)
            }
        }
    };
    cleaned.failure = result.err();
    cleaned
}

/// Hands on to `on_expire` the carts of idle sessions that have not been reported, at most a batch.
pub async fn report_idle_carts<S: ExpiryStore + EventStore>(
    store: &S,
    idle: IdleRange,
    on_expire: &mut CartSink,
    storage: TokenStorage,
    now: f64,
) -> CleaningResult {
    let mut result = CleaningResult::default();
    let handover = async {
        let expiry_action = on_expire.expiry_action(storage);
        let IdleStep { handed_on, more, refusal } =
            store.report_idle_carts(idle, &expiry_action).await?;
        (result.more, result.refusal) = (more, refusal);
        match on_expire {
            CartSink::File(file) if handed_on > 0 => {
                empty_outbox(file, store, now, &mut result).await?;
            }
            // Records that an earlier step left there are written by the next one.
            CartSink::File(_) => {}
            CartSink::Stream | CartSink::Queue => result.handed_on += handed_on,
        }
        Ok(())
    };
    let failure = handover.await.err();
    CleaningResult { failure, ..result }
}

/// A step of the store; returns how many carts it handed on.
async fn evict<S: ExpiryStore>(
    store: &S,
    how: Eviction,
    from: &Cursor,
    expiry_action: ExpiryAction,
    cleaned: &mut CleaningResult,
) -> Result<usize, StoreError> {
    let evicted = store.evict_expiring(how, from, &expiry_action).await?;
    let handed_on = evicted.handed_on;
    cleaned.take(evicted);
    Ok(handed_on)
}

/// The outbox is written to the file before more is put into it.
async fn clean_into<S: ExpiryStore>(
    file: &mut ExpiredFile,
    store: &S,
    how: Eviction,
    from: &Cursor,
    expiry_action: ExpiryAction,
    now: f64,
    cleaned: &mut CleaningResult,
) -> Result<(), StoreError> {
    if empty_outbox(file, store, now, cleaned).await? {
        cleaned.more = true;
        return Ok(());
    }
    if cleaned.refusal.is_some() {
        return evict(store, how, from, ExpiryAction::Keep, cleaned).await.map(drop);
    }
    if evict(store, how, from, expiry_action, cleaned).await? > 0 {
        empty_outbox(file, store, now, cleaned).await?;
    }
    Ok(())
}

/// Writes a batch of the outbox to the file, and removes it once it is on disk. Returns whether
/// more follows.
async fn empty_outbox<S: ExpiryStore>(
    file: &mut ExpiredFile,
    store: &S,
    now: f64,
    cleaned: &mut CleaningResult,
) -> Result<bool, StoreError> {
    let outbox = match store.outbox().await {
        Ok(outbox) => outbox,
        // Another program's key has the outbox's name.
        Err(StoreError::Failed(error)) => {
            cleaned.refusal = Some(format!("the outbox cannot be read: {error}"));
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    if outbox.is_empty() {
        cleaned.refusal = file.check().await.err();
        return Ok(false);
    }
    if let Err(error) = file.write(&outbox.expired, now).await {
        cleaned.refusal = Some(error);
        return Ok(false);
    }
    match store.clear_outbox(&outbox).await {
        Ok(true) => {
            // Only now: until this point a crash, or a lost answer, brings the records here again.
            file.forget();
            cleaned.handed_on += outbox.expired.len();
        }
        // Another process was here meanwhile, and records that it has not seen may come again.
        Ok(false) => {}
        Err(StoreError::Failed(error)) => {
            cleaned.refusal = Some(format!("the outbox cannot be emptied: {error}"));
            return Ok(false);
        }
        Err(error) => return Err(error),
    }
    Ok(outbox.more)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use anteroom_http::ident::{Item, StoredToken, User};
    use anteroom_store::scratch::with_store;
    use anteroom_store::{AnyStore, CartStore, EXPIRING_BATCH, LogInStore, TokenStore as _};
    use futures_util::future::join_all;

    use super::*;

    const HOW: Eviction = Eviction { keep: 0, batch: 10, carts: true, before: 0.0 };
    const PLAIN: TokenStorage = TokenStorage::Plain;

    fn token(number: u32) -> StoredToken {
        StoredToken::from_store(format!("token-{number:04}").as_bytes()).unwrap()
    }

    async fn log_in<S: LogInStore + CartStore>(store: &S, number: u32, with_cart: bool) {
        let user = User::new(b"ann").unwrap();
        store.update_token(&token(number), &user, None, 1.5 + f64::from(number)).await.unwrap();
        if with_cart {
            store.add_to_cart(&token(number), &Item::new("mug").unwrap(), 2).await.unwrap();
        }
    }

    fn into(path: &Path) -> CartSink {
        CartSink::File(ExpiredFile::new(path.to_owned()))
    }

    fn lines_of(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    async fn clean(
        store: &AnyStore,
        from: &Cursor,
        target: Option<&mut CartSink>,
    ) -> CleaningResult {
        let cleaned = clean_expiring(store, HOW, from, target, PLAIN, 9.0).await;
        assert!(cleaned.failure.is_none(), "{cleaned:?}");
        cleaned
    }

    #[test]
    fn a_cart_is_handed_on_once_and_nothing_is_left_in_the_outbox() {
        with_store(async |store| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("expired.jsonl");
            log_in(&store, 1, true).await;
            log_in(&store, 2, false).await;
            let cleaned = clean(&store, &Cursor::default(), Some(&mut into(&path))).await;
            assert_eq!((cleaned.removed, cleaned.handed_on, cleaned.waiting), (2, 1, 0));
            assert!(store.check_token(&token(1)).await.unwrap().is_none());
            assert!(store.outbox().await.unwrap().is_empty());
            let lines = lines_of(&path);
            assert_eq!(lines.len(), 1);
            assert_eq!(lines[0]["id"], token(1).public_id(PLAIN));
            assert_eq!(lines[0]["user"], "ann");
            assert_eq!(lines[0]["cart"], serde_json::json!([{ "item": "mug", "count": 2 }]));
        });
    }

    #[test]
    fn wherever_a_crash_came_each_cart_is_in_the_file_once() {
        with_store(async |store| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("expired.jsonl");
            for (number, is_written) in [(1, false), (2, true)] {
                log_in(&store, number, true).await;
                let expiry_action = ExpiryAction::Outbox { storage: PLAIN };
                store.evict_expiring(HOW, &Cursor::default(), &expiry_action).await.unwrap();
                if is_written {
                    let outbox = store.outbox().await.unwrap();
                    ExpiredFile::new(path.clone()).write(&outbox.expired, 8.0).await.unwrap();
                }
                // The crash. What follows is another process.
                let cleaned = clean(&store, &Cursor::default(), Some(&mut into(&path))).await;
                assert_eq!((cleaned.removed, cleaned.handed_on), (0, 1));
                assert!(store.outbox().await.unwrap().is_empty());
            }
            let ids: Vec<_> = lines_of(&path).iter().map(|line| line["id"].clone()).collect();
            assert_eq!(ids, [token(1).public_id(PLAIN), token(2).public_id(PLAIN)]);
        });
    }

    #[test]
    fn however_many_sessions_others_ended_all_their_carts_come_into_the_file() {
        const ENDED: u32 = EXPIRING_BATCH + 100;
        with_store(async |store| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("expired.jsonl");
            let ended = (0..ENDED).map(async |number| {
                log_in(&store, number, true).await;
                let expiry_action = ExpiryAction::Outbox { storage: PLAIN };
                store.dismiss_token(&token(number), &expiry_action).await.unwrap().handed_on
            });
            assert_eq!(join_all(ended).await.iter().sum::<usize>(), ENDED as usize);
            let (mut target, mut written) = (into(&path), Vec::new());
            loop {
                let cleaned = clean(&store, &Cursor::default(), Some(&mut target)).await;
                written.push(cleaned.handed_on);
                if !cleaned.more {
                    break;
                }
            }
            assert_eq!(written, [EXPIRING_BATCH as usize, 100]);
            let ids: std::collections::BTreeSet<_> =
                lines_of(&path).iter().map(|line| line["id"].to_string()).collect();
            assert_eq!((ids.len(), lines_of(&path).len()), (ENDED as usize, ENDED as usize));
        });
    }

    #[test]
    fn while_the_file_cannot_be_written_sessions_wait_and_others_are_cleaned() {
        with_store(async |store| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("not-yet").join("expired.jsonl");
            let mut target = into(&path);
            for number in 0..30 {
                log_in(&store, number, number % 3 != 2).await;
            }
            let mut cleaned = clean(&store, &Cursor::default(), Some(&mut target)).await;
            assert!(cleaned.refusal.is_some(), "{cleaned:?}");
            let (mut waiting, mut removed) = (cleaned.waiting, cleaned.removed);
            while cleaned.more {
                cleaned = clean(&store, &cleaned.cursor, None).await;
                assert_eq!(cleaned.refusal, None);
                waiting += cleaned.waiting;
                removed += cleaned.removed;
            }
            assert_eq!((waiting, removed), (20, 10));
            assert!(
                store.check_token(&token(0)).await.unwrap().is_some(),
                "the user is still logged in"
            );

            std::fs::create_dir(folder.path().join("not-yet")).unwrap();
            let (mut handed_on, mut from) = (0, Cursor::default());
            loop {
                let cleaned = clean(&store, &from, Some(&mut target)).await;
                handed_on += cleaned.handed_on;
                from = cleaned.cursor;
                if !cleaned.more {
                    break;
                }
            }
            assert_eq!((handed_on, lines_of(&path).len()), (20, 20));
        });
    }
}
