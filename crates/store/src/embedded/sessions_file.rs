//! The file of sessions as a whole: its format, and a list of its contents.

use std::fs;
use std::io;
use std::path::Path;

use redb::{Durability, ReadTransaction, ReadableTable as _, WriteTransaction};

use super::disk::{self, Disk, Permanence};
use super::record::Record;
use super::tables::{
    CART, EVENTS, EXPIRING, IDLE_REPORTED, META, POPULARITY, RECENT, SESSION, TOKENS, Tables,
};
use super::writer::Ledger;
use super::{SESSIONS_FILE, open_error, open_file, rows, small_file, unreadable, visitors};
use crate::{OpenError, SuccessorUse};

/// Memory for blocks of the file while it is created, in bytes.
const NEW_CACHE: usize = 1 << 20;
/// The format of the whole file. Another one is refused.
pub(super) const FORMAT: u64 = 2;
/// An earlier format that is read, and upgraded: records without their login, and no index of
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
    const KEEPS_NOTHING: bool = true;

    fn open<'t>(&self, txn: &'t WriteTransaction) -> Result<Tables<'t>, redb::Error> {
        Tables::open(txn, self.viewed_items)
    }

    fn keep_house(&mut self, _txn: &WriteTransaction) -> Result<bool, redb::Error> {
        Ok(false)
    }

    fn recover(&mut self, disk: &Disk) -> Result<(), redb::Error> {
        disk.reopen()
    }

    fn reopen(&mut self, disk: &Disk, used: SuccessorUse) -> Result<(), redb::Error> {
        if used == SuccessorUse::Write {
            disk.forget_sync();
        }
        disk.reopen()
    }
}

/// The file that says that the file of sessions was created, and so must be there.
const CREATED: &str = "sessions.created";
/// What is in it.
const CREATED_TEXT: &str = "Anteroom has created sessions.redb in this folder, and does not start where that is missing \
    or empty. To start without sessions, delete this file, too.\n";

