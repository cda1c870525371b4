//! `docs/browser/openapi.json` held against the proxy: whatever an endpoint answers is described, and
//! whatever is described is answered. And `docs/reference/admin-openapi.json`, which has the figures for operators.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::{Value, json};

use crate::support::client::{Answer, Ask};
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, log_in, shop};
use crate::support::wait_until;

const SETTINGS: &str = r#"session.mint = true
visitor.endpoints = ["me", "cart", "recent", "top"]
origin.hosts = ["shop.test"]
client.trusted_proxies = ["127.0.0.1/32"]
client.deny = ["192.0.2.0/24"]
limits.max_body = "100KiB"
limits.stall_timeout = "200ms"
limits.requests_per_address = "1/h"
[[route]]
match.path = "/item/{item}""#;
const JSON: &str = "application/json";

/// The description, and what of it was met.
struct ApiDescription {
    document: Value,
    met: BTreeSet<String>,
}

impl ApiDescription {
    fn read() -> Self {
        Self::of(include_str!("../../docs/browser/openapi.json"))
    }

    fn of(text: &str) -> Self {
        Self { document: serde_json::from_str(text).unwrap(), met: BTreeSet::new() }
    }

    /// Path and method of each operation.
    fn operations(&self) -> Vec<(String, String)> {
        let paths = self.document["paths"].as_object().unwrap();
        let methods = |path: &Value| path.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let all = paths.iter().flat_map(|(path, item)| {
            let methods = methods(item).into_iter().filter(|key| !key.starts_with("x-"));
            methods.map(|method| (path.clone(), method.to_uppercase()))
        });
        all.collect()
    }

    /// What stands behind a reference.
    fn behind<'d>(&'d self, value: &'d Value) -> &'d Value {
        let Some(name) = value["$ref"].as_str() else { return value };
        self.document.pointer(&name[1..]).unwrap_or_else(|| panic!("nothing is at {name}"))
    }

    fn operation(&self, path: &str, method: &str) -> &Value {
        &self.document["paths"][path][method.to_lowercase()]
    }

    /// The answer to an operation is one of those that are described for it.
    fn meets(&mut self, path: &str, method: &str, why: &str, answer: &Answer) {
        let status = answer.status.to_string();
        let response = self.operation(path, method)["responses"].get(&status);
        let Some(response) = response.map(|response| self.behind(response)) else {
            panic!("{method} {path}, {why}: {status} is not described: {}", answer.text());
        };
        let kind = self.fits(response, answer, method == "HEAD");
        let kind = kind.unwrap_or_else(|wrong| panic!("{method} {path}, {why}: {status}: {wrong}"));
        self.met.insert(format!("{method} {path} {status} {kind}"));
    }

    /// The media type of an answer that is as the response is described, or what is wrong with it.
    fn fits(&self, response: &Value, answer: &Answer, is_head: bool) -> Result<String, String> {
        for (name, header) in response["headers"].as_object().into_iter().flatten() {
            let value = answer.header(name).ok_or_else(|| format!("{name} is missing"))?;
            self.holds(&self.behind(header)["schema"], &json!(value))?;
        }
        let Some(content) = response.get("content") else {
            let is_empty = answer.body.bytes.is_empty();
            return is_empty.then(String::new).ok_or_else(|| answer.text());
        };
        let kind = answer.header("content-type").ok_or("no Content-Type")?.to_owned();
        let schema =
            &content.get(&kind).ok_or_else(|| format!("{kind} is not described"))?["schema"];
        if is_head {
            return Ok(kind);
        }
        let body = match &*kind {
            JSON => {
                serde_json::from_slice(&answer.body.bytes).map_err(|error| error.to_string())?
            }
            _ => json!(answer.text()),
        };
        self.holds(schema, &body).map(|()| kind)
    }

