//! The form of `[purge] after`.

use anteroom_http::path::PurgePath;
use anteroom_policy::purge_rule::PurgeRule;
use serde_json::Value as Json;

use super::extractor::TableReader;
use super::login::MatchingForm;
use super::shared::{count, named};
use crate::form::{Faults, Form, List, Text, string};
use crate::node::{Node, Value};
use crate::{shape, text};

const EXPECTED: &str =
    r#"a table such as { match = { path = "/admin/save" }, purges = ["/", "/feed/**"] }"#;

/// `{ match = { method = "POST", path = "/admin/save" }, purges = ["/", "/feed/**"] }`
pub(super) struct PurgeRuleForm;

impl Form<PurgeRule> for PurgeRuleForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<PurgeRule> {
        let mut keys = TableReader::of(node, faults, EXPECTED)?;
        let matching = keys.read("match", &MatchingForm, faults)?;
        let form = keys.read("form", &FieldsForm, faults)?;
        let status = keys.read("status", &List::of(count(200, 399)), faults)?;
        let purges = keys.read("purges", &branches(), faults)?;
        keys.end(faults)?;
        let purges = purges.filter(|purges| !purges.is_empty());
        let (Some(matching), Some(purges)) = (matching, purges) else {
            return faults.expected(node, EXPECTED);
        };
        if let Some(method) = matching.methods.iter().find(|method| method.is_safe()) {
            let text = format!("{method} changes nothing; write a method such as POST");
            return faults.add(node, text);
        }
        let (form, status) = (form.unwrap_or_default(), status.unwrap_or_default());
        Some(PurgeRule { matching, form, status, purges })
    }

    fn write(&self, rule: &PurgeRule) -> Option<String> {
        let mut pairs = vec![format!("match = {}", MatchingForm.write(&rule.matching)?)];
        pairs.extend(FieldsForm.write(&rule.form).map(|form| format!("form = {form}")));
        if !rule.status.is_empty() {
            pairs.push(format!("status = {:?}", rule.status));
        }
        pairs.push(format!("purges = {}", branches().write(&rule.purges)?));
        Some(format!("{{ {} }}", pairs.join(", ")))
    }

    fn shape(&self) -> Json {
        let status: List<u16, _> = List::of(count(200, 399));
        let keys = [
            ("match", MatchingForm.shape()),
            ("form", FieldsForm.shape()),
            ("status", status.shape()),
            ("purges", branches().shape()),
        ];
        shape::table(EXPECTED, keys)
    }
}

fn branches() -> List<PurgePath, Text<PurgePath>> {
    List::of(Text { parse: text::branch, show: PurgePath::to_string })
}

const FIELDS: &str = r#"a table such as { action = ["save", "delete"] }"#;

/// `{ action = ["save", "delete"] }`
struct FieldsForm;

impl Form<Vec<(String, Vec<String>)>> for FieldsForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Vec<(String, Vec<String>)>> {
        let Value::Table(table) = &node.value else {
            return faults.expected(node, FIELDS);
        };
        let values = List::of(named(text::query_value));
        let field = |(name, node): (&String, &Node)| {
            if let Err(why) = text::form_field(name) {
                faults.add::<()>(node, format!("found {}; expected {why}", string(name)));
            }
            Some((name.clone(), values.read(node, faults)?))
        };
        let read: Vec<_> = table.iter().map(field).collect();
        read.into_iter().collect()
    }

    fn write(&self, fields: &Vec<(String, Vec<String>)>) -> Option<String> {
        let values = List::of(named(text::query_value));
        let pair = |(name, any): &(String, Vec<String>)| {
            Some(format!("{} = {}", string(name), values.write(any)?))
        };
        let pairs: Vec<String> = fields.iter().filter_map(pair).collect();
        (!pairs.is_empty()).then(|| format!("{{ {} }}", pairs.join(", ")))
    }

    fn shape(&self) -> Json {
        shape::named(FIELDS, &List::of(named(text::query_value)).shape())
    }
}
