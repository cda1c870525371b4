//! Pages as tables: each with its expiry, all within a limit in bytes.
//!
//! The file is a cache: it is recreated at each start, unless a process that goes on hands it over, and after each error.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anteroom_http::clock::unix_now;
use anteroom_http::ident::PageKey;
use bytes::Bytes;
use redb::{
    Durability, ReadTransaction, ReadableTable as _, Table, TableDefinition, WriteTransaction,
};

use super::disk::Disk;
use super::record::time_bits;
use super::writer::Ledger;
use crate::page::nearly;
use crate::{RequestFrequency, StoreCounters, StoreError, SuccessorUse};

type Key = &'static [u8; 32];
/// Page key to 8 bytes of expiry and the page.
const PAGES: TableDefinition<'static, Key, &'static [u8]> = TableDefinition::new("pages");
/// Expiry and page key, soonest first, to the page's charge.
const EXPIRY: TableDefinition<'static, (u64, Key), u64> = TableDefinition::new("expiry");

/// The expiry before each page.
const HEAD: usize = 8;
/// Expired pages removed in one piece of work.
const SWEEP: usize = 128;
/// Bytes of pages that may wait for the writer.
const QUEUE_BYTES: u64 = 16 << 20;

/// How many bytes wait for the writer.
#[derive(Debug, Default)]
pub(super) struct QueueRoom(Arc<AtomicU64>);

/// A page's share of the queue, released when the writer is done with it.
#[derive(Debug)]
pub(super) struct QueueReservation {
    waiting: Arc<AtomicU64>,
    size: u64,
}

impl QueueRoom {
    /// Reserves room for a page, or refuses it. One page always fits.
    pub(super) fn take(&self, size: u64) -> Result<QueueReservation, StoreError> {
        let before = self.0.fetch_add(size, Ordering::Relaxed);
        let reservation = QueueReservation { waiting: Arc::clone(&self.0), size };
        if before > 0 && before + size > QUEUE_BYTES {
            return Err(StoreError::Full);
        }
        Ok(reservation)
    }
}

impl Drop for QueueReservation {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.size, Ordering::Relaxed);
    }
}

/// The tables of pages, and their limit.
#[derive(Debug)]
pub(super) struct PageLedger {
    limit: u64,
    /// They hold the charge of all stored pages, as of the last commit or in the open transaction.
    counters: Arc<StoreCounters>,
}

impl PageLedger {
    pub(super) fn new(limit: u64, counters: Arc<StoreCounters>) -> Self {
        Self { limit, counters }
    }
}

impl Ledger for PageLedger {
    type Tables<'t> = PageTables<'t>;
    const KEEPS_NOTHING: bool = false;

    fn open<'t>(&self, txn: &'t WriteTransaction) -> Result<PageTables<'t>, redb::Error> {
        PageTables::open(txn, self.limit, Arc::clone(&self.counters))
    }

    fn keep_house(&mut self, txn: &WriteTransaction) -> Result<bool, redb::Error> {
        Ok(self.open(txn)?.sweep(unix_now())? > 0)
    }

    fn recover(&mut self, disk: &Disk) -> Result<(), redb::Error> {
        disk.recreate()?;
        self.counters.holds(0, 0);
        prepare(disk)
    }

    fn reopen(&mut self, disk: &Disk, used: SuccessorUse) -> Result<(), redb::Error> {
        // A successor that could not read the file has begun another.
        let is_read = used == SuccessorUse::Read
            && disk.reopen().is_ok()
            && adopt(disk, &self.counters).is_ok();
        if is_read { Ok(()) } else { self.recover(disk) }
    }
}

/// Both tables, open for one transaction.
pub(super) struct PageTables<'t> {
    pages: Table<'t, Key, &'static [u8]>,
    expiry: Table<'t, (u64, Key), u64>,
    limit: u64,
    counters: Arc<StoreCounters>,
}

impl<'t> PageTables<'t> {
    fn open(
        txn: &'t WriteTransaction,
        limit: u64,
        counters: Arc<StoreCounters>,
    ) -> Result<Self, redb::Error> {
        let (pages, expiry) = (txn.open_table(PAGES)?, txn.open_table(EXPIRY)?);
        Ok(Self { pages, expiry, limit, counters })
    }

