//! Abandoned carts: a session that is cleaned and had a cart is handed on first.
//!
//! Handing on comes before the deletion. What cannot be handed on stays, and is tried again later;
//! the cleaner goes on with the others. A crash between the two finds the session again: what the
//! file has of it already is not written twice.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::ident::{Item, TokenStorage};
use crate::store::{Abandoned, Eviction, Farewell, SessionStore, StoreError};

/// How much of the file's end is read back to find what was written before a crash, in bytes: more
/// than the largest batch of carts.
const LOOK_BACK: u64 = 8 << 20;
/// Entries that the stream `expired:` keeps, about.
pub const STREAM_MAX: u64 = 100_000;

/// Where abandoned carts are handed on.
#[derive(Debug)]
pub enum OnExpire {
    /// To the stream `expired:` in Redis.
    Stream,
    /// To this file.
    File(ExpiredFile),
}

/// What a step of cleaning did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Sessions removed.
    pub removed: usize,
    /// Carts handed on, of sessions removed.
    pub handed_on: usize,
    /// Sessions that stay because their carts could not be handed on.
    pub waiting: usize,
    /// Why they could not.
    pub refusal: Option<String>,
    /// There are more over the limit behind these.
    pub more: bool,
}

/// Removes the oldest sessions over the limit with their carts, at most a batch; carts are handed on
/// before. The `skip` oldest are left alone: those that wait.
///
/// # Errors
/// When the store fails. That carts could not be handed on is no error: their sessions wait.
pub async fn clean_expiring<S: SessionStore>(
    store: &S,
    how: Eviction,
    skip: u64,
    on_expire: &mut OnExpire,
    storage: TokenStorage,
    now: f64,
) -> Result<Cleaned, StoreError> {
    let spared = store.evict_sparing(how, skip).await?;
    let mut cleaned = Cleaned { removed: spared.removed, more: spared.more, ..Cleaned::default() };
    if spared.abandoned.is_empty() {
        return Ok(cleaned);
    }
    let farewell = match on_expire {
        OnExpire::Stream => Farewell::Stream { storage, keep: STREAM_MAX },
        OnExpire::File(file) => {
            if let Err(error) = file.write(&spared.abandoned, storage, now).await {
                cleaned.refusal = Some(format!("{}: {error}", file.path.display()));
                cleaned.waiting = spared.abandoned.len();
                return Ok(cleaned);
            }
            Farewell::Remove
        }
    };
    // Who was seen again meanwhile is not over the limit any more, and does not wait.
    match store.evict_abandoned(&spared.abandoned, &farewell).await {
        Ok(parted) => {
            cleaned.handed_on = parted.removed;
            cleaned.removed += parted.removed;
            cleaned.waiting = parted.refused;
            let refused = parted.refused > 0;
            cleaned.refusal = refused.then(|| "Redis refuses the entry".to_owned());
        }
        Err(StoreError::Failed(error)) if matches!(farewell, Farewell::Stream { .. }) => {
            cleaned.refusal = Some(error.to_string());
            cleaned.waiting = spared.abandoned.len();
        }
        Err(error) => return Err(error),
    }
    Ok(cleaned)
}

/// A session in the file: its id, and when it was seen, in milliseconds of Unix time.
type Written = (String, i64);

fn milliseconds(seen: f64) -> i64 {
    (seen * 1e3).round() as i64
}

/// A file of JSON lines, mode 0600, that is only ever appended to.
#[derive(Debug)]
pub struct ExpiredFile {
    path: PathBuf,
    /// Taken while a step writes; opened anew after one that failed: an operator may have made room,
    /// or put another file there.
    open: Option<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    /// The lines at the file's end: those whose sessions may still be there.
    written: HashSet<Written>,
}

impl ExpiredFile {
    /// The file at `path`, which is opened when the first cart is handed on.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, open: None }
    }

    /// Appends a line for each session that has none yet, and has them on the disk when it returns.
    /// A disk may be slow: it is waited for on a thread of its own.
    async fn write(
        &mut self,
        abandoned: &[Abandoned],
        storage: TokenStorage,
        now: f64,
    ) -> io::Result<()> {
        let known = |one: &Abandoned| (one.token.public_id(storage), milliseconds(one.seen));
        let lines = abandoned.iter().map(|one| (known(one), line(one, storage, now))).collect();
        let (path, open) = (self.path.clone(), self.open.take());
        let appending = tokio::task::spawn_blocking(move || append(&path, open, lines));
        self.open = Some(appending.await.map_err(io::Error::other)??);
        Ok(())
    }
}

/// Appends the lines that are not there yet.
fn append(
    path: &Path,
    open: Option<OpenFile>,
    lines: Vec<(Written, String)>,
) -> io::Result<OpenFile> {
    let mut open = match open.filter(|open| is_at(&open.file, path)) {
        Some(open) => open,
        None => open_at(path)?,
    };
    let new = lines.iter().filter(|(known, _)| !open.written.contains(known));
    let text: String = new.map(|(_, line)| line.as_str()).collect();
    if !text.is_empty() {
        open.file.write_all(text.as_bytes())?;
        open.file.sync_data()?;
    }
    open.written = lines.into_iter().map(|(known, _)| known).collect();
    Ok(open)
}

/// Whether the open file still stands at its path.
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(open), Ok(there)) = (file.metadata(), std::fs::metadata(path)) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

