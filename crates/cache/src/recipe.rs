//! Recipes: how a stranger requests a page, kept with the page so that the proxy can fetch it again by itself.

use std::net::IpAddr;

use ::http::uri::PathAndQuery;

use crate::page_fields::PageFields;

/// The largest recipe that is kept, in bytes. A page with a longer one has none, and is never fetched without a
/// visitor.
const RECIPE_MAX: usize = 4_096;

/// The request of a stranger for a page: its URL, and the fields that a fill may send. There is no session cookie, no
/// `Authorization`, no cookie that is not in the key, and nothing about where a visitor came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Whether visitors request the page by https.
    pub is_https: bool,
    /// The site: the host, with the port unless it is the scheme's default.
    pub site: String,
    /// Path and query, without the query parameters on which the page does not depend.
    pub target: PathAndQuery,
    /// The other fields, as compact as those of the page.
    pub fields: PageFields,
    /// The address of the proxy at which the page was requested; the origin is told of it as the client's.
    pub local: IpAddr,
}

impl Recipe {
    /// The size in memory, in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        let texts = self.site.len() + self.target.as_str().len() + self.fields.as_bytes().len();
        size_of::<Self>() + texts
    }

    /// The recipe, unless it is too large.
    #[must_use]
    pub fn bounded(self) -> Option<Self> {
        (self.weight() <= RECIPE_MAX).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use ::http::HeaderMap;

    use super::*;

    #[test]
    fn a_recipe_has_a_bound() {
        let recipe = |length: usize| Recipe {
            is_https: false,
            site: "shop.test".to_owned(),
            target: PathAndQuery::try_from(format!("/{}", "a".repeat(length))).unwrap(),
            fields: PageFields::of(&HeaderMap::new()),
            local: [127, 0, 0, 1].into(),
        };
        let others = recipe(0).weight();
        assert!(recipe(RECIPE_MAX - others).bounded().is_some());
        assert!(recipe(RECIPE_MAX - others + 1).bounded().is_none());
    }
}
