//! Whether a route matches a request, and the item that the request names.

use std::borrow::Cow;

use ::http::{HeaderMap, Method};
use anteroom_http::ident::Item;
use anteroom_http::path::PathPattern;
use anteroom_http::query;

use super::Route;

/// The condition on a query parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryValue {
    /// Exactly this, after percent-decoding.
    Exactly(String),
    /// Any value: it names the item.
    Item,
}

/// The condition on a query. What `cache.ignore_query` and `keep_query` leave out is no query for the choice of a page's
/// route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryCondition {
    /// It has these parameters; none: every query meets the condition.
    Parameters(Vec<(String, QueryValue)>),
    /// It is there, and not empty: `"any"`.
    Any,
    /// It is absent or empty: `"none"`.
    None,
}

impl Default for QueryCondition {
    fn default() -> Self {
        Self::Parameters(Vec::new())
    }
}

impl QueryCondition {
    /// Whether every query meets the condition.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Parameters(parameters) if parameters.is_empty())
    }

    /// The parameters that the query must have.
    #[must_use]
    pub fn parameters(&self) -> &[(String, QueryValue)] {
        match self {
            Self::Parameters(parameters) => parameters,
            Self::Any | Self::None => &[],
        }
    }

    /// Whether a query, without `?`, meets the condition.
    #[must_use]
    pub fn is_met(&self, query: &str) -> bool {
        let has = |(name, value): &(String, QueryValue)| {
            query::value(query, name).is_some_and(|found| match value {
                QueryValue::Item => true,
                QueryValue::Exactly(wanted) => *wanted == found,
            })
        };
        match self {
            Self::Parameters(parameters) => parameters.iter().all(has),
            Self::Any => !query.is_empty(),
            Self::None => query.is_empty(),
        }
    }

    /// Whether there is a query, if the condition is about that.
    #[must_use]
    pub fn presence(&self) -> Option<bool> {
        match self {
            Self::Parameters(_) => None,
            Self::Any => Some(true),
            Self::None => Some(false),
        }
    }

    /// Whether every query that meets `other` meets this condition, too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match self {
            Self::Parameters(own) => own.iter().all(|one| other.parameters().contains(one)),
            Self::Any => *other == Self::Any || !other.parameters().is_empty(),
            Self::None => *other == Self::None,
        }
    }

    /// The item that a query names; `None` where no parameter names one.
    fn item(&self, query: &str) -> Option<Option<Item>> {
        let names_item = |(_, value): &&(String, QueryValue)| *value == QueryValue::Item;
        let (name, _) = self.parameters().iter().rfind(names_item)?;
        Some(query::value(query, name).and_then(|found| Item::new(&found)))
    }
}

impl Route {
    /// `None`: the route does not match. Otherwise the item, if the request names one.
    pub(super) fn fits(&self, request: &RouteInput<'_>) -> Option<Option<Item>> {
        let item = self.fits_but_for_fields(request)?;
        self.meets_fields(request).then_some(item)
    }

    /// The same without the conditions on fields.
    ///
    /// SECURITY: `any` and `none` are about the query in the URL of the page. Otherwise an ignored parameter would choose
    /// other rules for the page of the same URL.
    pub(super) fn fits_but_for_fields(&self, request: &RouteInput<'_>) -> Option<Option<Item>> {
        let query = match self.query.presence() {
            None => Cow::Borrowed(request.query),
            Some(_) => self.query_rule.kept(request.query),
        };
        self.fits_url(&self.paths, &RouteInput { query: &query, ..*request })
    }

    /// Whether the route, with these path patterns, refuses or counts a request. Ignored parameters alone are a query for
    /// `any`, and none for `none`.
    pub(super) fn may_fit(&self, paths: &[PathPattern], request: &RouteInput<'_>) -> bool {
        let query = match self.query.presence() {
            None | Some(true) => Cow::Borrowed(request.query),
            Some(false) => self.query_rule.kept(request.query),
        };
        let fit = self.fits_url(paths, &RouteInput { query: &query, ..*request });
        fit.is_some() && self.meets_fields(request)
    }

    fn meets_fields(&self, request: &RouteInput<'_>) -> bool {
        self.headers.iter().all(|condition| condition.is_met(request.headers))
    }

    /// The same as [`Self::fits_but_for_fields`] with other path patterns, and the query as it is.
    fn fits_url(&self, paths: &[PathPattern], request: &RouteInput<'_>) -> Option<Option<Item>> {
        if !self.methods.is_empty() && !self.methods.contains(request.method) {
            return None;
        }
        if !self.hosts.is_empty() && !self.hosts.iter().any(|host| host.matches(request.host)) {
            return None;
        }
        let mut item = None;
        if !paths.is_empty() {
            let fit = paths.iter().find_map(|pattern| pattern.matches(request.path))?;
            item = fit.item.and_then(Item::new);
        }
        if !self.query.is_met(request.query) {
            return None;
        }
        Some(self.query.item(request.query).unwrap_or(item))
    }
}

/// The parts of a request that routes look at.
#[derive(Clone, Copy, Debug)]
pub struct RouteInput<'a> {
    /// Method.
    pub method: &'a Method,
    /// Lower-case `host` or `host:port`.
    pub host: &'a str,
    /// The path, percent-decoded.
    pub path: &'a str,
    /// The query as it came, without `?`.
    pub query: &'a str,
    /// The fields.
    pub headers: &'a HeaderMap,
}

impl<'a> RouteInput<'a> {
    /// The request, and for a HEAD also the corresponding GET, because its page answers both.
    pub(super) fn meanings(&self) -> impl Iterator<Item = RouteInput<'a>> + use<'a> {
        let get =
            (*self.method == Method::HEAD).then_some(RouteInput { method: &Method::GET, ..*self });
        [Some(*self), get].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: QueryValue) -> QueryCondition {
        QueryCondition::Parameters(vec![(name.to_owned(), value)])
    }

    #[test]
    fn a_query_is_any_none_or_has_parameters() {
        let (always, item) = (QueryCondition::default(), with("id", QueryValue::Item));
        let full = with("view", QueryValue::Exactly("full".to_owned()));
        for (query, any, has_item, is_full) in [
            ("", false, false, false),
            ("a", true, false, false),
            ("id=1", true, true, false),
            ("id=1&view=full", true, true, true),
        ] {
            assert!(always.is_met(query), "{query}");
            assert_eq!(QueryCondition::Any.is_met(query), any, "{query}");
            assert_eq!(QueryCondition::None.is_met(query), !any, "{query}");
            assert_eq!(item.is_met(query), has_item, "{query}");
            assert_eq!(full.is_met(query), is_full, "{query}");
        }
        assert!(always.is_empty() && !QueryCondition::Any.is_empty() && !full.is_empty());
    }

    #[test]
    fn a_wider_condition_covers_a_narrower_one() {
        use QueryCondition::{Any, None};
        let (always, item) = (QueryCondition::default(), with("id", QueryValue::Item));
        for narrower in [&always, &item, &Any, &None] {
            assert!(always.covers(narrower) && narrower.covers(narrower), "{narrower:?}");
        }
        assert!(Any.covers(&item) && !item.covers(&Any));
        assert!(!Any.covers(&always) && !Any.covers(&None) && !None.covers(&always));
    }
}
