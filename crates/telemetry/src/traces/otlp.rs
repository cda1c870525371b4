//! OTLP/HTTP in JSON (OpenTelemetry Protocol): what is posted to `/v1/traces`, and what is answered.
//!
//! Unlike in the JSON of Protocol Buffers, ids are hexadecimal digits and enumerations are numbers.

use std::sync::Arc;
use std::time::Duration;

use anteroom_http::ident::hex;
use serde::{Serialize, Serializer};
use serde_json::Value as Json;

use super::spans::{FinishedRequest, Span, Value};

/// The code of a status that is an error.
const STATUS_ERROR: u8 = 2;

/// `ExportTraceServiceRequest`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Export<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: Resource<'a>,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct Resource<'a> {
    attributes: [Attribute<'a>; 2],
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: Scope,
    spans: Vec<WrittenSpan<'a>>,
}

#[derive(Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenSpan<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    name: &'a str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    flags: u8,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<Attribute<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

#[derive(Serialize)]
struct Status {
    code: u8,
}

#[derive(Serialize)]
struct Attribute<'a> {
    key: &'a str,
    value: AnyValue<'a>,
}

/// A 64-bit number is a text in JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum AnyValue<'a> {
    StringValue(&'a str),
    #[serde(serialize_with = "as_text")]
    IntValue(u64),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn as_text<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

/// The body of an `ExportTraceServiceRequest`.
#[must_use]
pub fn body(requests: &[Arc<FinishedRequest>], service: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let spans: Vec<(&FinishedRequest, Span)> = requests
        .iter()
        .flat_map(|request| request.spans().into_iter().map(|span| (&**request, span)))
        .collect();
    let text = |key, value| Attribute { key, value: AnyValue::StringValue(value) };
    let export = Export {
        resource_spans: [ResourceSpans {
            resource: Resource {
                attributes: [text("service.name", service), text("service.version", version)],
            },
            scope_spans: [ScopeSpans {
                scope: Scope { name: "anteroom", version },
                spans: spans.iter().map(|(request, span)| written(request, span)).collect(),
            }],
        }],
    };
    // What is written has no map with keys other than texts, the only thing that can fail.
    serde_json::to_string(&export).unwrap_or_default()
}

fn written<'a>(request: &FinishedRequest, span: &'a Span) -> WrittenSpan<'a> {
    let (from, to) = times(request, span);
    WrittenSpan {
        trace_id: hex(&request.trace.to_be_bytes()),
        span_id: hex(&span.id.to_be_bytes()),
        parent_span_id: span.parent.map(|parent| hex(&parent.to_be_bytes())),
        name: &span.name,
        kind: span.kind as u8,
        start_time_unix_nano: from,
        end_time_unix_nano: to,
        flags: request.flags,
        attributes: span.attributes.iter().map(attribute).collect(),
        status: span.is_error.then_some(Status { code: STATUS_ERROR }),
    }
}

fn attribute<'a>((key, value): &'a (&'static str, Value)) -> Attribute<'a> {
    let value = match value {
        Value::Text(text) => AnyValue::StringValue(text),
        Value::Number(number) => AnyValue::IntValue(*number),
    };
    Attribute { key, value }
}

/// The beginning and the end of a span, in nanoseconds of Unix time. A 64-bit number is a text in JSON.
fn times(request: &FinishedRequest, span: &Span) -> (String, String) {
    let at = Duration::try_from_secs_f64(request.record.at).unwrap_or_default();
    let text = |after| at.saturating_add(after).as_nanos().to_string();
    (text(span.from), text(span.to))
}

/// How many spans a receiver refused, by its `ExportTraceServiceResponse`, and why.
#[must_use]
pub fn refused(answer: &[u8]) -> Option<(u64, String)> {
    let answer: Json = serde_json::from_slice(answer).ok()?;
    let part = answer.get("partialSuccess")?;
    let count = part.get("rejectedSpans")?;
    let count = count.as_u64().or_else(|| count.as_str()?.parse().ok())?;
    let why = part.get("errorMessage").and_then(Json::as_str).unwrap_or_default();
    (count > 0).then(|| (count, why.chars().take(200).collect()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::traces::spans::example;

    #[test]
    fn a_request_is_written_as_the_protocol_says() {
        let mut request = example();
        request.parent = Some(0x77);
        request.record.status = 502;
        let body: Json = serde_json::from_str(&body(&[Arc::new(request)], "shop")).unwrap();
        let resource = &body["resourceSpans"][0];
        assert_eq!(
            resource["resource"]["attributes"][0],
            json!({ "key": "service.name", "value": { "stringValue": "shop" } })
        );
        let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
        let root = &spans[0];
        assert_eq!(root["traceId"], "00000000000000000000000000000abc");
        assert_eq!(root["spanId"], "0000000000000100");
        assert_eq!(root["parentSpanId"], "0000000000000077");
        assert_eq!(root["kind"], 2);
        assert_eq!(root["startTimeUnixNano"], "1700000000500000000");
        assert_eq!(root["endTimeUnixNano"], "1700000000507000000");
        assert_eq!(root["status"], json!({ "code": 2 }));
        assert_eq!(spans[1]["parentSpanId"], root["spanId"]);
        let status = json!({ "key": "http.response.status_code", "value": { "intValue": "502" } });
        assert!(root["attributes"].as_array().unwrap().contains(&status));
    }

    #[test]
    fn a_partial_success_is_read() {
        for (answer, expected) in [
            (r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"no"}}"#, Some((3, "no"))),
            (r#"{"partialSuccess":{"rejectedSpans":2}}"#, Some((2, ""))),
            (r#"{"partialSuccess":{"rejectedSpans":"0","errorMessage":"slow"}}"#, None),
            (r#"{"partialSuccess":{}}"#, None),
            ("{}", None),
            ("", None),
            ("<html>", None),
        ] {
            let expected = expected.map(|(count, why)| (count, why.to_owned()));
            assert_eq!(refused(answer.as_bytes()), expected, "{answer}");
        }
    }
}
