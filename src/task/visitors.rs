//! Visitor tokens: writes their visits, and removes unused ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anteroom_http::clock::{self, unix_now};
use anteroom_session::visit::VisitorVisits;
use anteroom_store::{AnyStore, StoreError, VisitorEviction, VisitorStore as _, VisitorsEvicted};
use anteroom_telemetry::metrics::{Count, ThreadMetrics};

use super::{NextStep, Task};

/// Flushes visits with a visitor token.
#[derive(Debug)]
pub struct FlushVisitors {
    /// The store.
    pub store: AnyStore,
    /// The queue.
    pub visits: Arc<VisitorVisits>,
}

impl Task for FlushVisitors {
    const NAME: &'static str = "visitors";

    async fn step(&self) -> Result<NextStep, StoreError> {
        let written = self.visits.flush(&self.store).await?;
        Ok(if written > 0 && self.visits.backlog() > 0 { NextStep::Again } else { NextStep::Idle })
    }

    async fn rest(&self) {
        self.visits.due().await;
    }
}

/// Removes visitor tokens: those over the limit, the oldest first, and those not seen for too long.
#[derive(Debug)]
pub struct CleanVisitors {
    /// The store.
    pub store: AnyStore,
    /// Pending visits: a token that was just seen is not cleaned because its visit is still
    /// unwritten.
    pub visits: Arc<VisitorVisits>,
    /// Tokens kept.
    pub keep: u64,
    /// How long an unseen token is kept.
    pub unseen: Duration,
    /// The most tokens removed in a step.
    pub batch: u32,
    /// How long to rest while the number of tokens is within the limit.
    pub every: Duration,
    /// How many there are, for metrics.
    pub kept: Arc<AtomicU64>,
    /// Counters.
    pub thread_metrics: Arc<ThreadMetrics>,
}

impl CleanVisitors {
    /// Writes the pending visits. Newer ones do not delay the cleaner.
    async fn write_visits(&self) -> Result<(), StoreError> {
        let mut left = self.visits.backlog();
        loop {
            match self.visits.flush(&self.store).await {
                // Cleaning makes room in a full store.
                Err(error) if error.is_refusal() => return Ok(()),
                Err(error) => return Err(error),
                Ok(written) => {
                    left = left.saturating_sub(written);
                    if left == 0 || written == 0 {
                        return Ok(());
                    }
                }
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Task for CleanVisitors {
    const NAME: &'static str = "clean_visitors";

    async fn step(&self) -> Result<NextStep, StoreError> {
        self.write_visits().await?;
        // Where the time is in doubt, none is over by its age.
        let unseen = Some(self.unseen).filter(|_| clock::may_expire());
        let before = unseen.map_or(0.0, |unseen| unix_now() - unseen.as_secs_f64());
        let how = VisitorEviction { keep: self.keep, batch: self.batch, before };
        let VisitorsEvicted { removed, kept } = self.store.evict_visitors(how).await?;
        self.kept.store(kept, Ordering::Relaxed);
        self.thread_metrics.add(Count::VisitorTokensCleaned, removed as u64);
        Ok(if removed > 0 { NextStep::Again } else { NextStep::Idle })
    }

    async fn rest(&self) {
        tokio::time::sleep(self.every).await;
    }
}

#[cfg(test)]
mod tests {
    use anteroom_http::ident::{Item, Token, VisitorToken};
    use anteroom_store::scratch::with_store;

    use super::*;

    #[test]
    fn visitors_seen_while_the_store_was_away_are_not_cleaned() {
        with_store(async |store| {
            clock::hear(clock::ask(), None);
            let token = || VisitorToken::of(&Token::mint().unwrap());
            let (item, now) = (Item::new("mug").unwrap(), unix_now());
            let (old, back, new) = (token(), token(), token());
            for (token, age) in [(&old, 100.0), (&back, 90.0), (&new, 1.0)] {
                store.begin_visitor(token, &item, now - age).await.unwrap();
            }
            let clean = CleanVisitors {
                store: store.clone(),
                visits: Arc::new(VisitorVisits::new(100, 25)),
                keep: 100,
                unseen: Duration::from_secs(50),
                batch: 1,
                every: Duration::from_secs(1),
                kept: Arc::default(),
                thread_metrics: Arc::default(),
            };
            clean.visits.note(back.clone(), None, now);
            assert_eq!(clean.step().await.unwrap(), NextStep::Again);
            assert_eq!(clean.step().await.unwrap(), NextStep::Idle);
            assert_eq!(clean.kept.load(Ordering::Relaxed), 2);
            assert!(store.visitor_viewed(&old).await.unwrap().is_empty());
            for here in [&back, &new] {
                assert_eq!(store.visitor_viewed(here).await.unwrap().len(), 1);
            }
        });
    }
}
