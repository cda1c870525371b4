//! The certificates that visitors are shown.

use std::path::PathBuf;
use std::sync::Arc;

use anteroom_proxy::serve::tls::ClientTls;
use serde::Serialize;

use super::commands::Commands;

/// Every certificate of every listener.
#[derive(Debug, Serialize)]
pub(super) struct CertificatesReport {
    certificates: Vec<ListedCertificate>,
}

/// A certificate in use.
#[derive(Debug, Serialize)]
struct ListedCertificate {
    /// The address of `[[listen]]`.
    listener: String,
    names: Vec<String>,
    /// The Unix time at which it expires.
    not_after: i64,
    file: PathBuf,
}

impl Commands {
    pub(super) fn list_certificates(&self) -> CertificatesReport {
        let of_listener = |(listener, tls): &(String, Arc<ClientTls>)| {
            let listed = tls.certificates().into_iter().map(|one| ListedCertificate {
                listener: listener.clone(),
                names: one.names.iter().collect(),
                not_after: one.not_after,
                file: one.path.clone(),
            });
            listed.collect::<Vec<_>>()
        };
        CertificatesReport { certificates: self.tls.iter().flat_map(of_listener).collect() }
    }
}
