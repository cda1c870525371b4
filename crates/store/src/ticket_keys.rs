//! The keys of TLS tickets, which the proxies on a store have alike.

use std::future::Future;

use anteroom_tls::{TicketKey, TicketKeyOffer};

use super::StoreError;

/// Keys of TLS tickets, one for each period. They end by themselves, and are in no backup: what opens recorded sessions
/// is not kept. A move takes none along; a proxy offers those that it has to the next store. A call has the budget of its
/// handle.
pub trait TicketKeyStore {
    /// For each offer, in their order, the key of its period: the one in the store, or else the offered one, which the
    /// store has from then on, for the offered lifetime. So the proxy that comes first decides for all.
    ///
    /// # Errors
    /// [`StoreError::Failed`] also where the store holds something else than a key.
    fn exchange_ticket_keys(
        &self,
        offers: &[TicketKeyOffer],
    ) -> impl Future<Output = Result<Vec<TicketKey>, StoreError>>;
}
