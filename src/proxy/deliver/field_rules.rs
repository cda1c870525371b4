//! The route's rules on the fields of responses. They apply last, to what a client gets: no verdict and no stored
//! page depends on them.

use ::http::HeaderValue;

use super::client_response::ClientResponse;
use crate::proxy::context::{RequestContext, template_values};

/// Sets the fields of `set_headers`.
pub(in crate::proxy) fn set_fields(cx: &RequestContext<'_>, response: &mut ClientResponse) {
    let rules = &cx.route.set_headers;
    if rules.is_empty() {
        return;
    }
    let values = template_values(cx.head, cx.admitted);
    let headers = response.headers_mut();
    for (name, template) in rules {
        // A host or path with other bytes does not get this far.
        if let Ok(value) = HeaderValue::try_from(template.render(&values)) {
            headers.insert(name, value);
        }
    }
}
