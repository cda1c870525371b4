//! The cleaner: keeps the newest sessions, and removes the oldest over the limit.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Next, Task};
use crate::clock::unix_now;
use crate::ident::TokenStorage;
use crate::metrics::{Count, Sheet};
use crate::session::clean::{clean_full_sessions, clean_sessions};
use crate::session::expire::{OnExpire, clean_expiring};
use crate::store::{AnyStore, Cursor, Eviction, SessionStore, StoreError};
use crate::visit::VisitQueue;

/// For how long a process that hands carts on keeps others from it.
const TURN: Duration = Duration::from_secs(5);
/// The first and the longest pause after carts could not be handed on.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// `clean_sessions`, or `clean_full_sessions` with the carts.
#[derive(Debug)]
pub struct Clean {
    /// The store.
    pub store: AnyStore,
    /// Visits that wait: whoever returned is not cleaned because nobody has written it down yet.
    pub visits: Arc<VisitQueue>,
    /// Sessions kept.
    pub keep: u64,
    /// Sessions removed in a step.
    pub batch: u32,
    /// How long to rest when the number of sessions is under the limit.
    pub every: Duration,
    /// Carts, too.
    pub carts: bool,
    /// Where carts are handed on before, if anywhere.
    pub expiring: Option<Expiring>,
    /// Counters.
    pub sheet: Arc<Sheet>,
}

/// What handing carts on needs.
#[derive(Debug)]
pub struct Expiring {
    on_expire: RefCell<OnExpire>,
    storage: TokenStorage,
    /// This process, as the turns know it.
    who: u64,
    /// Where the round goes on.
    cursor: RefCell<Cursor>,
    refusals: Cell<Refusals>,
}

/// Since when carts cannot be handed on. Until they are tried again, sessions that have one wait,
/// and are not looked at a second time.
#[derive(Clone, Copy, Debug, Default)]
struct Refusals {
    in_a_row: u32,
    until: Option<Instant>,
}

impl Expiring {
    /// Hands carts on to `on_expire`, of tokens that are stored as `storage` says.
    #[must_use]
    pub fn new(on_expire: OnExpire, storage: TokenStorage) -> Self {
        Self {
            on_expire: RefCell::new(on_expire),
            storage,
            who: fastrand::u64(..),
            cursor: RefCell::default(),
            refusals: Cell::default(),
        }
    }

    /// Whether carts may be handed on now. After a pause that begins a round.
    fn is_open(&self, now: Instant) -> bool {
        let mut refusals = self.refusals.get();
        match refusals.until {
            Some(until) if now < until => return false,
            Some(_) => {
                refusals.until = None;
                self.refusals.set(refusals);
                self.cursor.take();
            }
            None => {}
        }
        true
    }

    /// Carts were refused: they are left alone for a while. Said when it begins.
    fn refuse(&self, refusal: &str, now: Instant) {
        let Refusals { in_a_row, .. } = self.refusals.get();
        if in_a_row == 0 {
            tracing::warn!(refusal, "abandoned carts cannot be handed on: their sessions wait");
        }
        let (first, longest) = BACK_OFF;
        let until = Some(now + (first * (1 << in_a_row.min(8))).min(longest));
        self.refusals.set(Refusals { in_a_row: in_a_row.saturating_add(1), until });
    }

    /// Carts were handed on. Said when that had not gone for a while.
    fn resume(&self) {
        if self.refusals.take().in_a_row > 0 {
            tracing::info!("abandoned carts are handed on again");
        }
    }
}

