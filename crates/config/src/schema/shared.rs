//! Bounds and forms that several subjects share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::Method;
use anteroom_http::extract::Expression;
use anteroom_http::host_pattern::HostPattern;
use anteroom_http::path::PathPattern;
use anteroom_policy::audit::AuditRate;
use anteroom_policy::rate_limit::Rate;
use anteroom_policy::route::QueryValue;
use serde_json::Value as Json;

use crate::form::{CountForm, Faults, Form, Size, Span, Text};
use crate::node::{Node, Value};
use crate::{form, rate, shape, text};

pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

pub(crate) const KIB: u64 = 1 << 10;

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) const TIB: u64 = 1 << 40;

pub(crate) const TIMEOUT: Span = Span { min: MS, max: DAY };

pub(crate) const TTL: Span = Span { min: Duration::ZERO, max: DAY.saturating_mul(365) };

/// How long a session, or its cookie, lasts.
pub(crate) const LIFETIME: Span =
    Span { min: Duration::from_secs(1), max: DAY.saturating_mul(365) };

pub(crate) const OBJECT: Size = Size { min: KIB, max: TIB };

pub(crate) const ADDRESS: Text<SocketAddr> =
    Text { parse: text::address, show: ToString::to_string };

pub(crate) const AUDIT: Text<AuditRate> =
    Text { parse: text::audit_rate, show: ToString::to_string };

pub(crate) const RATE: Text<Rate> = Text { parse: rate::parse, show: rate::show };

pub(crate) const METHOD: Text<Method> = Text { parse: text::method, show: ToString::to_string };

pub(crate) const CONDITION: Text<QueryValue> =
    Text { parse: text::query_condition, show: text::show_query_condition };

pub(crate) const fn count(min: u64, max: u64) -> CountForm {
    CountForm { min, max }
}

pub(crate) fn paths() -> Text<PathPattern> {
    Text { parse: text::path_pattern, show: PathPattern::to_string }
}

/// A text that is its own value.
pub(crate) fn named(parse: fn(&str) -> Result<String, String>) -> Text<String> {
    Text { parse, show: String::clone }
}

/// Hosts, which may have wildcards.
pub(crate) fn hosts() -> Text<HostPattern> {
    Text { parse: text::host_pattern, show: ToString::to_string }
}

/// As [`named`], for a text that many parts hold.
pub(crate) fn shared(parse: fn(&str) -> Result<String, String>) -> SharedText {
    SharedText(named(parse))
}

/// A text that many parts hold.
pub(crate) struct SharedText(Text<String>);

impl Form<Arc<str>> for SharedText {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Arc<str>> {
        self.0.read(node, faults).map(Arc::from)
    }

    fn write(&self, text: &Arc<str>) -> Option<String> {
        Some(form::string(text))
    }

    fn shape(&self) -> Json {
        self.0.shape()
    }
}

/// Query parameters with the values that they must have: `{ id = "{item}" }`.
pub(crate) struct Parameters<T>(pub(crate) Text<T>);

impl<T> Form<Vec<(String, T)>> for Parameters<T> {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Vec<(String, T)>> {
        let Value::Table(table) = &node.value else {
            return faults.expected(node, r#"a table such as { id = "{item}" }"#);
        };
        let mut read = Vec::new();
        for (name, node) in table {
            if let Err(why) = text::query_name(name) {
                faults.add::<()>(node, format!("found {}; expected {why}", form::string(name)));
            }
            read.push(self.0.read(node, faults).map(|value| (name.clone(), value)));
        }
        read.into_iter().collect()
    }

    fn write(&self, parameters: &Vec<(String, T)>) -> Option<String> {
        let pair = |(name, value): &(String, T)| {
            format!("{} = {}", form::string(name), form::string(&(self.0.show)(value)))
        };
        let pairs: Vec<String> = parameters.iter().map(pair).collect();
        (!pairs.is_empty()).then(|| format!("{{ {} }}", pairs.join(", ")))
    }

    fn shape(&self) -> Json {
        shape::named("a table such as `{ id = \"{item}\" }`", &self.0.shape())
    }
}

pub(crate) fn expression() -> Text<Expression> {
    let parse =
        |text: &str| Expression::new(text).map_err(|why| format!("a regular expression ({why})"));
    Text { parse, show: |expression| expression.as_str().to_owned() }
}
