//! Purges of the one process that has the folder. Its pages do not outlive it, and neither do these.

use std::collections::{HashMap, VecDeque};

use crate::store::StoreError;
use crate::store::purge::{Generation, MARKS, NEWS_MAX, News, PURGE_MARKS_MAX, PURGES_KEPT};

/// The era of every process: nothing is left of an earlier one.
const ERA: u64 = 1;

/// All purges so far.
#[derive(Debug, Default)]
pub(super) struct Purges {
    number: u64,
    /// The last ones.
    last: VecDeque<Vec<u32>>,
    /// Each mark's last purge.
    table: HashMap<u32, u64>,
}

impl Purges {
    pub(super) fn add(&mut self, marks: &[u32]) -> Result<Generation, StoreError> {
        if marks.len() > PURGE_MARKS_MAX || marks.iter().any(|mark| *mark >= MARKS) {
            return Err(StoreError::Failed("a purge has bad marks".into()));
        }
        self.number += 1;
        self.table.extend(marks.iter().map(|mark| (*mark, self.number)));
        if self.last.len() >= PURGES_KEPT {
            self.last.pop_front();
        }
        self.last.push_back(marks.to_vec());
        Ok(self.now())
    }

    pub(super) fn since(&self, seen: Generation) -> News {
        let behind = self.number.saturating_sub(seen.number);
        let behind = usize::try_from(behind).unwrap_or(usize::MAX);
        if seen.era != ERA || behind > self.last.len() {
            let marks = self.table.iter().map(|(mark, number)| (*mark, *number)).collect();
            return News::All { upto: self.now(), marks };
        }
        let purges: Vec<_> =
            self.last.iter().skip(self.last.len() - behind).take(NEWS_MAX).cloned().collect();
        let upto = Generation { era: ERA, number: seen.number + purges.len() as u64 };
        News::Since { more: purges.len() < behind, purges, upto }
    }

    fn now(&self) -> Generation {
        Generation { era: ERA, number: self.number }
    }
}
