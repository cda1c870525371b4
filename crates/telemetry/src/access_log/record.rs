//! What the access log records of a request. It holds no token, no cookie and no query value.

use std::net::IpAddr;
use std::time::Duration;

use ::http::{Method, Version};
use anteroom_policy::priority::RequestClass;

use crate::metrics::Outcome;
use crate::reason::Reason;

/// The class of a visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VisitorClass {
    /// The token is in `login:`.
    Known,
    /// No login.
    Anonymous,
    /// It cannot be told.
    Unknown,
}

impl VisitorClass {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::Anonymous => "anonymous",
            Self::Unknown => "unknown",
        }
    }
}

/// One request, after its end, without its texts.
#[derive(Clone, Debug)]
pub struct LogRecord {
    /// Unix time at which the request's head had arrived.
    pub at: f64,
    /// The client's address, if it has one.
    pub client: Option<IpAddr>,
    /// The method.
    pub method: Method,
    /// HTTP version.
    pub version: Version,
    /// The status that was sent.
    pub status: u16,
    /// How the cache answered.
    pub outcome: Outcome,
    /// Why the cache did not answer.
    pub reason: Option<Reason>,
    /// The class of the visitor.
    pub visitor: VisitorClass,
    /// The class of the request, if the origin was too crowded for it.
    pub class: Option<RequestClass>,
    /// Bytes of the response's body that were handed to the connection.
    pub sent: u64,
    /// Bytes that came from the client in a tunnel, if there was one.
    pub received: Option<u64>,
    /// From the head of the request to the end of the response.
    pub took: Duration,
    /// From the head of the request to the head of the origin's response.
    pub origin: Option<Duration>,
    /// Whether the response broke off.
    pub aborted: bool,
}

impl LogRecord {
    /// Unix time of the response's end.
    pub(super) fn ended(&self) -> f64 {
        self.at + self.took.as_secs_f64()
    }
}

/// The texts of a request that its line shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogTexts<'t> {
    /// The path of the target, as it was sent.
    pub path: &'t [u8],
    /// The site, if known.
    pub host: Option<&'t [u8]>,
    /// The route's name.
    pub route: Option<&'t [u8]>,
    /// The user, if `[log] user` is on.
    pub user: Option<&'t [u8]>,
    /// The Referer field; only its origin is written.
    pub referer: Option<&'t [u8]>,
    /// The User-Agent field.
    pub agent: Option<&'t [u8]>,
    /// The request id, if requests have one.
    pub request_id: Option<&'t [u8]>,
}

/// How many texts a record has.
const TEXTS: usize = 7;
/// The length of a text that is absent.
const ABSENT: u32 = u32::MAX;

impl<'t> LogTexts<'t> {
    fn all(self) -> [Option<&'t [u8]>; TEXTS] {
        let Self { path, host, route, user, referer, agent, request_id } = self;
        [Some(path), host, route, user, referer, agent, request_id]
    }

    fn bytes(self) -> usize {
        self.all().into_iter().flatten().map(<[u8]>::len).sum()
    }
}

/// Records and their texts.
///
/// PERF: the texts are copied. A reference would keep the whole buffer alive into which the request was read,
/// and would let another thread free it.
#[derive(Debug, Default)]
pub(super) struct Records {
    records: Vec<(LogRecord, [u32; TEXTS])>,
    texts: Vec<u8>,
}

/// More memory than this is given back when it was not needed.
const SPARE_BYTES: usize = 256 << 10;

impl Records {
    /// Appends a record, unless there would then be more than `most` records or `most_bytes` of texts.
    pub(super) fn push(
        &mut self,
        record: LogRecord,
        texts: LogTexts<'_>,
        most: usize,
        most_bytes: usize,
    ) -> bool {
        if self.records.len() >= most || self.texts.len() + texts.bytes() > most_bytes {
            return false;
        }
        let lengths = texts.all().map(|text| {
            let Some(text) = text else { return ABSENT };
            self.texts.extend_from_slice(text);
            // A text is shorter than the bound on all of them.
            u32::try_from(text.len()).unwrap_or(ABSENT)
        });
        self.records.push((record, lengths));
        true
    }

    /// Each record with its texts, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&LogRecord, LogTexts<'_>)> {
        let mut rest = self.texts.as_slice();
        self.records.iter().map(move |(record, lengths)| {
            let [path, host, route, user, referer, agent, request_id] = lengths.map(|length| {
                let (text, behind) =
                    rest.split_at_checked((length != ABSENT).then_some(length as usize)?)?;
                rest = behind;
                Some(text)
            });
            let path = path.unwrap_or_default();
            (record, LogTexts { path, host, route, user, referer, agent, request_id })
        })
    }

    /// Removes all, and keeps memory for as much again.
    pub(super) fn clear(&mut self) {
        let used = self.texts.len();
        self.records.clear();
        self.texts.clear();
        if self.texts.capacity() > SPARE_BYTES && used < self.texts.capacity() / 4 {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(status: u16) -> LogRecord {
        LogRecord {
            at: 0.0,
            client: None,
            method: Method::GET,
            version: Version::HTTP_11,
            status,
            outcome: Outcome::HitMemory,
            reason: None,
            visitor: VisitorClass::Anonymous,
            class: None,
            sent: 0,
            received: None,
            took: Duration::ZERO,
            origin: None,
            aborted: false,
        }
    }

    #[test]
    fn records_come_back_with_their_texts() {
        let mut records = Records::default();
        let one = LogTexts { path: b"/a", agent: Some(b""), ..LogTexts::default() };
        let two = LogTexts { path: b"/bcd", host: Some(b"shop.test"), ..LogTexts::default() };
        assert!(records.push(record(200), one, 9, 99) && records.push(record(404), two, 9, 99));
        let read: Vec<_> = records
            .iter()
            .map(|(record, texts)| (record.status, texts.path, texts.host, texts.agent))
            .collect();
        assert_eq!(
            read,
            [
                (200, &b"/a"[..], None, Some(&b""[..])),
                (404, &b"/bcd"[..], Some(&b"shop.test"[..]), None)
            ]
        );
        records.clear();
        assert_eq!(records.iter().count(), 0);
    }

    #[test]
    fn records_and_texts_are_bounded() {
        let mut records = Records::default();
        let texts = LogTexts { path: b"/1234", ..LogTexts::default() };
        assert!(records.push(record(200), texts, 2, 11));
        assert!(records.push(record(200), texts, 2, 11));
        assert!(!records.push(record(200), texts, 2, 99), "two records are the bound");
        assert!(!records.push(record(200), texts, 9, 14), "the texts would have fifteen bytes");
        assert_eq!(records.iter().count(), 2);
    }
}
