//! The JSON Schema of `proxy.toml`, for editors: `anteroom config schema`.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::{Map, Value as Json, json};
use toml::Spanned;
use toml::de::{DeString, DeValue};

use super::form::Form;
use super::plan::{OriginUrl, Plan};
use super::walk::Walk;
use super::{schema, shape, shipped, shorthand};

/// The schema (draft-07) of the file: keys, forms, defaults and descriptions, with the short forms.
#[must_use]
pub fn json_schema() -> Json {
    let mut plan = Plan::new(OriginUrl::http(Ipv4Addr::LOCALHOST.to_string(), 3000));
    let mut writer = SchemaWriter { descriptions: shipped::descriptions(), ..Default::default() };
    schema::walk(&mut writer, &mut plan);
    // The default depends on the machine.
    if let Some(threads) = writer.keys.get_mut("threads").and_then(Json::as_object_mut) {
        threads.remove("default");
    }
    let definitions = writer.definitions;
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Anteroom's configuration, proxy.toml",
        "type": "object",
        "properties": writer.keys,
        "additionalProperties": false,
        "definitions": definitions,
    })
}

/// Collects the shape of each key that it visits.
#[derive(Debug, Default)]
struct SchemaWriter {
    descriptions: BTreeMap<String, String>,
    /// The path of the current table.
    path: String,
    /// The keys of the current table.
    keys: Map<String, Json>,
    required: Vec<&'static str>,
    /// The tables that may occur several times.
    definitions: Map<String, Json>,
}

impl SchemaWriter {
    fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Adds a key with its description.
    fn add(&mut self, name: &str, path: &str, mut shape: Json) {
        // The keys of a further origin are those of the first.
        let of_first = path.replacen("origins.NAME.", "origin.", 1);
        let described = [path, &of_first].into_iter().find_map(|path| self.descriptions.get(path));
        if let Some(text) = described.filter(|text| !text.is_empty()) {
            shape["description"] = json!(text);
        }
        self.keys.insert(name.to_owned(), shape);
    }

    /// Defines a table, and returns the reference to it.
    fn define(&mut self, name: &str, table: Json) -> Json {
        self.definitions.insert(name.to_owned(), table);
        json!({ "$ref": format!("#/definitions/{name}"), "title": format!("[[{name}]]") })
    }

    /// The table whose keys `keys` visits.
    fn table(&mut self, path: String, keys: impl FnOnce(&mut Self)) -> Json {
        let outer_path = std::mem::replace(&mut self.path, path);
        let outer_keys = std::mem::take(&mut self.keys);
        let outer_required = std::mem::take(&mut self.required);
        keys(self);
        let required = std::mem::replace(&mut self.required, outer_required);
        let keys = std::mem::replace(&mut self.keys, outer_keys);
        self.path = outer_path;
        let mut table =
            json!({ "type": "object", "properties": keys, "additionalProperties": false });
        if !required.is_empty() {
            table["required"] = json!(required);
        }
        table
    }
}

impl Walk for SchemaWriter {
    fn key<T>(&mut self, name: &'static str, value: &mut T, form: &impl Form<T>) {
        let mut shape = form.shape();
        if let Some(default) = form.write(value).and_then(|toml| as_json(&toml)) {
            shape["default"] = default;
        }
        self.add(name, &self.path_of(name), shape);
    }

    fn required<T>(&mut self, name: &'static str, _: &mut T, form: &impl Form<T>, _: &str) {
        // The command line and the environment may set what the file lacks, but not in a list of tables.
        if self.path.ends_with("[]") {
            self.required.push(name);
        }
        self.add(name, &self.path_of(name), form.shape());
    }

    fn section(&mut self, name: &'static str, keys: impl FnOnce(&mut Self)) {
        let path = self.path_of(name);
        let table = self.table(path.clone(), keys);
        let shape = match shorthand::main_key(&path) {
            Some(key) => json!({ "anyOf": [table, table["properties"][key]] }),
            None => table,
        };
        self.add(name, &path, shape);
    }

    fn tables<T>(
        &mut self,
        name: &'static str,
        max: usize,
        _: &mut Vec<T>,
        fresh: impl Fn() -> T,
        keys: impl Fn(&mut Self, &mut T),
    ) {
        let path = format!("{}[]", self.path_of(name));
        let table = self.table(path.clone(), |at| keys(at, &mut fresh()));
        let item = match shorthand::main_key(&path) {
            Some(key) => {
                let port = shape::count(1, 65_535);
                json!({ "anyOf": [table, table["properties"][key], port] })
            }
            None => table,
        };
        let item = self.define(name, item);
        self.add(name, &path, shape::list(&item, max));
    }

    fn named<T>(
        &mut self,
        name: &'static str,
        max: usize,
        _: &mut Vec<(String, T)>,
        fresh: impl Fn() -> T,
        keys: impl Fn(&mut Self, &mut T),
    ) {
        let path = format!("{}.NAME", self.path_of(name));
        let item = self.table(path.clone(), |at| keys(at, &mut fresh()));
        let item = self.define(name, item);
        let mut tables = shape::named("tables under names of their own", &item);
        tables["maxProperties"] = json!(max);
        self.add(name, &path, tables);
    }
}

/// A value written as TOML, as JSON.
fn as_json(toml: &str) -> Option<Json> {
    Some(plain(&DeValue::parse(toml).ok()?.into_inner()))
}

fn plain(value: &DeValue<'_>) -> Json {
    match value {
        DeValue::String(text) => json!(text),
        DeValue::Boolean(flag) => json!(flag),
        DeValue::Integer(number) => json!(number.as_str().parse::<i64>().ok()),
        DeValue::Array(items) => items.iter().map(|item| plain(item.get_ref())).collect(),
        DeValue::Table(table) => {
            let pair = |(name, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| {
                (name.get_ref().clone().into_owned(), plain(value.get_ref()))
            };
            table.iter().map(pair).collect::<Map<String, Json>>().into()
        }
        // No form writes fractions or dates.
        DeValue::Float(_) | DeValue::Datetime(_) => Json::Null,
    }
}
