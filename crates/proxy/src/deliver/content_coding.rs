//! Delivers stored pages in a content coding that the client accepts: found in memory, or made once for
//! all requests.
//!
//! `cache::recoded` decides what may be recoded, and how. Only stored pages are recoded. Pages that
//! belong to one user are not compressed, so that the compressed length reveals no secret.

use std::sync::Arc;

use ::http::header::{IF_RANGE, RANGE};
use ::http::{HeaderValue, Method};
use anteroom_cache::entry::Entry;
use anteroom_cache::memory::RecodedPage;
use anteroom_cache::recoded::{self, Delivery};
use anteroom_cache::rules::key::ShareClass;
use anteroom_http::coding::Coding;
use anteroom_http::etag::ETag;
use anteroom_http::field_set::FieldSet;
use anteroom_telemetry::reason::Reason;
use bytes::Bytes;

use super::stored::{Ready, is_not_modified};
use crate::context::RequestContext;
use crate::recompress::{SMALL, takes_stored};

/// The coding to recode a stored page to for this client; `None`: the page is sent as it is.
pub(crate) fn recoding(
    cx: &RequestContext<'_>,
    class: ShareClass,
    page: &Entry,
) -> Result<Option<Coding>, Reason> {
    let (recompressor, request) = (&cx.worker.recompressor, &cx.head.headers);
    if !recompressor.is_on() {
        return Ok(None);
    }
    match recoded::delivery(request, &page.fields, page.body.len(), recompressor.ours(class)) {
        Delivery::AsStored => Ok(None),
        Delivery::Recoded(coding) => Ok(Some(coding)),
        Delivery::Unreadable => Err(Reason::Vary),
    }
}

/// The form of a stored page to send to this client, or the reason why there is none. `keep`: memory
/// holds this very page, so it may hold its forms, too.
pub(crate) async fn ready(
    cx: &RequestContext<'_>,
    class: ShareClass,
    page: &Arc<Entry>,
    keep: bool,
) -> Result<Ready, Reason> {
    let (recompressor, request) = (&cx.worker.recompressor, &cx.head.headers);
    if !recompressor.is_on() {
        return Ok(Ready::stored(page, true));
    }
    let Some(coding) = recoding(cx, class, page)? else {
        // The client may hold the first part of a form that the proxy made, or of one that was stored before this.
        let in_parts = !page.fields.recodable.is_negotiated()
            || wants_parts(cx)
            || (cx.admitted.fields.has(FieldSet::RANGE) && recoded::is_always_sent_plain(request));
        return Ok(Ready::stored(page, in_parts));
    };
    let takes_stored = || takes_stored(request, page.fields.recodable);
    if wants_parts(cx) && takes_stored() {
        return Ok(Ready::stored(page, true));
    }
    let made = match cx.worker.pages.memory().form(page, coding) {
        Some(form) => form,
        // The client has the page already, so the form is not needed.
        None if is_not_modified(cx, page) => {
            let bare = recoded::with_body(page, coding, Bytes::new());
            return Ok(Ready { page: Arc::new(bare), in_parts: false });
        }
        None if takes_stored() && page.body.len() <= SMALL => {
            let form = recompressor.make(&cx.worker.pages, page, coding);
            if keep {
                cx.worker.pages.memory().put_form(page, coding, form.clone());
            }
            form
        }
        None if takes_stored() => {
            if keep {
                recompressor.begin(&cx.worker.pages, page, coding);
            }
            return Ok(Ready::stored(page, false));
        }
        None => recompressor.wait_for(&cx.worker.pages, page, coding, keep).await?,
    };
    match made {
        RecodedPage::Made(page) => Ok(Ready { page, in_parts: false }),
        // The page would be larger in a coding. It is sent without one, even to a client that refuses
        // `identity`.
        RecodedPage::Useless if page.fields.recodable.from == Some(Coding::Identity) => {
            // There was room for the form before, perhaps, and the client holds a part of it.
            Ok(Ready::stored(page, false))
        }
        RecodedPage::Useless => Err(Reason::Undecodable),
    }
}

/// Whether the request asks for ranges of the stored bytes, although the client gets another form. Ranges are not cut
/// from other forms. A date in `If-Range` is the same for all forms and cannot identify the form that the client holds
/// a part of. The client then gets the whole page (RFC 9110 §13.1.5).
fn wants_parts(cx: &RequestContext<'_>) -> bool {
    let request = &cx.head.headers;
    let is_tag = |value: &HeaderValue| ETag::parse(value.as_bytes()).is_some();
    cx.admitted.fields.has(FieldSet::RANGE)
        && cx.head.method == Method::GET
        && request.contains_key(RANGE)
        && request.get_all(IF_RANGE).iter().all(is_tag)
}
