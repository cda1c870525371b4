//! Rows in Redis: `delay:`, `schedule:` and `inv:<row>` as in the chapter, and `refreshed:` and
//! `unschedule:`, which are our own.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anteroom_http::ident::Row;
use bytes::Bytes;
use redis::pipe;

use super::fault::RedisCall;
use super::{BULK_SIZE, Carriage, RedisStore, script};
use crate::{
    ClaimResult, ROW_JSON_MAX, ROWS_MAX, RowClaim, RowStore, RowTerm, ScheduledRow, StoreError,
    StoredRow,
};

/// The most rows remembered as large.
const LARGE_MAX: usize = 4_096;
/// Rows in one call of a script: longer calls would delay others.
const BATCH: usize = 1_000;

impl RowStore for RedisStore {
    async fn schedule_row(&self, row: &Row, delay: f64, now: f64) -> Result<(), StoreError> {
        let mut script = self.script(&script::SCHEDULE_ROW);
        script.arg("row", row.as_str()).arg("every", delay).arg("now", now).arg("most", ROWS_MAX);
        match self.run(&script).await? {
            0 => Err(StoreError::RowsFull),
            _ => Ok(()),
        }
    }

    async fn schedule_until(&self, rows: &[Row], term: RowTerm) -> Result<usize, StoreError> {
        let mut refused = 0;
        for rows in rows.chunks(BATCH) {
            let mut script = self.script(&script::SCHEDULE_UNTIL);
            script.arg("every", term.delay).arg("due", term.due);
            script.arg("end_time", term.until).arg("most", term.most);
            for row in rows {
                script.another(row.as_str());
            }
            refused += self.run(&script).await?;
        }
        Ok(refused)
    }

    async fn drop_rows(&self, now: f64, most: usize) -> Result<usize, StoreError> {
        let mut script = self.script(&script::DROP_ROWS);
        script.arg("now", now).arg("most", most.min(BATCH));
        self.run(&script).await
    }

    async fn make_due(&self, rows: &[Row], now: f64) -> Result<usize, StoreError> {
        let mut known = 0;
        for rows in rows.chunks(BATCH) {
            let mut script = self.script(&script::MAKE_DUE);
            script.arg("now", now);
            for row in rows {
                script.another(row.as_str());
            }
            known += self.run(&script).await?;
        }
        Ok(known)
    }

    async fn claim_rows(
        &self,
        now: f64,
        most: usize,
        lease: f64,
    ) -> Result<ClaimResult, StoreError> {
        let mut script = self.script(&script::CLAIM_ROWS);
        script.arg("now", now).arg("most", most.min(BATCH)).arg("lease", lease);
        let (removed, next, taken): (usize, Vec<u8>, Vec<Vec<u8>>) =
            self.invoke(RedisCall::Write, &script).await?;
        let rows = taken.chunks_exact(4).filter_map(|claim| {
            // A member that is not a row by our limits is postponed, too, and delays no other.
            let row = row_of(&claim[0])?;
            let (delay, due) = (score(&claim[1])?, score(&claim[2])?);
            Some(RowClaim { row, delay, due, fence: score(&claim[3])? })
        });
        Ok(ClaimResult { rows: rows.collect(), removed, next: score(&next) })
    }

    async fn put_row(
        &self,
        claim: &RowClaim,
        json: Bytes,
        due_next: f64,
        now: f64,
    ) -> Result<bool, StoreError> {
        if json.len() > ROW_JSON_MAX {
            return Err(StoreError::Full);
        }
        let mut script = self.script(&script::PUT_ROW);
        script.key("content", self.keys().row(&claim.row)).arg("row", claim.row.as_str());
        script.arg("fence", claim.fence).arg("due_next", due_next);
        script.arg("json", json.as_ref()).arg("now", now);
        self.invoke_with(json.len(), &script).await
    }

