//! Forms of the conditions of a route on the query and on request fields.

use anteroom_http::field_condition::FieldCondition;
use anteroom_policy::route::QueryCondition;
use serde_json::Value as Json;

use super::shared::{CONDITION, Parameters};
use crate::form::{Faults, Form, string};
use crate::node::{Node, Value};
use crate::{shape, text};

/// The most conditions on fields in one route.
const CONDITIONS_MAX: usize = 16;

/// The longest condition on a field, in bytes.
const CONDITION_MAX: usize = 1_024;

/// Words for a whole query, and what they mean.
const WORDS: [(&str, QueryCondition); 2] =
    [("any", QueryCondition::Any), ("none", QueryCondition::None)];

/// `"any"`, `"none"` or `{ id = "{item}" }`.
#[derive(Debug)]
pub(super) struct QueryForm;

impl Form<QueryCondition> for QueryForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<QueryCondition> {
        if let Value::Table(_) = node.value {
            return Parameters(CONDITION).read(node, faults).map(QueryCondition::Parameters);
        }
        let word = node.as_text();
        let meant = WORDS.into_iter().find(|(known, _)| word == Some(*known));
        meant.map(|(_, condition)| condition).or_else(|| {
            faults.expected(node, r#""any", "none", or a table such as { id = "{item}" }"#)
        })
    }

    fn write(&self, condition: &QueryCondition) -> Option<String> {
        match condition {
            QueryCondition::Parameters(parameters) => Parameters(CONDITION).write(parameters),
            QueryCondition::Any => Some(string("any")),
            QueryCondition::None => Some(string("none")),
        }
    }

    fn shape(&self) -> Json {
        let words = WORDS.map(|(word, _)| word);
        shape::any_of(&[shape::words(&words), Parameters(CONDITION).shape()])
    }
}

const EXPECTED_CONDITIONS: &str = r#"a table such as { user-agent = "~ (?i)bot" }"#;

/// `{ user-agent = "~ (?i)bot" }`.
#[derive(Debug)]
pub(super) struct FieldConditionsForm;

impl Form<Vec<FieldCondition>> for FieldConditionsForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Vec<FieldCondition>> {
        let Value::Table(table) = &node.value else {
            return faults.expected(node, EXPECTED_CONDITIONS);
        };
        if table.len() > CONDITIONS_MAX {
            return faults.expected(node, &format!("at most {CONDITIONS_MAX} fields"));
        }
        let read = table.iter().map(|(name, node)| condition(name, node, faults));
        let read: Vec<Option<FieldCondition>> = read.collect();
        let mut read = read.into_iter().collect::<Option<Vec<_>>>()?;
        // The names are part of page keys, and the order in the file is no matter.
        read.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
        if let Some(twice) = read.windows(2).find(|pair| pair[0].name == pair[1].name) {
            let name = twice[0].name.as_str();
            return faults.add(node, format!("found {name} twice; field names ignore case"));
        }
        Some(read)
    }

    fn write(&self, conditions: &Vec<FieldCondition>) -> Option<String> {
        let pair = |condition: &FieldCondition| {
            format!("{} = {}", string(condition.name.as_str()), string(condition.as_str()))
        };
        let pairs: Vec<String> = conditions.iter().map(pair).collect();
        (!pairs.is_empty()).then(|| format!("{{ {} }}", pairs.join(", ")))
    }

    fn shape(&self) -> Json {
        shape::named(
            EXPECTED_CONDITIONS,
            &shape::text("a value, one with a *, or ~ and a regular expression"),
        )
    }
}

/// The condition on the field `name`.
fn condition(name: &str, node: &Node, faults: &mut Faults<'_>) -> Option<FieldCondition> {
    let field = match text::key_header(name) {
        Ok(field) => field,
        Err(why) => return faults.add(node, format!("found {}; expected {why}", string(name))),
    };
    let Some(value) = node.as_text() else { return faults.expected(node, "a text in quotes") };
    if value.len() > CONDITION_MAX {
        return faults.expected(node, &format!("a text of at most {CONDITION_MAX} bytes"));
    }
    FieldCondition::parse(field, value).map_or_else(|why| faults.expected(node, &why), Some)
}
