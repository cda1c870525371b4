//! What is moved to and from the embedded store.

use anteroom_http::clock::unix_now;
use anteroom_http::ident::{Item, StoredToken, User, VisitorToken};
use redb::{ReadTransaction, ReadableTable, ReadableTableMetadata as _, Table};

use super::EmbeddedStore;
use super::events::FROM;
use super::keys::{Bytes, NamedRecord, bytes_of};
use super::record::{Record, time_bits, time_of};
use super::sessions::{cart_of, name_of, views_in};
use super::tables::{CART, EVENTS, EXPIRING, IDLE_REPORTED, POPULARITY, RECENT, SESSION, Tables};
use super::visitor_tables::{VISITOR, VISITORS};
use super::{revoked, rows};
use crate::transfer::{
    IdleMark, LogInTime, SharedKind, SharedRecord, StoreCounts, TRANSFER_CART_MAX, TRANSFER_PAGE,
    TransferCursor, TransferPage, TransferRecord, TransferStore, is_visitor,
};
use crate::{Cart, StoreError};

/// The parts of a walk over tokens.
const IN_SESSIONS: u8 = 0;
const IN_VISITORS: u8 = 1;
/// Entries of queues on a page: each may be some 70 KiB.
const ENTRIES: usize = 50;
/// Rows on a page: each may be 1 MiB.
const ROWS: usize = 4;

impl Tables<'_> {
    /// Replaces what is stored of a token. Returns whether it was not there like that.
    fn import(&mut self, record: &TransferRecord) -> Result<bool, redb::Error> {
        let token = bytes_of(&record.token);
        let is_changed = match VisitorToken::from_store(token) {
            Some(visitor) => self.import_visitor(&visitor, record)?,
            None => self.import_session(token, record)?,
        };
        let is_other_cart = self.moved_cart(token)? != record.cart;
        if is_other_cart {
            self.cart.retain_in(cart_of(token), |_, _| false)?;
            for (item, count) in &record.cart {
                self.cart.insert((token, item.as_str().as_bytes()), *count)?;
            }
        }
        Ok(is_changed || is_other_cart)
    }

    fn import_session(
        &mut self,
        token: &[u8],
        record: &TransferRecord,
    ) -> Result<bool, redb::Error> {
        let before = self.session.get(token)?.map(|stored| stored.value().to_vec());
        let known = before.as_deref().and_then(Record::head_of);
        let since = record.since.time().map_or(0, time_bits);
        // A session is cleaned, and is over when idle, by the time when it was last seen. Where that is not known it
        // counts from its copy.
        let first_copied =
            || known.as_ref().map_or_else(|| time_bits(unix_now()), |known| known.seen);
        let seen = record.seen.map_or_else(first_copied, time_bits);
        let user = record.user.as_ref().map(User::as_stored).unwrap_or_default();
        let value = Record { seen, since, user, items: views_of(record) }.write();
        if before.as_deref() == Some(value.as_slice()) {
            return Ok(false);
        }
        if let Some(known) = known {
            self.tokens.remove((name_of(known.user), token))?;
            self.recent.remove((known.seen, token))?;
        }
        if since > 0 && !user.is_empty() {
            self.tokens.insert((name_of(user), token), ())?;
        }
        self.recent.insert((seen, token), ())?;
        self.session.insert(token, value.as_slice())?;
        Ok(true)
    }

    fn import_visitor(
        &mut self,
        visitor: &VisitorToken,
        record: &TransferRecord,
    ) -> Result<bool, redb::Error> {
        let token = bytes_of(visitor.as_stored());
        let seen = time_bits(record.seen.unwrap_or_default());
        let value = Record { seen, items: views_of(record), ..Record::default() }.write();
        let is_same =
            self.visitors.record.get(token)?.is_some_and(|stored| stored.value() == value);
        if !is_same {
            self.visitors.remove(visitor)?;
            self.visitors.record.insert(token, value.as_slice())?;
            self.visitors.seen.insert((seen, token), ())?;
        }
        Ok(!is_same)
    }

    fn moved_cart(&self, token: &[u8]) -> Result<Cart, redb::Error> {
        cart_in(&self.cart, token)
    }

    /// Removes a token, unless its login, or if that is unknown its last visit, was at `before` or later.
    fn remove_token(&mut self, token: &StoredToken, before: f64) -> Result<bool, redb::Error> {
        if let Some(visitor) = VisitorToken::from_store(bytes_of(token)) {
            let stored = self.visitors.record.get(bytes_of(token))?;
            let began = stored.and_then(|stored| Some(Record::head_of(stored.value())?.seen));
            let goes = began.is_none_or(|began| time_of(began) < before);
            if goes {
                self.forget_visitor(&visitor)?;
            }
            return Ok(goes && began.is_some());
        }
        let stored = self.session.get(bytes_of(token))?;
        let known = stored.and_then(|stored| {
            let Record { seen, since, .. } = Record::head_of(stored.value())?;
            Some(if since > 0 { since } else { seen })
        });
        let goes = known.is_none_or(|began| time_of(began) < before);
        if goes {
            self.revoke(bytes_of(token))?;
        }
        Ok(goes && known.is_some())
    }

    fn import_shared(&mut self, record: &SharedRecord) -> Result<bool, redb::Error> {
        match record {
            SharedRecord::Popularity(item, score) => {
                self.popularity.insert(item.as_str().as_bytes(), *score)?;
            }
            SharedRecord::Row { row, delay, due: Some(due), refreshed, until, json } => {
                let scores = (*delay, *due, refreshed.unwrap_or_default());
                self.rows.restore(row, scores, *until, json.as_deref())?;
            }
            SharedRecord::Revoked { digest, until } => {
                self.revoked.restore(digest, until.max(0.0).round() as u64)?;
            }
            SharedRecord::Event(record) => append(&mut self.events, record)?,
            SharedRecord::Outbox(record) => append(&mut self.expiring, record)?,
            SharedRecord::IdleMark(mark) => {
                let (at, token) = position_of(mark);
                self.idle_reported.insert(FROM, (at, token.as_slice()))?;
            }
            SharedRecord::Row { due: None, .. } | SharedRecord::Stream { .. } => return Ok(false),
        }
        Ok(true)
    }

    fn clear_shared(&mut self, kind: SharedKind) -> Result<(), redb::Error> {
        match kind {
            SharedKind::Popularity => self.popularity.retain(|_, _| false)?,
            SharedKind::Rows => self.rows.clear()?,
            SharedKind::Events => self.events.retain(|_, _| false)?,
            SharedKind::Outbox => self.expiring.retain(|_, _| false)?,
            SharedKind::IdleMark => drop(self.idle_reported.remove(FROM)?),
            SharedKind::Revoked | SharedKind::Stream => {}
        }
        Ok(())
    }
}

