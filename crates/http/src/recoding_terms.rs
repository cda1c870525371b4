//! Whether a response may be sent in other content codings than the one in which it was received.

use ::http::HeaderMap;
use ::http::header::CACHE_CONTROL;

use super::cache_control::CacheControl;
use super::coding::Coding;
use super::media;

/// What the fields of a response say about recoding it. A stored page keeps this, so that no hit reads the
/// fields again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecodingTerms {
    /// The coding that the response is in, if it may be sent in others. `None`: it goes out unchanged or not
    /// at all, for example because the origin forbids transformation (RFC 9111 §5.2.2.6).
    pub from: Option<Coding>,
    /// Whether its content compresses well.
    pub is_compressible: bool,
}

impl RecodingTerms {
    /// Reads the fields of a response.
    #[must_use]
    pub fn of(response: &HeaderMap) -> Self {
        let is_compressible = media::is_compressible(response);
        let coding = Coding::of(response).filter(|coding| {
            let is_worth_it = *coding != Coding::Identity || is_compressible;
            is_worth_it && !CacheControl::parse(response, &CACHE_CONTROL).no_transform
        });
        Self { from: coding, is_compressible }
    }

    /// Whether the response is available in several codings.
    #[must_use]
    pub fn is_negotiated(&self) -> bool {
        self.from.is_some()
    }
}
