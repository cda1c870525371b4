//! Pages by their key; purges, leases and rows in the first shard; events in the shards of their sessions.

use std::time::Duration;

use anteroom_http::ident::{PageKey, Row};
use anteroom_tls::{TicketKey, TicketKeyOffer};
use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};

use super::ShardedStore;
use crate::bypass::BypassChange;
use crate::{
    BypassStore, CertificateStore, ClaimResult, DeliveryFailure, EventStore, ExpiryAction,
    FleetRegister, FleetStore, Generation, HotPageStore, IdleRange, IdleStep, Lease, LeaseStore,
    OverloadStore, PageStore, PurgePosition, PurgeStore, RequestFrequency, RowClaim, RowStore,
    RowTerm, ScheduledRow, StoreError, StoreNews, StoredBypasses, StoredRow, TaskLease,
    TicketKeyStore, WaitingEvent,
};

/// Every page is booked in its shard, which has its part of the room.
impl PageStore for ShardedStore {
    async fn page(&self, key: &PageKey) -> Result<Option<Bytes>, StoreError> {
        self.of(&key.hex()).page(key).await
    }

    async fn put_page(
        &self,
        key: &PageKey,
        page: Bytes,
        ttl: Duration,
        demand: RequestFrequency,
    ) -> Result<(), StoreError> {
        self.of(&key.hex()).put_page(key, page, ttl, demand).await
    }

    async fn delete_pages(&self, keys: &[PageKey]) -> Result<(), StoreError> {
        let mut by_shard = vec![Vec::new(); self.any.shards()];
        for key in keys {
            by_shard[self.index_of(&key.hex())].push(*key);
        }
        let deleted = self.all().zip(by_shard).filter(|(_, keys)| !keys.is_empty());
        let deleted = deleted.map(|(shard, keys)| async move { shard.delete_pages(&keys).await });
        try_join_all(deleted).await.map(drop)
    }

    async fn lease(&self, key: &PageKey, holder: u64, time: Duration) -> Result<Lease, StoreError> {
        self.of(&key.hex()).lease(key, holder, time).await
    }

    async fn end_lease(
        &self,
        key: &PageKey,
        holder: u64,
        is_shareable: bool,
    ) -> Result<(), StoreError> {
        self.of(&key.hex()).end_lease(key, holder, is_shareable).await
    }
}

/// There is one list, in the first shard; each page is in its own.
impl HotPageStore for ShardedStore {
    async fn put_hot_pages(&self, list: Bytes, ttl: Duration) -> Result<(), StoreError> {
        self.first().put_hot_pages(list, ttl).await
    }

    async fn hot_pages(&self) -> Result<Option<Bytes>, StoreError> {
        self.first().hot_pages().await
    }

    async fn pages(&self, keys: &[PageKey]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let mut by_shard = vec![(Vec::new(), Vec::new()); self.any.shards()];
        for (place, key) in keys.iter().enumerate() {
            let (places, keys) = &mut by_shard[self.index_of(&key.hex())];
            places.push(place);
            keys.push(*key);
        }
        let asked = self.all().zip(by_shard).filter(|(_, (places, _))| !places.is_empty());
        let asked = asked.map(|(shard, (places, keys))| async move {
            shard.pages(&keys).await.map(|found| places.into_iter().zip(found))
        });
        let mut pages = vec![None; keys.len()];
        let mut refused = None;
        // The pages of a shard that does not answer are left out.
        for answer in join_all(asked).await {
            match answer {
                Ok(found) => found.for_each(|(place, page)| pages[place] = page),
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if pages.iter().all(Option::is_none) => Err(error),
            _ => Ok(pages),
        }
    }
}

/// An origin has one value, and there are few: one shard has all of them.
impl OverloadStore for ShardedStore {
    async fn put_known_servers(
        &self,
        version: u32,
        origin: &str,
        known: Bytes,
        ttl: Duration,
    ) -> Result<(), StoreError> {
        self.first().put_known_servers(version, origin, known, ttl).await
    }

