//! OTLP/HTTP in JSON (OpenTelemetry Protocol): what is posted to `/v1/traces`, and what is answered.
//!
//! Unlike in the JSON of Protocol Buffers, ids are hexadecimal digits and enumerations are numbers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::spans::{FinishedRequest, Span, Value};
use crate::ident::hex;

/// The code of a status that is an error.
const STATUS_ERROR: u8 = 2;

/// The body of an `ExportTraceServiceRequest`.
#[must_use]
pub fn body(requests: &[Arc<FinishedRequest>], service: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let spans: Vec<Json> = requests
        .iter()
        .flat_map(|request| request.spans().into_iter().map(|span| written(request, &span)))
        .collect();
    let of_resource = [
        attribute("service.name", &Value::Text(service.to_owned())),
        attribute("service.version", &Value::Text(version.to_owned())),
    ];
    let body = json!({ "resourceSpans": [{
        "resource": { "attributes": of_resource },
        "scopeSpans": [{ "scope": { "name": "anteroom", "version": version }, "spans": spans }],
    }]});
    body.to_string()
}

fn written(request: &FinishedRequest, span: &Span) -> Json {
    let attributes: Vec<Json> =
        span.attributes.iter().map(|(name, value)| attribute(name, value)).collect();
    let mut written = json!({
        "traceId": hex(&request.trace.to_be_bytes()),
        "spanId": hex(&span.id.to_be_bytes()),
        "name": span.name,
        "kind": span.kind as u8,
        "startTimeUnixNano": nanoseconds(request, span.from),
        "endTimeUnixNano": nanoseconds(request, span.to),
        "flags": request.flags,
    });
    if let Some(parent) = span.parent {
        written["parentSpanId"] = hex(&parent.to_be_bytes()).into();
    }
    if !attributes.is_empty() {
        written["attributes"] = attributes.into();
    }
    if span.is_error {
        written["status"] = json!({ "code": STATUS_ERROR });
    }
    written
}

fn attribute(name: &str, value: &Value) -> Json {
    let value = match value {
        Value::Text(text) => json!({ "stringValue": text }),
        Value::Number(number) => json!({ "intValue": number.to_string() }),
    };
    json!({ "key": name, "value": value })
}

/// So long after the arrival of the request, in Unix time. A 64-bit number is a text in JSON.
fn nanoseconds(request: &FinishedRequest, after: Duration) -> String {
    let at = Duration::try_from_secs_f64(request.record.at).unwrap_or_default();
    at.saturating_add(after).as_nanos().to_string()
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
    use super::*;
    use crate::telemetry::traces::spans::example;

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
