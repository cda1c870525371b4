//! What was read of a listener's files, and what is read of them anew.

use std::sync::Arc;

use rustls::RootCertStore;

use super::{Certificate, Fault, Settings, Table, certificate};
use crate::certificate::{Stamp, Wrong};

/// What was read.
#[derive(Debug)]
pub(super) struct State {
    /// The files as they were just before they were read.
    pub(super) stamps: Vec<Stamp>,
    /// The files as they were at the last look.
    pub(super) seen: Vec<Stamp>,
    pub(super) certificates: Vec<Arc<Certificate>>,
    pub(super) authorities: Option<Arc<RootCertStore>>,
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
        (Self { seen: stamps.clone(), stamps, certificates, authorities }, faults)
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
