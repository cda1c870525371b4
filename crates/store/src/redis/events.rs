//! Carts of idle sessions in Redis, and the LIST of events that wait for their receiver.

use anteroom_http::ident::User;

use super::expiry::{add_sessions, refusal_of};
use super::{RedisCall, RedisStore, ScoredMembers, script};
use crate::events::POSITION_AHEAD;
use crate::{
    DeliveryFailure, EXPIRING_BATCH, EXPIRING_BYTES, EventStore, ExpiryAction, IdleRange, IdleStep,
    StoreError, WaitingEvent,
};

impl RedisStore {
    /// The last step's position, and the sessions after it, each with the time when it was last
    /// seen; and the error of this clock.
    async fn behind_position(
        &self,
        idle: IdleRange,
    ) -> Result<(Vec<u8>, ScoredMembers, f64), StoreError> {
        let mut script = self.script(&script::IDLE);
        script.arg("batch", idle.batch).arg("now", idle.now).arg("newest", idle.until);
        let (mark, found, behind, set_back): (Vec<u8>, ScoredMembers, f64, u8) =
            self.invoke(RedisCall::Write, &script).await?;
        if set_back > 0 {
            tracing::warn!("{POSITION_AHEAD}");
        }
        if behind != 0.0 {
            tracing::debug!(
                behind,
                "the clocks of this machine and of Redis differ: idle times go by that of Redis"
            );
        }
        Ok((mark, found, behind))
    }
}

/// Events read at a time, to find those of a user: each may be large.
const LOOKED_AT: i64 = 100;
/// The most walks of the queue for a user, while events are added or put back all the time.
const WALKS_MAX: usize = 20;

impl RedisStore {
    /// Removes the waiting events of this user, and returns their number. An event that is put back
    /// during the walk moves past it: the walk is repeated until the last event stays the same.
    pub(super) async fn forget_events(&self, user: &User) -> Result<usize, StoreError> {
        let (mut removed, mut last) = (0, self.event_at(-1).await?);
        for _ in 0..WALKS_MAX {
            let found = self.forget_those_there(user).await?;
            removed += found;
            let last_now = self.event_at(-1).await?;
            let is_same = last_now == last;
            if found == 0 && is_same {
                break;
            }
            last = last_now;
        }
        Ok(removed)
    }

    async fn forget_those_there(&self, user: &User) -> Result<usize, StoreError> {
        let events = &self.keys().events;
        // From the end on: a removal at the front then skips no event.
        let (mut removed, mut behind) = (0, self.events_waiting().await?.cast_signed());
        while behind > 0 {
            let from = (behind - LOOKED_AT).max(0);
            let mut command = redis::cmd("LRANGE");
            command.arg(events).arg(from).arg(behind - 1);
            let records: Vec<Vec<u8>> = self.query(RedisCall::Write, &command).await?;
            for record in records {
                let event = WaitingEvent::new(record, 0);
                let owner = event.expired.as_ref().and_then(|expired| expired.user.as_ref());
                if owner.is_some_and(|owner| owner.is_same(user)) {
                    self.remove_event(&event).await?;
                    removed += 1;
                }
            }
            behind = from;
        }
        Ok(removed)
    }

    /// The record at this index; −1 is the last.
    async fn event_at(&self, place: i64) -> Result<Option<Vec<u8>>, StoreError> {
        let mut command = redis::cmd("LINDEX");
        command.arg(&self.keys().events).arg(place);
        self.query(RedisCall::Write, &command).await
    }
}

impl EventStore for RedisStore {
    async fn report_idle_carts(
        &self,
        idle: IdleRange,
        expiry_action: &ExpiryAction,
    ) -> Result<IdleStep, StoreError> {
        let batch = idle.batch.clamp(1, EXPIRING_BATCH);
        let (mark, mut found, behind) = self.behind_position(IdleRange { batch, ..idle }).await?;
        let until = idle.until + behind;
        let are_idle = found.iter().take_while(|(_, seen)| *seen <= until).count();
        let is_all = are_idle == batch as usize;
        found.truncate(are_idle);
        if found.is_empty() {
            return Ok(IdleStep::default());
        }
        let mut script = self.script(&script::REPORT_IDLE_CARTS);
        let storage = self.add_fate(&mut script, Some(expiry_action));
        let keep = match expiry_action {
            ExpiryAction::Queue { keep, .. } => *keep,
            ExpiryAction::Keep | ExpiryAction::Stream { .. } | ExpiryAction::Outbox { .. } => 0,
        };
        script.arg("known_mark", mark).arg("bytes_max", EXPIRING_BYTES).arg("full", keep / 2);
        add_sessions(&mut script, &found, storage);
        let (handed_on, goes_on, refusal): (usize, u8, Vec<u8>) =
            self.invoke(RedisCall::Write, &script).await?;
        let more = goes_on == 2 || (goes_on == 1 && is_all);
        Ok(IdleStep { handed_on, more, refusal: refusal_of(&refusal) })
    }

    async fn events_waiting(&self) -> Result<u64, StoreError> {
        let mut command = redis::cmd("LLEN");
        command.arg(&self.keys().events);
        self.query(RedisCall::Write, &command).await
    }

    async fn first_event(&self) -> Result<Option<WaitingEvent>, StoreError> {
        let record = self.event_at(0).await?;
        Ok(record.map(|record| WaitingEvent::new(record, 0)))
    }

    async fn remove_event(&self, event: &WaitingEvent) -> Result<(), StoreError> {
        let mut script = self.script(&script::REMOVE_EVENT);
        script.arg("event", &event.record);
        self.run(&script).await.map(drop)
    }

    async fn put_back_event(
        &self,
        event: &WaitingEvent,
        noted: Option<DeliveryFailure>,
    ) -> Result<(), StoreError> {
        let mut script = self.script(&script::PUT_BACK);
        script.arg("event", &event.record).arg("becomes", &*event.with(noted));
        self.run(&script).await.map(drop)
    }
}
