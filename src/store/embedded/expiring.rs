//! The outbox, and how sessions with carts are parted with.
//!
//! Like `sessions`: everything here happens inside one transaction that somebody else begins.

use redb::{ReadTransaction, ReadableTable as _, ReadableTableMetadata as _, TableDefinition};

use super::record::{time_bits, time_of};
use super::sessions::{Bytes, Tables, bytes_of, cart_of, read_cart};
use crate::ident::{StoredToken, TokenStorage};
use crate::store::{
    Cursor, EXPIRING_BATCH, EXPIRING_BYTES, Evicted, Eviction, Expired, Farewell, Outbox,
};

/// The order in which they came to records of carts that are handed on: `expiring:`.
pub(super) const EXPIRING: TableDefinition<'static, u64, Bytes> = TableDefinition::new("expiring");

/// A session as it stands in `recent:`.
type Place = (u64, Vec<u8>);

impl Tables<'_> {
    pub(super) fn evict_expiring(
        &mut self,
        how: Eviction,
        from: Cursor,
        farewell: &Farewell,
    ) -> Result<Evicted, redb::Error> {
        let (oldest, behind) = self.behind(&from, how)?;
        let outbox = match farewell {
            Farewell::Outbox { storage } if self.expiring.is_empty()? => Some(*storage),
            // There is no stream here: who wants one is told so by the configuration.
            Farewell::Outbox { .. } | Farewell::Stream { .. } | Farewell::Keep => None,
        };
        let mut evicted = Evicted { more: behind, cursor: from, ..Evicted::default() };
        if matches!(farewell, Farewell::Stream { .. }) {
            evicted.refusal = Some("the embedded store has no streams".to_owned());
        }
        let mut bytes = 0;
        for (seen, token) in oldest {
            if let Some(known) = StoredToken::from_store(&token) {
                if outbox.is_none() && self.cart.range(cart_of(&token))?.next().is_some() {
                    evicted.waiting += 1;
                    evicted.cursor.left += 1;
                    evicted.cursor.last = Some((time_of(seen), known));
                    continue;
                }
                if let Some(storage) = outbox {
                    let put = self.put_out(&known, time_of(seen), storage)?;
                    bytes += put;
                    evicted.handed_on += usize::from(put > 0);
                }
                self.revoke(&token)?;
            }
            self.recent.remove((seen, token.as_slice()))?;
            self.remove(&token)?;
            evicted.removed += 1;
            if bytes >= EXPIRING_BYTES {
                evicted.more = true;
                break;
            }
        }
        Ok(evicted)
    }

    /// The oldest sessions behind the cursor that are over the limit, at most a batch, and whether there
    /// are more.
    fn behind(&self, from: &Cursor, how: Eviction) -> Result<(Vec<Place>, bool), redb::Error> {
        let over = self.recent.len()?.saturating_sub(how.keep).saturating_sub(from.left);
        let (batch, before) = (how.batch.clamp(1, EXPIRING_BATCH) as usize, time_bits(how.before));
        let (seen, mut token) =
            from.last.as_ref().map_or_else(Default::default, |(seen, token)| {
                (time_bits(*seen), bytes_of(token).to_vec())
            });
        if from.last.is_some() {
            // The first place behind: no token sorts between.
            token.push(0);
        }
        let mut oldest = Vec::new();
        for entry in self.recent.range((seen, token.as_slice())..)? {
            let place = entry?.0;
            if oldest.len() as u64 >= over && place.value().0 >= before {
                break;
            }
            if oldest.len() == batch {
                return Ok((oldest, true));
            }
            oldest.push((place.value().0, place.value().1.to_vec()));
        }
        Ok((oldest, false))
    }

    /// Puts a session's cart into the outbox; how many bytes that took. None where it has none.
    fn put_out(
        &mut self,
        token: &StoredToken,
        seen: f64,
        storage: TokenStorage,
    ) -> Result<usize, redb::Error> {
        let cart = read_cart(&self.cart, token)?;
        if cart.is_empty() {
            return Ok(0);
        }
        let user = self.owner(bytes_of(token))?;
        let record = Expired { id: token.public_id(storage), user, seen, cart }.write();
        let next = self.expiring.last()?.map_or(0, |(last, _)| last.value() + 1);
        self.expiring.insert(next, record.as_slice())?;
        Ok(record.len())
    }

    pub(super) fn clear_outbox(&mut self, outbox: &Outbox) -> Result<usize, redb::Error> {
        let first = self.expiring.first()?.map(|(_, record)| record.value() == outbox.first);
        if first != Some(true) {
            return Ok(0);
        }
        for _ in 0..outbox.records {
            self.expiring.pop_first()?;
        }
        Ok(outbox.records)
    }
}

/// What the outbox holds.
pub(super) fn outbox(txn: &ReadTransaction) -> Result<Outbox, redb::Error> {
    let mut records = Vec::new();
    let most = usize::try_from(EXPIRING_BATCH).unwrap_or(usize::MAX);
    for entry in txn.open_table(EXPIRING)?.iter()?.take(most) {
        records.push(entry?.1.value().to_vec());
    }
    Ok(Outbox::of(records))
}