    /// Whether a value is what a schema says, by the words that the description uses.
    fn holds(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let schema = self.behind(schema);
        for (word, wanted) in schema.as_object().unwrap() {
            let is_so = match word.as_str() {
                "description" | "examples" | "format" => true,
                "type" => [wanted].into_iter().chain(wanted.as_array().into_iter().flatten()).any(
                    |name| match name.as_str() {
                        Some("object") => value.is_object(),
                        Some("array") => value.is_array(),
                        Some("string") => value.is_string(),
                        Some("integer") => value.as_f64().is_some_and(|n| n.fract() == 0.0),
                        Some("number") => value.is_number(),
                        Some("boolean") => value.is_boolean(),
                        Some("null") => value.is_null(),
                        _ => false,
                    },
                ),
                "const" => value == wanted,
                "enum" => wanted.as_array().unwrap().contains(value),
                "oneOf" => {
                    let all = wanted.as_array().unwrap().iter();
                    all.filter(|one| self.holds(one, value).is_ok()).count() == 1
                }
                "required" => wanted.as_array().unwrap().iter().all(|name| {
                    value.as_object().is_none_or(|value| value.contains_key(name.as_str().unwrap()))
                }),
                "properties" => {
                    for (name, schema) in wanted.as_object().unwrap() {
                        value.get(name).map_or(Ok(()), |value| self.holds(schema, value))?;
                    }
                    true
                }
                "additionalProperties" => {
                    let named = |name: &str| schema["properties"].get(name).is_some();
                    for (name, value) in value.as_object().into_iter().flatten() {
                        match wanted {
                            _ if named(name) => {}
                            Value::Bool(false) => return Err(format!("{name} is not described")),
                            wanted => self.holds(wanted, value)?,
                        }
                    }
                    true
                }
                "items" => {
                    for value in value.as_array().into_iter().flatten() {
                        self.holds(wanted, value)?;
                    }
                    true
                }
                "minProperties" => {
                    value.as_object().is_none_or(|o| o.len() as u64 >= number(wanted))
                }
                "maxProperties" => {
                    value.as_object().is_none_or(|o| o.len() as u64 <= number(wanted))
                }
                "maxItems" => value.as_array().is_none_or(|a| a.len() as u64 <= number(wanted)),
                "minLength" => letters(value).is_none_or(|count| count >= number(wanted)),
                "maxLength" => letters(value).is_none_or(|count| count <= number(wanted)),
                "maximum" => value.as_f64().is_none_or(|n| n <= wanted.as_f64().unwrap()),
                "minimum" => value.as_f64().is_none_or(|n| n >= wanted.as_f64().unwrap()),
                "pattern" => {
                    let pattern = Regex::new(wanted.as_str().unwrap()).unwrap();
                    value.as_str().is_none_or(|text| pattern.is_match(text))
                }
                other => panic!("the schema says {other}, which nothing holds it to"),
            };
            if !is_so {
                return Err(format!("{value} against {word} {wanted}"));
            }
        }
        Ok(())
    }

