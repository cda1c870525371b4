//! `[session.verify]`, `[session.login]`, `[session.logout]`: how the log-in of an app that nobody changes is
//! recognised. Their plan, with its defaults, and the forms of their tables.

use std::time::Duration;

use ::http::HeaderName;

use super::form::{Faults, Form, List, Span, Text, string};
use super::node::{Node, Table, Value};
use super::reader::nearest;
use super::schema::{MS, Walk, named, paths};
use super::text;
use crate::http::extract::{Expression, Finder, Plain, Sign};
use crate::http::path::PathPattern;
use crate::http::pattern::Pattern;
use crate::ident::{ATTRIBUTES_MAX, is_attribute_name};

/// `[session.verify]`: how the app is asked who a visitor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verify {
    /// `path`: what is asked for, with the query. `None`: the app is not asked.
    pub path: Option<String>,
    /// `user`: where the answer names the user. Needed.
    pub user: Option<Finder>,
    /// `nobody`: by what it says that he is nobody. Needed.
    pub nobody: Option<Sign>,
    /// `attributes`: where it says more of him.
    pub attributes: Vec<(String, Finder)>,
    /// `verify_every`, 60 s: how long an answer counts.
    pub verify_every: Duration,
    /// `timeout`, 5 s: how long a visitor waits for it.
    pub timeout: Duration,
}

impl Default for Verify {
    fn default() -> Self {
        Self {
            path: None,
            user: None,
            nobody: None,
            attributes: Vec::new(),
            verify_every: Duration::from_secs(60),
            timeout: Duration::from_secs(5),
        }
    }
}

/// `[session.login]`: which of the app's own requests log a visitor in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// `match`: the requests. `None`: there is no rule.
    pub matching: Option<Matching>,
    /// `success`: by what the answer says that it has worked; all that is given.
    pub success: Success,
    /// `verify`, false: whether `[session.verify]` is the proof.
    pub verify: bool,
    /// `user`: who it is.
    pub user: Option<LoginUser>,
}

/// `[session.logout]`: which of the app's own requests log a visitor out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logout {
    /// `match`: the requests. `None`: there is no rule.
    pub matching: Option<Matching>,
    /// `success`: by what the answer says that it has worked; all that is given.
    pub success: Success,
}

/// Requests of some methods for some paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matching {
    /// `method`, `["POST"]`, upper-case.
    pub methods: Vec<String>,
    /// `path`
    pub paths: Vec<PathPattern>,
    /// `query`: parameters that must be there with these values.
    pub query: Vec<(String, String)>,
}

/// What an answer must be; all that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Success {
    /// `status`: one of these; empty: any.
    pub status: Vec<u16>,
    /// `set_cookie`: it sets such a cookie, and does not take it away.
    pub set_cookie: Option<Pattern>,
    /// `location`: it sends the visitor there: a URL or path, with at most one `*`.
    pub location: Option<Pattern>,
    /// `header`: it has this field.
    pub header: Option<HeaderName>,
    /// `clears_cookie`: it takes such a cookie away.
    pub clears_cookie: Option<Pattern>,
}

impl Success {
    /// Whether something besides the status is asked for.
    #[must_use]
    pub fn has_proof(&self) -> bool {
        self.set_cookie.is_some()
            || self.location.is_some()
            || self.header.is_some()
            || self.clears_cookie.is_some()
    }
}

/// Where a log-in says whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginUser {
    /// In the answer.
    Answer(Finder),
    /// In this field of the form that was sent: what the visitor has called himself.
    Form(String),
    /// The same at this pointer into the JSON that was sent.
    Json(String),
}

pub(super) fn verify(at: &mut impl Walk, verify: &mut Verify) {
    at.key("path", &mut verify.path, &super::form::Optional(named(text::health_path)));
    at.key("user", &mut verify.user, &super::form::Optional(FinderForm { set_cookie: false }));
    at.key("nobody", &mut verify.nobody, &super::form::Optional(SignForm));
    at.key("attributes", &mut verify.attributes, &AttributesForm);
    let every = Span { min: Duration::from_secs(1), max: super::schema::DAY };
    at.key("verify_every", &mut verify.verify_every, &every);
    at.key("timeout", &mut verify.timeout, &Span { min: 10 * MS, max: Duration::from_secs(60) });
}

