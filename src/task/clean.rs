//! The cleaner: keeps the newest sessions, and removes the oldest over the limit.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use super::{Next, Task};
use crate::clock::unix_now;
use crate::ident::TokenStorage;
use crate::metrics::{Count, Sheet};
use crate::session::clean::{clean_full_sessions, clean_sessions};
use crate::session::expire::{Cleaned, OnExpire, clean_expiring};
use crate::store::{AnyStore, Eviction, SessionStore, StoreError};
use crate::visit::VisitQueue;

/// For how long a process that hands carts on keeps others from it.
const TURN: Duration = Duration::from_secs(5);

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
    /// The oldest sessions that wait, for their carts could not be handed on in this round.
    waiting: Cell<u64>,
    /// Whether it was said that they wait.
    said: Cell<bool>,
}

impl Expiring {
    /// Hands carts on to `on_expire`, of tokens that are stored as `storage` says.
    #[must_use]
    pub fn new(on_expire: OnExpire, storage: TokenStorage) -> Self {
        let on_expire = RefCell::new(on_expire);
        let (who, waiting, said) = (fastrand::u64(..), Cell::new(0), Cell::new(false));
        Self { on_expire, storage, who, waiting, said }
    }

    /// Says once that carts wait, and once that they do no more.
    fn say(&self, cleaned: &Cleaned) {
        if let Some(refusal) = &cleaned.refusal {
            if !self.said.replace(true) {
                tracing::warn!(refusal, "abandoned carts cannot be handed on: their sessions wait");
            }
        } else if cleaned.handed_on > 0 && self.said.replace(false) {
            tracing::info!("abandoned carts are handed on again");
        }
    }
}

impl Clean {
    /// A step that hands carts on. Two processes that did so would tell of a cart twice: one at a
    /// time has the turn.
    #[expect(
        clippy::await_holding_refcell_ref,
        reason = "steps of a task follow each other, and nobody else borrows"
    )]
    async fn clean_expiring(&self, expiring: &Expiring) -> Result<Next, StoreError> {
        if !self.store.take_turn(expiring.who, TURN).await? {
            return Ok(Next::Idle);
        }
        let how = Eviction { keep: self.keep, batch: self.batch, carts: true };
        let skip = expiring.waiting.get();
        let mut on_expire = expiring.on_expire.borrow_mut();
        let (storage, now) = (expiring.storage, unix_now());
        let cleaned = clean_expiring(&self.store, how, skip, &mut on_expire, storage, now).await?;
        expiring.say(&cleaned);
        self.sheet.add(Count::SessionsCleaned, cleaned.removed as u64);
        self.sheet.add(Count::CartsHandedOn, cleaned.handed_on as u64);
        self.sheet.add(Count::CartsRefused, cleaned.waiting as u64);
        if cleaned.more {
            expiring.waiting.set(skip + cleaned.waiting as u64);
            return Ok(Next::Again);
        }
        // The next round begins with those that wait.
        expiring.waiting.set(0);
        Ok(Next::Idle)
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
