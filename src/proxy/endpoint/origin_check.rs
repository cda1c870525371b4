//! Whether a change was asked for by a page of the site itself. Cookies travel with requests that
//! other sites cause; these two fields cannot be set by a page's script.

use ::http::header::ORIGIN;
use ::http::{HeaderMap, HeaderName, HeaderValue};

use crate::http::host::{Host, Scheme};
use crate::proxy::context::Admitted;

static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// `Sec-Fetch-Site: same-origin`, or without that field an `Origin` that is the visitor's scheme
/// and host. Neither, or more than one value, is no proof.
pub(super) fn is_same_origin(headers: &HeaderMap, admitted: &Admitted) -> bool {
    match only(headers, &SEC_FETCH_SITE) {
        Found::One(site) => site == "same-origin",
        Found::Several => false,
        Found::None => match only(headers, &ORIGIN) {
            Found::One(origin) => is_origin(origin, admitted.scheme, &admitted.site),
            Found::Several | Found::None => false,
        },
    }
}

enum Found<'h> {
    None,
    One(&'h HeaderValue),
    Several,
}

fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Found<'h> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Found::None,
        (Some(line), None) => Found::One(line),
        (Some(_), Some(_)) => Found::Several,
    }
}

/// Whether `origin` (RFC 6454 §6.2) is that scheme and site.
fn is_origin(origin: &HeaderValue, scheme: Scheme, site: &str) -> bool {
    let Some((named, host)) = origin.to_str().ok().and_then(|text| text.split_once("://")) else {
        return false;
    };
    Scheme::parse(named.as_bytes()) == Some(scheme)
        && Host::parse(host.as_bytes()).is_ok_and(|host| host.normalised(scheme) == site)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_shop(origin: &str, scheme: Scheme, site: &str) -> bool {
        is_origin(&HeaderValue::from_str(origin).unwrap(), scheme, site)
    }

    #[test]
    fn an_origin_is_compared_with_scheme_host_and_port() {
        use Scheme::{Http, Https};
        assert!(is_shop("http://shop.test", Http, "shop.test"));
        assert!(is_shop("http://shop.test:80", Http, "shop.test"));
        assert!(is_shop("https://shop.test", Https, "shop.test"));
        assert!(is_shop("http://shop.test:8080", Http, "shop.test:8080"));
        assert!(is_shop("http://[::1]:8080", Http, "[::1]:8080"));
        for (origin, scheme, site) in [
            ("null", Http, "shop.test"),
            ("", Http, "shop.test"),
            ("shop.test", Http, "shop.test"),
            ("https://shop.test", Http, "shop.test"),
            ("http://shop.test", Https, "shop.test"),
            ("http://shop.test:8080", Http, "shop.test"),
            ("http://shop.test", Http, "shop.test:8080"),
            ("http://shop.test.evil", Http, "shop.test"),
            ("http://evil.shop.test", Http, "shop.test"),
            ("http://shop.test/", Http, "shop.test"),
            ("http://shop.test@evil.test", Http, "shop.test"),
            ("http://shop.test http://evil.test", Http, "shop.test"),
            ("http://shop.test, http://shop.test", Http, "shop.test"),
        ] {
            assert!(!is_shop(origin, scheme, site), "{origin}");
        }
    }
}
