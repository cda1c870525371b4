//! The keys of TLS tickets, for the one process that has the folder: in a small file, so that the next process has them.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anteroom_http::clock::unix_now;
use anteroom_tls::{TICKET_KEY_LEN, TicketKey, TicketKeyOffer};

use super::{EmbeddedStore, small_file};
use crate::{StoreError, TicketKeyStore};

/// The name of the file, with the version of its form.
const FILE: &str = "tickets.1";
/// The bytes of a number (little-endian).
const NUMBER: usize = size_of::<u64>();
/// The bytes of an entry: its period, until when it counts in milliseconds of the Unix time, and the key.
const ENTRY: usize = 2 * NUMBER + TICKET_KEY_LEN;
/// The most entries: three periods count at a time, unless the clock jumps.
const ENTRIES_MAX: usize = 8;

/// Where the file is.
#[derive(Debug)]
pub(super) struct TicketKeyFile {
    folder: PathBuf,
    /// Held while the file is read and written: all threads exchange keys when they start.
    in_use: Mutex<()>,
}

struct Entry {
    period: u64,
    until: u64,
    key: TicketKey,
}

impl Entry {
    fn read(entry: &[u8; ENTRY]) -> Option<Self> {
        let (period, rest) = entry.split_first_chunk::<NUMBER>()?;
        let (until, key) = rest.split_first_chunk::<NUMBER>()?;
        let [period, until] = [period, until].map(|number| u64::from_le_bytes(*number));
        Some(Self { period, until, key: TicketKey::from_store(key)? })
    }

    fn write(&self) -> Vec<u8> {
        let Self { period, until, key } = self;
        [&period.to_le_bytes()[..], &until.to_le_bytes()[..], &key.expose()[..]].concat()
    }
}

impl TicketKeyFile {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), in_use: Mutex::new(()) }
    }

    /// As [`TicketKeyStore::exchange_ticket_keys`], at `now` in milliseconds of the Unix time. Waits for the disk.
    fn exchange(&self, offers: &[TicketKeyOffer], now: u64) -> io::Result<Vec<TicketKey>> {
        // No code that can panic runs under this lock.
        let _in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entries = self.read(now)?;
        let (mut keys, mut is_changed) = (Vec::with_capacity(offers.len()), false);
        for TicketKeyOffer { period, key, lifetime } in offers {
            if let Some(known) = entries.iter().find(|entry| entry.period == *period) {
                keys.push(known.key.clone());
                continue;
            }
            if entries.len() == ENTRIES_MAX {
                entries.remove(0);
            }
            let lifetime = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
            let until = now.saturating_add(lifetime);
            entries.push(Entry { period: *period, until, key: key.clone() });
            keys.push(key.clone());
            is_changed = true;
        }
        // What has ended leaves the file at the latest with the next period.
        if is_changed {
            let text: Vec<u8> = entries.iter().flat_map(Entry::write).collect();
            // A start waits for it, and no disk: keys that are lost cost some whole handshakes.
            small_file::write_unsynced(&self.folder, FILE, &text)?;
        }
        Ok(keys)
    }

    /// The entries that count. What is damaged is left out: its period gets another key.
    fn read(&self, now: u64) -> io::Result<Vec<Entry>> {
        let mut stored = Vec::new();
        match File::open(self.folder.join(FILE)) {
            Ok(file) => {
                let most = ENTRY * ENTRIES_MAX;
                file.take(most as u64).read_to_end(&mut stored)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let entries = stored.as_chunks::<ENTRY>().0.iter().filter_map(Entry::read);
        Ok(entries.filter(|entry| entry.until > now).collect())
    }
}

impl TicketKeyStore for EmbeddedStore {
    async fn exchange_ticket_keys(
        &self,
        offers: &[TicketKeyOffer],
    ) -> Result<Vec<TicketKey>, StoreError> {
        let (store, offers) = (self.clone(), offers.to_vec());
        let now = (unix_now() * 1000.0) as u64;
        small_file::answer_of(move || store.0.ticket_keys.exchange(&offers, now)).await
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    const HOUR_MS: u64 = 3_600_000;

    fn offer(period: u64) -> TicketKeyOffer {
        TicketKeyOffer { period, key: TicketKey::mint().unwrap(), lifetime: HOUR }
    }

    #[test]
    fn a_key_is_kept_for_its_time_by_whatever_process_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let exchange = |offers: &[TicketKeyOffer], now| {
            TicketKeyFile::new(folder.path()).exchange(offers, now).unwrap()
        };
        let first = [offer(1), offer(2)];
        assert_eq!(exchange(&first, 0), [first[0].key.clone(), first[1].key.clone()]);
        let next = [offer(2), offer(3)];
        assert_eq!(exchange(&next, HOUR_MS - 1), [first[1].key.clone(), next[1].key.clone()]);
        let last = offer(2);
        assert_eq!(exchange(std::slice::from_ref(&last), HOUR_MS), [last.key]);
        let text = fs::read(folder.path().join(FILE)).unwrap();
        assert_eq!(text.len(), 2 * ENTRY, "what has ended is gone");
    }

    #[test]
    fn the_file_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        TicketKeyFile::new(folder.path()).exchange(&[offer(1)], 0).unwrap();
        let mode = fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_costs_its_keys_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let file = TicketKeyFile::new(folder.path());
        for text in [vec![], vec![7_u8; ENTRY - 1], vec![0xff; ENTRY + 1], vec![0xff; 1 << 20]] {
            fs::write(folder.path().join(FILE), text).unwrap();
            let offered = offer(1);
            let found = file.exchange(std::slice::from_ref(&offered), 0).unwrap();
            assert_eq!(found, [offered.key]);
            let length = fs::read(folder.path().join(FILE)).unwrap().len();
            assert!(length <= ENTRY * ENTRIES_MAX, "{length}");
        }
    }
}
