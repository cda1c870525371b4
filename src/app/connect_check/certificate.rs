//! The certificates of each listener: readable, with their keys, and valid for some time to come.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anteroom_acme::is_self_signed;
use anteroom_config::Plan;
use anteroom_config::certificate::{self, Certificate, CertificateTable};
use anteroom_http::clock::unix_now;
use jiff::Timestamp;

use super::{ConnectFinding, ConnectResult, Findings, failed, fine, warning};

/// A certificate that expires sooner needs a renewal now.
const RENEWAL_SECONDS: i64 = 14 * DAY;
const DAY: i64 = 86_400;
/// The most names that are shown of a certificate.
const NAMES_SHOWN: usize = 5;

/// One for each certificate, and one for each file or pattern that cannot be used.
pub(super) fn findings(plan: &Plan) -> Vec<ConnectFinding> {
    let mut findings = Findings::about("certificate");
    let now = unix_now() as i64;
    let mut from_files = Vec::new();
    for listen in plan.listen.iter().filter(|listen| listen.is_secured()) {
        let sources = listen.tls.sources();
        let (files, faults) = certificate::find(&sources);
        for fault in faults {
            findings.add(fault.path.display().to_string(), failed(fault.to_string()));
        }
        for file in files {
            if listen.tls.is_auto() && !file.exists() {
                let text = "is not there yet: the start makes one, and orders it";
                findings.add(file.display().to_string(), warning(text));
                continue;
            }
            let judged = match certificate::read(&file, sources.key.as_deref()) {
                Ok(certificate) if listen.tls.is_auto() => ordered(&certificate, now),
                Ok(certificate) => {
                    let result = judged(&certificate, now);
                    from_files.push(Arc::new(certificate));
                    result
                }
                Err(fault) => failed(fault.to_string()),
            };
            findings.add(file.display().to_string(), judged);
        }
    }
    if !plan.orders_certificates()
        && let Some(uncovered) = uncovered(plan, &from_files)
    {
        findings.add("[origin] hosts", uncovered);
    }
    findings.found
}

/// The sites that no certificate is for, if there are certificates.
fn uncovered(plan: &Plan, certificates: &[Arc<Certificate>]) -> Option<(ConnectResult, String)> {
    let table = CertificateTable::new(certificates, None);
    let is_name = |name: &str| {
        !name.starts_with('[') && name != "localhost" && name.parse::<Ipv4Addr>().is_err()
    };
    let sites = plan.origin.hosts.iter().filter(|host| !host.is_wildcard() && is_name(host.name()));
    let without: Vec<String> = sites
        .filter(|host| !table.has(host.name()))
        .map(|host| host.name().to_owned())
        .take(NAMES_SHOWN + 1)
        .collect();
    if certificates.is_empty() || without.is_empty() {
        return None;
    }
    Some(warning(format!("no certificate is for {}: browsers refuse it by https", listed(without))))
}

/// One that the proxy renews itself.
fn ordered(certificate: &Certificate, now: i64) -> (ConnectResult, String) {
    if is_self_signed(certificate) {
        return warning("is self-signed: none is issued yet; anteroom certificates list says why");
    }
    if let Some(fault) = certificate.out_of_time(now) {
        return failed(fault.to_string());
    }
    let (names, until) = (names(certificate), day(certificate.not_after));
    fine(format!("{names}; valid until {until}; it is renewed before"))
}

fn judged(certificate: &Certificate, now: i64) -> (ConnectResult, String) {
    if let Some(fault) = certificate.out_of_time(now) {
        return failed(fault.to_string());
    }
    let until = day(certificate.not_after);
    let names = names(certificate);
    let left = certificate.not_after - now;
    if left < RENEWAL_SECONDS {
        let days = left / DAY;
        let days = if days == 1 { "1 day".to_owned() } else { format!("{days} days") };
        return warning(format!("{names}; expires in {days}, on {until}; the key matches"));
    }
    fine(format!("{names}; valid until {until}; the key matches"))
}

fn names(certificate: &Certificate) -> String {
    let names: Vec<String> = certificate.names.iter().take(NAMES_SHOWN + 1).collect();
    if names.is_empty() {
        return "for no host name".to_owned();
    }
    format!("for {}", listed(names))
}

/// The first [`NAMES_SHOWN`] names.
fn listed(mut names: Vec<String>) -> String {
    if names.len() > NAMES_SHOWN {
        names.truncate(NAMES_SHOWN);
        names.push("…".to_owned());
    }
    names.join(", ")
}

fn day(unix: i64) -> String {
    Timestamp::from_second(unix)
        .map_or_else(|_| unix.to_string(), |time| time.strftime("%Y-%m-%d").to_string())
}

#[cfg(test)]
mod tests {
    use anteroom_config::OriginUrl;
    use anteroom_http::host_pattern::HostPattern;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn a_certificate_is_judged_by_its_last_day() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("site.pem");
        let mut params = CertificateParams::new(vec!["shop.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2026, 3, 1);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem() + &key.serialize_pem();
        std::fs::write(&path, pem).unwrap();
        let read = certificate::read(&path, None).unwrap();
        for (before, wanted) in [
            (20 * DAY, ConnectResult::Fine),
            (13 * DAY, ConnectResult::Warning),
            (-1, ConnectResult::Failed),
        ] {
            let (result, detail) = judged(&read, read.not_after - before);
            assert_eq!(result, wanted, "{detail}");
            assert!(detail.contains("2026-03-01"), "{detail}");
        }
        let (_, detail) = judged(&read, read.not_after - DAY);
        assert!(detail.contains("; expires in 1 day, on 2026-03-01"), "{detail}");
        let mut plan = Plan::new(OriginUrl::http("app", 3000));
        let hosts = ["shop.example", "www.shop.example:8443", "*.shop.example", "127.0.0.1"];
        plan.origin.hosts = hosts.iter().filter_map(|host| HostPattern::parse(host)).collect();
        assert_eq!(uncovered(&plan, &[]), None);
        let found = uncovered(&plan, &[Arc::new(certificate::read(&path, None).unwrap())]);
        let said = "no certificate is for www.shop.example: browsers refuse it by https";
        assert_eq!(found, Some((ConnectResult::Warning, said.to_owned())));
        let (_, detail) = judged(&read, read.not_before);
        assert_eq!(detail, "for shop.example; valid until 2026-03-01; the key matches");
    }
}
