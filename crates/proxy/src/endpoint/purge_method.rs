//! The method `PURGE` on the public listener, and what plugins send besides, for apps that purge their pages with it.

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use ::http::{HeaderValue, Response};
use anteroom_cache::purge::scope::{EVERY_SITE, Scope};
use anteroom_cache::purger::RequestPurge;
use anteroom_fault::fault;
use anteroom_http::bearer;
use anteroom_http::cache_status::CacheStatus;
use anteroom_http::host::Host;
use anteroom_http::purge_request::{InexpressiblePurge, PurgeHost, PurgeRequest};
use anteroom_telemetry::metrics::Outcome;
use anteroom_telemetry::reason::Reason;
use bytes::Bytes;

use crate::connection::client::Client;
use crate::context::WorkerContext;
use crate::deliver::body::Body;
use crate::deliver::headers;
use crate::error::Error;
use crate::record::RequestRecord;
use crate::settings::PurgeMethod;
use crate::stage::admit::AdmittedRequest;

/// Purges what the request names. The request is never forwarded, also if it is refused.
pub(crate) async fn answer(
    method: &PurgeMethod,
    worker: &WorkerContext,
    client: &Client,
    request: &AdmittedRequest,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Error> {
    let head = &request.head;
    let peer = client.peer;
    let is_from = method.is_for(peer);
    let has_token =
        method.token.as_ref().is_none_or(|token| bearer::carries(&head.headers, &token.0));
    if fault!("forbidden") {
        drop(purge(method, worker, request).await);
    }
    if !is_from || !has_token {
        tracing::info!(%peer, "a purge is refused");
        return Err(Error::Forbidden);
    }
    let RequestPurge { confirmed, hit_nothing } = purge(method, worker, request).await?;
    record.outcome(Outcome::Bypass, Some(Reason::Method));
    // Plugins look at the status alone; the text is for the operator that tries one.
    let text = match (confirmed, hit_nothing) {
        (false, _) => "purged; a process did not confirm it\n",
        (true, true) => "purged; no fresh page in this proxy's memory matched\n",
        (true, false) => "purged\n",
    };
    let mut response = Response::new(Body::full(Bytes::from_static(text.as_bytes())));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers::put_status(worker, headers, &CacheStatus::own(Reason::Method.as_str()));
    Ok(response)
}

/// Carries out the purge.
async fn purge(
    method: &PurgeMethod,
    worker: &WorkerContext,
    request: &AdmittedRequest,
) -> Result<RequestPurge, Error> {
    let AdmittedRequest { head, admitted, .. } = request;
    let (purger, store) = (&method.purger, &worker.store);
    let (own, query) = (&admitted.site, head.uri.query());
    let site = |host| match host {
        PurgeHost::Own => Ok(own.clone()),
        PurgeHost::Any => Ok(EVERY_SITE.to_owned()),
        PurgeHost::Named(name) => Host::parse(name.as_bytes())
            .map(|host| host.normalised(admitted.scheme).into_owned())
            .map_err(|_| Error::BadRequest("the host of this purge is none")),
    };
    let wanted = PurgeRequest::read(&head.method, &head.headers, &admitted.path, query.is_some());
    let purged = match wanted.map_err(|InexpressiblePurge(why)| Error::BadRequest(why))? {
        PurgeRequest::Own => {
            purger.purge_url(store, own, &admitted.path, query.unwrap_or_default()).await
        }
        PurgeRequest::Page(host, path) => purger.purge_url(store, &site(host)?, &path, "").await,
        PurgeRequest::Below(host, path) => {
            let scope = Scope::Prefix { site: &site(host)?, path: &path };
            purger.purge_scopes(store, &[scope]).await
        }
        PurgeRequest::Tags(tags) => {
            let scopes: Vec<_> = tags.iter().map(|tag| Scope::Tag(tag)).collect();
            purger.purge_scopes(store, &scopes).await
        }
    };
    purged.map_err(|error| Error::Purge(error.into()))
}
