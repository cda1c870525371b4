//! Turns with the app, to ask it who a visitor is: how many questions it gets at a time, and whose.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::ident::holder;

/// Questions that visitors wait for, and that are with the app at a time.
const AT_ONCE: usize = 64;
/// Of these, those of one address: others find the app free although somebody brings a new token with every
/// request.
const OF_ADDRESS: usize = 48;
/// Questions that nobody waits for, beside them.
const RENEWALS: usize = 16;
/// Addresses are told apart by so many lanes, and some share one.
const LANES: usize = 256;

/// Who asks the app.
#[derive(Clone, Copy, Debug)]
pub enum Asks {
    /// A visitor who waits, from this address.
    Visitor(Option<IpAddr>),
    /// Nobody: what is remembered is to be known anew.
    Renewal,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub struct Turn<'t> {
    _own: Option<SemaphorePermit<'t>>,
    _all: Option<SemaphorePermit<'t>>,
}

/// The turns.
#[derive(Debug)]
pub(super) struct Turns {
    visitors: Semaphore,
    renewals: Semaphore,
    lanes: Box<[Semaphore]>,
    /// So that nobody chooses addresses that meet in a lane.
    hasher: RandomState,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            visitors: Semaphore::new(AT_ONCE),
            renewals: Semaphore::new(RENEWALS),
            lanes: (0..LANES).map(|_| Semaphore::new(OF_ADDRESS)).collect(),
            hasher: RandomState::new(),
        }
    }
}

impl Turns {
    /// Waits for a turn.
    pub(super) async fn take(&self, asks: Asks) -> Turn<'_> {
        // Nobody closes them.
        match asks {
            Asks::Renewal => Turn { _own: None, _all: self.renewals.acquire().await.ok() },
            Asks::Visitor(address) => {
                let own = match address {
                    Some(address) => self.lane(address).acquire().await.ok(),
                    None => None,
                };
                Turn { _own: own, _all: self.visitors.acquire().await.ok() }
            }
        }
    }

    fn lane(&self, address: IpAddr) -> &Semaphore {
        let hash = self.hasher.hash_one(holder(address)) as usize;
        &self.lanes[hash % self.lanes.len()]
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    fn block(last: u8) -> Asks {
        Asks::Visitor(Some([192, 0, 2, last].into()))
    }

    #[test]
    fn one_address_leaves_turns_for_others_and_renewals_have_their_own() {
        let turns = Turns::default();
        let held: Vec<_> = std::iter::from_fn(|| now(turns.take(block(1)))).take(AT_ONCE).collect();
        assert_eq!(held.len(), OF_ADDRESS);
        let other = (2..100).map(block).find_map(|asks| now(turns.take(asks)));
        assert!(other.is_some(), "somebody else has another lane");
        let rest = std::iter::from_fn(|| now(turns.take(Asks::Visitor(None)))).take(AT_ONCE);
        assert_eq!(rest.collect::<Vec<_>>().len(), AT_ONCE - OF_ADDRESS - 1);
        let renewals = std::iter::from_fn(|| now(turns.take(Asks::Renewal))).take(AT_ONCE);
        assert_eq!(renewals.collect::<Vec<_>>().len(), RENEWALS);
        drop(held);
        assert!(now(turns.take(block(1))).is_some());
    }
}
