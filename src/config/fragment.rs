//! Holes in shared pages, as a route names them: what is filled, and with what.

use super::form::{self, Faults, Form, Words};
use super::node::{Node, Table, Value};
use super::plan::Share;
use super::reader::nearest;
use super::text;
use crate::http::selector::Selector;
use crate::http::template::Template;

/// The longest selector, template or fallback, in bytes.
const TEXT_MAX: usize = 4_096;

/// One of a route's `fragments`: elements that are filled for each visitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// `selector`: which elements. Required.
    pub selector: Selector,
    /// `from` or `fill`: with what. Required.
    pub fill: Fill,
    /// `share`: with whom an answer to `from` is shared, instead of what its own route says.
    pub share: Option<Share>,
    /// `fallback`: what is shown where that fails; none: what the page has there.
    pub fallback: Option<String>,
    /// `on`, `"all"`; `"session"`: only for visitors with a session cookie.
    pub only_sessions: bool,
}

/// What an element is filled with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fill {
    /// `from`: the answer to a request for this path.
    From(String),
    /// `fill = "user"`: the user's name.
    User,
    /// `fill = "cart_count"`: how many things are in his cart.
    CartCount,
    /// `fill = "recent"`: the items that he viewed last, each by `template`.
    Recent(Template),
}

/// When the tags of ESI are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Esi {
    /// `false`: never.
    #[default]
    Off,
    /// `true`: where the app says so.
    Said,
    /// `"always"`: in every text.
    Always,
}

/// The words for sharing.
pub(super) const SHARES: [(&str, Share); 5] = [
    ("anonymous", Share::Anonymous),
    ("everyone", Share::Everyone),
    ("segment", Share::Segment),
    ("user", Share::User),
    ("none", Share::None),
];

const ON: [(&str, bool); 2] = [("all", false), ("session", true)];

const KEYS: [&str; 7] = ["selector", "from", "fill", "template", "share", "fallback", "on"];

/// `{ selector = "#mini-cart", from = "/partials/cart" }`
#[derive(Debug)]
pub(super) struct FragmentForm;

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
        if let (Some(share), true) = (table.get("share"), table.contains_key("fill")) {
            faults.add::<()>(
                share,
                "share is for what from brings; what we fill in is nobody else's",
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
            fallback,
            only_sessions: only_sessions.unwrap_or_default(),
        };
        (faults.found.len() == before).then_some(fragment)
    }

    fn write(&self, fragment: &Fragment) -> Option<String> {
        let mut pairs = vec![("selector", form::string(fragment.selector.as_str()))];
        match &fragment.fill {
            Fill::From(from) => pairs.push(("from", form::string(from))),
            Fill::User => pairs.push(("fill", form::string("user"))),
            Fill::CartCount => pairs.push(("fill", form::string("cart_count"))),
            Fill::Recent(template) => {
                pairs.push(("fill", form::string("recent")));
                pairs.push(("template", form::string(&template.to_string())));
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
    let text =
        format!("found {}; expected a CSS selector for a page that streams: {why}", node.shown());
    faults.add(node, text)
}

fn fill(node: &Node, table: &Table, faults: &mut Faults<'_>) -> Option<Fill> {
    let template = table.get("template");
    let fill = match (table.get("from"), table.get("fill")) {
        (Some(_), Some(fill)) => {
            return faults.add(fill, "from and fill stand beside each other; say one");
        }
        (None, None) => {
            return faults.add(
                node,
                r#"write from = "/partials/cart", or fill = "user", "cart_count" or "recent""#,
            );
        }
        (Some(from), None) => {
            let path = from.as_text().map(text::hole_path);
            match path {
                Some(Ok(path)) => Some(Fill::From(path)),
                Some(Err(why)) => faults.expected(from, &why),
                None => faults.expected(from, "a text in quotes"),
            }
        }
        (None, Some(fill)) => match (fill.as_text(), template) {
            (Some("user"), _) => Some(Fill::User),
            (Some("cart_count"), _) => Some(Fill::CartCount),
            (Some("recent"), Some(template)) => {
                let text = bounded(template, faults)?;
                match Template::parse(&text) {
                    Ok(template) => return Some(Fill::Recent(template)),
                    Err(why) => return faults.expected(template, &why),
                }
            }
            (Some("recent"), None) => {
                let hint =
                    r#"fill = "recent" needs template = '<a href="/item/{item}">{item}</a>'"#;
                return faults.add(fill, hint);
            }
            _ => faults.expected(fill, r#""user", "cart_count" or "recent""#),
        },
    };
    if let Some(template) = template {
        return faults.add(template, r#"template is for fill = "recent""#);
    }
    fill
}

/// `false`, `true` or `"always"`.
#[derive(Debug)]
pub(super) struct EsiForm;

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
}
