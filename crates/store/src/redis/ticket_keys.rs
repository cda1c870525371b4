//! The keys of TLS tickets: the strings `tickets:1:<period>`, each with a time to live.

use anteroom_tls::{TICKET_KEY_LEN, TicketKey, TicketKeyOffer};
use redis::pipe;

use super::{RedisCall, RedisStore, milliseconds};
use crate::{StoreError, TicketKeyStore};

impl TicketKeyStore for RedisStore {
    async fn exchange_ticket_keys(
        &self,
        offers: &[TicketKeyOffer],
    ) -> Result<Vec<TicketKey>, StoreError> {
        // An empty pipeline is an error.
        if offers.is_empty() {
            return Ok(Vec::new());
        }
        // No transaction: a key that ends in between is missing in the answer, which is an error, and the next call
        // offers again.
        let mut step = pipe();
        for TicketKeyOffer { period, key, lifetime } in offers {
            let name = self.keys().ticket_key(*period);
            let set = step.cmd("SET").arg(&name).arg(&key.expose()[..]).arg("NX");
            set.arg("PX").arg(milliseconds(*lifetime)).ignore();
            // GETRANGE, not GET: another program's value of any size must not fill our memory.
            step.cmd("GETRANGE").arg(&name).arg(0).arg(TICKET_KEY_LEN);
        }
        let found: Vec<Vec<u8>> = self.query_all(RedisCall::Write, &step).await?;
        let keys = found.iter().map(|found| TicketKey::from_store(found));
        let keys: Option<Vec<_>> = keys.collect();
        keys.ok_or_else(|| {
            StoreError::Failed("what the store has as a key of tickets is none".into())
        })
    }
}
