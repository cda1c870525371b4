//! What the task that orders certificates shares with listeners and operators, from start to end.

use std::sync::Arc;

use anteroom_acme::CertificateBoard;

use super::tls;

/// The shared parts. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct CertificateParts {
    pub(super) board: Arc<CertificateBoard>,
    /// The TLS of all listeners, which shows a new certificate at once.
    pub(super) tls: tls::All,
}
