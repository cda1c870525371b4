//! The cleaner: keeps the newest sessions, and removes the oldest over the limit.

use std::sync::Arc;
use std::time::Duration;

use super::{Next, Task};
use crate::metrics::{Count, Sheet};
use crate::session::clean::{clean_full_sessions, clean_sessions};
use crate::store::{AnyStore, StoreError};
use crate::visit::VisitQueue;

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
    /// Counters.
    pub sheet: Arc<Sheet>,
}

impl Clean {
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
            let visits = Arc::new(VisitQueue::new(1_000));
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
                sheet: Arc::default(),
            };

            clean.step().await.unwrap();

            for n in 0..RETURNED {
                assert!(store.check_token(&token(n)).await.unwrap().is_some(), "{n} came back");
            }
        });
    }
}