impl Clean {
    /// A step that hands carts on, by whoever has the turn: two processes would write a batch of the
    /// outbox into two files.
    #[expect(
        clippy::await_holding_refcell_ref,
        reason = "steps of a task follow each other, and nobody else borrows"
    )]
    async fn clean_expiring(&self, expiring: &Expiring) -> Result<Next, StoreError> {
        let now = Instant::now();
        let mut is_open = expiring.is_open(now);
        match self.store.take_turn(expiring.who, TURN).await {
            Ok(true) => {}
            Ok(false) => return Ok(Next::Idle),
            // A store without room for the turn has none for carts, but may make some.
            Err(StoreError::Failed(error)) => {
                if is_open {
                    expiring.refuse(&error.to_string(), now);
                    is_open = false;
                }
            }
            Err(error) => return Err(error),
        }
        let how = Eviction { keep: self.keep, batch: self.batch, carts: true };
        let mut on_expire = expiring.on_expire.borrow_mut();
        let (from, target) = (expiring.cursor.borrow().clone(), is_open.then_some(&mut *on_expire));
        let (storage, time) = (expiring.storage, unix_now());
        let cleaned = clean_expiring(&self.store, how, &from, target, storage, time).await;
        self.sheet.add(Count::SessionsCleaned, cleaned.removed as u64);
        self.sheet.add(Count::CartsHandedOn, cleaned.handed_on as u64);
        self.sheet.add(Count::CartsRefused, cleaned.waiting as u64);
        if let Some(refusal) = &cleaned.refusal {
            expiring.refuse(refusal, now);
        } else if cleaned.handed_on > 0 {
            expiring.resume();
        }
        let open_still = is_open && cleaned.refusal.is_none();
        // The next round begins with the oldest, except while they can only wait.
        let ends = open_still && !cleaned.more;
        expiring.cursor.replace(if ends { Cursor::default() } else { cleaned.cursor });
        match cleaned.failure {
            Some(failure) => Err(failure),
            None => Ok(if cleaned.more { Next::Again } else { Next::Idle }),
        }
    }

    /// Writes down the visits that wait now: after an outage of the store, many batches. Those that
    /// come meanwhile do not keep the cleaner from its work.
    async fn write_visits(&self) -> Result<(), StoreError> {
        let mut left = self.visits.backlog();
        loop {
            let progress = self.visits.drain_all(&self.store).await;
            if let Some(error) = progress.failure {
                return Err(error);
            }
            let written = progress.visits + progress.items;
            left = left.saturating_sub(written);
            if left == 0 || written == 0 {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Task for Clean {
    const NAME: &'static str = "clean_sessions";

    async fn step(&self) -> Result<Next, StoreError> {
        self.write_visits().await?;
        if let Some(expiring) = &self.expiring {
            return self.clean_expiring(expiring).await;
        }
        let removed = if self.carts {
            clean_full_sessions(&self.store, self.keep, self.batch).await?
        } else {
            clean_sessions(&self.store, self.keep, self.batch).await?
        };
        self.sheet.add(Count::SessionsCleaned, removed as u64);
        Ok(if removed > 0 { Next::Again } else { Next::Idle })
    }

    async fn rest(&self) {
        tokio::time::sleep(self.every).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ident::{StoredToken, User};
    use crate::store::scratch::with_store;
    use crate::store::{Rotation, SessionStore};

    #[test]
    fn whoever_came_back_while_the_store_was_away_is_not_cleaned() {
        const RETURNED: u32 = 120;
        with_store(async |store| {
            let user = User::new(b"alice").unwrap();
            let token =
                |n: u32| StoredToken::from_store(format!("token-{n:04}").as_bytes()).unwrap();
            for n in 0..2 * RETURNED {
                let now = f64::from(n);
                let rotation = Rotation { old: None, new: token(n), user: user.clone(), now };
                store.rotate_token(&rotation).await.unwrap();
            }
            let visits = Arc::new(VisitQueue::new(1_000, 25));
            for n in 0..RETURNED {
                visits.note(token(n), user.clone(), None, 1_000.0);
            }
            let clean = Clean {
                store: store.clone(),
                visits,
                keep: u64::from(RETURNED),
                batch: RETURNED,
                every: Duration::from_secs(1),
                carts: true,
                expiring: None,
                sheet: Arc::default(),
            };

            clean.step().await.unwrap();

            for n in 0..RETURNED {
                assert!(store.check_token(&token(n)).await.unwrap().is_some(), "{n} came back");
            }
        });
    }
}
