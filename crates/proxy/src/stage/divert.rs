//! Selects the requests that the proxy answers itself: purges, redirects to https, and requests under
//! `/_anteroom/`.

use ::http::Method;
use anteroom_acme::ChallengeName;
use anteroom_fault::fault;
use anteroom_http::clock::unix_now;
use anteroom_http::host::Scheme;
use anteroom_http::{lenient, path};
use anteroom_policy::listener::Redirect;

use super::limit::CountedRequest;
use super::route::RoutedRequest;
use crate::connection::client::Client;
use crate::context::WorkerContext;
use crate::settings::{ProxySettings, PurgeMethod};

/// The first segment of the paths that belong to the proxy.
pub(crate) const PREFIX: &str = "_anteroom";

/// How the proxy answers a request itself, if it does.
pub(crate) enum Diversion<'w> {
    /// An authority asks for this answer, which proves that a name is ours.
    Challenge(String, CountedRequest),
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

/// Where an authority asks for the answer to an http-01 challenge (RFC 8555 §8.3).
const CHALLENGES: &str = "/.well-known/acme-challenge/";

/// The challenge that a request asks for, if certificates are ordered, and it may be one.
pub(super) fn challenge_of(
    settings: &ProxySettings,
    request: &CountedRequest,
) -> Option<ChallengeName> {
    settings.challenges.as_ref()?;
    let token = request.head.uri.path().strip_prefix(CHALLENGES)?;
    ChallengeName::token(token).filter(|_| request.head.method == Method::GET)
}

/// The answer to a challenge, if there is one. Other requests below that path are the app's, as before: it may have
/// certificates of its own.
pub(super) async fn challenge_answer(
    worker: &WorkerContext,
    challenge: &ChallengeName,
) -> Option<String> {
    let lookup = worker.settings.challenges.as_ref()?;
    lookup.find(&worker.store, challenge, unix_now() as i64).await
}

/// Finds out whether the proxy answers a request itself.
pub(super) fn divert<'w>(
    settings: &'w ProxySettings,
    client: &'w Client,
    request: CountedRequest,
) -> Diversion<'w> {
    let is_late = fault!("redirected") && redirect(client, &request).is_some();
    if !is_late && let Some(method) = settings.purge_method(&request.head.method) {
        return Diversion::Purge(method, request);
    }
    let is_endpoint = is_endpoint_path(request.head.uri.path());
    if !(is_endpoint && fault!("endpoints"))
        && let Some(redirect) = redirect(client, &request)
    {
        return Diversion::Redirect(redirect, request);
    }
    if is_endpoint {
        return Diversion::Endpoint(request);
    }
    Diversion::No(request)
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
    // Without a certificate that browsers trust, https is no place to send them to.
    let is_awaited = || client.entry.awaited.has(request.admitted.host.name());
    (is_plain && !is_excepted() && !is_awaited()).then_some(redirect)
}
