//! How a response with fragments is cut.

use ::http::Response;
use anteroom_cache::rules::fragments::esi;
use anteroom_http::media::{self, MediaKind};
use anteroom_policy::route::{Esi, Route};

use crate::deliver::body::Body;

/// An extension of a response: the app requests that its ESI tags are processed.
#[derive(Clone, Copy, Debug)]
struct EsiRequested;

/// Records that a response requests ESI. The field itself is removed, because caches between the proxy
/// and the client could share the visitor's page because of it.
pub(crate) fn note(route: &Route, response: &mut Response<Body>) {
    if route.esi == Esi::Said && esi::is_said(response.headers()) {
        response.extensions_mut().insert(EsiRequested);
    }
}

/// How a response is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CutMethod {
    Elements,
    Tags,
}

impl CutMethod {
    /// How the response to a request on `route` is cut, if it is.
    pub(super) fn of(route: &Route, response: &Response<Body>) -> Option<Self> {
        let headers = response.headers();
        if !matches!(response.status().as_u16(), 200 | 203 | 404 | 410) {
            return None;
        }
        match route.esi {
            Esi::Off => {
                let has_any =
                    !route.fragments.is_empty() && media::kind(headers) == MediaKind::Html;
                has_any.then_some(Self::Elements)
            }
            Esi::Said if response.extensions().get::<EsiRequested>().is_none() => None,
            Esi::Said | Esi::Always => media::is_compressible(headers).then_some(Self::Tags),
        }
    }
}
