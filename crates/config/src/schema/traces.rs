//! The keys of `[traces]`.

use ::http::{HeaderName, HeaderValue};
use anteroom_policy::traces::{Fraction, ParentSampling};
use serde_json::Value as Json;

use super::shared::{TIMEOUT, named};
use crate::credential::SecretRef;
use crate::form::{Either, Faults, Form, Optional, Text, Words, string};
use crate::node::{Node, Value};
use crate::plan::TracesConfig;
use crate::secret::Secret;
use crate::walk::Walk;
use crate::{shape, text};

/// The most fields for the receiver.
const HEADERS_MAX: usize = 16;

const EXPECTED: &str = r#"a table such as { "X-Api-Key" = { env = "NAME_OF_IT" } }"#;

pub(super) fn traces(at: &mut impl Walk, traces: &mut TracesConfig) {
    let endpoint = Text { parse: text::traces_endpoint, show: text::show_traces_endpoint };
    at.key("endpoint", &mut traces.endpoint, &Optional(endpoint));
    at.key("headers", &mut traces.headers, &ReceiverHeaders);
    at.key("sample", &mut traces.sample, &FractionForm);
    let parents = [("follow", ParentSampling::Follow), ("ignore", ParentSampling::Ignore)];
    at.key("parent", &mut traces.parent, &Words(&parents));
    at.key("slow", &mut traces.slow, &Either("off", TIMEOUT));
    at.key("service_name", &mut traces.service_name, &named(text::service_name));
}

/// `{ "X-Api-Key" = { env = "…" } }`: most of these fields are keys, so that each value is a secret.
#[derive(Debug)]
struct ReceiverHeaders;

impl Form<Vec<(HeaderName, Secret)>> for ReceiverHeaders {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Vec<(HeaderName, Secret)>> {
        let Value::Table(table) = &node.value else { return faults.expected(node, EXPECTED) };
        if table.len() > HEADERS_MAX {
            return faults.expected(node, &format!("at most {HEADERS_MAX} fields"));
        }
        let mut read = Vec::new();
        for (name, node) in table {
            let field = text::receiver_header(name).or_else(|why| {
                let text = format!("found {}; expected {why}", string(name));
                faults.add(node, text).ok_or(())
            });
            read.push(field.ok().zip(value(node, faults)));
        }
        read.into_iter().collect()
    }

    fn write(&self, headers: &Vec<(HeaderName, Secret)>) -> Option<String> {
        let pair = |(name, value): &(HeaderName, Secret)| {
            let value = SecretRef.write(value)?;
            Some(format!("{} = {value}", string(name.as_str())))
        };
        let pairs: Vec<String> = headers.iter().filter_map(pair).collect();
        (!pairs.is_empty()).then(|| format!("{{ {} }}", pairs.join(", ")))
    }

    fn shape(&self) -> Json {
        shape::named(EXPECTED, &SecretRef.shape())
    }
}

/// The value of a field, which has to be one that a field can have.
fn value(node: &Node, faults: &mut Faults<'_>) -> Option<Secret> {
    let secret = SecretRef.read(node, faults)?;
    match HeaderValue::from_str(secret.expose()) {
        Ok(_) => Some(secret),
        Err(_) => faults.add(node, "expected a value of visible ASCII, as header fields require"),
    }
}

/// `0.01`
#[derive(Debug)]
struct FractionForm;

impl Form<Fraction> for FractionForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Fraction> {
        let text = match &node.value {
            Value::Integer(number) => number.to_string(),
            Value::Other(written) => written.clone(),
            _ => node.as_text().unwrap_or_default().to_owned(),
        };
        let fraction = Fraction::parse(&text);
        let expected = "a number from 0 to 1 such as 0.01, with at most six decimals";
        fraction.or_else(|| faults.expected(node, expected))
    }

    fn write(&self, fraction: &Fraction) -> Option<String> {
        Some(fraction.to_string())
    }

    fn shape(&self) -> Json {
        shape::fraction()
    }
}
