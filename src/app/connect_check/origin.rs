//! The servers of each origin: one `HEAD /` on a new connection, with TLS where the URL is https.

use std::sync::Arc;

use ::http::StatusCode;
use anteroom_config::{OriginConfig, OriginUrl, Plan};
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
fn remark(status: StatusCode) -> &'static str {
    match status {
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
        Ok(status) => fine(format!("HEAD / was answered {}{}", status.as_u16(), remark(status))),
        Err(ProbeError::TimedOut) => {
            failed(format!("no answer to HEAD / within {} s", TIMEOUT.as_secs()))
        }
        Err(ProbeError::Origin(error)) => failed(match &error {
            OriginError::Tls(_) if origin.tls.ca.is_none() => format!(
                "{}; for a certificate of your own authority, set [origin.tls] ca",
                causes(&error)
            ),
            OriginError::Connect(_) => format!("{}; start the app at {url}", causes(&error)),
            _ => causes(&error),
        }),
    }
}
