//! Forms of a route's rules on fields and of its redirects.

use ::http::HeaderName;
use ::http::header::SET_COOKIE;
use anteroom_policy::route::{FieldTemplate, RedirectStatus, TemplateVariable};
use serde_json::Value as Json;

use crate::form::{Faults, Form, string};
use crate::node::{Node, Value};
use crate::shape;

/// The most fields in one table.
const FIELDS_MAX: usize = 64;

/// The longest value, in bytes.
const VALUE_MAX: usize = 4_096;

const EXPECTED: &str = r#"a table such as { "X-Frame-Options" = "DENY" }"#;

/// `{ "X-Frame-Options" = "DENY" }`.
#[derive(Debug)]
pub(super) struct FieldsForm {
    /// The name of a field that may be set, or what was expected.
    pub(super) field: fn(&str) -> Result<HeaderName, String>,
    /// The variables that a value may have.
    pub(super) expected: &'static [TemplateVariable],
}

impl Form<Vec<(HeaderName, FieldTemplate)>> for FieldsForm {
    fn read(
        &self,
        node: &Node,
        faults: &mut Faults<'_>,
    ) -> Option<Vec<(HeaderName, FieldTemplate)>> {
        let Value::Table(table) = &node.value else {
            return match meant_fields(node) {
                Some(meant) => faults.instead(node, &meant),
                None => faults.expected(node, EXPECTED),
            };
        };
        if table.len() > FIELDS_MAX {
            return faults.expected(node, &format!("at most {FIELDS_MAX} fields"));
        }
        let mut read = Vec::new();
        for (name, node) in table {
            let field = (self.field)(name).or_else(|why| {
                let text = format!("found {}; expected {why}", string(name));
                faults.add(node, text).ok_or(())
            });
            let value = self.value(node, faults);
            read.push(field.ok().zip(value));
        }
        read.into_iter().collect()
    }

    fn write(&self, fields: &Vec<(HeaderName, FieldTemplate)>) -> Option<String> {
        let pair = |(name, value): &(HeaderName, FieldTemplate)| {
            format!("{} = {}", string(name.as_str()), string(&value.to_string()))
        };
        let pairs: Vec<String> = fields.iter().map(pair).collect();
        (!pairs.is_empty()).then(|| format!("{{ {} }}", pairs.join(", ")))
    }

    fn shape(&self) -> Json {
        shape::named(EXPECTED, &shape::text("a text"))
    }
}

impl FieldsForm {
    fn value(&self, node: &Node, faults: &mut Faults<'_>) -> Option<FieldTemplate> {
        let Some(text) = node.as_text().filter(|text| text.len() <= VALUE_MAX) else {
            return faults.expected(node, &format!("a text of at most {VALUE_MAX} bytes"));
        };
        if text.is_empty() || !text.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) {
            return faults.expected(node, "a text of visible ASCII");
        }
        match FieldTemplate::parse(text, self.expected) {
            Ok(template) => Some(template),
            Err(why) => faults.expected(node, &why),
        }
    }
}

/// The table that is meant by texts such as `"X-Frame-Options: DENY"`.
fn meant_fields(node: &Node) -> Option<String> {
    // More are another mistake, and too much for a message.
    const LONGEST: usize = 200;
    let pairs = node.as_list().iter().take(FIELDS_MAX).map(|node| {
        let (name, value) = node.as_text()?.split_once(':')?;
        let name = HeaderName::from_bytes(name.as_bytes()).ok().map(|_| name)?;
        Some(format!("{} = {}", string(name), string(value.trim())))
    });
    let pairs = pairs.collect::<Option<Vec<_>>>().filter(|pairs| !pairs.is_empty())?;
    Some(format!("{{ {} }}", pairs.join(", "))).filter(|meant| meant.len() <= LONGEST)
}

