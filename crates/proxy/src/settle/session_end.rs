//! Ends sessions: here at once, and in the store before the response goes out.

use anteroom_http::ident::StoredToken;
use anteroom_session::Ending;
use futures_util::future::join_all;

use crate::context::RequestContext;
use crate::error::Error;

/// Ends sessions, concurrently: here at once, and in the store now or as soon as it can be reached.
pub(super) async fn end<'t>(
    cx: &RequestContext<'_>,
    tokens: impl Iterator<Item = (&'t StoredToken, Ending)>,
) -> Result<(), Error> {
    let worker = cx.worker;
    let ended = join_all(tokens.map(|(token, how)| {
        worker.visits.forget(token);
        worker.sessions.end_as(&worker.store, token, how)
    }));
    let ended = ended.await.into_iter().collect::<Result<(), _>>();
    ended.map_err(|error| Error::Session(error.into()))
}
