//! Rows as tables in the sessions file: the schedule persists as sessions do.

use anteroom_http::ident::Row;
use bytes::Bytes;
use redb::{
    ReadTransaction, ReadableTable as _, ReadableTableMetadata as _, Table, TableDefinition,
    WriteTransaction,
};

use super::EmbeddedStore;
use super::keys::NamedRecord;
use super::record::time_bits;
use crate::transfer::SharedRecord;
use crate::{
    ClaimResult, ROW_JSON_MAX, ROWS_MAX, RowClaim, RowStore, RowTerm, ScheduledRow, StoreError,
    StoredRow,
};

/// Rows in one write: longer ones would delay others.
const BATCH: usize = 1_000;

type Key = &'static [u8];
/// Row to its delay, when it is due, and when it was last fetched (0: never): the scores of
/// `delay:`, `schedule:` and `refreshed:`.
const ROW: TableDefinition<'static, Key, (f64, f64, f64)> = TableDefinition::new("row");
/// The bits of the due time and the row, oldest first: `schedule:` in its order.
const DUE: TableDefinition<'static, (u64, Key), ()> = TableDefinition::new("row_due");
/// Row to the time at which it leaves the schedule: `unschedule:`.
const UNTIL: TableDefinition<'static, Key, f64> = TableDefinition::new("row_until");
/// Row to its content: `inv:<row>`.
const CONTENT: TableDefinition<'static, Key, Key> = TableDefinition::new("row_content");

/// The tables of rows, open for one transaction.
pub(super) struct RowTables<'t> {
    row: Table<'t, Key, (f64, f64, f64)>,
    due: Table<'t, (u64, Key), ()>,
    until: Table<'t, Key, f64>,
    content: Table<'t, Key, Key>,
}