/// The name of a response field that may be set for clients.
pub(super) fn settable_field(text: &str) -> Result<HeaderName, String> {
    const SET_BESIDES: [&str; 4] = [
        "cache-control",
        "content-security-policy",
        "content-security-policy-report-only",
        "content-language",
    ];
    let name = HeaderName::from_bytes(text.as_bytes());
    match name {
        Ok(name) if SET_BESIDES.contains(&name.as_str()) => Ok(name),
        _ => removable_field(text),
    }
}

/// Where a client is sent: a URL or a path, which begins with a text of the operator.
pub(super) fn redirect_target(text: &str) -> Result<FieldTemplate, String> {
    const TARGET: &str = r#"a URL or a path such as "https://www.example.com{path}{query}""#;
    // A target that begins with {path} could be made to name another host.
    let is_path = text.starts_with('/') && !text.starts_with("//") && !text.starts_with("/{");
    let is_url = ["http://", "https://", "{scheme}://"].iter().any(|start| text.starts_with(start));
    let is_printable = text.len() <= VALUE_MAX && text.bytes().all(|b| b.is_ascii_graphic());
    if let Some((status, target)) = text.split_once(' ')
        && let (Ok(status), Ok(_)) = (status.parse::<u16>(), redirect_target(target))
    {
        return Err(format!("\"{target}\", with redirect_status = {status}"));
    }
    if !is_printable || !(is_path || is_url) || text.contains('\\') {
        return Err(TARGET.to_owned());
    }
    FieldTemplate::parse(text, TemplateVariable::OF_TARGET)
}

/// `302`
#[derive(Debug)]
pub(super) struct RedirectStatusForm;

const STATUSES: [(u16, RedirectStatus); 5] = [
    (301, RedirectStatus::MovedPermanently),
    (302, RedirectStatus::Found),
    (303, RedirectStatus::SeeOther),
    (307, RedirectStatus::Temporary),
    (308, RedirectStatus::Permanent),
];

impl Form<RedirectStatus> for RedirectStatusForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<RedirectStatus> {
        let code = match node.value {
            Value::Integer(code) => u16::try_from(code).ok(),
            _ => node.as_text().and_then(|text| text.parse().ok()),
        };
        let found = STATUSES.iter().find(|(known, _)| Some(*known) == code);
        found
            .map(|(_, status)| *status)
            .or_else(|| faults.expected(node, "301, 302, 303, 307 or 308"))
    }

    fn write(&self, status: &RedirectStatus) -> Option<String> {
        STATUSES.iter().find(|(_, known)| known == status).map(|(code, _)| code.to_string())
    }

    fn shape(&self) -> Json {
        let codes = STATUSES.map(|(code, _)| code);
        serde_json::json!({ "enum": codes, "title": "301, 302, 303, 307 or 308" })
    }
}

/// The name of a response field that neither the proxy nor HTTP needs.
pub(super) fn removable_field(text: &str) -> Result<HeaderName, String> {
    const PREFIXES: [&str; 6] =
        ["anteroom-", "content-", "grpc-", "proxy-", "sec-websocket-", "surrogate-"];
    const NAMES: [&str; 31] = [
        "accept-ranges",
        "age",
        "allow",
        "cache-control",
        "cache-status",
        "cache-tag",
        "cache-tags",
        "cdn-cache-control",
        "connection",
        "date",
        "etag",
        "expires",
        "http2-settings",
        "keep-alive",
        "last-modified",
        "location",
        "pragma",
        "purge-cache-tags",
        "retry-after",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "vary",
        "via",
        "warning",
        "www-authenticate",
        "x-cache-tags",
        "x-magento-tags",
        "xkey",
    ];
    let expected = || r#"the name of a field such as "X-Powered-By""#.to_owned();
    let name = HeaderName::from_bytes(text.as_bytes()).map_err(|_| expected())?;
    if name == SET_COOKIE {
        return Err("another field: cookies are cut by strip_set_cookie".to_owned());
    }
    let is_reserved = |name: &str| {
        NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    if is_reserved(name.as_str()) {
        return Err(format!("another field: {text} is needed by HTTP or by the proxy"));
    }
    Ok(name)
}
