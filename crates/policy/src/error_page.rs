//! The operator's pages for the proxy's own errors.

use std::path::PathBuf;

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
