//! A bounded table of who takes most of the origins' time.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use super::load::{FadingLoad, Load};

/// The most entries.
pub(super) const ENTRIES_MAX: usize = 512;
/// How many leave at once when there is no room: a new key then costs little, whatever the number of keys.
const LEAVE_AT_ONCE: usize = ENTRIES_MAX / 4;

#[derive(Debug)]
struct Entry {
    name: Box<str>,
    load: FadingLoad,
}

/// The heaviest keys of one thread. When it is full, the lightest quarter makes room. A new entry inherits nothing, so a
/// figure is never too great; it lacks what came before the key had its entry.
#[derive(Debug, Default)]
pub(super) struct HeavyTable {
    /// By the hash of the key.
    entries: HashMap<u64, Entry, ahash::RandomState>,
}

impl HeavyTable {
    /// Adds a load to a key. `name` is asked for where the key is new.
    pub(super) fn add(
        &mut self,
        key: u64,
        load: &Load,
        now: Instant,
        name: impl FnOnce() -> String,
    ) {
        if let Some(entry) = self.entries.get_mut(&key) {
            return entry.load.add(load, now);
        }
        if self.entries.len() >= ENTRIES_MAX {
            self.make_room(now);
        }
        let entry = Entry { name: name().into(), load: FadingLoad::new(load, now) };
        self.entries.insert(key, entry);
    }

    fn make_room(&mut self, now: Instant) {
        let mut weights: Vec<f64> =
            self.entries.values().map(|entry| entry.load.weight(now)).collect();
        let (_, bound, _) = weights.select_nth_unstable_by(LEAVE_AT_ONCE, f64::total_cmp);
        let bound = *bound;
        let mut leaving = LEAVE_AT_ONCE;
        self.entries.retain(|_, entry| {
            let leaves = leaving > 0 && entry.load.weight(now) <= bound;
            leaving -= usize::from(leaves);
            !leaves
        });
    }

    /// Adds what is left of each entry to `sum`, by name.
    pub(super) fn add_to<'t>(&'t self, sum: &mut BTreeMap<&'t str, Load>, now: Instant) {
        for entry in self.entries.values() {
            sum.entry(&entry.name).or_default().add(&entry.load.now(now));
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anteroom_policy::priority::RequestClass;

    use super::*;

    fn load(millis: u64) -> Load {
        Load::of_request(RequestClass::New, Duration::from_millis(millis), true)
    }

    fn heaviest(table: &HeavyTable, now: Instant) -> String {
        let mut sum = BTreeMap::new();
        table.add_to(&mut sum, now);
        let heaviest = sum.into_iter().max_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds));
        heaviest.unwrap().0.to_owned()
    }

    #[test]
    fn a_flood_of_keys_keeps_to_the_bound() {
        let (mut table, now) = (HeavyTable::default(), Instant::now());
        for key in 0..100_000 {
            table.add(key, &load(key % 7), now, || key.to_string());
            assert!(table.len() <= ENTRIES_MAX);
        }
        assert!(table.len() > ENTRIES_MAX / 2);
    }

    #[test]
    fn what_is_heavy_is_found_among_many_that_are_light() {
        let (mut table, begin) = (HeavyTable::default(), Instant::now());
        let mut now = begin;
        for key in 0..10_000 {
            now = begin + Duration::from_millis(key * 3);
            table.add(key, &load(20), now, || key.to_string());
            if key % 50 == 0 {
                table.add(u64::MAX, &load(20), now, || "heavy".to_owned());
            }
        }
        assert_eq!(heaviest(&table, now), "heavy");
    }

    #[test]
    fn what_was_heavy_an_hour_ago_makes_room() {
        let (mut table, begin) = (HeavyTable::default(), Instant::now());
        table.add(1, &load(60_000), begin, || "then".to_owned());
        let later = begin + Duration::from_secs(3_600);
        table.add(2, &load(100), later, || "now".to_owned());
        assert_eq!(heaviest(&table, later), "now");
    }
}