pub(super) fn login(at: &mut impl Walk, login: &mut Login) {
    at.key("match", &mut login.matching, &super::form::Optional(MatchingForm));
    at.key("success", &mut login.success, &SuccessForm { of: "log-in" });
    at.key("verify", &mut login.verify, &super::form::Flag);
    at.key("user", &mut login.user, &super::form::Optional(LoginUserForm));
}

pub(super) fn logout(at: &mut impl Walk, logout: &mut Logout) {
    at.key("match", &mut logout.matching, &super::form::Optional(MatchingForm));
    at.key("success", &mut logout.success, &SuccessForm { of: "log-out" });
}

/// The keys of a table in a value, each asked for by name.
struct Keys<'n> {
    table: &'n Table,
    asked: Vec<&'static str>,
}

impl<'n> Keys<'n> {
    fn of(node: &'n Node, faults: &mut Faults<'_>, expected: &str) -> Option<Self> {
        match &node.value {
            Value::Table(table) => Some(Self { table, asked: Vec::new() }),
            _ => faults.expected(node, expected),
        }
    }

    fn node(&mut self, name: &'static str) -> Option<&'n Node> {
        self.asked.push(name);
        self.table.get(name)
    }

    /// The value under a key, if it was said; the outer `None`: it was, and is none.
    fn read<T>(
        &mut self,
        name: &'static str,
        form: &impl Form<T>,
        faults: &mut Faults<'_>,
    ) -> Option<Option<T>> {
        match self.node(name) {
            Some(node) => form.read(node, faults).map(Some),
            None => Some(None),
        }
    }

    /// Tells of the keys that nobody asked for.
    fn end(self, faults: &mut Faults<'_>) -> Option<()> {
        let mut is_known = true;
        for (name, node) in self.table {
            if self.asked.contains(&name.as_str()) {
                continue;
            }
            let shown = name.escape_debug();
            is_known = false;
            let text = match nearest(name, &self.asked) {
                Some(near) => format!("unknown key {shown}; did you mean {near}?"),
                None => format!("unknown key {shown}; valid here: {}", self.asked.join(", ")),
            };
            faults.add::<()>(node, text);
        }
        is_known.then_some(())
    }
}

pub(super) fn expression() -> Text<Expression> {
    let parse =
        |text: &str| Expression::new(text).map_err(|why| format!("a regular expression ({why})"));
    Text { parse, show: |expression| expression.as_str().to_owned() }
}

fn pointer() -> Text<String> {
    let parse = |text: &str| match text.is_empty() || text.starts_with('/') {
        true => Ok(text.to_owned()),
        false => Err("a JSON pointer such as \"/user/name\"".to_owned()),
    };
    Text { parse, show: String::clone }
}

fn field() -> Text<HeaderName> {
    let parse = |text: &str| {
        HeaderName::from_bytes(text.as_bytes()).map_err(|_| "the name of a field".to_owned())
    };
    Text { parse, show: |name| name.as_str().to_owned() }
}

fn cookie() -> Text<Pattern> {
    Text { parse: text::pattern_of_values, show: ToString::to_string }
}

/// `{ json = "/name" }`, `{ header = "X-User" }`, `{ regex = "…" }` and, of an answer to a log-in,
/// `{ set_cookie = "name", regex = "…", decode = true }`.
struct FinderForm {
    set_cookie: bool,
}

const FINDER: &str =
    r#"a table such as { json = "/name" }, { header = "X-User" } or { regex = "…" }"#;

impl Form<Finder> for FinderForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Finder> {
        let mut keys = Keys::of(node, faults, FINDER)?;
        let json = keys.read("json", &pointer(), faults)?;
        let header = keys.read("header", &field(), faults)?;
        let regex = keys.read("regex", &expression(), faults)?;
        let (set_cookie, decode) = match self.set_cookie {
            true => (
                keys.read("set_cookie", &cookie(), faults)?,
                keys.read("decode", &super::form::Flag, faults)?,
            ),
            false => (None, None),
        };
        keys.end(faults)?;
        match (json, header, regex, set_cookie, decode) {
            (Some(pointer), None, None, None, None) => Some(Finder::Json(pointer)),
            (None, Some(name), None, None, None) => Some(Finder::Header(name)),
            (None, None, Some(expression), None, None) => Some(Finder::Regex(expression)),
            (None, None, part, Some(name), decode) => {
                Some(Finder::SetCookie { name, part, decode: decode.unwrap_or(false) })
            }
            _ => faults.expected(node, FINDER),
        }
    }

