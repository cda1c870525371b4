//! How a response is cut, where it has fragments at all.

use ::http::Response;

use crate::cache::rules::fragments::esi;
use crate::http::media::{self, Kind};
use crate::policy::route::{Esi, Route};
use crate::proxy::deliver::body::Body;

/// Beside a response: the app says that its tags of ESI are to be carried out.
#[derive(Clone, Copy, Debug)]
struct Said;

/// Keeps in mind what a response says of ESI, where that counts: the field is taken away where caches between
/// us and the visitor would keep for others by it what is his.
pub(in crate::proxy) fn note(route: &Route, response: &mut Response<Body>) {
    if route.esi == Esi::Said && esi::is_said(response.headers()) {
        response.extensions_mut().insert(Said);
    }
}

/// How a response is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Elements,
    Tags,
}

impl Way {
    /// How the response to a request on `route` is cut, where it is at all.
    pub(super) fn of(route: &Route, response: &Response<Body>) -> Option<Self> {
        let headers = response.headers();
        if !matches!(response.status().as_u16(), 200 | 203 | 404 | 410) {
            return None;
        }
        match route.esi {
            Esi::Off => {
                let has_any = !route.fragments.is_empty() && media::kind(headers) == Kind::Html;
                has_any.then_some(Self::Elements)
            }
            Esi::Said if response.extensions().get::<Said>().is_none() => None,
            Esi::Said | Esi::Always => media::is_compressible(headers).then_some(Self::Tags),
        }
    }
}
