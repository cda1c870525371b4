//! The parts of a page that are filled when it is delivered.

use std::fmt;
use std::sync::Arc;

use anteroom_http::ident::Row;
use anteroom_http::row_template::RowTemplate;
use anteroom_http::selector::Selector;
use anteroom_http::template::Template;

use super::Share;

/// One of a route's `fragments`: elements of its pages that are filled when a page is delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// `selector`: the elements. Required.
    pub selector: Selector,
    /// `from` or `fill`: their content. Required.
    pub fill: Fill,
    /// `share`: the visitors that share a response to `from`, instead of the `share` of its own route.
    pub share: Option<Share>,
    /// `fallback`: the content if filling fails; `None`: the original content of the element.
    pub fallback: Option<Arc<str>>,
    /// `on`, `"all"`; `"session"`: only for visitors with a session cookie. Others get the original
    /// content.
    pub only_sessions: bool,
}

impl Fragment {
    /// Whether visitors may see different content. A row is the same for everyone.
    #[must_use]
    pub fn is_personal(&self) -> bool {
        !matches!(self.fill, Fill::Row(_))
    }
}

/// The content of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fill {
    /// `from`: the response to a request for this target, made for the visitor.
    From(Arc<str>),
    /// `fill = "user"`: the user's name, by `template` if there is one.
    User(Option<Template>),
    /// `fill = "cart_count"`: the number of things in the cart.
    CartCount,
    /// `fill = "recent"`: the items viewed last, each by `template`.
    Recent(Template),
    /// `fill = "row:NAME:ID"`: a row, by `template`.
    Row(RowFill),
}

/// A row that fills elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFill {
    /// The name of the `[[rows]]`.
    pub rows: Arc<str>,
    /// Which of them.
    pub id: RowId,
    /// How it is shown.
    pub template: RowTemplate,
}

/// What names the row that fills an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowId {
    /// `{item}`: the item that the page's request names.
    Item,
    /// `{data-…}`: this attribute of the element.
    Attribute(Arc<str>),
    /// The id itself.
    Fixed(Arc<str>),
}

/// The longest name of an attribute, in bytes.
const ATTRIBUTE_MAX: usize = 64;

impl RowId {
    /// Parses `{item}`, `{data-item}` or an id. `None`: it is none of these.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "{item}" {
            return Some(Self::Item);
        }
        if let Some(name) = text.strip_prefix('{') {
            let name = name.strip_suffix('}').filter(|name| name.len() <= ATTRIBUTE_MAX)?;
            let is_plain =
                |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b);
            let suffix = name.strip_prefix("data-").filter(|suffix| !suffix.is_empty())?;
            return suffix.bytes().all(is_plain).then(|| Self::Attribute(name.into()));
        }
        let is_id = Row::new(text).is_some() && !text.contains(['{', '}']);
        (is_id && !matches!(text, "." | "..")).then(|| Self::Fixed(text.into()))
    }
}

impl fmt::Display for RowFill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = &self.rows;
        match &self.id {
            RowId::Item => write!(f, "row:{rows}:{{item}}"),
            RowId::Attribute(name) => write!(f, "row:{rows}:{{{name}}}"),
            RowId::Fixed(id) => write!(f, "row:{rows}:{id}"),
        }
    }
}

/// When ESI tags are processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Esi {
    /// `false`: never.
    #[default]
    Off,
    /// `true`: if the app sends `Surrogate-Control: content="ESI/1.0"`.
    Said,
    /// `"always"`: in every text response.
    Always,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_named_by_the_item_by_an_attribute_or_by_its_id() {
        let attribute = |name: &str| Some(RowId::Attribute(name.into()));
        let fixed = |id: &str| Some(RowId::Fixed(id.into()));
        for (text, expected) in [
            ("{item}", Some(RowId::Item)),
            ("{data-stock}", attribute("data-stock")),
            ("{data-item_id-2}", attribute("data-item_id-2")),
            ("7", fixed("7")),
            ("a:b c", fixed("a:b c")),
            ("", None),
            ("..", None),
            ("{}", None),
            ("{id}", None),
            ("{data-}", None),
            ("{data-A}", None),
            ("{data-a b}", None),
            ("{item", None),
            ("sku-{item}", None),
            ("a\nb", None),
        ] {
            assert_eq!(RowId::parse(text), expected, "{text}");
        }
        assert_eq!(RowId::parse(&"7".repeat(129)), None);
        assert_eq!(RowId::parse(&format!("{{data-{}}}", "a".repeat(60))), None);
    }
}
