//! The outbox, and the end of sessions with carts.
//!
//! Like `sessions`: everything here runs inside the caller's transaction.

use anteroom_http::ident::{StoredToken, TokenStorage};
use redb::{ReadTransaction, ReadableTable as _, ReadableTableMetadata as _};

use super::keys::bytes_of;
use super::record::{Record, time_bits, time_of};
use super::sessions::{cart_of, read_cart};
use super::tables::{EXPIRING, Tables};
use crate::{
    Cursor, EXPIRING_BATCH, EXPIRING_BYTES, EndedCarts, Eviction, EvictionResult, ExpiredSession,
    ExpiryAction, HandoverReason, NOT_NOW, OUTBOX_FULL, OUTBOX_MAX, Outbox,
};

/// Why a cart cannot go to a stream.
pub(super) const NO_STREAMS: &str = "the embedded store has no streams";

/// A session's key in `recent:`.
pub(super) type RecentKey = (u64, Vec<u8>);

/// Where carts go.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandoverTarget {
    /// How tokens are stored.
    storage: TokenStorage,
    /// The most events that wait, if carts go to the queue; `None`: they go to the outbox.
    queue: Option<u64>,
}

/// The result of handing on a cart.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HandoverResult {
    /// The bytes of the cart; 0 without a cart.
    pub(super) bytes: usize,
    /// Events dropped to make room.
    dropped: usize,
}

impl Tables<'_> {
    pub(super) fn evict_expiring(
        &mut self,
        how: Eviction,
        from: Cursor,
        expiry_action: &ExpiryAction,
    ) -> Result<EvictionResult, redb::Error> {
        let (oldest, behind) = self.behind(&from, how)?;
        let target = self.target(expiry_action)?;
        let mut evicted =
            EvictionResult { more: behind, cursor: from, ..EvictionResult::default() };
        if matches!(expiry_action, ExpiryAction::Stream { .. }) {
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
                    let put =
                        self.put_out(&known, time_of(seen), HandoverReason::Expired, target)?;
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

    /// The oldest sessions after the cursor that are over the limit, at most a batch, and whether
    /// there are more.
    fn behind(&self, from: &Cursor, how: Eviction) -> Result<(Vec<RecentKey>, bool), redb::Error> {
        let over = self.recent.len()?.saturating_sub(how.keep).saturating_sub(from.left);
        let (batch, before) = (how.batch.clamp(1, EXPIRING_BATCH) as usize, time_bits(how.before));
        let (seen, mut token) =
            from.last.as_ref().map_or_else(Default::default, |(seen, token)| {
                (time_bits(*seen), bytes_of(token).to_vec())
            });
        if from.last.is_some() {
            // The next possible key: no token sorts between.
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

    /// Where carts go; `None` while they cannot be handed on.
    pub(super) fn target(
        &self,
        expiry_action: &ExpiryAction,
    ) -> Result<Option<HandoverTarget>, redb::Error> {
        Ok(match expiry_action {
            ExpiryAction::Outbox { storage } if self.expiring.is_empty()? => {
                Some(HandoverTarget { storage: *storage, queue: None })
            }
            ExpiryAction::Queue { storage, keep } => {
                Some(HandoverTarget { storage: *storage, queue: Some(*keep) })
            }
            // The embedded store has no stream: the configuration check reports it.
            ExpiryAction::Outbox { .. } | ExpiryAction::Stream { .. } | ExpiryAction::Keep => None,
        })
    }

    /// Hands a session's cart on, if it has one.
    pub(super) fn put_out(
        &mut self,
        token: &StoredToken,
        seen: f64,
        why: HandoverReason,
        HandoverTarget { storage, queue }: HandoverTarget,
    ) -> Result<HandoverResult, redb::Error> {
        let cart = read_cart(&self.cart, token)?;
        if cart.is_empty() {
            return Ok(HandoverResult::default());
        }
        let (user, viewed) = (self.owner(bytes_of(token))?, self.views(token)?);
        let id = token.public_id(storage);
        let record = ExpiredSession { id, user, seen, cart, viewed, why }.write();
        let (bytes, mut dropped) = (record.len(), 0);
        let table = if queue.is_some() { &mut self.events } else { &mut self.expiring };
        let next = table.last()?.map_or(0, |(last, _)| last.value() + 1);
        table.insert(next, record.as_slice())?;
        while queue.is_some_and(|keep| table.len().is_ok_and(|length| length > keep)) {
            table.pop_first()?;
            dropped += 1;
        }
        Ok(HandoverResult { bytes, dropped })
    }

    /// Ends a session that is not ended by its visitor, and hands its cart on. A cart that cannot
    /// be handed on is lost, for the session must end; without an expiry action the cart is
    /// removed.
    pub(super) fn dismiss(
        &mut self,
        token: &[u8],
        expiry_action: Option<&ExpiryAction>,
        ended_carts: &mut EndedCarts,
    ) -> Result<(), redb::Error> {
        if let Some(expiry_action) = expiry_action {
            self.hand_on_at_once(token, expiry_action, ended_carts)?;
        }
        self.revoke(token)
    }

    fn hand_on_at_once(
        &mut self,
        token: &[u8],
        expiry_action: &ExpiryAction,
        ended_carts: &mut EndedCarts,
    ) -> Result<(), redb::Error> {
        let Some(known) = StoredToken::from_store(token) else { return Ok(()) };
        let Some(seen) = self.seen(token)? else { return Ok(()) };
        if self.cart.range(cart_of(token))?.next().is_none() {
            return Ok(());
        }
        match self.target_at_once(expiry_action)? {
            Ok(target) => {
                let put = self.put_out(&known, time_of(seen), HandoverReason::Expired, target)?;
                ended_carts.handed_on += usize::from(put.bytes > 0);
                ended_carts.dropped += put.dropped;
            }
            Err(refusal) => {
                ended_carts.lost += 1;
                ended_carts.refusal = Some(refusal.to_owned());
            }
        }
        Ok(())
    }

    /// The bits of the time when a session was last seen.
    fn seen(&self, token: &[u8]) -> Result<Option<u64>, redb::Error> {
        let stored = self.session.get(token)?;
        Ok(stored.and_then(|stored| Some(Record::head_of(stored.value())?.seen)))
    }

    /// Where the cart of a session goes that must end now; or why it cannot be handed on.
    fn target_at_once(
        &self,
        expiry_action: &ExpiryAction,
    ) -> Result<Result<HandoverTarget, &'static str>, redb::Error> {
        Ok(match expiry_action {
            ExpiryAction::Outbox { storage } if self.expiring.len()? < OUTBOX_MAX => {
                Ok(HandoverTarget { storage: *storage, queue: None })
            }
            ExpiryAction::Outbox { .. } => Err(OUTBOX_FULL),
            ExpiryAction::Queue { storage, keep } => {
                Ok(HandoverTarget { storage: *storage, queue: Some(*keep) })
            }
            ExpiryAction::Stream { .. } => Err(NO_STREAMS),
            ExpiryAction::Keep => Err(NOT_NOW),
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

/// The oldest batch in the outbox.
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
