//! Carts of idle sessions, and the events that wait for their receiver, as tables.

use redb::{
    AccessGuard, ReadTransaction, ReadableTable, ReadableTableMetadata as _, TableDefinition,
};

use super::EmbeddedStore;
use super::expiring::{NO_STREAMS, Place};
use super::record::{time_bits, time_of};
use super::sessions::{Bytes, RECENT, Tables, cart_of};
use crate::ident::{StoredToken, User};
use crate::store::events::TOLD_TO_COME;
use crate::store::{
    EXPIRING_BATCH, EXPIRING_BYTES, EventStore, Farewell, Idle, IdleTold, Noted, StoreError,
    WaitingEvent, Why,
};

/// The order in which they came to events: `cartevents:`.
pub(super) const EVENTS: TableDefinition<'static, u64, Bytes> = TableDefinition::new("cart_events");
/// Under [`FROM`] the place in `recent:` from which on nobody has been told of as idle: `cartidle:`.
pub(super) const IDLE_TOLD: TableDefinition<'static, &str, (u64, Bytes)> =
    TableDefinition::new("cart_idle");
/// The only key of [`IDLE_TOLD`].
const FROM: &str = "from";

/// The idle sessions that have not been told of, at most a batch.
fn idle_in(
    recent: &impl ReadableTable<(u64, Bytes), ()>,
    told: &impl ReadableTable<&'static str, (u64, Bytes)>,
    idle: Idle,
) -> Result<Vec<Place>, redb::Error> {
    let from = told.get(FROM)?;
    let (seen, token) = match from.as_ref().map(AccessGuard::value) {
        Some((seen, token)) if !is_to_come(seen, idle) => (seen, token),
        Some(_) => (time_bits(idle.until), [].as_slice()),
        None => (0, [].as_slice()),
    };
    let mut found = Vec::new();
    let until = time_bits(idle.until);
    for entry in recent.range((seen, token)..)?.take(most(idle)) {
        let place = entry?.0;
        let (seen, token) = place.value();
        if seen > until {
            break;
        }
        found.push((seen, token.to_vec()));
    }
    Ok(found)
}

/// Whether all have been told of up to a time that is to come: a clock was ahead.
fn is_to_come(seen: u64, idle: Idle) -> bool {
    // Behind the last of one time is the place of the next.
    seen > time_bits(idle.now).saturating_add(1)
}

/// Whether [`is_to_come`] what is noted.
fn is_set_back(
    told: &impl ReadableTable<&'static str, (u64, Bytes)>,
    idle: Idle,
) -> Result<bool, redb::Error> {
    Ok(told.get(FROM)?.is_some_and(|from| is_to_come(from.value().0, idle)))
}

/// How many sessions one step looks at.
fn most(idle: Idle) -> usize {
    idle.batch.clamp(1, EXPIRING_BATCH) as usize
}

impl Tables<'_> {
    pub(super) fn tell_idle(
        &mut self,
        idle: Idle,
        farewell: &Farewell,
    ) -> Result<IdleTold, redb::Error> {
        let mut told = IdleTold::default();
        let Some(target) = self.target(farewell)? else {
            if matches!(farewell, Farewell::Stream { .. }) {
                told.refusal = Some(NO_STREAMS.to_owned());
            }
            return Ok(told);
        };
        let found = idle_in(&self.recent, &self.idle_told, idle)?;
        if is_set_back(&self.idle_told, idle)? {
            tracing::warn!("{TOLD_TO_COME}");
            self.idle_told.insert(FROM, (time_bits(idle.until), [].as_slice()))?;
        }
        told.more = found.len() == most(idle);
        let (mut bytes, mut up_to) = (0, None);
        for (seen, token) in found {
            if let Some(known) = StoredToken::from_store(&token) {
                let has_cart = self.cart.range(cart_of(&token))?.next().is_some();
                if has_cart && self.is_half_full(farewell)? {
                    told.more = false;
                    break;
                }
                let put = self.put_out(&known, time_of(seen), Why::Idle, target)?;
                told.handed_on += usize::from(put.bytes > 0);
                bytes += put.bytes;
            }
            up_to = Some((seen, token));
            if bytes >= EXPIRING_BYTES {
                told.more = true;
                break;
            }
        }
        if let Some((seen, token)) = up_to {
            self.go_on_behind(seen, token)?;
        }
        Ok(told)
    }

    /// Notes up to which session idle ones have been told of. Nothing may mention a token when its session
    /// is gone: it is noted only while others of the same time are left.
    fn go_on_behind(&mut self, seen: u64, mut token: Vec<u8>) -> Result<(), redb::Error> {
        // The first place behind: no token sorts between.
        token.push(0);
        let next = self.recent.range((seen, token.as_slice())..)?.next().transpose()?;
        if next.is_none_or(|(next, _)| next.value().0 > seen) {
            self.idle_told.insert(FROM, (seen.saturating_add(1), [].as_slice()))?;
        } else {
            self.idle_told.insert(FROM, (seen, token.as_slice()))?;
        }
        Ok(())
    }

    /// Whether so many events wait that idle sessions do, too.
    fn is_half_full(&self, farewell: &Farewell) -> Result<bool, redb::Error> {
        match farewell {
            Farewell::Queue { keep, .. } => Ok(self.events.len()? >= keep / 2),
            Farewell::Keep | Farewell::Stream { .. } | Farewell::Outbox { .. } => Ok(false),
        }
    }

    pub(super) fn remove_event(&mut self, event: &WaitingEvent) -> Result<(), redb::Error> {
        if self.is_there(event)? {
            self.events.remove(event.place)?;
        }
        Ok(())
    }

    pub(super) fn put_back_event(
        &mut self,
        event: &WaitingEvent,
        noted: Option<Noted>,
    ) -> Result<(), redb::Error> {
        if !self.is_there(event)? {
            return Ok(());
        }
        let behind = self.events.last()?.map_or(0, |(last, _)| last.value() + 1);
        self.events.remove(event.place)?;
        self.events.insert(behind, &*event.with(noted))?;
        Ok(())
    }

    fn is_there(&self, event: &WaitingEvent) -> Result<bool, redb::Error> {
        let there = self.events.get(event.place)?;
        Ok(there.is_some_and(|there| there.value() == event.record))
    }
}