fn append(queue: &mut Table<'_, u64, Bytes>, record: &[u8]) -> Result<(), redb::Error> {
    let behind = queue.last()?.map_or(0, |(last, _)| last.value() + 1);
    queue.insert(behind, record)?;
    Ok(())
}

/// The views of a record as they are stored, oldest first.
fn views_of(record: &TransferRecord) -> Vec<(u64, &[u8])> {
    let views = record.viewed.iter();
    let mut views: Vec<_> =
        views.map(|(item, seen)| (time_bits(*seen), item.as_str().as_bytes())).collect();
    views.sort_unstable();
    views
}

/// The position from which idle carts are told of, after a mark.
fn position_of(mark: &IdleMark) -> (u64, Vec<u8>) {
    let at = time_bits(mark.until);
    match &mark.token {
        Some(token) => (at, [bytes_of(token), &[0]].concat()),
        None => (at.saturating_add(1), Vec::new()),
    }
}

/// The mark before a position.
fn mark_of(at: u64, token: &[u8]) -> Option<IdleMark> {
    if let Some(token) = token.strip_suffix(&[0]).and_then(StoredToken::from_store) {
        return Some(IdleMark { until: time_of(at), token: Some(token) });
    }
    at.checked_sub(1).map(|before| IdleMark { until: time_of(before), token: None })
}

fn cart_in(
    carts: &impl ReadableTable<(Bytes, Bytes), i64>,
    token: &[u8],
) -> Result<Cart, redb::Error> {
    let mut cart = Vec::new();
    for entry in carts.range(cart_of(token))?.take(TRANSFER_CART_MAX) {
        let (place, count) = entry?;
        cart.extend(item_in(place.value().1).map(|item| (item, count.value())));
    }
    Ok(cart)
}

fn item_in(bytes: &[u8]) -> Option<Item> {
    std::str::from_utf8(bytes).ok().and_then(Item::new)
}

fn token_in(part: u8, bytes: &[u8]) -> Option<StoredToken> {
    match part {
        IN_SESSIONS => StoredToken::from_store(bytes),
        _ => VisitorToken::from_store(bytes).map(|token| token.as_stored().clone()),
    }
}

/// The key behind this one; the first, if it is empty.
fn behind(last: &[u8]) -> Vec<u8> {
    if last.is_empty() { Vec::new() } else { [last, &[0]].concat() }
}

