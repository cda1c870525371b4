//! The page of the dashboard with its files, which are part of the program.
//!
//! They hold no data and no secret, so that whoever reaches the listener may read them.

use ::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
};
use ::http::{HeaderMap, HeaderValue, StatusCode};
use anteroom_http::etag::{self, ETag};

use super::reply::{AdminResponse, content};

/// Where the files are, without `name`.
pub(super) const FOLDER: &str = "/dashboard/";

/// The page may load its own files and ask its own listener, and nothing else.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);

/// The page.
const PAGE: &[u8] = include_bytes!("page.html");

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// Every other file: its name, its type, its content.
const FILES: &[(&str, &str, &[u8])] = &[
    ("api.js", SCRIPT, include_bytes!("api.js")),
    ("app.js", SCRIPT, include_bytes!("app.js")),
    ("bypass.js", SCRIPT, include_bytes!("bypass.js")),
    ("certificates.js", SCRIPT, include_bytes!("certificates.js")),
    ("chart.js", SCRIPT, include_bytes!("chart.js")),
    ("cookies.js", SCRIPT, include_bytes!("cookies.js")),
    ("crowd.js", SCRIPT, include_bytes!("crowd.js")),
    ("differences.js", SCRIPT, include_bytes!("differences.js")),
    ("dom.js", SCRIPT, include_bytes!("dom.js")),
    ("format.js", SCRIPT, include_bytes!("format.js")),
    ("learn.js", SCRIPT, include_bytes!("learn.js")),
    ("learn_tables.js", SCRIPT, include_bytes!("learn_tables.js")),
    ("live.js", SCRIPT, include_bytes!("live.js")),
    ("login.js", SCRIPT, include_bytes!("login.js")),
    ("misses.js", SCRIPT, include_bytes!("misses.js")),
    ("now.js", SCRIPT, include_bytes!("now.js")),
    ("purge.js", SCRIPT, include_bytes!("purge.js")),
    ("reading.js", SCRIPT, include_bytes!("reading.js")),
    ("records.js", SCRIPT, include_bytes!("records.js")),
    ("routes.js", SCRIPT, include_bytes!("routes.js")),
    ("sessions.js", SCRIPT, include_bytes!("sessions.js")),
    ("style.css", STYLE, include_bytes!("style.css")),
    ("system.js", SCRIPT, include_bytes!("system.js")),
    ("table.js", SCRIPT, include_bytes!("table.js")),
    ("uplot.css", STYLE, include_bytes!("uplot.css")),
    ("uplot.js", SCRIPT, include_bytes!("uplot.js")),
];

/// The page.
pub(super) fn page(headers: &HeaderMap) -> AdminResponse {
    served(headers, "text/html; charset=utf-8", PAGE)
}

/// The file at `path`, which begins with [`FOLDER`].
pub(super) fn file(headers: &HeaderMap, path: &str) -> Option<AdminResponse> {
    let name = path.strip_prefix(FOLDER)?;
    let (_, kind, bytes) = FILES.iter().find(|(own, ..)| *own == name)?;
    Some(served(headers, kind, bytes))
}

fn served(headers: &HeaderMap, kind: &'static str, bytes: &'static [u8]) -> AdminResponse {
    let tag = etag::of_body(bytes);
    let own = ETag::parse(tag.as_bytes());
    let mut known = etag::tags(headers, &IF_NONE_MATCH);
    let is_known = own.is_some_and(|own| known.any(|tag| tag.is_weakly(&own)));
    let mut response = match is_known {
        true => content(StatusCode::NOT_MODIFIED, kind, ""),
        false => content(StatusCode::OK, kind, bytes),
    };
    let fields = response.headers_mut();
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    fields.insert(ETAG, tag);
    fields.insert(CONTENT_SECURITY_POLICY, POLICY);
    fields.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use anteroom_telemetry::metrics::Outcome;

    use super::*;

    #[test]
    fn every_file_of_the_folder_is_served_with_its_type() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/admin/dashboard");
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        let of_page = |name: &String| name.ends_with(".js") || name.ends_with(".css");
        let there: BTreeSet<String> = names.filter(of_page).collect();
        let listed: BTreeSet<String> = FILES.iter().map(|(name, ..)| (*name).to_owned()).collect();
        assert_eq!(there, listed);
        for (name, kind, _) in FILES {
            assert_eq!(*kind, if name.ends_with(".js") { SCRIPT } else { STYLE }, "{name}");
        }
    }

    #[test]
    fn the_scripts_count_as_hits_what_the_proxy_counts() {
        let (.., script) = FILES.iter().find(|(name, ..)| *name == "live.js").unwrap();
        let script = String::from_utf8_lossy(script);
        let list = |is: &dyn Fn(Outcome) -> bool| {
            let words = Outcome::ALL.into_iter().filter(|outcome| is(*outcome));
            words.map(|outcome| format!("'{}'", outcome.as_str())).collect::<Vec<_>>().join(", ")
        };
        let hits = list(&Outcome::is_hit);
        assert!(script.contains(&format!("HITS = [{hits}]")), "{hits}");
        let from_origin = list(&|outcome| outcome.is_of_page() && !outcome.is_hit());
        assert!(script.contains(&format!("FROM_ORIGIN = [{from_origin}]")), "{from_origin}");
    }

    #[test]
    fn a_browser_that_has_a_file_gets_304() {
        let none = HeaderMap::new();
        let first = file(&none, "/dashboard/app.js").unwrap();
        assert_eq!(first.status(), StatusCode::OK);
        let mut headers = HeaderMap::new();
        headers.insert(IF_NONE_MATCH, first.headers()[ETAG].clone());
        assert_eq!(file(&headers, "/dashboard/app.js").unwrap().status(), StatusCode::NOT_MODIFIED);
        assert_eq!(page(&headers).status(), StatusCode::OK, "another file");
        for other in ["/dashboard/", "/dashboard/../mod.rs", "/dashboard/page.html"] {
            assert!(file(&none, other).is_none(), "{other}");
        }
    }
}