    fn write(&self, finder: &Finder) -> Option<String> {
        Some(match finder {
            Finder::Json(pointer) => format!("{{ json = {} }}", string(pointer)),
            Finder::Header(name) => format!("{{ header = {} }}", string(name.as_str())),
            Finder::Regex(regex) => format!("{{ regex = {} }}", string(regex.as_str())),
            Finder::SetCookie { name, part, decode } => {
                let mut pairs = vec![format!("set_cookie = {}", string(&name.to_string()))];
                pairs.extend(part.as_ref().map(|one| format!("regex = {}", string(one.as_str()))));
                pairs.extend(decode.then(|| "decode = true".to_owned()));
                format!("{{ {} }}", pairs.join(", "))
            }
        })
    }
}

/// `{ status = [401] }`, `{ json = "/id", equals = 0 }` or `{ regex = "…" }`.
struct SignForm;

const SIGN: &str =
    r#"a table such as { status = [401] }, { json = "/id", equals = 0 } or { regex = "…" }"#;

impl Form<Sign> for SignForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Sign> {
        let mut keys = Keys::of(node, faults, SIGN)?;
        let status = keys.read("status", &List::of(super::schema::count(100, 999)), faults)?;
        let json = keys.read("json", &pointer(), faults)?;
        let equals = keys.read("equals", &PlainForm, faults)?;
        let regex = keys.read("regex", &expression(), faults)?;
        keys.end(faults)?;
        match (status, json, equals, regex) {
            (Some(status), None, None, None) if !status.is_empty() => Some(Sign::Status(status)),
            (None, Some(pointer), Some(plain), None) => Some(Sign::Json(pointer, plain)),
            (None, None, None, Some(expression)) => Some(Sign::Regex(expression)),
            _ => faults.expected(node, SIGN),
        }
    }

    fn write(&self, sign: &Sign) -> Option<String> {
        Some(match sign {
            Sign::Status(status) => format!("{{ status = {status:?} }}"),
            Sign::Json(pointer, plain) => {
                let plain = PlainForm.write(plain)?;
                format!("{{ json = {}, equals = {plain} }}", string(pointer))
            }
            Sign::Regex(regex) => format!("{{ regex = {} }}", string(regex.as_str())),
        })
    }
}

/// A text, a whole number, `true` or `false`; JSON's `null` as the text `"null"`.
struct PlainForm;

impl Form<Plain> for PlainForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Plain> {
        match &node.value {
            Value::Text(text) if text == "null" => Some(Plain::Null),
            Value::Text(text) => Some(Plain::Text(text.clone())),
            Value::Integer(number) => Some(Plain::Number(*number)),
            Value::Boolean(flag) => Some(Plain::Flag(*flag)),
            _ => faults.expected(node, r#"a text, a whole number, true, false or "null""#),
        }
    }

    fn write(&self, plain: &Plain) -> Option<String> {
        Some(match plain {
            Plain::Text(text) => string(text),
            Plain::Number(number) => number.to_string(),
            Plain::Flag(flag) => flag.to_string(),
            Plain::Null => string("null"),
        })
    }
}

/// `{ group = { json = "/groups/0" } }`
struct AttributesForm;

