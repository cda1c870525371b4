//! Rows in Redis: `delay:`, `schedule:` and `inv:<row>` as in the chapter, `refreshed:` our own.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use redis::{Script, pipe};

use super::RedisStore;
use super::link::Call;
use super::pages::BULK_SIZE;
use crate::ident::Row;
use crate::store::{
    Claim, Claimed, ROW_JSON_MAX, ROWS_MAX, RowStore, ScheduledRow, StoreError, StoredRow,
};

/// Rows remembered as large, at most.
const LARGE_MAX: usize = 4_096;
/// Rows in one call of a script: longer ones would keep others waiting.
const BATCH: usize = 1_000;

/// Schedules a row.
///
/// KEYS: `delay:`, `schedule:`. ARGV: row, delay, now, the most rows. Returns 0 when refused.
static SCHEDULE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
if not redis.call('ZSCORE', KEYS[1], ARGV[1])
    and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[4]) then
  return 0
end
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
return 1
",
    )
});

/// Takes rows that are due.
///
/// KEYS: `delay:`, `schedule:`, `refreshed:`. ARGV: now, the most rows, the lease, and what stands
/// before a row in the name of its content. Returns how many were removed, when the next is due
/// (or nothing), and row, delay, due time and fence of each that was taken.
static CLAIM: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local fence = string.format('%.17g', tonumber(ARGV[1]) + tonumber(ARGV[3]))
local due = redis.call('ZRANGE', KEYS[2], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, ARGV[2],
  'WITHSCORES')
local taken, removed = {}, 0
for at = 1, #due, 2 do
  local row = due[at]
  local delay = redis.call('ZSCORE', KEYS[1], row)
  if delay and tonumber(delay) > 0 then
    redis.call('ZADD', KEYS[2], fence, row)
    taken[#taken + 1] = row
    taken[#taken + 1] = delay
    taken[#taken + 1] = due[at + 1]
    taken[#taken + 1] = fence
  else
    for key = 1, 3 do redis.call('ZREM', KEYS[key], row) end
    redis.call('UNLINK', ARGV[4] .. row)
    removed = removed + 1
  end
end
return {removed, redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or '', taken}
",
    )
});

/// Keeps what was fetched, where the schedule still holds the fence.
///
/// KEYS: `delay:`, `schedule:`, `refreshed:`, `inv:<row>`. ARGV: row, the fence, when it is due next,
/// JSON, now. Returns whether it was kept.
static PUT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local due = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not due or tonumber(due) ~= tonumber(ARGV[2]) then return 0 end
local delay = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not delay or tonumber(delay) <= 0 then return 0 end
redis.call('SET', KEYS[4], ARGV[4])
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
redis.call('ZADD', KEYS[3], ARGV[5], ARGV[1])
return 1
",
    )
});

/// Puts a row off, where the schedule still holds the fence.
///
/// KEYS: `schedule:`. ARGV: row, the fence, when it is due next. Returns whether it was put off.
static POSTPONE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local due = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not due or tonumber(due) ~= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
return 1
",
    )
});

/// Forgets a row's content and makes it due, unless it is about to be removed.
///
/// KEYS: `delay:`, `schedule:`, `refreshed:`, `inv:<row>`. ARGV: row, now.
static OUTDATE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
redis.call('UNLINK', KEYS[4])
redis.call('ZREM', KEYS[3], ARGV[1])
local delay = redis.call('ZSCORE', KEYS[1], ARGV[1])
if delay and tonumber(delay) > 0 then redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1]) end
",
    )
});

