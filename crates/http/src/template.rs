//! HTML templates with one placeholder, such as `{item}`. Each value is escaped for the context of its placeholder.

use std::fmt;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// The placeholder for an item.
const ITEM: &str = "{item}";
/// The placeholder for the name of a user.
const USER: &str = "{user}";

/// Attributes whose value is a URL that may contain an item.
const ADDRESSES: [&str; 8] =
    ["href", "src", "action", "formaction", "data", "poster", "ping", "xlink:href"];

/// A piece of HTML that is rendered once for each value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    /// The text before each placeholder, and how the value there is escaped.
    parts: Vec<(String, Escape)>,
    end: String,
}

/// How a value is escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escape {
    /// As text, or in a quoted attribute.
    Html,
    /// As a URL path segment, in a quoted attribute.
    Address,
}

impl Template {
    /// Parses a template for items. The placeholder `{item}` is allowed in text and in quoted attributes. It is refused
    /// where a browser would interpret the item as something other than text.
    ///
    /// # Errors
    /// A description of what was expected.
    pub fn of_items(text: &str) -> Result<Self, String> {
        Self::parse(text, ITEM)
    }

    /// The same for the name of a user, with the placeholder `{user}`.
    ///
    /// # Errors
    /// A description of what was expected.
    pub fn of_user(text: &str) -> Result<Self, String> {
        Self::parse(text, USER)
    }

    fn parse(text: &str, name: &str) -> Result<Self, String> {
        let mut pieces = text.split(name);
        let mut end = pieces.next().unwrap_or_default().to_owned();
        let (mut parts, mut before) = (Vec::new(), end.clone());
        for piece in pieces {
            let escape = escape_behind(&before, name)?;
            parts.push((std::mem::replace(&mut end, piece.to_owned()), escape));
            before.push_str(name);
            before.push_str(piece);
        }
        if parts.is_empty() {
            return Err(format!("html with {name} in it"));
        }
        Ok(Self { text: text.to_owned(), parts, end })
    }

    /// Renders the template for a value and appends it to `html`.
    pub fn write(&self, value: &str, html: &mut String) {
        for (before, escape) in &self.parts {
            html.push_str(before);
            escape.write(value, html);
        }
        html.push_str(&self.end);
    }
}

impl Escape {
    /// Appends the escaped text.
    pub(super) fn write(self, text: &str, html: &mut String) {
        match self {
            Self::Html => escape_html(text, html),
            Self::Address => html.extend(utf8_percent_encode(text, NON_ALPHANUMERIC)),
        }
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// How the value of the placeholder `shown` must be escaped, which follows `before`.
pub(super) fn escape_behind(before: &str, shown: &str) -> Result<Escape, String> {
    let lower = before.to_ascii_lowercase();
    let is_open = |tag: &str| {
        let opened = lower.rfind(&format!("<{tag}"));
        opened.is_some_and(|at| !lower[at..].contains(&format!("</{tag}")))
    };
    if ["script", "style", "!--"].into_iter().any(is_open) {
        return Err(format!(
            "{shown} in text or in quoted attributes, and in no script, style or comment"
        ));
    }
    let unquoted = || Err(format!("{shown} in a tag only within a quoted attribute"));
    let mut inside = Inside::Text;
    let mut tag = "";
    for (at, c) in lower.char_indices() {
        inside = match (inside, c) {
            (Inside::Text, '<') => {
                tag = &lower[at..];
                Inside::Tag
            }
            (Inside::Tag, '>') => Inside::Text,
            (Inside::Tag, '"' | '\'') => Inside::Value { quote: c, at },
            (Inside::Value { quote, .. }, c) if c == quote => Inside::Tag,
            (same, _) => same,
        };
    }
    match inside {
        Inside::Text => Ok(Escape::Html),
        Inside::Tag => unquoted(),
        Inside::Value { at, .. } => {
            let start = lower.len() - tag.len();
            let Some(name) = lower[start..at].strip_suffix('=') else { return unquoted() };
            let name = name.rsplit([' ', '\t', '\n', '"', '\'']).next().unwrap_or_default();
            // These values are parsed again as script, style or HTML, and would need another escape.
            if name.starts_with("on") || matches!(name, "style" | "srcdoc") {
                return Err(format!("{shown} in no attribute {name}"));
            }
            if !ADDRESSES.contains(&name) {
                return Ok(Escape::Html);
            }
            // At the start of a URL an item could set a scheme or a host.
            match lower[at + 1..].starts_with('/') && !lower[at + 1..].starts_with("//") {
                true if lower[at + 1..].len() > 1 => Ok(Escape::Address),
                _ => Err(format!("{shown} in {name} only behind a path such as /item/")),
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Inside {
    Text,
    Tag,
    Value { quote: char, at: usize },
}

/// Appends `text` escaped for HTML text and quoted attributes.
pub fn escape_html(text: &str, html: &mut String) {
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(template: &str, item: &str) -> String {
        let mut html = String::new();
        Template::of_items(template).unwrap().write(item, &mut html);
        html
    }

    #[test]
    fn an_item_is_escaped_for_its_place() {
        let link = r#"<a href="/item/{item}" title='{item}'>{item}</a>"#;
        assert_eq!(written(link, "mug"), r#"<a href="/item/mug" title='mug'>mug</a>"#);
        assert_eq!(
            written(link, "\"><script>'&/.."),
            "<a href=\"/item/%22%3E%3Cscript%3E%27%26%2F%2E%2E\" \
             title='&quot;&gt;&lt;script&gt;&#39;&amp;/..'>&quot;&gt;&lt;script&gt;&#39;&amp;/..</a>"
        );
    }

    #[test]
    fn an_item_stands_where_it_can_be_escaped() {
        for template in ["<b>x</b>", "<a {item}>", "<a href={item}>", "<a href=\"{item}\">"] {
            assert!(Template::of_items(template).is_err(), "{template}");
        }
        for template in [
            "<a href=\"//{item}\">",
            "<object data=\"{item}\">",
            "<button formaction=\"{item}\">",
            "<a href=\"/{item}\">",
            "<a onclick=\"x('{item}')\">",
            "<p style='{item}'>",
            "<iframe srcdoc=\"{item}\">",
            "<script>'{item}'</script>",
            "<STYLE>{item}",
            "<!-- {item} -->",
            "<a title=\"x\"{item}>",
            "<{item}>",
        ] {
            assert!(Template::of_items(template).is_err(), "{template}");
        }
        for template in
            ["{item}", "<li>{item}", "<a data-id=\"{item}\">", "<script></script>{item}"]
        {
            assert!(Template::of_items(template).is_ok(), "{template}");
        }
    }

    #[test]
    fn a_template_for_a_user_has_the_user_in_it() {
        let greeting = Template::of_user("Hello, <a href=\"/users/{user}\">{user}</a>").unwrap();
        let mut html = String::new();
        greeting.write("a<b", &mut html);
        assert_eq!(html, "Hello, <a href=\"/users/a%3Cb\">a&lt;b</a>");
        assert_eq!(Template::of_user("{item}").unwrap_err(), "html with {user} in it");
        assert!(Template::of_user("<script>'{user}'</script>").is_err());
    }
}
