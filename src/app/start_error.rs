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
    #[error("cannot listen on {address} for {what}: {source}; {}", remedy(.source, .flag))]
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

/// What helps where an address cannot be listened on. Another process is named only where there is one.
fn remedy(source: &io::Error, flag: &str) -> String {
    let another = format!("choose another address with {flag}");
    match source.kind() {
        io::ErrorKind::AddrInUse => format!("stop the process that listens there, or {another}"),
        io::ErrorKind::PermissionDenied => {
            format!("give the process CAP_NET_BIND_SERVICE for a port below 1024, or {another}")
        }
        _ => another,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_listens_already_is_named_only_where_there_is_one() {
        for (kind, names_a_process) in [
            (io::ErrorKind::AddrInUse, true),
            (io::ErrorKind::AddrNotAvailable, false),
            (io::ErrorKind::PermissionDenied, false),
            (io::ErrorKind::Other, false),
        ] {
            let (address, source) = ("[::]:80".to_owned(), io::Error::from(kind));
            let error = StartError::Listen { address, what: "visitors", flag: "--listen", source };
            let text = error.to_string();
            assert_eq!(text.contains("stop the process"), names_a_process, "{text}");
            assert!(text.ends_with("choose another address with --listen"), "{text}");
        }
    }
}
