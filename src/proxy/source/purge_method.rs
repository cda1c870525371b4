//! The method `PURGE` on the public listener, for apps that purge their pages over it.

use std::sync::Arc;

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use ::http::request::Parts;
use ::http::{HeaderValue, Response};
use bytes::Bytes;

use crate::cache::purger::Purger;
use crate::http::bearer;
use crate::http::peer::Peers;
use crate::proxy::connection::client::Client;
use crate::proxy::error::Error;
use crate::proxy::record::Trail;
use crate::proxy::stage::admit::Admitted;
use crate::proxy::{Body, Room, deliver};
use crate::telemetry::metrics::Outcome;
use crate::telemetry::reason::Reason;

/// Who may purge by it.
#[derive(Debug)]
pub struct PurgeMethod {
    /// Peers; the address of the connection counts (or what a load balancer tells of it), and what
    /// a request says of its client does not.
    pub from: Vec<Peers>,
    /// The token that they need; `None`: none.
    pub token: Option<PurgeToken>,
    /// What purges.
    pub purger: Arc<Purger>,
}

/// A token that is not shown.
pub struct PurgeToken(pub Vec<u8>);

impl std::fmt::Debug for PurgeToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PurgeToken(…)")
    }
}

/// Whether a request is a purge, where the operator has turned that on.
pub(in crate::proxy) fn method<'r>(room: &'r Room, head: &Parts) -> Option<&'r PurgeMethod> {
    room.settings.purge.as_ref().filter(|_| head.method.as_str() == "PURGE")
}

impl PurgeMethod {
    /// Whether a peer's purges are not counted: nobody else may purge.
    pub(in crate::proxy) fn is_for(&self, client: &Client) -> bool {
        client.peer.is_among(&self.from)
    }
}

/// Purges the page at the request's URL. It goes no further, whoever asks.
pub(in crate::proxy) async fn answer(
    method: &PurgeMethod,
    room: &Room,
    client: &Client,
    (head, admitted): (&Parts, &Admitted),
    trail: &mut Trail,
) -> Result<Response<Body>, Error> {
    let peer = client.peer;
    let is_from = method.is_for(client);
    let has_token =
        method.token.as_ref().is_none_or(|token| bearer::carries(&head.headers, &token.0));
    if !is_from || !has_token {
        tracing::info!(%peer, "a purge is refused");
        return Err(Error::Forbidden);
    }
    let query = head.uri.query().unwrap_or_default();
    let purged = method.purger.purge_url(&room.store, &admitted.site, &admitted.path, query).await;
    let confirmed = purged.map_err(|error| Error::Purge(error.into()))?;
    trail.outcome(Outcome::Bypass, Some(Reason::Method));
    let text = if confirmed { "purged\n" } else { "purged; a process did not confirm it\n" };
    let mut response = Response::new(Body::full(Bytes::from_static(text.as_bytes())));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    deliver::put_status(room, headers, &deliver::bypassed(Reason::Method));
    Ok(response)
}
