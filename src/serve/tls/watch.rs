//! What was read of a listener's files, and what is read of them anew.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::RootCertStore;

use super::settings::Settings;
use crate::certificate::{self, Certificate, Fault, Stamp, Table, Wrong};

/// What was read.
#[derive(Debug)]
pub(super) struct State {
    /// The files as they were just before they were read.
    pub(super) stamps: Vec<Stamp>,
    /// The files as they were at the last look.
    pub(super) seen: Vec<Stamp>,
    pub(super) certificates: Vec<Arc<Certificate>>,
    pub(super) authorities: Option<Arc<RootCertStore>>,
    /// What was wrong with them, in words.
    pub(super) told: Vec<String>,
}

/// The stamps of all files of a listener.
pub(super) fn stamps(settings: &Settings) -> Vec<Stamp> {
    let mut stamps = certificate::stamps(&settings.sources);
    stamps.extend(settings.clients.authorities().map(|path| Stamp::of(path)));
    stamps
}

impl State {
    /// Reads all files. What cannot be read is told, and stays as it is in `last`.
    pub(super) fn read(settings: &Settings, last: Option<&Self>) -> (Self, Vec<Fault>) {
        // Before reading: a change meanwhile is seen at the next look.
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
            // All files are gone: somebody is at work on them.
            certificates = last.map(|last| last.certificates.clone()).unwrap_or_default();
            if faults.is_empty() {
                let path = settings.sources.certificates.concat().into();
                faults.push(Fault { path, wrong: Wrong::NoFile });
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
        (Self { seen: stamps.clone(), stamps, certificates, authorities, told }, faults)
    }

    /// The table of what was read.
    pub(super) fn table(&self, settings: &Settings) -> Table {
        Table::new(&self.certificates, settings.default.as_deref())
    }

    /// Unix time at which the first certificate expires.
    pub(super) fn expires(&self) -> i64 {
        self.certificates.iter().map(|one| one.not_after).min().unwrap_or_default()
    }

    /// Whether the same authorities are asked for as in `other`.
    pub(super) fn asks_as(&self, other: &Self) -> bool {
        let roots = |state: &Self| state.authorities.as_ref().map(|all| all.roots.clone());
        roots(self) == roots(other)
    }
}

/// Keeps those of `last` that were not found, where that does not mean that they are gone: their pattern
/// found nothing at all, or they cannot be looked at.
fn keep_hidden(
    certificates: &mut Vec<Arc<Certificate>>,
    last: &[Arc<Certificate>],
    faults: &[Fault],
) {
    let found: HashSet<PathBuf> = certificates.iter().map(|one| one.path.clone()).collect();
    let is_hidden = |one: &Certificate| {
        let mut silent = faults.iter().filter(|fault| matches!(fault.wrong, Wrong::NoFile));
        silent.any(|fault| certificate::means(&fault.path.to_string_lossy(), &one.path))
            || std::fs::metadata(&one.path).is_err_and(|error| error.kind() != ErrorKind::NotFound)
    };
    let hidden = last.iter().filter(|one| !found.contains(&one.path) && is_hidden(one));
    let before = certificates.len();
    certificates.extend(hidden.cloned());
    if certificates.len() > before {
        // The first of all is shown to who asks for nobody's.
        let places: HashMap<_, _> =
            last.iter().enumerate().map(|(place, one)| (one.path.clone(), place)).collect();
        certificates.sort_by_key(|one| places.get(&one.path).copied().unwrap_or(usize::MAX));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::certificate::Sources;
    use crate::serve::tls::Clients;

    #[test]
    fn what_an_error_hides_is_kept_and_what_is_gone_is_not() {
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
        let settings = Settings {
            sources: Sources {
                certificates: patterns.map(|one| at(one).display().to_string()).to_vec(),
                key: None,
            },
            default: None,
            clients: Clients::Unasked,
            only_1_3: false,
            h2: true,
        };
        let paths = |state: &State| {
            state.certificates.iter().map(|one| one.path.clone()).collect::<Vec<_>>()
        };
        let (first, faults) = State::read(&settings, None);
        assert!(faults.is_empty(), "{faults:?}");
        let all = ["y/a.pem", "x/a.pem", "z/a.pem", "z/b.pem", "c.crt"].map(at);
        assert_eq!(paths(&first), all);
        // One is deleted, one folder leads nowhere, and one pattern finds nothing.
        fs::remove_file(at("z/b.pem")).unwrap();
        fs::remove_file(at("c.crt")).unwrap();
        fs::remove_dir_all(at("y")).unwrap();
        std::os::unix::fs::symlink("y", at("y")).unwrap();
        let (next, faults) = State::read(&settings, Some(&first));
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert_eq!(paths(&next), ["y/a.pem", "x/a.pem", "z/a.pem", "c.crt"].map(at));
    }
}
