//! The number of the last purge with each mark.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use anteroom_store::LATER_MARKS;

/// Marks in a part of the table: 8 KiB. Most parts of most tables are never written, and a start that writes them all
/// takes longer than the rest of it together.
const PART: usize = 1_024;

/// By mark: the number of the last purge with this mark, and 0 where there was none. The marks between the two ranges
/// are unused.
#[derive(Debug)]
pub(super) struct LastPurges {
    /// A part is there from its first purge on.
    parts: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl LastPurges {
    pub(super) fn new() -> Self {
        let count = (LATER_MARKS.end as usize).div_ceil(PART);
        Self { parts: (0..count).map(|_| OnceLock::new()).collect() }
    }

    /// The number of the last purge with a mark.
    pub(super) fn get(&self, mark: u32) -> u64 {
        let (part, place) = place(mark);
        let part = self.parts.get(part).and_then(OnceLock::get);
        part.map_or(0, |part| part[place].load(Ordering::Acquire))
    }

    /// Records a purge with a mark. A mark that is none is ignored: an app wrote it into the store.
    pub(super) fn raise(&self, mark: u32, number: u64) {
        let (part, place) = place(mark);
        if let Some(part) = self.parts.get(part) {
            let part = part.get_or_init(|| (0..PART).map(|_| AtomicU64::new(0)).collect());
            part[place].fetch_max(number, Ordering::AcqRel);
        }
    }

    /// Forgets all purges. A reader meanwhile sees some of them.
    pub(super) fn clear(&self) {
        for last in self.parts.iter().filter_map(OnceLock::get).flatten() {
            last.store(0, Ordering::Release);
        }
    }
}

/// The part of a mark, and its place there.
fn place(mark: u32) -> (usize, usize) {
    (mark as usize / PART, mark as usize % PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_has_a_number_of_its_own() {
        let last = LastPurges::new();
        let marks = [0, 1, 1_023, 1_024, LATER_MARKS.end - 1];
        for (mark, number) in marks.iter().zip(1..) {
            assert_eq!(last.get(*mark), 0);
            last.raise(*mark, number);
        }
        for (mark, number) in marks.iter().zip(1..) {
            assert_eq!(last.get(*mark), number);
            last.raise(*mark, number - 1);
            assert_eq!(last.get(*mark), number, "an earlier purge comes late");
        }
        assert_eq!(last.parts.iter().filter(|part| part.get().is_some()).count(), 3);
        last.clear();
        assert!(marks.iter().all(|mark| last.get(*mark) == 0));
    }

    #[test]
    fn a_mark_outside_of_the_table_is_ignored() {
        let last = LastPurges::new();
        last.raise(u32::MAX, 1);
        assert_eq!(last.get(u32::MAX), 0);
    }
}
