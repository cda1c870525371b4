//! The two forms of a line: JSON, and the Combined Log Format with the cache result behind it.

use std::io::Write;

use ::http::HeaderValue;
use jiff::Timestamp;
use serde::Serialize;

use super::Record;
use crate::http::path::PathPattern;
use crate::http::query::path_without_session_id;

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object.
    Json,
    /// Combined Log Format, then cache result, reason, and milliseconds.
    Combined,
}

/// How a line is written.
#[derive(Debug)]
pub struct Style {
    /// Its form.
    pub format: Format,
    /// Paths whose wildcards are hidden.
    pub redact: Vec<PathPattern>,
}

/// The JSON form. Field names are stable.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    client: Option<std::net::IpAddr>,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    path: &'a str,
    version: String,
    status: u16,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    received: Option<u64>,
    cache: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    visitor: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin_ms: Option<f64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    aborted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    referer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
}

impl Style {
    /// Appends the line for one request.
    pub fn line(&self, record: &Record, out: &mut Vec<u8>) {
        match self.format {
            Format::Json => self.json(record, out),
            Format::Combined => self.combined(record, out),
        }
        out.push(b'\n');
    }

    fn json(&self, record: &Record, out: &mut Vec<u8>) {
        let path = self.path(record);
        let line = Line {
            time: timestamp(record.at).to_string(),
            client: record.client,
            method: record.method.as_str(),
            host: record.host.as_deref(),
            path: &path,
            version: format!("{:?}", record.version),
            status: record.status,
            bytes: record.sent,
            received: record.received,
            cache: record.outcome.as_str(),
            reason: record.reason.map(crate::telemetry::reason::Reason::as_str),
            route: record.route.as_deref(),
            visitor: record.visitor.as_str(),
            user: record.user.as_ref().map(|u| String::from_utf8_lossy(u.as_bytes()).into_owned()),
            ms: millis(record.took),
            origin_ms: record.origin.map(millis),
            aborted: record.aborted,
            referer: record.referer.as_ref().and_then(referer_origin),
            agent: record.agent.as_ref().and_then(|agent| agent.to_str().ok()),
        };
        let written = serde_json::to_writer(&mut *out, &line);
        debug_assert!(written.is_ok(), "a vector takes every byte");
    }

    fn combined(&self, record: &Record, out: &mut Vec<u8>) {
        let user = record.user.as_ref().map_or_else(
            || "-".to_owned(),
            |user| String::from_utf8_lossy(user.as_bytes()).escape_default().to_string(),
        );
        let written = write!(
            out,
            "{} - {} [{}] \"{} {} {:?}\" {} {} \"{}\" \"{}\" {} {} {:.3}",
            record.client.map_or_else(|| "-".to_owned(), |client| client.to_string()),
            user.replace(' ', "_"),
            timestamp(record.at).strftime("%d/%b/%Y:%H:%M:%S +0000"),
            record.method,
            self.path(record).escape_default(),
            record.version,
            record.status,
            record.sent,
            record.referer.as_ref().and_then(referer_origin).unwrap_or("-").escape_default(),
            record.agent.as_ref().and_then(|a| a.to_str().ok()).unwrap_or("-").escape_default(),
            record.outcome.as_str(),
            record.reason.map_or("-", crate::telemetry::reason::Reason::as_str),
            millis(record.took),
        );
        debug_assert!(written.is_ok(), "a vector takes every byte");
    }

    /// The path without query, session ids, and what `redact_paths` hides.
    fn path(&self, record: &Record) -> String {
        let path = record.uri.path();
        let decoded = crate::http::path::decoded(path);
        let hidden = self
            .redact
            .iter()
            .find(|pattern| pattern.matches(decoded.as_deref().unwrap_or(path)).is_some());
        match hidden {
            // The pattern itself stands for the path: it has wildcards where there were values.
            Some(pattern) => pattern.as_str().to_owned(),
            None => path_without_session_id(path).into_owned(),
        }
    }
}

/// `scheme://host` of a Referer, or nothing where it has no such shape.
fn referer_origin(referer: &HeaderValue) -> Option<&str> {
    let text = referer.to_str().ok()?;
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
    let host_at = text.len() - rest.len();
    let host = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    (!host.contains('@')).then(|| &text[..host_at + host.len()])
}

fn millis(time: std::time::Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

#[expect(clippy::cast_possible_truncation, reason = "microseconds since 1970 fit")]
fn timestamp(at: f64) -> Timestamp {
    Timestamp::from_microsecond((at * 1e6) as i64).unwrap_or(Timestamp::UNIX_EPOCH)
}
