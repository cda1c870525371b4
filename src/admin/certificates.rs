//! The certificates that visitors are shown, and those that the proxy orders.

use std::path::PathBuf;
use std::sync::Arc;

use ::http::StatusCode;
use anteroom_acme::NameStatus;
use anteroom_proxy::serve::tls::ClientTls;
use serde::{Deserialize, Serialize};

use super::commands::{CommandRefusal, Commands, bad, read};

/// Every certificate of every listener, and every name that one is ordered for.
#[derive(Debug, Serialize, Deserialize)]
pub struct CertificatesReport {
    /// The certificates that are shown.
    pub certificates: Vec<ListedCertificate>,
    /// The names that certificates are ordered for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ordered: Vec<NameStatus>,
}

/// A certificate in use.
#[derive(Debug, Serialize, Deserialize)]
pub struct ListedCertificate {
    /// The address of `[[listen]]`.
    pub listener: String,
    /// The names that it covers.
    pub names: Vec<String>,
    /// The Unix time at which it expires.
    pub not_after: i64,
    /// The file that it is in.
    pub file: PathBuf,
}

/// Which certificates are to be renewed now.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RenewOrder {
    /// These names.
    pub names: Vec<String>,
    /// All names.
    pub all: bool,
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
        CertificatesReport {
            certificates: self.tls.iter().flat_map(of_listener).collect(),
            ordered: self.ordered.statuses(),
        }
    }

    /// Asks for other certificates. They are ordered behind the answer.
    pub(super) fn renew_certificates(
        &self,
        body: &[u8],
    ) -> Result<CertificatesReport, CommandRefusal> {
        let RenewOrder { names, all } = read(body)?;
        if all != names.is_empty() {
            return Err(bad(&"expected either names, or all"));
        }
        let known = self.ordered.statuses();
        if known.is_empty() {
            let why = "no certificates are ordered: no [[listen]] has tls = \"auto\"";
            return Err((StatusCode::CONFLICT, why.to_owned()));
        }
        let wanted = if all { known.into_iter().map(|one| one.name).collect() } else { names };
        match self.ordered.wish_renewals(wanted) {
            Ok(()) => Ok(self.list_certificates()),
            Err(name) => Err((
                StatusCode::NOT_FOUND,
                format!("no certificate is ordered for {}", name.escape_debug()),
            )),
        }
    }
}
