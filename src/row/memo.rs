//! Rows in this process's memory for a moment: concurrent requests share one read.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use crate::ident::{Row, hex};
use crate::store::{ROW_JSON_MAX, RowStore, StoreError, StoredRow};

/// How long a row is answered from memory: short compared with any sensible refresh interval.
const MOMENT: Duration = Duration::from_millis(250);
/// Bytes of rows in memory. The least used are evicted first.
const MEMORY: u64 = 32 << 20;
/// A guess of a row's size, to size the tables.
const USUAL_ROW: usize = 1024;
/// What a table entry costs beside the row itself.
const SLOT: u64 = 192;
/// Shards of the memory; each holds many rows of the largest size.
const SHARDS: usize = 4;
/// Bytes of the content's hash in an entity tag.
const TAG_SIZE: usize = 16;

const _: () = assert!(MEMORY > (4 * SHARDS * ROW_JSON_MAX) as u64);

/// A row to answer with.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptRow {
    /// JSON.
    pub json: Bytes,
    /// The Unix time at which it was fetched; `None` if another program wrote it.
    pub refreshed: Option<f64>,
    /// Its strong entity tag, in quotes.
    pub tag: String,
}

impl From<StoredRow> for KeptRow {
    fn from(stored: StoredRow) -> Self {
        let tag = format!("\"{}\"", hex(&Sha256::digest(&stored.json)[..TAG_SIZE]));
        Self { json: stored.json, refreshed: stored.refreshed, tag }
    }
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<Row, (Instant, Arc<KeptRow>)> for ByBytes {
    fn weight(&self, row: &Row, (_, kept): &(Instant, Arc<KeptRow>)) -> u64 {
        SLOT + (row.as_str().len() + kept.json.len()) as u64
    }
}

/// Rows in memory, shared by all threads.
#[derive(Debug)]
pub struct RowMemory {
    rows: Cache<Row, (Instant, Arc<KeptRow>), ByBytes>,
    /// Counts changes: a value read before a change is not kept after it.
    changes: AtomicU64,
}

impl Default for RowMemory {
    fn default() -> Self {
        Self::of(MEMORY)
    }
}

impl RowMemory {
    fn of(bytes: u64) -> Self {
        let items = usize::try_from(bytes).unwrap_or(usize::MAX) / USUAL_ROW;
        let options = OptionsBuilder::new()
            .shards(SHARDS)
            .estimated_items_capacity(items)
            .weight_capacity(bytes)
            .build()
            .expect("capacity and item count are set above");
        let hasher = DefaultHashBuilder::default();
        let rows = Cache::with_options(options, ByBytes, hasher, DefaultLifecycle::default());
        Self { rows, changes: AtomicU64::new(0) }
    }

    /// A row has changed: it is read again from now on.
    pub fn forget(&self, row: &Row) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.rows.remove(row);
    }

    fn get(&self, row: &Row, now: Instant) -> Option<Arc<KeptRow>> {
        self.rows.get(row).and_then(|read| still_good(read, now))
    }

    /// The same, and it does not count as used.
    fn peek(&self, row: &Row, now: Instant) -> Option<Arc<KeptRow>> {
        self.rows.peek(row).and_then(|read| still_good(read, now))
    }

    /// Keeps a row that was read after this many changes.
    fn keep(&self, row: &Row, kept: &Arc<KeptRow>, changes: u64, now: Instant) {
        if self.changes() != changes {
            return;
        }
        self.rows.insert(row.clone(), (now, Arc::clone(kept)));
        // A change in between has not seen this entry.
        if self.changes() != changes {
            self.rows.remove(row);
        }
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }
}

/// The kept row, if it is recent.
fn still_good((read, kept): (Instant, Arc<KeptRow>), now: Instant) -> Option<Arc<KeptRow>> {
    (now.saturating_duration_since(read) < MOMENT).then_some(kept)
}

/// A shared read. An error is returned to the request that ran it; for the others there is no row,
/// either.
type PendingRead = Rc<OnceCell<Option<Arc<KeptRow>>>>;

/// Reads rows for one thread: from memory, else from the store, with one read of the same row at a
/// time.
#[derive(Debug)]
pub struct RowReader {
    memo: Arc<RowMemory>,
    /// By row, and by the number of changes: a read from before a change is no answer to a request
    /// after it.
    reading: RefCell<HashMap<(Row, u64), PendingRead>>,
}

impl RowReader {
    /// A reader for one thread over the memory of all.
    #[must_use]
    pub fn new(memo: Arc<RowMemory>) -> Self {
        Self { memo, reading: RefCell::default() }
    }