fn open_at(path: &Path) -> io::Result<OpenFile> {
    let mut file =
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    let written = read_back(&mut file)?;
    Ok(OpenFile { file, written })
}

/// What the end of the file tells. A line that a crash cut off is removed: its session is there
/// still.
fn read_back(file: &mut File) -> io::Result<HashSet<Written>> {
    let length = file.seek(SeekFrom::End(0))?;
    let from = length.saturating_sub(LOOK_BACK);
    file.seek(SeekFrom::Start(from))?;
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    let whole = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if whole < end.len() {
        file.set_len(from + whole as u64)?;
    }
    let told = |line: &[u8]| {
        let line: serde_json::Value = serde_json::from_slice(line).ok()?;
        Some((line["id"].as_str()?.to_owned(), milliseconds(line["seen"].as_f64()?)))
    };
    Ok(end[..whole].split(|byte| *byte == b'\n').filter_map(told).collect())
}

fn line(one: &Abandoned, storage: TokenStorage, now: f64) -> String {
    let item = |(item, count): &(Item, i64)| json!({ "item": item.as_str(), "count": count });
    let user = one.user.as_ref().map(|user| String::from_utf8_lossy(user.as_bytes()));
    let line = json!({
        "id": one.token.public_id(storage),
        "user": user,
        "seen": one.seen,
        "expired": now,
        "cart": one.cart.iter().map(item).collect::<Vec<_>>(),
    });
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ident::{StoredToken, User};
    use crate::store::scratch::with_store;

    const HOW: Eviction = Eviction { keep: 0, batch: 10, carts: true };
    const PLAIN: TokenStorage = TokenStorage::Plain;

    fn token(number: u32) -> StoredToken {
        StoredToken::from_store(format!("token-{number:04}").as_bytes()).unwrap()
    }

    async fn log_in<S: SessionStore>(store: &S, number: u32, with_cart: bool) {
        let user = User::new(b"ann").unwrap();
        store.update_token(&token(number), &user, None, 1.5 + f64::from(number)).await.unwrap();
        if with_cart {
            store.add_to_cart(&token(number), &Item::new("mug").unwrap(), 2).await.unwrap();
        }
    }

    fn told(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_cart_is_handed_on_once_and_the_file_is_private() {
        with_store(async |store| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("expired.jsonl");
            let mut sink = OnExpire::File(ExpiredFile::new(path.clone()));
            log_in(&store, 1, true).await;
            log_in(&store, 2, false).await;
            let cleaned = clean_expiring(&store, HOW, 0, &mut sink, PLAIN, 9.0).await.unwrap();
            assert_eq!((cleaned.removed, cleaned.handed_on, cleaned.waiting), (2, 1, 0));
            assert!(store.check_token(&token(1)).await.unwrap().is_none());
            let lines = told(&path);
            assert_eq!(lines.len(), 1);
            assert_eq!(lines[0]["id"], token(1).public_id(PLAIN));
            assert_eq!(lines[0]["user"], "ann");
            assert_eq!(lines[0]["cart"], json!([{ "item": "mug", "count": 2 }]));
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        });
    }

    #[test]
    fn what_a_crash_left_in_the_file_is_not_written_again() {
        with_store(async |store| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("expired.jsonl");
            log_in(&store, 1, true).await;
            log_in(&store, 2, true).await;
            let spared = store.evict_sparing(HOW, 0).await.unwrap();
            // The first was written whole before the crash, the second was cut off.
            let whole = line(&spared.abandoned[0], PLAIN, 9.0);
            let cut = line(&spared.abandoned[1], PLAIN, 9.0);
            std::fs::write(&path, whole + &cut[..20]).unwrap();
            let mut sink = OnExpire::File(ExpiredFile::new(path.clone()));
            let cleaned = clean_expiring(&store, HOW, 0, &mut sink, PLAIN, 10.0).await.unwrap();
            assert_eq!((cleaned.removed, cleaned.handed_on), (2, 2));
            let ids: Vec<_> = told(&path).iter().map(|line| line["id"].clone()).collect();
            assert_eq!(ids, [token(1).public_id(PLAIN), token(2).public_id(PLAIN)]);
        });
    }

    #[test]
    fn while_the_file_cannot_be_written_sessions_wait_and_others_are_cleaned() {
        with_store(async |store| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("not-yet").join("expired.jsonl");
            let mut sink = OnExpire::File(ExpiredFile::new(path.clone()));
            for number in 0..30 {
                log_in(&store, number, number % 3 != 2).await;
            }
            let (mut skip, mut removed) = (0, 0);
            loop {
                let cleaned =
                    clean_expiring(&store, HOW, skip, &mut sink, PLAIN, 99.0).await.unwrap();
                skip += cleaned.waiting as u64;
                removed += cleaned.removed;
                if !cleaned.more {
                    break;
                }
            }
            assert_eq!((skip, removed), (20, 10));
            std::fs::create_dir(folder.path().join("not-yet")).unwrap();
            let mut handed_on = 0;
            loop {
                let cleaned = clean_expiring(&store, HOW, 0, &mut sink, PLAIN, 99.0).await.unwrap();
                handed_on += cleaned.handed_on;
                if !cleaned.more {
                    break;
                }
            }
            assert_eq!((handed_on, told(&path).len()), (20, 20));
        });
    }
}
