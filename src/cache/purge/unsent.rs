//! Purges of this process that are on their way to the store or wait for it. They are in effect already.

use std::collections::HashMap;

use super::scope::{Aim, Digest};
use crate::store::{Generation, MarkKey};

/// The most aims that wait. Beyond this number they become one: everything is purged.
const AIMS_MAX: usize = 65_536;

/// The waiting purges, by aim. Aims are kept because marks are valid under one key only.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    aims: HashMap<Aim, Waiting>,
    /// By mark under the current key: the last purge with this mark.
    marks: HashMap<u32, u64>,
    /// The last purge of this process that the store took.
    pub(super) taken: Generation,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// The number of the purge within this process.
    begun: u64,
    /// Whether the caller that began it has given up.
    is_left: bool,
}

impl Unsent {
    /// How many aims wait.
    pub(super) fn len(&self) -> usize {
        self.aims.len()
    }

    /// The last purge with a mark.
    pub(super) fn last(&self, mark: u32) -> Option<u64> {
        self.marks.get(&mark).copied()
    }

    pub(super) fn add(&mut self, aims: &[Aim], begun: u64, key: &MarkKey) {
        self.aims.extend(aims.iter().map(|aim| (*aim, Waiting { begun, is_left: false })));
        self.marks.extend(aims.iter().map(|aim| (aim.mark(key), begun)));
        if self.aims.len() > AIMS_MAX {
            let is_hard = self.aims.keys().any(|aim| aim.is_hard);
            let everything = Aim { scope: Digest::Everything, is_hard };
            self.aims = HashMap::from([(everything, Waiting { begun, is_left: true })]);
            self.rekey(key);
        }
    }

    /// Removes aims of the purge `begun`, which the store has taken.
    pub(super) fn remove(&mut self, aims: &[Aim], begun: u64, key: &MarkKey) {
        for aim in aims {
            if self.aims.get(aim).is_some_and(|waiting| waiting.begun <= begun) {
                self.aims.remove(aim);
            }
            // Another aim may have the same mark. The store's newer number covers it, too.
            let mark = aim.mark(key);
            if self.last(mark).is_some_and(|last| last <= begun) {
                self.marks.remove(&mark);
            }
        }
    }

    /// Records that the store has taken a purge of this process.
    pub(super) fn took(&mut self, purge: Generation) {
        if !self.taken.includes(purge) {
            self.taken = purge;
        }
    }

    /// Records that the caller has given up. Returns how many of the aims are not being sent otherwise.
    pub(super) fn leave(&mut self, aims: &[Aim], begun: u64) -> usize {
        let mut left = 0;
        for aim in aims {
            if let Some(waiting) = self.aims.get_mut(aim).filter(|of| of.begun == begun) {
                waiting.is_left = true;
                left += 1;
            }
        }
        left
    }

    /// Some of the aims whose caller has given up, each with its purge.
    pub(super) fn left(&self, most: usize) -> Vec<(Aim, u64)> {
        let left = self.aims.iter().filter(|(_, waiting)| waiting.is_left);
        left.map(|(aim, waiting)| (*aim, waiting.begun)).take(most).collect()
    }

    /// Switches the marks to another key.
    pub(super) fn rekey(&mut self, key: &MarkKey) {
        self.marks.clear();
        for (aim, waiting) in &self.aims {
            let last = self.marks.entry(aim.mark(key)).or_default();
            *last = waiting.begun.max(*last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_count_as_one_that_is_for_everything() {
        let (key, mut unsent) = (MarkKey::random(), Unsent::default());
        let aim = |number: usize| Aim { scope: Digest::Url(number as u128), is_hard: number == 7 };
        let everything = Aim { scope: Digest::Everything, is_hard: true };
        for number in 0..AIMS_MAX {
            unsent.add(&[aim(number)], number as u64, &key);
        }
        assert_eq!((unsent.len(), unsent.last(everything.mark(&key))), (AIMS_MAX, None));
        unsent.add(&[aim(AIMS_MAX)], AIMS_MAX as u64, &key);
        assert_eq!(unsent.left(2), [(everything, AIMS_MAX as u64)]);
        assert_eq!(unsent.last(everything.mark(&key)), Some(AIMS_MAX as u64));
        assert_eq!((unsent.len(), unsent.marks.len()), (1, 1));
    }

    #[test]
    fn another_key_loses_none() {
        let (one, other) = (MarkKey::random(), MarkKey::random());
        let mut unsent = Unsent::default();
        let aims = [1, 2].map(|hash| Aim { scope: Digest::Url(hash), is_hard: true });
        unsent.add(&aims, 7, &one);
        unsent.rekey(&other);
        assert!(aims.iter().all(|aim| unsent.last(aim.mark(&other)) == Some(7)));
        unsent.remove(&aims, 7, &other);
        assert_eq!((unsent.len(), unsent.marks.len()), (0, 0));
    }
}
