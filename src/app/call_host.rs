//! The store calls of the process that had the store before, as its successor carries them out.

use std::sync::Arc;

use anteroom_cache::purge::PurgeTable;
use anteroom_store::AnyStore;
use anteroom_store::remote::{self, CallEffects};
use arc_swap::ArcSwap;

use super::live_config::LiveConfig;
use super::shared_state::SharedState;

/// The most steps in which purges are learnt at a time.
const PURGE_STEPS_MAX: usize = 100;

/// Carries the calls out.
#[derive(Debug)]
pub(super) struct CallHost {
    pub(super) live: Arc<ArcSwap<LiveConfig>>,
    pub(super) shared: Arc<SharedState>,
    pub(super) store: AnyStore,
}

impl CallHost {
    /// Carries a call out, and returns its answer. What it has changed counts in this process by then: a visitor that the
    /// other process has logged out is logged out here when the visitor learns of it.
    pub(super) async fn carry_out(&self, call: &[u8]) -> Vec<u8> {
        let (answer, effects) = remote::answer(&self.store, call).await;
        self.take_in(&effects).await;
        answer
    }

    async fn take_in(&self, effects: &CallEffects) {
        let CallEffects { ended_sessions, void_cookies, has_purge } = effects;
        if !ended_sessions.is_empty() {
            self.live.load_full().sessions.hear_gone(ended_sessions);
        }
        if !void_cookies.is_empty() {
            self.shared.verified.hear_void(void_cookies);
        }
        if *has_purge {
            learn_purges(&self.shared.pages.purged, &self.store).await;
        }
    }
}

/// Learns what the store has of purges now.
pub(super) async fn learn_purges(purged: &PurgeTable, store: &AnyStore) {
    for _ in 0..PURGE_STEPS_MAX {
        match purged.keep_up(store).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return tracing::debug!(%error, "purges are learnt later"),
        }
    }
}
