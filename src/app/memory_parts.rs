//! What a process has in memory and its successor would lack, as parts of the take-over. They go along on every store;
//! what only an embedded store has in memory is in parts of its own.
//!
//! A part that is missing, or of another layout, costs what a restart costs.

use std::sync::Arc;
use std::time::Duration;

use anteroom_acme::{CertificateBoard, ChallengeName};
use anteroom_http::clock::unix_now;
use anteroom_http::ident::{hex, unhex};
use anteroom_origin::{HandedLimit, HandedServer, RestLeft};
use anteroom_policy::priority::PAGE_KIND_VERSION;
use anteroom_policy::rate_limit::{self, RateReader, RequestLimits};
use serde::{Deserialize, Serialize};

use super::live_config::LiveConfig;
use super::origins;
use crate::take_over::message::Part;

/// How the servers of origins are, a line each.
const HEALTH: &str = "health";
/// What clients have used of their rates.
const RATES: &str = "rates";
/// The answers that an authority for certificates may ask for, a line each.
const ANSWERS: &str = "answers";
/// The names of certificates that operators want renewed, a line each.
const RENEWALS: &str = "renewals";
/// The layout of every part so far.
const LAYOUT: u32 = 1;
/// A part ends with the line that makes it longer than this, in bytes. In a frame each quote of it takes two.
const PART_BYTES: usize = 256 << 10;

/// A server.
#[derive(Debug, Serialize, Deserialize)]
struct ServerLine {
    origin: String,
    server: String,
    rest: Option<RestLine>,
    fails_checks: bool,
    limit: Option<LimitLine>,
}

/// Its rest, in milliseconds.
#[derive(Debug, Serialize, Deserialize)]
struct RestLine {
    left: u64,
    length: u64,
}

/// Its automatic limit. What that knows is in hex digits, by keys of this version.
#[derive(Debug, Serialize, Deserialize)]
struct LimitLine {
    limit: f64,
    has_queue: bool,
    key_version: u32,
    known: String,
}

/// An answer for an authority. SECURITY: it proves a name to whatever asks, and does not print.
#[derive(Serialize, Deserialize)]
struct AnswerLine {
    name: ChallengeName,
    answer: String,
    /// The Unix time until which it is kept.
    until: i64,
}

/// All parts, as things are now.
pub(super) fn parts(live: &LiveConfig, board: &CertificateBoard) -> Vec<Part> {
    let health = live.origins.server_lists().flat_map(|list| {
        list.hand_out().into_iter().map(move |server| server_line(list.name(), server))
    });
    let counters = live.settings.rates.counters.iter();
    let rates = counters.flat_map(|counters| rate_limit::hand_out(counters, rate_limits(live)));
    let answers = board.answers.hand_out(unix_now() as i64).into_iter().map(answer_line);
    let mut parts = in_parts(HEALTH, health);
    parts.extend(in_parts(RATES, rates));
    parts.extend(in_parts(ANSWERS, answers));
    parts.extend(in_parts(RENEWALS, board.wishes().into_iter()));
    parts
}

/// All limits, in the order of the configuration.
fn rate_limits(live: &LiveConfig) -> impl Iterator<Item = &RequestLimits> {
    let routes = live.settings.routes.all().map(|route| &route.limits);
    std::iter::once(&live.settings.rates.all).chain(routes)
}

/// Lines, put together as parts of this name.
fn in_parts(name: &str, lines: impl Iterator<Item = String>) -> Vec<Part> {
    let part = |text| Part { name: name.to_owned(), layout: LAYOUT, text };
    let (mut parts, mut text) = (Vec::new(), String::new());
    for line in lines {
        text.push_str(&line);
        text.push('\n');
        if text.len() >= PART_BYTES {
            parts.push(part(std::mem::take(&mut text)));
        }
    }
    if !text.is_empty() {
        parts.push(part(text));
    }
    parts
}

fn server_line(origin: &str, server: HandedServer) -> String {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let line = ServerLine {
        origin: origin.to_owned(),
        server: server.name,
        rest: server.rest.map(|RestLeft { left, length }| RestLine {
            left: milliseconds(left),
            length: milliseconds(length),
        }),
        fails_checks: server.fails_checks,
        limit: server.limit.map(|HandedLimit { limit, has_queue, known }| LimitLine {
            limit,
            has_queue,
            key_version: PAGE_KIND_VERSION,
            known: hex(&known),
        }),
    };
    // There is nothing in it that has no text.
    serde_json::to_string(&line).unwrap_or_default()
}

fn answer_line((name, answer, until): (ChallengeName, String, i64)) -> String {
    // There is nothing in it that has no text.
    serde_json::to_string(&AnswerLine { name, answer, until }).unwrap_or_default()
}

