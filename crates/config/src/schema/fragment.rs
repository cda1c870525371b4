//! A route's fragments: the elements to fill, and their content.

use std::sync::Arc;

use anteroom_http::row_template::RowTemplate;
use anteroom_http::selector::Selector;
use anteroom_http::template::Template;
use anteroom_policy::route::{Esi, Fill, Fragment, RowFill, RowId, Share};
use serde_json::Value as Json;

use crate::form::{self, Faults, Form, Words};
use crate::node::{Node, TomlTable, Value};
use crate::shape;
use crate::suggest::nearest;
use crate::text;

/// The longest selector, template or fallback, in bytes.
const TEXT_MAX: usize = 4_096;

/// The words for `share`.
pub(crate) const SHARES: [(&str, Share); 5] = [
    ("anonymous", Share::Anonymous),
    ("everyone", Share::Everyone),
    ("segment", Share::Segment),
    ("user", Share::User),
    ("none", Share::None),
];

const ON: [(&str, bool); 2] = [("all", false), ("session", true)];

const KEYS: [&str; 7] = ["selector", "from", "fill", "template", "share", "fallback", "on"];

/// A row that fills an element.
const ROW: &str = "a row: \"row:inventory:{item}\" for the item that match.path or match.query names, \
                   \"row:inventory:{data-item}\" for an attribute of the element, or \
                   \"row:inventory:7\"";

/// `{ selector = "#mini-cart", from = "/partials/cart" }`
#[derive(Debug)]
pub(crate) struct FragmentForm;

impl Form<Fragment> for FragmentForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Fragment> {
        let Value::Table(table) = &node.value else {
            let shown = r##"a table such as { selector = "#cart", from = "/partials/cart" }"##;
            return faults.expected(node, shown);
        };
        let before = faults.found.len();
        for (name, node) in table {
            if !KEYS.contains(&name.as_str()) {
                let hint = match nearest(name, &KEYS) {
                    Some(near) => format!("did you mean {near}?"),
                    None => format!("valid here: {}", KEYS.join(", ")),
                };
                faults.add::<()>(node, format!("unknown key {}; {hint}", form::string(name)));
            }
        }
        let fill = fill(node, table, faults);
        let is_row = matches!(fill, Some(Fill::Row(_)));
        if let (Some(share), true) = (table.get("share"), table.contains_key("fill")) {
            let why = match is_row {
                true => "share applies to from only; a row is the same for everyone",
                false => "share applies to from only; content from fill is always personal",
            };
            faults.add::<()>(share, why);
        }
        if let (Some(on), true) = (table.get("on"), is_row) {
            faults.add::<()>(
                on,
                "on applies to personal content only; a row is the same for everyone",
            );
        }
        let share = table.get("share").and_then(|node| Words(&SHARES).read(node, faults));
        let fallback = table.get("fallback").and_then(|node| bounded(node, faults));
        let only_sessions = table.get("on").and_then(|node| Words(&ON).read(node, faults));
        let selector = match table.get("selector") {
            Some(node) => selector(node, faults),
            None => faults.add(node, r##"selector is missing; write selector = "#mini-cart""##),
        };
        let fragment = Fragment {
            selector: selector?,
            fill: fill?,
            share,
            fallback: fallback.map(Arc::from),
            only_sessions: only_sessions.unwrap_or_default(),
        };
        (faults.found.len() == before).then_some(fragment)
    }

    fn write(&self, fragment: &Fragment) -> Option<String> {
        let mut pairs = vec![("selector", form::string(fragment.selector.as_str()))];
        match &fragment.fill {
            Fill::From(from) => pairs.push(("from", form::string(from))),
            Fill::User(template) => {
                pairs.push(("fill", form::string("user")));
                let template = template.as_ref().map(|text| form::string(&text.to_string()));
                pairs.extend(template.map(|text| ("template", text)));
            }
            Fill::CartCount => pairs.push(("fill", form::string("cart_count"))),
            Fill::Recent(template) => {
                pairs.push(("fill", form::string("recent")));
                pairs.push(("template", form::string(&template.to_string())));
            }
            Fill::Row(row) => {
                pairs.push(("fill", form::string(&row.to_string())));
                pairs.push(("template", form::string(&row.template.to_string())));
            }
        }
        pairs.extend(
            fragment.share.and_then(|share| Words(&SHARES).write(&share)).map(|w| ("share", w)),
        );
        pairs.extend(fragment.fallback.as_deref().map(|text| ("fallback", form::string(text))));
        if fragment.only_sessions {
            pairs.push(("on", form::string("session")));
        }
        let pairs: Vec<String> =
            pairs.into_iter().map(|(name, value)| format!("{name} = {value}")).collect();
        Some(format!("{{ {} }}", pairs.join(", ")))
    }