/// The page after which the next part follows.
fn page_of(part: u8, keys: &[(u64, Vec<u8>)]) -> TransferPage<StoredToken> {
    let next = match keys.last().filter(|_| keys.len() == TRANSFER_PAGE) {
        Some((at, last)) => {
            Some(TransferCursor { part, at: *at, last: last.clone(), ..TransferCursor::default() })
        }
        None if part == IN_SESSIONS => {
            Some(TransferCursor { part: IN_VISITORS, ..TransferCursor::default() })
        }
        None => None,
    };
    let found = keys.iter().filter_map(|(_, token)| token_in(part, token)).collect();
    TransferPage { found, next }
}

fn walk(
    txn: &ReadTransaction,
    from: &TransferCursor,
) -> Result<TransferPage<StoredToken>, redb::Error> {
    let table = txn.open_table(if from.part == IN_SESSIONS { SESSION } else { VISITOR })?;
    let mut keys = Vec::new();
    for entry in table.range(behind(&from.last).as_slice()..)?.take(TRANSFER_PAGE) {
        keys.push((0, entry?.0.value().to_vec()));
    }
    Ok(page_of(from.part, &keys))
}

fn seen_since(
    txn: &ReadTransaction,
    since: f64,
    from: &TransferCursor,
) -> Result<TransferPage<StoredToken>, redb::Error> {
    let table = txn.open_table(if from.part == IN_SESSIONS { RECENT } else { VISITORS })?;
    let at = if from.last.is_empty() { time_bits(since) } else { from.at };
    let mut keys = Vec::new();
    for entry in table.range((at, behind(&from.last).as_slice())..)?.take(TRANSFER_PAGE) {
        let place = entry?.0;
        let (seen, token) = place.value();
        keys.push((seen, token.to_vec()));
    }
    Ok(page_of(from.part, &keys))
}

fn export(
    txn: &ReadTransaction,
    tokens: &[StoredToken],
) -> Result<Vec<Option<TransferRecord>>, redb::Error> {
    let (sessions, visitors) = (txn.open_table(SESSION)?, txn.open_table(VISITOR)?);
    let carts = txn.open_table(CART)?;
    let mut records = Vec::with_capacity(tokens.len());
    for token in tokens {
        let table = if is_visitor(token) { &visitors } else { &sessions };
        let stored = table.get(bytes_of(token))?;
        let record = stored.as_ref().and_then(|stored| record_of(token, stored.value()));
        let cart = match record {
            Some(_) => cart_in(&carts, bytes_of(token))?,
            None => Vec::new(),
        };
        records.push(record.map(|record| TransferRecord { cart, ..record }));
    }
    Ok(records)
}

/// A record without its cart.
fn record_of(token: &StoredToken, stored: &[u8]) -> Option<TransferRecord> {
    let Record { seen, since, user, .. } = Record::head_of(stored)?;
    let since = if since > 0 { LogInTime::At(time_of(since)) } else { LogInTime::Unknown };
    let (user, seen) = (User::from_store(user), Some(time_of(seen)));
    let mut viewed = views_in(stored);
    viewed.reverse();
    Some(TransferRecord { token: token.clone(), user, seen, since, viewed, cart: Vec::new() })
}

fn counts(txn: &ReadTransaction) -> Result<StoreCounts, redb::Error> {
    Ok(StoreCounts {
        sessions: txn.open_table(RECENT)?.len()?,
        visitors: txn.open_table(VISITORS)?.len()?,
        items: txn.open_table(POPULARITY)?.len()?,
        rows: rows::scheduled(txn)?,
        events: txn.open_table(EVENTS)?.len()?,
        outbox: txn.open_table(EXPIRING)?.len()?,
        stream: 0,
    })
}

fn export_shared(
    txn: &ReadTransaction,
    kind: SharedKind,
    from: &TransferCursor,
) -> Result<TransferPage<SharedRecord>, redb::Error> {
    let after = behind(&from.last);
    let by_name = |found: Vec<NamedRecord>, most: usize| {
        let next = found
            .last()
            .filter(|_| found.len() == most)
            .map(|(last, _)| TransferCursor { last: last.clone(), ..TransferCursor::default() });
        TransferPage { found: found.into_iter().filter_map(|(_, record)| record).collect(), next }
    };
    match kind {
        SharedKind::Popularity => {
            let mut found = Vec::new();
            let table = txn.open_table(POPULARITY)?;
            for entry in table.range(after.as_slice()..)?.take(TRANSFER_PAGE) {
                let (item, score) = entry?;
                let score = score.value();
                let record =
                    item_in(item.value()).map(|item| SharedRecord::Popularity(item, score));
                found.push((item.value().to_vec(), record));
            }
            Ok(by_name(found, TRANSFER_PAGE))
        }
        SharedKind::Rows => Ok(by_name(rows::export(txn, &after, ROWS)?, ROWS)),
        SharedKind::Revoked => {
            Ok(by_name(revoked::export(txn, &after, TRANSFER_PAGE)?, TRANSFER_PAGE))
        }
        SharedKind::Events => queue(&txn.open_table(EVENTS)?, from.at, SharedRecord::Event),
        SharedKind::Outbox => queue(&txn.open_table(EXPIRING)?, from.at, SharedRecord::Outbox),
        SharedKind::Stream => Ok(TransferPage::last(Vec::new())),
        SharedKind::IdleMark => {
            let table = txn.open_table(IDLE_REPORTED)?;
            let mark = table.get(FROM)?.and_then(|position| {
                let (at, token) = position.value();
                mark_of(at, token)
            });
            Ok(TransferPage::last(mark.map(SharedRecord::IdleMark).into_iter().collect()))
        }
    }
}

