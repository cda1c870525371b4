//! Carts of idle sessions in Redis, and the LIST of events that wait for their receiver.

use super::expiry::{add_sessions, refusal_of};
use super::{Call, Oldest, RedisStore, script};
use crate::ident::User;
use crate::store::events::TOLD_TO_COME;
use crate::store::{
    EXPIRING_BATCH, EXPIRING_BYTES, EventStore, Farewell, Idle, IdleTold, Noted, StoreError,
    WaitingEvent,
};

impl RedisStore {
    /// Up to which session the last step came, and those behind it, each with the time when it was seen; and
    /// by how much our clock is wrong.
    async fn behind_told(&self, idle: Idle) -> Result<(Vec<u8>, Oldest, f64), StoreError> {
        let mut script = self.script(&script::IDLE);
        script.arg("batch", idle.batch).arg("now", idle.now).arg("newest", idle.until);
        let (mark, found, behind, set_back): (Vec<u8>, Oldest, f64, u8) =
            self.invoke(Call::Write, &script).await?;
        if set_back > 0 {
            tracing::warn!("{TOLD_TO_COME}");
        }
        if behind != 0.0 {
            tracing::debug!(
                behind,
                "this clock is wrong, or that of Redis: idle is who is so by that"
            );
        }
        Ok((mark, found, behind))
    }
}

/// Events that are looked at at a time, to find those of a user: each may be large.
const LOOKED_AT: i64 = 100;
/// How often the queue is walked for a user at most, while events come or are put back all the time.
const WALKS_MAX: usize = 20;

impl RedisStore {
    /// Removes what waits of this user, and returns how much that was. What is put back meanwhile goes from
    /// before us to behind us: we begin anew until the last one is who it was.
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
        // From the end on: what goes from the beginning meanwhile moves nothing past us.
        let (mut removed, mut behind) = (0, self.events_waiting().await?.cast_signed());
        while behind > 0 {
            let from = (behind - LOOKED_AT).max(0);
            let mut command = redis::cmd("LRANGE");
            command.arg(events).arg(from).arg(behind - 1);
            let records: Vec<Vec<u8>> = self.query(Call::Write, &command).await?;
            for record in records {
                let event = WaitingEvent::new(record, 0);
                let whose = event.expired.as_ref().and_then(|expired| expired.user.as_ref());
                if whose.is_some_and(|whose| whose.is_same(user)) {
                    self.remove_event(&event).await?;
                    removed += 1;
                }
            }
            behind = from;
        }
        Ok(removed)
    }

    /// The record at this place; −1 is the last.
    async fn event_at(&self, place: i64) -> Result<Option<Vec<u8>>, StoreError> {
        let mut command = redis::cmd("LINDEX");
        command.arg(&self.keys().events).arg(place);
        self.query(Call::Write, &command).await
    }
}

impl EventStore for RedisStore {
    async fn tell_idle(&self, idle: Idle, farewell: &Farewell) -> Result<IdleTold, StoreError> {
        let batch = idle.batch.clamp(1, EXPIRING_BATCH);
        let (mark, mut found, behind) = self.behind_told(Idle { batch, ..idle }).await?;
        let until = idle.until + behind;
        let are_idle = found.iter().take_while(|(_, seen)| *seen <= until).count();
        let is_all = are_idle == batch as usize;
        found.truncate(are_idle);
        if found.is_empty() {
            return Ok(IdleTold::default());
        }
        let mut script = self.script(&script::TELL_IDLE);
        let storage = self.add_fate(&mut script, Some(farewell));
        let keep = match farewell {
            Farewell::Queue { keep, .. } => *keep,
            Farewell::Keep | Farewell::Stream { .. } | Farewell::Outbox { .. } => 0,
        };
        script.arg("known_mark", mark).arg("bytes_max", EXPIRING_BYTES).arg("full", keep / 2);
        add_sessions(&mut script, &found, storage);
        let (handed_on, goes_on, refusal): (usize, u8, Vec<u8>) =
            self.invoke(Call::Write, &script).await?;
        let more = goes_on == 2 || (goes_on == 1 && is_all);
        Ok(IdleTold { handed_on, more, refusal: refusal_of(&refusal) })
    }

    async fn events_waiting(&self) -> Result<u64, StoreError> {
        let mut command = redis::cmd("LLEN");
        command.arg(&self.keys().events);
        self.query(Call::Write, &command).await
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
        noted: Option<Noted>,
    ) -> Result<(), StoreError> {
        let mut script = self.script(&script::PUT_BACK);
        script.arg("event", &event.record).arg("becomes", &*event.with(noted));
        self.run(&script).await.map(drop)
    }
}
