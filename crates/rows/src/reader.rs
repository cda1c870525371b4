//! Reads rows for requests: concurrent requests share one read.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use anteroom_http::ident::Row;
use anteroom_store::{RowStore, StoreError};
use tokio::sync::OnceCell;

use super::memo::KeptRow;
use super::requests::RowSoon;
use super::shared::SharedRows;

/// A shared read. An error is returned to the request that ran it; for the others there is no row,
/// either.
type PendingRead = Rc<OnceCell<Option<Arc<KeptRow>>>>;

/// Reads rows for one thread: from memory, else from the store, with one read of the same row at a
/// time.
#[derive(Debug)]
pub struct RowReader {
    shared: Arc<SharedRows>,
    /// By row, and by the number of changes: a read from before a change is no answer to a request
    /// after it.
    reading: RefCell<HashMap<(Row, u64), PendingRead>>,
}

impl RowReader {
    /// A reader for one thread over what all threads share.
    #[must_use]
    pub fn new(shared: Arc<SharedRows>) -> Self {
        Self { shared, reading: RefCell::default() }
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
        if let Some(kept) = self.shared.memory.get(row, Instant::now()) {
            return Ok(Some(kept));
        }
        let changes = self.shared.memory.changes();
        let turn = ReadWaiter::take(self, (row.clone(), changes));
        let mut failed = None;
        let read = turn.read.get_or_init(|| async {
            match store.row(row).await {
                Ok(stored) => {
                    let kept = Arc::new(KeptRow::from(stored?));
                    self.shared.memory.keep(row, &kept, changes, Instant::now());
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
        if let Some(kept) = self.shared.memory.peek(row, Instant::now()) {
            return Ok(Some(kept));
        }
        Ok(store.row(row).await?.map(|stored| Arc::new(stored.into())))
    }

    /// As [`Self::row`], for a source whose rows are scheduled when they are asked for: a row that is
    /// not there is fetched.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn row_on_demand<S: RowStore>(
        &self,
        store: &S,
        row: &Row,
    ) -> Result<Option<Arc<KeptRow>>, StoreError> {
        let kept = self.row(store, row).await?;
        if kept.is_some() {
            self.shared.requests.note_use(row);
            return Ok(kept);
        }
        Ok(self.shared.requests.ask(row).await)
    }

    /// A row that is in memory, which is a moment old at most. With `on_demand` its use is noted.
    pub fn remembered(&self, row: &Row, on_demand: bool) -> Option<Arc<KeptRow>> {
        let kept = self.shared.memory.get(row, Instant::now())?;
        if on_demand {
            self.shared.requests.note_use(row);
        }
        Some(kept)
    }

    /// As [`Self::row_on_demand`], for a part of a page: the page does not wait for a row that has to be
    /// fetched first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn row_soon<S: RowStore>(&self, store: &S, row: &Row) -> Result<RowSoon, StoreError> {
        let kept = self.row(store, row).await?;
        if let Some(kept) = kept {
            self.shared.requests.note_use(row);
            return Ok(RowSoon::Found(kept));
        }
        Ok(self.shared.requests.ask_soon(row).await)
    }

    /// A row has changed.
    pub fn forget(&self, row: &Row) {
        self.shared.forget(row);
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
    use std::time::Duration;

    use anteroom_store::scratch::with_store;
    use bytes::Bytes;

    use super::*;
    use crate::schedule_row_cache;

    fn row(name: &str) -> Row {
        Row::new(name).unwrap()
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
