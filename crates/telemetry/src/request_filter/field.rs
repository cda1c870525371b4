//! What a filter may ask of a request.

use crate::metrics::Outcome;
use crate::reason::Reason;
use crate::request_feed::RequestEvent;
use crate::words::words;

words! {
    /// A field of a request.
    pub enum Field {
        /// Why the cache did not answer.
        Reason = "reason",
        /// How the cache answered.
        Result = "result",
        /// The status of the response.
        Status = "status",
        /// The method.
        Method = "method",
        /// The site.
        Host = "host",
        /// The path, as the log shows it.
        Path = "path",
        /// The route.
        Route = "route",
        /// The class of the visitor.
        Visitor = "visitor",
        /// Milliseconds from the head of the request to the end of the response.
        Ms = "ms",
        /// Milliseconds from the head of the request to the head of the origin's response.
        OriginMs = "origin_ms",
        /// Bytes of the response's body.
        Bytes = "bytes",
        /// Whether the response broke off.
        Aborted = "aborted",
    }
}

/// What a field has in a request.
pub(super) enum FieldValue<'e> {
    Absent,
    Text(&'e str),
    Number(f64),
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    Text,
    Number,
    Flag,
}

/// The word for all results that are hits.
pub(super) const HIT: &str = "hit";
/// The classes of visitors.
const VISITORS: [&str; 3] = ["known", "anonymous", "unknown"];

impl Field {
    pub(super) fn kind(self) -> FieldKind {
        match self {
            Self::Status | Self::Ms | Self::OriginMs | Self::Bytes => FieldKind::Number,
            Self::Aborted => FieldKind::Flag,
            Self::Reason
            | Self::Result
            | Self::Method
            | Self::Host
            | Self::Path
            | Self::Route
            | Self::Visitor => FieldKind::Text,
        }
    }

    /// The only values that the field may have, if they are known.
    pub(super) fn words(self) -> Option<Vec<&'static str>> {
        match self {
            Self::Reason => Some(Reason::ALL.iter().map(|reason| reason.as_str()).collect()),
            Self::Result => {
                let results = Outcome::ALL.iter().map(|outcome| outcome.as_str());
                Some(std::iter::once(HIT).chain(results).collect())
            }
            Self::Visitor => Some(VISITORS.to_vec()),
            _ => None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "bytes are compared, not added up")]
    pub(super) fn of(self, event: &RequestEvent) -> FieldValue<'_> {
        let record = &event.record;
        let text = |text: Option<_>| text.map_or(FieldValue::Absent, FieldValue::Text);
        match self {
            Self::Reason => text(record.reason.map(Reason::as_str)),
            Self::Result => FieldValue::Text(record.outcome.as_str()),
            Self::Status => FieldValue::Number(record.status.into()),
            Self::Method => FieldValue::Text(record.method.as_str()),
            Self::Host => text(event.host.as_deref()),
            Self::Path => FieldValue::Text(&event.path),
            Self::Route => text(event.route.as_deref()),
            Self::Visitor => FieldValue::Text(record.visitor.as_str()),
            Self::Ms => FieldValue::Number(record.took.as_secs_f64() * 1e3),
            Self::OriginMs => record
                .origin
                .map_or(FieldValue::Absent, |took| FieldValue::Number(took.as_secs_f64() * 1e3)),
            Self::Bytes => FieldValue::Number(record.sent as f64),
            Self::Aborted => FieldValue::Absent,
        }
    }
}
