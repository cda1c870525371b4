//! Carts of idle sessions, and the events that wait for their receiver, as tables.

use anteroom_http::ident::{StoredToken, User};
use redb::{AccessGuard, ReadTransaction, ReadableTable, ReadableTableMetadata as _};

use super::EmbeddedStore;
use super::expiring::{NO_STREAMS, RecentKey};
use super::keys::Bytes;
use super::record::{time_bits, time_of};
use super::sessions::cart_of;
use super::tables::{EVENTS, IDLE_REPORTED, RECENT, Tables};
use crate::events::POSITION_AHEAD;
use crate::{
    DeliveryFailure, EXPIRING_BATCH, EXPIRING_BYTES, EventStore, ExpiryAction, HandoverReason,
    IdleRange, IdleStep, StoreError, WaitingEvent,
};

/// The only key of [`IDLE_REPORTED`].
pub(super) const FROM: &str = "from";

/// The idle sessions that have not been reported, at most a batch.
fn idle_in(
    recent: &impl ReadableTable<(u64, Bytes), ()>,
    reported: &impl ReadableTable<&'static str, (u64, Bytes)>,
    idle: IdleRange,
) -> Result<Vec<RecentKey>, redb::Error> {
    let from = reported.get(FROM)?;
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

/// Whether the recorded position lies in the future: a clock was ahead.
fn is_to_come(seen: u64, idle: IdleRange) -> bool {
    // The position after the last session of one time is the start of the next time.
    seen > time_bits(idle.now).saturating_add(1)
}

/// Whether the recorded position [`is_to_come`].
fn is_set_back(
    reported: &impl ReadableTable<&'static str, (u64, Bytes)>,
    idle: IdleRange,
) -> Result<bool, redb::Error> {
    Ok(reported.get(FROM)?.is_some_and(|from| is_to_come(from.value().0, idle)))
}

/// How many sessions one step reads.
fn most(idle: IdleRange) -> usize {
    idle.batch.clamp(1, EXPIRING_BATCH) as usize
}

impl Tables<'_> {
    pub(super) fn report_idle_carts(
        &mut self,
        idle: IdleRange,
        expiry_action: &ExpiryAction,
    ) -> Result<IdleStep, redb::Error> {
        let mut step = IdleStep::default();
        let Some(target) = self.target(expiry_action)? else {
            if matches!(expiry_action, ExpiryAction::Stream { .. }) {
                step.refusal = Some(NO_STREAMS.to_owned());
            }
            return Ok(step);
        };
        let found = idle_in(&self.recent, &self.idle_reported, idle)?;
        if is_set_back(&self.idle_reported, idle)? {
            tracing::warn!("{POSITION_AHEAD}");
            self.idle_reported.insert(FROM, (time_bits(idle.until), [].as_slice()))?;
        }
        step.more = found.len() == most(idle);
        let (mut bytes, mut up_to) = (0, None);
        for (seen, token) in found {
            if let Some(known) = StoredToken::from_store(&token) {
                let has_cart = self.cart.range(cart_of(&token))?.next().is_some();
                if has_cart && self.is_half_full(expiry_action)? {
                    step.more = false;
                    break;
                }
                let put = self.put_out(&known, time_of(seen), HandoverReason::Idle, target)?;
                step.handed_on += usize::from(put.bytes > 0);
                bytes += put.bytes;
            }
            up_to = Some((seen, token));
            if bytes >= EXPIRING_BYTES {
                step.more = true;
                break;
            }
        }
        if let Some((seen, token)) = up_to {
            self.go_on_behind(seen, token)?;
        }
        Ok(step)
    }

    /// Records up to which session idle sessions have been reported. A token may not be stored
    /// after its session is gone: it is recorded only while other sessions of the same time are
    /// left.
    fn go_on_behind(&mut self, seen: u64, mut token: Vec<u8>) -> Result<(), redb::Error> {
        // The next possible key: no token sorts between.
        token.push(0);
        let next = self.recent.range((seen, token.as_slice())..)?.next().transpose()?;
        if next.is_none_or(|(next, _)| next.value().0 > seen) {
            self.idle_reported.insert(FROM, (seen.saturating_add(1), [].as_slice()))?;
        } else {
            self.idle_reported.insert(FROM, (seen, token.as_slice()))?;
        }
        Ok(())
    }

    /// Whether so many events wait that idle sessions must wait, too.
    fn is_half_full(&self, expiry_action: &ExpiryAction) -> Result<bool, redb::Error> {
        match expiry_action {
            ExpiryAction::Queue { keep, .. } => Ok(self.events.len()? >= keep / 2),
            ExpiryAction::Keep | ExpiryAction::Stream { .. } | ExpiryAction::Outbox { .. } => {
                Ok(false)
            }
        }
    }

    pub(super) fn remove_event(&mut self, event: &WaitingEvent) -> Result<(), redb::Error> {
        if self.is_there(event)? {
            self.events.remove(event.position)?;
        }
        Ok(())
    }

    pub(super) fn put_back_event(
        &mut self,
        event: &WaitingEvent,
        noted: Option<DeliveryFailure>,
    ) -> Result<(), redb::Error> {
        if !self.is_there(event)? {
            return Ok(());
        }
        let behind = self.events.last()?.map_or(0, |(last, _)| last.value() + 1);
        self.events.remove(event.position)?;
        self.events.insert(behind, &*event.with(noted))?;
        Ok(())
    }

    fn is_there(&self, event: &WaitingEvent) -> Result<bool, redb::Error> {
        let there = self.events.get(event.position)?;
        Ok(there.is_some_and(|there| there.value() == event.record))
    }
}

