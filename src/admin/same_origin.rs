//! Whether a browser sent a request from the dashboard itself, or from another page.

use ::http::header::ORIGIN;
use ::http::{HeaderMap, HeaderName, HeaderValue};

use anteroom_http::host::Host;
use anteroom_http::list;

/// What a browser says of where a request comes from. Scripts cannot set it.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The field that a script of the dashboard adds. Another page's script needs leave for it, which it never gets.
const OF_DASHBOARD: HeaderName = HeaderName::from_static("x-anteroom-admin");

/// Whether the request comes from a page of this listener at `host`. One without `Origin` does not.
pub(super) fn is_of(headers: &HeaderMap, host: &Host) -> bool {
    let origin = list::only_line(headers, &ORIGIN);
    let own = format!("http://{}", host.as_str());
    origin.is_some_and(|origin| origin.eq_ignore_ascii_case(own.as_bytes()))
}

/// Whether a script of the dashboard sent it.
pub(super) fn has_dashboard_field(headers: &HeaderMap) -> bool {
    headers.get(OF_DASHBOARD) == Some(&HeaderValue::from_static("1"))
}

/// Whether a browser says that another page sent it. For a browser, the apps at other ports of the host are of the
/// same site.
pub(super) fn is_of_other_page(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all(FETCH_SITE).iter();
    sites.any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &'static str) -> HeaderMap {
        [(HeaderName::from_static(name), HeaderValue::from_static(value))].into_iter().collect()
    }

    #[test]
    fn only_the_origin_with_the_same_host_and_port_is_the_same() {
        let host = Host::parse(b"127.0.0.1:9180").unwrap();
        assert!(is_of(&with("origin", "http://127.0.0.1:9180"), &host));
        for other in
            ["http://127.0.0.1", "https://127.0.0.1:9180", "http://127.0.0.1:8080", "null", ""]
        {
            assert!(!is_of(&with("origin", other), &host), "{other}");
        }
        assert!(!is_of(&HeaderMap::new(), &host));
    }

    #[test]
    fn a_page_at_another_port_is_another_page() {
        for (site, is_other) in
            [("same-origin", false), ("none", false), ("same-site", true), ("cross-site", true)]
        {
            assert_eq!(is_of_other_page(&with("sec-fetch-site", site)), is_other, "{site}");
        }
        assert!(!is_of_other_page(&HeaderMap::new()), "no browser");
    }
}
