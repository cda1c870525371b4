//! The settings of a listener's TLS.

use std::path::PathBuf;

use anteroom_config::certificate::CertificateSources;
use anteroom_tls::TicketSecret;

/// The settings of a listener's TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The locations of its certificates.
    pub sources: CertificateSources,
    /// The name of the certificate for clients that request no name; `None`: the first.
    pub default: Option<String>,
    /// Whether clients present certificates.
    pub clients: Clients,
    /// Whether versions before 1.3 are refused.
    pub only_1_3: bool,
    /// Whether HTTP/2 is offered, too.
    pub h2: bool,
    /// What the keys of tickets are derived from: the first seals, all open. Empty: the keys are those of the store. Not
    /// used where clients present certificates.
    pub ticket_secrets: Vec<TicketSecret>,
    /// Whether an authority may check here that a name is ours (tls-alpn-01).
    pub answers_challenges: bool,
}

/// Whether clients present certificates, and the file of the authorities that issue them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clients {
    /// They are not requested.
    NotRequested,
    /// They are requested.
    Optional(PathBuf),
    /// They are required.
    Required(PathBuf),
}

impl Clients {
    pub(super) fn authorities(&self) -> Option<&PathBuf> {
        match self {
            Self::NotRequested => None,
            Self::Optional(path) | Self::Required(path) => Some(path),
        }
    }
}