fn first(txn: &ReadTransaction) -> Result<Option<WaitingEvent>, redb::Error> {
    let events = txn.open_table(EVENTS)?;
    let first = events.first()?;
    Ok(first.map(|(place, record)| WaitingEvent::new(record.value().to_vec(), place.value())))
}

/// A user's events from this position on, of at most [`EXPIRING_BATCH`]; and the position after
/// them.
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
        let owner = event.expired.as_ref().and_then(|expired| expired.user.as_ref());
        if owner.is_some_and(|owner| owner.is_same(user)) {
            his.push(event);
        }
    }
    Ok((his, behind))
}

impl EmbeddedStore {
    /// Removes the waiting events of this user, and returns their number.
    pub(super) async fn forget_events(&self, user: &User) -> Result<usize, StoreError> {
        let (mut removed, mut from) = (0, Some(0));
        while let Some(place) = from {
            let found = self.0.sessions.read(|txn| events_of(txn, user, place));
            let (his, behind) = self.counting(found)?;
            for event in &his {
                self.remove_event(event).await?;
            }
            (removed, from) = (removed + his.len(), behind);
            // There may be very many, and this thread has other work.
            tokio::task::yield_now().await;
        }
        Ok(removed)
    }
}

impl EventStore for EmbeddedStore {
    async fn report_idle_carts(
        &self,
        idle: IdleRange,
        expiry_action: &ExpiryAction,
    ) -> Result<IdleStep, StoreError> {
        let expiry_action = *expiry_action;
        // Without idle sessions nothing is written.
        let has_work = self.counting(self.0.sessions.read(|txn| {
            let (one, reported) = (IdleRange { batch: 1, ..idle }, txn.open_table(IDLE_REPORTED)?);
            let found = idle_in(&txn.open_table(RECENT)?, &reported, one)?;
            Ok(!found.is_empty() || is_set_back(&reported, idle)?)
        }))?;
        if !has_work {
            return Ok(IdleStep::default());
        }
        self.write_durably(move |tables| tables.report_idle_carts(idle, &expiry_action)).await
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
        noted: Option<DeliveryFailure>,
    ) -> Result<(), StoreError> {
        let event = event.clone();
        self.write_soon(move |tables| tables.put_back_event(&event, noted)).await
    }
}
