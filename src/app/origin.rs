//! From a plan's `[origin]` to what reaches it.

use super::StartError;
use crate::config;
use crate::http::host::Scheme;
use crate::origin::{Http2, Settings, Tls, TlsRules};

/// How the origin is reached. Reads the certificates that the plan names.
pub(super) fn origin_settings(origin: &config::Origin) -> Result<Settings, StartError> {
    let host = origin.url.host.trim_start_matches('[').trim_end_matches(']');
    let http2 = match origin.http2 {
        config::Http2::Auto => Http2::Auto,
        config::Http2::Always => Http2::Always,
        config::Http2::Never => Http2::Never,
    };
    let tls = match origin.url.scheme {
        Scheme::Http => None,
        Scheme::Https => Some(Tls::load(&rules(&origin.tls), host, http2)?),
    };
    Ok(Settings {
        host: host.to_owned(),
        port: origin.url.port,
        socket: origin.url.socket.clone(),
        tls,
        http2,
        http2_ping: origin.http2_ping,
        connect_timeout: origin.connect_timeout,
        first_byte_timeout: origin.first_byte_timeout,
        between_bytes_timeout: origin.between_bytes_timeout,
        stream_timeout: origin.stream_timeout,
        keep_idle: origin.keep_idle,
        idle_timeout: origin.idle_timeout,
        head_reuse: origin.head_reuse,
    })
}

fn rules(tls: &config::OriginTls) -> TlsRules {
    TlsRules {
        ca: tls.ca.clone(),
        server_name: tls.server_name.clone(),
        identity: tls.cert.clone().zip(tls.key.clone()),
        blind: !tls.verify,
    }
}
