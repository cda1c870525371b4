//! The queue of requests that ask the app to verify a visitor: how many run at a time, and for
//! which address.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;

use tokio::sync::{Semaphore, SemaphorePermit};

use anteroom_http::ident::holder;

/// The most questions at the app at a time that visitors wait for.
const AT_ONCE: usize = 64;
/// Of these, the most of one address: a client that sends a new token with every request leaves
/// slots for others.
const OF_ADDRESS: usize = 48;
/// Questions beside them that no visitor waits for.
const RENEWALS: usize = 16;
/// Addresses are counted in this many buckets, which some share.
const BUCKETS: usize = 256;

/// The reason for a question.
#[derive(Clone, Copy, Debug)]
pub enum VerifyReason {
    /// A visitor waits, from this address.
    Visitor(Option<IpAddr>),
    /// Renewal in the background of a stored answer.
    Renewal,
}

/// Permission to ask the app, until it is dropped.
#[derive(Debug)]
pub struct VerifyPermit<'t> {
    _own: Option<SemaphorePermit<'t>>,
    _all: Option<SemaphorePermit<'t>>,
}

/// Where requests wait for permission to ask the app.
#[derive(Debug)]
pub(super) struct VerifyQueue {
    visitors: Semaphore,
    renewals: Semaphore,
    buckets: Box<[Semaphore]>,
    /// Keyed, so that a client cannot choose addresses that share a bucket.
    hasher: RandomState,
}

impl Default for VerifyQueue {
    fn default() -> Self {
        Self {
            visitors: Semaphore::new(AT_ONCE),
            renewals: Semaphore::new(RENEWALS),
            buckets: (0..BUCKETS).map(|_| Semaphore::new(OF_ADDRESS)).collect(),
            hasher: RandomState::new(),
        }
    }
}

impl VerifyQueue {
    /// Waits for a permit.
    pub(super) async fn take(&self, asks: VerifyReason) -> VerifyPermit<'_> {
        // The semaphores are never closed.
        match asks {
            VerifyReason::Renewal => {
                VerifyPermit { _own: None, _all: self.renewals.acquire().await.ok() }
            }
            VerifyReason::Visitor(address) => {
                let own = match address {
                    Some(address) => self.bucket(address).acquire().await.ok(),
                    None => None,
                };
                VerifyPermit { _own: own, _all: self.visitors.acquire().await.ok() }
            }
        }
    }

    fn bucket(&self, address: IpAddr) -> &Semaphore {
        let hash = self.hasher.hash_one(holder(address)) as usize;
        &self.buckets[hash % self.buckets.len()]
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

    fn block(last: u8) -> VerifyReason {
        VerifyReason::Visitor(Some([192, 0, 2, last].into()))
    }

    #[test]
    fn one_address_leaves_permits_for_others_and_renewals_have_their_own() {
        let queue = VerifyQueue::default();
        let held: Vec<_> = std::iter::from_fn(|| now(queue.take(block(1)))).take(AT_ONCE).collect();
        assert_eq!(held.len(), OF_ADDRESS);
        let other = (2..100).map(block).find_map(|asks| now(queue.take(asks)));
        assert!(other.is_some(), "another client has another bucket");
        let rest =
            std::iter::from_fn(|| now(queue.take(VerifyReason::Visitor(None)))).take(AT_ONCE);
        assert_eq!(rest.collect::<Vec<_>>().len(), AT_ONCE - OF_ADDRESS - 1);
        let renewals = std::iter::from_fn(|| now(queue.take(VerifyReason::Renewal))).take(AT_ONCE);
        assert_eq!(renewals.collect::<Vec<_>>().len(), RENEWALS);
        drop(held);
        assert!(now(queue.take(block(1))).is_some());
    }
}
