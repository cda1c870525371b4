//! Backups: what a store holds, in one file.
//!
//! The file is made of blocks, each with a SHA-256 over its place, its kind and its content, so that a block that is
//! damaged, missing, doubled or out of place is found; the last block holds the counts. A backup is written to a
//! temporary name, and renamed when it is whole; it is read from its first to its last byte before anything is
//! restored.

mod code;
mod file;

use std::path::Path;

use anteroom_http::clock::unix_now;
use futures_util::StreamExt as _;
use futures_util::stream;

use self::code::BackupRecord;
pub use self::file::{BackupCounts, BackupError, verify};
use self::file::{BackupReader, BackupWriter};
use super::transfer::{
    SharedKind, TRANSFER_BATCH, TransferCursor, TransferProgress, TransferStore as _, is_visitor,
};
use super::{AnyStore, LogInStore as _, StoreError};

/// Batches that are read at a time.
const IN_FLIGHT: usize = 4;

/// Writes a backup of a store into a file, which only its owner may read. The store may be in use: a change during the
/// backup is in it or not. A file that is there is replaced when the backup is whole.
///
/// # Errors
/// If the store or the file fails; then no file is left.
pub async fn back_up(
    store: &AnyStore,
    path: &Path,
    progress: &TransferProgress,
) -> Result<BackupCounts, BackupError> {
    store.finish_handovers(unix_now()).await?;
    let counts = store.counts().await?;
    progress.begin(counts.sessions + counts.visitors);
    let mut file = BackupWriter::create(path)?;
    let mut cursor: Option<TransferCursor> = None;
    loop {
        let page = store.walk_tokens(cursor).await?;
        let batches: Vec<_> = page.found.chunks(TRANSFER_BATCH).map(<[_]>::to_vec).collect();
        let mut exports = stream::iter(batches)
            .map(|batch| async move { store.export(&batch).await })
            .buffered(IN_FLIGHT);
        while let Some(records) = exports.next().await {
            let records = records?;
            progress.add(records.len());
            let records = records.into_iter().flatten().map(BackupRecord::Token).collect();
            file = add_all(file, records).await?;
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    for kind in SharedKind::ALL {
        let mut cursor = None;
        loop {
            let page = store.export_shared(kind, cursor).await?;
            let records = page.found.into_iter().map(BackupRecord::Shared).collect();
            file = add_all(file, records).await?;
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
    }
    on_other_thread(move || file.finish()).await
}

async fn add_all(
    mut file: BackupWriter,
    records: Vec<BackupRecord>,
) -> Result<BackupWriter, BackupError> {
    on_other_thread(move || {
        records.iter().try_for_each(|record| file.add(record))?;
        Ok(file)
    })
    .await
}

/// A disk may be slow, and this thread may answer visitors.
async fn on_other_thread<T: Send + 'static>(
    step: impl FnOnce() -> Result<T, BackupError> + Send + 'static,
) -> Result<T, BackupError> {
    let done = tokio::task::spawn_blocking(step).await;
    done.unwrap_or_else(|panicked| Err(StoreError::Failed(panicked.into()).into()))
}

/// Removes all that a store holds of what a backup has, and puts a backup in its place. No proxy may use the store.
/// The file is read to its end first: one that is damaged changes nothing.
///
/// # Errors
/// If the file is damaged, or the store fails.
pub async fn restore(
    store: &AnyStore,
    path: &Path,
    progress: &TransferProgress,
) -> Result<BackupCounts, BackupError> {
    let counts = verify(path)?;
    progress.begin(counts.sessions + counts.visitors);
    remove_all(store).await?;
    let mut file = BackupReader::open(path)?;
    while let Some(block) = file.next_block()? {
        let (mut tokens, mut others) = (Vec::new(), Vec::new());
        for record in block {
            match record {
                BackupRecord::Token(record) => tokens.push(record),
                BackupRecord::Shared(record) => others.push(record),
            }
        }
        for batch in tokens.chunks(TRANSFER_BATCH) {
            store.import(batch).await?;
            progress.add(batch.len());
        }
        if !others.is_empty() {
            store.import_shared(&others).await?;
        }
    }
    store.make_durable().await?;
    Ok(counts)
}

async fn remove_all(store: &AnyStore) -> Result<(), BackupError> {
    let mut cursor: Option<TransferCursor> = None;
    loop {
        let page = store.walk_tokens(cursor).await?;
        for batch in page.found.chunks(TRANSFER_BATCH) {
            store.remove(batch, f64::INFINITY).await?;
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    for kind in SharedKind::ALL {
        store.clear_shared(kind).await?;
    }
    Ok(())
}

/// Counts a record.
fn count(counts: &mut BackupCounts, record: &BackupRecord) {
    match record {
        BackupRecord::Token(record) if is_visitor(&record.token) => counts.visitors += 1,
        BackupRecord::Token(_) => counts.sessions += 1,
        BackupRecord::Shared(_) => counts.others += 1,
    }
}
