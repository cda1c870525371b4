//! The operator's pages for the proxy's own errors.

use std::path::PathBuf;
use std::sync::Arc;

use ::http::{HeaderMap, StatusCode};
use bytes::Bytes;

use anteroom_http::media;

/// A page in place of the proxy's own text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// The status of the errors that it is for.
    pub status: u16,
    /// The file that it was read from.
    pub file: PathBuf,
    /// The page, in HTML.
    pub html: Bytes,
}

/// The pages, by status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorPages(pub Vec<ErrorPage>);

/// What a browser shows while the app has more to do than it can: the page asks again by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrowdPage {
    /// The path where visitors of the site log in, if it is known.
    pub log_in: Option<Arc<str>>,
}

impl CrowdPage {
    /// The page, which asks again after so many seconds.
    #[must_use]
    pub fn html(&self, retry_s: u64) -> Bytes {
        let log_in = self.log_in.as_ref().map(|path| {
            let path = path.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
            format!("<p>If you have an account, <a href=\"{path}\">log in</a>: users are served first.</p>\n")
        });
        Bytes::from(format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n\
             <meta http-equiv=\"refresh\" content=\"{retry_s}\">\n\
             <meta name=\"robots\" content=\"noindex\">\n<title>Too many visitors</title>\n\
             <style>body {{ font: 1.1rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 15vh auto; padding: 0 1rem }}</style>\n\
             <h1>Too many visitors</h1>\n\
             <p>The site has more visitors now than it can serve. This page tries again by itself in {retry_s} seconds.</p>\n{}",
            log_in.unwrap_or_default()
        ))
    }
}

/// What the client of a request can read in place of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorForm {
    /// One of the operator's pages, if there is one for the status.
    Page,
    /// The proxy's own text.
    Text,
}

impl ErrorPages {
    /// The form for a request with these fields.
    #[must_use]
    pub fn form(&self, headers: &HeaderMap) -> ErrorForm {
        if !self.0.is_empty() && media::asks_for_page(headers) {
            ErrorForm::Page
        } else {
            ErrorForm::Text
        }
    }

    /// The page for a status.
    #[must_use]
    pub fn page(&self, status: StatusCode) -> Option<Bytes> {
        let page = self.0.iter().find(|page| page.status == status.as_u16());
        page.map(|page| page.html.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_page_links_to_the_log_in_and_asks_again() {
        let page = CrowdPage { log_in: Some("/login?a=1&b=\"<".into()) }.html(17);
        let page = String::from_utf8_lossy(&page);
        assert!(page.contains("content=\"17\""), "{page}");
        assert!(page.contains("href=\"/login?a=1&amp;b=&quot;&lt;\""), "{page}");
        let plain = CrowdPage { log_in: None }.html(1);
        assert!(!String::from_utf8_lossy(&plain).contains("href"));
    }
}
