//! The priority of a request whose answer several clients wait for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use anteroom_policy::priority::Priority;

use super::ServerList;

/// The priority of the best request that waits for one answer. It rises while the request waits for a server, too.
#[derive(Debug, Default)]
pub struct SharedPriority(Mutex<BestPriority>);

#[derive(Debug, Default)]
struct BestPriority {
    best: Option<Priority>,
    /// Where the request waits, and its ticket there.
    waits: Option<(Weak<ServerList>, u64)>,
}

impl SharedPriority {
    /// Another client waits for the answer.
    pub fn raise(&self, priority: Priority) {
        let (waits, is_better) = {
            let mut state = self.lock();
            let is_better = state.best.is_none_or(|best| priority.class < best.class);
            if is_better {
                state.best = Some(priority);
            }
            (state.waits.clone(), is_better)
        };
        // One of the same class may be of a network that has room, where that of the first has none.
        if let Some((server_list, ticket)) = waits
            && let Some(server_list) = server_list.upgrade()
            && (is_better || server_list.limits_networks())
        {
            server_list.raise(ticket, priority);
        }
    }

    pub(super) fn best(&self) -> Option<Priority> {
        self.lock().best
    }

    /// The request waits in this list since it ranked as `priority`.
    pub(super) fn waits_in(&self, server_list: &Arc<ServerList>, ticket: u64, priority: Priority) {
        let best = {
            let mut state = self.lock();
            state.waits = Some((Arc::downgrade(server_list), ticket));
            state.best
        };
        // Another client may have come in between.
        if let Some(best) = best.filter(|best| best.class < priority.class) {
            server_list.raise(ticket, best);
        }
    }

    pub(super) fn waits_no_more(&self) {
        self.lock().waits = None;
    }

    fn lock(&self) -> MutexGuard<'_, BestPriority> {
        // No code that holds this lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