    /// Replaces an older page, if there is room.
    pub(super) fn replace(
        &mut self,
        key: &PageKey,
        page: &[u8],
        expires: f64,
        demand: RequestFrequency,
    ) -> Result<Result<(), StoreError>, redb::Error> {
        let was_there = self.remove(key)?;
        let is_new = demand == RequestFrequency::Once && !was_there;
        let bound = if is_new { nearly(self.limit) } else { self.limit };
        Ok(match self.put(key, page, expires, bound)? {
            true => Ok(()),
            false if is_new => Err(StoreError::NearlyFull),
            false => Err(StoreError::Full),
        })
    }

    pub(super) fn remove_all(&mut self, keys: &[PageKey]) -> Result<(), redb::Error> {
        keys.iter().try_for_each(|key| self.remove(key).map(drop))
    }

    /// Stores a page where there is none, and returns whether there was room.
    fn put(
        &mut self,
        key: &PageKey,
        page: &[u8],
        expires: f64,
        limit: u64,
    ) -> Result<bool, redb::Error> {
        let (charge, expires) = (charge(page.len()), time_bits(expires));
        if self.counters.page_bytes() + charge > limit {
            self.sweep(unix_now())?;
        }
        let used = self.counters.page_bytes() + charge;
        if used > limit {
            return Ok(false);
        }
        let mut place = self.pages.insert_reserve(&key.0, HEAD + page.len())?;
        let (head, body) = place.as_mut().split_at_mut(HEAD);
        head.copy_from_slice(&expires.to_le_bytes());
        body.copy_from_slice(page);
        drop(place);
        self.expiry.insert((expires, &key.0), charge)?;
        self.counters.holds(0, used);
        Ok(true)
    }

    /// Removes a page, and returns whether it was there.
    fn remove(&mut self, key: &PageKey) -> Result<bool, redb::Error> {
        let stored = self.pages.remove(&key.0)?;
        let Some(expires) = stored.and_then(|stored| split(stored.value()).map(|(at, _)| at))
        else {
            return Ok(false);
        };
        let charge = self.expiry.remove((expires, &key.0))?.map_or(0, |charge| charge.value());
        self.counters.holds(0, self.counters.page_bytes().saturating_sub(charge));
        Ok(true)
    }

    /// Removes expired pages, soonest first, at most [`SWEEP`], and returns how many.
    fn sweep(&mut self, now: f64) -> Result<usize, redb::Error> {
        let now = time_bits(now);
        let mut expired = Vec::new();
        for entry in self.expiry.range(..=(now, &[0xff; 32]))?.take(SWEEP) {
            expired.push(PageKey(*entry?.0.value().1));
        }
        for key in &expired {
            self.remove(key)?;
        }
        Ok(expired.len())
    }
}

/// A page's charge against the limit. redb keeps a large value in a run of 4 KiB blocks whose
/// number is a power of two; small values share a block.
fn charge(size: usize) -> u64 {
    const BESIDE: usize = 160;
    let size = size + BESIDE;
    if size > 2048 { size.next_power_of_two().max(4096) as u64 } else { size as u64 }
}

fn split(stored: &[u8]) -> Option<(u64, &[u8])> {
    let (head, page) = stored.split_first_chunk::<HEAD>()?;
    Some((u64::from_le_bytes(*head), page))
}

/// Creates the tables.
pub(super) fn prepare(disk: &Disk) -> Result<(), redb::Error> {
    let txn = disk.begin(Durability::Immediate)?;
    drop(PageTables::open(&txn, 0, Arc::default())?);
    txn.commit()?;
    Ok(())
}

/// Takes over the pages in a file that another process has closed.
pub(super) fn adopt(disk: &Disk, counters: &StoreCounters) -> Result<(), StoreError> {
    let used = disk.read(|txn| {
        drop(txn.open_table(PAGES)?);
        let mut used = 0_u64;
        for entry in txn.open_table(EXPIRY)?.iter()? {
            let (_, charge) = entry?;
            used = used.saturating_add(charge.value());
        }
        Ok(used)
    })?;
    counters.holds(0, used);
    Ok(())
}

/// The page under a key, unless it has expired.
pub(super) fn page(
    txn: &ReadTransaction,
    key: &PageKey,
    now: f64,
) -> Result<Option<Bytes>, redb::Error> {
    let stored = txn.open_table(PAGES)?.get(&key.0)?;
    let fresh = stored.as_ref().and_then(|stored| split(stored.value()));
    Ok(fresh
        .filter(|(expires, _)| *expires > time_bits(now))
        .map(|(_, page)| Bytes::copy_from_slice(page)))
}
