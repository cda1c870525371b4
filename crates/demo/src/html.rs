//! HTML that is safe to send, and templates filled with it.
//!
//! The content of the pages is in `pages`; this file keeps text from becoming markup.

use std::fmt::Write as _;

/// A piece of markup. It comes from plain text, which is escaped, or from a built-in template, so a visitor's
/// input cannot become markup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Html(String);

impl Html {
    /// Plain text, escaped for element content and quoted attribute values.
    pub(super) fn text(text: &str) -> Self {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                '&' => out.push_str("&amp;"),
                '<' => out.push_str("&lt;"),
                '>' => out.push_str("&gt;"),
                '"' => out.push_str("&quot;"),
                '\'' => out.push_str("&#39;"),
                // HTML forbids control characters, even as character references.
                c if c.is_control() && !matches!(c, '\n' | '\t') => {
                    out.push(char::REPLACEMENT_CHARACTER);
                }
                c => out.push(c),
            }
        }
        Self(out)
    }

    /// `template` with each `{{name}}` replaced by the value of that name. Placeholders inside values are not
    /// replaced, and a placeholder without a value stays.
    pub(super) fn fill(template: &'static str, values: &[(&str, &Self)]) -> Self {
        let mut out = String::with_capacity(template.len());
        let mut rest = template;
        while let Some((before, mark)) = rest.split_once("{{") {
            out.push_str(before);
            let Some((name, after)) = mark.split_once("}}") else {
                rest = &rest[before.len()..];
                break;
            };
            match values.iter().find(|(key, _)| *key == name) {
                Some((_, value)) => out.push_str(&value.0),
                None => write!(out, "{{{{{name}}}}}").expect("writing to a String cannot fail"),
            }
            rest = after;
        }
        out.push_str(rest);
        Self(out)
    }

    /// The markup as a string.
    pub(super) fn into_string(self) -> String {
        self.0
    }
}

impl FromIterator<Self> for Html {
    fn from_iter<I: IntoIterator<Item = Self>>(pieces: I) -> Self {
        Self(pieces.into_iter().map(|piece| piece.0).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        let shown = Html::text(r#"<b onclick="x('&')">"#).into_string();
        assert_eq!(shown, "&lt;b onclick=&quot;x(&#39;&amp;&#39;)&quot;&gt;");
    }

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(Html::text("a\0b\x1b\n").into_string(), "a\u{fffd}b\u{fffd}\n");
    }

    #[test]
    fn a_value_is_not_searched_for_marks() {
        let filled = Html::fill(
            "<p>{{a}}{{b}}</p>",
            &[("a", &Html::text("{{b}}")), ("b", &Html::text("two"))],
        );
        assert_eq!(filled.into_string(), "<p>{{b}}two</p>");
    }

    #[test]
    fn marks_without_a_value_or_an_end_stay() {
        assert_eq!(Html::fill("{{a}} {{b", &[]).into_string(), "{{a}} {{b");
    }
}
