//! The visit: `update_token` and the item that was viewed, recorded after the response.

use ::http::Method;
use anteroom_http::ident::Item;
use anteroom_telemetry::metrics::Count;

use crate::context::{NOWHERE, RequestContext};
use crate::deliver::client_response::ClientResponse;
use crate::stage::detect_upgrade;

/// Records the visit, and what was viewed, for the session or for the token of a visitor without a
/// login.
pub(crate) async fn record(cx: &RequestContext<'_>, item: Option<Item>, response: &ClientResponse) {
    let viewed = viewed(cx, item, response);
    note_visit(cx, viewed.clone());
    cx.visitor_token.remember(cx, viewed).await;
}

/// The item that was viewed. It counts as viewed if a GET of it was answered with 200 or 304. A
/// prefetch, a WebSocket, and a route where `{item}` names a row do not count.
fn viewed(cx: &RequestContext<'_>, item: Option<Item>, response: &ClientResponse) -> Option<Item> {
    // What the app states about its page outweighs the item in the URL.
    let item = response.extension::<Item>().cloned().or(item)?;
    let is_viewed = cx.head.method == Method::GET
        && matches!(response.status().as_u16(), 200 | 304)
        && !cx.head.headers.contains_key("sec-purpose")
        && !detect_upgrade::is_extended(cx.head)
        && cx.route.rows.is_none();
    is_viewed.then_some(item)
}

/// Records the visit after the response: of a known visitor with the guarded form of `update_token`, of
/// others only the view of an item.
fn note_visit(cx: &RequestContext<'_>, item: Option<Item>) {
    let visits = &cx.worker.visits;
    let Some((token, user)) = cx.visitor.known() else {
        if let Some(item) = item {
            let address = cx.admitted.address.unwrap_or(NOWHERE);
            visits.count_anonymous_view(item, address, cx.now);
        }
        return;
    };
    if let Some(item) = &item {
        visits.count_view(item.clone());
    }
    visits.note(token.clone(), user.clone(), item, cx.now);
    cx.worker.thread_metrics.count(Count::Visits);
}
