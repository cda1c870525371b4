//! `GET /log`: requests as they end, one JSON object a line, until the client goes or the proxy drains.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{CONNECTION, CONTENT_TYPE};
use ::http::{HeaderValue, StatusCode};
use anteroom_http::query;
use anteroom_telemetry::access_log::{millis, timestamp};
use anteroom_telemetry::reason::Reason;
use anteroom_telemetry::request_feed::{
    FeedItem, RING, RequestEvent, RequestFeed, WATCHERS_MAX, Watcher,
};
use anteroom_telemetry::request_filter::RequestFilter;
use bytes::Bytes;
use futures_util::stream::unfold;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde::{Deserialize, Serialize};

use super::commands::{CommandRefusal, bad};
use super::endpoints::LOG;
use super::reply::{AdminResponse, content, refusal};

/// How long requests are collected for one look. While nothing waits for the ring, a request wakes no other
/// thread; in this time it takes up the requests of a proxy that answers 200,000 in a second.
const COLLECTED_FOR: Duration = Duration::from_millis(20);
/// About how many bytes go out at a time.
const CHUNK: usize = 64 << 10;
/// The parameter of the filter.
const WHERE: &str = "where";

/// A step of a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoggedStep {
    /// What the request has come to.
    pub step: String,
    /// Milliseconds from the arrival of its head.
    pub ms: f64,
}

/// A request that has ended. Names are those of the access log; how the cache answered is `result`, as in filters
/// and metrics.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoggedRequest {
    /// When its head had arrived, in UTC.
    pub time: String,
    /// The client's address.
    pub client: Option<std::net::IpAddr>,
    /// The method.
    pub method: String,
    /// The site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The path, without the query.
    pub path: String,
    /// Names of query parameters.
    pub parameters: Vec<String>,
    /// The version of HTTP.
    pub version: String,
    /// The status that was sent.
    pub status: u16,
    /// Bytes of the response's body.
    pub bytes: u64,
    /// Bytes that came from the client in a tunnel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
    /// How the cache answered.
    pub result: String,
    /// Why the cache did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The class of the visitor.
    pub visitor: String,
    /// Milliseconds to the end of the response.
    pub ms: f64,
    /// Milliseconds to the head of the app's response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin_ms: Option<f64>,
    /// Whether the response broke off.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aborted: bool,
    /// The id of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// What it came to, and when.
    pub steps: Vec<LoggedStep>,
}

/// A line of the stream.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LogLine {
    /// Requests that the watcher has missed, because it was too slow.
    Lost {
        /// How many.
        lost: u64,
    },
    /// A request.
    Request(Box<LoggedRequest>),
}

impl LogLine {
    fn of(event: &RequestEvent) -> Self {
        let record = &event.record;
        let steps = event.steps.iter();
        Self::Request(Box::new(LoggedRequest {
            time: timestamp(record.at).to_string(),
            client: record.client,
            method: record.method.as_str().to_owned(),
            host: event.host.as_deref().map(str::to_owned),
            path: event.path.clone(),
            parameters: event.parameters.clone(),
            version: format!("{:?}", record.version),
            status: record.status,
            bytes: record.sent,
            received: record.received,
            result: record.outcome.as_str().to_owned(),
            reason: record.reason.map(|reason| Reason::as_str(reason).to_owned()),
            route: event.route.as_deref().map(str::to_owned),
            visitor: record.visitor.as_str().to_owned(),
            ms: millis(record.took),
            origin_ms: record.origin.map(millis),
            aborted: record.aborted,
            request_id: event.request_id.clone(),
            steps: steps
                .map(|(step, after)| LoggedStep {
                    step: step.as_str().to_owned(),
                    ms: millis(after),
                })
                .collect(),
        }))
    }

