//! Which requests the proxy answers itself: purges, those that are sent to https, and those under `/_anteroom/`.

use super::limit::CountedRequest;
use crate::http::host::Scheme;
use crate::http::{lenient, path};
use crate::proxy::connection::client::{Client, Redirect};
use crate::proxy::settings::{PurgeMethod, Settings};

/// The first segment of the paths that are the proxy's own.
pub(in crate::proxy) const PREFIX: &str = "_anteroom";

/// What answers a request, where no source does.
pub(in crate::proxy) enum Diverted<'w> {
    /// It purges the page at its URL.
    Purge(&'w PurgeMethod, CountedRequest),
    /// It is sent to https.
    Redirect(&'w Redirect, CountedRequest),
    /// It is for the proxy's own endpoints.
    Endpoint(CountedRequest),
    /// Nothing: a source answers it.
    No(CountedRequest),
}

/// Finds out whether the proxy answers a request itself.
pub(super) fn divert<'w>(
    settings: &'w Settings,
    client: &'w Client,
    request: CountedRequest,
) -> Diverted<'w> {
    if let Some(method) = settings.purge_method(&request.head.method) {
        return Diverted::Purge(method, request);
    }
    if let Some(redirect) = redirect(client, &request) {
        return Diverted::Redirect(redirect, request);
    }
    if is_own(request.head.uri.path()) {
        return Diverted::Endpoint(request);
    }
    Diverted::No(request)
}

/// Whether a path lies under the proxy's own prefix, or could to a lenient origin.
pub(in crate::proxy) fn is_own(path: &str) -> bool {
    lenient::may_begin_with(path, PREFIX)
}

/// How a request is sent to https, where it is.
fn redirect<'c>(client: &'c Client, request: &CountedRequest) -> Option<&'c Redirect> {
    let redirect = client.entry.redirect.as_ref()?;
    // A trusted proxy may have taken it by https: sent there again it would go round for ever.
    let is_plain = request.admitted.scheme == Scheme::Http;
    // SECURITY: a path that the app may read as another one is no exception.
    let is_excepted = || {
        !path::is_odd(request.head.uri.path())
            && redirect.except.iter().any(|path| path.matches(&request.admitted.path).is_some())
    };
    (is_plain && !is_excepted()).then_some(redirect)
}
