//! Has the keys of TLS tickets alike with the other proxies on the store, and with the next process.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use anteroom_http::clock::unix_now;
use anteroom_store::{AnyStore, StoreError, TicketKeyStore as _};
use anteroom_tls::TicketKeys;

use super::{NextStep, Task};

/// The time between two exchanges. Keys are exchanged hours before they seal; this is for a store that has lost them, or
/// that has replaced another.
const EVERY: Duration = Duration::from_secs(60);

/// Exchanges keys with the store.
#[derive(Debug)]
pub struct ShareTicketKeys {
    /// The store; use that of [`AnyStore::background`].
    pub store: AnyStore,
    /// The keys of this process.
    pub keys: Arc<TicketKeys>,
    /// Whether the log has reported that the store takes no keys.
    pub refusal_logged: Cell<bool>,
}

/// Offers the keys of this process to the store, and takes over those that count there.
///
/// # Errors
/// If the store fails, or holds something else than keys. The keys stay as they were then.
pub async fn exchange_ticket_keys(store: &AnyStore, keys: &TicketKeys) -> Result<(), StoreError> {
    let now = unix_now();
    let offers = keys.offers(now).map_err(|error| StoreError::Failed(error.into()))?;
    let found = store.exchange_ticket_keys(&offers).await?;
    keys.put(offers.iter().map(|offer| offer.period).zip(found), now);
    Ok(())
}

impl Task for ShareTicketKeys {
    const NAME: &'static str = "share_ticket_keys";
    /// It may wait for the store for ever, and leaves nothing half done.
    const DROPPED_AT_STOP: bool = true;

    async fn step(&self) -> Result<NextStep, StoreError> {
        self.store.connected().await;
        match exchange_ticket_keys(&self.store, &self.keys).await {
            Ok(()) => self.refusal_logged.set(false),
            Err(error) if error.is_refusal() => {
                if !self.refusal_logged.replace(true) {
                    tracing::warn!(
                        %error,
                        "the store takes no keys of TLS tickets: visitors resume sessions at this process alone"
                    );
                }
            }
            Err(error) => return Err(error),
        }
        Ok(NextStep::Idle)
    }

    async fn rest(&self) {
        tokio::time::sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use anteroom_store::scratch::with_store;

    use super::*;

    #[test]
    fn two_processes_on_a_store_open_each_others_tickets() {
        with_store(async |store| {
            let [one, other] = <[Arc<TicketKeys>; 2]>::default();
            for keys in [&one, &other] {
                let keys = Arc::clone(keys);
                let share =
                    ShareTicketKeys { store: store.clone(), keys, refusal_logged: Cell::default() };
                assert_eq!(share.step().await.unwrap(), NextStep::Idle);
            }
            let [one, other] = [one, other].map(|keys| keys.ticketer(unix_now));
            let ticket = one.encrypt(b"session").unwrap();
            assert_eq!(other.decrypt(&ticket).unwrap(), b"session");
        });
    }
}
