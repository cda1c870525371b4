//! The stored form of one session: user, login, when it was last seen, and its newest views.
//!
//! It is one value, so that a visit costs one look-up and one write: at a million sessions each
//! further table is another block read and written. A version byte, 8 bytes of time, 8 of the
//! login's, 2 of length, the user; then for each item, oldest first: 8 bytes of time, one of
//! length, the id. Items are ordered as in Redis: by time, then by the id's bytes. The first
//! version has no login time.

use anteroom_http::ident::Item;

const VERSION: u8 = 2;
/// The version without the time of the login.
const UNDATED: u8 = 1;
/// Time and length before each item's id.
const ITEM_HEAD: usize = 9;
/// Version, times and length before the user.
const HEAD: usize = 19;

/// The bits of a time as they are stored and compared: for valid times they sort as the numbers do.
/// Negative times and NaN count as 0.
pub(super) fn time_bits(seconds: f64) -> u64 {
    if seconds > 0.0 { seconds.to_bits() } else { 0 }
}

/// The time of these [`time_bits`].
pub(super) fn time_of(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// A stored session, parsed.
#[derive(Debug, Default)]
pub(super) struct Record<'v> {
    /// The bits of the time when it was last seen.
    pub(super) seen: u64,
    /// The bits of the time of its login; 0: unknown.
    pub(super) since: u64,
    /// Its user.
    pub(super) user: &'v [u8],
    /// Its views: the bits of the time and the id, oldest first.
    pub(super) items: Vec<(u64, &'v [u8])>,
}

impl<'v> Record<'v> {
    /// Reads a stored value; `None` if it is foreign. Items after a damaged one are dropped.
    pub(super) fn read(stored: &'v [u8]) -> Option<Self> {
        let Head { seen, since, user, items: mut rest } = split(stored)?;
        let mut items = Vec::new();
        while let Some((time, item, behind)) = split_item(rest) {
            items.push((time, item));
            rest = behind;
        }
        Some(Self { seen, since, user, items })
    }

    /// Only the user of a stored value.
    pub(super) fn user_of(stored: &'v [u8]) -> Option<&'v [u8]> {
        split(stored).map(|head| head.user)
    }

    /// All but the views.
    pub(super) fn head_of(stored: &'v [u8]) -> Option<Self> {
        let Head { seen, since, user, .. } = split(stored)?;
        Some(Self { seen, since, user, items: Vec::new() })
    }

    /// Adds views, of which the newest `keep` stay. An item's time never goes back.
    pub(super) fn view(&mut self, views: &'v [(Item, f64)], keep: usize) {
        for (item, seen) in views {
            let (item, seen) = (item.as_str().as_bytes(), time_bits(*seen));
            match self.items.iter_mut().find(|(_, known)| *known == item) {
                Some((time, _)) => *time = seen.max(*time),
                None => self.items.push((seen, item)),
            }
        }
        self.items.sort_unstable();
        self.items.drain(..self.items.len().saturating_sub(keep));
    }

    /// The value to store.
    pub(super) fn write(&self) -> Vec<u8> {
        let items = self.items.iter().map(|(_, item)| ITEM_HEAD + item.len()).sum::<usize>();
        let mut bytes = Vec::with_capacity(HEAD + self.user.len() + items);
        let length = u16::try_from(self.user.len()).expect("a user has at most 3 KiB");
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.seen.to_le_bytes());
        bytes.extend_from_slice(&self.since.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(self.user);
        for (time, item) in &self.items {
            let length = u8::try_from(item.len()).expect("an item has at most 128 bytes");
            bytes.extend_from_slice(&time.to_le_bytes());
            bytes.push(length);
            bytes.extend_from_slice(item);
        }
        bytes
    }
}

/// The fields before the items, and the items as bytes.
struct Head<'v> {
    seen: u64,
    since: u64,
    user: &'v [u8],
    items: &'v [u8],
}

fn split(stored: &[u8]) -> Option<Head<'_>> {
    let (version, rest) = stored.split_first()?;
    let (seen, rest) = rest.split_first_chunk()?;
    let (since, rest) = match *version {
        VERSION => rest.split_first_chunk()?,
        UNDATED => (&[0; 8], rest),
        _ => return None,
    };
    let (length, rest) = rest.split_first_chunk()?;
    let (user, items) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    let (seen, since) = (u64::from_le_bytes(*seen), u64::from_le_bytes(*since));
    Some(Head { seen, since, user, items })
}

fn split_item(bytes: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (time, rest) = bytes.split_first_chunk()?;
    let (&length, rest) = rest.split_first()?;
    let (item, rest) = rest.split_at_checked(length.into())?;
    Some((u64::from_le_bytes(*time), item, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn item(number: u8) -> Item {
        Item::new(&format!("i{number}")).unwrap()
    }

    /// The stored items after these views.
    fn after(stored: Option<&[u8]>, views: &[(Item, f64)], keep: usize) -> Vec<u8> {
        let mut record = stored.and_then(Record::read).unwrap_or_default();
        record.view(views, keep);
        record.write()
    }

    proptest! {
        #[test]
        fn the_newest_items_stay_in_order(
            views in prop::collection::vec((0_u8..40, 0_u32..1000), 0..120),
        ) {
            let views: Vec<_> =
                views.into_iter().map(|(n, t)| (item(n), f64::from(t))).collect();
            let mut model = std::collections::BTreeMap::new();
            for (item, time) in &views {
                let newest = model.entry(item.as_str().as_bytes()).or_insert(0);
                *newest = time_bits(*time).max(*newest);
            }
            let mut sorted: Vec<_> = model.into_iter().map(|(item, time)| (time, item)).collect();
            sorted.sort_unstable();
            let stored = after(None, &views, 25);
            let kept = &sorted[sorted.len().saturating_sub(25)..];
            prop_assert_eq!(Record::read(&stored).unwrap().items, kept);
        }

        #[test]
        fn damaged_values_are_read_without_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            after(Some(&bytes), &[], 25);
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            if let Some(record) = Record::read(&bytes) {
                prop_assert_eq!(Some(record.user), Record::user_of(&bytes));
            }
        }
    }

    #[test]
    fn views_merge_into_what_is_stored() {
        let stored = after(None, &[(item(1), 1.0), (item(2), 2.0), (item(3), 3.0)], 3);
        let stored = after(Some(&stored), &[(item(1), 4.0), (item(9), 2.5)], 3);
        let record = Record::read(&stored).unwrap();
        let found: Vec<_> = record.items.into_iter().map(|(_, item)| item).collect();
        assert_eq!(found, [b"i9", b"i3", b"i1"]);
    }

    #[test]
    fn user_and_time_come_back() {
        let long = [b'u'; 256];
        let (seen, since) = (time_bits(5.5), time_bits(2.5));
        let stored = Record { seen, since, user: &long, items: Vec::new() }.write();
        let record = Record::read(&stored).unwrap();
        assert_eq!((record.seen, record.since, record.user), (seen, since, &long[..]));
    }

    #[test]
    fn a_record_without_a_log_in_time_is_read() {
        let mut stored = vec![UNDATED];
        stored.extend_from_slice(&time_bits(5.5).to_le_bytes());
        stored.extend_from_slice(&3_u16.to_le_bytes());
        stored.extend_from_slice(b"ann");
        let record = Record::read(&stored).unwrap();
        assert_eq!((record.seen, record.since, record.user), (time_bits(5.5), 0, &b"ann"[..]));
    }
}
