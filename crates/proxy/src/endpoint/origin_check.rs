//! Checks that a page of the site itself caused a change. Browsers send cookies with requests that other
//! sites cause; the two fields checked here cannot be set by a page's script.

use ::http::header::ORIGIN;
use ::http::{HeaderMap, HeaderName, HeaderValue};
use anteroom_http::host::{Host, Scheme};

use crate::context::RequestFacts;

static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether a request comes from the same origin: `Sec-Fetch-Site` is `same-origin`, or in its absence
/// `Origin` equals the scheme and host of the request. A request with neither field, or with several
/// values of one, fails the check.
pub(super) fn is_same_origin(headers: &HeaderMap, admitted: &RequestFacts) -> bool {
    match only(headers, &SEC_FETCH_SITE) {
        RequestOrigin::One(site) => site == "same-origin",
        RequestOrigin::Several => false,
        RequestOrigin::None => match only(headers, &ORIGIN) {
            RequestOrigin::One(origin) => is_origin(origin, admitted.scheme, &admitted.site),
            RequestOrigin::Several | RequestOrigin::None => false,
        },
    }
}

enum RequestOrigin<'h> {
    None,
    One(&'h HeaderValue),
    Several,
}

fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> RequestOrigin<'h> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (None, _) => RequestOrigin::None,
        (Some(line), None) => RequestOrigin::One(line),
        (Some(_), Some(_)) => RequestOrigin::Several,
    }
}

/// Whether `origin` (RFC 6454 §6.2) has this scheme and site.
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
