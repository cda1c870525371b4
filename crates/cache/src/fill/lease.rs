//! The lease: within a fleet, one proxy fetches a page from the origin, and the others use its result.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anteroom_http::clock::unix_now;
use anteroom_origin::ReservedPlace;
use anteroom_store::{Lease, PageStore};
use tokio::time::Instant;

use super::filler::Filler;
use super::order::FillOrder;
use crate::Lookup;
use crate::entry::Entry;
use crate::flight::Flight;

/// How long one proxy of a fleet fetches a page alone. If the origin is slower, others ask it as well.
const LEASE_WAIT: Duration = Duration::from_secs(5);
/// The same for a fetch with one user's session, for which other users of the segment wait.
const LEASE_WAIT_PERSONAL: Duration = Duration::from_secs(2);
/// How long the store holds a lease without renewal. After a proxy has died, the others wait this long.
const LEASE: Duration = Duration::from_secs(1);
/// The interval between renewals of a lease.
const RENEW: Duration = Duration::from_millis(300);
/// The interval at which a waiting proxy checks whether the page has been fetched.
const LOOK_AGAIN: Duration = Duration::from_millis(25);

/// The result of asking for the lease.
pub(super) enum LeaseResult {
    Ours,
    /// The holder is unknown.
    No,
    /// Another proxy has fetched the page.
    Landed(Arc<Entry>),
    /// Another proxy has found that the page cannot be shared.
    Unshareable,
}

impl Filler {
    /// Runs a fetch as the holder of the lease, and renews the lease meanwhile.
    pub(super) async fn leased<T>(
        &self,
        flight: &Flight,
        holder: u64,
        fetch: impl Future<Output = T>,
    ) -> T {
        let renewing = async {
            let until = Instant::now() + LEASE_WAIT;
            while Instant::now() + RENEW < until {
                tokio::time::sleep(RENEW).await;
                match self.store.lease(flight.key(), holder, LEASE).await {
                    Ok(Lease::Ours) => {}
                    Ok(Lease::Theirs | Lease::Unshareable) => break,
                    Err(error) => tracing::debug!(%error, "a lease is not renewed"),
                }
            }
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            fetched = fetch => fetched,
            never = renewing => match never {},
        }
    }

    /// Asks for the lease on the page. While another proxy has it, waits for the result of that one. If the
    /// store fails, the lease counts as granted. The `place` at the origin is for others while this waits.
    pub(super) async fn lease(
        &self,
        flight: &Flight,
        order: &FillOrder,
        holder: u64,
        place: &mut Option<ReservedPlace>,
    ) -> LeaseResult {
        let is_personal = order.class.is_personal();
        let deadline = Instant::now() + if is_personal { LEASE_WAIT_PERSONAL } else { LEASE_WAIT };
        let mut has_waited = false;
        loop {
            match self.store.lease(flight.key(), holder, LEASE).await {
                Ok(Lease::Ours) if has_waited => break,
                Ok(Lease::Ours) => return LeaseResult::Ours,
                Ok(Lease::Unshareable) => return LeaseResult::Unshareable,
                Ok(Lease::Theirs) if Instant::now() < deadline => {}
                Ok(Lease::Theirs) => return LeaseResult::No,
                Err(error) => {
                    tracing::debug!(%error, "there is no lease on a page");
                    return LeaseResult::No;
                }
            }
            (has_waited, *place) = (true, None);
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        // The other proxy has finished: the page is there, or the fetch failed.
        let (primary, now) = (&order.primary, unix_now() as u64);
        let found = self.pages.look_up(self.page_source(), primary, &flight.sent, now).await;
        let Ok(Lookup::Fresh(entry, _)) = found else { return LeaseResult::Ours };
        // A page that was fresh but not fresh enough for the visitor is an old one, and not the result of the
        // other fetch.
        let is_new = |held: &Entry| !held.is_fresh(now) || entry.stored_at > held.stored_at;
        if !order.stored.as_deref().is_none_or(is_new) {
            return LeaseResult::Ours;
        }
        if let Err(error) = self.store.end_lease(flight.key(), holder, true).await {
            tracing::debug!(%error, "a lease lasts for its time");
        }
        LeaseResult::Landed(entry)
    }
}
