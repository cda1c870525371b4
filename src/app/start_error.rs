//! Reasons why the proxy did not start.

use std::io;
use std::path::PathBuf;

use anteroom_proxy::serve::tls::ClientTlsError;
use anteroom_store::OpenError;

use crate::admin::ClientError;
use crate::take_over::channel::TakeOverError;

/// Why the proxy did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address to listen on.
    #[error(
        "cannot listen on {address} for {what}: {source}; stop the process that listens there, \
         or choose another address with {flag}"
    )]
    Listen {
        /// The address.
        address: String,
        /// Its purpose.
        what: &'static str,
        /// The option that sets it.
        flag: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The certificates of a listener.
    #[error(transparent)]
    Tls(#[from] ClientTlsError),
    /// The store.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The access log.
    #[error("cannot open the access log {path:?}: {source}")]
    Log {
        /// The file; empty: standard output.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// TLS to the origin.
    #[error("cannot set up TLS to the origin: {0}")]
    OriginTls(#[from] anteroom_origin::OriginTlsError),
    /// TLS to the webhook of abandoned carts.
    #[error("cannot set up TLS to the webhook in on_expire: {0}")]
    WebhookTls(anteroom_origin::OriginTlsError),
    /// TLS to the receiver of traces.
    #[error("cannot set up TLS to the endpoint in [traces]: {0}")]
    TracesTls(anteroom_origin::OriginTlsError),
    /// TLS to the authority that certificates are ordered from.
    #[error("cannot set up TLS to the directory in [acme]: {0}")]
    AuthorityTls(anteroom_origin::OriginTlsError),
    /// The folder of ordered certificates.
    #[error(transparent)]
    Certificates(#[from] anteroom_acme::FolderError),
    /// It is not known where the process to take over from is.
    #[error(
        "cannot take over: [admin] socket is \"off\"; give the socket of the running proxy with --take-over=SOCKET"
    )]
    NoSocket,
    /// The process to take over from could not be asked.
    #[error("cannot take over: {0}")]
    Predecessor(#[from] ClientError),
    /// It did not hand over.
    #[error("cannot take over: {0}")]
    TakeOver(#[from] TakeOverError),
    /// A thread, a runtime or a signal handler.
    #[error("the system refused {what}: {source}")]
    System {
        /// What was requested.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}
