//! Purges of the one process that has the folder. Its pages end with the process, and so do these.

use std::collections::{HashMap, VecDeque};

use crate::StoreError;
use crate::purge::{
    Generation, MarkKey, NEWS_MAX, PURGE_MARKS_MAX, PURGES_KEPT, PURGES_KEPT_BYTES, PurgePosition,
    PurgesSince, is_mark,
};

/// The era of every process: nothing remains of an earlier one.
const ERA: u64 = 1;

/// All purges so far.
#[derive(Debug)]
pub(super) struct PurgeLog {
    number: u64,
    key: MarkKey,
    /// The latest ones.
    last: VecDeque<Vec<u32>>,
    /// How many marks these have.
    marks_kept: usize,
    /// Each mark's last purge.
    table: HashMap<u32, u64>,
}

impl PurgeLog {
    pub(super) fn new() -> Self {
        let key = MarkKey::random();
        Self { number: 0, key, last: VecDeque::new(), marks_kept: 0, table: HashMap::new() }
    }

    pub(super) fn add(
        &mut self,
        known: PurgePosition,
        marks: &[u32],
    ) -> Result<Option<PurgePosition>, StoreError> {
        if marks.len() > PURGE_MARKS_MAX || !marks.iter().all(|mark| is_mark(*mark)) {
            return Err(StoreError::Failed("a purge has bad marks".into()));
        }
        if known.at.era != ERA {
            return Ok(None);
        }
        self.number += 1;
        self.table.extend(marks.iter().map(|mark| (*mark, self.number)));
        self.last.push_back(marks.to_vec());
        self.marks_kept += marks.len();
        while self.last.len() > PURGES_KEPT
            || self.marks_kept * size_of::<u32>() > PURGES_KEPT_BYTES
        {
            self.marks_kept -= self.last.pop_front().map_or(0, |marks| marks.len());
        }
        Ok(Some(moment(self.number)))
    }

    pub(super) fn since(&self, known: PurgePosition) -> PurgesSince {
        let PurgePosition { at: seen, .. } = known;
        let behind = self.number.saturating_sub(seen.number);
        let behind = usize::try_from(behind).unwrap_or(usize::MAX);
        if seen.era != ERA || behind > self.last.len() {
            let marks = self.table.iter().map(|(mark, number)| (*mark, *number)).collect();
            return PurgesSince::All { upto: moment(self.number), key: self.key, marks };
        }
        let purges: Vec<_> =
            self.last.iter().skip(self.last.len() - behind).take(NEWS_MAX).cloned().collect();
        let upto = moment(seen.number + purges.len() as u64);
        PurgesSince::Since { more: purges.len() < behind, purges, upto }
    }
}

/// This count is never set back, so that its numbers need no nonces.
fn moment(number: u64) -> PurgePosition {
    PurgePosition { at: Generation { era: ERA, number }, nonce: 0 }
}
