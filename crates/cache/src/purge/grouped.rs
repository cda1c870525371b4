//! Several purges that are looked at together: which of them would hit a page.

use super::scope::{EVERYTHING, PurgeTarget};
use super::{PurgeSnapshot, PurgeTable};

/// The slots of several groups of targets.
#[derive(Debug)]
pub struct GroupedSlots {
    /// Each slot with the index of its group, sorted.
    slots: Vec<(u32, usize)>,
}

impl GroupedSlots {
    /// The groups that hit a page, each once.
    #[must_use]
    pub fn that_hit(&self, page: &PurgeSnapshot) -> Vec<usize> {
        if page.slots.is_empty() {
            return Vec::new();
        }
        let of_slot = |slot: u32| {
            let first = self.slots.partition_point(|(own, _)| *own < slot);
            self.slots[first..].iter().take_while(move |(own, _)| *own == slot)
        };
        let slots = page.slots.iter().chain([&EVERYTHING]);
        let mut groups: Vec<_> =
            slots.flat_map(|slot| of_slot(*slot).map(|(_, group)| *group)).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }
}

impl PurgeTable {
    /// The slots of some groups of targets, as pages have them now.
    #[must_use]
    pub fn grouped(&self, groups: &[&[PurgeTarget]]) -> GroupedSlots {
        let key = self.latest().key;
        let numbered = groups.iter().enumerate();
        let mut slots: Vec<_> = numbered
            .flat_map(|(group, targets)| {
                targets.iter().map(move |target| (target.scope.slot(&key), group))
            })
            .collect();
        slots.sort_unstable();
        slots.dedup();
        GroupedSlots { slots }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::purge::scope::{EVERY_SITE, Scope, url_scopes};

    #[test]
    fn a_page_is_hit_once_by_each_group_that_names_it() {
        let table = PurgeTable::new(false);
        let page = table.now(&url_scopes("shop.test", "/a/b", ""));
        let page = table.tagged(&page, &[b"red", b"blue"]);
        let tags = [&b"red"[..], b"blue"].map(|tag| Scope::Tag(tag).purge_target(true));
        let prefix = |path| Scope::Prefix { site: EVERY_SITE, path }.purge_target(false);
        let groups: [&[_]; 4] = [
            &tags,
            &[prefix("/a")],
            &[prefix("/c"), Scope::Tag(b"green").purge_target(false)],
            &[Scope::Everything.purge_target(false)],
        ];
        assert_eq!(table.grouped(&groups).that_hit(&page), [0, 1, 3]);
        assert!(table.grouped(&groups).that_hit(&PurgeSnapshot::default()).is_empty());
    }
}
