//! The servers of each origin: one `HEAD /` on a new connection, with TLS where the URL is https.

use std::io::ErrorKind;
use std::sync::Arc;

use ::http::StatusCode;
use anteroom_config::{OriginConfig, OriginUrl, Plan};
use anteroom_http::host::Scheme;
use anteroom_origin::{OriginError, ProbeError};
use anteroom_telemetry::metrics::ThreadMetrics;
use futures_util::future::join_all;

use super::{ConnectFinding, ConnectResult, Findings, TIMEOUT, causes, failed, fine, warning};
use crate::app::origins::{self, Origins};

/// One for each server.
pub(super) async fn findings(plan: &Plan) -> Vec<ConnectFinding> {
    let mut findings = Findings::about("origin");
    let origins = match Origins::new(plan, &Origins::default()) {
        Ok(origins) => origins,
        Err(error) => {
            findings.add("[origin] tls", failed(causes(&error)));
            return findings.found;
        }
    };
    let upstreams = origins.reach(&Arc::<ThreadMetrics>::default());
    let asked = origins::named(plan).zip(upstreams.iter()).map(async |((_, origin), upstream)| {
        upstream.probe(&origins::host(origin, &plan.origin.hosts), TIMEOUT).await
    });
    for ((name, origin), answers) in origins::named(plan).zip(join_all(asked).await) {
        for (url, answer) in origin.urls().iter().zip(answers) {
            findings.add(target(name, url), judged(origin, url, answer));
        }
    }
    findings.found
}

fn target(name: &str, url: &OriginUrl) -> String {
    if name == "origin" { url.to_string() } else { format!("{url} (origins.{name})") }
}

/// What a status may mean that a visitor of the first page seldom gets.
fn remark(status: StatusCode, url: &OriginUrl) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST if url.scheme == Scheme::Http => {
            ": if the app speaks TLS there, write https:// in its url"
        }
        StatusCode::UNAUTHORIZED => {
            ": the app asks for credentials; is this the address for visitors?"
        }
        StatusCode::FORBIDDEN => ": the app refuses Anteroom; does it allow this address and host?",
        _ => "",
    }
}

fn judged(
    origin: &OriginConfig,
    url: &OriginUrl,
    answer: Result<StatusCode, ProbeError>,
) -> (ConnectResult, String) {
    match answer {
        Ok(status) if status.is_server_error() => {
            warning(format!("HEAD / was answered {}: the app may be broken", status.as_u16()))
        }
        Ok(status) => {
            fine(format!("HEAD / was answered {}{}", status.as_u16(), remark(status, url)))
        }
        Err(ProbeError::TimedOut) => {
            failed(format!("no answer to HEAD / within {} s", TIMEOUT.as_secs()))
        }
        Err(ProbeError::Origin(error)) => {
            failed(format!("{}{}", causes(&error), remedy(origin, url, &error)))
        }
    }
}

/// What helps against an error of a server.
fn remedy(origin: &OriginConfig, url: &OriginUrl, error: &OriginError) -> String {
    match error {
        // Of bytes that are no TLS rustls says nothing else.
        OriginError::Tls(cause) if cause.to_string().contains("corrupt message") => {
            "; if the app speaks no TLS, write http:// in its url".to_owned()
        }
        OriginError::Tls(_) if origin.tls.ca.is_none() => {
            "; for a certificate of your own authority, set [origin.tls] ca".to_owned()
        }
        OriginError::Connect(cause) if is_down(cause.kind()) => {
            format!("; start the app at {url}")
        }
        OriginError::Connect(_) => "; does its url have the right host and port?".to_owned(),
        OriginError::Broken(_) => {
            "; an app that speaks HTTP answers: for PHP-FPM and other FastCGI put a web server in \
                                   between, as in docs/guides/apps.md#php"
                .to_owned()
        }
        _ => String::new(),
    }
}

/// Whether nothing listens, at an address or at the path of a socket.
fn is_down(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn each_error_of_a_server_has_its_own_remedy() {
        let url = || OriginUrl::http("app", 3000);
        let (origin, url) = (OriginConfig::new(url()), url());
        let said = |error: OriginError| {
            let (result, detail) = judged(&origin, &url, Err(ProbeError::Origin(error)));
            assert_eq!(result, ConnectResult::Failed);
            detail
        };
        let other = |text: &str| io::Error::other(text.to_owned());
        let plain =
            said(OriginError::Tls(other("received corrupt message of type InvalidContentType")));
        assert!(plain.ends_with("write http:// in its url"), "{plain}");
        let unknown = said(OriginError::Tls(other("invalid peer certificate: UnknownIssuer")));
        assert!(unknown.ends_with("set [origin.tls] ca"), "{unknown}");
        let down = said(OriginError::Connect(ErrorKind::ConnectionRefused.into()));
        assert!(down.ends_with("start the app at http://app:3000"), "{down}");
        let nameless = said(OriginError::Connect(other("failed to lookup address information")));
        assert!(nameless.ends_with("the right host and port?"), "{nameless}");
        let fast_cgi = said(OriginError::Broken("connection reset".into()));
        assert!(fast_cgi.contains("PHP-FPM"), "{fast_cgi}");
        let (_, detail) = judged(&origin, &url, Ok(StatusCode::BAD_REQUEST));
        assert!(detail.ends_with("write https:// in its url"), "{detail}");
    }
}
