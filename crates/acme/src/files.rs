//! The folder with account, keys and certificates. Each file is this user's only, and written whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anteroom_config::certificate::{self, Certificate, FaultKind, ordered_file};
use anteroom_fault::may_crash;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{FailureKind, StepFailure};
use crate::issued::{HeldCertificate, covers, self_signed};
use crate::state::{AccountRecord, NameState};

/// The name of the account's file. No host name begins like this.
const ACCOUNT: &str = "_account_.json";
/// The name of the file that the process which orders has locked.
const LOCK: &str = "lock";
/// The largest file that is read, in bytes.
const FILE_MAX: u64 = 1 << 20;
/// What the name of a file ends with before it has its own. No pattern of certificates matches it.
const UNFINISHED: &str = ".new";
/// The same, for a process beside which another one writes.
const UNFINISHED_BESIDE: &str = ".first";

/// Why a damaged file hinders a process that starts beside another one.
const DAMAGED: &str =
    "it is damaged; anteroom certificates renew has it ordered again by the process that serves";

/// Why the folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path:?}, which is for ordered certificates, cannot be used: {source}")]
pub struct FolderError {
    /// The folder, or a file in it.
    pub path: PathBuf,
    /// The reason.
    pub source: io::Error,
}

/// The right to order and to write, which one process on the machine has. It ends on Drop, and with the process.
#[derive(Debug)]
pub(crate) struct FolderLock {
    _file: File,
}

/// The folder.
#[derive(Clone, Debug)]
pub struct CertificateFolder(PathBuf);