    async fn known_servers(&self, version: u32, origin: &str) -> Result<Option<Bytes>, StoreError> {
        self.first().known_servers(version, origin).await
    }
}

/// A period has one key for the whole store.
impl TicketKeyStore for ShardedStore {
    async fn exchange_ticket_keys(
        &self,
        offers: &[TicketKeyOffer],
    ) -> Result<Vec<TicketKey>, StoreError> {
        self.first().exchange_ticket_keys(offers).await
    }
}

/// All proxies share a few values: one shard has all of them.
impl CertificateStore for ShardedStore {
    async fn put_sealed(&self, name: &str, sealed: Bytes, ttl: Duration) -> Result<(), StoreError> {
        self.first().put_sealed(name, sealed, ttl).await
    }

    async fn sealed(&self, name: &str) -> Result<Option<Bytes>, StoreError> {
        self.first().sealed(name).await
    }
}

/// There is one history of purges, and so one shard has it.
impl PurgeStore for ShardedStore {
    async fn purge(
        &self,
        known: PurgePosition,
        marks: &[u32],
    ) -> Result<Option<PurgePosition>, StoreError> {
        self.first().purge(known, marks).await
    }

    async fn news_since(
        &self,
        process_id: u64,
        known: PurgePosition,
    ) -> Result<StoreNews, StoreError> {
        self.first().news_since(process_id, known).await
    }

    async fn is_seen(&self, purge: Generation) -> Result<bool, StoreError> {
        self.first().is_seen(purge).await
    }

    async fn leave(&self, process_id: u64) -> Result<(), StoreError> {
        self.first().leave(process_id).await
    }
}

/// The news of purges tell of the switches, so they are in one shard.
impl BypassStore for ShardedStore {
    async fn change_bypass(&self, change: &BypassChange) -> Result<StoredBypasses, StoreError> {
        self.first().change_bypass(change).await
    }

    async fn bypasses(&self) -> Result<StoredBypasses, StoreError> {
        self.first().bypasses().await
    }
}

/// There is one register, beside the purges that it tells of.
impl FleetStore for ShardedStore {
    async fn register_proxy(
        &self,
        process_id: u64,
        entry: &str,
        lives: Duration,
    ) -> Result<FleetRegister, StoreError> {
        self.first().register_proxy(process_id, entry, lives).await
    }

    async fn unregister_proxy(&self, process_id: u64) -> Result<(), StoreError> {
        self.first().unregister_proxy(process_id).await
    }

    async fn change_move(
        &self,
        before: Option<&str>,
        after: Option<&str>,
        lives: Option<Duration>,
    ) -> Result<bool, StoreError> {
        self.first().change_move(before, after, lives).await
    }

    async fn move_state(&self) -> Result<Option<String>, StoreError> {
        self.first().move_state().await
    }

    async fn has_other_layout(&self) -> Result<bool, StoreError> {
        self.first().has_other_layout().await
    }

    async fn other_prefixes(&self) -> Result<Vec<String>, StoreError> {
        self.first().other_prefixes().await
    }
}

impl LeaseStore for ShardedStore {
    async fn take_lease(
        &self,
        task: TaskLease,
        process_id: u64,
        time: Duration,
    ) -> Result<bool, StoreError> {
        self.first().take_lease(task, process_id, time).await
    }
}

/// There is one schedule, so that a claim looks in one place.
impl RowStore for ShardedStore {
    async fn schedule_row(&self, row: &Row, delay: f64, now: f64) -> Result<(), StoreError> {
        self.first().schedule_row(row, delay, now).await
    }

    async fn schedule_until(&self, rows: &[Row], term: RowTerm) -> Result<usize, StoreError> {
        self.first().schedule_until(rows, term).await
    }

    async fn drop_rows(&self, now: f64, most: usize) -> Result<usize, StoreError> {
        self.first().drop_rows(now, most).await
    }