/// The schedule, in the order of due times.
///
/// KEYS: `delay:`, `schedule:`, `refreshed:`. ARGV: the first and the last place. Returns row, due
/// time, delay and time of the last good fetch of each; what is missing is empty.
static LIST: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local listed = {}
local due = redis.call('ZRANGE', KEYS[2], ARGV[1], ARGV[2], 'WITHSCORES')
for at = 1, #due, 2 do
  listed[#listed + 1] = due[at]
  listed[#listed + 1] = due[at + 1]
  listed[#listed + 1] = redis.call('ZSCORE', KEYS[1], due[at]) or ''
  listed[#listed + 1] = redis.call('ZSCORE', KEYS[3], due[at]) or ''
end
return listed
",
    )
});

impl RowStore for RedisStore {
    async fn schedule_row(&self, row: &Row, delay: f64, now: f64) -> Result<(), StoreError> {
        let mut script = SCHEDULE.prepare_invoke();
        script.key(&self.keys().delay).key(&self.keys().schedule);
        script.arg(row.as_str()).arg(delay).arg(now).arg(ROWS_MAX);
        match self.run(&script).await? {
            0 => Err(StoreError::RowsFull),
            _ => Ok(()),
        }
    }

    async fn claim_rows(&self, now: f64, most: usize, lease: f64) -> Result<Claimed, StoreError> {
        let keys = self.keys();
        let mut script = CLAIM.prepare_invoke();
        script.key(&keys.delay).key(&keys.schedule).key(&keys.refreshed);
        script.arg(now).arg(most.min(BATCH)).arg(lease).arg(keys.row_prefix());
        type Reply = (usize, Vec<u8>, Vec<Vec<u8>>);
        let step = |mut on| async move { script.invoke_async::<Reply>(&mut on).await };
        let (removed, next, taken) = self.0.link.call(Call::Write, step).await?;
        let rows = taken.chunks_exact(4).filter_map(|claim| {
            // What is no row by our bounds is put off, too, and holds up nobody.
            let row = row_of(&claim[0])?;
            let (delay, due) = (score(&claim[1])?, score(&claim[2])?);
            Some(Claim { row, delay, due, fence: score(&claim[3])? })
        });
        Ok(Claimed { rows: rows.collect(), removed, next: score(&next) })
    }

    async fn put_row(
        &self,
        claim: &Claim,
        json: Bytes,
        due_next: f64,
        now: f64,
    ) -> Result<bool, StoreError> {
        if json.len() > ROW_JSON_MAX {
            return Err(StoreError::Full);
        }
        let keys = self.keys();
        let mut script = PUT.prepare_invoke();
        script.key(&keys.delay).key(&keys.schedule).key(&keys.refreshed);
        script.key(keys.row(&claim.row)).arg(claim.row.as_str()).arg(claim.fence).arg(due_next);
        script.arg(json.as_ref()).arg(now);
        let link = if json.len() > BULK_SIZE { self.bulk().await? } else { &self.0.link };
        let step = |mut on| async move { script.invoke_async::<bool>(&mut on).await };
        link.call(Call::Write, step).await
    }

    async fn postpone_row(&self, claim: &Claim, due_next: f64) -> Result<bool, StoreError> {
        let mut script = POSTPONE.prepare_invoke();
        script.key(&self.keys().schedule);
        script.arg(claim.row.as_str()).arg(claim.fence).arg(due_next);
        Ok(self.run(&script).await? > 0)
    }

    async fn outdate_row(&self, row: &Row, now: f64) -> Result<(), StoreError> {
        let keys = self.keys();
        let mut script = OUTDATE.prepare_invoke();
        script.key(&keys.delay).key(&keys.schedule).key(&keys.refreshed).key(keys.row(row));
        script.arg(row.as_str()).arg(now);
        self.run(&script).await.map(drop)
    }

    async fn row(&self, row: &Row) -> Result<Option<StoredRow>, StoreError> {
        let keys = self.keys();
        let mut read = pipe();
        // GETRANGE, not GET: another program's value of any size must not fill our memory.
        read.cmd("GETRANGE").arg(keys.row(row)).arg(0).arg(ROW_JSON_MAX);
        read.cmd("ZSCORE").arg(&keys.refreshed).arg(row.as_str());
        type Reply = (Vec<u8>, Option<f64>);
        let step = |mut on| async move { read.query_async::<Reply>(&mut on).await };
        let link = if self.0.large.has(row) { self.begin_bulk() } else { &self.0.link };
        let (json, refreshed) = link.call(Call::Read, step).await?;
        let is_large = json.len() > BULK_SIZE;
        if is_large {
            // For the next time.
            self.begin_bulk();
        }
        self.0.large.note(row, is_large);
        let whole = !json.is_empty() && json.len() <= ROW_JSON_MAX;
        Ok(whole.then(|| StoredRow { json: json.into(), refreshed }))
    }

    async fn rows(&self, most: usize) -> Result<Vec<ScheduledRow>, StoreError> {
        let keys = self.keys();
        let mut listed = Vec::new();
        for first in (0..most).step_by(BATCH) {
            let last = (first + BATCH).min(most) - 1;
            let mut script = LIST.prepare_invoke();
            script.key(&keys.delay).key(&keys.schedule).key(&keys.refreshed);
            script.arg(first).arg(last);
            let step = |mut on| async move { script.invoke_async::<Vec<Vec<u8>>>(&mut on).await };
            let found = self.0.link.call(Call::Write, step).await?;
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

/// Rows that turned out large when they were read, and are read over a connection of their own: what
/// else is read shall not wait behind them.
#[derive(Debug, Default)]
pub(super) struct Large(Mutex<HashSet<Row>>);

impl Large {
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
            (Large::default(), |number: usize| Row::new(&number.to_string()).unwrap());
        for number in 0..=LARGE_MAX {
            large.note(&row(number), true);
        }
        assert_eq!(large.rows().len(), LARGE_MAX);
        assert!(large.has(&row(LARGE_MAX)));
        large.note(&row(LARGE_MAX), false);
        assert!(!large.has(&row(LARGE_MAX)));
    }
}
