//! The route's rules on the fields of responses. They apply last, to what a client gets: no verdict and no stored
//! page depends on them.

use ::http::header::{CACHE_CONTROL, SET_COOKIE};
use ::http::{HeaderMap, HeaderValue};
use anteroom_http::cache_control::CacheControl;

use super::client_response::ClientResponse;
use crate::context::{RequestContext, route_input, template_values};

/// Sets the fields of `set_headers`, and names in `Vary` those by which the route was chosen.
pub(crate) fn set_fields(cx: &RequestContext<'_>, response: &mut ClientResponse) {
    vary_by_route(cx, response);
    let rules = &cx.route.set_headers;
    if rules.is_empty() {
        return;
    }
    let values = template_values(cx.head, cx.admitted);
    let headers = response.headers_mut();
    for (name, template) in rules {
        // A host or path with other bytes does not get this far.
        let Ok(value) = HeaderValue::try_from(template.render(&values)) else { continue };
        if *name != CACHE_CONTROL || may_say(headers, &value) {
            headers.insert(name, value);
        }
    }
}

/// RFC 9110 §12.5.5: a cache between here and the client learns on which fields the choice of the route depends.
fn vary_by_route(cx: &RequestContext<'_>, response: &mut ClientResponse) {
    let asked = route_input(cx.head, cx.admitted);
    let names = cx.worker.settings.routes.choosing_fields(&asked, cx.route);
    if names.is_empty() {
        return;
    }
    response.vary_by(&names);
}

/// Whether a response may go out with this `Cache-Control`.
///
/// SECURITY: what belongs to one visitor, such as a response with a cookie or with filled fragments, must not be
/// released to the caches between here and the client.
fn may_say(headers: &HeaderMap, value: &HeaderValue) -> bool {
    let said = CacheControl::parse(headers, &CACHE_CONTROL);
    let is_personal = said.private || said.no_store || headers.contains_key(SET_COOKIE);
    let wanted = HeaderMap::from_iter([(CACHE_CONTROL, value.clone())]);
    let wanted = CacheControl::parse(&wanted, &CACHE_CONTROL);
    !is_personal || wanted.private || wanted.no_store
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rule_releases_what_belongs_to_one_visitor() {
        for (lines, value, may) in [
            (&[][..], "public, max-age=60", true),
            (&[(CACHE_CONTROL, "max-age=5")], "public, max-age=60", true),
            (&[(CACHE_CONTROL, "private, no-cache")], "public, max-age=60", false),
            (&[(CACHE_CONTROL, "no-store")], "max-age=60", false),
            (&[(SET_COOKIE, "a=b")], "max-age=60", false),
            (&[(CACHE_CONTROL, "private"), (SET_COOKIE, "a=b")], "no-store", true),
            (&[(CACHE_CONTROL, "private")], "private, max-age=5", true),
        ] {
            let lines =
                lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
            let headers: HeaderMap = lines.collect();
            assert_eq!(
                may_say(&headers, &HeaderValue::from_static(value)),
                may,
                "{headers:?} {value}"
            );
        }
    }
}