    async fn make_due(&self, rows: &[Row], now: f64) -> Result<usize, StoreError> {
        self.first().make_due(rows, now).await
    }

    async fn claim_rows(
        &self,
        now: f64,
        most: usize,
        lease: f64,
    ) -> Result<ClaimResult, StoreError> {
        self.first().claim_rows(now, most, lease).await
    }

    async fn put_row(
        &self,
        claim: &RowClaim,
        json: Bytes,
        due_next: f64,
        now: f64,
    ) -> Result<bool, StoreError> {
        self.first().put_row(claim, json, due_next, now).await
    }

    async fn postpone_row(&self, claim: &RowClaim, due_next: f64) -> Result<bool, StoreError> {
        self.first().postpone_row(claim, due_next).await
    }

    async fn outdate_row(&self, row: &Row, now: f64) -> Result<(), StoreError> {
        self.first().outdate_row(row, now).await
    }

    async fn row(&self, row: &Row) -> Result<Option<StoredRow>, StoreError> {
        self.first().row(row).await
    }

    async fn rows(&self, most: usize) -> Result<Vec<ScheduledRow>, StoreError> {
        self.first().rows(most).await
    }
}

/// Each shard has a queue of the carts of its sessions.
impl EventStore for ShardedStore {
    async fn report_idle_carts(
        &self,
        idle: IdleRange,
        expiry_action: &ExpiryAction,
    ) -> Result<IdleStep, StoreError> {
        let action = &match self.action_of_shard(expiry_action).await? {
            ExpiryAction::Keep => return Ok(IdleStep::default()),
            action => action,
        };
        let (mut all, mut answered, mut refused) = (IdleStep::default(), false, None);
        for shard in self.all() {
            // The bound of a step holds over all shards.
            let left = idle.batch.max(1).saturating_sub(all.handed_on as u32);
            if left == 0 {
                all.more = true;
                break;
            }
            match shard.report_idle_carts(IdleRange { batch: left, ..idle }, action).await {
                Ok(step) => {
                    answered = true;
                    all.handed_on += step.handed_on;
                    all.more |= step.more;
                    all.refusal = step.refusal.or(all.refusal);
                }
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if !answered => Err(error),
            _ => Ok(all),
        }
    }

    async fn events_waiting(&self) -> Result<u64, StoreError> {
        let waiting = self.at_those_there(|shard| async move { shard.events_waiting().await });
        Ok(waiting.await?.into_iter().sum())
    }

    /// Of the first events of all shards the oldest, after those of shards where none was put back.
    async fn first_event(&self) -> Result<Option<WaitingEvent>, StoreError> {
        let first = self.at_those_there(|shard| async move {
            let event = shard.first_event().await?;
            Ok(event.map(|event| WaitingEvent { position: shard.index() as u64, ..event }))
        });
        let mut first: Vec<WaitingEvent> = first.await?.into_iter().flatten().collect();
        let seen = |event: &WaitingEvent| event.expired.as_ref().map_or(0.0, |it| it.seen);
        let put_back = self.put_back();
        first.sort_by(|one, other| {
            let place = |event: &WaitingEvent| put_back.get(&event.position).copied();
            place(one).cmp(&place(other)).then(seen(one).total_cmp(&seen(other)))
        });
        Ok(first.into_iter().next())
    }

    async fn remove_event(&self, event: &WaitingEvent) -> Result<(), StoreError> {
        self.any.of_shard(event.position as usize).remove_event(event).await
    }

    async fn put_back_event(
        &self,
        event: &WaitingEvent,
        noted: Option<DeliveryFailure>,
    ) -> Result<(), StoreError> {
        self.any.of_shard(event.position as usize).put_back_event(event, noted).await?;
        let mut put_back = self.put_back();
        let next = put_back.values().max().map_or(0, |last| last + 1);
        put_back.insert(event.position, next);
        Ok(())
    }
}
