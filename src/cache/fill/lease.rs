//! The lease: of a fleet, one proxy asks the origin, and the others take what it brings.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::filler::Filler;
use super::order::Order;
use crate::cache::Lookup;
use crate::cache::entry::Entry;
use crate::cache::flight::Flight;
use crate::clock::unix_now;
use crate::store::{Lease, PageStore};

/// For how long a proxy of a fleet has the fetch of a page to itself. A slower origin is asked by
/// others, too.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same of a fetch that carries one user's session, for which others of his segment wait.
const PATIENCE_FOR_ONE: Duration = Duration::from_secs(2);
/// For how long the store holds a lease that is not renewed: so long others wait for a proxy that died.
const LEASE: Duration = Duration::from_secs(1);
/// How often a lease is renewed.
const RENEW: Duration = Duration::from_millis(300);
/// How often a proxy looks whether another has fetched the page.
const LOOK_AGAIN: Duration = Duration::from_millis(25);

/// What came of asking for the lease.
pub(super) enum Leased {
    Ours,
    /// Nobody can say who has it.
    No,
    /// Another has fetched the page.
    Landed(Arc<Entry>),
    /// Another has found that the page is for nobody else.
    Unshareable,
}

impl Filler {
    /// Fetches as the one who has the lease, and keeps it meanwhile.
    pub(super) async fn leased<T>(
        &self,
        flight: &Flight,
        who: u64,
        fetch: impl Future<Output = T>,
    ) -> T {
        let renewing = async {
            let until = Instant::now() + PATIENCE;
            while Instant::now() + RENEW < until {
                tokio::time::sleep(RENEW).await;
                match self.store.lease(flight.key(), who, LEASE).await {
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

    /// Asks for the lease on the page. While another has it, waits for what that brings. A store that
    /// cannot say grants everything.
    pub(super) async fn lease(&self, flight: &Flight, order: &Order, who: u64) -> Leased {
        let is_personal = order.class.is_personal();
        let patience = if is_personal { PATIENCE_FOR_ONE } else { PATIENCE };
        let patience = Instant::now() + patience;
        let mut has_waited = false;
        loop {
            match self.store.lease(flight.key(), who, LEASE).await {
                Ok(Lease::Ours) if has_waited => break,
                Ok(Lease::Ours) => return Leased::Ours,
                Ok(Lease::Unshareable) => return Leased::Unshareable,
                Ok(Lease::Theirs) if Instant::now() < patience => {}
                Ok(Lease::Theirs) => return Leased::No,
                Err(error) => {
                    tracing::debug!(%error, "there is no lease on a page");
                    return Leased::No;
                }
            }
            has_waited = true;
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        // The other has done with it: the page is there, or has failed.
        let (primary, now) = (&order.primary, unix_now() as u64);
        let found = self.pages.look_up(&self.store, primary, &flight.sent, now).await;
        let Ok(Lookup::Fresh(entry, _)) = found else { return Leased::Ours };
        // What is fresh, and was not fresh enough for the visitor, is not what the other has fetched.
        let is_new = |held: &Entry| !held.is_fresh(now) || entry.stored_at > held.stored_at;
        if !order.held.as_deref().is_none_or(is_new) {
            return Leased::Ours;
        }
        if let Err(error) = self.store.end_lease(flight.key(), who, true).await {
            tracing::debug!(%error, "a lease lasts for its time");
        }
        Leased::Landed(entry)
    }
}
