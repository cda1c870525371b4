//! CSS selectors with which an operator names elements of a page.

use std::fmt;

/// A CSS selector that can be matched while a page streams: it uses no siblings and nothing that depends on
/// later content.
#[derive(Clone)]
pub struct Selector {
    text: String,
    parsed: lol_html::Selector,
}

impl Selector {
    /// Parses a selector.
    ///
    /// # Errors
    /// The reason why the text is not a selector, or why it cannot be matched while a page streams.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parsed = text.parse::<lol_html::Selector>().map_err(|error| error.to_string())?;
        Ok(Self { text: text.to_owned(), parsed })
    }

    /// The selector as the operator wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The compiled selector, ready for matching.
    #[must_use]
    pub fn parsed(&self) -> &lol_html::Selector {
        &self.parsed
    }
}

/// Compares the source texts: selectors with the same text match the same elements.
impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Selector {}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Selector").field(&self.text).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_selectors_that_match_while_streaming_are_accepted() {
        for text in ["#mini-cart", "div.cart > b", "[data-hole=user]", "header .name, footer .name"]
        {
            assert_eq!(Selector::parse(text).unwrap().as_str(), text);
        }
        for text in ["", "#", "a + b", "p:last-child", "a::before", "div:has(p)"] {
            assert!(Selector::parse(text).is_err(), "{text}");
        }
    }
}