    async fn postpone_row(&self, claim: &RowClaim, due_next: f64) -> Result<bool, StoreError> {
        let mut script = self.script(&script::POSTPONE_ROW);
        script.arg("row", claim.row.as_str()).arg("fence", claim.fence).arg("due_next", due_next);
        Ok(self.run(&script).await? > 0)
    }

    async fn outdate_row(&self, row: &Row, now: f64) -> Result<(), StoreError> {
        let mut script = self.script(&script::OUTDATE_ROW);
        script.key("content", self.keys().row(row)).arg("row", row.as_str()).arg("now", now);
        self.run(&script).await.map(drop)
    }

    async fn row(&self, row: &Row) -> Result<Option<StoredRow>, StoreError> {
        let keys = self.keys();
        let mut read = pipe();
        // GETRANGE, not GET: another program's value of any size must not fill our memory.
        read.cmd("GETRANGE").arg(keys.row(row)).arg(0).arg(ROW_JSON_MAX);
        read.cmd("ZSCORE").arg(&keys.refreshed).arg(row.as_str());
        let read = &read;
        type Reply = (Vec<u8>, Option<f64>);
        let step = |mut on| async move { read.query_async::<Reply>(&mut on).await };
        let is_large = self.handle.large.has(row);
        let carriage = if is_large { Carriage::Large } else { Carriage::Plain };
        let reader = self.foreground();
        let (json, refreshed) = reader.call_over(carriage, RedisCall::Read, step).await?;
        let is_large = json.len() > BULK_SIZE;
        if is_large {
            // For the next call.
            self.handle.links.begin_large(self.shard);
        }
        self.handle.large.note(row, is_large);
        let whole = !json.is_empty() && json.len() <= ROW_JSON_MAX;
        Ok(whole.then(|| StoredRow { json: json.into(), refreshed }))
    }

    async fn rows(&self, most: usize) -> Result<Vec<ScheduledRow>, StoreError> {
        let mut listed = Vec::new();
        for first in (0..most).step_by(BATCH) {
            let last = (first + BATCH).min(most) - 1;
            let mut script = self.script(&script::LIST_ROWS);
            script.arg("first", first).arg("last", last);
            let found: Vec<Vec<u8>> = self.invoke(RedisCall::Write, &script).await?;
            listed.extend(found.chunks_exact(4).filter_map(|entry| {
                Some(ScheduledRow {
                    row: row_of(&entry[0])?,
                    due: score(&entry[1])?,
                    delay: score(&entry[2]).unwrap_or(0.0),
                    refreshed: score(&entry[3]),
                })
            }));
            if found.len() < 4 * BATCH {
                break;
            }
        }
        Ok(listed)
    }
}

/// Rows that turned out large when they were read, and are read over a connection of their own:
/// other reads do not wait behind them.
#[derive(Debug, Default)]
pub(super) struct LargeRows(Mutex<HashSet<Row>>);

impl LargeRows {
    fn rows(&self) -> MutexGuard<'_, HashSet<Row>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, row: &Row) -> bool {
        self.rows().contains(row)
    }

    fn note(&self, row: &Row, is_large: bool) {
        let mut rows = self.rows();
        if !is_large {
            rows.remove(row);
        } else if !rows.contains(row) {
            if rows.len() >= LARGE_MAX
                && let Some(any) = rows.iter().next().cloned()
            {
                rows.remove(&any);
            }
            rows.insert(row.clone());
        }
    }
}

fn row_of(bytes: &[u8]) -> Option<Row> {
    Row::new(std::str::from_utf8(bytes).ok()?)
}

/// A score as Redis writes it.
fn score(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_rows_are_remembered_to_a_bound_until_they_are_small() {
        let (large, row) =
            (LargeRows::default(), |number: usize| Row::new(&number.to_string()).unwrap());
        for number in 0..=LARGE_MAX {
            large.note(&row(number), true);
        }
        assert_eq!(large.rows().len(), LARGE_MAX);
        assert!(large.has(&row(LARGE_MAX)));
        large.note(&row(LARGE_MAX), false);
        assert!(!large.has(&row(LARGE_MAX)));
    }
}
