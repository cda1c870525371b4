//! Whether a route matches a request, and the item that the request names.

use ::http::Method;
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

impl Route {
    /// `None`: the route does not match. Otherwise the item, if the request names one.
    pub(super) fn fits(&self, request: &RouteInput<'_>) -> Option<Option<Item>> {
        self.fits_by(&self.paths, request)
    }

    /// The same with other path patterns.
    pub(super) fn fits_by(
        &self,
        paths: &[PathPattern],
        request: &RouteInput<'_>,
    ) -> Option<Option<Item>> {
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
        for (name, value) in &self.query {
            let found = query::value(request.query, name)?;
            match value {
                QueryValue::Exactly(wanted) if *wanted == found => {}
                QueryValue::Exactly(_) => return None,
                QueryValue::Item => item = Item::new(&found),
            }
        }
        Some(item)
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
}

impl<'a> RouteInput<'a> {
    /// The request, and for a HEAD also the corresponding GET, because its page answers both.
    pub(super) fn meanings(&self) -> impl Iterator<Item = RouteInput<'a>> + use<'a> {
        let get =
            (*self.method == Method::HEAD).then_some(RouteInput { method: &Method::GET, ..*self });
        [Some(*self), get].into_iter().flatten()
    }
}
