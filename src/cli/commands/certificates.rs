//! The commands about ordered certificates.

use anteroom::admin::{
    self, CERTIFICATES, CERTIFICATES_RENEW, CertificateState, CertificatesReport,
    ListedCertificate, NameStatus, RenewOrder,
};
use http::Method;
use jiff::Timestamp;

use super::socket;
use crate::cli::args::{CertificatesCommand, OutputArgs};
use crate::cli::output::{counted, failed, say};

/// Lists certificates, or orders others. A list fails if an order has failed since the last certificate.
pub(crate) fn certificates(command: CertificatesCommand) -> Result<(), u8> {
    match command {
        CertificatesCommand::List { shown } => {
            let report = ask(Method::GET, CERTIFICATES, Vec::new(), shown)?;
            let has_failed = report.ordered.iter().any(|one| one.failures > 0);
            if has_failed { Err(1) } else { Ok(()) }
        }
        CertificatesCommand::Renew { names, all, shown } => {
            let order = serde_json::to_vec(&RenewOrder { names, all }).map_err(failed)?;
            ask(Method::POST, CERTIFICATES_RENEW, order, shown).map(|_| ())
        }
    }
}

/// Sends a command, and prints the certificates that it answers with.
fn ask(
    method: Method,
    path: &str,
    body: Vec<u8>,
    shown: OutputArgs,
) -> Result<CertificatesReport, u8> {
    let reply = admin::send_command(&socket(shown.at)?, method, path, body).map_err(failed)?;
    let report: CertificatesReport = serde_json::from_slice(&reply).map_err(failed)?;
    if shown.json {
        say(&String::from_utf8_lossy(&reply));
        return Ok(report);
    }
    report.ordered.iter().for_each(|one| say(&ordered_line(one)));
    let is_ordered = |listed: &&ListedCertificate| {
        report.ordered.iter().any(|one| listed.names.contains(&one.name))
    };
    for listed in report.certificates.iter().filter(|listed| !is_ordered(listed)) {
        let (names, file) = (listed.names.join(", "), listed.file.display());
        say(&format!("{names}  until {}  in {file}", time(listed.not_after)));
    }
    if report.ordered.is_empty() && report.certificates.is_empty() {
        say("none: no listener has TLS");
    }
    Ok(report)
}

/// A name on one line.
fn ordered_line(one: &NameStatus) -> String {
    let state = match one.state {
        CertificateState::SelfSigned => "self-signed",
        CertificateState::InUse => "in use",
        CertificateState::Renewing => "renewing",
        CertificateState::Expired => "expired",
    };
    let mut line = format!("{}  {state}", one.name);
    if let Some(until) = one.not_after {
        line += &format!("  until {}", time(until));
    }
    if let Some(at) = one.renew_at {
        line += &format!("  renewed from {}", time(at));
    }
    line += &format!("  by {}", one.challenge);
    if let Some(issuer) = &one.issuer {
        line += &format!("  of {}", printable(issuer));
    }
    if let (Some(error), true) = (&one.last_error, one.failures > 0) {
        let failures = counted(one.failures as usize, "time");
        line += &format!("  failed {failures}: {}", printable(error));
    }
    if let Some(at) = one.next_try {
        line += &format!("  tried again {}", time(at));
    }
    line
}

/// A text of the authority, which may hold any characters.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A time, in UTC.
fn time(unix: i64) -> String {
    Timestamp::from_second(unix)
        .map_or_else(|_| unix.to_string(), |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_on_one_line() {
        let mut one = NameStatus {
            name: "a.net".to_owned(),
            state: CertificateState::SelfSigned,
            challenge: "http-01".to_owned(),
            issuer: None,
            not_after: None,
            renew_at: None,
            next_try: Some(1_800_000_000),
            failures: 2,
            last_error: Some("no\nanswer".to_owned()),
            failed_at: Some(1_799_990_000),
        };
        assert_eq!(
            ordered_line(&one),
            "a.net  self-signed  by http-01  failed 2 times: no answer  tried again 2027-01-15 08:00 UTC"
        );
        (one.failures, one.next_try, one.state) = (0, None, CertificateState::InUse);
        (one.not_after, one.renew_at) = (Some(1_800_000_000), Some(1_790_000_000));
        one.issuer = Some("O=Let's Encrypt, CN=R11".to_owned());
        assert_eq!(
            ordered_line(&one),
            "a.net  in use  until 2027-01-15 08:00 UTC  renewed from 2026-09-21 14:13 UTC  by http-01  of O=Let's Encrypt, CN=R11"
        );
    }
}
