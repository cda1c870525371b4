//! The keys of `[session.verify]`, `[session.login]` and `[session.logout]`, and the forms of their tables.

use std::time::Duration;

use ::http::Method;
use anteroom_http::extract::Extractor;
use anteroom_http::ident::{ATTRIBUTES_MAX, is_attribute_name};
use anteroom_policy::login::{LoginUser, RequestPattern, Success};
use serde_json::Value as Json;

use super::extractor::{EXTRACTOR, ExtractorForm, ResponseMatcherForm, TableReader, cookie, field};
use super::shared::{DAY, METHOD, MS, Parameters, count, named, paths};
use crate::form::{Faults, Flag, Form, List, Optional, Span, string};
use crate::node::{Node, Value};
use crate::plan::{Login, Logout, Verify};
use crate::shape;
use crate::text;
use crate::walk::Walk;

pub(super) fn verify(at: &mut impl Walk, verify: &mut Verify) {
    at.key("path", &mut verify.path, &Optional(named(text::health_path)));
    at.key("user", &mut verify.user, &Optional(ExtractorForm { set_cookie: false }));
    at.key("nobody", &mut verify.anonymous, &Optional(ResponseMatcherForm));
    at.key("attributes", &mut verify.attributes, &AttributesForm);
    let every = Span { min: Duration::from_secs(1), max: DAY };
    at.key("verify_every", &mut verify.verify_every, &every);
    at.key("timeout", &mut verify.timeout, &Span { min: 10 * MS, max: Duration::from_secs(60) });
}

pub(super) fn login(at: &mut impl Walk, login: &mut Login) {
    at.key("match", &mut login.matching, &Optional(MatchingForm));
    at.key("success", &mut login.success, &SuccessForm { of: "login" });
    at.key("verify", &mut login.verify, &Flag);
    at.key("user", &mut login.user, &Optional(LoginUserForm));
}

pub(super) fn logout(at: &mut impl Walk, logout: &mut Logout) {
    at.key("match", &mut logout.matching, &Optional(MatchingForm));
    at.key("success", &mut logout.success, &SuccessForm { of: "logout" });
}

/// `{ group = { json = "/groups/0" } }`
struct AttributesForm;

impl Form<Vec<(String, Extractor)>> for AttributesForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Vec<(String, Extractor)>> {
        let Value::Table(table) = &node.value else {
            return faults.expected(node, r#"a table such as { group = { json = "/group" } }"#);
        };
        if table.len() > ATTRIBUTES_MAX {
            return faults.expected(node, &format!("at most {ATTRIBUTES_MAX} attributes"));
        }
        let mut read = Vec::new();
        for (name, node) in table {
            if !is_attribute_name(name) {
                let what = "a name of 1 to 32 lower-case letters, digits, - and _";
                faults.add::<()>(node, format!("found {}; expected {what}", string(name)));
            }
            let extractor = ExtractorForm { set_cookie: false }.read(node, faults);
            read.push(extractor.map(|extractor| (name.clone(), extractor)));
        }
        read.into_iter().collect()
    }

    fn write(&self, attributes: &Vec<(String, Extractor)>) -> Option<String> {
        let pair = |(name, extractor): &(String, Extractor)| {
            Some(format!("{name} = {}", ExtractorForm { set_cookie: false }.write(extractor)?))
        };
        let pairs: Vec<String> = attributes.iter().filter_map(pair).collect();
        (!pairs.is_empty()).then(|| format!("{{ {} }}", pairs.join(", ")))
    }

    fn shape(&self) -> Json {
        let title = "a table such as `{ group = { json = \"/group\" } }`";
        shape::named(title, &ExtractorForm { set_cookie: false }.shape())
    }
}

/// `{ method = "POST", path = "/login" }`
pub(super) struct MatchingForm;