    /// The last good content of a row.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn row<S: RowStore>(
        &self,
        store: &S,
        row: &Row,
    ) -> Result<Option<Arc<KeptRow>>, StoreError> {
        if let Some(kept) = self.memo.get(row, Instant::now()) {
            return Ok(Some(kept));
        }
        let changes = self.memo.changes();
        let turn = ReadWaiter::take(self, (row.clone(), changes));
        let mut failed = None;
        let read = turn.read.get_or_init(|| async {
            match store.row(row).await {
                Ok(stored) => {
                    let kept = Arc::new(KeptRow::from(stored?));
                    self.memo.keep(row, &kept, changes, Instant::now());
                    Some(kept)
                }
                Err(error) => {
                    failed = Some(error);
                    None
                }
            }
        });
        let kept = read.await.clone();
        failed.map_or(Ok(kept), Err)
    }

    /// The last good content of a row, which is not kept.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn peek<S: RowStore>(
        &self,
        store: &S,
        row: &Row,
    ) -> Result<Option<Arc<KeptRow>>, StoreError> {
        if let Some(kept) = self.memo.peek(row, Instant::now()) {
            return Ok(Some(kept));
        }
        Ok(store.row(row).await?.map(|stored| Arc::new(stored.into())))
    }

    /// A row has changed.
    pub fn forget(&self, row: &Row) {
        self.memo.forget(row);
    }
}

/// A request that waits for a read; the last one removes it.
struct ReadWaiter<'r> {
    reader: &'r RowReader,
    key: (Row, u64),
    read: PendingRead,
}

impl<'r> ReadWaiter<'r> {
    fn take(reader: &'r RowReader, key: (Row, u64)) -> Self {
        let read = Rc::clone(reader.reading.borrow_mut().entry(key.clone()).or_default());
        Self { reader, key, read }
    }
}

impl Drop for ReadWaiter<'_> {
    fn drop(&mut self) {
        let mut reading = self.reader.reading.borrow_mut();
        // Later requests read again once this read is over; an abandoned read leaves no entry.
        let ours = reading.get(&self.key).is_some_and(|read| Rc::ptr_eq(read, &self.read));
        if ours && (self.read.initialized() || Rc::strong_count(&self.read) == 2) {
            reading.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::schedule_row_cache;
    use crate::store::scratch::with_store;

    fn row(name: &str) -> Row {
        Row::new(name).unwrap()
    }

    fn kept(json: &'static str) -> Arc<KeptRow> {
        let json = Bytes::from_static(json.as_bytes());
        Arc::new(StoredRow { json, refreshed: None }.into())
    }

    #[test]
    fn a_row_is_remembered_for_a_moment() {
        let (memo, now) = (RowMemory::default(), Instant::now());
        memo.keep(&row("1"), &kept("1"), 0, now);
        assert_eq!(memo.get(&row("1"), now + MOMENT / 2), Some(kept("1")));
        assert_eq!(memo.get(&row("1"), now + MOMENT), None);
    }

    #[test]
    fn a_row_read_before_a_change_is_not_kept_after_it() {
        let (memo, now) = (RowMemory::default(), Instant::now());
        memo.keep(&row("1"), &kept("1"), 0, now);
        memo.forget(&row("1"));
        assert_eq!(memo.get(&row("1"), now), None);
        memo.keep(&row("1"), &kept("1"), 0, now);
        assert_eq!(memo.get(&row("1"), now), None);
        memo.keep(&row("1"), &kept("2"), memo.changes(), now);
        assert_eq!(memo.get(&row("1"), now), Some(kept("2")));
    }

    #[test]
    fn memory_is_bounded_by_bytes() {
        let (memo, now) = (RowMemory::of(64 << 10), Instant::now());
        for number in 0..200 {
            let json = Bytes::from(vec![b'1'; 1_000]);
            let kept = Arc::new(StoredRow { json, refreshed: None }.into());
            memo.keep(&row(&number.to_string()), &kept, 0, now);
        }
        assert!((1..=64 << 10).contains(&memo.rows.weight()), "{}", memo.rows.weight());
    }

    #[test]
    fn a_tag_is_that_of_the_content() {
        assert_eq!(kept("1").tag, "\"6b86b273ff34fce19d6b804eff5a3f57\"");
        assert_ne!(kept("1").tag, kept("2").tag);
    }

    #[test]
    fn concurrent_readers_share_one_read_and_leave_nothing_behind() {
        with_store(async |store| {
            let reader = RowReader::new(Arc::default());
            schedule_row_cache(&store, &row("1"), Some(Duration::from_secs(5)), 100.0)
                .await
                .unwrap();
            assert_eq!(reader.row(&store, &row("1")).await.unwrap(), None);
            let claimed = store.claim_rows(100.0, 1, 10.0).await.unwrap();
            let json = Bytes::from_static(b"1");
            assert!(store.put_row(&claimed.rows[0], json, 105.0, 101.0).await.unwrap());
            let first = row("1");
            let (one, other) = tokio::join!(reader.row(&store, &first), reader.row(&store, &first));
            let (one, other) = (one.unwrap().unwrap(), other.unwrap().unwrap());
            assert!(Arc::ptr_eq(&one, &other));
            assert_eq!((&one.json[..], one.refreshed), (&b"1"[..], Some(101.0)));
            drop(reader.row(&store, &row("2")));
            assert!(reader.reading.borrow().is_empty());
        });
    }
}