    /// All that is described for operations, as `meets` notes it.
    fn all(&self) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for (path, method) in self.operations() {
            let responses = self.operation(&path, &method)["responses"].as_object().unwrap();
            for (status, response) in responses {
                match self.behind(response).get("content") {
                    Some(content) => all.extend(
                        content
                            .as_object()
                            .unwrap()
                            .keys()
                            .map(|kind| format!("{method} {path} {status} {kind}")),
                    ),
                    None => drop(all.insert(format!("{method} {path} {status} "))),
                }
            }
        }
        all
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn letters(value: &Value) -> Option<u64> {
    value.as_str().map(|text| text.chars().count() as u64)
}

fn plain_shop() -> Origin {
    shop(|_| Reply::unstored("from the shop"))
}

/// A call as a page of the site makes it.
fn call(proxy: &Proxy, path: &str, method: &str, cookie: &str) -> Ask {
    let ask = proxy.ask(method, path).cookie(cookie);
    match method {
        "PUT" => {
            with_body(ask.header("Sec-Fetch-Site", "same-origin"), br#"{"item":"mug","count":1}"#)
        }
        _ => ask.header("Sec-Fetch-Site", "same-origin"),
    }
}

fn with_body(ask: Ask, body: &[u8]) -> Ask {
    ask.header("Content-Type", JSON).body(body)
}

/// What may be wrong with a call, and all that the head of a request can be refused for.
fn calls(proxy: &Proxy, path: &str, method: &str, cookie: &str) -> Vec<(&'static str, Ask)> {
    let fine = || call(proxy, path, method, cookie);
    let bare = || proxy.ask(method, path).cookie(cookie);
    let own = || bare().header("Sec-Fetch-Site", "same-origin");
    let announced =
        |length: &str| own().header("Content-Type", JSON).header("Content-Length", length);
    let long = proxy.ask(method, &format!("{path}?{}", "x".repeat(17 << 10))).cookie(cookie);
    let many: Vec<_> = (0..500).map(|n| json!({ "item": format!("i{n}"), "count": 1 })).collect();
    let many = json!({ "items": many }).to_string();
    vec![
        ("fine", fine()),
        ("nobody", call(proxy, path, method, "")),
        ("somebody unknown", call(proxy, path, method, "language=de; login=0123456789abcdef")),
        ("by another site", bare().header("Sec-Fetch-Site", "cross-site")),
        ("by nobody knows whom", bare()),
        ("a body of text", own().header("Content-Type", "text/plain").body(b"x")),
        ("a body that is no change", with_body(own(), b"[1]")),
        ("a body that is too large", announced("70000")),
        ("a body that is far too large", announced("200000")),
        ("a body that stops", announced("20")),
        ("one item too many", with_body(own(), many.as_bytes())),
        ("no site", fine().host("a b")),
        ("another site", fine().host("evil.test")),
        ("an address that is not served", fine().header("X-Forwarded-For", "192.0.2.1")),
        ("an address", fine().header("X-Forwarded-For", "198.51.100.1")),
        ("the same address", fine().header("X-Forwarded-For", "198.51.100.1")),
        ("a long target", long),
        ("a large head", fine().header("X-Large", &"x".repeat(40_000))),
        ("an expectation", fine().header("Expect", "200-ok")),
    ]
}

#[test]
fn exactly_the_described_operations_are_answered() {
    let mut described = ApiDescription::read();
    let origin = plain_shop();
    let proxy = Proxy::embedded(&origin, SETTINGS);
    let alice = log_in(&proxy, "alice");
    let dora = log_in(&proxy, "dora;group=trade");
    proxy.get("/item/tea%20pot").cookie(&alice).send();
    let is_seen = |path: &str| proxy.get(path).cookie(&alice).send().text().contains("tea pot");
    wait_until("the view is told", || is_seen("/_anteroom/recent") && is_seen("/_anteroom/top"));

    let listen = "listen = [{ address = \"{listen}\", redirect = \"https\" }]";
    let to_https = Proxy::embedded(&origin, listen);
    let off = Proxy::embedded(&origin, "visitor.endpoints = []");
    let mut storage = Storage::redis();
    let away = Proxy::start(
        &origin,
        &storage,
        "visitor.endpoints = [\"me\", \"cart\", \"recent\", \"top\"]",
    );
    let Storage::Redis(server) = &mut storage else { return };
    server.kill();

    for (path, method) in described.operations() {
        for (why, ask) in calls(&proxy, &path, &method, &alice) {
            described.meets(&path, &method, why, &ask.send());
        }
        described.meets(
            &path,
            &method,
            "with attributes",
            &call(&proxy, &path, &method, &dora).send(),
        );
        described.meets(&path, &method, "by http", &call(&to_https, &path, &method, &alice).send());
        described.meets(&path, &method, "switched off", &call(&off, &path, &method, &alice).send());
        described.meets(
            &path,
            &method,
            "the store away",
            &call(&away, &path, &method, &alice).send(),
        );
    }

    let unmet: Vec<_> = described.all().difference(&described.met).cloned().collect();
    assert!(unmet.is_empty(), "described, and never answered: {unmet:#?}");
}

#[test]
fn figures_for_operators_are_answered_as_described() {
    let mut described = ApiDescription::of(include_str!("../../docs/reference/admin-openapi.json"));
    let origin = shop(|_| Reply::html("hello"));
    for mode in ["serve", "learn"] {
        let settings = format!("admin.token = {{ file = \"token\" }}\ncache.mode = \"{mode}\"");
        let proxy = Proxy::behind_with("printf secret-token >token", &origin, &settings);
        let ask = |path: &str| proxy.admin(path).header("Authorization", "Bearer secret-token");
        for cookie in ["consent=1", "consent=2", "language=de"] {
            proxy.get("/item/mug").cookie(cookie).send();
        }
        wait_until("the requests are counted", || {
            ask("/status").send().text().contains("\"routes\":[{")
        });
        let switched = ask("/bypass").method("POST").body(br#"{"on":true,"by":"alice"}"#).send();
        assert_eq!(switched.status, 200, "{}", switched.text());
        for (path, method) in described.operations() {
            let answer = ask(&path).method(&method).send();
            described.meets(&path, &method, mode, &answer);
        }
    }
}

#[test]
fn other_methods_and_paths_are_answered_as_described() {
    let described = ApiDescription::read();
    let origin = plain_shop();
    let proxy = Proxy::embedded(&origin, SETTINGS);
    let operations = described.operations();
    for path in described.document["paths"].as_object().unwrap().keys() {
        let response = described.behind(&described.document["paths"][path]["x-other-methods"]);
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "NONSENSE"] {
            let answer = proxy.ask(method, path).send();
            let is_described = operations.contains(&(path.clone(), method.to_owned()));
            assert_eq!(answer.status != 405, is_described, "{method} {path}: {}", answer.status);
            if !is_described {
                described.fits(response, &answer, false).unwrap();
            }
        }
    }
    let nothing = &described.document["components"]["responses"]["NotFound"];
    for path in ["/_anteroom/", "/_anteroom/none", "/_anteroom/me/", "/_ANTEROOM/me"] {
        let answer = proxy.get(path).send();
        assert_eq!(answer.status, 404, "{path}");
        described.fits(nothing, &answer, false).unwrap();
    }
}

#[test]
fn a_change_is_taken_where_the_schema_takes_it() {
    let described = ApiDescription::read();
    let origin = plain_shop();
    let proxy = Proxy::embedded(&origin, SETTINGS);
    let alice = log_in(&proxy, "alice");
    let content = &described.operation("/_anteroom/cart", "PUT")["requestBody"]["content"]["application/json"];
    let examples = content["examples"].as_object().unwrap().values();
    let examples = examples.map(|example| example["value"].clone());
    let others = [
        json!({ "items": [] }),
        json!({ "item": "mug", "count": 1_000_000 }),
        json!({ "item": "mug", "count": 1_000_001 }),
        json!({ "item": "mug", "count": 1.5 }),
        // A whole number, however it is written.
        json!({ "item": "mug", "count": 3.0 }),
        json!({ "item": "mug", "count": 1e6 }),
        json!({ "item": "mug", "count": 1e300 }),
        json!({ "item": "mug", "count": u64::MAX }),
        json!({ "item": "mug", "count": i64::MIN }),
        json!({ "item": "mug", "count": -1e300 }),
        json!({ "item": "mug", "count": "1" }),
        json!({ "item": "", "count": 1 }),
        json!({ "item": "x".repeat(129), "count": 1 }),
        json!({ "item": "a\u{1}", "count": 1 }),
        json!({ "item": "a\u{85}", "count": 1 }),
        json!({ "item": "mug" }),
        json!({ "item": "mug", "count": 1, "price": 0 }),
        json!({ "item": "mug", "count": 1, "items": [] }),
        json!({ "items": [["mug", 1]] }),
        json!({ "items": { "item": "mug", "count": 1 } }),
        json!([]),
        json!(null),
    ];
    for change in examples.chain(others) {
        let ask = proxy.ask("PUT", "/_anteroom/cart").cookie(&alice);
        let ask = ask.header("Sec-Fetch-Site", "same-origin");
        let answer = with_body(ask, change.to_string().as_bytes()).send();
        let holds = described.holds(&content["schema"], &change);
        let wanted = if holds.is_ok() { 200 } else { 400 };
        assert_eq!(answer.status, wanted, "{change}: {holds:?}");
    }
}

#[test]
fn the_examples_are_what_their_schemas_say() {
    fn walk(described: &ApiDescription, value: &Value, count: &mut usize) {
        if let Some(examples) = value.get("examples").and_then(Value::as_object) {
            for example in examples.values() {
                described.holds(&value["schema"], &example["value"]).unwrap();
                *count += 1;
            }
        }
        let inner = value.as_object().into_iter().flat_map(|object| object.values());
        let inner = inner.chain(value.as_array().into_iter().flatten());
        inner.for_each(|value| walk(described, value, count));
    }
    let described = ApiDescription::read();
    let mut count = 0;
    walk(&described, &described.document, &mut count);
    assert!(count > 10, "{count} examples");
}
