//! Keeps this process in the register of the proxies on the store, and logs where they differ.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use anteroom_cache::Pages;
use anteroom_http::clock;
use anteroom_store::fleet::{Fleet, ProxyEntry};
use anteroom_store::{AnyStore, StoreError};
use tokio::time::Instant;

use super::{NextStep, Task};

/// The time between two entries.
const EVERY: Duration = Duration::from_secs(5);

/// The time between two looks at a move, or until the first at the start.
const MOVE_EVERY: Duration = Duration::from_millis(50);

/// Writes the entry of this process.
#[derive(Debug)]
pub struct RegisterProxy {
    /// The store.
    pub store: AnyStore,
    /// What this process knows of the others.
    pub fleet: Arc<Fleet>,
    /// The pages, whose ages are not known any more when the time was set back.
    pub pages: Arc<Pages>,
    /// The id of this process.
    pub process_id: u64,
    /// What it says about itself.
    pub entry: ProxyEntry,
    /// Whether the log has reported that the store does not take the entry.
    pub refusal_logged: Cell<bool>,
    /// When the entry was last written.
    pub written: Cell<Option<Instant>>,
}

impl RegisterProxy {
    /// Whether the entry need not be written now.
    fn is_written_lately(&self) -> bool {
        self.written.get().is_some_and(|written| written.elapsed() < EVERY)
    }
}

impl Task for RegisterProxy {
    const NAME: &'static str = "fleet";
    /// An entry that is not finished is written by the next configuration, or removed at the end.
    const DROPPED_AT_STOP: bool = true;

    async fn step(&self) -> Result<NextStep, StoreError> {
        let is_moving = self.fleet.switch.is_moving();
        if is_moving && self.is_written_lately() && self.fleet.follow(&self.store).await? {
            return Ok(NextStep::Idle);
        }
        let set_backs = clock::set_backs();
        let looked = self.fleet.look(&self.store, self.process_id, &self.entry).await;
        if clock::set_backs() != set_backs {
            self.pages.memory().clear();
        }
        match looked {
            Ok(report) => {
                self.written.set(Some(Instant::now()));
                self.fleet.log_changes(&report);
                self.refusal_logged.set(false);
            }
            // No request needs the register.
            Err(error) if error.is_refusal() && !self.refusal_logged.replace(true) => {
                self.fleet.switch.expect_nothing();
                tracing::warn!(%error, "the store does not take the entry of this proxy: `anteroom fleet` lacks it");
            }
            // At the start, changes wait for this.
            Err(_) if self.fleet.switch.is_starting() => {}
            Err(StoreError::Away) => return Err(StoreError::Away),
            Err(_) => {}
        }
        Ok(NextStep::Idle)
    }

    async fn rest(&self) {
        let is_urgent = self.fleet.switch.is_moving() || self.fleet.switch.is_starting();
        tokio::time::sleep(if is_urgent { MOVE_EVERY } else { EVERY }).await;
    }
}