impl Form<Vec<(String, Finder)>> for AttributesForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Vec<(String, Finder)>> {
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
            let finder = FinderForm { set_cookie: false }.read(node, faults);
            read.push(finder.map(|finder| (name.clone(), finder)));
        }
        read.into_iter().collect()
    }

    fn write(&self, attributes: &Vec<(String, Finder)>) -> Option<String> {
        let pair = |(name, finder): &(String, Finder)| {
            Some(format!("{name} = {}", FinderForm { set_cookie: false }.write(finder)?))
        };
        let pairs: Vec<String> = attributes.iter().filter_map(pair).collect();
        (!pairs.is_empty()).then(|| format!("{{ {} }}", pairs.join(", ")))
    }
}

/// `{ method = "POST", path = "/login" }`
struct MatchingForm;

impl Form<Matching> for MatchingForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Matching> {
        let expected = r#"a table such as { method = "POST", path = "/login" }"#;
        let mut keys = Keys::of(node, faults, expected)?;
        let methods = keys.read("method", &List::of(named(text::method)), faults)?;
        let paths = keys.read("path", &List::of(paths()), faults)?;
        let query = keys.read("query", &super::schema::Parameters, faults)?;
        keys.end(faults)?;
        let Some(paths) = paths.filter(|paths| !paths.is_empty()) else {
            return faults.expected(node, expected);
        };
        let methods = methods.filter(|methods| !methods.is_empty());
        Some(Matching {
            methods: methods.unwrap_or_else(|| vec!["POST".to_owned()]),
            paths,
            query: query.unwrap_or_default(),
        })
    }

    fn write(&self, matching: &Matching) -> Option<String> {
        let list = |texts: Vec<String>| match texts.as_slice() {
            [only] => string(only),
            texts => {
                let quoted: Vec<String> = texts.iter().map(|text| string(text)).collect();
                format!("[{}]", quoted.join(", "))
            }
        };
        let paths = list(matching.paths.iter().map(ToString::to_string).collect());
        let query = super::schema::Parameters.write(&matching.query);
        let query = query.map(|query| format!(", query = {query}")).unwrap_or_default();
        Some(format!("{{ method = {}, path = {paths}{query} }}", list(matching.methods.clone())))
    }
}

/// `{ status = [302], location = "/account*" }`
struct SuccessForm {
    of: &'static str,
}

impl Form<Success> for SuccessForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Success> {
        let expected = format!(
            r#"a table that says by what a {} has worked, such as {{ status = [302], location = "/" }}"#,
            self.of
        );
        let mut keys = Keys::of(node, faults, &expected)?;
        let status = keys.read("status", &List::of(super::schema::count(100, 999)), faults)?;
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
}

const LOGIN_USER: &str = r#"a table such as { set_cookie = "name_*", regex = "…" }, { header = "X-User" }, { form = "username" } or { json = "/name" }"#;

/// As [`FinderForm`], or `{ form = "username" }`.
struct LoginUserForm;

impl Form<LoginUser> for LoginUserForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<LoginUser> {
        if let Value::Table(table) = &node.value
            && table.contains_key("form")
        {
            let mut keys = Keys::of(node, faults, FINDER)?;
            let form = keys.read("form", &named(text::form_field), faults)?;
            keys.end(faults)?;
            return form.map(LoginUser::Form);
        }
        let finder = FinderForm { set_cookie: true }.read(node, faults)?;
        match finder {
            Finder::Json(pointer) => Some(LoginUser::Json(pointer)),
            Finder::Regex(_) => faults.expected(node, LOGIN_USER),
            finder => Some(LoginUser::Answer(finder)),
        }
    }

    fn write(&self, user: &LoginUser) -> Option<String> {
        match user {
            LoginUser::Answer(finder) => FinderForm { set_cookie: true }.write(finder),
            LoginUser::Form(name) => Some(format!("{{ form = {} }}", string(name))),
            LoginUser::Json(pointer) => Some(format!("{{ json = {} }}", string(pointer))),
        }
    }
}