    fn shape(&self) -> Json {
        let keys = [
            ("selector", shape::text("a CSS selector")),
            ("from", shape::text("a path such as \"/partials/cart\"")),
            (
                "fill",
                shape::any_of(&[shape::words(&["user", "cart_count", "recent"]), shape::text(ROW)]),
            ),
            ("template", shape::text("HTML with {item} or {user}, or with the fields of a row")),
            ("share", Words(&SHARES).shape()),
            ("fallback", shape::text("HTML")),
            ("on", Words(&ON).shape()),
        ];
        shape::table("a table such as `{ selector = \"#cart\", from = \"/partials/cart\" }`", keys)
    }
}

fn bounded(node: &Node, faults: &mut Faults<'_>) -> Option<String> {
    match node.as_text() {
        Some(text) if text.len() <= TEXT_MAX => Some(text.to_owned()),
        _ => faults.expected(node, &format!("a text in quotes of at most {TEXT_MAX} bytes")),
    }
}

fn selector(node: &Node, faults: &mut Faults<'_>) -> Option<Selector> {
    let text = bounded(node, faults)?;
    let why = match Selector::parse(&text) {
        Ok(selector) => return Some(selector),
        Err(why) => why,
    };
    let text = format!(
        "found {}; expected a CSS selector that works on a streamed page: {why}",
        node.shown()
    );
    faults.add(node, text)
}

fn fill(node: &Node, table: &TomlTable, faults: &mut Faults<'_>) -> Option<Fill> {
    let template = table.get("template");
    let fill = match (table.get("from"), table.get("fill")) {
        (Some(_), Some(fill)) => {
            return faults.add(fill, "found from and fill; expected one of them");
        }
        (None, None) => {
            return faults.add(
                node,
                r#"write from = "/partials/cart", or fill = "user", "cart_count", "recent" or "row:inventory:{item}""#,
            );
        }
        (Some(from), None) => {
            let path = from.as_text().map(text::hole_path);
            match path {
                Some(Ok(path)) => Some(Fill::From(path.into())),
                Some(Err(why)) => faults.expected(from, &why),
                None => faults.expected(from, "a text in quotes"),
            }
        }
        (None, Some(fill)) => match (fill.as_text(), template) {
            (Some("user"), None) => Some(Fill::User(None)),
            (Some("user"), Some(template)) => {
                let text = bounded(template, faults)?;
                match Template::of_user(&text) {
                    Ok(template) => return Some(Fill::User(Some(template))),
                    Err(why) => return faults.expected(template, &why),
                }
            }
            (Some("cart_count"), _) => Some(Fill::CartCount),
            (Some("recent"), Some(template)) => {
                let text = bounded(template, faults)?;
                match Template::of_items(&text) {
                    Ok(template) => return Some(Fill::Recent(template)),
                    Err(why) => return faults.expected(template, &why),
                }
            }
            (Some("recent"), None) => {
                let hint =
                    r#"fill = "recent" needs template = '<a href="/item/{item}">{item}</a>'"#;
                return faults.add(fill, hint);
            }
            (Some(text), _) if text.starts_with("row:") => {
                return row_fill(text, fill, template, faults);
            }
            _ => faults.expected(
                fill,
                r#""user", "cart_count", "recent" or a row such as "row:inventory:{item}""#,
            ),
        },
    };
    if let Some(template) = template {
        return faults
            .add(template, r#"template needs fill = "user" or "recent", or a row to fill in"#);
    }
    fill
}

/// A row that fills an element, by its template.
fn row_fill(
    text: &str,
    fill: &Node,
    template: Option<&Node>,
    faults: &mut Faults<'_>,
) -> Option<Fill> {
    let parts = text.strip_prefix("row:").and_then(|rest| rest.split_once(':'));
    let parsed =
        parts.and_then(|(rows, id)| Some((text::rows_name(rows).ok()?, RowId::parse(id)?)));
    let Some((rows, id)) = parsed else { return faults.expected(fill, ROW) };
    let Some(template) = template else {
        let hint = r#"a row needs template = "{qty} in stock", with the fields of its JSON"#;
        return faults.add(fill, hint);
    };
    match RowTemplate::parse(&bounded(template, faults)?) {
        Ok(template) => Some(Fill::Row(RowFill { rows: rows.into(), id, template })),
        Err(why) => faults.expected(template, &why),
    }
}

/// `false`, `true` or `"always"`.
#[derive(Debug)]
pub(crate) struct EsiForm;

impl Form<Esi> for EsiForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Esi> {
        match (&node.value, node.as_text()) {
            (Value::Boolean(false), _) => Some(Esi::Off),
            (Value::Boolean(true), _) => Some(Esi::Said),
            (_, Some("always")) => Some(Esi::Always),
            _ => faults.expected(node, r#"true, false or "always""#),
        }
    }

    fn write(&self, esi: &Esi) -> Option<String> {
        let word = match esi {
            Esi::Off => "false",
            Esi::Said => "true",
            Esi::Always => "\"always\"",
        };
        Some(word.to_owned())
    }

    fn shape(&self) -> Json {
        shape::any_of(&[shape::flag(), shape::words(&["always"])])
    }
}
