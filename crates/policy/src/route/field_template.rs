//! Texts of the operator with variables from the request: values of fields, and targets of redirects.

use std::fmt;
use std::net::IpAddr;

/// A text with variables such as `{host}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTemplate {
    text: Box<str>,
    parts: Vec<TemplatePart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Literal(Box<str>),
    Variable(TemplateVariable),
}

/// What a text may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateVariable {
    /// `{scheme}`: `http` or `https`, as the client sees it.
    Scheme,
    /// `{host}`: the host, with its port unless that is the scheme's default.
    Host,
    /// `{path}`: the path, percent-encoded as it came.
    Path,
    /// `{query}`: `?` and the query, or nothing.
    Query,
    /// `{client_address}`: the client's address, or nothing.
    ClientAddress,
}

impl TemplateVariable {
    const ALL: [(&str, Self); 5] = [
        ("scheme", Self::Scheme),
        ("host", Self::Host),
        ("path", Self::Path),
        ("query", Self::Query),
        ("client_address", Self::ClientAddress),
    ];

    /// The variables that are in every page key. A request to the app that may fill a shared page may have no
    /// others.
    pub const KEYED: &[Self] = &[Self::Scheme, Self::Host];
    /// The variables for a response to one client.
    pub const OF_RESPONSE: &[Self] = &[Self::Scheme, Self::Host, Self::Path, Self::ClientAddress];
    /// The variables for a target.
    pub const OF_TARGET: &[Self] = &[Self::Scheme, Self::Host, Self::Path, Self::Query];
}

/// The values of the variables in one request.
#[derive(Clone, Copy, Debug)]
pub struct TemplateValues<'a> {
    /// See [`TemplateVariable::Scheme`].
    pub scheme: &'a str,
    /// See [`TemplateVariable::Host`].
    pub host: &'a str,
    /// See [`TemplateVariable::Path`].
    pub path: &'a str,
    /// The query without `?`.
    pub query: Option<&'a str>,
    /// See [`TemplateVariable::ClientAddress`].
    pub client_address: Option<IpAddr>,
}

impl FieldTemplate {
    /// Parses a text that may name these variables.
    ///
    /// # Errors
    /// What was expected.
    pub fn parse(text: &str, allowed: &[TemplateVariable]) -> Result<Self, String> {
        if text.bytes().any(|b| b.is_ascii_control()) {
            return Err("a text without control characters".to_owned());
        }
        let is_name = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphabetic());
        if text.split('$').skip(1).any(is_name) {
            return Err(format!("variables in braces, without $: {}", names(allowed)));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((literal, behind)) = rest.split_once('{') {
            let (name, behind) = behind.split_once('}').ok_or_else(|| expected(allowed))?;
            let found = TemplateVariable::ALL.iter().find(|(known, _)| *known == name);
            let variable = found.map(|(_, variable)| *variable).filter(|one| allowed.contains(one));
            parts.extend((!literal.is_empty()).then(|| TemplatePart::Literal(literal.into())));
            parts.push(TemplatePart::Variable(variable.ok_or_else(|| expected(allowed))?));
            rest = behind;
        }
        parts.extend((!rest.is_empty()).then(|| TemplatePart::Literal(rest.into())));
        Ok(Self { text: text.into(), parts })
    }

    /// The text with the values in place of the variables.
    #[must_use]
    pub fn render(&self, values: &TemplateValues<'_>) -> String {
        let mut rendered = String::with_capacity(self.text.len() + 32);
        for part in &self.parts {
            match part {
                TemplatePart::Literal(text) => rendered.push_str(text),
                TemplatePart::Variable(TemplateVariable::Scheme) => {
                    rendered.push_str(values.scheme)
                }
                TemplatePart::Variable(TemplateVariable::Host) => rendered.push_str(values.host),
                TemplatePart::Variable(TemplateVariable::Path) => rendered.push_str(values.path),
                TemplatePart::Variable(TemplateVariable::Query) => {
                    rendered.extend(values.query.iter().flat_map(|query| ["?", query]));
                }
                TemplatePart::Variable(TemplateVariable::ClientAddress) => {
                    rendered.extend(values.client_address.map(|address| address.to_string()));
                }
            }
        }
        rendered
    }
}

impl fmt::Display for FieldTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn expected(allowed: &[TemplateVariable]) -> String {
    format!("no other variable than {}", names(allowed))
}

fn names(allowed: &[TemplateVariable]) -> String {
    let names = TemplateVariable::ALL.iter().filter(|(_, variable)| allowed.contains(variable));
    let names: Vec<String> = names.map(|(name, _)| format!("{{{name}}}")).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: TemplateValues<'_> = TemplateValues {
        scheme: "https",
        host: "shop.example",
        path: "/a%20b",
        query: Some("c=d"),
        client_address: None,
    };

    fn rendered(text: &str) -> String {
        let all: Vec<_> = TemplateVariable::ALL.iter().map(|(_, variable)| *variable).collect();
        FieldTemplate::parse(text, &all).unwrap().render(&VALUES)
    }

    #[test]
    fn variables_stand_for_parts_of_the_request() {
        for (text, expected) in [
            ("", ""),
            ("DENY", "DENY"),
            ("5 $, 6$", "5 $, 6$"),
            ("{scheme}://www.{host}{path}{query}", "https://www.shop.example/a%20b?c=d"),
            ("[{client_address}]", "[]"),
        ] {
            assert_eq!(rendered(text), expected, "{text}");
        }
        let without = TemplateValues { query: None, ..VALUES };
        let template = FieldTemplate::parse("/x{query}", TemplateVariable::OF_TARGET).unwrap();
        assert_eq!(template.render(&without), "/x");
    }

    #[test]
    fn only_what_may_stand_there_is_accepted() {
        for text in ["{path}", "{client_address}", "{", "{}", "{HOST}", "a\nb", "$host", "a$Host"] {
            assert!(FieldTemplate::parse(text, TemplateVariable::KEYED).is_err(), "{text}");
        }
        let why = FieldTemplate::parse("{user}", TemplateVariable::KEYED).unwrap_err();
        assert_eq!(why, "no other variable than {scheme}, {host}");
    }
}