impl<'t> RowTables<'t> {
    pub(super) fn open(txn: &'t WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self {
            row: txn.open_table(ROW)?,
            due: txn.open_table(DUE)?,
            until: txn.open_table(UNTIL)?,
            content: txn.open_table(CONTENT)?,
        })
    }

    fn put(
        &mut self,
        claim: &RowClaim,
        json: &[u8],
        due_next: f64,
        now: f64,
    ) -> Result<bool, redb::Error> {
        let row = bytes_of(&claim.row);
        match self.held_by(claim)? {
            Some((delay, _)) if delay > 0.0 => {
                match json {
                    [] => drop(self.content.remove(row)?),
                    json => drop(self.content.insert(row, json)?),
                }
                self.write(row, (delay, due_next, now))?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn postpone(&mut self, claim: &RowClaim, due_next: f64) -> Result<bool, redb::Error> {
        let Some((delay, refreshed)) = self.held_by(claim)? else { return Ok(false) };
        self.write(bytes_of(&claim.row), (delay, due_next, refreshed))?;
        Ok(true)
    }

    fn scores(&self, row: &[u8]) -> Result<Option<(f64, f64, f64)>, redb::Error> {
        Ok(self.row.get(row)?.map(|scores| scores.value()))
    }

    /// The delay of a claim's row and when it was last fetched, if the schedule still holds the
    /// claim's fence.
    fn held_by(&self, claim: &RowClaim) -> Result<Option<(f64, f64)>, redb::Error> {
        let scores = self.scores(bytes_of(&claim.row))?;
        let held = scores.filter(|(_, due, _)| time_bits(*due) == time_bits(claim.fence));
        Ok(held.map(|(delay, _, refreshed)| (delay, refreshed)))
    }

    fn write(&mut self, row: &[u8], scores: (f64, f64, f64)) -> Result<(), redb::Error> {
        let before = self.row.insert(row, scores)?.map(|before| before.value().1);
        if let Some(before) = before {
            self.due.remove((time_bits(before), row))?;
        }
        self.due.insert((time_bits(scores.1), row), ())?;
        Ok(())
    }

    /// Schedules a row, and returns whether there was room.
    fn schedule(&mut self, row: &[u8], delay: f64, now: f64) -> Result<bool, redb::Error> {
        let known = self.scores(row)?;
        if known.is_none() && self.row.len()? >= ROWS_MAX as u64 {
            return Ok(false);
        }
        self.write(row, (delay, now, known.map_or(0.0, |known| known.2)))?;
        self.until.remove(row)?;
        Ok(true)
    }

    /// Schedules a row until a time, or moves that time on; returns whether there was room.
    fn schedule_until(&mut self, row: &[u8], term: &RowTerm) -> Result<bool, redb::Error> {
        let known = self.scores(row)?.filter(|(delay, ..)| *delay > 0.0);
        let until = self.until.get(row)?.map(|until| until.value());
        match (known, until) {
            (Some(_), None) => Ok(true),
            (Some((delay, _, refreshed)), Some(until)) => {
                self.until.insert(row, until.max(term.until))?;
                if delay != term.delay {
                    self.write(row, (term.delay, term.due, refreshed))?;
                }
                Ok(true)
            }
            (None, _) if self.row.len()? >= term.most as u64 => Ok(false),
            (None, _) => {
                self.write(row, (term.delay, term.due, 0.0))?;
                self.until.insert(row, term.until)?;
                Ok(true)
            }
        }
    }

    /// Removes those of the rows whose end has come.
    fn drop_over(&mut self, rows: &[Vec<u8>], now: f64) -> Result<usize, redb::Error> {
        let mut dropped = 0;
        for row in rows {
            if self.until.get(row.as_slice())?.is_some_and(|until| until.value() <= now) {
                self.remove(row)?;
                dropped += 1;
            }
        }
        Ok(dropped)
    }

    fn make_due(&mut self, row: &[u8], now: f64) -> Result<bool, redb::Error> {
        let known = self.scores(row)?.filter(|(delay, ..)| *delay > 0.0);
        let Some((delay, due, refreshed)) = known else { return Ok(false) };
        self.write(row, (delay, due.min(now), refreshed))?;
        Ok(true)
    }

    /// Removes a row from the schedule, with its content.
    fn remove(&mut self, row: &[u8]) -> Result<(), redb::Error> {
        if let Some(scores) = self.row.remove(row)?.map(|scores| scores.value()) {
            self.due.remove((time_bits(scores.1), row))?;
        }
        self.until.remove(row)?;
        self.content.remove(row)?;
        Ok(())
    }

    /// Puts a row back with its delay, when it is due, when it was last fetched, when it leaves the
    /// schedule, and its content.
    pub(super) fn restore(
        &mut self,
        row: &Row,
        scores: (f64, f64, f64),
        until: Option<f64>,
        json: Option<&[u8]>,
    ) -> Result<(), redb::Error> {
        self.write(bytes_of(row), scores)?;
        match until {
            Some(until) => drop(self.until.insert(bytes_of(row), until)?),
            None => drop(self.until.remove(bytes_of(row))?),
        }
        match json {
            Some(json) => drop(self.content.insert(bytes_of(row), json)?),
            None => drop(self.content.remove(bytes_of(row))?),
        }
        Ok(())
    }

    /// Removes all rows.
    pub(super) fn clear(&mut self) -> Result<(), redb::Error> {
        self.row.retain(|_, _| false)?;
        self.due.retain(|_, _| false)?;
        self.until.retain(|_, _| false)?;
        self.content.retain(|_, _| false)?;
        Ok(())
    }

    fn outdate(&mut self, row: &[u8], now: f64) -> Result<(), redb::Error> {
        self.content.remove(row)?;
        match self.scores(row)? {
            Some((delay, due, _)) => {
                self.write(row, (delay, if delay > 0.0 { now } else { due }, 0.0))
            }
            None => Ok(()),
        }
    }

    fn claim(&mut self, now: f64, most: usize, lease: f64) -> Result<ClaimResult, redb::Error> {
        let mut due = Vec::new();
        for entry in self.due.range(..=(time_bits(now), [0xff].as_slice()))?.take(most) {
            let place = entry?.0;
            due.push((place.value().0, place.value().1.to_vec()));
        }
        let mut claimed = ClaimResult::default();
        for (bits, name) in &due {
            let row = std::str::from_utf8(name).ok().and_then(Row::new);
            match (self.scores(name)?, row) {
                (Some((delay, due, refreshed)), Some(row)) if delay > 0.0 => {
                    let fence = now + lease;
                    self.write(name, (delay, fence, refreshed))?;
                    claimed.rows.push(RowClaim { row, delay, due, fence });
                }
                _ => {
                    self.due.remove((*bits, name.as_slice()))?;
                    self.remove(name)?;
                    claimed.removed += 1;
                }
            }
        }
        claimed.next = self.due.first()?.map(|(due, _)| f64::from_bits(due.value().0));
        Ok(claimed)
    }
}

fn bytes_of(row: &Row) -> &[u8] {
    row.as_str().as_bytes()
}

/// Every key and member, as `sessions_file::dump_keys` lists them.
pub(super) fn dump_keys(
    txn: &ReadTransaction,
    emit: &mut impl FnMut(&str, &[u8], &[u8]),
) -> Result<(), redb::Error> {
    for entry in txn.open_table(ROW)?.iter()? {
        let (row, scores) = entry?;
        emit("delay:", &[], row.value());
        if scores.value().2 > 0.0 {
            emit("refreshed:", &[], row.value());
        }
    }
    for entry in txn.open_table(DUE)?.iter()? {
        emit("schedule:", &[], entry?.0.value().1);
    }
    for entry in txn.open_table(UNTIL)?.iter()? {
        emit("unschedule:", &[], entry?.0.value());
    }
    for entry in txn.open_table(CONTENT)?.iter()? {
        emit("inv:", entry?.0.value(), &[]);
    }
    Ok(())
}

/// How many rows are scheduled.
pub(super) fn scheduled(txn: &ReadTransaction) -> Result<u64, redb::Error> {
    Ok(txn.open_table(ROW)?.len()?)
}

/// At most `most` rows from this name on, each with its name as it is stored.
pub(super) fn export(
    txn: &ReadTransaction,
    from: &[u8],
    most: usize,
) -> Result<Vec<NamedRecord>, redb::Error> {
    let (contents, ends) = (txn.open_table(CONTENT)?, txn.open_table(UNTIL)?);
    let mut found = Vec::new();
    for entry in txn.open_table(ROW)?.range(from..)?.take(most) {
        let (name, scores) = entry?;
        let (delay, due, refreshed) = scores.value();
        let until = ends.get(name.value())?.map(|until| until.value());
        let json = contents.get(name.value())?;
        let json = json.map(|json| Bytes::copy_from_slice(json.value()));
        let row = std::str::from_utf8(name.value()).ok().and_then(Row::new);
        let record = row.map(|row| SharedRecord::Row {
            row,
            delay,
            due: Some(due),
            refreshed: refreshed_at(refreshed),
            until,
            json,
        });
        found.push((name.value().to_vec(), record));
    }
    Ok(found)
}

fn refreshed_at(time: f64) -> Option<f64> {
    (time > 0.0).then_some(time)
}

impl EmbeddedStore {
    /// Whether a row is scheduled or stored.
    fn has_row(&self, row: &Row) -> Result<bool, StoreError> {
        self.0.sessions.read(|txn| {
            let row = bytes_of(row);
            let is_scheduled = txn.open_table(ROW)?.get(row)?.is_some();
            Ok(is_scheduled || txn.open_table(CONTENT)?.get(row)?.is_some())
        })
    }

    /// At most `most` rows whose end has come.
    fn over(&self, now: f64, most: usize) -> Result<Vec<Vec<u8>>, StoreError> {
        self.counting(self.0.sessions.read(|txn| {
            let mut over = Vec::new();
            for entry in txn.open_table(UNTIL)?.iter()? {
                let (row, until) = entry?;
                if over.len() < most && until.value() <= now {
                    over.push(row.value().to_vec());
                }
            }
            Ok(over)
        }))
    }

    fn next_due(&self) -> Result<Option<f64>, StoreError> {
        self.counting(self.0.sessions.read(|txn| {
            let first = txn.open_table(DUE)?.first()?.map(|(due, _)| due.value().0);
            Ok(first.map(f64::from_bits))
        }))
    }
}

impl RowStore for EmbeddedStore {
    async fn schedule_row(&self, row: &Row, delay: f64, now: f64) -> Result<(), StoreError> {
        let row = row.clone();
        let is_there = self
            .write_durably(move |tables| tables.rows.schedule(bytes_of(&row), delay, now))
            .await?;
        if is_there { Ok(()) } else { Err(StoreError::RowsFull) }
    }

    async fn schedule_until(&self, rows: &[Row], term: RowTerm) -> Result<usize, StoreError> {
        let mut refused = 0;
        for rows in rows.chunks(BATCH) {
            let rows = rows.to_vec();
            let step = self.write_soon(move |tables| {
                let mut refused = 0;
                for row in &rows {
                    refused += usize::from(!tables.rows.schedule_until(bytes_of(row), &term)?);
                }
                Ok(refused)
            });
            refused += step.await?;
        }
        Ok(refused)
    }

    async fn drop_rows(&self, now: f64, most: usize) -> Result<usize, StoreError> {
        // PERF: mostly none is over, and this check needs no write transaction.
        let over = self.over(now, most)?;
        if over.is_empty() {
            return Ok(0);
        }
        self.write_soon(move |tables| tables.rows.drop_over(&over, now)).await
    }

    async fn make_due(&self, rows: &[Row], now: f64) -> Result<usize, StoreError> {
        let mut known = 0;
        for rows in rows.chunks(BATCH) {
            let rows = rows.to_vec();
            let step = self.write_soon(move |tables| {
                let mut known = 0;
                for row in &rows {
                    known += usize::from(tables.rows.make_due(bytes_of(row), now)?);
                }
                Ok(known)
            });
            known += step.await?;
        }
        Ok(known)
    }

    async fn claim_rows(
        &self,
        now: f64,
        most: usize,
        lease: f64,
    ) -> Result<ClaimResult, StoreError> {
        // PERF: mostly nothing is due, and this check needs no write transaction.
        let next = self.next_due()?;
        if next.is_none_or(|next| next > now) {
            return Ok(ClaimResult { next, ..ClaimResult::default() });
        }
        self.write_soon(move |tables| tables.rows.claim(now, most, lease)).await
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
        // A lost refresh is repeated.
        let claim = claim.clone();
        self.write_soon(move |tables| tables.rows.put(&claim, &json, due_next, now)).await
    }

    async fn postpone_row(&self, claim: &RowClaim, due_next: f64) -> Result<bool, StoreError> {
        let claim = claim.clone();
        self.write_soon(move |tables| tables.rows.postpone(&claim, due_next)).await
    }

    async fn outdate_row(&self, row: &Row, now: f64) -> Result<(), StoreError> {
        // PERF: most changes are to rows that are not scheduled, and this check costs no commit. If
        // it fails, the step decides.
        if !self.has_row(row).unwrap_or(true) {
            return Ok(());
        }
        let row = row.clone();
        // Content that a change has removed must not come back.
        self.write_durably(move |tables| tables.rows.outdate(bytes_of(&row), now)).await
    }

    async fn row(&self, row: &Row) -> Result<Option<StoredRow>, StoreError> {
        self.counting(self.0.sessions.read(|txn| {
            let content = txn.open_table(CONTENT)?.get(bytes_of(row))?;
            let Some(json) = content.map(|json| Bytes::copy_from_slice(json.value())) else {
                return Ok(None);
            };
            let scores = txn.open_table(ROW)?.get(bytes_of(row))?.map(|scores| scores.value());
            let refreshed = scores.and_then(|scores| refreshed_at(scores.2));
            Ok(Some(StoredRow { json, refreshed }))
        }))
    }

    async fn rows(&self, most: usize) -> Result<Vec<ScheduledRow>, StoreError> {
        self.counting(self.0.sessions.read(|txn| {
            let rows = txn.open_table(ROW)?;
            let mut listed = Vec::new();
            for entry in txn.open_table(DUE)?.iter()?.take(most) {
                let place = entry?.0;
                let name = place.value().1;
                let row = std::str::from_utf8(name).ok().and_then(Row::new);
                let scores = rows.get(name)?.map(|scores| scores.value());
                if let (Some(row), Some((delay, due, refreshed))) = (row, scores) {
                    listed.push(ScheduledRow {
                        row,
                        delay,
                        due,
                        refreshed: refreshed_at(refreshed),
                    });
                }
            }
            Ok(listed)
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::StoreLimits;

    #[tokio::test]
    async fn a_change_of_what_is_no_row_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let limits = StoreLimits {
            read_timeout: Duration::from_secs(5),
            // Nothing is written within that.
            write_timeout: Duration::ZERO,
            viewed_items: 25,
            pages: 1 << 20,
            max_page: 1 << 20,
        };
        let store = EmbeddedStore::open(folder.path(), limits, Arc::default()).await.unwrap();
        store.outdate_row(&Row::new("7").unwrap(), 1.0).await.unwrap();
        store.close().await;
    }
}
