//! The two forms of a line: JSON, and the Combined Log Format with the cache result behind it.

use std::borrow::Cow;
use std::io::Write;

use anteroom_policy::access_log::AccessLogFormat;
use jiff::Timestamp;
use serde::Serialize;

use super::{LogRecord, LogTexts};
use crate::shown_path::ShownPaths;

/// How a line is written.
#[derive(Debug)]
pub struct Style {
    /// Its form.
    pub format: AccessLogFormat,
    /// What it shows of paths.
    pub paths: ShownPaths,
}

/// The JSON form. Field names are stable.
#[derive(Serialize)]
struct JsonLine<'a> {
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
    class: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<Cow<'a, str>>,
    ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin_ms: Option<f64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    aborted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    referer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
}

impl Style {
    /// Appends the line for one request.
    pub fn line(&self, record: &LogRecord, texts: &LogTexts<'_>, out: &mut Vec<u8>) {
        match self.format {
            AccessLogFormat::Json => self.json(record, texts, out),
            AccessLogFormat::Combined => self.combined(record, texts, out),
        }
        out.push(b'\n');
    }

    fn json(&self, record: &LogRecord, texts: &LogTexts<'_>, out: &mut Vec<u8>) {
        let path = self.path(texts.path);
        let line = JsonLine {
            time: timestamp(record.at).to_string(),
            client: record.client,
            method: record.method.as_str(),
            host: texts.host.and_then(text),
            path: &path,
            version: format!("{:?}", record.version),
            status: record.status,
            bytes: record.sent,
            received: record.received,
            cache: record.outcome.as_str(),
            reason: record.reason.map(crate::reason::Reason::as_str),
            route: texts.route.and_then(text),
            visitor: record.visitor.as_str(),
            class: record.class.map(anteroom_policy::priority::RequestClass::as_str),
            user: texts.user.map(String::from_utf8_lossy),
            ms: millis(record.took),
            origin_ms: record.origin.map(millis),
            aborted: record.aborted,
            referer: texts.referer.and_then(referer_origin),
            agent: texts.agent.and_then(visible),
            request_id: texts.request_id.and_then(visible),
        };
        let written = serde_json::to_writer(&mut *out, &line);
        debug_assert!(written.is_ok(), "a vector takes every byte");
    }

    fn combined(&self, record: &LogRecord, texts: &LogTexts<'_>, out: &mut Vec<u8>) {
        let user = texts.user.map_or_else(
            || "-".to_owned(),
            |user| String::from_utf8_lossy(user).escape_default().to_string(),
        );
        let written = write!(
            out,
            "{} - {} [{}] \"{} {} {:?}\" {} {} \"{}\" \"{}\" {} {} {:.3}",
            record.client.map_or_else(|| "-".to_owned(), |client| client.to_string()),
            user.replace(' ', "_"),
            timestamp(record.at).strftime("%d/%b/%Y:%H:%M:%S +0000"),
            record.method,
            self.path(texts.path).escape_default(),
            record.version,
            record.status,
            record.sent,
            texts.referer.and_then(referer_origin).unwrap_or("-").escape_default(),
            texts.agent.and_then(visible).unwrap_or("-").escape_default(),
            record.outcome.as_str(),
            record.reason.map_or("-", crate::reason::Reason::as_str),
            millis(record.took),
        );
        debug_assert!(written.is_ok(), "a vector takes every byte");
    }

    /// The path without query, session ids, and what `redact_paths` hides.
    fn path<'p>(&'p self, path: &'p [u8]) -> Cow<'p, str> {
        // A target is text.
        self.paths.path(text(path).unwrap_or_default())
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// A field's value, if it is visible ASCII and tabs.
fn visible(value: &[u8]) -> Option<&str> {
    let is_visible = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t');
    value.iter().all(is_visible).then(|| text(value)).flatten()
}

/// `scheme://host` of a Referer, or nothing where it has no such shape.
fn referer_origin(referer: &[u8]) -> Option<&str> {
    let text = visible(referer)?;
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
    let host_at = text.len() - rest.len();
    let host = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    (!host.contains('@')).then(|| &text[..host_at + host.len()])
}

/// Milliseconds, to a microsecond.
pub fn millis(time: std::time::Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// A Unix time as a date and time in UTC.
#[expect(clippy::cast_possible_truncation, reason = "microseconds since 1970 fit")]
pub fn timestamp(at: f64) -> Timestamp {
    Timestamp::from_microsecond((at * 1e6) as i64).unwrap_or(Timestamp::UNIX_EPOCH)
}