    /// Appends it. It is ASCII: what clients send must not reach a terminal as it is.
    fn write(&self, out: &mut Vec<u8>) {
        let text = serde_json::to_string(self).unwrap_or_default();
        for c in text.chars() {
            if matches!(c, ' '..='~') {
                out.push(c as u8);
            } else {
                let mut units = [0; 2];
                // Outside texts JSON has ASCII only.
                for unit in c.encode_utf16(&mut units) {
                    out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
                }
            }
        }
        out.push(b'\n');
    }
}

/// A watcher, and what it wants.
struct LogStream {
    watcher: Watcher,
    filter: Option<RequestFilter>,
    has_waited: bool,
}

impl LogStream {
    /// The next lines; `None`: the proxy drains.
    async fn lines(mut self) -> Option<(Result<Frame<Bytes>, Infallible>, Self)> {
        let mut lines = Vec::new();
        while lines.is_empty() {
            if std::mem::replace(&mut self.has_waited, true) {
                tokio::time::sleep(COLLECTED_FOR).await;
            }
            let first = self.watcher.next().await?;
            self.collect(first, &mut lines);
        }
        Some((Ok(Frame::data(Bytes::from(lines))), self))
    }

    /// Appends the lines of requests that have ended, as far as they go into one chunk.
    fn collect(&mut self, first: FeedItem, lines: &mut Vec<u8>) {
        let mut seen = Some(first);
        for _ in 0..RING {
            match seen {
                Some(Ok(event)) => {
                    if self.filter.as_ref().is_none_or(|filter| filter.matches(&event)) {
                        LogLine::of(&event).write(lines);
                    }
                }
                Some(Err(lost)) => LogLine::Lost { lost }.write(lines),
                None => return,
            }
            if lines.len() >= CHUNK {
                return;
            }
            seen = self.watcher.try_next();
        }
        if let Some(Err(lost)) = seen {
            LogLine::Lost { lost }.write(lines);
        }
    }
}

/// Begins the stream of requests that match the filter in a query.
pub(super) fn stream(feed: &Arc<RequestFeed>, query: Option<&str>) -> AdminResponse {
    begin(feed, query).unwrap_or_else(|(status, why)| refusal(status, why))
}

fn begin(feed: &Arc<RequestFeed>, query: Option<&str>) -> Result<AdminResponse, CommandRefusal> {
    let filter = filter(query.unwrap_or_default())?;
    let watcher = feed.watch().ok_or_else(|| {
        let why = format!(
            "{WATCHERS_MAX} watchers read the log already, and there may be no more; end one of them"
        );
        (StatusCode::TOO_MANY_REQUESTS, why)
    })?;
    let lines = LogStream { watcher, filter, has_waited: false };
    let mut response = content(StatusCode::OK, "", "");
    *response.body_mut() = StreamBody::new(unfold(lines, LogStream::lines)).boxed_unsync();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(response)
}

/// The filter in a query: `where=…`, percent-encoded.
fn filter(text: &str) -> Result<Option<RequestFilter>, CommandRefusal> {
    if let Some(other) = query::names(text).find(|name| **name != *WHERE.as_bytes()) {
        let other = String::from_utf8_lossy(&other).escape_debug().to_string();
        return Err(bad(&format!("the only parameter of {LOG} is `{WHERE}`, not `{other}`")));
    }
    if text.is_empty() {
        return Ok(None);
    }
    let expression = query::value(text, WHERE)
        .ok_or_else(|| bad(&format!("`{WHERE}` has to be `{WHERE}=` and a filter in UTF-8")))?;
    RequestFilter::parse(&expression).map(Some).map_err(|error| bad(&error))
}

#[cfg(test)]
mod tests {
    use ::http::{Method, Version};
    use anteroom_telemetry::access_log::{LogRecord, VisitorClass};
    use anteroom_telemetry::metrics::Outcome;
    use anteroom_telemetry::request_feed::Steps;

    use super::*;

