//! Selects the requests that the proxy answers itself: purges, redirects to https, and requests under
//! `/_anteroom/`.

use anteroom_fault::fault;
use anteroom_http::host::Scheme;
use anteroom_http::{lenient, path};
use anteroom_policy::listener::Redirect;

use super::limit::CountedRequest;
use super::route::RoutedRequest;
use crate::connection::client::Client;
use crate::settings::{ProxySettings, PurgeMethod};

/// The first segment of the paths that belong to the proxy.
pub(crate) const PREFIX: &str = "_anteroom";

/// How the proxy answers a request itself, if it does.
pub(crate) enum Diverted<'w> {
    /// The request purges the page at its URL.
    Purge(&'w PurgeMethod, CountedRequest),
    /// The client is redirected to https.
    Redirect(&'w Redirect, CountedRequest),
    /// The request's route redirects its clients.
    RouteRedirect(RoutedRequest<'w>),
    /// The request goes to one of the proxy's own endpoints.
    Endpoint(CountedRequest),
    /// A source answers the request.
    No(CountedRequest),
}

/// Finds out whether the proxy answers a request itself.
pub(super) fn divert<'w>(
    settings: &'w ProxySettings,
    client: &'w Client,
    request: CountedRequest,
) -> Diverted<'w> {
    let is_late = fault!("redirected") && redirect(client, &request).is_some();
    if !is_late && let Some(method) = settings.purge_method(&request.head.method) {
        return Diverted::Purge(method, request);
    }
    let is_endpoint = is_endpoint_path(request.head.uri.path());
    if !(is_endpoint && fault!("endpoints"))
        && let Some(redirect) = redirect(client, &request)
    {
        return Diverted::Redirect(redirect, request);
    }
    if is_endpoint {
        return Diverted::Endpoint(request);
    }
    Diverted::No(request)
}

/// Whether a path lies under the proxy's own prefix, or could for a lenient origin.
pub(crate) fn is_endpoint_path(path: &str) -> bool {
    lenient::may_begin_with(path, PREFIX)
}

/// The redirect to https that applies to a request, if any.
fn redirect<'c>(client: &'c Client, request: &CountedRequest) -> Option<&'c Redirect> {
    let redirect = client.entry.redirect.as_ref()?;
    // A trusted proxy may have received the request by https. A redirect would then loop.
    let is_plain = request.admitted.scheme == Scheme::Http;
    // SECURITY: a path that the app may decode to another path gets no exception.
    let is_excepted = || {
        !path::is_odd(request.head.uri.path())
            && redirect.except.iter().any(|path| path.matches(&request.admitted.path).is_some())
    };
    (is_plain && !is_excepted()).then_some(redirect)
}
