//! Purges in Redis: `purges:` counts them, `purging:` lists the last, `purged:` is the table, `seen:`
//! tells who has seen how many.

use bytes::Bytes;

use super::{Call, RedisStore, script};
use crate::store::purge::{Generation, LIVES, MARKS, NEWS_MAX, News, PURGE_MARKS_MAX, PURGES_KEPT};
use crate::store::{PurgeStore, StoreError};

/// The bytes of a mark's number in the table.
const NUMBER: usize = 8;
/// The marks of the table that are read in one piece: longer ones would keep others waiting.
const PIECE: usize = 8_192;

/// Era, number, whether the table has to be read, and the purges.
type Told = (String, u64, u8, Vec<String>);

impl PurgeStore for RedisStore {
    async fn purge(&self, marks: &[u32]) -> Result<Generation, StoreError> {
        if marks.len() > PURGE_MARKS_MAX {
            return Err(StoreError::Failed("a purge has too many marks".into()));
        }
        let keys = self.keys();
        let mut script = script::PURGE.prepare_invoke();
        script.key(&keys.purges).key(&keys.purging).key(&keys.purged);
        script.arg(new_era()).arg(&keys.purge_channel).arg(PURGES_KEPT).arg(marks);
        let script = &script;
        let step = |mut on| async move { script.invoke_async::<(String, u64)>(&mut on).await };
        let (era, number) = self.0.link.call(Call::Write, step).await?;
        Ok(Generation { era: era_of(&era)?, number })
    }

    async fn purged_since(&self, who: u64, seen: Generation) -> Result<News, StoreError> {
        let keys = self.keys();
        let mut script = script::PURGED_SINCE.prepare_invoke();
        script.key(&keys.purges).key(&keys.purging).key(&keys.purged).key(&keys.seen);
        script.arg(seen.era.to_string()).arg(seen.number).arg(format!("{who:016x}"));
        script.arg(new_era()).arg(NEWS_MAX).arg(LIVES.as_millis() as u64);
        let script = &script;
        let step = |mut on| async move { script.invoke_async::<Told>(&mut on).await };
        let (era, number, is_behind, purges) = self.0.link.call(Call::Read, step).await?;
        let upto = Generation { era: era_of(&era)?, number };
        if is_behind > 0 {
            return Ok(News::All { upto, marks: self.table().await? });
        }
        let purges: Vec<_> = purges.iter().map(|purge| marks_of(purge)).collect();
        let came = Generation { number: seen.number + purges.len() as u64, ..upto };
        Ok(News::Since { purges, upto: came, more: came != upto })
    }

    async fn is_seen(&self, purge: Generation) -> Result<bool, StoreError> {
        let mut script = script::IS_SEEN.prepare_invoke();
        script.key(&self.keys().seen);
        script.arg(purge.era.to_string()).arg(purge.number).arg(LIVES.as_millis() as u64);
        let script = &script;
        let step = |mut on| async move { script.invoke_async::<u8>(&mut on).await };
        Ok(self.0.link.call(Call::Read, step).await? > 0)
    }
}

impl RedisStore {
    /// Each mark with its last purge, read piece by piece: numbers only grow, so that a purge meanwhile
    /// does no harm.
    async fn table(&self) -> Result<Vec<(u32, u64)>, StoreError> {
        let mut marks = Vec::new();
        for first in (0..MARKS as usize).step_by(PIECE) {
            let mut command = redis::cmd("GETRANGE");
            let from = first * NUMBER;
            command.arg(&self.keys().purged).arg(from).arg(from + PIECE * NUMBER - 1);
            let step = |mut on| async move { command.query_async::<Bytes>(&mut on).await };
            let piece = self.0.link.call(Call::Read, step).await?;
            let (numbers, _) = piece.as_chunks::<NUMBER>();
            let numbers = numbers.iter().map(|number| u64::from_be_bytes(*number));
            let numbered = (first as u32..MARKS).zip(numbers);
            marks.extend(numbered.filter(|(_, number)| *number > 0));
        }
        Ok(marks)
    }
}

/// An era for a store that has none. The script takes text, for a number of Lua holds 53 bits.
fn new_era() -> String {
    fastrand::u64(1..).to_string()
}

fn era_of(text: &str) -> Result<u64, StoreError> {
    let era = text.parse().ok().filter(|era| *era > 0);
    era.ok_or_else(|| StoreError::Failed("purges: holds no era of ours".into()))
}

/// What is no mark is left out.
fn marks_of(purge: &str) -> Vec<u32> {
    let marks = purge.split(' ').filter_map(|mark| mark.parse().ok());
    marks.filter(|mark| *mark < MARKS).take(PURGE_MARKS_MAX).collect()
}
