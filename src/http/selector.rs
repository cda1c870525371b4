//! CSS selectors, by which an operator names elements of a page.

use std::fmt;

/// A selector that can be matched while a page streams: no siblings and nothing that needs what follows.
#[derive(Clone)]
pub struct Selector {
    text: String,
    parsed: lol_html::Selector,
}

impl Selector {
    /// Reads a selector.
    ///
    /// # Errors
    /// Why it is none, or none for a page that streams.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parsed = text.parse::<lol_html::Selector>().map_err(|error| error.to_string())?;
        Ok(Self { text: text.to_owned(), parsed })
    }

    /// The selector as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The selector as it is matched.
    #[must_use]
    pub fn parsed(&self) -> &lol_html::Selector {
        &self.parsed
    }
}

/// By their texts: what is written alike matches alike.
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
    fn what_can_be_matched_on_the_way_is_a_selector() {
        for text in ["#mini-cart", "div.cart > b", "[data-hole=user]", "header .name, footer .name"]
        {
            assert_eq!(Selector::parse(text).unwrap().as_str(), text);
        }
        for text in ["", "#", "a + b", "p:last-child", "a::before", "div:has(p)"] {
            assert!(Selector::parse(text).is_err(), "{text}");
        }
    }
}
