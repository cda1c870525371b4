//! The method `PURGE` on the public listener, for apps that purge their pages with it.

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use ::http::{HeaderValue, Response};
use bytes::Bytes;

use crate::http::bearer;
use crate::proxy::connection::client::Client;
use crate::proxy::context::WorkerContext;
use crate::proxy::deliver::body::Body;
use crate::proxy::deliver::headers;
use crate::proxy::error::Error;
use crate::proxy::record::RequestRecord;
use crate::proxy::settings::PurgeMethod;
use crate::proxy::stage::admit::AdmittedRequest;
use crate::telemetry::metrics::Outcome;
use crate::telemetry::reason::Reason;

/// Purges the page at the request's URL. The request is never forwarded, also if it is refused.
pub(in crate::proxy) async fn answer(
    method: &PurgeMethod,
    worker: &WorkerContext,
    client: &Client,
    request: &AdmittedRequest,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Error> {
    let AdmittedRequest { head, admitted, .. } = request;
    let peer = client.peer;
    let is_from = method.is_for(peer);
    let has_token =
        method.token.as_ref().is_none_or(|token| bearer::carries(&head.headers, &token.0));
    if !is_from || !has_token {
        tracing::info!(%peer, "a purge is refused");
        return Err(Error::Forbidden);
    }
    let query = head.uri.query().unwrap_or_default();
    let purged =
        method.purger.purge_url(&worker.store, &admitted.site, &admitted.path, query).await;
    let confirmed = purged.map_err(|error| Error::Purge(error.into()))?;
    record.outcome(Outcome::Bypass, Some(Reason::Method));
    let text = if confirmed { "purged\n" } else { "purged; a process did not confirm it\n" };
    let mut response = Response::new(Body::full(Bytes::from_static(text.as_bytes())));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers::put_status(worker, headers, &headers::bypassed(Reason::Method));
    Ok(response)
}
