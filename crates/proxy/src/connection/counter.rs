//! Counts open connections or tunnels, in total and for each holder of an address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anteroom_http::ident::holder;
use anteroom_http::peer::Peer;

/// The number that is open, over all threads.
#[derive(Debug, Default)]
pub struct ConnectionCounter {
    open: AtomicUsize,
    /// The number by holder of the address. The mutex is blocking, because it is held for one lookup
    /// only, at each start and end.
    by_holder: Mutex<HashMap<IpAddr, usize>>,
}

impl ConnectionCounter {
    /// How many are open now.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Reserves a place for one more, if fewer than `most` are open; `None` at the limit.
    #[must_use]
    pub fn enter(self: &Arc<Self>, most: usize) -> Option<ReservedSlot> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= most {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(ReservedSlot { counter: Arc::clone(self), counted: None })
    }
}

/// A reserved place, released when dropped.
#[derive(Debug)]
pub struct ReservedSlot {
    counter: Arc<ConnectionCounter>,
    counted: Option<IpAddr>,
}

impl ReservedSlot {
    /// Counts the place for the holder of the peer's address; false if the holder has `most` already. A
    /// peer without an address of its own may stand for any client, so it is not counted.
    #[must_use]
    pub fn count_for(&mut self, peer: Peer, most: usize) -> bool {
        let Some(holder) = peer.own_address().map(holder) else { return true };
        let mut by_holder = self.counter.by_holder.lock().unwrap_or_else(PoisonError::into_inner);
        let count = by_holder.entry(holder).or_default();
        if *count >= most {
            return false;
        }
        *count += 1;
        self.counted = Some(holder);
        true
    }
}

impl Drop for ReservedSlot {
    fn drop(&mut self) {
        self.counter.open.fetch_sub(1, Ordering::Relaxed);
        let Some(holder) = self.counted else { return };
        let mut by_holder = self.counter.by_holder.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_holder.get_mut(&holder) {
            *count -= 1;
            if *count == 0 {
                by_holder.remove(&holder);
            }
        }
    }
}