    #[test]
    fn lines_are_ascii_and_say_the_same() {
        let line = LogLine::Lost { lost: 3 };
        let mut out = Vec::new();
        line.write(&mut out);
        assert_eq!(out, b"{\"lost\":3}\n");

        let text = "/a\u{1b}[2J\u{7f}\u{9b}é\u{1f600}\u{202e}\"\\";
        let step = LoggedStep { step: text.to_owned(), ms: 0.5 };
        let request = LoggedRequest {
            time: String::new(),
            client: None,
            method: String::new(),
            host: None,
            path: text.to_owned(),
            parameters: vec![text.to_owned()],
            version: String::new(),
            status: 200,
            bytes: 1,
            received: None,
            result: String::new(),
            reason: None,
            route: None,
            visitor: String::new(),
            ms: 0.0,
            origin_ms: None,
            aborted: false,
            request_id: None,
            steps: vec![step],
        };
        let mut out = Vec::new();
        LogLine::Request(Box::new(request)).write(&mut out);
        let (end, line) = out.split_last().unwrap();
        assert_eq!(*end, b'\n');
        assert!(line.iter().all(|byte| (b' '..=b'~').contains(byte)));
        let read: LoggedRequest = serde_json::from_slice(line).unwrap();
        assert_eq!((read.path.as_str(), read.parameters[0].as_str()), (text, text));
    }

    #[test]
    fn the_filter_is_percent_decoded_and_anything_else_refused() {
        assert!(filter("").unwrap().is_none());
        assert!(filter("where=ms%20%3E%203+and+aborted").unwrap().is_some());
        for (query, told) in [
            ("filter=x", "the only parameter of /log is `where`, not `filter`"),
            ("where", "`where` has to be `where=` and a filter in UTF-8"),
            ("where=%ff", "`where` has to be `where=` and a filter in UTF-8"),
            ("where=mss%3E3", "unknown field `mss`; the nearest is `ms`"),
        ] {
            let (status, error) = filter(query).unwrap_err();
            assert_eq!(status, StatusCode::BAD_REQUEST);
            assert!(error.starts_with(told), "{error}");
        }
    }

    fn event(path: String) -> RequestEvent {
        RequestEvent {
            record: LogRecord {
                at: 1.0,
                client: None,
                method: Method::GET,
                version: Version::HTTP_11,
                status: 200,
                outcome: Outcome::HitMemory,
                reason: None,
                visitor: VisitorClass::Anonymous,
                class: None,
                sent: 0,
                received: None,
                took: Duration::ZERO,
                origin: None,
                aborted: false,
            },
            host: None,
            path,
            parameters: Vec::new(),
            route: None,
            request_id: None,
            steps: Steps::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_watcher_learns_how_many_it_lost_and_a_closed_feed_ends_it() {
        let feed = Arc::new(RequestFeed::default());
        let filter = RequestFilter::parse("path ~ /7").unwrap();
        let watcher = feed.watch().unwrap();
        let stream = LogStream { watcher, filter: Some(filter), has_waited: false };
        for number in 0..RING + 10 {
            feed.add(event(format!("/{number}")));
        }
        let (frame, stream) = stream.lines().await.unwrap();
        let lines = frame.unwrap().into_data().unwrap();
        let lines = String::from_utf8(lines.to_vec()).unwrap();
        assert!(lines.starts_with("{\"lost\":10}\n"), "{lines}");
        assert!(lines.lines().skip(1).all(|line| line.contains("\"path\":\"/7")), "{lines}");
        feed.close();
        assert!(stream.lines().await.is_none());
    }

    #[test]
    fn no_more_than_the_bound_watch_at_once() {
        let feed = Arc::new(RequestFeed::default());
        let mut watchers: Vec<_> = (0..WATCHERS_MAX).map(|_| feed.watch().unwrap()).collect();
        assert!(feed.watch().is_none());
        watchers.pop();
        assert!(feed.watch().is_some());
        drop(watchers);
        assert!(!feed.is_watched());
    }
}