impl CertificateFolder {
    /// Opens the folder, or makes it.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn open(folder: &Path) -> Result<Self, FolderError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|source| FolderError { path: folder.to_owned(), source })?;
        Ok(Self(folder.to_owned()))
    }

    /// Whether another process on the machine orders in the folder, as that which this one takes over from does. Where
    /// the file system knows no locks, none is seen.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        matches!(self.lock(), Ok(None))
    }

    /// Makes sure that each name has a certificate to show: where there is none, a self-signed one; if this process
    /// `may_replace` files, also in place of a damaged one. Returns the names that have only such a one. Waits for the
    /// disk.
    ///
    /// # Errors
    /// If a file cannot be written, or is damaged and stays; also if one is there and cannot be read: it may be good.
    pub fn prepare<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
        may_replace: bool,
    ) -> Result<Vec<String>, FolderError> {
        let mut unissued = Vec::new();
        for name in names {
            let held = self.look(name).map_err(|source| {
                let path = ordered_file(&self.0, name);
                FolderError { path, source }
            })?;
            if held.is_none() {
                self.write_self_signed(name, may_replace)?;
            }
            if held.is_none_or(|held| held.is_self_signed) {
                unissued.push(name.to_owned());
            }
        }
        Ok(unissued)
    }

    fn write_self_signed(&self, name: &str, may_replace: bool) -> Result<(), FolderError> {
        let path = ordered_file(&self.0, name);
        let failed = |source: io::Error| FolderError { path: path.clone(), source };
        if path.exists() {
            if !may_replace {
                return Err(failed(io::Error::other(DAMAGED)));
            }
            tracing::warn!(file = %path.display(), "a certificate cannot be used, and is ordered again");
        }
        let pem = self_signed(name).map_err(|error| failed(io::Error::other(error)))?;
        let written = match may_replace {
            true => write(&path, pem.as_bytes()),
            false => write_beside(&path, pem.as_bytes()),
        };
        written.map_err(failed)
    }

    /// Takes the right to order and to write; `None`: another process has it.
    ///
    /// # Errors
    /// If the file cannot be opened, or the file system knows no locks.
    pub(crate) fn lock(&self) -> io::Result<Option<FolderLock>> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(self.0.join(LOCK))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(FolderLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// What is known of the certificate in use for a name; `None`: its file is missing, damaged, or for another name.
    pub(crate) fn held(&self, name: &str) -> Option<HeldCertificate> {
        self.look(name).ok().flatten()
    }

    /// As [`Self::held`], but for a file that is there and cannot be read.
    fn look(&self, name: &str) -> io::Result<Option<HeldCertificate>> {
        match certificate::read(&ordered_file(&self.0, name), None) {
            Ok(read) => Ok(covers(&read, name).then(|| HeldCertificate::of(&read)).flatten()),
            Err(fault) => match fault.wrong {
                FaultKind::Unreadable(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(None),
            },
        }
    }

    /// Puts a certificate with its key into use, after a check: it is for this name, has this key, and is valid. `now` is
    /// Unix time.
    ///
    /// # Errors
    /// If it does not pass the check, or the disk refuses. The file in use stays.
    pub(crate) fn install(
        &self,
        name: &str,
        pem: &str,
        now: i64,
    ) -> Result<HeldCertificate, StepFailure> {
        let path = ordered_file(&self.0, name);
        let fresh = with_ending(&path, UNFINISHED);
        write_whole(&fresh, pem.as_bytes()).map_err(|error| StepFailure::here(&error))?;
        let wrong = |text: &str| StepFailure::new(FailureKind::Refused, text);
        let read = certificate::read(&fresh, None).map_err(|fault| wrong(&fault.to_string()))?;
        let held = checked(&read, name, now).map_err(wrong)?;
        may_crash("acme-checked");
        replace(&fresh, &path).map_err(|error| StepFailure::here(&error))?;
        may_crash("acme-installed");
        Ok(held)
    }

    /// The certificate in use with its key, in PEM.
    pub(crate) fn pem(&self, name: &str) -> io::Result<String> {
        let text = contents(&ordered_file(&self.0, name))?;
        String::from_utf8(text).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    /// The state of a name: empty where there is none, or a damaged one.
    pub(crate) fn state(&self, name: &str) -> NameState {
        read_json(&self.state_file(name)).unwrap_or_default()
    }

    pub(crate) fn put_state(&self, name: &str, state: &NameState) -> Result<(), StepFailure> {
        write_json(&self.state_file(name), state)
    }

    fn state_file(&self, name: &str) -> PathBuf {
        ordered_file(&self.0, name).with_extension("json")
    }

    /// The account, if there is one that can be read.
    pub(crate) fn account(&self) -> Option<AccountRecord> {
        read_json(&self.0.join(ACCOUNT))
    }

    pub(crate) fn put_account(&self, account: &AccountRecord) -> Result<(), StepFailure> {
        write_json(&self.0.join(ACCOUNT), account)
    }
}

/// What is known of a certificate that may be put into use; else what is wrong.
fn checked(read: &Certificate, name: &str, now: i64) -> Result<HeldCertificate, &'static str> {
    if !covers(read, name) {
        return Err("the certificate that was issued is for another name");
    }
    if read.not_after <= now {
        return Err("the certificate that was issued has expired already");
    }
    HeldCertificate::of(read).ok_or("the certificate that was issued is malformed")
}

fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let text = match contents(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(file = %path.display(), %error, "a file cannot be read, and is made again");
            return None;
        }
    };
    match serde_json::from_slice(&text) {
        Ok(read) => Some(read),
        Err(error) => {
            tracing::warn!(file = %path.display(), %error, "a file is damaged, and is made again");
            None
        }
    }
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), StepFailure> {
    let text = serde_json::to_vec_pretty(value).map_err(|error| StepFailure::here(&error))?;
    write(path, &text).map_err(|error| {
        StepFailure::new(FailureKind::Temporary, &format!("{}: {error}", path.display()))
    })
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Writes a file in place of another. Waits for the disk.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let fresh = with_ending(path, UNFINISHED);
    write_whole(&fresh, text)?;
    replace(&fresh, path)
}

/// Writes a file where there is none, beside a process that writes, too: what that one has written stays. Waits for the
/// disk.
fn write_beside(path: &Path, text: &[u8]) -> io::Result<()> {
    let fresh = with_ending(path, UNFINISHED_BESIDE);
    write_whole(&fresh, text)?;
    match fs::hard_link(&fresh, path) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        // The file system has no links.
        Err(_) => return replace(&fresh, path),
    }
    fs::remove_file(&fresh)?;
    sync_folder(path)
}

fn write_whole(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    // One that a kill has left may have another mode.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text)?;
    file.sync_all()
}

fn replace(fresh: &Path, path: &Path) -> io::Result<()> {
    fs::rename(fresh, path)?;
    sync_folder(path)
}

