//! `segment`: what the pages of a route differ by.

use anteroom_http::ident::is_attribute_name;
use anteroom_policy::route::Segment;
use serde_json::Value as Json;

use crate::form::{Faults, Form, List, Text, string};
use crate::node::Node;
use crate::text;

/// One entry of the list.
enum Trait {
    LoggedIn,
    Attribute(String),
    Cookie(String),
    Language(Vec<String>),
}

/// `["logged_in", "attribute:group", "cookie:currency", "language:en|de"]`
#[derive(Debug)]
pub(super) struct SegmentForm;

impl Form<Segment> for SegmentForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Segment> {
        let entries =
            List::of(Text { parse: entry, show: |_| String::new() }).read(node, faults)?;
        let mut segment = Segment::default();
        for entry in entries {
            match entry {
                // Pages of a segment always differ by login.
                Trait::LoggedIn => {}
                Trait::Attribute(name) => segment.attributes.push(name),
                Trait::Cookie(name) => segment.cookies.push(name),
                Trait::Language(offered) => {
                    if segment.language.replace(offered).is_some() {
                        return faults.add(node, "lists language twice");
                    }
                }
            }
        }
        Some(segment)
    }

    fn write(&self, segment: &Segment) -> Option<String> {
        let mut entries = vec![string("logged_in")];
        entries.extend(segment.attributes.iter().map(|name| string(&format!("attribute:{name}"))));
        entries.extend(segment.cookies.iter().map(|name| string(&format!("cookie:{name}"))));
        entries.extend(segment.language.as_deref().map(|offered| match offered {
            [] => string("language"),
            offered => string(&format!("language:{}", offered.join("|"))),
        }));
        Some(format!("[{}]", entries.join(", ")))
    }

    fn shape(&self) -> Json {
        List::of(Text { parse: entry, show: |_| String::new() }).shape()
    }
}

fn entry(text: &str) -> Result<Trait, String> {
    const EXPECTED: &str = r#""logged_in", "attribute:group", "cookie:currency", "language", or "language:en|de" with the languages of the site"#;
    let found = match text.split_once(':') {
        None if text == "logged_in" => Some(Trait::LoggedIn),
        None if text == "language" => Some(Trait::Language(Vec::new())),
        Some(("attribute", name)) if is_attribute_name(name) => {
            Some(Trait::Attribute(name.to_owned()))
        }
        Some(("cookie", name)) => text::cookie_name(name).ok().map(Trait::Cookie),
        Some(("language", tags)) => {
            let tags: Vec<String> = tags.split('|').map(str::to_ascii_lowercase).collect();
            tags.iter().all(|tag| is_language(tag)).then_some(Trait::Language(tags))
        }
        _ => None,
    };
    found.ok_or_else(|| EXPECTED.to_owned())
}

/// Whether `tag` can be a language tag, such as `pt-br`.
fn is_language(tag: &str) -> bool {
    let is_part = |part: &str| {
        (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    tag.len() <= 35 && tag.split('-').all(is_part)
}
