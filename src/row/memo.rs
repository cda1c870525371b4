//! Rows in this process's memory for a moment: what many ask for at once is read once.

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

/// For how long a row is answered from memory: short beside any sensible time between two refreshes.
const MOMENT: Duration = Duration::from_millis(250);
/// Bytes of rows in memory. The least used are forgotten first.
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

/// A row as it is answered.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptRow {
    /// JSON.
    pub json: Bytes,
    /// The Unix time at which it was fetched; `None` where another program wrote it.
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
pub struct Memo {
    rows: Cache<Row, (Instant, Arc<KeptRow>), ByBytes>,
    /// Counts changes: what was read before one is not kept behind it.
    changes: AtomicU64,
}

impl Default for Memo {
    fn default() -> Self {
        Self::of(MEMORY)
    }
}

impl Memo {
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

    /// A row is not what it was: it is read anew from now on.
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

    /// Keeps what was read after so many changes.
    fn keep(&self, row: &Row, kept: &Arc<KeptRow>, changes: u64, now: Instant) {
        if self.changes() != changes {
            return;
        }
        self.rows.insert(row.clone(), (now, Arc::clone(kept)));
        // One that came in between has not seen it.
        if self.changes() != changes {
            self.rows.remove(row);
        }
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }
}

/// What was read, where that was a moment ago.
fn still_good((read, kept): (Instant, Arc<KeptRow>), now: Instant) -> Option<Arc<KeptRow>> {
    (now.saturating_duration_since(read) < MOMENT).then_some(kept)
}

/// A read that several wait for. An error is told to the one who met it; for the others there is
/// nothing, either.
type Read = Rc<OnceCell<Option<Arc<KeptRow>>>>;

/// Reads rows for one thread: from memory, else from the store, where the same row is read once at a
/// time.
#[derive(Debug)]
pub struct Reader {
    memo: Arc<Memo>,
    /// By row, and by how many changes there had been: what was asked before a change is no answer
    /// to who asks behind it.
    reading: RefCell<HashMap<(Row, u64), Read>>,
}

impl Reader {
    /// A reader for one thread over the memory of all.
    #[must_use]
    pub fn new(memo: Arc<Memo>) -> Self {
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
        let turn = Turn::take(self, (row.clone(), changes));
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

    /// The last good content of a row, of which nothing is kept.
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

    /// A row is not what it was.
    pub fn forget(&self, row: &Row) {
        self.memo.forget(row);
    }
}

/// One who waits for a read; the last of them takes it away.
struct Turn<'r> {
    reader: &'r Reader,
    key: (Row, u64),
    read: Read,
}

impl<'r> Turn<'r> {
    fn take(reader: &'r Reader, key: (Row, u64)) -> Self {
        let read = Rc::clone(reader.reading.borrow_mut().entry(key.clone()).or_default());
        Self { reader, key, read }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut reading = self.reader.reading.borrow_mut();
        // Who comes now reads anew, once this read is over; and nobody is left where it was given up.
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
        let (memo, now) = (Memo::default(), Instant::now());
        memo.keep(&row("1"), &kept("1"), 0, now);
        assert_eq!(memo.get(&row("1"), now + MOMENT / 2), Some(kept("1")));
        assert_eq!(memo.get(&row("1"), now + MOMENT), None);
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept_behind_it() {
        let (memo, now) = (Memo::default(), Instant::now());
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
        let (memo, now) = (Memo::of(64 << 10), Instant::now());
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
    fn many_who_ask_at_once_share_a_read_and_leave_nothing_behind() {
        with_store(async |store| {
            let reader = Reader::new(Arc::default());
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
