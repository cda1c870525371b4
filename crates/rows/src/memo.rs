//! Rows in this process's memory for a moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anteroom_http::ident::{Row, hex};
use bytes::Bytes;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use sha2::{Digest, Sha256};

use anteroom_store::{ROW_JSON_MAX, StoredRow};

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

    pub(super) fn get(&self, row: &Row, now: Instant) -> Option<Arc<KeptRow>> {
        self.rows.get(row).and_then(|(read, kept)| still_good(read, kept, now))
    }

    /// The same, and it does not count as used.
    pub(super) fn peek(&self, row: &Row, now: Instant) -> Option<Arc<KeptRow>> {
        self.rows.peek(row).and_then(|(read, kept)| still_good(read, kept, now))
    }

    /// A row has new content in the store; empty: none. If an earlier one is in memory, this replaces it, unless
    /// there was a change since `changes` were counted.
    pub(super) fn renew(&self, row: &Row, stored: StoredRow, changes: u64, now: Instant) {
        if self.rows.peek(row).is_none() {
            return;
        }
        match stored.json.is_empty() {
            true => self.forget(row),
            false => self.keep(row, &Arc::new(stored.into()), changes, now),
        }
    }

    /// Keeps a row that was read after this many changes.
    pub fn keep(&self, row: &Row, kept: &Arc<KeptRow>, changes: u64, now: Instant) {
        if self.changes() != changes {
            return;
        }
        self.rows.insert(row.clone(), (now, Arc::clone(kept)));
        // A change in between has not seen this entry.
        if self.changes() != changes {
            self.rows.remove(row);
        }
    }

    /// How many changes there were.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }
}

/// The kept row, if it is recent.
fn still_good(read: Instant, kept: Arc<KeptRow>, now: Instant) -> Option<Arc<KeptRow>> {
    (now.saturating_duration_since(read) < MOMENT).then_some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn new_content_replaces_what_is_in_memory_and_only_that() {
        let (memo, now) = (RowMemory::default(), Instant::now());
        let stored = |json: &'static str| StoredRow { json: json.into(), refreshed: Some(1.0) };
        memo.keep(&row("1"), &kept("1"), 0, now);
        memo.renew(&row("1"), stored("2"), 0, now);
        memo.renew(&row("2"), stored("2"), 0, now);
        let json = |name| memo.get(&row(name), now).map(|kept| kept.json.clone());
        assert_eq!((json("1"), json("2")), (Some("2".into()), None));
        memo.forget(&row("1"));
        memo.renew(&row("1"), stored("3"), 0, now);
        assert_eq!(json("1"), None, "it was read before a change");
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
}