impl Form<RequestPattern> for MatchingForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<RequestPattern> {
        let expected = r#"a table such as { method = "POST", path = "/login" }"#;
        let mut keys = TableReader::of(node, faults, expected)?;
        let methods = keys.read("method", &List::of(METHOD), faults)?;
        let paths = keys.read("path", &List::of(paths()), faults)?;
        let query = keys.read("query", &Parameters(named(text::query_value)), faults)?;
        keys.end(faults)?;
        let Some(paths) = paths.filter(|paths| !paths.is_empty()) else {
            return faults.expected(node, expected);
        };
        let methods = methods.filter(|methods| !methods.is_empty());
        Some(RequestPattern {
            methods: methods.unwrap_or_else(|| vec![Method::POST]),
            paths,
            query: query.unwrap_or_default(),
        })
    }

    fn write(&self, matching: &RequestPattern) -> Option<String> {
        let list = |texts: Vec<String>| match texts.as_slice() {
            [only] => string(only),
            texts => {
                let quoted: Vec<String> = texts.iter().map(|text| string(text)).collect();
                format!("[{}]", quoted.join(", "))
            }
        };
        let paths = list(matching.paths.iter().map(ToString::to_string).collect());
        let query = Parameters(named(text::query_value)).write(&matching.query);
        let query = query.map(|query| format!(", query = {query}")).unwrap_or_default();
        Some(format!(
            "{{ method = {}, path = {paths}{query} }}",
            list(matching.methods.iter().map(ToString::to_string).collect())
        ))
    }

    fn shape(&self) -> Json {
        let keys = [
            ("method", List::of(METHOD).shape()),
            ("path", List::of(paths()).shape()),
            ("query", Parameters(named(text::query_value)).shape()),
        ];
        shape::table("a table such as `{ method = \"POST\", path = \"/login\" }`", keys)
    }
}

/// `{ status = [302], location = "/account*" }`
struct SuccessForm {
    of: &'static str,
}

impl Form<Success> for SuccessForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Success> {
        let expected = format!(
            r#"a table that describes a successful {}, such as {{ status = [302], location = "/" }}"#,
            self.of
        );
        let mut keys = TableReader::of(node, faults, &expected)?;
        let status = keys.read("status", &List::of(count(100, 999)), faults)?;
        let success = Success {
            status: status.unwrap_or_default(),
            set_cookie: keys.read("set_cookie", &cookie(), faults)?,
            location: keys.read("location", &cookie(), faults)?,
            header: keys.read("header", &field(), faults)?,
            clears_cookie: keys.read("clears_cookie", &cookie(), faults)?,
        };
        keys.end(faults)?;
        Some(success)
    }

    fn write(&self, success: &Success) -> Option<String> {
        let mut said = Vec::new();
        if !success.status.is_empty() {
            said.push(format!("status = {:?}", success.status));
        }
        let patterns = [
            ("set_cookie", &success.set_cookie),
            ("location", &success.location),
            ("clears_cookie", &success.clears_cookie),
        ];
        for (name, pattern) in patterns {
            said.extend(
                pattern.as_ref().map(|one| format!("{name} = {}", string(&one.to_string()))),
            );
        }
        said.extend(
            success.header.as_ref().map(|name| format!("header = {}", string(name.as_str()))),
        );
        (!said.is_empty()).then(|| format!("{{ {} }}", said.join(", ")))
    }

    fn shape(&self) -> Json {
        let status: List<u16, _> = List::of(count(100, 999));
        let keys = [
            ("status", status.shape()),
            ("set_cookie", cookie().shape()),
            ("location", cookie().shape()),
            ("header", field().shape()),
            ("clears_cookie", cookie().shape()),
        ];
        shape::table("a table such as `{ status = [302], location = \"/\" }`", keys)
    }
}

const LOGIN_USER: &str = r#"a table such as { set_cookie = "name_*", regex = "…" }, { header = "X-User" }, { form = "username" } or { json = "/name" }"#;

/// As [`ExtractorForm`], or `{ form = "username" }`.
struct LoginUserForm;

impl Form<LoginUser> for LoginUserForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<LoginUser> {
        if let Value::Table(table) = &node.value
            && table.contains_key("form")
        {
            let mut keys = TableReader::of(node, faults, EXTRACTOR)?;
            let form = keys.read("form", &named(text::form_field), faults)?;
            keys.end(faults)?;
            return form.map(LoginUser::Form);
        }
        let extractor = ExtractorForm { set_cookie: true }.read(node, faults)?;
        match extractor {
            Extractor::Json(pointer) => Some(LoginUser::Json(pointer)),
            Extractor::Regex(_) => faults.expected(node, LOGIN_USER),
            extractor => Some(LoginUser::Answer(extractor)),
        }
    }

    fn write(&self, user: &LoginUser) -> Option<String> {
        match user {
            LoginUser::Answer(extractor) => ExtractorForm { set_cookie: true }.write(extractor),
            LoginUser::Form(name) => Some(format!("{{ form = {} }}", string(name))),
            LoginUser::Json(pointer) => Some(format!("{{ json = {} }}", string(pointer))),
        }
    }

    fn shape(&self) -> Json {
        let form = named(text::form_field).shape();
        let form = shape::table("`{ form = \"username\" }`", [("form", form)]);
        shape::any_of(&[ExtractorForm { set_cookie: true }.shape(), form])
    }
}
