//! How many of something are open, in all and for each peer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::http::peer::Peer;

/// How many are open, over all threads.
#[derive(Debug, Default)]
pub struct Crowd {
    open: AtomicUsize,
    /// By peer; those without an address count as one. Guarded by a plain mutex: held for one look-up
    /// each time that one comes or goes.
    by_peer: Mutex<HashMap<Peer, usize>>,
}

impl Crowd {
    /// How many are open now.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Room for one more where there may be `most`, whoever it is; `None` at the bound.
    #[must_use]
    pub fn enter(self: &Arc<Self>, most: usize) -> Option<Place> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= most {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Place { crowd: Arc::clone(self), counted: None })
    }
}

/// One's place; given back when dropped.
#[derive(Debug)]
pub struct Place {
    crowd: Arc<Crowd>,
    counted: Option<Peer>,
}

impl Place {
    /// Counts it for `peer`; false where that has `most` already.
    #[must_use]
    pub fn count_for(&mut self, peer: Peer, most: usize) -> bool {
        let mut by_peer = self.crowd.by_peer.lock().unwrap_or_else(PoisonError::into_inner);
        let count = by_peer.entry(peer).or_default();
        if *count >= most {
            return false;
        }
        *count += 1;
        self.counted = Some(peer);
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.crowd.open.fetch_sub(1, Ordering::Relaxed);
        let Some(peer) = self.counted else { return };
        let mut by_peer = self.crowd.by_peer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_peer.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                by_peer.remove(&peer);
            }
        }
    }
}