fn first(txn: &ReadTransaction) -> Result<Option<WaitingEvent>, redb::Error> {
    let events = txn.open_table(EVENTS)?;
    let first = events.first()?;
    Ok(first.map(|(place, record)| WaitingEvent::new(record.value().to_vec(), place.value())))
}

/// The events of a user from this place on, of at most [`EXPIRING_BATCH`]; and the place behind these.
fn events_of(
    txn: &ReadTransaction,
    user: &User,
    from: u64,
) -> Result<(Vec<WaitingEvent>, Option<u64>), redb::Error> {
    let (mut his, mut behind) = (Vec::new(), None);
    for entry in txn.open_table(EVENTS)?.range(from..)?.take(EXPIRING_BATCH as usize) {
        let (place, record) = entry?;
        let event = WaitingEvent::new(record.value().to_vec(), place.value());
        behind = Some(place.value() + 1);
        let whose = event.expired.as_ref().and_then(|expired| expired.user.as_ref());
        if whose.is_some_and(|whose| whose.is_same(user)) {
            his.push(event);
        }
    }
    Ok((his, behind))
}

impl EmbeddedStore {
    /// Removes what waits of this user, and returns how much that was.
    pub(super) async fn forget_events(&self, user: &User) -> Result<usize, StoreError> {
        let (mut removed, mut from) = (0, Some(0));
        while let Some(place) = from {
            let found = self.0.sessions.read(|txn| events_of(txn, user, place));
            let (his, behind) = self.counting(found)?;
            for event in &his {
                self.remove_event(event).await?;
            }
            (removed, from) = (removed + his.len(), behind);
            // There may be very many, and others have to do with this thread.
            tokio::task::yield_now().await;
        }
        Ok(removed)
    }
}

impl EventStore for EmbeddedStore {
    async fn tell_idle(&self, idle: Idle, farewell: &Farewell) -> Result<IdleTold, StoreError> {
        let farewell = *farewell;
        // Where nobody is idle, nothing is written.
        let has_work = self.counting(self.0.sessions.read(|txn| {
            let (one, told) = (Idle { batch: 1, ..idle }, txn.open_table(IDLE_TOLD)?);
            let found = idle_in(&txn.open_table(RECENT)?, &told, one)?;
            Ok(!found.is_empty() || is_set_back(&told, idle)?)
        }))?;
        if !has_work {
            return Ok(IdleTold::default());
        }
        self.write_durably(move |tables| tables.tell_idle(idle, &farewell)).await
    }

    async fn events_waiting(&self) -> Result<u64, StoreError> {
        self.counting(self.0.sessions.read(|txn| Ok(txn.open_table(EVENTS)?.len()?)))
    }

    async fn first_event(&self) -> Result<Option<WaitingEvent>, StoreError> {
        self.counting(self.0.sessions.read(first))
    }

    async fn remove_event(&self, event: &WaitingEvent) -> Result<(), StoreError> {
        let event = event.clone();
        self.write_durably(move |tables| tables.remove_event(&event)).await
    }

    async fn put_back_event(
        &self,
        event: &WaitingEvent,
        noted: Option<Noted>,
    ) -> Result<(), StoreError> {
        let event = event.clone();
        self.write_soon(move |tables| tables.put_back_event(&event, noted)).await
    }
}