/// Sees to it that the file of sessions is there, for the process that has locked the folder. A new one is created under
/// another name, so that a crash leaves a whole file or none.
pub(super) fn provide(folder: &Path) -> Result<(), OpenError> {
    let failed = |error| OpenError::io(folder, error);
    let path = folder.join(SESSIONS_FILE);
    let length = match fs::metadata(&path) {
        Ok(file) => Some(file.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    if length.is_none_or(|length| length == 0) {
        if folder.join(CREATED).exists() {
            return Err(OpenError::Emptied(folder.to_owned()));
        }
        if length.is_some() {
            tracing::warn!(path = %path.display(), "the file of sessions is empty: starting without sessions");
            disk::delete(&path).map_err(failed)?;
        }
        create(folder, &path)?;
    }
    Ok(())
}

fn create(folder: &Path, path: &Path) -> Result<(), OpenError> {
    let failed = |error| OpenError::io(folder, error);
    let new = folder.join("sessions.redb.new");
    disk::delete(&new).map_err(failed)?;
    disk::create(&new).map_err(|error| open_error(folder, error))?;
    let disk = open_file(folder, &new, NEW_CACHE, Permanence::Yes)?;
    prepare(&disk, folder)?;
    disk.close();
    fs::rename(&new, path).and_then(|()| small_file::sync(folder)).map_err(failed)
}

/// Notes that the file of sessions was created. For the process that has locked it.
pub(super) fn note_created(folder: &Path) -> Result<(), OpenError> {
    if folder.join(CREATED).exists() {
        return Ok(());
    }
    small_file::write(folder, CREATED, CREATED_TEXT.as_bytes())
        .map_err(|error| OpenError::io(folder, error))
}

/// Creates the tables that are missing, and checks the format of the file. A file that has all of them is not written:
/// redb goes through the whole of a file that has been, where the process ends before it is closed.
pub(super) fn prepare(disk: &Disk, folder: &Path) -> Result<(), OpenError> {
    let found = found_format(disk).map_err(|error| unreadable(folder, error))?;
    if !matches!(found, FORMAT | UNDATED_FORMAT) {
        return Err(OpenError::Format { folder: folder.to_owned(), found, known: FORMAT });
    }
    Ok(())
}

/// Checks a file that another process has closed, and may take back: it must have the format and all tables of this
/// version. It is not written.
pub(super) fn check_handed(disk: &Disk, folder: &Path) -> Result<(), OpenError> {
    let looked = || -> Result<_, redb::Error> {
        let txn = disk.begin(Durability::Immediate)?;
        let found = complete(&txn)?;
        txn.abort()?;
        Ok(found)
    };
    match looked().map_err(|error| unreadable(folder, error))? {
        (_, true) => Err(OpenError::NeedsRestart(folder.to_owned())),
        (FORMAT, false) => Ok(()),
        (found, false) => {
            Err(OpenError::Format { folder: folder.to_owned(), found, known: FORMAT })
        }
    }
}

fn found_format(disk: &Disk) -> Result<u64, redb::Error> {
    let txn = disk.begin(Durability::Immediate)?;
    let (found, is_changed) = complete(&txn)?;
    if is_changed {
        txn.commit()?;
    } else {
        txn.abort()?;
    }
    Ok(found)
}

/// Adds the tables that are missing. Returns the format that was found, and whether anything was changed.
fn complete(txn: &WriteTransaction) -> Result<(u64, bool), redb::Error> {
    let tables_before = txn.list_tables()?.count();
    let mut meta = txn.open_table(META)?;
    let found = meta.get("format")?.map(|format| format.value());
    let is_old = matches!(found, None | Some(UNDATED_FORMAT));
    if is_old {
        meta.insert("format", FORMAT)?;
    }
    drop(meta);
    // Nothing is added to a file of another version.
    if is_old || found == Some(FORMAT) {
        drop(Tables::open(txn, 0)?);
    }
    let is_changed = is_old || txn.list_tables()?.count() > tables_before;
    Ok((found.unwrap_or(FORMAT), is_changed))
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
    use crate::Eviction;

    /// Where redb's format says how the file was left.
    const FLAGS: usize = 9;

    /// A folder with a new file of sessions.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        provide(folder.path()).unwrap();
        folder
    }

    fn open(folder: &Path) -> Disk {
        Disk::open(folder.join(SESSIONS_FILE), 1 << 20, Permanence::Yes).unwrap()
    }

    /// What is on the disk while the file is open, and so what a process leaves that is killed.
    fn bytes(folder: &Path) -> Vec<u8> {
        fs::read(folder.join(SESSIONS_FILE)).unwrap()
    }

    /// Whether a file has these bytes and behind them nothing, but for the mark of a file that is open.
    fn is_unchanged(mut now: Vec<u8>, before: &[u8]) -> bool {
        now[FLAGS] = before[FLAGS];
        let (same, room) = now.split_at(before.len());
        same == before && room.iter().all(|byte| *byte == 0)
    }

    #[test]
    fn a_file_that_has_all_tables_is_opened_and_not_written() {
        let folder = folder();
        let closed = bytes(folder.path());
        let disk = open(folder.path());
        prepare(&disk, folder.path()).unwrap();
        assert!(is_unchanged(bytes(folder.path()), &closed));

        let txn = disk.begin(Durability::Immediate).unwrap();
        txn.open_table(META).unwrap().insert("other", 1).unwrap();
        txn.commit().unwrap();
        assert!(!is_unchanged(bytes(folder.path()), &closed), "a commit changes the file");
    }

    #[test]
    fn a_table_that_is_missing_is_created_and_kept() {
        let folder = folder();
        let disk = open(folder.path());
        let txn = disk.begin(Durability::Immediate).unwrap();
        assert!(txn.delete_table(CART).unwrap());
        txn.commit().unwrap();
        prepare(&disk, folder.path()).unwrap();
        let found = disk.read(|txn| Ok(txn.open_table(CART)?.len()?));
        assert_eq!(found.unwrap(), 0);
    }

    #[test]
    fn a_file_is_taken_over_as_it_is_or_not_at_all() {
        let folder = folder();
        let disk = open(folder.path());
        check_handed(&disk, folder.path()).unwrap();
        let txn = disk.begin(Durability::Immediate).unwrap();
        assert!(txn.delete_table(CART).unwrap());
        txn.commit().unwrap();
        disk.close();
        let closed = bytes(folder.path());
        let disk = open(folder.path());
        let refused = check_handed(&disk, folder.path());
        assert!(matches!(refused, Err(OpenError::NeedsRestart(_))), "{refused:?}");
        assert!(is_unchanged(bytes(folder.path()), &closed));
    }

    #[test]
    fn a_file_of_another_format_is_refused_and_not_written() {
        let folder = folder();
        let disk = open(folder.path());
        let txn = disk.begin(Durability::Immediate).unwrap();
        txn.open_table(META).unwrap().insert("format", FORMAT + 1).unwrap();
        assert!(txn.delete_table(CART).unwrap());
        txn.commit().unwrap();
        disk.close();
        let closed = bytes(folder.path());
        let disk = open(folder.path());
        for refused in [prepare(&disk, folder.path()), check_handed(&disk, folder.path())] {
            assert!(matches!(refused, Err(OpenError::Format { found, .. }) if found == FORMAT + 1));
        }
        assert!(is_unchanged(bytes(folder.path()), &closed));
    }

    #[test]
    fn a_junk_member_of_recent_is_removed_and_nothing_else_is_touched() {
        let folder = folder();
        let disk = open(folder.path());
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
