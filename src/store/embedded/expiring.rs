//! The outbox, and how sessions with carts are parted with.
//!
//! Like `sessions`: everything here happens inside one transaction that somebody else begins.

use redb::{ReadTransaction, ReadableTable as _, ReadableTableMetadata as _, TableDefinition};

use super::record::{Record, time_bits, time_of};
use super::sessions::{Bytes, Tables, bytes_of, cart_of, read_cart};
use crate::ident::{StoredToken, TokenStorage};
use crate::store::{
    Cursor, EXPIRING_BATCH, EXPIRING_BYTES, Evicted, Eviction, Expired, Farewell, NOT_NOW,
    OUTBOX_FULL, OUTBOX_MAX, Outbox, Parted, Why,
};

/// The order in which they came to records of carts that are handed on: `expiring:`.
pub(super) const EXPIRING: TableDefinition<'static, u64, Bytes> = TableDefinition::new("expiring");

/// Why no cart goes to a stream.
pub(super) const NO_STREAMS: &str = "the embedded store has no streams";

/// A session as it stands in `recent:`.
pub(super) type Place = (u64, Vec<u8>);

/// Where carts go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// How tokens are stored.
    storage: TokenStorage,
    /// The most events that wait, where they go to the queue; `None`: they go to the outbox.
    queue: Option<u64>,
}

/// What handing a cart on did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PutOut {
    /// How many bytes it took; none where there is no cart.
    pub(super) bytes: usize,
    /// Events that went for that.
    dropped: usize,
}

impl Tables<'_> {
    pub(super) fn evict_expiring(
        &mut self,
        how: Eviction,
        from: Cursor,
        farewell: &Farewell,
    ) -> Result<Evicted, redb::Error> {
        let (oldest, behind) = self.behind(&from, how)?;
        let target = self.target(farewell)?;
        let mut evicted = Evicted { more: behind, cursor: from, ..Evicted::default() };
        if matches!(farewell, Farewell::Stream { .. }) {
            evicted.refusal = Some(NO_STREAMS.to_owned());
        }
        let mut bytes = 0;
        for (seen, token) in oldest {
            if let Some(known) = StoredToken::from_store(&token) {
                if target.is_none() && self.cart.range(cart_of(&token))?.next().is_some() {
                    evicted.waiting += 1;
                    evicted.cursor.left += 1;
                    evicted.cursor.last = Some((time_of(seen), known));
                    continue;
                }
                if let Some(target) = target {
                    let put = self.put_out(&known, time_of(seen), Why::Expired, target)?;
                    bytes += put.bytes;
                    evicted.handed_on += usize::from(put.bytes > 0);
                    evicted.dropped += put.dropped;
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

    /// Where carts go; `None` where they cannot be handed on now.
    pub(super) fn target(&self, farewell: &Farewell) -> Result<Option<Target>, redb::Error> {
        Ok(match farewell {
            Farewell::Outbox { storage } if self.expiring.is_empty()? => {
                Some(Target { storage: *storage, queue: None })
            }
            Farewell::Queue { storage, keep } => {
                Some(Target { storage: *storage, queue: Some(*keep) })
            }
            // There is no stream here: who wants one is told so by the configuration.
            Farewell::Outbox { .. } | Farewell::Stream { .. } | Farewell::Keep => None,
        })
    }

    /// Hands a session's cart on, if it has one.
    pub(super) fn put_out(
        &mut self,
        token: &StoredToken,
        seen: f64,
        why: Why,
        Target { storage, queue }: Target,
    ) -> Result<PutOut, redb::Error> {
        let cart = read_cart(&self.cart, token)?;
        if cart.is_empty() {
            return Ok(PutOut::default());
        }
        let (user, viewed) = (self.owner(bytes_of(token))?, self.views(token)?);
        let id = token.public_id(storage);
        let record = Expired { id, user, seen, cart, viewed, why }.write();
        let (bytes, mut dropped) = (record.len(), 0);
        let table = if queue.is_some() { &mut self.events } else { &mut self.expiring };
        let next = table.last()?.map_or(0, |(last, _)| last.value() + 1);
        table.insert(next, record.as_slice())?;
        while queue.is_some_and(|keep| table.len().is_ok_and(|length| length > keep)) {
            table.pop_first()?;
            dropped += 1;
        }
        Ok(PutOut { bytes, dropped })
    }

    /// Ends a session that its visitor has not ended, and hands its cart on. Where that cannot be done it is
    /// lost, for the session has to go; without a farewell it goes.
    pub(super) fn dismiss(
        &mut self,
        token: &[u8],
        farewell: Option<&Farewell>,
        parted: &mut Parted,
    ) -> Result<(), redb::Error> {
        if let Some(farewell) = farewell {
            self.hand_on_at_once(token, farewell, parted)?;
        }
        self.revoke(token)
    }

    fn hand_on_at_once(
        &mut self,
        token: &[u8],
        farewell: &Farewell,
        parted: &mut Parted,
    ) -> Result<(), redb::Error> {
        let Some(known) = StoredToken::from_store(token) else { return Ok(()) };
        let Some(seen) = self.seen(token)? else { return Ok(()) };
        if self.cart.range(cart_of(token))?.next().is_none() {
            return Ok(());
        }
        match self.target_at_once(farewell)? {
            Ok(target) => {
                let put = self.put_out(&known, time_of(seen), Why::Expired, target)?;
                parted.handed_on += usize::from(put.bytes > 0);
                parted.dropped += put.dropped;
            }
            Err(refusal) => {
                parted.lost += 1;
                parted.refusal = Some(refusal.to_owned());
            }
        }
        Ok(())
    }

    /// The bits of the time when a session was seen.
    fn seen(&self, token: &[u8]) -> Result<Option<u64>, redb::Error> {
        let stored = self.session.get(token)?;
        Ok(stored.and_then(|stored| Some(Record::head_of(stored.value())?.seen)))
    }

    /// Where the cart of a session goes that cannot wait; or why it cannot be handed on.
    fn target_at_once(
        &self,
        farewell: &Farewell,
    ) -> Result<Result<Target, &'static str>, redb::Error> {
        Ok(match farewell {
            Farewell::Outbox { storage } if self.expiring.len()? < OUTBOX_MAX => {
                Ok(Target { storage: *storage, queue: None })
            }
            Farewell::Outbox { .. } => Err(OUTBOX_FULL),
            Farewell::Queue { storage, keep } => {
                Ok(Target { storage: *storage, queue: Some(*keep) })
            }
            Farewell::Stream { .. } => Err(NO_STREAMS),
            Farewell::Keep => Err(NOT_NOW),
        })
    }

    pub(super) fn clear_outbox(&mut self, outbox: &Outbox) -> Result<bool, redb::Error> {
        let first = self.expiring.first()?.map(|(_, record)| record.value() == outbox.first);
        if first != Some(true) {
            return Ok(false);
        }
        for _ in 0..outbox.records {
            self.expiring.pop_first()?;
        }
        Ok(outbox.records > 0)
    }
}

/// What has waited longest in the outbox.
pub(super) fn outbox(txn: &ReadTransaction) -> Result<Outbox, redb::Error> {
    let (mut records, mut bytes) = (Vec::new(), 0);
    let most = usize::try_from(EXPIRING_BATCH).unwrap_or(usize::MAX);
    let waiting = txn.open_table(EXPIRING)?;
    for entry in waiting.iter()?.take(most) {
        let record = entry?.1.value().to_vec();
        bytes += record.len();
        records.push(record);
        if bytes >= EXPIRING_BYTES {
            break;
        }
    }
    Ok(Outbox::of(records, waiting.len()?))
}
