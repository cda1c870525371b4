//! How to reach a receiver that is not an origin: of abandoned carts, or of traces.

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderValue, Uri};
use anteroom_config::OriginUrl;
use anteroom_http::host::Scheme;
use anteroom_origin::{
    OriginTlsConnector, OriginTlsError, RESPONSE_FIELDS, ServerConnections, ServerSettings,
    TlsRules,
};
use anteroom_policy::origin::Http2;

use crate::task::Receiver;

/// The timeout of a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The timeout of a response, to its head and between two parts; the tasks' own limits are shorter.
const ANSWER: Duration = Duration::from_secs(30);

/// The settings for a server. Reads the trusted certificates for https.
pub(super) fn reached(server: &OriginUrl) -> Result<ServerSettings, OriginTlsError> {
    let host = server.host.trim_start_matches('[').trim_end_matches(']');
    let tls = match server.scheme {
        Scheme::Http => None,
        Scheme::Https => Some(OriginTlsConnector::load(&TlsRules::default(), host, Http2::Never)?),
    };
    Ok(ServerSettings {
        host: host.to_owned(),
        port: server.port,
        socket: None,
        tls,
        http2: Http2::Never,
        http2_ping: ANSWER,
        stream_timeout: ANSWER,
        connect_timeout: CONNECT,
        first_byte_timeout: ANSWER,
        between_bytes_timeout: ANSWER,
        keep_idle: 1,
        idle_timeout: ANSWER,
        head_reuse: true,
        response_fields: RESPONSE_FIELDS,
        has_peers: false,
    })
}

/// The receiver at a server, for one thread.
pub(super) fn receiver(server: &OriginUrl, target: &str, settings: &ServerSettings) -> Receiver {
    Receiver {
        // It is not an origin, so the origin counters do not count it.
        connections: ServerConnections::new(settings.clone(), Arc::default()),
        host: host(server),
        target: Uri::try_from(target).unwrap_or_default(),
    }
}

/// The `Host` of a server.
fn host(server: &OriginUrl) -> HeaderValue {
    let usual = match server.scheme {
        Scheme::Http => 80,
        Scheme::Https => 443,
    };
    let authority = match server.port {
        port if port == usual => server.host.clone(),
        port => format!("{}:{port}", server.host),
    };
    // A host of the plan is a valid field value.
    HeaderValue::try_from(authority).unwrap_or(HeaderValue::from_static("localhost"))
}
