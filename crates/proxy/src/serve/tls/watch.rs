//! The content of a listener's files, and its renewal.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use anteroom_config::certificate::{
    self, Certificate, CertificateTable, Fault, FaultKind, FileStamp,
};
use rustls::RootCertStore;

use super::settings::TlsSettings;

/// The content of the files.
#[derive(Debug)]
pub(super) struct WatchedFiles {
    /// The stamps of the files just before they were read.
    pub(super) stamps: Vec<FileStamp>,
    /// The stamps of the files at the last check.
    pub(super) seen: Vec<FileStamp>,
    pub(super) certificates: Vec<Arc<Certificate>>,
    pub(super) authorities: Option<Arc<RootCertStore>>,
    /// The reported problems of the files.
    pub(super) reported: Vec<String>,
}

/// The stamps of all files of a listener.
pub(super) fn stamps(settings: &TlsSettings) -> Vec<FileStamp> {
    let mut stamps = certificate::stamps(&settings.sources);
    stamps.extend(settings.clients.authorities().map(|path| FileStamp::of(path)));
    stamps
}

impl WatchedFiles {
    /// Reads all files. An unreadable one is reported, and its content in `last` is kept.
    pub(super) fn read(settings: &TlsSettings, last: Option<&Self>) -> (Self, Vec<Fault>) {
        // Taken before reading, so that the next check sees a change made meanwhile.
        let stamps = stamps(settings);
        let (files, mut faults) = certificate::find(&settings.sources);
        let mut certificates = Vec::new();
        for file in &files {
            match certificate::read(file, settings.sources.key.as_deref()) {
                Ok(read) => certificates.push(Arc::new(read)),
                Err(fault) => {
                    let known = last.into_iter().flat_map(|last| &last.certificates);
                    certificates.extend(known.filter(|one| one.path == *file).cloned());
                    faults.push(fault);
                }
            }
        }
        if let Some(last) = last {
            keep_hidden(&mut certificates, &last.certificates, &faults);
        }
        if certificates.is_empty() {
            // All files are gone: they are probably being replaced.
            certificates = last.map(|last| last.certificates.clone()).unwrap_or_default();
            if faults.is_empty() {
                let path = settings.sources.certificates.concat().into();
                faults.push(Fault { path, wrong: FaultKind::NoFile });
            }
        }
        let authorities = settings.clients.authorities().and_then(|path| {
            certificate::authorities(path).map_or_else(
                |fault| {
                    faults.push(fault);
                    last.and_then(|last| last.authorities.clone())
                },
                Some,
            )
        });
        let told = faults.iter().map(ToString::to_string).collect();
        (Self { seen: stamps.clone(), stamps, certificates, authorities, reported: told }, faults)
    }

    /// The table of the certificates.
    pub(super) fn table(&self, settings: &TlsSettings) -> CertificateTable {
        CertificateTable::new(&self.certificates, settings.default.as_deref())
    }

    /// Unix time at which the first certificate expires.
    pub(super) fn expires(&self) -> i64 {
        self.certificates.iter().map(|one| one.not_after).min().unwrap_or_default()
    }

    /// How many of its certificates are not those of `last`, kept because a file cannot be used.
    pub(super) fn read_since(&self, last: &Self) -> usize {
        let is_kept =
            |one: &Arc<Certificate>| last.certificates.iter().any(|old| Arc::ptr_eq(old, one));
        self.certificates.iter().filter(|one| !is_kept(one)).count()
    }

    /// Whether the same authorities are requested as in `other`.
    pub(super) fn requests_same_authorities(&self, other: &Self) -> bool {
        let roots = |state: &Self| state.authorities.as_ref().map(|all| all.roots.clone());
        roots(self) == roots(other)
    }
}

/// Keeps the certificates of `last` that were not found but may still exist: their pattern matches nothing
/// at all, or they cannot be accessed.
fn keep_hidden(
    certificates: &mut Vec<Arc<Certificate>>,
    last: &[Arc<Certificate>],
    faults: &[Fault],
) {
    let found: HashSet<PathBuf> = certificates.iter().map(|one| one.path.clone()).collect();
    let is_hidden = |one: &Certificate| {
        let mut silent = faults.iter().filter(|fault| matches!(fault.wrong, FaultKind::NoFile));
        silent.any(|fault| certificate::means(&fault.path.to_string_lossy(), &one.path))
            || std::fs::metadata(&one.path).is_err_and(|error| error.kind() != ErrorKind::NotFound)
    };
    let hidden = last.iter().filter(|one| !found.contains(&one.path) && is_hidden(one));
    let before = certificates.len();
    certificates.extend(hidden.cloned());
    if certificates.len() > before {
        // The first of all is the one for clients that request no name.
        let places: HashMap<_, _> =
            last.iter().enumerate().map(|(place, one)| (one.path.clone(), place)).collect();
        certificates.sort_by_key(|one| places.get(&one.path).copied().unwrap_or(usize::MAX));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use anteroom_config::certificate::CertificateSources;

    use super::*;
    use crate::serve::tls::Clients;

    #[test]
    fn unreadable_certificates_are_kept_and_removed_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let made = rcgen::generate_simple_self_signed(vec!["a.test".to_owned()]).unwrap();
        let pem = made.cert.pem() + &made.signing_key.serialize_pem();
        for name in ["x", "y", "z"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("a.pem"), &pem).unwrap();
        }
        fs::write(at("z").join("b.pem"), &pem).unwrap();
        fs::write(at("c.crt"), &pem).unwrap();
        let patterns = ["y/*.pem", "?/*.pem", "*.crt"];
        let settings = TlsSettings {
            sources: CertificateSources {
                certificates: patterns.map(|one| at(one).display().to_string()).to_vec(),
                key: None,
            },
            default: None,
            clients: Clients::NotRequested,
            only_1_3: false,
            h2: true,
            ticket_secrets: Vec::new(),
            answers_challenges: false,
        };
        let paths = |state: &WatchedFiles| {
            state.certificates.iter().map(|one| one.path.clone()).collect::<Vec<_>>()
        };
        let (first, faults) = WatchedFiles::read(&settings, None);
        assert!(faults.is_empty(), "{faults:?}");
        let all = ["y/a.pem", "x/a.pem", "z/a.pem", "z/b.pem", "c.crt"].map(at);
        assert_eq!(paths(&first), all);
        assert_eq!(first.read_since(&first), 0);
        // One is deleted, one folder leads nowhere, and one pattern finds nothing.
        fs::remove_file(at("z/b.pem")).unwrap();
        fs::remove_file(at("c.crt")).unwrap();
        fs::remove_dir_all(at("y")).unwrap();
        std::os::unix::fs::symlink("y", at("y")).unwrap();
        let (next, faults) = WatchedFiles::read(&settings, Some(&first));
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert_eq!(paths(&next), ["y/a.pem", "x/a.pem", "z/a.pem", "c.crt"].map(at));
        assert_eq!(next.read_since(&first), 2, "those below x and z");
    }
}
