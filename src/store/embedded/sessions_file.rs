//! The file of sessions as a whole: its format, and a list of its contents.

use std::path::Path;

use redb::{Durability, ReadTransaction, ReadableTable as _, WriteTransaction};

use super::disk::Disk;
use super::record::Record;
use super::tables::{
    CART, EVENTS, EXPIRING, IDLE_REPORTED, META, POPULARITY, RECENT, SESSION, TOKENS, Tables,
};
use super::writer::Ledger;
use super::{rows, visitors};
use crate::store::OpenError;

/// The format of the whole file. Another one is refused.
const FORMAT: u64 = 2;
/// An earlier format that is read, and upgraded: records without their log-in, and no index of
/// users.
const UNDATED_FORMAT: u64 = 1;

/// The tables of sessions.
#[derive(Debug)]
pub(super) struct SessionLedger {
    viewed_items: usize,
}

impl SessionLedger {
    pub(super) fn new(viewed_items: u32) -> Self {
        Self { viewed_items: usize::try_from(viewed_items).unwrap_or(usize::MAX) }
    }
}

impl Ledger for SessionLedger {
    type Tables<'t> = Tables<'t>;

    fn open<'t>(&self, txn: &'t WriteTransaction) -> Result<Tables<'t>, redb::Error> {
        Tables::open(txn, self.viewed_items)
    }

    fn keep_house(&mut self, _txn: &WriteTransaction) -> Result<bool, redb::Error> {
        Ok(false)
    }

    fn recover(&mut self, disk: &Disk) -> Result<(), redb::Error> {
        disk.reopen()
    }
}

/// Creates the tables, and checks the format of the file.
pub(super) fn prepare(disk: &Disk, folder: &Path) -> Result<(), OpenError> {
    let found = found_format(disk).map_err(|error| OpenError::Unreadable {
        folder: folder.to_owned(),
        source: Box::new(error),
    })?;
    if !matches!(found, FORMAT | UNDATED_FORMAT) {
        return Err(OpenError::Format { folder: folder.to_owned(), found, known: FORMAT });
    }
    Ok(())
}

fn found_format(disk: &Disk) -> Result<u64, redb::Error> {
    let txn = disk.begin(Durability::Immediate)?;
    let mut meta = txn.open_table(META)?;
    let found = meta.get("format")?.map(|format| format.value());
    if matches!(found, None | Some(UNDATED_FORMAT)) {
        meta.insert("format", FORMAT)?;
    }
    drop(meta);
    drop(Tables::open(&txn, 0)?);
    txn.commit()?;
    Ok(found.unwrap_or(FORMAT))
}

/// Every key and member, one a line, named as in Redis.
pub(super) fn dump_keys(txn: &ReadTransaction) -> Result<Vec<String>, redb::Error> {
    let mut lines = Vec::new();
    let mut emit = |key: &str, token: &[u8], member: &[u8]| {
        let (token, member) = (String::from_utf8_lossy(token), String::from_utf8_lossy(member));
        lines.push(format!("{key}{token} {member}"));
    };
    for entry in txn.open_table(RECENT)?.iter()? {
        emit("recent:", &[], entry?.0.value().1);
    }
    for entry in txn.open_table(SESSION)?.iter()? {
        let (token, stored) = entry?;
        emit("login:", &[], token.value());
        for (_, item) in Record::read(stored.value()).unwrap_or_default().items {
            emit("viewed:", token.value(), item);
        }
    }
    for entry in txn.open_table(TOKENS)?.iter()? {
        let (place, _) = entry?;
        let (user, token) = place.value();
        emit("tokens:", user, token);
    }
    for entry in txn.open_table(CART)?.iter()? {
        let (place, _) = entry?;
        let (token, item) = place.value();
        emit("cart:", token, item);
    }
    for entry in txn.open_table(EXPIRING)?.iter()? {
        emit("expiring:", &[], entry?.1.value());
    }
    for entry in txn.open_table(EVENTS)?.iter()? {
        emit("cartevents:", &[], entry?.1.value());
    }
    for entry in txn.open_table(IDLE_REPORTED)?.iter()? {
        emit("cartidle:", &[], entry?.1.value().1);
    }
    for entry in txn.open_table(POPULARITY)?.iter()? {
        emit("viewed:", &[], entry?.0.value());
    }
    rows::dump_keys(txn, &mut emit)?;
    visitors::dump_keys(txn, &mut emit)?;
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use redb::ReadableTableMetadata as _;

    use super::*;
    use crate::store::Eviction;

    #[test]
    fn a_junk_member_of_recent_is_removed_and_nothing_else_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path().join("s.redb"), 1 << 20).unwrap();
        prepare(&disk, folder.path()).unwrap();
        let txn = disk.begin(Durability::None).unwrap();
        let mut tables = Tables::open(&txn, 25).unwrap();
        tables.session.insert(b"".as_slice(), b"".as_slice()).unwrap();
        tables.recent.insert((0, b"".as_slice()), ()).unwrap();
        tables.popularity.insert(b"item".as_slice(), -1.0).unwrap();
        tables.cart.insert((b"".as_slice(), b"item".as_slice()), 1).unwrap();

        let how = Eviction { keep: 0, batch: 100, carts: true, before: 0.0 };
        assert_eq!(tables.evict(how).unwrap(), 1);

        assert!(tables.recent.is_empty().unwrap() && tables.session.is_empty().unwrap());
        assert_eq!(tables.popularity.len().unwrap(), 1);
        assert_eq!(tables.cart.len().unwrap(), 1);
    }
}
