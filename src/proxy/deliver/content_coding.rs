//! Stored pages in the coding that each visitor takes: found in memory, or made once for all.
//!
//! What may be recoded, and how, is `cache::recoded`'s word. Only stored pages come here, and of those that
//! are one user's own none is compressed: the length of what is compressed tells nobody a secret.

use std::sync::Arc;

use ::http::header::{IF_RANGE, RANGE};
use ::http::{HeaderValue, Method};
use bytes::Bytes;

use super::stored::{Ready, is_not_modified};
use crate::cache::entry::Entry;
use crate::cache::memory::Form;
use crate::cache::recoded::{self, Delivery};
use crate::cache::rules::key::ShareClass;
use crate::http::coding::Coding;
use crate::http::etag::ETag;
use crate::proxy::context::RequestContext;
use crate::proxy::recompress::{SMALL, takes_stored};
use crate::telemetry::reason::Reason;

/// The coding into which a stored page is brought for this visitor; `None`: he is sent it as it is.
pub(in crate::proxy) fn recoding(
    cx: &RequestContext<'_>,
    class: ShareClass,
    page: &Entry,
) -> Result<Option<Coding>, Reason> {
    let (coder, request) = (&cx.worker.recompressor, &cx.head.headers);
    if !coder.is_on() {
        return Ok(None);
    }
    match recoded::delivery(request, &page.headers, page.body.len(), coder.ours(class)) {
        Delivery::AsStored => Ok(None),
        Delivery::Recoded(coding) => Ok(Some(coding)),
        Delivery::Unreadable => Err(Reason::Vary),
    }
}

/// The form of a stored page that this visitor is sent, or why there is none. `keep`: whether memory
/// holds the very page, and so may hold its forms.
pub(in crate::proxy) async fn ready(
    cx: &RequestContext<'_>,
    class: ShareClass,
    page: &Arc<Entry>,
    keep: bool,
) -> Result<Ready, Reason> {
    let (coder, request) = (&cx.worker.recompressor, &cx.head.headers);
    if !coder.is_on() {
        return Ok(Ready::stored(page, true));
    }
    let Some(coding) = recoding(cx, class, page)? else {
        // He may have the start of a form that we made.
        let is_one_of_many = recoded::recodable(&page.headers).is_some();
        return Ok(Ready::stored(page, !is_one_of_many || wants_parts(cx)));
    };
    let takes_stored = || takes_stored(request, &page.headers);
    if wants_parts(cx) && takes_stored() {
        return Ok(Ready::stored(page, true));
    }
    let made = match cx.worker.pages.memory().form(page, coding) {
        Some(form) => form,
        // He has it already: there is no need to make it.
        None if is_not_modified(cx, page) => {
            let headers = recoded::fields(&page.headers, coding);
            let bare = Entry { headers, body: Bytes::new(), ..Entry::clone(page) };
            return Ok(Ready { page: Arc::new(bare), in_parts: false });
        }
        None if takes_stored() && page.body.len() <= SMALL => {
            let form = coder.make(&cx.worker.pages, page, coding);
            if keep {
                cx.worker.pages.memory().put_form(page, coding, form.clone());
            }
            form
        }
        None if takes_stored() => {
            if keep {
                coder.begin(&cx.worker.pages, page, coding);
            }
            return Ok(Ready::stored(page, false));
        }
        None => coder.wait_for(&cx.worker.pages, page, coding, keep).await?,
    };
    match made {
        Form::Made(page) => Ok(Ready { page, in_parts: false }),
        // Whoever refuses what is in no coding, which would be smaller in none, gets it all the same.
        Form::Useless if recoded::recodable(&page.headers) == Some(Coding::Identity) => {
            Ok(Ready::stored(page, takes_stored()))
        }
        Form::Useless => Err(Reason::Undecodable),
    }
}

/// Whether parts of the stored bytes are asked for, which are cut from no other form. A date in
/// `If-Range` is the same for all forms, and cannot tell which of them the client has the start of: he
/// gets the whole then (RFC 9110 §13.1.5).
fn wants_parts(cx: &RequestContext<'_>) -> bool {
    let request = &cx.head.headers;
    let is_tag = |value: &HeaderValue| ETag::parse(value.as_bytes()).is_some();
    cx.head.method == Method::GET
        && request.contains_key(RANGE)
        && request.get_all(IF_RANGE).iter().all(is_tag)
}
