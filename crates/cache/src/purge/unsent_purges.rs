//! Purges of this process that are on their way to the store or wait for it. They are in effect already.

use std::collections::HashMap;

use anteroom_store::{Generation, MarkKey};

use super::scope::{PurgeTarget, ScopeDigest};

/// The most targets that wait. Beyond this number they become one: everything is purged.
const TARGETS_MAX: usize = 65_536;

/// The waiting purges, by target. Targets are kept because marks are valid under one key only.
#[derive(Debug, Default)]
pub(super) struct UnsentPurges {
    purges: HashMap<PurgeTarget, UnsentPurge>,
    /// By mark under the current key: the last purge with this mark.
    numbers: HashMap<u32, u64>,
    /// The last purge of this process that the store took.
    pub(super) taken: Generation,
}

#[derive(Clone, Copy, Debug)]
struct UnsentPurge {
    /// The number of the purge within this process.
    begun: u64,
    /// Whether the caller that began it has given up.
    is_left: bool,
}

impl UnsentPurges {
    /// How many targets wait.
    pub(super) fn len(&self) -> usize {
        self.purges.len()
    }

    /// The last purge with a mark.
    pub(super) fn last(&self, mark: u32) -> Option<u64> {
        self.numbers.get(&mark).copied()
    }

    pub(super) fn add(&mut self, targets: &[PurgeTarget], begun: u64, key: &MarkKey) {
        self.purges
            .extend(targets.iter().map(|target| (*target, UnsentPurge { begun, is_left: false })));
        self.numbers.extend(targets.iter().map(|target| (target.mark(key), begun)));
        if self.purges.len() > TARGETS_MAX {
            let is_hard = self.purges.keys().any(|target| target.is_hard);
            let everything = PurgeTarget { scope: ScopeDigest::Everything, is_hard };
            self.purges = HashMap::from([(everything, UnsentPurge { begun, is_left: true })]);
            self.rekey(key);
        }
    }

    /// Removes targets of the purge `begun`, which the store has taken.
    pub(super) fn remove(&mut self, targets: &[PurgeTarget], begun: u64, key: &MarkKey) {
        for target in targets {
            if self.purges.get(target).is_some_and(|waiting| waiting.begun <= begun) {
                self.purges.remove(target);
            }
            // Another target may have the same mark. The store's newer number covers it, too.
            let mark = target.mark(key);
            if self.last(mark).is_some_and(|last| last <= begun) {
                self.numbers.remove(&mark);
            }
        }
    }

    /// Records that the store has taken a purge of this process.
    pub(super) fn took(&mut self, purge: Generation) {
        if !self.taken.includes(purge) {
            self.taken = purge;
        }
    }

    /// Records that the caller has given up. Returns how many of the targets are not being sent otherwise.
    pub(super) fn leave(&mut self, targets: &[PurgeTarget], begun: u64) -> usize {
        let mut left = 0;
        for target in targets {
            if let Some(waiting) = self.purges.get_mut(target).filter(|of| of.begun == begun) {
                waiting.is_left = true;
                left += 1;
            }
        }
        left
    }

    /// Some of the targets whose caller has given up, each with its purge.
    pub(super) fn left(&self, most: usize) -> Vec<(PurgeTarget, u64)> {
        let left = self.purges.iter().filter(|(_, waiting)| waiting.is_left);
        left.map(|(target, waiting)| (*target, waiting.begun)).take(most).collect()
    }

    /// Switches the marks to another key.
    pub(super) fn rekey(&mut self, key: &MarkKey) {
        self.numbers.clear();
        for (target, waiting) in &self.purges {
            let last = self.numbers.entry(target.mark(key)).or_default();
            *last = waiting.begun.max(*last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_count_as_one_that_is_for_everything() {
        let (key, mut unsent) = (MarkKey::random(), UnsentPurges::default());
        let target = |number: usize| PurgeTarget {
            scope: ScopeDigest::Url(number as u128),
            is_hard: number == 7,
        };
        let everything = PurgeTarget { scope: ScopeDigest::Everything, is_hard: true };
        for number in 0..TARGETS_MAX {
            unsent.add(&[target(number)], number as u64, &key);
        }
        assert_eq!((unsent.len(), unsent.last(everything.mark(&key))), (TARGETS_MAX, None));
        unsent.add(&[target(TARGETS_MAX)], TARGETS_MAX as u64, &key);
        assert_eq!(unsent.left(2), [(everything, TARGETS_MAX as u64)]);
        assert_eq!(unsent.last(everything.mark(&key)), Some(TARGETS_MAX as u64));
        assert_eq!((unsent.len(), unsent.numbers.len()), (1, 1));
    }

    #[test]
    fn another_key_loses_none() {
        let (one, other) = (MarkKey::random(), MarkKey::random());
        let mut unsent = UnsentPurges::default();
        let targets =
            [1, 2].map(|hash| PurgeTarget { scope: ScopeDigest::Url(hash), is_hard: true });
        unsent.add(&targets, 7, &one);
        unsent.rekey(&other);
        assert!(targets.iter().all(|target| unsent.last(target.mark(&other)) == Some(7)));
        unsent.remove(&targets, 7, &other);
        assert_eq!((unsent.len(), unsent.numbers.len()), (0, 0));
    }
}