/// Has the folder of a file on the disk.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(path))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issued::new_key;
    use crate::state::OrderRecord;
    use crate::testing::issued;

    const NAME: &str = "a.net";

    fn folder() -> (tempfile::TempDir, CertificateFolder) {
        let place = tempfile::tempdir().unwrap();
        let folder = CertificateFolder::open(&place.path().join("acme")).unwrap();
        (place, folder)
    }

    #[test]
    fn each_name_has_a_certificate_from_the_first_start_on() {
        let (place, folder) = folder();
        let names = || [NAME, "*.b.net"].into_iter();
        assert_eq!(folder.prepare(names(), true).unwrap(), [NAME, "*.b.net"]);
        let first = folder.held(NAME).unwrap();
        assert!(first.is_self_signed);
        folder.prepare(names(), true).unwrap();
        assert_eq!(folder.held(NAME).unwrap(), first, "it is kept");
        let file = place.path().join("acme/_wildcard_.b.net.pem");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&file, "damaged").unwrap();
        folder.prepare(names(), true).unwrap();
        assert!(folder.held("*.b.net").is_some());
    }

    #[test]
    fn a_certificate_that_cannot_be_read_now_is_not_replaced() {
        let (place, folder) = folder();
        // A folder in place of the file: no user can read it, not even root.
        let path = place.path().join("acme/a.net.pem");
        fs::create_dir(&path).unwrap();
        let refused = folder.prepare([NAME].into_iter(), true).unwrap_err();
        assert_eq!(refused.path, path);
        assert!(path.is_dir());
    }

    #[test]
    fn one_process_writes_at_a_time() {
        let (_place, folder) = folder();
        let lock = folder.lock().unwrap().unwrap();
        assert!(folder.lock().unwrap().is_none());
        drop(lock);
        assert!(folder.lock().unwrap().is_some());
    }

    #[test]
    fn beside_a_process_that_orders_only_missing_files_are_written() {
        let (place, folder) = folder();
        assert!(!folder.is_in_use());
        let _lock = folder.lock().unwrap();
        assert!(folder.is_in_use());
        folder.prepare([NAME].into_iter(), false).unwrap();
        let first = folder.held(NAME).unwrap();
        let path = place.path().join("acme/a.net.pem");
        write_beside(&path, b"another").unwrap();
        assert_eq!(folder.held(NAME), Some(first), "what is there stays");
        assert!(!with_ending(&path, UNFINISHED_BESIDE).exists());
        fs::write(&path, "damaged").unwrap();
        let refused = folder.prepare([NAME].into_iter(), false).unwrap_err();
        assert!(refused.to_string().contains("renew"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), b"damaged");
    }

    #[test]
    fn only_a_certificate_that_is_right_replaces_the_one_in_use() {
        let (_place, folder) = folder();
        folder.prepare([NAME].into_iter(), true).unwrap();
        let first = folder.held(NAME).unwrap();
        let other_key = issued(NAME).split("-----BEGIN PRIVATE").next().unwrap().to_owned();
        for wrong in [issued("b.net"), other_key + &new_key().unwrap(), String::new()] {
            assert!(folder.install(NAME, &wrong, 0).is_err());
            assert_eq!(folder.held(NAME).unwrap(), first);
        }
        assert!(folder.install(NAME, &issued(NAME), i64::MAX).is_err(), "expired");
        let pem = issued(NAME);
        let held = folder.install(NAME, &pem, 0).unwrap();
        assert!(!held.is_self_signed);
        assert_eq!(folder.held(NAME), Some(held));
        assert_eq!(folder.pem(NAME).unwrap(), pem);
        assert!(folder.prepare([NAME].into_iter(), true).unwrap().is_empty());
    }

    #[test]
    fn a_damaged_state_is_an_empty_one() {
        let (place, folder) = folder();
        let order = OrderRecord { key: "key".to_owned(), began: 7, ..OrderRecord::default() };
        let state = NameState { order: Some(order), failures: 2, ..NameState::default() };
        folder.put_state(NAME, &state).unwrap();
        assert_eq!(folder.state(NAME), state);
        let file = place.path().join("acme/a.net.json");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(file, "{").unwrap();
        assert_eq!(folder.state(NAME), NameState::default());
        assert_eq!(folder.account(), None);
        folder.put_account(&AccountRecord::default()).unwrap();
        assert_eq!(folder.account(), Some(AccountRecord::default()));
    }
}