fn read_answer(line: &str) -> Option<(ChallengeName, String, i64)> {
    let AnswerLine { name, answer, until } = serde_json::from_str(line).ok()?;
    Some((name, answer, until))
}

/// The origin of a line, and its server.
fn read_server(line: &str) -> Option<(String, HandedServer)> {
    let line: ServerLine = serde_json::from_str(line).ok()?;
    let limit = line.limit.filter(|limit| limit.key_version == PAGE_KIND_VERSION);
    let server = HandedServer {
        name: line.server,
        rest: line.rest.map(|RestLine { left, length }| RestLeft {
            left: Duration::from_millis(left),
            length: Duration::from_millis(length),
        }),
        fails_checks: line.fails_checks,
        limit: limit.map(|LimitLine { limit, has_queue, known, .. }| HandedLimit {
            limit,
            has_queue,
            known: unhex(&known).unwrap_or_default().into(),
        }),
    };
    Some((line.origin, server))
}

/// Takes the parts in, in a process that serves nothing so far.
#[derive(Debug)]
pub(super) struct MemoryReader {
    live: Arc<LiveConfig>,
    rates: RateReader,
    board: Arc<CertificateBoard>,
}

impl MemoryReader {
    /// For a process with this configuration.
    pub(super) fn new(live: Arc<LiveConfig>, board: Arc<CertificateBoard>) -> Self {
        let rates = RateReader::new(live.settings.rates.counters.as_ref(), rate_limits(&live));
        Self { live, rates, board }
    }

    /// Takes in a part. One that this version does not know is passed over.
    pub(super) fn add(&mut self, part: &Part) {
        if part.layout != LAYOUT {
            return;
        }
        let lines = part.text.lines();
        match part.name.as_str() {
            HEALTH => lines.filter_map(read_server).for_each(|(origin, server)| {
                self.add_server(&origin, server);
            }),
            RATES => lines.for_each(|line| self.rates.read(line)),
            ANSWERS => lines.filter_map(read_answer).for_each(|(name, answer, until)| {
                self.board.answers.take_in(name, answer, until, unix_now() as i64);
            }),
            RENEWALS => self.board.put_wishes(lines.map(str::to_owned).collect()),
            _ => {}
        }
    }

    fn add_server(&self, origin: &str, server: HandedServer) {
        let mut named = origins::named(&self.live.plan).zip(self.live.origins.server_lists());
        let Some(((_, config), list)) = named.find(|((name, _), _)| *name == origin) else {
            return;
        };
        // Without checks, nothing would ever bring it back.
        let is_checked = config.servers.health.path.is_some();
        list.take_in(&HandedServer { fails_checks: server.fails_checks && is_checked, ..server });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> HandedServer {
        let length = Duration::from_secs(10);
        HandedServer {
            name: "unix:/run/an \"app\".sock".to_owned(),
            rest: Some(RestLeft { left: Duration::from_millis(1_234), length }),
            fails_checks: true,
            limit: Some(HandedLimit { limit: 12.5, has_queue: true, known: vec![1, 255].into() }),
        }
    }

    #[test]
    fn a_server_is_read_as_it_is_written() {
        let bare = HandedServer { rest: None, limit: None, ..server() };
        for server in [server(), bare] {
            let line = server_line("blog", server.clone());
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(read_server(&line), Some(("blog".to_owned(), server)));
        }
        assert_eq!(read_server("?"), None);
    }

    #[test]
    fn an_answer_is_read_as_it_is_written() {
        for name in [ChallengeName::token("t-1"), ChallengeName::host("a.net")] {
            let handed = (name.unwrap(), "t-1.\"thumb".to_owned(), 7);
            let line = answer_line(handed.clone());
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(read_answer(&line), Some(handed));
        }
        assert_eq!(read_answer("?"), None);
    }

    #[test]
    fn what_a_limit_knows_by_other_keys_is_passed_over() {
        let line = server_line("blog", server());
        let version = format!("\"key_version\":{PAGE_KIND_VERSION}");
        assert!(line.contains(&version), "{line}");
        let (_, read) = read_server(&line.replace(&version, "\"key_version\":99")).unwrap();
        assert_eq!(read, HandedServer { limit: None, ..server() });
    }

    #[test]
    fn parts_hold_all_lines_and_fit_into_a_frame() {
        let line = "\"".repeat(1_000);
        let lines = (0..1_000).map(|_| line.clone());
        let parts = in_parts(HEALTH, lines);
        assert!(parts.len() > 3, "{}", parts.len());
        let read: usize = parts.iter().map(|part| part.text.lines().count()).sum();
        assert_eq!(read, 1_000);
        for part in parts {
            let body = crate::take_over::message::Message::Part(part).body().unwrap();
            assert!(body.len() <= crate::take_over::frame::BODY_MAX, "{}", body.len());
        }
        assert!(in_parts(HEALTH, std::iter::empty()).is_empty());
    }
}