fn queue(
    table: &impl ReadableTable<u64, Bytes>,
    from: u64,
    record: fn(Vec<u8>) -> SharedRecord,
) -> Result<TransferPage<SharedRecord>, redb::Error> {
    let (mut found, mut last) = (Vec::new(), 0);
    for entry in table.range(from..)?.take(ENTRIES) {
        let (place, stored) = entry?;
        found.push(record(stored.value().to_vec()));
        last = place.value();
    }
    let next = (found.len() == ENTRIES)
        .then(|| TransferCursor { at: last + 1, ..TransferCursor::default() });
    Ok(TransferPage { found, next })
}

impl TransferStore for EmbeddedStore {
    async fn walk_tokens(
        &self,
        from: Option<TransferCursor>,
    ) -> Result<TransferPage<StoredToken>, StoreError> {
        self.read(|txn| walk(txn, &from.unwrap_or_default()))
    }

    async fn tokens_seen_since(
        &self,
        since: f64,
        from: Option<TransferCursor>,
    ) -> Result<TransferPage<StoredToken>, StoreError> {
        self.read(|txn| seen_since(txn, since, &from.unwrap_or_default()))
    }

    async fn export(
        &self,
        tokens: &[StoredToken],
    ) -> Result<Vec<Option<TransferRecord>>, StoreError> {
        let records = self.read(|txn| export(txn, tokens))?;
        // This thread has other work.
        tokio::task::yield_now().await;
        Ok(records)
    }

    async fn import(&self, records: &[TransferRecord]) -> Result<usize, StoreError> {
        let records = records.to_vec();
        self.write_soon(move |tables| {
            let mut changed = 0;
            for record in &records {
                changed += usize::from(tables.import(record)?);
            }
            Ok(changed)
        })
        .await
    }

    async fn holds(&self, tokens: &[StoredToken]) -> Result<Vec<bool>, StoreError> {
        self.read(|txn| {
            let (sessions, visitors) = (txn.open_table(SESSION)?, txn.open_table(VISITOR)?);
            let holds = |token: &StoredToken| -> Result<bool, redb::Error> {
                let table = if is_visitor(token) { &visitors } else { &sessions };
                Ok(table.get(bytes_of(token))?.is_some())
            };
            tokens.iter().map(holds).collect()
        })
    }

    async fn remove(&self, tokens: &[StoredToken], before: f64) -> Result<usize, StoreError> {
        let tokens = tokens.to_vec();
        self.write_soon(move |tables| {
            let mut removed = 0;
            for token in &tokens {
                removed += usize::from(tables.remove_token(token, before)?);
            }
            Ok(removed)
        })
        .await
    }

    async fn counts(&self) -> Result<StoreCounts, StoreError> {
        self.read(counts)
    }

    async fn export_shared(
        &self,
        kind: SharedKind,
        from: Option<TransferCursor>,
    ) -> Result<TransferPage<SharedRecord>, StoreError> {
        self.read(|txn| export_shared(txn, kind, &from.unwrap_or_default()))
    }

    async fn clear_shared(&self, kind: SharedKind) -> Result<(), StoreError> {
        self.write_soon(move |tables| tables.clear_shared(kind)).await
    }

    async fn import_shared(&self, records: &[SharedRecord]) -> Result<usize, StoreError> {
        let records = records.to_vec();
        self.write_soon(move |tables| {
            let mut left_out = 0;
            for record in &records {
                left_out += usize::from(!tables.import_shared(record)?);
            }
            Ok(left_out)
        })
        .await
    }

    /// Its pages and purges are those of the process.
    async fn forget_purges(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn make_durable(&self) -> Result<(), StoreError> {
        self.write_durably(|_| Ok(())).await
    }
}
